"""The batched loop around an environment's array form: clock, autoreset in the same step, noise."""

import numpy as np

from . import noise
from .batch import Port
from .batch.port import bounds


class ArraysEnv:
    """B environments as array code.

    Args:
        form: an environment's `arrays` module, with `reset(xp, seed, index, episode)` and `step(xp, state, action)`.
        num_envs: B.
        port: what the environment declares.
        xp: numpy or cupy.
        seed: 0 .. 2^64-1.
    """

    def __init__(self, form, num_envs: int, port: Port, xp=np, seed: int = 0):
        self.num_envs, self.horizon, self.seed = num_envs, port.of("horizon"), seed
        self._form, self._xp, self._space = form, xp, port.of("action")
        self._numbers = bounds(self._space)[0].size
        self._index = xp.arange(num_envs, dtype=xp.uint64)
        self.reset()

    def reset(self):
        """Episode 0 of every environment; returns observations [B, n] float32."""
        xp = self._xp
        self.episode = xp.zeros(self.num_envs, dtype=xp.uint64)
        self.elapsed = xp.zeros(self.num_envs, dtype=xp.int32)
        self.state = self._form.reset(xp, self.seed, self._index, self.episode)
        self.clock = 0
        return xp.ascontiguousarray(self.state.T)

    def random_actions(self, steps: int):
        """The documented random policy's actions for the next steps, [steps, B] or [steps, B, n]."""
        xp = self._xp
        if self._numbers == 1:
            return noise.random_actions(self._space, self.seed, self._index, steps, self.clock, xp)
        clocks = range(self.clock, self.clock + steps)
        return xp.stack([noise.random_numbers(self._space, 1, self.seed, self._index, t, xp)[:, 0] for t in clocks])

    def step(self, action):
        """One step with autoreset; returns obs [B, n], reward, terminated, truncated [B]."""
        xp = self._xp
        self.state, reward, terminated = self._form.step(xp, self.state, action)
        self.elapsed += 1
        self.clock += 1
        truncated = self.elapsed >= self.horizon
        ended = terminated | truncated
        rows = xp.flatnonzero(ended)
        if len(rows):
            self.episode[rows] += xp.uint64(1)
            first = self._form.reset(xp, self.seed, self._index[rows], self.episode[rows])
            self.state[:, rows] = first
        self.elapsed = xp.where(ended, 0, self.elapsed)
        return xp.ascontiguousarray(self.state.T), reward, terminated, truncated
