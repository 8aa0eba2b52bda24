"""The GPU's form of the kernels, run without a GPU: any number of lanes leaves the bits of the CPU's form."""

import numpy as np
import pytest
import torch

from lockstep import envs
from tests.contract.batches import equal
from tests.emulator import gpu
from tests.envs.test_gpu_text import ORDERS

OPTIONS = {
    "vehicles": 20,
    "edges": 4,
    "slots": 8,
    "components": 3,
    "scenarios": 3,
    "traffic": "dense",
    "check_actions": False,
    "trace": True,
}
# Lanes of a group, B and the environments of a launch. A block has as many groups, which hold one each, as fit its two
# warps, of 32 lanes four; the first launch ends within its second block, and the last within its only one.
GROUPS = [(5, 17, 14), (8, 13, 10), (16, 7, 5), (32, 7, 5)]


@pytest.fixture(autouse=True)
def _emulated():
    with gpu.installed():
        yield


def pair(
    block: int | None = None,
    order: str = "ascending",
    fault: tuple[str, str] | None = None,
    num_envs: int = 2,
    chunk: int | None = None,
    **options,
):
    """Two environments in the CPU's form, and in the GPU's with so many lanes; chunk is of the GPU's alone."""
    options = {**OPTIONS, **options}
    return (
        envs.make("vehicular_edge", num_envs, **options),
        gpu.make("vehicular_edge", num_envs, block=block, order=order, fault=fault, chunk=chunk, **options),
    )


def buffers(env) -> dict[str, torch.Tensor]:
    """All that a batch has written, as bytes."""
    return {name: b.contiguous().view(torch.uint8).clone() for name, b in env._buffers.items() if b.numel()}


def played(env, steps: int = 11) -> dict[str, torch.Tensor]:
    """Buffers after some steps, beyond the ends of episodes."""
    env.reset(seed=3)
    for _ in range(steps):
        env.step(env.random_actions()[0])
    return buffers(env)


def every_kernel(env) -> dict[str, torch.Tensor]:
    """Buffers after all that a batch can do; episodes end one after another."""
    B, p = env.num_envs, env.params
    target = torch.arange(B * p.target_length, dtype=torch.int32) % p.options
    share = torch.linspace(0.0, 1.0, B * p.share_length).reshape(B, -1)
    played(env, steps=5)
    env.set_state({"elapsed": np.arange(B) * 3 % env.max_episode_steps})
    env.reset(options={"reset_mask": np.arange(B) % 3 == 0})
    env.step({"target": target.reshape(B, p.clients, -1), "share": share})
    for _ in range(4):
        env.step(env.random_actions()[0])
    if env.autoreset_mode.value == "SameStep":
        env.rollout(10)
    env.set_state({"lc": np.full(p.clients, 7.0)}, mask=np.arange(B) % 3 == 1)
    return buffers(env)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("preset", "gains"),
    [pytest.param("physical", "stored", marks=pytest.mark.slow), ("physical", "drawn"), ("original", "stored")],
)
def test_a_block_of_lanes_gives_the_bits_of_one_thread(preset, gains, order):
    alone, block = pair(order=order, preset=preset, gains=gains)
    assert equal(played(alone), played(block))
    alone.rollout(10)
    block.rollout(10)
    assert equal(buffers(alone), buffers(block))


@pytest.mark.parametrize(
    ("lanes", "order", "options"),
    [
        (8, "shuffled", {"autoreset_mode": "Disabled"}),  # each lane has several of everything
        (32, "descending", {"dtype": "float64", "trace": False}),
        pytest.param(64, "ascending", {"preset": "original", "signed": True}, marks=pytest.mark.slow),
        (256, "descending", {"autoreset_mode": "NextStep", "signed": True, "gains": "drawn"}),
    ],
)
def test_any_number_of_lanes_gives_the_same_bits_in_every_kernel(lanes, order, options):
    assert equal(*map(every_kernel, pair(lanes, order, **options)))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("lanes", "num_envs", "chunk"), GROUPS)
def test_groups_of_a_block_that_launches_leave_in_part_give_the_same_bits(lanes, num_envs, chunk, order):
    alone, together = pair(lanes, order, num_envs=num_envs, chunk=chunk)
    assert equal(every_kernel(alone), every_kernel(together))


