"""The kernels of `kernels.cuh`: their structs, their launch on CPU or GPU, and checks of what they are given."""

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from lockstep.envs.batch import launch
from lockstep.envs.checks import integer
from lockstep.envs.kernels import compile, structs

SOURCE = Path(__file__).with_name("kernels.cuh")
ITEMS = 256  # numbers of Philox in a thread block, and in a vector loop on the CPU
COLUMNS = {"cpu": 256, "cuda": 64}  # of an array [T, N] in one tile; few, so that they spread over a GPU
PER_THREAD = 16384  # Philox blocks or elements, some 20 µs of work: less is not worth waking a thread for


@functools.cache
def unit(kind: str) -> str:
    """The translation unit for a kind of device, "cpu" or "cuda"."""
    constants = {"REAL": "float", "ITEMS": ITEMS, "COLUMNS": COLUMNS[kind]}
    return "\n".join([*(f"#define {name} {value}" for name, value in constants.items()), compile.expand(SOURCE), ""])


def struct(name: str, **values) -> ctypes.Structure:
    """A struct of `kernels.cuh`; a tensor among the values is passed by its address, and must be kept alive."""
    return structs.struct(name, SOURCE.read_text(), **values)


def lookup(fixed, call, tiles: int, tile: int, device: torch.device, threads: int):
    """A lookup from kernel name to a function without arguments that runs it on the two structs."""
    if device.type == "cuda":
        return launch.cuda(unit("cuda"), fixed, call, tiles, tile, device)
    return launch.cpu(unit("cpu"), fixed, call, tiles, threads)


def threads_for(work: int, threads: int) -> int:
    """As many of the threads as the work is worth; ValueError unless `threads` is an integer from 1 to 1024."""
    return max(1, min(integer("threads", threads, 1, 1024), work // PER_THREAD))


def require(name: str, tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The tensor; ValueError unless it has this shape, type and device and is contiguous."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name} must be a tensor {list(shape)}, got {type(tensor).__name__}")
    if tensor.shape != shape or tensor.dtype != dtype or tensor.device != device:
        raise ValueError(
            f"{name} must be {list(shape)} of {dtype} on {device}, "
            f"got {list(tensor.shape)} of {tensor.dtype} on {tensor.device}"
        )
    if not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous, got strides {tensor.stride()} for shape {list(shape)}")
    return tensor


def per_part(name: str, value: float | Sequence[float], columns: int) -> list[float]:
    """One number, or one for each of several equal parts of the columns; ValueError unless all lie in [0, 1]."""
    numbers = [float(number) for number in (value if isinstance(value, Sequence) else [value])]
    if not numbers or columns % len(numbers):
        raise ValueError(f"{name}: {len(numbers)} values must divide N={columns} columns into equal parts")
    for number in numbers:
        if not 0 <= number <= 1:
            raise ValueError(f"{name}={number} must lie in [0, 1]")
    return numbers


def seed_tensor(seeds: Sequence[int], device: torch.device) -> torch.Tensor:
    """uint64 [groups]; ValueError unless every seed is an integer from 0 to 2^64-1."""
    if not len(seeds):
        raise ValueError("seeds must hold at least one seed")
    checked = [integer(f"seeds[{g}]", seed, 0, 2**64 - 1) for g, seed in enumerate(seeds)]
    return torch.from_numpy(np.array(checked, dtype=np.uint64)).to(device)
