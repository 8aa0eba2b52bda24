"""The port of the vehicular edge in its other guises, and what it refuses; test_parity.py has the original."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs.vehicular_edge.original import VehicularEdge
from lockstep.envs.vehicular_edge.params import DRIFTS, MOST_OF_A_TASK, PRESETS, SWITCHES, Params
from lockstep.envs.vehicular_edge.scenario import draw
from tests.contract.batches import copies, equal

SMALL = {"vehicles": 20, "edges": 4, "slots": 8, "components": 3}


def make(scenarios, num_envs: int = 1, **options):
    options = {"dtype": "float64", "trace": True, "autoreset_mode": "Disabled", **options}
    return envs.make("vehicular_edge", num_envs, scenarios=scenarios, **options)


# ---- other guises of the same


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("traffic", ["dense", "city"])
def test_drawn_gains_are_the_stored_ones(dtype, traffic):
    scenarios = [draw(Params(**SMALL), traffic, index) for index in range(3)]
    stored, drawn = (make(scenarios, 4, dtype=dtype, gains=gains) for gains in ("stored", "drawn"))
    stored.reset(seed=2)
    drawn.reset(seed=2)
    for _ in range(stored.params.slots):
        action = stored.random_actions()[0]
        one, other = stored.step(action), drawn.step(action)
        for ours, theirs in zip(one[:4], other[:4], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
        for name in ("rate_v2v", "rate_v2i"):
            torch.testing.assert_close(
                stored.record()[name], drawn.record()[name], rtol=1e-6 if dtype == "float32" else 1e-12, atol=0.0
            )


def test_signed_actions_are_half_of_one_more():
    scenario = draw(Params(**SMALL), "dense")
    unit, signed = make(scenario, 2), make(scenario, 2, signed=True)
    assert signed.single_action_space.low.min() == -1
    unit.reset(seed=0)
    signed.reset(seed=0)
    assert -1.0 <= float(signed.random_actions().min()) < -0.9
    eighths = (unit.random_actions()[0] * 8).round() / 8  # numbers on which (x + 1) / 2 is exact
    unit.step(eighths)
    signed.step(2 * eighths - 1)
    assert torch.equal(unit.state()["state"], signed.state()["state"])


@pytest.mark.parametrize("cap_local", [3, 8, 20])
def test_a_client_without_a_task_has_all_to_spare_however_it_is_divided(cap_local):
    params = Params(**PRESETS["physical"] | SMALL | {"cap_local": cap_local})
    env = make(draw(params, "dense"), 64, dtype="float32", preset="physical")
    env.reset(seed=0)
    env.set_state({"lc": np.full(params.clients, 1e3)})
    cloud = torch.full((64, params.clients, params.target_length // params.clients), params.options - 1)
    share = torch.full((64, params.share_length), 0.5)
    local = share[:, : params.clients * (cap_local + 2)].view(64, params.clients, -1)[1:, :, :cap_local]
    local.copy_(torch.rand(local.shape, generator=torch.Generator().manual_seed(5)))
    env.step({"target": cloud.int(), "share": share})
    state = env.state()["state"]
    assert (state == state[0]).all() and (state[0, : params.clients] < 1e3).any()


def test_a_node_has_places_beyond_16_bits():
    scenario = draw(Params(**SMALL), "dense")
    admitted = []
    for cap in (scenario.params.tasks * scenario.params.clients, 2**16):
        env = make(replace(scenario, params=replace(scenario.params, cap_cloud=cap)))
        env.reset(seed=0)
        env.step(torch.ones(env.action_space.shape))  # all to the cloud
        admitted.append(env.record()["admitted"].sum().item())
    assert admitted[0] == admitted[1] > 0


@pytest.mark.parametrize("preset", PRESETS)
def test_running_scales_survive_a_reset_but_not_a_seed(preset):
    env = make(draw(Params(**PRESETS[preset], **SMALL), "dense"), 2, autoreset_mode="SameStep", trace=False)
    env.reset(seed=0)
    first = {name: field.clone() for name, field in env.fields().items()}
    env.rollout(12)
    kept = [name for name in first if name.startswith(("max_", "cost_", "drift_"))]
    assert len(kept) == (8 + 8 + 2 * len(DRIFTS) if preset == "original" else 0)
    before = {name: field.clone() for name, field in env.fields().items()}
    env.reset()
    for name, field in env.fields().items():
        assert torch.equal(field, before[name] if name in kept else torch.zeros_like(field)), name
    env.reset(seed=0)
    assert all(torch.equal(field, first[name]) for name, field in env.fields().items())


# ---- what it takes, and what it refuses


def test_scenarios_of_a_port_keep_nothing_that_follows_from_their_arrays():
    pool = [draw(Params(**SMALL), "dense", index) for index in range(2)]
    before = [set(vars(one)) for one in pool]
    kept = make(pool, 2).scenarios
    assert [set(vars(one)) for one in kept] == before  # gains, orders and masks are as large as the arrays themselves


def test_a_state_takes_330_numbers_and_a_scenario_half_a_megabyte():
    env = envs.make("vehicular_edge", 8, scenarios=2, traffic="dense")
    parts = env.memory()
    assert parts["state"] == 8 * 4 * 330
    assert parts["state"] / 8 < 4096
    assert parts["observations"] == 2 * 8 * 4 * env.params.observation_length
    assert 0.4e6 < env.bytes_per_scenario < 0.75e6
    assert parts["scratch"] < 48 * 1024


def test_a_preset_applies_to_given_scenarios():
    scenario = draw(Params(**SMALL), "dense")
    assert not make(scenario).params.slot_tandem
    env = make(scenario, preset="original", penalty_weight=2.0)
    assert all(getattr(env.params, name) for name in SWITCHES)
    assert env.params.penalty_weight == 2.0
    assert env.params.draw == "philox"


def test_a_scenario_file_is_the_scenario(tmp_path):
    scenario = draw(Params(**SMALL), "city")
    scenario.save(tmp_path / "one")
    one, other = make(scenario, 2), make(str(tmp_path / "one"), 2)
    one.reset(seed=0)
    other.reset(seed=0)
    action = one.random_actions()[0]
    assert torch.equal(one.step(action)[0], other.step(action)[0])


def test_the_observation_space_is_the_originals():
    for preset in PRESETS:
        scenario = draw(Params(**PRESETS[preset]), "dense")
        ours = make(scenario).single_observation_space
        theirs = VehicularEdge(scenario).observation_space("offloading")
        np.testing.assert_array_equal(ours.low, theirs.low)
        np.testing.assert_array_equal(ours.high, theirs.high)
        assert math.prod(ours.shape) == 1025


@pytest.mark.parametrize("preset", list(PRESETS))
def test_the_largest_tasks_are_played_as_by_the_original(preset):
    """Float32 holds all that comes of them."""
    of_a_task = "task_size", "task_cycles", "task_rate", "task_mean"
    scenario = draw(Params(**PRESETS[preset] | SMALL), "dense")
    largest = {name: np.where(scenario.task_size > 0, MOST_OF_A_TASK, 0.0) for name in of_a_task}
    env = VehicularEdge(replace(scenario, **largest))
    batch = make(env.scenarios[0], dtype="float32")
    env.reset(seed=0), batch.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(env.params.slots - 1):
        target = rng.integers(0, env.params.options, (env.params.clients, env.params.tasks), dtype=np.int32)
        share = rng.random(env.params.share_length, dtype=np.float32)
        wanted = env.step_decoded(target, share)[1]["offloading"]
        action = {"target": torch.from_numpy(target[None]), "share": torch.from_numpy(share[None])}
        assert batch.step(action)[1][0, 0].item() == pytest.approx(wanted, rel=1e-4)


def test_what_it_cannot_do_is_refused():
    one, published = draw(Params(**SMALL), "dense"), draw(Params(draw="published", **SMALL), "dense")
    longer, wrong = draw(Params(**SMALL | {"slots": 9}), "dense"), draw(Params(**SMALL), "dense")
    wrong.task_size[3, 1, 0] = np.nan
    faded = replace(one, fading_v2i=0.5 * one.fading_v2i)
    table = [
        (lambda: make([one, longer]), r"scenarios\[1\]: slots is 9, Params has 8"),
        (lambda: make(one, traffic="city"), "traffic='city' is for scenarios that are drawn"),
        (lambda: make(replace(one, client_cpu=["fast"])), "client_cpu holds <U4, must hold numbers"),
        (lambda: make(one, scenario_seed=7), "scenario_seed=7 is for scenarios that are drawn"),
        (lambda: make(wrong), r"scenarios\[0\].*task_size.*3, 1, 0"),
        (lambda: make(published, gains="drawn"), "gains='drawn' needs scenarios of draw='philox'"),
        (lambda: make([one, faded], gains="drawn"), r"scenarios\[1\]: its fading is not what index=0, seed=264 and"),
        (lambda: make(1, traffic=[]), r"traffic=\[\] must be one of 'arterial'"),
        (lambda: make(1, preset=""), "preset='' is unknown"),
        (make(one, trace=False).record, r"record\(\) needs trace=True"),
        (make(one).cycles, r"cycles\(\) needs profile=True"),
    ]
    for call, message in table:
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(MemoryError, match="scenarios=1000000000 needs .* about .* would fit"):
        make(10**9, **SMALL)


def test_a_pool_is_known_on_machines_whose_linear_algebra_rounds_otherwise():
    env = make(3, 2, trace=False, **SMALL)
    for table in env._buffers.tables.values():
        if table.is_floating_point():
            table.copy_(torch.nextafter(table, torch.full_like(table, torch.inf)))
    known = env.state()["pool"]
    assert known == make(3, 7, chunk=2, **SMALL).state()["pool"]
    assert known != make(3, 2, trace=False, scenario_seed=1, **SMALL).state()["pool"]


# ---- integers as actions


def decoded(env) -> tuple[torch.Tensor, torch.Tensor]:
    """Targets 0 and shares 1 of every environment."""
    p = env.params
    return torch.zeros(env.num_envs, p.clients, p.tasks, dtype=torch.int32), torch.ones(env.num_envs, p.share_length)


def test_unchecked_integers_are_clipped():
    wild, tame = (make(3, check_actions=checked, **SMALL) for checked in (False, True))
    wild.reset(seed=0), tame.reset(seed=0)
    p, (target, share) = wild.params, decoded(wild)
    target = torch.arange(p.target_length, dtype=torch.int32).reshape(target.shape) * 37 - 1000
    share = torch.linspace(-1, 1, p.share_length)[None].contiguous()
    share[0, 3] = torch.nan
    one = copies(wild.step({"target": target, "share": share}))
    other = tame.step({"target": target.clamp(0, p.options - 1), "share": share.nan_to_num(0).clamp(min=0)})
    assert equal(one, other) and equal(wild.state(), tame.state())


def test_integers_of_a_wrong_form_or_that_are_no_option_are_named():
    env = make(3, 2, **SMALL)
    env.reset(seed=0)
    p, before, (target, share) = env.params, env.state(), decoded(env)
    table = [
        ({"target": target}, "'target' and 'share', got 'target'"),
        ({"target": target.long(), "share": share}, "target must be a int32 tensor on cpu, got torch.int64"),
        ({"target": target, "share": share[:1]}, rf"share has shape \(1, {p.share_length}\); allowed: \(2, "),
        ({"target": target + p.options, "share": share}, rf"target of environment 0, client 0, task 0 is {p.options}"),
        (
            {"target": target, "share": share * 3e38},
            r"share of environment 0, index 0 is 3.*, not in \[0, 1e\+30\]",
        ),
        ({"target": target, "share": -share}, "share of environment 0, index 0 is -1.0, not in"),
        ({"target": target, "share": share * torch.nan}, "share of environment 0, index 0 is nan, not in"),
    ]
    for action, message in table:
        with pytest.raises(ValueError, match=message):
            env.step(action)
    assert equal(before, env.state())