@pytest.mark.parametrize("lanes", [5, 8, 16, 32])
def test_a_block_of_groups_has_whole_warps_and_the_memory_of_all(lanes, monkeypatch):
    launched, run = {}, gpu.Unit.run

    def noted(unit, name, arguments, blocks, threads, shared, device):
        launched[name] = blocks, threads, shared
        run(unit, name, arguments, blocks, threads, shared, device)

    monkeypatch.setattr(gpu.Unit, "run", noted)
    block, groups = (gpu.make("vehicular_edge", 19, block=size, **OPTIONS) for size in (128, lanes))
    scratch = block.memory()["scratch"]
    played(block, steps=1)
    assert launched["step"] == (19, 128, scratch)
    played(groups, steps=1)
    warps = 4 if lanes == 32 else 2
    held, memory = warps * (32 // lanes), groups.memory()["scratch"]
    assert launched["step"] == launched["reset"] == (-(-19 // held), 32 * warps, memory)
    assert held * scratch <= memory < held * (scratch + 128)  # apart by less than all banks have in a row
    assert launched["random_actions"] == (-(-19 // held), 32 * warps, 0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
@pytest.mark.parametrize("gains", ["stored", "drawn"])
@pytest.mark.parametrize("order", gpu.ORDERS)
def test_every_form_gives_the_bits_of_the_cpus_form(order, gains, mode, dtype):
    assert equal(*map(every_kernel, pair(order=order, gains=gains, autoreset_mode=mode, dtype=dtype)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
@pytest.mark.parametrize(("lanes", "num_envs", "chunk"), GROUPS)
def test_every_form_of_groups_gives_the_bits_of_the_cpus_form(lanes, num_envs, chunk, mode, dtype):
    both = pair(lanes, "shuffled", num_envs=num_envs, chunk=chunk, autoreset_mode=mode, dtype=dtype)
    assert equal(*map(every_kernel, both))


def test_chunks_on_a_gpu_change_no_bit():
    assert equal(*(played(env) for env in pair(order="descending", chunk=1)))


# ---- faults that must show: what is replaced in the unit, and by what

WAIT = "    sync();\n"
LOADED = "episode.active |= u64(b.active[e * AGENTS + a] != 0) << a;\n"
FAULTS = {
    "no barrier after the state was loaded": (f"{LOADED}{WAIT}", LOADED),
    "no barrier after admission": (f"first * J);\n{WAIT}", "first * J);\n"),
    "tasks of the next eight taken for these": ("(s.node)[k];", "(s.node)[k + 1];"),
    "no barrier within a sum": (f"partial[w] = sum;\n    }}\n{WAIT}", "partial[w] = sum;\n    }\n"),
    "a barrier that half of the lanes skip": (f"{LOADED}{WAIT}", f"{LOADED}    if (lane() < LANES / 2) sync();\n"),
    "no barrier after shared memory was cleared": ("        sync(); \\\n        const i64 e", "        const i64 e"),
    "episodes counted by all lanes": ("if (lane() == 0) count_episode", "count_episode"),
    "random numbers shared by two lanes": ("word[1] = u32(quad);", "word[1] = u32(quad & ~1);"),
}
OF_GROUPS = {
    name: fault
    for name, fault in FAULTS.items()
    if name in ("no barrier after the state was loaded", "no barrier within a sum")
} | {
    "the mask of another group": ("threadIdx.x % 32 / LANES * LANES;", "threadIdx.x % 32 / LANES;"),
    "the mask of half a group": ("(1u << (LANES % 32)) - 1", "(1u << (LANES % 32 / 2)) - 1"),
    "a mask without a group of a warp's 32 lanes": ("LANES == 32 ? 0xffffffffu :", "LANES == 32 ? 0x7fffffffu :"),
    "lanes of a warp taken for those of a group": ("int(threadIdx.x % 32 % LANES)", "int(threadIdx.x % 32)"),
    "memory for one group alone": ("GROUPS * STRIDE", "STRIDE"),
    "all groups of a block in one environment": ("blockIdx.x * GROUPS + group()", "blockIdx.x * GROUPS"),
    "groups counted as if a warp had one more": ("threadIdx.x / 32 * IN_WARP", "threadIdx.x / 32 * (IN_WARP + 1)"),
    "every block at the first environment": ("u32(call.first) + blockIdx.x * GROUPS", "u32(call.first) + blockIdx.x"),
    "a last group beyond the end of a launch": ("if (GROUPS == 1 || e < call.end)", "if (true)"),
    "a last group without its environment": ("e < call.end)", "e + 1 < call.end)"),
}
# The same of batches in which the first launch ends within a block and the last one fills its own, so that a group
# beyond the end of a launch finds an environment that is there.
FILLED = [(5, 30, 18), (8, 20, 12), (32, 10, 6)]


def shows(fault: tuple[str, str], forms) -> bool:
    """Tells if a run in the GPU's form is stopped, or differs from that in the CPU's, of any form in any order."""
    for options in forms:
        expected = None
        for order in gpu.ORDERS:
            try:  # a batch resets itself when it is made
                alone, faulty = pair(order=order, fault=fault, **options)
                expected = expected or every_kernel(alone)
                found = every_kernel(faulty)
            except gpu.EmulationError:
                return True
            if not equal(expected, found):
                return True
    return False


def first_at_once(faults: dict) -> list:
    """The first of some faults is always put in, the others where every test is run."""
    return [pytest.param(fault, marks=[pytest.mark.slow] * (k > 0)) for k, fault in enumerate(faults)]


@pytest.mark.parametrize("fault", first_at_once(FAULTS))
def test_a_fault_shows_in_some_order(fault):
    assert shows(FAULTS[fault], [{}])


@pytest.mark.parametrize("fault", first_at_once(OF_GROUPS))
def test_a_fault_of_groups_shows_in_some_order(fault):
    forms = [{"block": lanes, "num_envs": num_envs, "chunk": chunk} for lanes, num_envs, chunk in FILLED]
    assert shows(OF_GROUPS[fault], forms)


@pytest.mark.parametrize("lanes", [32, 128])
def test_shared_memory_may_begin_with_anything(lanes):
    cleared = "reinterpret_cast<uint4*>(&memory)[n] = make_uint4(0, 0, 0, 0);"
    assert not shows((cleared, cleared.replace("0, 0, 0, 0", "~0u, ~0u, ~0u, ~0u")), [{"block": lanes}])


@pytest.mark.parametrize(("lanes", "num_envs", "chunk"), FILLED)
def test_nothing_shows_in_groups_without_a_fault(lanes, num_envs, chunk):
    assert not shows(("", ""), [{"block": lanes, "num_envs": num_envs, "chunk": chunk}])
