"""Policies without learning: the action for the traveller who asks (README.md, 7).

A policy is `policy(mask, noise) -> action`: `mask` [16] bool are the actions that may be chosen.
"""

from typing import NamedTuple

import numpy as np

from . import streams
from .windows import ACTIONS, NO_SHIFT, SHIFTS


class Noise(NamedTuple):
    """Key of the random policy's numbers."""

    seed: int
    environment: int
    episode: int
    t: int  # decision


def random(mask: np.ndarray, noise: Noise) -> int:
    """Any action, the mask not read."""
    word = streams.words(noise.seed, noise.environment, noise.episode, noise.t, streams.ACTIONS)
    return int(streams.mulhi(word, ACTIONS))


def keep(mask: np.ndarray, noise: Noise) -> int:
    """No shift."""
    return NO_SHIFT


def largest(mask: np.ndarray, noise: Noise) -> int:
    """The largest shift of those in the mask, ties to the lowest index."""
    return int(np.where(mask, np.abs(SHIFTS).sum(axis=1), -1).argmax())


POLICIES = {"random": random, "keep": keep, "largest": largest}
