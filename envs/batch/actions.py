"""Actions of a batch: their form and bounds, and the sentences that refuse others."""

from collections.abc import Callable, Mapping

import numpy as np
import torch

from ..checks import choice
from .port import Space, bounds

TYPES = {"i": (torch.uint8, torch.int32, torch.int64), "f": (torch.float32, torch.float64)}
ONE_TYPE = {"i": (torch.int32,), "f": (torch.float32,)}  # where several lanes hold an environment
NUMPY = {"i": ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"), "f": ("f2", "f4", "f8")}  # that torch knows
KINDS = {"i": "an integer", "f": "a floating-point"}


class Actions:
    """Form and bounds of the actions of a batch: [B], [B, n], [B, A] or [B, A, n], and a last axis of one is optional.

    Args:
        space: of one agent.
        num_envs: B.
        agents: A, or 0 where there is one agent and no axis for it.
        several: lanes hold an environment.
        device: where they must be; on the cpu NumPy arrays will do.
        dtype: the only one to accept; None accepts every one that there is.

    Raises:
        ValueError: another dtype.
    """

    def __init__(self, space: Space, num_envs: int, agents: int, several: bool, device: torch.device, dtype=None):
        self.low, self.high, self._kind = bounds(space)
        self.continuous = self._kind == "f"
        self.numbers, self.per_env = self.low.size, self.low.size * max(agents, 1)
        types = (ONE_TYPE if several else TYPES)[self._kind]
        self.types = types if dtype is None else (choice("action_dtype", dtype, types),)
        self.stored_type = torch.float32 if self._kind == "f" else torch.int32 if several else torch.uint8
        self._device = device
        axes = (num_envs, *([agents] if agents else []))
        self.shape = axes if self.numbers == 1 and not (agents and self._kind == "f") else (*axes, self.numbers)
        shapes = {self.shape} | ({axes, (*axes, 1)} if self.numbers == 1 else set())
        self._shapes = tuple(torch.Size(shape) for shape in sorted(shapes, key=len))
        self._axes = ("environment", *(["agent"] if agents else []), "index")

    def take(self, action) -> torch.Tensor:
        """The action as a contiguous tensor on the device, itself where it is one; its numbers are not looked at.

        Raises:
            ValueError: names what it is, and what is allowed.
        """
        tensor = action if isinstance(action, torch.Tensor) else self._from_numpy(action)
        if tensor.layout != torch.strided:
            raise ValueError(f"action is {name_of(tensor.layout)}; allowed: a dense tensor, as action.to_dense() is")
        if tensor.dtype not in self.types:
            raise ValueError(
                f"action has dtype {name_of(tensor.dtype)}; allowed: {', '.join(map(name_of, self.types))}"
            )
        if tensor.shape not in self._shapes:
            allowed = " or ".join(str(tuple(shape)) for shape in self._shapes)
            raise ValueError(f"action has shape {tuple(tensor.shape)}; allowed: {allowed}")
        if tensor.device != self._device:
            raise ValueError(f"action is on {tensor.device}; this environment is on {self._device}")
        return tensor.contiguous()

    def _from_numpy(self, action) -> torch.Tensor:
        on_host = self._device.type == "cpu"
        if not (on_host and isinstance(action, np.ndarray) and action.dtype.str[1:] in NUMPY[self._kind]):
            arrays = " or NumPy array" if on_host else f" on {self._device}"
            found = getattr(action, "dtype", type(action).__name__)
            raise ValueError(f"action must be {KINDS[self._kind]} torch tensor{arrays}, got {found}")
        plain = action.flags.carray and action.dtype.isnative  # torch refuses, or warns of, anything else
        return torch.from_numpy(action if plain else np.array(action, action.dtype.newbyteorder("=")))

    def _first_outside(self, tensor: torch.Tensor, compiled: Mapping[torch.dtype, Callable]) -> int:
        """The first number that lies outside the space or is none, -1 if there is none."""
        if compiled:
            return compiled[tensor.dtype](tensor.data_ptr(), tensor.numel())
        low, high = (torch.tensor(limit, device=self._device) for limit in (self.low, self.high))
        rows = tensor.reshape(-1, self.numbers)
        wrong = (~((rows >= low) & (rows <= high))).flatten().nonzero()  # NaN is wrong as well
        return int(wrong[0]) if len(wrong) else -1

    def require_inside(self, tensor: torch.Tensor, first_outside: Mapping[torch.dtype, Callable], playing=None):
        """Raises ValueError that names the first number of an action that lies outside the space or is none.

        Args:
            tensor: as `take` gave it.
            first_outside: compiled functions that find it, by dtype; where there are none, torch does.
            playing: agents [B, A] whose numbers are read; None: all.
        """
        first = self._first_outside(tensor, first_outside)
        if first >= 0 and playing is not None:  # perhaps of an agent that plays no more
            low = torch.from_numpy(self.low).to(tensor)
            tensor = torch.where(playing[..., None], tensor.reshape(*playing.shape, -1), low).reshape(tensor.shape)
            first = self._first_outside(tensor, first_outside)
        if first < 0:
            return
        low, high = self.low[first % self.numbers], self.high[first % self.numbers]
        between = f"[{low:g}, {high:g}]" if self._kind == "f" else f"{low} .. {high}"
        value = tensor.flatten()[first].item()
        hint = "; clamp it, or make the environment with check_actions=False" if self._kind == "f" else ""
        if len(tensor) == tensor.numel():
            raise ValueError(f"action[{first}]={value} of environment {first} is not in {between}{hint}")
        raise ValueError(f"action of {place(first, tensor.shape, self._axes)} is {value}, not in {between}{hint}")


def saturated(action: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    """An action in a type of fewer bits; integers beyond int32 are its last ones, which no space has either."""
    if kind == torch.int32 and action.dtype in (torch.int64, torch.uint64):
        action = action.to(torch.int64).clamp(-(2**31), 2**31 - 1)
    return action.to(kind)


def place(first: int, shape, axes: tuple[str, ...]) -> str:
    """Names of axes with the indices of number `first`: "environment 2, agent 0, index 7"."""
    found = np.unravel_index(first, shape)
    return ", ".join(f"{axis} {int(index)}" for axis, index in zip(axes, found, strict=False))


def name_of(kind: torch.dtype | torch.layout) -> str:
    return str(kind).removeprefix("torch.")
