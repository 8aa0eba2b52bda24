"""Faults put into the GPU's form of the kernels of a tile, each of which must show in some order of the threads.

A fault that only a preempted thread shows, such as an addition that is not atomic, cannot be seen here.
"""

import functools
import itertools

import numpy as np
import pytest
import torch

from lockstep import envs
from tests.contract.batches import equal
from tests.emulator import gpu
from tests.envs import batches
from tests.envs.test_gpu_text import GROUPS, SEEDS, B, policy, spread

# One whose returns are sums, and the one whose episodes can end first, so that every sum over a block is of use.
NAMES = (
    next(name for name in batches.NAMES if envs.port(name).running_return),
    min(batches.NAMES, key=lambda name: envs.port(name).shortest_episode),
)
OPTIONS = {"groups": GROUPS, "seed": SEEDS, "check_actions": False}

# Text that is replaced in the unit, and its replacement.
FAULTS = {
    # barriers
    "no barrier after a network was copied": (
        "numbers[n] = call.weights[n];\n    __syncthreads();", "numbers[n] = call.weights[n];",
    ),
    "a barrier of a warp in place of one of the block": (
        "numbers[n] = call.weights[n];\n    __syncthreads();", "numbers[n] = call.weights[n];\n    __syncwarp();",
    ),
    "a clock that is moved on before all have read it": (
        "    __syncthreads();  // every warp has read the clock\n", "",
    ),
    # shared memory
    "half of a network copied": ("n += blockDim.x) numbers[n]", "n += 2 * blockDim.x) numbers[n]"),
    # operations of a warp
    "a sum over half of a warp": ("int distance = 16; distance", "int distance = 8; distance"),
    "a sum in the wrong direction": ("other.steps = __shfl_down_sync", "other.steps = __shfl_up_sync"),
    "a sum of the wrong lane": ("episodes.longest, distance)", "episodes.longest, 32)"),
    "a mask without the last lane": ("const unsigned all = 0xffffffffu;", "const unsigned all = 0x7fffffffu;"),
    "a vote that waits for lanes beyond the batch": ("__any_sync(warp, fetched", "__any_sync(0xffffffffu, fetched"),
    "a sum by every lane": ("if (threadIdx.x % 32 == 0) sum.store", "sum.store"),
    "many episodes by the first thread alone": ("sum = over_warp(episodes)", "sum = episodes"),
    "few episodes by no thread": ("else if (episodes.count != 0)", "else if (false)"),
    "the lowest return as the highest": ("if (bits >= 0) atomicMin(", "if (bits >= 0) atomicMax("),
    "negative returns the wrong way round": ("else atomicMax(", "else atomicMin("),
    # bounds
    "a step beyond the batch": ("live(inside && lane < span.count)", "live(inside)"),
    "a step of tiles that are not there": ("inside(!SEVERAL || tile < b.tiles)", "inside(true)"),
    "a reset beyond the batch": ("if (threadIdx.x >= span.count || (mask", "if ((mask"),
    "a roll-out beyond the batch": ("if (at.live) {\n        State next", "{\n        State next"),
    "random actions beyond the batch": (
        "if (threadIdx.x >= span.count) return;\n    const i64 clock", "const i64 clock",
    ),
    # indices
    "a clock moved on by every lane": ("lane == 0) add_to(b.clock", "true) add_to(b.clock"),
    "an approximate division": ("return fused(r, fused(-b, q, a), q);", "return a * r;"),
}  # fmt: skip


def played(env) -> list:
    """All that a batch returns and leaves behind, copied, in the course of a run through most of its kernels."""
    found = []

    def keep(result):
        found.append([t.clone() if isinstance(t, torch.Tensor) else t for t in flat(result)])
        found.append([b.clone() for name, b in env._buffers.items() if name not in ("totals", "extremes", "clock")])

    keep(env.reset()[0])
    keep(env.rollout(40))
    keep(env.statistics())  # of lengths that differ
    keep(env.random_actions(9))
    for _ in range(2):
        spread(env)
        for _ in range(2):
            keep(env.step(env.random_actions()[0])[:4])
    keep(env.statistics())
    keep(env.reset(options={"reset_mask": np.arange(B) % 7 == 2})[0])
    for kind in ("random", "MLP with critic"):
        for store in ("statistics", "trajectory"):
            spread(env)
            keep(env.rollout(11, policy(env.name, kind), store))
            keep(env.statistics())
    return found


def flat(result) -> list:
    return list(result.values()) if isinstance(result, dict) else list(result)


@functools.cache
def expected(name: str) -> list:
    """The run in the CPU's form."""
    return played(envs.make(name, B, **OPTIONS))


def shows(name: str, order: str, fault: tuple[str, str] | None) -> bool:
    """Tells if a run in the GPU's form is stopped, or differs from that in the CPU's."""
    try:
        return not equal(expected(name), played(gpu.make(name, B, block=128, order=order, fault=fault, **OPTIONS)))
    except gpu.EmulationError:
        return True


@pytest.fixture(autouse=True)
def _emulated():
    with gpu.installed():
        yield


@pytest.mark.parametrize("order", gpu.ORDERS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_shows_without_a_fault(name, order):
    assert not shows(name, order, None)


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[pytest.mark.slow] * (k % 7 > 0)) for k, fault in enumerate(FAULTS)]
)
def test_a_fault_shows_in_some_order(fault):
    assert any(shows(name, order, FAULTS[fault]) for name, order in itertools.product(NAMES, gpu.ORDERS))
