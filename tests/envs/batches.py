"""Batches of the environments that Gymnasium has, in their own episodes; tests/contract has those of every one."""

import numpy as np
import pytest

from lockstep import envs
from tests.contract.batches import DEVICES, INFO, KNOWN, MODES, copies, equal, random_step, statistics
from tests.contract.test_rollouts import linear

__all__ = ["DEVICES", "INFO", "MODES", "NAMES", "B", "copies", "linear", "make", "random_step", "same", "spread"]
__all__ += ["DIFFERENT", "EACH_KIND", "statistics"]

NAMES = KNOWN
OFTEN = ("cartpole", "pendulum")  # one of choices and one of a box are always played, the others among the slow cases
EACH_KIND = [pytest.param(name, marks=[pytest.mark.slow] * (name not in OFTEN)) for name in NAMES]
DIFFERENT = [name for name in envs.names() if name in OFTEN or name not in NAMES]  # whose kernels share little
B = 200  # environments; from 129 on every batch is compiled for the same tile, so that few variants are compiled


def make(name: str = "cartpole", num_envs: int = B, *, reset: bool = True, **options):
    """A batch at its first states, on the device `device` of the options."""
    env = envs.make(name, num_envs, **options)
    if reset:
        env.reset()
    return env


def spread(env) -> None:
    """Puts environment i at step i/B of the horizon, so that some episode ends soon, whatever the environment."""
    env.set_state({"elapsed": np.arange(env.num_envs) * env.max_episode_steps // env.num_envs})


def same(a: dict, b: dict, but: tuple = ()) -> bool:
    """True where two states of batches are equal bit for bit, the keys `but` left out."""
    return equal(*({key: value for key, value in state.items() if key not in but} for state in (a, b)))
