"""The whole state of a batch, copied out and put back: to resume bit for bit, or to start from a given state."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from lockstep.reading import nearest

from .actions import name_of
from .buffers import BANKS
from .port import TYPES, Field

# torch has few operations on these, on a GPU not even a mask: the same memory has another name, and copies are wider.
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32}
WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64}
GIVEN = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint64}
GIVEN |= {torch.float16, torch.bfloat16, torch.float32, torch.float64, *WIDER}
RETURNS = ("running_return", "episode_return")  # which statistics are made of


class States:
    """The rows of each environment's state, and the checks of what is written to them.

    Args:
        rows: tensors [B, ...] by key, of a batch's buffers.
        fields: of the state.
        highest: of the keys that are integers.
        restarts: a batch whose environments are in their next episode as soon as one has ended.
        empty: an episode may be without agents from its beginning.
    """

    def __init__(
        self, rows: Mapping[str, torch.Tensor], fields: Sequence[Field], highest: dict, restarts: bool, empty: bool
    ):
        self.rows, self._highest, self._restarts, self._empty = dict(rows), highest, restarts, empty
        self._of_bank = {
            BANKS[kind]: [one for one in fields if one.dtype == kind]
            for kind in TYPES
            if any(one.dtype == kind for one in fields)
        }
        self.fields: dict[str, torch.Tensor] = {}  # views [B, ...], one for each field
        self._known = {one.name: one for one in fields}
        for bank, of_bank in self._of_bank.items():
            lengths = [math.prod(one.shape) for one in of_bank]
            for one, part in zip(of_bank, self.rows[bank].split(lengths, dim=1), strict=True):
                self.fields[one.name] = part.unflatten(1, one.shape) if one.shape else part[:, 0]

    def take(self) -> dict[str, torch.Tensor]:
        """Copies to hand out, in signed types."""
        return {
            key: tensor.to(WIDER.get(tensor.dtype, tensor.dtype), copy=True, memory_format=torch.contiguous_format)
            for key, tensor in self.rows.items()
        }

    def check(
        self, state: Mapping, whole: Sequence[str], world: Sequence[str], mask: torch.Tensor | None
    ) -> dict[str, torch.Tensor]:
        """The rows of a given state, in the types of where they go.

        Args:
            whole: keys that belong to the whole batch.
            world: keys that are compared elsewhere.
            mask: [B] the environments that it is written to; None: all.

        Raises:
            ValueError: an unknown key, a wrong shape, a number that no step leads to.
        """
        if not isinstance(state, Mapping):
            raise ValueError(f"set_state: state must be a mapping as state() returns it, got {type(state).__name__}")
        allowed = [*self.rows, *self.fields, *whole]
        for key in state:
            if key not in allowed:
                raise ValueError(f"set_state: unknown key {key!r}{nearest(key, (*allowed, *world))}")
            if mask is not None and key in whole:
                raise ValueError(f"set_state: {key!r} belongs to the whole batch and cannot be masked")
        return {key: self._checked(key, value) for key, value in state.items() if key not in whole}

    def write(self, found: Mapping[str, torch.Tensor], mask: torch.Tensor | None):
        """Copies what `check` found over the batch's own, in the environments of a mask."""
        for key, tensor in found.items():
            target, tensor = signed(self._target(key)), signed(tensor)
            if mask is not None:
                tensor = torch.where(mask.reshape(-1, *[1] * (target.ndim - 1)), tensor, target)
            target.copy_(tensor)

    def _target(self, key: str) -> torch.Tensor:
        return self.rows[key] if key in self.rows else self.fields[key]

    def _checked(self, key: str, value) -> torch.Tensor:
        """One key's rows on the device in the type of where they go; one environment's rows go to all."""
        target = self._target(key)
        shape = tuple(target.shape)
        tensor = array(key, value, shape, shape[1:]).expand(shape)
        if target.dtype == torch.bool:
            refuse(key, tensor, (tensor != 0) & (tensor != 1), "False or True")
        elif key in self._of_bank or key in self._known:
            of_bank = self._of_bank.get(key) or [self._known[key]]
            parts = tensor.reshape(len(tensor), -1).split([math.prod(one.shape) for one in of_bank], dim=1)
            for one, part in zip(of_bank, parts, strict=True):
                self._require_allowed(one, part.reshape(len(part), *one.shape), target.dtype)
        elif not target.dtype.is_floating_point:
            tensor = integers(key, tensor, self._highest.get(key, 2**31 - 1))
        elif key in RETURNS:
            refuse(key, tensor, tensor.isnan(), "a number")  # an unchecked action may cost infinitely much
        return tensor.to(device=target.device, dtype=target.dtype)

    def _require_allowed(self, field: Field, values: torch.Tensor, kept_as: torch.dtype):
        if not kept_as.is_floating_point and values.is_floating_point():
            raise ValueError(f"set_state: {field.name} must be integers, got {name_of(values.dtype)}")
        values = values.to(kept_as) if kept_as.is_floating_point else values  # where too large a number is infinite
        # A limit is the smallest that float32 may round it to.
        low, high = (math.copysign(max(abs(x), abs(float(np.float32(x)))), x) for x in (field.low, field.high))
        wrong = ~((values >= low) & (values <= high)) | (values.isinf() & field.finite)
        if not kept_as.is_floating_point:
            limits = torch.iinfo(kept_as)
            low, high = int(max(field.low, limits.min)), int(min(field.high, limits.max))
            wrong, allowed = (values < low) | (values > high), f"in {low} .. {high}"
        elif math.isfinite(field.low) and math.isfinite(field.high):
            allowed = f"in [{field.low}, {field.high}]"
        else:
            allowed = f"finite in {name_of(kept_as)}" if field.finite else "a number"
            allowed += f" and at least {field.low:g}" if math.isfinite(field.low) else ""
        refuse(field.name, values, wrong, allowed)

    def require_unfinished(self, found: Mapping[str, torch.Tensor], mask: torch.Tensor | None):
        """Raises ValueError where an episode that has not ended is at the step limit, or has no agent left."""
        rows = {**self.rows, **found}
        elapsed = rows["elapsed"].to(torch.int64)
        ended = rows["ended"] if "ended" in rows else rows["terminated"] | rows["truncated"]
        limit = self._highest["elapsed"]
        running = ~ended | self._restarts
        running = running if mask is None else running & mask
        refuse("elapsed", elapsed, running & (elapsed == limit), f"in 0 .. {limit - 1}, its episode being unfinished")
        if "active" in rows and not self._empty:
            anybody = rows["active"].any(dim=1)
            refuse("active", anybody, running & ~anybody, "True for some agent, its episode being unfinished")


