"""Barriers of kernels that several lanes run: there is no race with them, and one without any of them."""

import functools
from collections.abc import Callable
from unittest import mock

import pytest

from lockstep import envs
from lockstep.envs.vehicle_routing.oracles.attention import fused
from lockstep.envs.vehicle_routing.params import Params
from lockstep.envs.vehicle_routing.scenario import city
from tests.emulator import gpu
from tests.envs.marine_navigation import test_gpu_text as marine
from tests.envs.marine_navigation.test_parity import crowded
from tests.envs.vehicle_routing import test_attention as attention
from tests.envs.vehicle_routing import test_gpu_text as routing
from tests.envs.vehicle_routing.test_parity import FORMS as ROUTES
from tests.envs.vehicular_edge import test_gpu_text as edge

LIVES = {
    "vehicular_edge": edge.every_kernel,
    "marine_navigation": marine.every_kernel,
    "vehicle_routing": routing.every_kernel,
}


def alive(name: str, options: dict, **device) -> str:
    """Lives through every kernel of a batch whose memory is watched; the text of its unit.

    Raises:
        EmulationError: there was a race.
    """
    env = gpu.make(name, watched=True, **{"check_actions": False, **options}, **device)
    LIVES[name](env)
    return env._kernels.text


def decoded(word: str, argument: str | None, rules: dict, **device) -> str:
    """The same of the walks of the learned oracle, which a block of lanes makes each."""
    texts = []

    def emulated(text, batch, call, walks, threads):
        texts.append(text)
        return gpu.cuda(text, batch, call, walks, fused.LANES, gpu.Device(watched=True, **device), "scratch_bytes")

    asked = attention.oracle(word, Params(requests=4, **rules), city().travel, argument, form="fused")
    fused.launcher.cache_clear()
    with mock.patch.object(fused.launch, "cpu", emulated):
        found = asked.answer_all(*attention.days(3, 4))
    fused.launcher.cache_clear()
    assert attention.same(found, asked.answer_all(*attention.days(3, 4)))
    return texts[0]


