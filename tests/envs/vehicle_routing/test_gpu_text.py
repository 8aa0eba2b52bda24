"""The GPU's form of the kernels, run without a GPU: any number of lanes leaves the bits of the CPU's form."""

import functools
import itertools

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs.kernels import compile
from lockstep.envs.vehicle_routing.oracles.attention import fused
from lockstep.envs.vehicle_routing.oracles.attention.network import Shape
from lockstep.envs.vehicle_routing.params import Params
from tests.contract.batches import equal
from tests.emulator import gpu
from tests.envs.faults import shows
from tests.envs.test_gpu_text import ORDERS
from tests.envs.vehicle_routing.test_parity import FORMS
from tests.envs.vehicle_routing.test_port import alone

SLOW = pytest.mark.slow
OUTSIDE = {"requests": 5, "oracle": alone, "reward": "twin"}
# Forms of test_parity.py that are run by default; the rest is exhaustive.
FIRST = ("cramped", "original, greedy", "mixed, twin", "vrptw")
ALL = [pytest.param(FORMS[form], marks=[SLOW] * (form not in FIRST), id=form) for form in FORMS if "brute" not in form]


@pytest.fixture(autouse=True)
def _emulated():
    with gpu.installed():
        yield


def pair(order: str, form: dict, num_envs: int = 6, lanes: int | None = None, fault=None, **options):
    """The same batch in the CPU's form and in the GPU's; launches of five leave a block of four in part."""
    options = {"unseeded_instances": False, "check_actions": False, **form, **options}
    emulated = {"order": order, "fault": fault, "chunk": 5, "block": lanes}
    both = (
        envs.make("vehicle_routing", num_envs, **options),
        gpu.make("vehicle_routing", num_envs, **emulated, **options),
    )
    return both


def every_kernel(env) -> dict[str, torch.Tensor]:
    """All that a batch has written after all that it can do, as bytes; episodes end one after another."""
    B, n = env.num_envs, env.params.requests
    first = env.reset(seed=3)[0].clone()
    for _ in range(n - 1):
        env.step(env.random_actions()[0])
    env.reset(options={"reset_mask": np.arange(B) % 4 == 1})
    for _ in range(3):
        env.step(env.random_actions()[0])
    if env.autoreset_mode.value == "SameStep":
        env.rollout(n)
    env.set_state({"walk": env.fields()["walk"].flip(0), "order": env.fields()["order"].flip(0)})
    env.step(env.random_actions()[0])
    found = {name: b.contiguous().view(torch.uint8).clone() for name, b in env._buffers.items() if b.numel()}
    return found | {"first": first} | {name: getattr(env.problems, name).clone() for name in env.problems._fields}


def test_a_learned_oracle_of_more_requests_than_a_block_has_room_for_says_so():
    text = fused.unit(Params(requests=200), Shape(width=64, layers=2, heads=4, ff=256), fused.size_of(401), "float32")
    with pytest.raises(
        MemoryError, match=r"a block of these sizes needs [\d,]+ bytes of shared memory; a block of cpu"
    ):
        fused.launcher(text, 4, gpu.Device(), 1, 0)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("form", [*ALL, pytest.param(OUTSIDE, id="outside")])
def test_groups_of_lanes_give_the_bits_of_one_thread(form, order):
    assert equal(*map(every_kernel, pair(order, form)))


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
@pytest.mark.parametrize("lanes", [8, 16, 32])
@pytest.mark.parametrize("form", ["twin", "lookahead_mask", "stuck_after_failure"])
def test_any_number_of_lanes_in_every_mode_gives_the_bits_of_one_thread(form, lanes, mode, dtype):
    assert equal(*map(every_kernel, pair("shuffled", FORMS[form], lanes=lanes, autoreset_mode=mode, dtype=dtype)))


@SLOW
@pytest.mark.parametrize("target", compile.TARGETS)
def test_kernels_around_an_oracle_outside_compile_for_the_gpu_without_spilling_registers(target):
    port = envs.port("vehicle_routing")
    choices = {"mode": "SameStep", "dtype": "float32", "limit": 31, "tile": 1}
    text = port.unit(envs.folder("vehicle_routing"), port.world(port, None, {}, oracle=alone), **choices)
    rows = compile.resources(text, target)
    assert {used["kernel"] for used in rows} == {"reset", "propose", "step", "observe", "random_actions"}
    assert all(used["spill_store_bytes"] == used["spill_load_bytes"] == used["stack_bytes"] == 0 for used in rows)


# ---- faults that must show: what is replaced in the unit, and by what

PICKED = "places);\n        sync();\n"
FAULTS = {
    "no barrier after a node was selected": (PICKED, PICKED.replace("sync();", ";")),
    "no barrier after zones": (
        "r.zone[k] = DEPOT;\n        }\n    }\n    sync();\n", "r.zone[k] = DEPOT;\n        }\n    }\n",
    ),
    "no barrier after routes were followed": (
        "if (walk[k] == 0) follow(r, walk, k);\n    sync();\n", "if (walk[k] == 0) follow(r, walk, k);\n",
    ),
    "no barrier between reading and moving places": (
        "node = k < length ? walk[k] : 0;\n        sync();\n", "node = k < length ? walk[k] : 0;\n",
    ),
    "no barrier after the order of arrival": (
        "        x[ORDER + i] = other;\n    }\n    sync();\n", "        x[ORDER + i] = other;\n    }\n",
    ),
    "the best place of one lane": ("best = least(best);\n        bill.ok", "bill.ok"),
    "half of the lanes asked": ("for (int half = LANES / 2; half;", "for (int half = LANES / 4; half;"),
}  # fmt: skip
SHOWING = [FORMS[form] for form in ("cramped", "nearest")]


def noticed(fault: tuple[str, str] | None) -> bool:
    cases = itertools.product(SHOWING, gpu.ORDERS)
    return shows([functools.partial(pair, order, form, fault=fault) for form, order in cases], every_kernel)


@pytest.mark.parametrize("fault", [pytest.param(fault, marks=[SLOW] * (k > 0)) for k, fault in enumerate(FAULTS)])
def test_a_fault_shows_in_some_order(fault):
    assert noticed(FAULTS[fault])


@SLOW
def test_nothing_shows_without_a_fault():
    assert not noticed(None)


def test_a_step_that_asks_an_oracle_on_the_host_is_in_no_graph():
    env = gpu.make("vehicle_routing", 2, requests=4, oracle="brute", check_actions=False)
    env.reset()
    with pytest.raises(ValueError, match="a CUDA graph needs steps on the device alone: with oracle='brute' they wait"):
        env.graph()
    for oracle in ("insertion", "greedy", "am", alone):
        assert not gpu.make("vehicle_routing", 2, requests=4, oracle=oracle)._world.waits
