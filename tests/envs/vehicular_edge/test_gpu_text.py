"""The GPU's form of the kernels, run without a GPU: any number of lanes leaves the bits of the CPU's form."""

import numpy as np
import pytest
import torch

from lockstep import envs
from tests.emulator import gpu

from .test_block import SMALL, buffers, played, same

OPTIONS = {**SMALL, "check_actions": False, "trace": True}


@pytest.fixture(autouse=True)
def _emulated(one_thread):
    with gpu.installed():
        yield


def pair(block: int | None = None, order: str = "ascending", fault: tuple[str, str] | None = None, **options):
    """Two environments in the CPU's form, and in the GPU's with so many lanes."""
    options = {**OPTIONS, **options}
    return (
        envs.make("vehicular_edge", 2, **options),
        gpu.make("vehicular_edge", 2, block=block, order=order, fault=fault, **options),
    )


def every_kernel(env) -> dict[str, torch.Tensor]:
    """Buffers after all that a batch can do, beyond the ends of episodes."""
    target = torch.arange(2 * env.params.target_length, dtype=torch.int32) % env.params.options
    share = torch.linspace(0.0, 1.0, 2 * env.params.share_length).reshape(2, -1)
    played(env, steps=5)
    env.reset(options={"reset_mask": np.array([True, False])})
    env.step({"target": target.reshape(2, env.params.clients, -1), "share": share})
    for _ in range(4):
        env.step(env.random_actions()[0])
    if env.autoreset_mode.value == "SameStep":
        env.rollout(10)
    env.set_state({"lc": np.full(env.params.clients, 7.0)}, mask=np.array([False, True]))
    return buffers(env)


@pytest.mark.parametrize("order", gpu.ORDERS)
@pytest.mark.parametrize(("preset", "gains"), [("physical", "stored"), ("physical", "drawn"), ("original", "stored")])
def test_a_block_of_lanes_gives_the_bits_of_one_thread(preset, gains, order):
    alone, block = pair(order=order, preset=preset, gains=gains)
    same(played(alone), played(block))
    alone.rollout(10)
    block.rollout(10)
    same(buffers(alone), buffers(block))


@pytest.mark.parametrize(
    ("lanes", "order", "options"),
    [
        (7, "shuffled", {"autoreset_mode": "Disabled"}),  # each lane has several of everything
        (32, "descending", {"dtype": "float64", "trace": False}),
        (64, "ascending", {"preset": "original", "signed": True}),
        (256, "descending", {"autoreset_mode": "NextStep", "signed": True, "gains": "drawn"}),
    ],
)
def test_any_number_of_lanes_gives_the_same_bits_in_every_kernel(lanes, order, options):
    same(*map(every_kernel, pair(lanes, order, **options)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
@pytest.mark.parametrize("gains", ["stored", "drawn"])
@pytest.mark.parametrize("order", gpu.ORDERS)
def test_every_form_gives_the_bits_of_the_cpus_form(order, gains, mode, dtype):
    same(*map(every_kernel, pair(order=order, gains=gains, autoreset_mode=mode, dtype=dtype)))


def test_chunks_on_a_gpu_change_no_bit():
    same(*(played(env) for env in pair(order="descending", chunk=1)))


# ---- faults that must show: what is replaced in the unit, and by what

WAIT = "    sync();\n"
FAULTS = {
    "no barrier after the state was loaded": (f"b.running_return[e]}};\n{WAIT}", "b.running_return[e]};\n"),
    "no barrier after admission": (f"first * J);\n{WAIT}", "first * J);\n"),
    "tasks of the next eight taken for these": ("(s.node)[k];", "(s.node)[k + 1];"),
    "no barrier within a sum": (f"partial[w] = sum;\n    }}\n{WAIT}", "partial[w] = sum;\n    }\n"),
    "a barrier that half of the lanes skip": (
        f"b.running_return[e]}};\n{WAIT}",
        "b.running_return[e]};\n    if (lane() < LANES / 2) sync();\n",
    ),
    "shared memory not cleared": ("shared[n] = make_uint4(0, 0, 0, 0);", ""),
    "no barrier after shared memory was cleared": ("        sync(); \\\n        FUNCTION", "        FUNCTION"),
    "episodes counted by all lanes": ("if (lane() == 0) count_episode", "count_episode"),
    "random numbers shared by two lanes": ("word[1] = u32(quad);", "word[1] = u32(quad & ~1);"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen_in_some_order(fault):
    expected = None
    for order in gpu.ORDERS:
        alone, faulty = pair(order=order, fault=FAULTS[fault])
        expected = expected or every_kernel(alone)
        try:
            found = every_kernel(faulty)
        except gpu.EmulationError:
            return
        if any(not torch.equal(expected[name], found[name]) for name in expected):
            return
    pytest.fail("every order gives the bits of the CPU's form")