# A launch leaves a block in part; each environment lives through every kernel, with episodes that end.
SEVERAL = {"num_envs": 5, "chunk": 3}
FAR = 31.0  # m, which no proposal of a goal is from its start
FORMS: dict[str, list[Callable]] = {
    "vehicular_edge": [
        functools.partial(alive, "vehicular_edge", edge.OPTIONS | form)
        for form in (
            {"num_envs": 2},
            {"num_envs": 2, "preset": "original", "signed": True},
            SEVERAL | {"block": 8, "gains": "drawn", "autoreset_mode": "NextStep"},
        )
    ],
    "marine_navigation": [
        functools.partial(
            alive,
            "marine_navigation",
            SEVERAL | crowded(form | {"robots": robots, "max_steps": 3, "min_goal_distance": 12.0} | more),
        )
        for form, robots, more in (
            (marine.FORMS[0], 5, {}),
            (marine.FORMS[1], 20, {"autoreset_mode": "NextStep"}),
            (marine.FORMS[2], 9, {"preset": "original"}),
            (marine.FORMS[3], 1, {}),
            (marine.FORMS[3], 1, {"min_goal_distance": FAR}),
            (marine.FORMS[0], 5, {"scenarios": 2}),
        )
    ],
    "vehicle_routing": [
        functools.partial(alive, "vehicle_routing", SEVERAL | {"unseeded_instances": False} | form)
        for form in (
            ROUTES["cramped"],
            ROUTES["original, greedy"],
            ROUTES["mixed, twin"] | {"autoreset_mode": "NextStep"},
            ROUTES["vrptw"],
            ROUTES["stuck_after_failure"],
            routing.OUTSIDE,
        )
    ],
    "attention": [
        functools.partial(decoded, "am", None, {"max_ride": 130.0, "fleet": "soft", "fleet_size": 2}),
        functools.partial(decoded, "am-sample", "3", {"lookahead_mask": True}),
    ],
}
# Barriers that no form needs, by the code before them, and why they stand there.
END = "what a function has left is whole when it returns, though whoever reads it has a barrier of its own before"
TO_SPARE: dict[str, dict[str, str]] = {
    "vehicular_edge": {
        "block.cuh: Environment::read_one(s, 4 * quad + k, random_number(word[k], (4 * quad + k) % NUMBERS));": END,
        "vehicular_edge/decide.cuh: for (int k = lane(); k < SHARES; k += LANES) "
        "s.share[k] = weight_of(raw[ACTION + k]);": END,
        "vehicular_edge/decide.cuh: for (int k = lane(); k < SHARES; k += LANES) "
        "s.share[k] = share[k] > 0.0f ? real(share[k] < most ? share[k] : most) : real(0);": END,
        "vehicular_edge/queues.cuh: raise(MAX_CC, s.state[CC]);": END,
        "vehicular_edge/radio.cuh: s.capacity[r] = capacity;": END,
        "kernel.cuh: out.terminated[0] = false;": END,
    },
    "marine_navigation": {
        "block.cuh: for (int k = lane(); k < OBS && !(shown >> a & 1); k += LANES) own[a * OBS + k] = 0.0f;": END,
        "boats.cuh: put(s, i, b);": END,
        "boats.cuh: s.ground(i)[1] = speed * sine + v;": END,
        "perception.cuh: for (int q = 0; q < SLOTS; q++) s.place[i][q] = u8(nearest.id[q]);": END,
    },
    "vehicle_routing": {
        "insertion.cuh: if (PAIRED) walk[b + 2] = first + 1;": END,
        "insertion.cuh: walk[length + PER] = 0;": END,
        "insertion.cuh: if (k > a && k < length) walk[k + (PAIRED && k > b ? 2 : 1)] = node;": "the next places lie "
        "before these, and the two that are left are nobody else's",
        "kernel.cuh: x.stop[first + node] = stop ? p.service[node] : 0;": END,
        "kernel.cuh: const double reward = priced ? gain(before, twin_before, cost, twin_cost) - SHIFT_PENALTY * shift "
        ": FAILURE_REWARD;": "all have read what is changed next before the oracle's own barriers",
        "kernel.cuh: s.state[0] += real(reward);": "each lane tells of what it has written itself",
    },
    "attention": {
        "decode.cuh: s.held[k / (3 * D) * Scratch::PITCH + k % (3 * D)] = "
        "batch.keys[(rows + k / (3 * D)) * 4 * D + k % (3 * D)];": "the lane that begins the walk reads none of it",
        "decode.cuh: batch.ok[number] = complete && bill.ok;": END,
    },
}
SHARED = ("lanes.cuh: ", "block.cuh: ")  # of all families, not all of which use everything


@pytest.fixture(autouse=True)
def _emulated():
    if "#define __clang__ 1" in gpu.compile.target_flags()[1]:
        pytest.skip("GCC alone tells of accesses to memory")
    with gpu.installed():
        yield


def races(run: Callable, **device) -> bool:
    try:
        run(**device)
    except gpu.EmulationError:
        return True
    return False


def test_every_family_of_several_lanes_is_watched():
    assert set(LIVES) == {name for name in envs.names() if envs.port(name).of("lanes") > 1}


@pytest.mark.slow
@pytest.mark.parametrize("order", [pytest.param("ascending", marks=pytest.mark.long), "shuffled"])
@pytest.mark.parametrize(("name", "number"), [(name, n) for name, forms in FORMS.items() for n in range(len(forms))])
def test_no_kernel_has_a_race(name, number, order):
    FORMS[name][number](order=order)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_every_barrier_of_every_kernel_is_missed_where_it_is_left_out(name, monkeypatch):
    monkeypatch.setattr(gpu, "launched", {})
    missed, there, every, kernels = set(), set(), set(), set()
    for run in FORMS[name]:
        gpu.reached()
        text = run()
        places, came = gpu.barriers(text), gpu.reached()
        kernels |= set(gpu.compiled(text, True).kernels)
        there |= {places[number] for number in came}
        every |= {*places.values()}
        missed |= {places[number] for number in came if places[number] not in missed and races(run, left_out=number)}
    assert kernels == set().union(*gpu.launched.values())
    assert there - missed == set(TO_SPARE[name])
    assert [place for place in every - there if not place.startswith(SHARED)] == []  # some form comes to each
