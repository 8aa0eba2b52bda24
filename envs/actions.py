"""What a batch of threads takes as actions, and how it says what it does not take."""

from collections.abc import Callable, Mapping

import numpy as np
import torch

from .checks import choice
from .spaces import Box, Discrete

DISCRETE_TYPES = (torch.uint8, torch.int32, torch.int64)
CONTINUOUS_TYPES = (torch.float32, torch.float64)
INTEGERS = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")  # NumPy's types that torch knows
FLOATS = ("f2", "f4", "f8")


class Actions:
    """Form and bounds of the actions [B] or [B, 1] of a batch.

    Args:
        space: of one environment.
        num_envs: B.
        device: where they must be; on the cpu NumPy arrays will do.
        dtype: the only one to accept; None accepts uint8, int32 and int64, of a Box float32 and float64.

    Raises:
        ValueError: another dtype.
    """

    def __init__(self, space: Discrete | Box, num_envs: int, device: torch.device, dtype: torch.dtype | None):
        self._continuous = isinstance(space, Box)
        types = CONTINUOUS_TYPES if self._continuous else DISCRETE_TYPES
        self.types = types if dtype is None else (choice("action_dtype", dtype, types),)
        self.stored_type = torch.float32 if self._continuous else torch.uint8  # in a trajectory
        self._device = device
        self._shapes = (torch.Size((num_envs,)), torch.Size((num_envs, 1)))
        self._low, self._high = (space.low.item(), space.high.item()) if self._continuous else (0, int(space.n) - 1)

    def take(self, action) -> torch.Tensor:
        """The action as a contiguous tensor on the device, itself where it is one; its numbers are not looked at.

        Raises:
            ValueError: names what it is, and what is allowed.
        """
        tensor = action if isinstance(action, torch.Tensor) else self._from_numpy(action)
        if tensor.dtype not in self.types:
            raise ValueError(f"action has dtype {_name(tensor.dtype)}; allowed: {', '.join(map(_name, self.types))}")
        if tensor.shape not in self._shapes:
            allowed = " or ".join(str(tuple(shape)) for shape in self._shapes)
            raise ValueError(f"action has shape {tuple(tensor.shape)}; allowed: {allowed}")
        if tensor.device != self._device:
            raise ValueError(f"action is on {tensor.device}; this environment is on {self._device}")
        return tensor.contiguous()

    def _from_numpy(self, action) -> torch.Tensor:
        numbers, on_host = FLOATS if self._continuous else INTEGERS, self._device.type == "cpu"
        if not (on_host and isinstance(action, np.ndarray) and action.dtype.str[1:] in numbers):
            kind = "a floating-point" if self._continuous else "an integer"
            arrays = " or NumPy array" if on_host else f" on {self._device}"
            found = getattr(action, "dtype", type(action).__name__)
            raise ValueError(f"action must be {kind} torch tensor{arrays}, got {found}")
        plain = action.flags.carray and action.dtype.isnative  # torch refuses, or warns of, anything else
        return torch.from_numpy(action if plain else np.array(action, action.dtype.newbyteorder("=")))

    def require_inside(self, tensor: torch.Tensor, first_outside: Mapping[torch.dtype, Callable]):
        """Raises ValueError that names the first environment whose action lies outside the space or is not a number.

        Args:
            tensor: as `take` gave it.
            first_outside: compiled functions that find it, by dtype; where there are none, torch does.
        """
        if first_outside:
            first = first_outside[tensor.dtype](tensor.data_ptr(), tensor.numel())
        else:
            wrong = (~((tensor >= self._low) & (tensor <= self._high))).flatten().nonzero()  # NaN is wrong as well
            first = int(wrong[0]) if len(wrong) else -1
        if first >= 0:
            between = f"[{self._low:g}, {self._high:g}]" if self._continuous else f"{self._low} .. {self._high}"
            raise ValueError(
                f"action[{first}]={tensor.flatten()[first].item()} of environment {first} is not in {between}"
                + ("; clamp it, or make the environment with check_actions=False" if self._continuous else "")
            )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
