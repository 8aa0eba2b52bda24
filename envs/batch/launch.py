"""Launches of a batch: its kernels, each as a function without arguments."""

import ctypes
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from ..kernels import compile, structs
from .port import BLOCK, TILES

SINGLE_THREAD_BELOW = 16384, 64  # environments, of one lane and of several; below, waking a thread costs more
STEP_BLOCK = 128  # threads at most of a GPU's block that steps, as in tile_cuda.cuh
WARP = 32
WARPS = 8  # to a multiprocessor that computes networks: no more have the registers


@dataclass(frozen=True)
class Form:
    """A batch's device, and its cut into what one launch, block or thread has."""

    device: torch.device
    num_envs: int
    groups: int
    lanes: int
    chunk: int  # environments per launch, of several lanes
    threads: int  # of the CPU

    @property
    def tile(self) -> int:
        """Environments of a tile: of a vector loop, or of a block's part."""
        size = self.num_envs // self.groups
        return min(TILES[self.device.type], max(32, 1 << (size - 1).bit_length())) if self.lanes == 1 else 1

    @property
    def tiles(self) -> int:
        return self.groups * -(-self.num_envs // self.groups // self.tile)

    @staticmethod
    def default_threads(num_envs: int, lanes: int) -> int:
        """One thread in small batches, else one for each processor that this process may use."""
        if num_envs < SINGLE_THREAD_BELOW[lanes > 1]:
            return 1
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Kernels:
    """The kernels of a batch by name.

    Args:
        form: of the batch.
        unit: the translation unit, of policies with an MLP of some width, or of width 0 all others.
        network_shape: outputs and inputs of such an MLP.
        tables: of the scenarios, fields of `struct Tables`.
        **fields: of `struct Batch`.

    Raises:
        ValueError: a table that the kernel does not declare so.
        MemoryError: an environment needs more shared memory than a block has.
    """

    def __init__(self, form: Form, unit: Callable[[int], str], network_shape: tuple[int, int], tables: dict, **fields):
        self.text = unit(hidden=0)
        structs.require_tables(self.text, tables)
        self.batch = structs.struct("Batch", self.text, **fields, **tables)
        self.call = structs.struct("Call", self.text, end=form.num_envs)  # the arguments of all
        self._form, self._unit, self._network_shape = form, unit, network_shape
        self._lookups: dict[tuple[int, int], Callable] = {}
        self._kernels: dict[tuple[str, int], Callable] = {}
        self.scratch_bytes = self._scratch_bytes() if form.lanes > 1 else 0  # of a block, or a thread of the CPU

    def run(self, name: str, hidden: int = 0, **arguments):
        """Runs a kernel with the given fields of `struct Call`; tensors live until the launch is queued."""
        kernel = self.find(name, hidden)
        structs.fill(self.call, **arguments)
        kernel()

    def validators(self, action_types) -> dict[torch.dtype, ctypes._CFuncPtr]:
        """Per action type a CPU's function (pointer, count): the place of the first number outside the space, or -1."""
        found = {}
        for dtype in action_types:
            name = f"outside_{str(dtype).removeprefix('torch.')}"
            found[dtype] = getattr(library_with(name, self.text, self._form.lanes == 1), name)
            found[dtype].argtypes = [ctypes.c_void_p, ctypes.c_longlong]
            found[dtype].restype = ctypes.c_longlong
        return found

    def find(self, name: str, hidden: int = 0) -> Callable:
        """A function that runs a kernel, launch by launch where a batch is cut into chunks."""
        if (name, hidden) not in self._kernels:
            form = self._form
            spans = [(at, min(at + form.chunk, form.num_envs)) for at in range(0, form.num_envs, form.chunk)]
            launches = [(self._launch(name, hidden, end - first), first, end) for first, end in spans]
            in_chunks = functools.partial(self._run_in_chunks, launches)
            self._kernels[name, hidden] = launches[0][0] if len(launches) == 1 else in_chunks
        return self._kernels[name, hidden]

    def _run_in_chunks(self, launches: list):
        for kernel, self.call.first, self.call.end in launches:
            kernel()

    def _launch(self, name: str, hidden: int, count: int) -> Callable:
        form = self._form
        if (hidden, count) not in self._lookups:
            text = self._unit(hidden=hidden) if hidden else self.text
            parts = text, self.batch, self.call, form.tiles if form.lanes == 1 else count
            if form.device.type == "cpu":
                found = cpu(*parts, form.threads, apart=form.lanes == 1)
            elif form.lanes == 1:
                found = cuda(*parts, form.tile, form.device)
            else:
                found = cuda(*parts, form.lanes, form.device, scratch="scratch_bytes", without="random_actions")
            self._lookups[hidden, count] = found
        return self._lookups[hidden, count](name, self._together(name, hidden))

    def _together(self, name: str, hidden: int) -> int:
        """Tiles, or environments that groups of lanes hold, in a block of a GPU."""
        form = self._form
        if form.device.type == "cpu":
            return 1
        if form.lanes > 1:
            return groups_of_block(form.lanes)
        if hidden:
            outputs, inputs = self._network_shape
            network_bytes = 4 * 2 * (hidden * (hidden + inputs + outputs + 2) + outputs + 4)
            return network_block(network_bytes, form.tile, form.device) // form.tile
        return step_block(form.num_envs, form.tile, form.device) // form.tile if name.startswith("step") else 1

    def _scratch_bytes(self) -> int:
        device = self._form.device
        if device.type == "cpu":
            size = compile.of_batch(self.text).scratch_bytes
            size.restype = ctypes.c_longlong
            return size()
        return shared_bytes(self.text, "scratch_bytes", device)


def step_block(num_envs: int, tile: int, device: torch.device) -> int:
    """Threads of a block that steps on a GPU: fewer and larger ones where they fill it."""
    fills = num_envs >= 2 * STEP_BLOCK * torch.cuda.get_device_properties(device).multi_processor_count
    return STEP_BLOCK if fills else tile


def network_block(network_bytes: int, tile: int, device: torch.device) -> int:
    """Threads of a block with a network in its shared memory: enough that the blocks which find room have WARPS."""
    room = torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor // network_bytes
    threads = tile
    while threads < BLOCK and room * threads < 32 * WARPS:
        threads *= 2
    return threads


def cpu(text: str, batch, call, tiles: int, threads: int, apart: bool = False):
    """A lookup from kernel name to a function that runs it over all tiles.

    Args:
        text: the translation unit.
        batch, call: the ctypes structs of the unit; read at every run.
        tiles, threads: a pool of threads shares the tiles.
        apart: roll-outs have a library of their own, compiled when one is first asked for.

    A lookup takes `together` as that of a GPU does, and makes no use of it.
    """
    pointers = ctypes.addressof(batch), ctypes.addressof(call)

    def kernel(name: str, together: int = 1):
        function = getattr(library_with(name, text, apart), name)
        function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_longlong, ctypes.c_longlong]
        function.restype = None
        if min(threads, tiles) == 1:
            return functools.partial(function, *pointers, 0, tiles)
        return functools.partial(
            compile.pool(), ctypes.cast(function, ctypes.c_void_p).value, *pointers, tiles, threads
        )

    return kernel