def array(key: str, value, *shapes: tuple[int, ...]) -> torch.Tensor:
    """The value as a tensor of real numbers of one of the shapes, on whatever device; ValueError where it is none."""
    try:
        tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))
    except (TypeError, ValueError):
        raise ValueError(f"set_state: {key} must be an array of numbers, got {value!r:.60}") from None
    if tuple(tensor.shape) not in shapes:
        needed = " or ".join(map(str, shapes))
        raise ValueError(f"set_state: {key} has shape {tuple(tensor.shape)}; needed: {needed}")
    if tensor.dtype not in GIVEN or tensor.layout != torch.strided or tensor.device.type == "meta":
        found = "meta" if tensor.device.type == "meta" else name_of(tensor.dtype)
        raise ValueError(f"set_state: {key} must be real numbers in memory, got {found}")
    if tensor.dtype == torch.uint64:
        tensor = tensor.view(torch.int64)
        refuse(key, tensor.view(torch.uint64), tensor < 0, "below 2^63")
    return tensor.detach().to(WIDER.get(tensor.dtype, tensor.dtype))


def integers(key: str, values: torch.Tensor, high: int) -> torch.Tensor:
    """The values as int64; ValueError unless they are integers from 0 to `high`."""
    if values.is_floating_point():
        raise ValueError(f"set_state: {key} must be integers, got {name_of(values.dtype)}")
    values = values.to(torch.int64)
    refuse(key, values, (values < 0) | (values > high), f"in 0 .. {high}")
    return values


def refuse(key: str, values: torch.Tensor, wrong: torch.Tensor, allowed: str):
    """Raises ValueError naming the first environment [B, ...] where a value is wrong, and what is allowed."""
    if bool(wrong.any()):
        first = tuple(int(k) for k in wrong.nonzero()[0])
        place = f" of environment {first[0]}" if first else ""
        raise ValueError(f"set_state: {key}={values[first].item()}{place} must be {allowed}")


def signed(tensor: torch.Tensor) -> torch.Tensor:
    """A view of a tensor under a signed type of the same width."""
    return tensor.view(SIGNED.get(tensor.dtype, tensor.dtype))
