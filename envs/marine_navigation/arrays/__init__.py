"""Marine navigation as array code on NumPy or CuPy: what batching buys without fusion.

`step` is a control step of B environments, `ArraysEnv` repeats it over episodes.
"""

import inspect

import numpy as np
from gymnasium.spaces import Box, Discrete

from ... import noise
from ...checks import choice, integer
from ..params import make_params
from .drawing import first
from .model import Model, Probe
from .perception import perceive
from .step import Outcome, step

__all__ = ["ArraysEnv", "Model", "Outcome", "Probe", "first", "perceive", "step"]


class ArraysEnv:
    """B environments, each with an episode of its own, and autoreset in the same step.

    Args:
        num_envs: B.
        xp: numpy or cupy.
        seed: of scenarios, noise and the random policy, 0 .. 2^64-1.
        preset, version, params: as the original's.
        dtype: of the state, float32 or float64.

    Raises:
        ValueError: names the argument, its value and what is allowed.
    """

    def __init__(
        self, num_envs: int, xp=np, seed: int = 0, preset: str | None = None, version: str = "thruster",
        dtype: str = "float32", **params,
    ):  # fmt: skip
        self.num_envs, self.seed = integer("num_envs", num_envs, 1, 2**31 - 1), integer("seed", seed, 0, 2**64 - 1)
        options = [name for name in inspect.signature(ArraysEnv).parameters if name != "params"]
        given = make_params(version, preset, options, **params)
        self.params = given.widened([given.check_setting(given.setting)[:3]])
        self.model = Model(xp, self.params, choice("dtype", dtype, ("float32", "float64")))
        continuous = self.params.action_kind == "continuous"
        self._space = Box(-1.0, 1.0, (2,), np.float32) if continuous else Discrete(self.params.choices)
        self.index = xp.arange(num_envs, dtype=xp.uint64)
        self.reset()

    def reset(self):
        """Episode 0 of every environment; returns observations [B, A, n]."""
        xp, self.clock = self.model.xp, 0
        self.state = first(self.model, self.seed, self.index, xp.zeros(self.num_envs, dtype=xp.int64))
        return perceive(self.model, self.state, self.seed, self.index)[0]

    def random_actions(self, steps: int):
        """The documented random policy's actions [B, A, 2] float32 or [B, A] int32 for the next steps, one by one."""
        for clock in range(self.clock, self.clock + steps):
            drawn = noise.random_numbers(self._space, self.params.robots, self.seed, self.index, clock, self.model.xp)
            yield drawn if self.params.action_kind == "continuous" else drawn[..., 0]

    def step(self, action):
        """One step with autoreset.

        Args:
            action: an array of numbers [B, A, 2] or of integers [B, A]; others than the space's are taken as `rates`
                and `kinematic` in boats.py say.

        Returns:
            Observations [B, A, n], reward, terminated and truncated [B, A].

        Raises:
            ValueError: no such array.
        """
        xp = self.model.xp
        needed, kinds = (self.num_envs, self.params.robots, *self._space.shape), "iuf" if self._space.shape else "iu"
        if getattr(action, "shape", None) != needed or action.dtype.kind not in kinds:
            numbers = "numbers" if self._space.shape else "integers"
            given = f"{action.dtype} {action.shape}" if hasattr(action, "dtype") else type(action).__name__
            raise ValueError(f"action is {given}, must be an array of {numbers} {needed}")
        self.state, outcome = step(self.model, self.state, action, self.seed, self.index)
        self.clock += 1
        rows = xp.flatnonzero(outcome.over)
        if len(rows):
            begun = first(self.model, self.seed, self.index[rows], self.state["episode"][rows] + 1)
            for name, fields in begun.items():
                self.state[name] = xp.copy(self.state[name])
                self.state[name][rows] = fields
            outcome.observation[rows] = perceive(self.model, begun, self.seed, self.index[rows])[0]
        return outcome[:4]
