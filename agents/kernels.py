"""The kernels of `rollout.cuh`: their structs, and their launch on CPU or GPU."""

import ctypes
import functools
from pathlib import Path

import torch

from lockstep.envs.batch import launch
from lockstep.envs.checks import integer
from lockstep.envs.kernels import compile, structs

SOURCE = Path(__file__).with_name("rollout.cuh")
ITEMS = 256  # numbers of Philox in a thread block, and in a vector loop on the CPU
COLUMNS = {"cpu": 256, "cuda": 64}  # of an array [T, N] in one tile; few, so that they spread over a GPU
PER_THREAD = 16384  # Philox blocks or elements, some 20 µs of work: less is not worth waking a thread for


@functools.cache
def unit(kind: str) -> str:
    """The translation unit for a kind of device, "cpu" or "cuda"."""
    constants = {"REAL": "float", "ITEMS": ITEMS, "COLUMNS": COLUMNS[kind]}
    return "\n".join([*(f"#define {name} {value}" for name, value in constants.items()), compile.expand(SOURCE), ""])


def struct(name: str, **values) -> ctypes.Structure:
    """A struct of `rollout.cuh`; a tensor among the values is passed by its address, and must be kept alive."""
    return structs.struct(name, SOURCE.read_text(), **values)


def lookup(fixed, call, tiles: int, tile: int, device: torch.device, threads: int):
    """A lookup from kernel name to a function without arguments that runs it on the two structs."""
    if device.type == "cuda":
        return launch.cuda(unit("cuda"), fixed, call, tiles, tile, device)
    return launch.cpu(unit("cpu"), fixed, call, tiles, threads)


def threads_for(work: int, threads: int) -> int:
    """As many of the threads as the work is worth; ValueError unless `threads` is an integer from 1 to 1024."""
    return max(1, min(integer("threads", threads, 1, 1024), work // PER_THREAD))