def library_with(name: str, text: str, apart: bool) -> ctypes.CDLL:
    """The library with a CPU's kernel: of the whole unit, or of its steps or roll-outs alone."""
    part = "ONLY_ROLLOUTS" if name.startswith("rollout") else "ONLY_STEPS"
    return compile.of_batch(f"#define {part}\n{text}" if apart else text)


def cuda(
    text: str, batch, call, tiles: int, tile: int, device: torch.device, scratch: str | None = None, without: str = ""
):
    """Launches of a kernel on a GPU: a block of `tile` threads per tile, on torch's stream, as graphs capture it.

    A block may also hold several tiles: so many as the lookup is given beside a kernel's name, which says nothing to a
    CPU. `scratch` names a constant of the unit: the bytes of shared memory that each block asks for, of all kernels but
    the one named `without`.
    """
    cupy = compile.cupy()
    arguments = (_by_value(batch), _by_value(call))
    card = cupy.cuda.Device(device.index)
    target = f"sm_{card.compute_capability}"
    stream = _Stream()

    def kernel(name: str, together: int = 1):
        grid, block = (-(-tiles // together),), (whole_warps(tile * together),)
        with card:
            function = compile.cuda_module(text, target).get_function(name)
            shared = 0 if scratch is None or name == without else shared_bytes(text, scratch, device)
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


def groups_of_block(lanes: int) -> int:
    """Groups of so many lanes, which hold an environment each, in a block of a GPU, as in lanes.cuh."""
    return (4 if lanes == WARP else 2) * (WARP // lanes) or 1


def whole_warps(threads: int) -> int:
    """Threads of the warps that so many are in."""
    return -(-threads // WARP) * WARP


class _Stream:
    """A stream as CuPy's kernels read one, by its address; to make a `cupy.cuda.Stream` takes as long as to launch."""

    ptr = 0


def shared_bytes(text: str, name: str, device: torch.device) -> int:
    """Bytes of shared memory that a block of a unit asks for, by the constant of that name.

    Raises:
        MemoryError: more than a block of the device has.
    """
    found = device_constant(text, name, device)
    most = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
    if found > most:
        raise MemoryError(
            f"a block of these sizes needs {found:,} bytes of shared memory; a block of {device} has {most:,}"
        )
    return found


def device_constant(text: str, name: str, device: torch.device) -> int:
    """The value of an 8-byte integer constant of a unit compiled for a GPU."""
    cupy = compile.cupy()
    card = cupy.cuda.Device(device.index)
    with card:
        module = compile.cuda_module(text, f"sm_{card.compute_capability}")
        return int(cupy.ndarray((), np.int64, module.get_global(name)).get())


def _by_value(struct) -> np.ndarray:
    """A zero-dimensional NumPy view of a ctypes struct: CuPy passes such an array to a kernel by value."""
    size = ctypes.sizeof(struct)
    return np.frombuffer(struct, dtype=[("bytes", np.uint8, (size,))]).reshape(())
