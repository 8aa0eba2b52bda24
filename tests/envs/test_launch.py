"""Launches on a GPU, with stand-ins for CuPy and the device: streams, devices, grids."""

import contextlib
import ctypes
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lockstep.envs.batch import buffers, environment, launch
from lockstep.envs.kernels import compile, structs

SOURCE = "struct Numbers {\n    i64 number;\n};"


class Card(contextlib.nullcontext):
    """A device, which counts how often it was made the current one."""

    entered = 0
    compute_capability = "90"

    def __init__(self, index):
        super().__init__()

    def __enter__(self):
        Card.entered += 1


@pytest.fixture
def launches(monkeypatch):
    """The launches made; device 0 is the current one, and the stream of device n has address 7 + n."""
    found = []

    def function(grid, block, arguments, **options):
        found.append(
            (grid, block, [argument.tobytes() for argument in arguments], options | {"at": options["stream"].ptr})
        )

    module = SimpleNamespace(get_function=lambda name: function)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(Device=Card)))  # it has no streams
    monkeypatch.setattr(compile, "cuda_module", lambda text, target: module)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 7 + index, raising=False)
    return found


def lookup(index: int, tiles: int = 5, tile: int = 64):
    number = structs.struct("Numbers", SOURCE)
    return number, launch.cuda("", number, number, tiles, tile, torch.device("cuda", index))


def test_a_launch_takes_the_current_stream_and_changes_no_device(launches):
    _, kernel = lookup(0)
    run = kernel("step")
    before = Card.entered
    run()
    assert Card.entered == before
    assert launches[0][:2] == ((5,), (64,)) and launches[0][3]["at"] == 7


def test_a_launch_on_another_device_is_made_there(launches):
    run = lookup(1)[1]("step")
    before = Card.entered
    run()
    assert Card.entered == before + 1
    assert launches[0][3]["at"] == 8


def test_a_block_of_several_tiles_covers_all_of_them(launches):
    lookup(0)[1]("step", 4)()
    assert launches[0][:2] == ((2,), (256,))


def test_arguments_are_read_when_a_kernel_is_launched(launches):
    number, kernel = lookup(0)
    run = kernel("step")
    for value in (3, 4):
        number.number = value
        run()
    assert [int.from_bytes(arguments[0], "little") for _, _, arguments, _ in launches] == [3, 4]


KERNELS = "".join(file.read_text() for file in sorted(compile.KERNELS.glob("*.cuh")))


@pytest.mark.parametrize(
    "line",
    [
        f"enum {{ BLOCK = {launch.BLOCK}, STEP_BLOCK = {launch.STEP_BLOCK} }};",
        f"enum {{ FETCH_EVERY = {environment.FETCH_EVERY} }};",
        f"RETURN_UNIT = 1 << {buffers.RETURN_BITS} }}",
    ],
)
def test_python_and_the_kernels_have_the_same_constants(line):
    assert line in KERNELS


def test_python_and_the_kernels_cut_blocks_of_groups_alike():
    of_lanes = re.search(r"enum : int \{\s+BLOCK = .*?\};", KERNELS, re.DOTALL)[0]
    every = [*range(1, 17), *range(32, 1025, 32)]
    numbers = ", ".join(f"Of<{lanes}>::BLOCK, Of<{lanes}>::GROUPS" for lanes in every)
    text = f"template <int LANES> struct Of {{ {of_lanes} }};\n"
    text += f'extern "C" __attribute__((visibility("default"))) int numbers[] = {{{numbers}}};'
    found = np.ctypeslib.as_array((ctypes.c_int * (2 * len(every))).in_dll(compile.library(text), "numbers"))
    groups = [launch.groups_of_block(lanes) for lanes in every]
    blocks = [launch.whole_warps(lanes * count) for lanes, count in zip(every, groups, strict=True)]
    assert found.reshape(-1, 2).tolist() == list(map(list, zip(blocks, groups, strict=True)))


@pytest.fixture
def properties(monkeypatch):
    """Of a device with 10 multiprocessors, each with 100 kB of shared memory."""
    found = SimpleNamespace(multi_processor_count=10, shared_memory_per_multiprocessor=100_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)


@pytest.mark.parametrize(("num_envs", "threads"), [(1, 64), (2559, 64), (2560, 128), (10**6, 128)])
def test_a_step_takes_large_blocks_where_they_fill_the_gpu(properties, num_envs, threads):
    assert launch.step_block(num_envs, 64, torch.device("cuda", 0)) == threads


@pytest.mark.parametrize(
    ("network_bytes", "threads"),
    [(20_000, 64), (25_000, 64), (30_000, 128), (37_000, 128), (60_000, 256), (99_000, 256)],
)
def test_blocks_with_a_network_hold_eight_warps_to_a_multiprocessor(properties, network_bytes, threads):
    assert launch.network_block(network_bytes, 64, torch.device("cuda", 0)) == threads
    assert 100_000 // network_bytes * threads >= 256
