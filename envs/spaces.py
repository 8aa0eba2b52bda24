"""Gymnasium's spaces and vector base class, or plain stand-ins on a machine without Gymnasium (a bare GPU machine)."""

try:
    from gymnasium.error import ClosedEnvironmentError, ResetNeeded
    from gymnasium.spaces import Box, Discrete, MultiDiscrete
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError:
    from dataclasses import dataclass
    from enum import Enum

    import numpy as np

    class ResetNeeded(RuntimeError):
        """A step before the first reset."""

    class ClosedEnvironmentError(RuntimeError):
        """A use after `close()`."""

    class AutoresetMode(Enum):
        NEXT_STEP = "NextStep"
        SAME_STEP = "SameStep"
        DISABLED = "Disabled"

    @dataclass
    class Box:
        low: np.ndarray
        high: np.ndarray
        dtype: type = np.float32

        @property
        def shape(self) -> tuple[int, ...]:
            return np.shape(self.low)

    @dataclass
    class Discrete:
        n: int
        shape: tuple[int, ...] = ()
        dtype: type = np.int64

    @dataclass
    class MultiDiscrete:
        nvec: np.ndarray
        dtype: type = np.int64

        @property
        def shape(self) -> tuple[int, ...]:
            return np.shape(self.nvec)

    class VectorEnv:
        metadata: dict = {}
        closed = False
        spec = None

        def close(self, **kwargs):
            self.closed = True

    def batch_space(space, n):
        return None


MODES = {"NextStep": 0, "SameStep": 1, "Disabled": 2}  # of autoreset, as batch.cuh numbers them

__all__ = [
    "MODES",
    "AutoresetMode",
    "Box",
    "ClosedEnvironmentError",
    "Discrete",
    "MultiDiscrete",
    "ResetNeeded",
    "VectorEnv",
    "batch_space",
]
