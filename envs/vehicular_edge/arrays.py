"""The vehicular edge as array code on NumPy or CuPy: what batching buys without fusion.

The folder slot/ holds one slot of B environments, `ArraysEnv` repeats it over episodes.
"""

from dataclasses import replace

import numpy as np

from .. import noise
from ..checks import choice, integer
from ..kernels.compile import cupy
from .port import PORT, played_scenarios
from .slot.operations import Decision, cost, noma, offloading, queue_update
from .slot.step import Outcome, initial, observe, random_action, step
from .slot.tables import tables

__all__ = [
    "ArraysEnv", "Decision", "Outcome", "cost", "initial", "noma", "observe", "offloading", "queue_update",
    "random_action", "step", "tables",
]  # fmt: skip


def array_library(xp):
    """NumPy or CuPy as given, or of "auto" CuPy where it is installed and finds a device, else NumPy.

    Raises:
        ValueError: anything else.
    """
    if getattr(xp, "__name__", None) in ("numpy", "cupy"):
        return xp
    if xp != "auto":
        raise ValueError(f"xp={xp!r:.60} must be the module numpy, the module cupy, or 'auto'")
    try:
        library = cupy()
    except ImportError:
        return np
    try:
        return library if library.cuda.runtime.getDeviceCount() > 0 else np
    except library.cuda.runtime.CUDARuntimeError:  # no driver, or no device
        return np


class ArraysEnv:
    """B environments whose episodes start and end together, with autoreset in the same step.

    Args:
        num_envs: B.
        xp: numpy or cupy, or "auto": CuPy where it is installed and finds a device, else NumPy.
        seed: of the random policy and of the choice of scenarios, 0 .. 2^64-1.
        scenarios, preset, traffic, scenario_seed, params: as the port's, see `port.world`.
        dtype: of the state, float32 or float64.

    Raises:
        ValueError: names the argument, its value and what is allowed.
    """

    def __init__(
        self, num_envs: int, xp=np, seed: int = 0, scenarios=8, preset: str | None = None, traffic: str | None = None,
        scenario_seed: int | None = None, dtype: str = "float32", **params,
    ):  # fmt: skip
        choice("dtype", dtype, ("float32", "float64"))
        self.num_envs, self.seed, self.xp = integer("num_envs", num_envs, 1, 2**31 - 1), seed, array_library(xp)
        integer("seed", seed, 0, 2**64 - 1)
        self.scenarios = played_scenarios(PORT, scenarios, preset, traffic, scenario_seed, params)
        self.params = self.scenarios[0].params
        self._index = self.xp.arange(num_envs, dtype=self.xp.uint64)
        self._first = tables(self.xp, self.scenarios, np.zeros(num_envs, dtype=np.int64), dtype)
        self.reset()

    def reset(self):
        """Episode 0 of every environment; returns observations [B, D]."""
        self.episode = self.clock = 0
        self.state = initial(self.xp, self._first)  # running scales start as the first scenario's
        return self._open()

    def _open(self):
        """Slot 0 with empty queues; returns observations [B, D]."""
        xp, chosen = self.xp, self._first.index
        if not self.params.frozen_scenario:
            word = noise.philox((self._index, self.episode, 0, noise.RESET), self.seed, xp)[0]
            chosen = (word % xp.uint32(len(self.scenarios))).astype(xp.int64)
        self.tables, self.t = replace(self._first, index=chosen), 0
        running = {name: self.state[name] for name in self._first.running}
        self.state = {**initial(xp, self._first), **running}
        return observe(xp, self.tables, self.state, xp.zeros(self.num_envs, dtype=xp.int64))

    def random_actions(self, steps: int):
        """The documented random policy's actions [B, 2, A] float32 for the next steps, one after the other."""
        for clock in range(self.clock, self.clock + steps):
            yield random_action(self.xp, self.params, self.seed, self._index, clock)

    def step(self, action):
        """One slot; returns obs [B, D], reward [B], terminated and truncated [B]."""
        self.state, outcome = step(self.xp, self.tables, self.state, action, self.t)
        self.t, self.clock = self.t + 1, self.clock + 1
        observation = outcome.observation
        if self.t == self.params.slots:
            self.episode += 1
            observation = self._open()
        return observation, outcome.reward, self.xp.zeros_like(outcome.truncated), outcome.truncated
