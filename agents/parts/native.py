"""C++ for the CPU alone, where a GPU has torch: compiled for a type of numbers, called with addresses."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch

from lockstep.envs.kernels import compile

OPTIMISED = "-O3"  # whatever environments are compiled at, for the bits of learners depend on it
REALS = {torch.float32: "float", torch.float64: "double"}
ARGUMENTS = {"p": ctypes.c_void_p, "i": ctypes.c_longlong, "d": ctypes.c_double}


def functions(source: Path, dtype: torch.dtype, **arguments: str) -> list[Callable]:
    """Functions of a source, by their names, with `real` of a type.

    arguments: of each, a letter apiece: p a tensor or an array by its address, i an i64, d a double.
    """
    library = compile.library(f"#define REAL {REALS[dtype]}\n{compile.expand(source)}\n", OPTIMISED)
    found = [getattr(library, name) for name in arguments]
    for function, letters in zip(found, arguments.values(), strict=True):
        function.argtypes, function.restype = [ARGUMENTS[letter] for letter in letters], None
    return found
