"""The GPU's form of the kernels, run without a GPU: any number of lanes leaves the bits of the CPU's form."""

import functools
import itertools

import numpy as np
import pytest
import torch

from lockstep import envs
from tests.contract.batches import equal
from tests.emulator import gpu
from tests.envs.faults import shows
from tests.envs.marine_navigation.test_parity import FORMS, crowded
from tests.envs.test_gpu_text import ORDERS

SLOW = pytest.mark.slow
# Version, robots, B, and the environments of a launch: the first ends within its second block, the last within one.
GROUPS = [
    (FORMS[0], 5, 17, 14),
    (FORMS[1], 20, 7, 5),
    (FORMS[2], 9, 9, 8),
    (FORMS[3], 1, 19, 17),
]


@pytest.fixture(autouse=True)
def _emulated():
    with gpu.installed():
        yield


def pair(order: str, form: dict, num_envs: int, chunk: int | None = None, fault=None, **options):
    """The same batch in the CPU's form and in the GPU's; chunk is of the GPU's alone."""
    options = crowded(form | {"max_steps": 3, "check_actions": False} | options)
    return (
        envs.make("marine_navigation", num_envs, **options),
        gpu.make("marine_navigation", num_envs, order=order, fault=fault, chunk=chunk, **options),
    )


def every_kernel(env) -> dict[str, torch.Tensor]:
    """All that a batch has written after all that it can do, as bytes; episodes end one after another."""
    B = env.num_envs
    env.reset(seed=3)
    for _ in range(2):
        env.step(env.random_actions()[0])
    env.set_state({"elapsed": np.arange(B) % 3})
    env.reset(options={"reset_mask": np.arange(B) % 4 == 1})
    for _ in range(2):
        env.step(env.random_actions()[0])
    if env.autoreset_mode.value == "SameStep":
        env.rollout(3)
    env.set_state({"goal": env.fields()["pose"][..., :2] + 0.5}, mask=np.arange(B) % 3 == 2)
    env.step(env.random_actions()[0])
    return {name: b.contiguous().view(torch.uint8).clone() for name, b in env._buffers.items() if b.numel()}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("form", "robots", "num_envs", "chunk"), GROUPS, ids=str)
def test_groups_that_launches_leave_in_part_give_the_bits_of_one_thread(form, robots, num_envs, chunk, order):
    assert equal(*map(every_kernel, pair(order, form, num_envs, chunk, robots=robots)))


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
@pytest.mark.parametrize("preset", ["corrected", "original"])
@pytest.mark.parametrize(("form", "robots", "num_envs", "chunk"), GROUPS, ids=str)
def test_every_form_gives_the_bits_of_one_thread(form, robots, num_envs, chunk, preset, mode, dtype):
    options = {"robots": robots, "preset": preset, "autoreset_mode": mode, "dtype": dtype}
    assert equal(*map(every_kernel, pair("shuffled", form, num_envs, chunk, **options)))


# ---- faults that must show: what is replaced in the unit, and by what

WAIT = "    sync();\n"
FAULTS = {
    "those behind an accepted proposal not tested again": ("n += first >= 0 ? first + 1 : LANES;", "n += LANES;"),
    "the same proposal in every lane": ("Stage::propose(at, n + lane(), row);", "Stage::propose(at, n, row);"),
    "no barrier after a proposal was accepted": (f"    {WAIT}        count += first", "        count += first"),
    "no barrier after robots were put among the objects": (
        f"s.radius[O + i] = P::collision_radius;\n    }}\n{WAIT}", "s.radius[O + i] = P::collision_radius;\n    }\n",
    ),
    "no barrier after rewards": (f"s.perceived = 1;\n    {WAIT}", "s.perceived = 1;\n"),
    "the votes of another group": ("threadIdx.x % 32 / LANES * LANES;", "threadIdx.x % 32 / LANES;"),
}  # fmt: skip


def noticed(fault: tuple[str, str] | None) -> bool:
    cases = itertools.product(GROUPS, gpu.ORDERS)
    pairs = [
        functools.partial(pair, order, form, num_envs, chunk, fault, robots=robots, min_goal_distance=12.0)
        for (form, robots, num_envs, chunk), order in cases
    ]
    return shows(pairs, every_kernel)


@pytest.mark.parametrize("fault", [pytest.param(fault, marks=[SLOW] * (k > 0)) for k, fault in enumerate(FAULTS)])
def test_a_fault_shows_in_some_order(fault):
    assert noticed(FAULTS[fault])


@SLOW
def test_nothing_shows_without_a_fault():
    assert not noticed(None)


@pytest.mark.parametrize(("robots", "lanes"), [(1, 4), (5, 5), (7, 8), (9, 10), (12, 16), (17, 32), (32, 32)])
def test_a_group_has_a_lane_for_each_robot(robots, lanes):
    declared = envs.port("marine_navigation")
    assert declared.of("lanes", declared.make_params(None, {"robots": robots})) == lanes
