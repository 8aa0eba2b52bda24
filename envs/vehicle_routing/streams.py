"""Random numbers of vehicle routing: Philox keyed by (environment, episode, item, stream) (README.md, 4.2)."""

import numpy as np

from ..noise import philox

TRIP, PICKUP_PRESHIFT, DROPOFF_PRESHIFT, ORDER, ACTIONS, SAMPLES = range(6)  # of an episode
POINTS, FACTORS, ANCHORS, KINDS, ZONES, TIMES = range(16, 22)  # of a city


def mulhi(word, count):
    """A whole number 0 .. count-1 of a word: the upper half of their product, int64."""
    return (np.asarray(word, np.uint64) * np.asarray(count, np.uint64) >> np.uint64(32)).astype(np.int64)


def unit(word):
    """U[0, 1): the upper 24 bits of a word, float64."""
    return (np.asarray(word) >> np.uint32(8)) * 2.0**-24


def shuffled(words) -> list[int]:
    """A permutation of 0 .. n-1 by Fisher and Yates: i = n-1 .. 1 changes places with mulhi(words[i], i + 1)."""
    order = list(range(len(words)))
    partner = mulhi(words, np.arange(1, len(words) + 1)).tolist()
    for i in range(len(words) - 1, 0, -1):
        j = partner[i]
        order[i], order[j] = order[j], order[i]
    return order


def words(seed: int, environment, episode, item, stream) -> np.ndarray:
    """Word 0 of each block."""
    return philox((environment, episode, item, stream), seed)[0]
