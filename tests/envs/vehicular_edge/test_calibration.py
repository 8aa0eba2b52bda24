"""Scales found in arrays, beside what the original finds object by object."""

from dataclasses import replace

import numpy as np
import pytest

from lockstep.envs.noise import RANDOM_POLICY, philox
from lockstep.envs.vehicular_edge import original, port
from lockstep.envs.vehicular_edge.params import DRIFTS, FAMILIES, PRESETS, SWITCHES, Params, state_shapes
from lockstep.envs.vehicular_edge.scenario import (
    Calibration,
    calibration,
    draw,
    draw_each,
    draw_pool,
    drawing,
    load,
    under,
)

EPISODES = 2


@pytest.fixture(scope="module")
def original_small():
    return Params(**PRESETS["original"] | {"vehicles": 20, "slots": 6, "edges": 4, "components": 2})


def random_action(params: Params, environment: int, t: int) -> dict:
    """The random policy by its definition, one word after the other."""
    A = params.action_length
    vectors = []
    for agent in range(2):
        words = [philox((environment, (agent * A + k) // 4, t, RANDOM_POLICY), 264) for k in range(A)]
        vectors.append(np.array([(int(word[(agent * A + k) % 4]) >> 8) / 2**24 for k, word in enumerate(words)]))
    return dict(zip(("offloading", "allocation"), vectors, strict=True))


def play(params, traffic):
    """(state before, environment) after every slot of the original in the scenarios 0 .. EPISODES-1."""
    for b, scenario in enumerate(draw_each(params, traffic, EPISODES, calibration=Calibration.ones(params))):
        env = original.VehicularEdge(scenario, indexed=True)
        env.reset(seed=0)
        for t in range(params.slots):
            before = original.get_state(env)
            env.step(random_action(params, b, t))
            yield before, env


@pytest.mark.parametrize(
    "switches",
    [{}, {"slot_tandem": True}, dict.fromkeys(SWITCHES[:9], True)],
    ids=["physical", "tandem", "nine"],
)
def test_scales_are_what_the_original_reaches(switches, small):
    params = replace(small, **switches)
    backlog, costs, drift = dict.fromkeys(FAMILIES, 0.0), {"i2i": 0.0, "i2c": 0.0}, dict.fromkeys(DRIFTS, 0.0)
    for before, env in play(params, "dense"):
        for name, values in env.episode.reported().items():
            backlog[name] = max(backlog[name], *values)
        for name in costs:
            costs[name] = max(costs[name], env.record["costs"][name].max())
        for name in DRIFTS:
            of_delay = name == "delay"
            into = env.record["delay"]["in"] if of_delay else env.record["in"][name]
            out = env.record["delay"]["out"] if of_delay else env.record["out"][name]
            drift[name] = max(drift[name], np.abs((before[name] - out) * into).max())
    found = calibration.calibrate(params, "dense", episodes=EPISODES)
    expected = [[values[name] or 1.0 for name in values] for values in (backlog, drift)]
    np.testing.assert_allclose(found.backlog, expected[0], rtol=1e-10)
    np.testing.assert_allclose(found.drift, expected[1], rtol=1e-9)
    assert (found.cost_i2i, found.cost_i2c) == pytest.approx((costs["i2i"] or 1.0, costs["i2c"] or 1.0), rel=1e-12)


def test_what_a_slot_brings_is_a_mean_over_scenarios_and_slots(small):
    sizes = [scenario.task_size for scenario in draw_each(small, "city", 10, calibration=Calibration.ones(small))]
    assert calibration.calibrate(small, "city").load == pytest.approx(8 * np.sum(sizes) / (10 * small.slots))


def test_what_a_slot_of_the_default_size_brings():
    """The control value of the specification, worked out apart from this code: 6,377 Mbit."""
    drawn = draw_each(Params(), "arterial", 10, calibration=Calibration.ones(Params()))
    assert np.mean([8 * one.task_size.sum() / 50 for one in drawn]) == pytest.approx(6377, abs=0.5)


def test_sizes_work_and_scores_are_those_of_the_scenarios(small):
    scenarios = draw_pool(small, "city", EPISODES, calibration=Calibration.ones(small))
    found = calibration.calibrate(small, "city", episodes=EPISODES)
    assert found.size == max(scenario.task_size.max() for scenario in scenarios)
    assert found.work == max((8e6 * scenario.task_size * scenario.task_cycles).max() for scenario in scenarios)
    scores = np.concatenate([scenario.scores_v2v for scenario in scenarios])
    np.testing.assert_allclose(found.score_v2v, np.sqrt(((scores - scores.mean(axis=0)) ** 2).mean(axis=0)))


def test_a_scenario_that_is_played_more_often_weighs_no_more(small):
    """Of three episodes the first scenario has two; it brings twice the bits of the other."""
    first, second = draw_pool(small, "city", 2, calibration=Calibration.ones(small))
    pool = [replace(first, task_size=2 * first.task_size), second]
    found = calibration.calibrate(small, pool, episodes=3)
    assert found.load == pytest.approx(8 * np.mean([one.task_size.sum() for one in pool]) / small.slots)
    scores = np.concatenate([scenario.scores_v2i for scenario in pool])
    np.testing.assert_allclose(found.score_v2i, scores.std(axis=0))


def test_large_scenarios_are_played_one_by_one_to_the_same_scales(small, monkeypatch):
    together = calibration.calibrate(small, "dense", episodes=3)
    monkeypatch.setattr(calibration, "LINKS", 1)
    for name, value in vars(calibration.calibrate(small, "dense", episodes=3)).items():
        np.testing.assert_allclose(value, getattr(together, name), rtol=1e-12)


def test_a_scale_of_nothing_is_one(small):
    """Without tasks and without movement there is nothing to divide by."""
    scenario = draw(small, "dense", calibration=Calibration.ones(small))
    idle = replace(
        scenario,
        **{name: np.zeros_like(getattr(scenario, name)) for name in ("task_count", "task_size", "pca_v2v", "pca_v2i")},
    )
    found = calibration.calibrate(small, [idle], episodes=EPISODES)
    for value in vars(found).values():
        np.testing.assert_array_equal(value, np.ones_like(value))


def test_drawn_scenarios_bring_the_calibration_of_their_map(small):
    one, other = draw(small, "dense"), draw(small, "dense", index=5)
    assert one.calibration is other.calibration
    assert one.calibration.backlog[0] == calibration.calibrate(small, "dense").backlog[0]
    assert (draw(small, "arterial").calibration.score_v2v != one.calibration.score_v2v).all()


def test_a_seed_that_is_none_is_refused_with_scenarios_of_ones_own(small):
    with pytest.raises(ValueError, match=r"seed=\[1\] must be an integer from 0"):
        calibration.calibrate(small, [draw(small, calibration=Calibration.ones(small))], seed=[1])


def test_nothing_is_calibrated_where_nothing_is_divided_by_it(published):
    for value in vars(published.calibration).values():
        np.testing.assert_array_equal(value, np.ones_like(value))


@pytest.mark.parametrize(
    "make",
    [
        lambda scenario: original.make("physical", scenario=scenario).scenarios,
        lambda scenario: original.VehicularEdge(scenario, replace(scenario.params, unsigned_drift=False)).scenarios,
        lambda scenario: port.PORT.world(port.PORT, "physical", {}, scenarios=[scenario]).shown["scenarios"],
    ],
    ids=["original", "one switch", "port"],
)
def test_a_scenario_without_a_calibration_gets_one_where_it_is_divided_by(make, original_small):
    """On itself, as one of a trace: G is what its own slots bring, and the scales are those of its new parameters."""
    scenario = draw(original_small, "dense")
    (found,) = make(scenario)
    assert found.calibration.load == pytest.approx(8 * scenario.task_size.sum() / original_small.slots)
    expected = calibration.calibrate(found.params, [replace(scenario, params=found.params)])
    for name, value in vars(found.calibration).items():
        np.testing.assert_array_equal(value, getattr(expected, name))


def test_a_calibration_that_was_given_stays(original_small):
    params = replace(original_small, raw_observation=False)
    given = replace(Calibration.ones(original_small), load=7.0)
    assert under(draw(original_small, "dense", calibration=given), params).calibration is given
    drawn = draw(params, "dense")
    assert under(drawn, replace(params, running_scales=False)).calibration is drawn.calibration


def test_a_file_without_a_calibration_is_played_with_one(tmp_path, original_small):
    scenario = draw(original_small, "dense")
    scenario.save(tmp_path / "one")
    assert load(tmp_path / "one").calibration.is_ones
    params = replace(original_small, **dict.fromkeys(SWITCHES, False))
    load_of_slots = 8 * scenario.task_size.sum() / original_small.slots
    assert load(tmp_path / "one", params).calibration.load == pytest.approx(load_of_slots)


# ---- warm-up


def test_the_warm_up_is_ten_episodes_of_the_original(original_small):
    """One after the other, with scales that run on from episode to episode."""
    scenario = draw(original_small, "dense")
    stream = drawing.published_stream(original_small, 264)
    env = original.VehicularEdge(replace(scenario, running=None), indexed=True)
    for _ in range(10):
        env.reset()
        for _ in range(original_small.slots):
            action = {agent: stream.uniform(0, 1, original_small.action_length) for agent in env.possible_agents}
            env.step(action)
    last = original.get_state(env)
    names = [name for name in state_shapes(original_small) if name.startswith(("max_", "cost_", "drift_"))]
    assert list(scenario.running) == names
    for name in names:
        np.testing.assert_allclose(scenario.running[name], last[name], rtol=1e-9, atol=1e-9, err_msg=name)


def test_the_warm_up_raises_the_scales(published):
    assert published.running["max_lc"].min() > 0
    assert published.running["cost_cc"] == 0  # nobody draws exactly 1, so nobody reaches the cloud
    assert published.running["cost_power_v2v"].max() <= published.client_power.max()


def test_a_pool_starts_from_the_scales_of_its_first_scenario(original_small):
    first, second = draw_pool(original_small, "dense", 2)
    assert first.running is second.running
    np.testing.assert_array_equal(first.running["max_lc"], draw(original_small, "dense").running["max_lc"])


def test_a_scenario_of_philox_warms_up_with_philox(small):
    params = replace(small, running_scales=True)
    running = draw(params, "dense", calibration=Calibration.ones(params)).running
    assert running["max_v2v"].shape == (small.servers,) and running["max_v2v"].max() > 0
    assert not any(name.startswith("drift_") for name in running)  # bounds of the published form alone
    published = replace(params, unsigned_drift=True)
    running = draw(published, "dense", calibration=Calibration.ones(params)).running
    assert np.isfinite(running["drift_min_lc"]).all()
