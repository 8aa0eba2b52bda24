"""Loads the kernels of one batch and gives each as a function without arguments."""

import ctypes
import functools

import numpy as np
import torch

from ..kernels import compile


def cpu(text: str, batch, call, tiles: int, threads: int):
    """A lookup from kernel name to a function that runs it over all tiles.

    Args:
        text: the translation unit.
        batch, call: the ctypes structs of the unit; read at every run.
        tiles, threads: a pool of threads shares the tiles.

    A lookup takes `together` as that of a GPU does, and makes no use of it.
    """
    library = compile.library(text)
    pointers = ctypes.addressof(batch), ctypes.addressof(call)

    def kernel(name: str, together: int = 1):
        function = getattr(library, name)
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong]
        function.restype = None
        if min(threads, tiles) == 1:
            return functools.partial(function, *pointers, 0, tiles)
        return functools.partial(
            compile.pool(), ctypes.cast(function, ctypes.c_void_p).value, *pointers, tiles, threads
        )

    return kernel


def validators(text: str, action_types) -> dict[torch.dtype, ctypes._CFuncPtr]:
    """Per action type a function (pointer, count): the place of the first number that lies outside the space, or -1."""
    library = compile.library(text)
    found = {}
    for dtype in action_types:
        function = getattr(library, f"outside_{str(dtype).removeprefix('torch.')}")
        function.argtypes = [ctypes.c_void_p, ctypes.c_longlong]
        function.restype = ctypes.c_longlong
        found[dtype] = function
    return found


def cuda(
    text: str, batch, call, tiles: int, tile: int, device: torch.device, scratch: str | None = None, without: str = ""
):
    """The same on a GPU: one block of `tile` threads per tile, on torch's current stream, so that graphs capture it.

    A block may also hold several tiles: so many as the lookup is given beside a kernel's name, which says nothing to a
    CPU. `scratch` names a constant of the unit: the bytes of shared memory that each block asks for, of all kernels but
    the one named `without`.
    """
    import cupy

    arguments = (_by_value(batch), _by_value(call))
    card = cupy.cuda.Device(device.index)
    target = f"sm_{card.compute_capability}"
    stream = _Stream()

    def kernel(name: str, together: int = 1):
        grid, block = (-(-tiles // together),), (tile * together,)
        with card:
            function = compile.cuda_module(text, target).get_function(name)
            shared = 0 if scratch is None or name == without else constant(text, scratch, device)
            if shared:
                function.max_dynamic_shared_size_bytes = shared

        def run():
            stream.ptr = torch._C._cuda_getCurrentRawStream(device.index)
            if torch.cuda.current_device() == device.index:
                function(grid, block, arguments, shared_mem=shared, stream=stream)
            else:
                with card:
                    function(grid, block, arguments, shared_mem=shared, stream=stream)

        return run

    return kernel


class _Stream:
    """A stream as CuPy's kernels read one, by its address; to make a `cupy.cuda.Stream` takes as long as to launch."""

    ptr = 0


def constant(text: str, name: str, device: torch.device) -> int:
    """The value of an 8-byte integer constant of a unit compiled for a GPU."""
    import cupy

    card = cupy.cuda.Device(device.index)
    with card:
        module = compile.cuda_module(text, f"sm_{card.compute_capability}")
        return int(cupy.ndarray((), np.int64, module.get_global(name)).get())


def _by_value(struct) -> np.ndarray:
    """A zero-dimensional NumPy view of a ctypes struct: CuPy passes such an array to a kernel by value."""
    size = ctypes.sizeof(struct)
    return np.frombuffer(struct, dtype=[("bytes", np.uint8, (size,))]).reshape(())
