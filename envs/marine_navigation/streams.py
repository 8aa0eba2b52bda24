"""Random numbers of marine navigation: Philox keyed by (environment, episode, step field, stream) (README.md, 4.2)."""

import functools

import numpy as np

from ..noise import philox

ROBOT_PROPOSALS, ROBOTS, CORE_PROPOSALS, OBSTACLE_PROPOSALS, MIX = range(5)
PERCEPTION, PER_OBSERVER = 256, 128  # first stream of an observer's noise, streams of an observer
ROBOT_OBJECT = 32  # object number of robot 0; obstacle k is k
KNOTS = 4096  # of the inverse distribution function of ξ
UNIT = 2.0**-24


def unit(word):
    """U[0, 1): the upper 24 bits of a word, float64."""
    return (np.asarray(word) >> np.uint32(8)) * UNIT


def between(low: float, high: float, u):
    """U[low, high) of a number u of U[0, 1)."""
    return low + (high - low) * u


def id_of(word, ids: int):
    """A noise id 0 .. ids-1."""
    return (np.asarray(word, np.uint64) >> np.uint64(8)) * np.uint64(ids) >> np.uint64(24)


def normals(words):
    """Two standard normals by Box and Muller of two words [2, ...]: [2, ...] float64."""
    radius = np.sqrt(-2.0 * np.log(unit(words[0]) + UNIT))
    angle = 2.0 * np.pi * unit(words[1])
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)])


def perception(seed: int, environment: int, episode: int, t: int, observers, objects) -> tuple[np.ndarray, np.ndarray]:
    """Noise of what observers [n] see of objects [k] after step t.

    Args:
        observers: robots, or their noise ids.
        objects: obstacle k is k, robot j is 32 + j.

    Returns:
        Standard normals [n, k, 4] of position x, y and velocity x, y; ξ [n, k] in (-π, π].
    """
    first = PERCEPTION + PER_OBSERVER * np.asarray(observers)[:, None] + 2 * np.asarray(objects)
    words = philox((environment, episode, t, np.stack([first, first + 1])), seed)  # [4, 2, n, k]
    drawn = np.concatenate([normals(words[:2, 0]), normals(words[2:, 0])])
    return np.moveaxis(drawn, 0, -1), von_mises(unit(words[0, 1]))


def von_mises(u):
    """ξ of numbers u of U[0, 1): linear between the knots."""
    place = np.asarray(u) * (KNOTS - 1)
    below = place.astype(np.int64)
    knots = von_mises_knots()
    return knots[below] + (place - below) * (knots[below + 1] - knots[below])


@functools.cache
def von_mises_knots() -> np.ndarray:
    """F⁻¹(k/4095) of the von Mises distribution of mean 0 and concentration 1, [4096] float64, from -π to π.

    F by Gauss and Legendre's rule of eight points on 4,096 intervals, its inverse by Newton's method.
    """
    grid = np.linspace(-np.pi, np.pi, KNOTS + 1)
    mass = _integral(grid[:-1], grid[1:])
    below = np.concatenate([[0.0], np.cumsum(mass)])
    wanted = np.arange(KNOTS) / (KNOTS - 1) * below[-1]
    cell = np.clip(np.searchsorted(below, wanted, side="right") - 1, 0, KNOTS - 1)
    x = grid[cell]
    for _ in range(6):
        x = x - (below[cell] + _integral(grid[cell], x) - wanted) / np.exp(np.cos(x))
    x[0], x[-1] = -np.pi, np.pi
    x.setflags(write=False)
    return x


def _integral(low, high):
    """∫ exp(cos x) dx between limits [n]."""
    points, weights = np.polynomial.legendre.leggauss(8)
    half = (high - low) / 2
    return half * (np.exp(np.cos((low + high)[:, None] / 2 + half[:, None] * points)) @ weights)
