"""Random numbers of crypto trading: Philox keyed by (index, episode, step, stream) (README.md, 4.1)."""

import numpy as np

from ..noise import philox, uniform

START, REGIME, VOL, RETURN, JUMP, RANGE, VOLUME, SIGNAL, RANDOM_RULE, BOOTSTRAP = 1, *range(16, 25)
COMMON = 0  # index of what all assets share; asset i has i + 1


def words(seed: int, index: int, steps, stream: int) -> np.ndarray:
    """Words [4, T] of an index at steps [T]."""
    return philox((index, 0, steps, stream), seed)


def unit(word) -> np.ndarray:
    """U(0, 1): (w + 0.5) / 2^32, float64."""
    return (np.asarray(word, np.float64) + 0.5) * 2.0**-32


def normals(block) -> np.ndarray:
    """Two standard normals [2, ...] of words 0 and 1 by Box and Muller."""
    radius, angle = np.sqrt(-2.0 * np.log(unit(block[0]))), 2.0 * np.pi * unit(block[1])
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)])


def start_place(seed: int, index: int, episode: int, places: int) -> int:
    """A place 0 .. places-1 where an episode starts: the upper half of word 0 times `places`."""
    word = int(philox((index, episode, 0, START), seed)[0])
    return word * places >> 32


def random_rule(seed: int, lane, bar, assets: int) -> np.ndarray:
    """Actions [..., N] of the rule `random` in lanes and at bars t of the window, numbers or arrays that broadcast:
    asset i takes word i mod 4 of the block (lane, i div 4, t, RANDOM_RULE), float32 in [-1, 1)."""
    lane, bar = (np.asarray(number)[..., None] for number in (lane, bar))
    words = np.moveaxis(philox((lane, np.arange(-(-assets // 4)), bar, RANDOM_RULE), seed), 0, -1)
    return uniform(words.reshape(*words.shape[:-2], -1)[..., :assets], -1.0, 1.0)
