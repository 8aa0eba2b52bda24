"""Drawn scenarios: distributions, documented numbers, tables, and what cannot be drawn."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from lockstep.envs import checks
from lockstep.envs.noise import philox
from lockstep.envs.vehicular_edge.params import Params
from lockstep.envs.vehicular_edge.scenario import (
    Calibration,
    Scenario,
    calibration,
    draw,
    draw_each,
    draw_pool,
    drawing,
    links,
)
from tests.envs import draws

FEW = {"vehicles": 3, "clients": 2, "slots": 2, "components": 2, "tasks": 1}
FEW |= dict.fromkeys(("cap_local", "cap_server", "cap_edge", "cap_cloud"), 1)
ARRAYS = [name for name, kind in Scenario.__annotations__.items() if kind is np.ndarray]


def drawn(traffic="city", index=0, seed=264, **params) -> Scenario:
    params = Params(**params)
    return draw(params, traffic, index, seed, Calibration.ones(params))


# ---- distributions


def test_gains_are_exponential_about_the_loss_of_the_distance_and_independent():
    """Of eight scenarios, [8, T, Nc, Ns]: amplitudes are Rayleigh's, so their squares exponential with mean 2."""
    params = Params()
    amplitudes = np.stack([one.fading_v2v for one in draw_each(params, calibration=Calibration.ones(params))])
    distance_m = np.broadcast_to(np.where(np.arange(params.servers) % 2, 50.0, 100.0), amplitudes.shape)
    uniform = 1 - np.exp(-links.gains(distance_m, amplitudes, 3.0) * distance_m**3 / 2)
    draws.assert_uniform(uniform, 0, 1)
    draws.assert_uncorrelated(uniform.reshape(8 * params.slots, params.clients, params.servers)[..., :3])
    draws.assert_uncorrelated(uniform.reshape(8, -1, 1))


@pytest.mark.parametrize("rate", [0.2, 0.75, 3.0, 500.0])  # the last is the most that Params allows
def test_arrivals_have_mean_and_variance_of_their_rate(rate):
    u = drawing.uniform(264, 0, np.arange(50), 4000, drawing.COUNTS)
    counts = drawing.poisson(np.array(rate), u)
    assert counts.mean() == pytest.approx(rate, abs=5 * math.sqrt(rate / u.size))
    assert counts.var() == pytest.approx(rate, rel=0.03)
    none = (counts == 0).mean()
    assert none == pytest.approx(math.exp(-rate), abs=0.005)


def test_tasks_of_a_client_are_as_many_as_its_rates_sum_to():
    counts = np.concatenate(
        [drawn(index=k, arrival_low=0.6, arrival_high=0.6).task_count.reshape(-1) for k in range(8)]
    )
    assert counts.mean() == pytest.approx(6.0, abs=0.1)  # ten type slots; standard error sqrt(6/17,600) = 0.018
    assert counts.var() == pytest.approx(6.0, rel=0.06)


def test_sizes_are_uniform_within_a_type():
    scenario = drawn(types=1)
    word = np.sort(philox((0, 0, 0, 0), 264)[:2])
    low, high = 0.01 + 4.99 * (word + 0.5) / 2**32
    draws.assert_uniform(scenario.task_size[scenario.task_size > 0], low, high)
    exists = scenario.task_size > 0
    np.testing.assert_allclose(scenario.task_mean[exists], (low + high) / 2, rtol=1e-15)


def test_servers_are_a_random_subset_and_the_slowest_vehicles_with_q5():
    """Each vehicle serves with probability 26/70, whatever its CPU."""
    cpu = np.concatenate([drawn(index=k).server_cpu for k in range(20)])
    assert cpu.mean() == pytest.approx(30.0, abs=5 * 11.5 / math.sqrt(len(cpu)))
    assert cpu.max() > 45
    slowest = drawn(slow_cpu_serves=True)
    assert slowest.server_cpu.max() < slowest.client_cpu.min()


