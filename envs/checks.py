"""Checks of arguments; a message names the argument, its value and what is allowed."""

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch

from lockstep.reading import nearest


def available_memory(device: torch.device) -> int:
    """Bytes that could be allocated on a device now."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # torch can hand it out again
        return torch.cuda.mem_get_info(device)[0] + unused
    try:
        with open("/proc/meminfo") as lines:
            free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(free, _container_memory())


def _container_memory(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """Bytes that limits leave of the process's control group and of those around it, infinite where there is none.

    Cached files that nobody reads count as free: the system gives their memory away before it refuses any.
    """
    try:
        (place,) = [line[3:].strip("/") for line in own.read_text().splitlines() if line.startswith("0::")]
    except (OSError, ValueError):
        place = ""
    left = math.inf
    for folder in (groups / place, *[groups / parent for parent in Path(place).parents]):
        try:
            limit, used, parts = ((folder / f"memory.{name}").read_text() for name in ("max", "current", "stat"))
            cached = next(int(line.split()[1]) for line in parts.splitlines() if line.startswith("inactive_file "))
            left = min(left, max(int(limit) - (int(used) - cached), 0))
        except (OSError, ValueError, StopIteration):  # no limit here
            continue
    return left


def require_memory(needed: int, device: torch.device, what: str, count: int):
    """Raises MemoryError where `needed` bytes for `count` of something do not fit, and says how many would."""
    free = available_memory(device)
    if needed > free:
        raise MemoryError(
            f"{what}={count} needs {needed / 2**30:,.1f} GiB on {device}, where {free / 2**30:,.1f} GiB are free; "
            f"about {int(free / needed * count):,} would fit"
        )


def find_device(device) -> torch.device:
    """Validates "cpu", "cuda" or "cuda:<index>" against this machine."""
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        chosen = None
    if chosen is None or chosen.type not in ("cpu", "cuda"):
        raise ValueError(f"device={device!r} must be 'cpu', 'cuda' or 'cuda:<index>'")
    if chosen.type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError(f"device={device!r}: this machine has no usable CUDA device; use device='cpu'")
    index = torch.cuda.current_device() if chosen.index is None else chosen.index
    if index >= torch.cuda.device_count():
        raise ValueError(
            f"device={device!r}: this machine has {torch.cuda.device_count()} CUDA device(s), counted from 0"
        )
    return torch.device("cuda", index)


def integer(field: str, value, low: int, high: int) -> int:
    """The value as an int; ValueError unless it is an integer from low to high."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise ValueError(f"{field}={value!r:.60} must be an integer from {low} to {high}")
    return int(value)


def choice(field: str, value, allowed):
    """The value; ValueError unless it is one of the allowed."""
    if not any(value is one or (isinstance(value, type(one)) and value == one) for one in allowed):
        raise ValueError(f"{field}={value!r:.60} must be one of {', '.join(map(repr, allowed))}")
    return value


def state_fields(state: Mapping, shapes: Mapping[str, tuple[tuple[int, ...], type]]) -> Iterator[tuple]:
    """Name, type that it is to have, and numbers of each field of an original's state.

    Raises:
        ValueError: no dict, or a field that there is not, of another shape, or that holds no finite numbers.
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"state={state!r:.60} must be a dict of fields")
    for name, given in state.items():
        if name not in shapes:
            raise ValueError(f"state has no field {name!r}{nearest(name, shapes)}")
        (shape, kind), array = shapes[name], np.asarray(given)
        if array.shape != shape or array.dtype.kind not in "biuf":
            raise ValueError(f"state field {name!r} is {array.dtype} {array.shape}, must be numbers {shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"state field {name!r} holds numbers that are not finite")
        yield name, kind, array


def places(indices, count: int) -> list[int]:
    """Environments of a batch of `count` that are to be rendered: those of some indices, of None all.

    Raises:
        ValueError: not integers, or no environment of that index.
    """
    rows = np.atleast_1d(np.arange(count) if indices is None else np.asarray(indices))
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise ValueError(f"indices must be one integer or a list of integers, got {indices!r:.60}")
    for i in rows.tolist():
        if not 0 <= i < count:
            raise ValueError(f"no environment {i} to render: the batch has 0 .. {count - 1}")
    return rows.tolist()
