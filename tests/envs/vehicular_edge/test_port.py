"""The port against closed forms and against itself in its other guises; test_parity.py has the original."""

import math

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs.vehicular_edge.original import VehicularEdge
from lockstep.envs.vehicular_edge.params import DRIFTS, FAMILIES, PRESETS, SWITCHES, Params
from lockstep.envs.vehicular_edge.scenario import draw

SMALL = {"vehicles": 20, "edges": 4, "slots": 8, "components": 3}


def make(scenarios, num_envs: int = 1, **options):
    options = {"dtype": "float64", "trace": True, "autoreset_mode": "Disabled", **options}
    return envs.make("vehicular_edge", num_envs, scenarios=scenarios, **options)


# ---- closed forms


def test_rates_at_a_receiver_sum_to_what_one_sender_of_all_power_had():
    scenario = draw(Params(), "dense")
    env = make(scenario)
    env.reset(seed=0)
    for t in range(5):
        action = env.random_actions()[0]
        env.step(action)
        p = scenario.params
        share = action[0, 1, : p.clients * (p.cap_local + 2)].double().numpy().reshape(p.clients, -1)[:, -2:]
        watt = scenario.client_power[:, None] * 1e-3 * share / share.sum(1, keepdims=True)
        for band, rates, gains in (
            (0, env.record()["rate_v2v"], scenario.gain_v2v[t]),
            (1, env.record()["rate_v2i"], scenario.gain_v2i[t]),
        ):
            rates = rates[0].numpy()
            received = ((rates > 0) * gains * watt[:, band, None]).sum(0) / p.noise_watt
            expected = 20e6 * np.log2(1.0 + received)
            np.testing.assert_allclose(rates.sum(0), expected, rtol=1e-9)
        assert (rates > 0).any()


def test_bits_are_conserved_on_every_route():
    params = Params(**SMALL)
    env = make(draw(params, "dense"))
    env.reset(seed=0)
    arrived = {name: torch.zeros_like(queue) for name, queue in env.queues.items()}
    left = {name: torch.zeros_like(queue) for name, queue in env.queues.items()}
    for _ in range(params.slots):
        env.step(env.random_actions()[0])
        for name in FAMILIES:
            arrived[name] += env.record()["in"][name]
            left[name] += env.record()["dep"][name]
    for name, queue in env.queues.items():
        torch.testing.assert_close(arrived[name], left[name] + queue, rtol=1e-12, atol=1e-9)
    ends = {"v2v": "vc", "i2c": "cc"}  # what leaves a link arrives at its end
    for link, end in ends.items():
        torch.testing.assert_close(left[link].sum(), arrived[end].sum(), rtol=1e-12, atol=1e-9)
    own = torch.diagonal(left["v2i"][..., :-1], dim1=1, dim2=2)
    torch.testing.assert_close(arrived["ec"], own + left["i2i"].sum(1), rtol=1e-12, atol=1e-9)
    offered = sum(arrived[name].sum() for name in ("lc", "v2v", "v2i"))
    ended = sum(left[name].sum() for name in ("lc", "vc", "ec", "cc"))
    queued = sum(queue.sum() for queue in env.queues.values())
    torch.testing.assert_close(offered, ended + queued, rtol=1e-12, atol=1e-9)


def test_everybody_sends_to_the_cloud_only_with_an_access_edge():
    params = Params(**SMALL)
    scenario = draw(params, "sparse")
    env = make(scenario)
    env.reset(seed=0)
    action = env.random_actions()[0]
    action[:, 0] = 1.0
    *_, info = env.step(action)
    tried = np.minimum(scenario.task_count[0], params.tasks)
    covered = tried[scenario.access[0] >= 0].sum()
    admitted = min(covered, params.cap_cloud)
    overflow = scenario.task_count[0].sum() - tried.sum()
    assert info["admitted"][0] == admitted
    assert info["dropped"][0].tolist() == [overflow, covered - admitted, tried.sum() - covered]


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


def test_integers_are_what_raw_numbers_decode_to():
    scenario = draw(Params(**SMALL), "dense")
    raw, integers = make(scenario, 2), make(scenario, 2)
    raw.reset(seed=0)
    integers.reset(seed=0)
    p = raw.params
    for _ in range(4):
        action = raw.random_actions()[0]
        unit = action[:, 0, : p.target_length].double()
        target = (unit * p.options).floor().clamp(max=p.options - 1).to(torch.int32).reshape(2, p.clients, p.tasks)
        raw.step(action)
        integers.step({"target": target, "share": action[:, 1, : p.share_length].contiguous()})
        assert torch.equal(raw.state()["state"], integers.state()["state"])
        assert torch.equal(raw.record()["target"], integers.record()["target"])


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


def test_the_frozen_scenario_is_the_first_of_the_pool():
    scenarios = [draw(Params(**SMALL, frozen_scenario=True), "dense", index) for index in range(3)]
    env = make(scenarios, 5, autoreset_mode="SameStep")
    env.reset(seed=0)
    env.rollout(20)
    assert env.state()["scenario"].tolist() == [0] * 5


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


def test_scenarios_of_other_sizes_are_refused():
    one, other = draw(Params(**SMALL), "dense"), draw(Params(**{**SMALL, "slots": 9}), "dense")
    with pytest.raises(ValueError, match=rf"scenarios\[1\]: slots is 9, Params has {one.params.slots}"):
        make([one, other])


def test_a_map_beside_given_scenarios_is_refused():
    with pytest.raises(ValueError, match="traffic='city' is for scenarios that are drawn"):
        make(draw(Params(**SMALL), "dense"), traffic="city")


def test_a_scenario_with_a_number_that_is_none_is_refused():
    wrong = draw(Params(**SMALL), "dense")
    wrong.task_size[3, 1, 0] = np.nan
    with pytest.raises(ValueError, match=r"scenarios\[0\].*task_size.*3, 1, 0"):
        make(wrong)


def test_drawn_gains_need_fading_that_is_a_function_of_a_place():
    with pytest.raises(ValueError, match="gains='drawn' needs scenarios of draw='philox'"):
        make(draw(Params(draw="published", **SMALL), "dense"), gains="drawn")


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


def test_the_record_needs_a_trace():
    env = envs.make("vehicular_edge", 1, scenarios=1, **SMALL)
    with pytest.raises(ValueError, match="record\\(\\) needs trace=True"):
        env.record()


def test_the_observation_space_is_the_originals():
    for preset in PRESETS:
        scenario = draw(Params(**PRESETS[preset]), "dense")
        ours = make(scenario).single_observation_space
        theirs = VehicularEdge(scenario).observation_space("offloading")
        np.testing.assert_array_equal(ours.low, theirs.low)
        np.testing.assert_array_equal(ours.high, theirs.high)
        assert math.prod(ours.shape) == 1025


def test_its_tasks_have_the_names_of_the_originals():
    scenario = draw(Params(**SMALL), "dense")
    port, original = make(scenario), VehicularEdge(scenario)
    port.reset(seed=0), original.reset(seed=0)
    action = port.random_actions()[0]
    info = port.step(action)[-1]
    told = original.step(dict(zip(original.possible_agents, action[0].numpy(), strict=True)))[-1]["allocation"]
    assert set(told) <= set(info)
    assert info["admitted"].item() == told["admitted"] and info["dropped"][0].tolist() == list(told["dropped"])


def test_a_pool_that_does_not_fit_is_refused_before_it_is_drawn():
    with pytest.raises(MemoryError, match="scenarios=1000000000 needs .* about .* would fit"):
        envs.make("vehicular_edge", 1, scenarios=10**9, **SMALL)