# ---- what a number depends on


def test_every_number_is_the_documented_word_of_philox(physical):
    """Element, slot and stream of the counter, by hand."""

    def u(element, t, stream):
        return (float(philox((0, element // 4, t, stream), 264)[element % 4]) + 0.5) / 2**32

    Ns, Ne, J = 26, 9, 10
    assert physical.fading_v2v[7, 3, 5] == pytest.approx(math.sqrt(-2 * math.log(1 - u(3 * Ns + 5, 7, 6))), rel=1e-13)
    assert physical.fading_v2i[49, 43, 8] == pytest.approx(
        math.sqrt(-2 * math.log(1 - u(43 * Ne + 8, 49, 7))), rel=1e-13
    )
    assert physical.edge_xy[2, 1] == pytest.approx(2000 * u(4 * 2 + 1, 0, 5))
    assert physical.edge_range[2] == pytest.approx(100 + 200 * u(4 * 2 + 3, 0, 5))
    cpu = sorted(10 + 40 * u(v * 22, 0, 1) for v in range(70))
    assert sorted([*physical.client_cpu, *physical.server_cpu]) == pytest.approx(cpu)
    types = [[u(4 * k + n, 0, 0) for n in range(4)] for k in range(100)]
    density = {100 + 400 * word[2]: sorted(0.01 + 4.99 * size for size in word[:2]) for word in types}
    nearest = min(density, key=lambda value: abs(value - physical.task_cycles[0, 0, 0]))
    low, high = density[nearest]
    assert physical.task_size[0, 0, 0] == pytest.approx(low + (high - low) * u(0 * J + 0, 0, 4))


def test_a_scenario_is_the_same_alone_and_in_a_pool(small):
    ones = Calibration.ones(small)
    pool = draw_pool(small, "arterial", 3, 7, ones)
    alone = draw(small, "arterial", 2, 7, ones)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(pool[2], name), getattr(alone, name))


def test_what_cannot_be_drawn_is_refused(small):
    ones = Calibration.ones(small)
    table = [
        (lambda: drawn(index=-1), "index=-1 must be an integer from 0 to 4294967295"),
        (lambda: drawn(index=2**32), "index=4294967296 must be an integer from 0 to 4294967295"),
        (lambda: drawn(seed=1.5), "seed=1.5 must be an integer from 0 to 18446744073709551615"),
        (lambda: drawn(seed=[1]), r"seed=\[1\] must be an integer from 0"),
        (lambda: draw({"vehicles": 20}), r"params={'vehicles': 20} must be a Params"),
        (lambda: drawn(traffic="motorway"), "traffic='motorway' must be one of 'arterial'"),
        (lambda: draw(small, traffic={"a": 1}), "traffic={'a': 1} must be one of 'arterial'"),
        (lambda: Calibration(score_v2v=np.full(10, 1e-31)), r"score_v2v is .* must lie in \[1e-30, 1e\+30\]"),
        (lambda: draw(small, "dense", calibration=5), "calibration=5 must be a Calibration"),
        (
            lambda: draw(small, "dense", calibration=Calibration()),
            r"calibration score_v2v has shape \(10,\), must have \(5,",
        ),
        (
            lambda: Calibration(drift=np.array([1.0, 1.0, 0.0, 1.0, 1.0])),
            r"calibration drift is .* must lie in \[1e-09, 1e\+30\]",
        ),
        (
            lambda: drawn("dense", **FEW, type_slots=200, arrival_low=500.0, arrival_high=500.0),
            r"arrival_high=500.0 with type_slots=200 draws \d+ tasks of a client in a slot, must be at most 65535",
        ),
        (lambda: calibration.calibrate(small, "dense", episodes=0), "episodes=0 must be an integer from 1"),
        (lambda: calibration.calibrate(small, []), r"traffic=\[\] must be the name of a map, or a list"),
        (lambda: calibration.calibrate(small, 5), "traffic=5 must be the name of a map, or a list"),
        (lambda: calibration.calibrate(small, [5]), r"traffic=\[5\] must be the name of a map, or a list"),
    ]
    for count in (0, -2, 2.5, "3"):
        said = f"count={count!r} must be an integer from 1"
        table.append((lambda count=count: draw_pool(small, "dense", count, calibration=ones), said))
    for call, said in table:
        with pytest.raises(ValueError, match=said):
            call()
    with pytest.raises(MemoryError, match=r"links of all slots=\d+ needs .* about .* would fit"):
        drawn("dense", vehicles=30_000, slots=100, types=1)


def test_slots_whose_pairs_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(checks, "available_memory", lambda device: 2**30)
    with pytest.raises(MemoryError, match=r"pairs of slots=100000000 needs 3.7 GiB on cpu, where 1.0"):
        drawn("dense", **FEW | {"slots": 10_000})


def test_other_seeds_and_indices_give_other_scenarios():
    first = drawn()
    for other in (drawn(index=1), drawn(seed=265)):
        for name in ("client_cpu", "edge_xy", "task_count", "task_size", "fading_v2v", "fading_v2i", "xy_client"):
            assert (getattr(first, name) != getattr(other, name)).any(), name


def test_large_numbers_of_vehicles_are_drawn():
    scenario = drawn(vehicles=500, edges=25, slots=12)
    assert scenario.fading_v2v.shape == (12, scenario.params.clients, scenario.params.servers)
    assert scenario.check() is scenario


# ---- switches that decide what is drawn


def test_tasks_of_a_type_slot_share_a_size_with_q25():
    """A client of one type slot: all its tasks of a slot are alike; without the switch none are."""
    sizes = {}
    for shared in (True, False):
        scenario = drawn(types=10, arrival_low=4.0, arrival_high=4.0, shared_slot_size=shared)
        assert scenario.params.type_slots == 1
        several = scenario.task_count >= 2
        sizes[shared] = scenario.task_size[several][:, :2]
    assert (sizes[True][:, 0] == sizes[True][:, 1]).all()
    assert (sizes[False][:, 0] != sizes[False][:, 1]).all()


def test_realised_means_are_means_over_the_episode_with_q24():
    scenario = drawn(hindsight_means=True)
    for i in (0, 21, 43):
        cycles, sizes, means = (
            getattr(scenario, f"task_{name}")[:, i].reshape(-1) for name in ("cycles", "size", "mean")
        )
        for density in np.unique(cycles[cycles > 0]):
            of_type = cycles == density
            np.testing.assert_allclose(means[of_type], sizes[of_type].mean(), rtol=1e-12)


def test_q24_takes_the_rate_of_the_first_type_slot_of_a_type():
    """With one type all tasks of a client have one rate; without the switch each has its own type slot's."""
    first = drawn(types=1, type_slots=3, hindsight_means=True).task_rate
    own = drawn(types=1, type_slots=3).task_rate
    assert len(np.unique(first[:, 0][first[:, 0] > 0])) == 1
    assert len(np.unique(own[:, 0][own[:, 0] > 0])) == 3


def test_edges_reach_as_far_as_vehicles_with_q6(physical):
    assert (drawn(edge_range_is_v2v=True).edge_range == 100).all()
    assert physical.edge_range.min() >= 100 and physical.edge_range.max() <= 300


def test_equal_indices_clash_with_q7():
    clash, free = drawn("dense", index_clash=True), drawn("dense")
    diagonal = np.eye(44, 26, dtype=bool)
    assert free.in_range.all()
    assert (clash.in_range == ~diagonal).all()


# ---- tables


def test_distances_gains_and_orders_of_a_hand_worked_place():
    client, there = np.array([[[0.0, 0.0], [3.0, 4.0]]]), np.array([[[3.0, 0.0], [0.0, 4.0]]])
    distance = links.distances(client, there)
    np.testing.assert_array_equal(distance, [[[3, 4], [4, 3]]])
    gain = links.gains(distance, np.array([[[3.0, 8.0], [8.0, 3.0]]]), 2.0)
    np.testing.assert_allclose(gain, [[[1, 4], [4, 1]]])
    np.testing.assert_array_equal(links.strongest_first(gain), [[[1, 0], [0, 1]]])


def test_equal_gains_keep_the_order_of_indices():
    gain = np.array([[[2.0], [5.0], [2.0], [5.0], [0.0]]])
    np.testing.assert_array_equal(links.strongest_first(gain)[0, 0], [1, 3, 0, 2, 4])


def test_first_and_kth_of_a_mask():
    mask = np.array([[0, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=bool)
    np.testing.assert_array_equal(links.first_true(mask), [1, -1, 0])
    np.testing.assert_array_equal(links.true_indices(mask, 3), [[1, 3, 4], [-1, -1, -1], [0, 1, 2]])
    np.testing.assert_array_equal(links.true_indices(mask, 6)[0], [1, 3, 4, -1, -1, -1])


def test_access_edge_is_the_lowest_that_covers(physical):
    for t, i in ((0, 0), (20, 11), (49, 43)):
        distance = np.hypot(*(physical.edge_xy - physical.xy_client[t, i]).T)
        covering = [e for e in range(9) if distance[e] <= physical.edge_range[e]]
        assert physical.access[t, i] == (covering[0] if covering else -1)
    assert (physical.access < 0).any() and (physical.access >= 0).any()


def test_servers_in_range_are_listed_in_the_order_of_indices():
    scenario = drawn("arterial")
    for t, i in ((0, 0), (20, 11), (49, 43)):
        distance = np.hypot(*(scenario.xy_server[t] - scenario.xy_client[t, i]).T)
        near = [j for j in range(26) if distance[j] <= 100]
        assert scenario.server_of[t, i].tolist() == (near + [-1] * 5)[:5]


def test_gains_are_in_order(physical):
    for gain, order in ((physical.gain_v2v, physical.order_v2v), (physical.gain_v2i, physical.order_v2i)):
        sorted_gain = np.take_along_axis(gain.swapaxes(1, 2), order, axis=2)
        assert (np.diff(sorted_gain, axis=2) <= 0).all()
        assert (np.sort(order, axis=2) == np.arange(44)).all()


def test_wires_are_straight(physical):
    assert physical.wire_edge[2, 5] == pytest.approx(math.dist(physical.edge_xy[2], physical.edge_xy[5]))
    assert (np.diag(physical.wire_edge) == 0).all()
    assert physical.wire_cloud[4] == pytest.approx(math.dist(physical.edge_xy[4], (1000, 1000)))
    assert physical.wire[2, 5] == physical.wire_edge[2, 5] and physical.wire[4, 9] == physical.wire_cloud[4]


def test_one_bit_on_a_wire_leaves_what_the_delay_allows(physical):
    """Of 100 Mbit/s over 200 m at 2e8 m/s; with Q8 clear all of it, and of the cloud's wire 1,000."""
    places = physical.edge_xy.copy()
    places[3] = places[1] + np.array([0.0, 200.0])
    moved = replace(physical, edge_xy=places)
    assert moved.wire_rate.shape == (9, 10) and set(moved.wire_rate[:, :9].flat) == {100.0}
    assert set(moved.wire_rate[:, 9]) == {1000.0}
    one_bit = replace(moved, params=replace(moved.params, one_bit_wire=True)).wire_rate
    assert one_bit[1, 3] == one_bit[3, 1] == pytest.approx(0.9900990099, rel=1e-9)
    assert one_bit[5, 9] == pytest.approx(1000 / (1 + 1e9 * moved.wire_cloud[5] / 2.25e8))


def test_distances_are_at_least_a_metre_unless_published(small):
    scenario = draw(small, "dense", calibration=Calibration.ones(small))
    close = replace(scenario, xy_server=scenario.xy_server * 0 + scenario.xy_client[:, :1])
    assert close.distance_v2v[:, 0].min() == 1.0
    assert np.isfinite(close.gain_v2v).all()
    as_published = replace(close, params=replace(small, jumping_tracks=True))
    with pytest.raises(ValueError, match=r"distance_v2v\[0, 0, 0\] is 0.0, must be positive"):
        as_published.check()


def test_inactive_vehicles_are_out_of_reach(small):
    scenario = draw(small, "dense", calibration=Calibration.ones(small))
    client, server = scenario.active_client.copy(), scenario.active_server.copy()
    client[3, 2], server[5, 1] = False, False
    off = replace(scenario, active_client=client, active_server=server)
    assert not off.in_range[3, 2].any() and not off.covered[3, 2].any() and off.access[3, 2] == -1
    assert not off.in_range[5, :, 1].any() and (off.gain_v2v[5, :, 1] == 0).all()
    assert (off.gain_v2v[3, 2] == 0).all() and (off.gain_v2i[3, 2] == 0).all()
    assert off.in_range.sum() == scenario.in_range.sum() - small.servers - small.clients


# ---- main components


def test_components_are_the_singular_vectors_of_centred_distances(physical):
    features = physical.distance_v2v.reshape(50, -1)
    centred = features - features.mean(axis=0)
    u, s, v = np.linalg.svd(centred, full_matrices=False)
    sign = np.sign(v[np.arange(10), np.abs(v[:10]).argmax(axis=1)])
    np.testing.assert_allclose(physical.pca_v2v, v[:10] * sign[:, None], atol=1e-9)
    np.testing.assert_allclose(physical.scores_v2v, (u * s)[:, :10] * sign, atol=1e-7)
    largest = np.abs(physical.pca_v2i).argmax(axis=1)
    assert (physical.pca_v2i[np.arange(10), largest] > 0).all()


def test_components_of_what_stands_still_are_zero():
    mean, component = links.main_components(np.tile(np.arange(6.0), (4, 1)), 3)
    np.testing.assert_array_equal(mean, np.arange(6))
    np.testing.assert_array_equal(component, np.zeros((3, 6)))


def test_components_and_scores_have_the_same_bits_on_any_number_of_threads():
    distance = np.random.default_rng(0).uniform(0, 2000, (50, 5000))  # OpenBLAS would share so many out
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, "blas"):
            mean, component = links.main_components(distance, 10)
            found.append((component, links.scores(distance, mean, component)))
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(2, 7), st.integers(2, 12))
def test_components_are_orthonormal(seed, slots, features):
    drawn_features = np.random.default_rng(seed).uniform(0, 100, (slots, features))
    count = min(slots - 1, features)  # the centring takes one
    _, component = links.main_components(drawn_features, count)
    np.testing.assert_allclose(component @ component.T, np.eye(count), atol=1e-6)


@settings(max_examples=20)
@given(
    st.integers(0, 10_000),
    st.sampled_from(["arterial", "city", "dense", "sparse"]),
    st.integers(4, 30),
    st.integers(1, 12),
)
def test_any_drawn_scenario_is_valid(seed, traffic, vehicles, tasks):
    params = Params(vehicles=vehicles, clients=vehicles - 2, tasks=tasks, slots=6, edges=3, components=4)
    scenario = draw(params, traffic, 0, seed, Calibration.ones(params))
    assert scenario.check() is scenario
    seen = np.minimum(scenario.task_count, params.tasks)
    assert ((scenario.task_size > 0).sum(axis=2) == seen).all()
    assert ((scenario.task_size > 0) == (scenario.task_deadline > 0)).all()


def test_a_scenario_is_shown_in_a_line():
    shown = repr(draw(Params(vehicles=20, clients=13, servers=7, edges=4, slots=8, components=3), "dense", index=2))
    assert shown == "Scenario('dense-2', 13 clients, 7 servers, 4 edges, 8 slots)"
