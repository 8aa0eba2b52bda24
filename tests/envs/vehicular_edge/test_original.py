"""The original on a slot worked out by hand under both presets, and what holds of every episode."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.envs.noise import philox
from lockstep.envs.vehicular_edge.original import VehicularEdge, get_state, set_state
from lockstep.envs.vehicular_edge.params import PRESETS, SWITCHES, Params, state_shapes
from lockstep.envs.vehicular_edge.scenario import Calibration, draw
from tests.envs.vehicular_edge.worlds import (
    BLOCKS,
    CLIENTS,
    EDGES,
    FAR,
    ORIGINAL,
    PLACES,
    TASKS,
    aim,
    shares,
    small,
    world,
)

AIMS = [["local", "server0", "edge0", "edge1"], ["edge0", "cloud", "server0"], ["edge0", "local"]]
NOISE = 1e-12
V2V = 20 * math.log2(1 + 50.0**-3 * 0.25 / NOISE)  # Mbit/s of client 0 at server 1
SECOND = math.log2(1 + 60.0**-3 * 0.75 / NOISE)  # of client 1 at edge 0, on 1 MHz; client 0 is nearer, so decoded first


def first(interference_unit):
    return math.log2(1 + 40.0**-3 * 0.75 / (NOISE + 60.0**-3 * 0.75 * interference_unit))


def two_slots(**options):
    """Records of slots 0 and 1, and the environment after them."""
    scenario = world(TASKS, **PLACES, client_cpu=1.0, bandwidth_v2i_mhz=1.0, **options)
    env, records = VehicularEdge(scenario), []
    env.reset()
    for _ in range(2):
        env.step_decoded(aim(env.params, *AIMS), shares(env.params, **BLOCKS))
        records.append(env.record)
    return env, *records


def physical():
    calibration = Calibration(cost_i2i=360.0, cost_i2c=1000.0, load=100.0, score_v2v=np.ones(1), score_v2i=np.ones(1))
    return two_slots(calibration=calibration)


def original():
    running = {
        "cost_power_v2v": 1000.0, "cost_power_v2i": 1000.0, "cost_lc": 1.0, "cost_vc": [0.0, 20.0], "cost_ec": 100.0,
        "cost_i2i": [360.0, 0.0], "cost_i2c": [1000.0, 0.0], "cost_cc": 1000.0,
        "drift_max_lc": [12.0, 168.0, 100.0], "drift_min_vc": -440.32,
    }  # fmt: skip
    return two_slots(running=running, **ORIGINAL)


def close(expected):
    return pytest.approx(np.array(expected), rel=1e-12, abs=1e-12)


# ---- the slot by hand, physical


def test_physical_admission_by_hand():
    _, record, _ = physical()
    assert record["target"].tolist() == [[0, 1, 3, 4], [3, 5, 0, 0], [3, 0, 0, 0]]  # no server in range: local
    assert record["admitted"].tolist() == [[True] * 4, [True] * 3 + [False], [False, True, False, False]]
    assert record["dropped"] == (0, 0, 1) and record["success"] == pytest.approx(8 / 9)
    assert record["jain"] == pytest.approx((1 + 1 + 0.5) ** 2 / (3 * 2.25))


def test_physical_rates_by_hand():
    _, record, _ = physical()
    assert record["rate_v2v"] == close([[0, 1e6 * V2V], [0, 0], [0, 0]])
    assert record["rate_v2i"] == close([[1e6 * first(1), 0], [1e6 * SECOND, 0], [0, 0]])


def test_physical_flows_of_the_first_slot_by_hand():
    _, record, _ = physical()
    assert record["in"]["lc"] == close([8, 24, 16])
    assert record["out"]["lc"] == close([2.5 + 5 / 3, 5 + 5 / 3, 2.5 + 5 / 3])  # half of 1 GHz at 300 cycles/bit
    assert record["in"]["v2v"] == close([0, 16]) and record["out"]["v2v"] == close([0, V2V])
    assert record["in"]["vc"] == close([0, 0]) and record["out"]["vc"] == close([200 / 3, 30 + 8 / 0.3])
    assert record["in"]["v2i"] == close([[24, 4, 8], [0, 0, 0]]) and record["out"]["v2i"] == close(np.zeros((2, 3)))
    assert record["out"]["i2i"] == close([[0, 100], [100, 0]]) and record["out"]["i2c"] == close([1000, 1000])
    assert record["out"]["ec"] == close([500 + 125 + 250 / 3, 500 / 3 + 500 / 3])
    assert record["out"]["cc"] == close([500 + 2500])
    assert all((record["dep"][name] == 0).all() for name in record["dep"])


def test_physical_flows_of_the_second_slot_by_hand():
    env, _, record = physical()
    split = (first(1) + SECOND) / 36  # 24, 4 and 8 Mbit wait at edge 0, for edge 0, edge 1 and the cloud
    assert 36 * split < 36
    assert record["out"]["v2i"] == close([[24 * split, 4 * split, 8 * split], [0, 0, 0]])
    assert record["in"]["i2i"] == close([[0, 4 * split], [0, 0]]) and record["in"]["i2c"] == close([8 * split, 0])
    assert record["in"]["ec"] == close([24 * split, 0]) and record["in"]["cc"] == close([0])
    assert record["in"]["vc"] == close([0, 16]) and record["dep"]["lc"] == close([25 / 6, 20 / 3, 25 / 6])
    assert record["out"]["ec"][0] == close(250 + 250 + 250 / 3)  # client 1 comes first in slot 1
    state = get_state(env)
    assert state["lc"] == close([16 - 25 / 6, 48 - 20 / 3, 32 - 25 / 6]) and state["vc"] == close([0, 16])
    assert state["v2i"] == close([[48 - 24 * split, 8 - 4 * split, 16 - 8 * split], [0, 0, 0]])


def test_physical_delay_queue_by_hand():
    env, start, record = physical()
    assert start["delay"]["in"] == close([0, 0, 0])
    assert record["delay"]["in"] == close([(8 + 16 + 36 + 36) / 4, (36 + 36 + 24) / 3, (0 + 16) / 2])
    assert record["delay"]["out"] == close([0.7 * 11, 1.7 / 3 * 8, 8])
    assert get_state(env)["delay"] == close([24 - 7.7, 32 - 1.7 / 3 * 8, 0])


def test_physical_cost_drift_and_reward_by_hand():
    _, start, record = physical()
    wires = (180 / 360 + 250 / 1000) / 6
    assert start["costs"]["i2i"] == close([180, 0]) and start["costs"]["i2c"] == close([250, 0])
    assert start["cost"] == close(((0.25 + 0.75 + 0.75) / 9 + wires) / 4)  # no CPU has anything to do yet
    assert record["cost"] == close((((0.25 + 0.75 + 0.75) + 3.0) / 9 + wires) / 4)  # those of the clients have
    first_L = 0.7 * (8 + 24 + 16) + 0.9 * (16 + 36)
    assert start["drift"] == close(1.02 * first_L / 100)
    split = (first(1) + SECOND) / 36
    computing = (16 + 48 + 32) - (25 / 6 + 20 / 3 + 25 / 6) + 16 + 24 * split
    L = 0.7 * computing + 0.9 * (16 + 72 - 36 * split) + 0.8 * 12 * split
    assert record["drift"] == close((1.02 * L - first_L) / 100)
    assert record["reward"] == close(4 / 9 - 0.35 * record["cost"] - 0.5 * record["drift"])
    assert start["energy"] == close(1.75) and record["energy"] == close(1.75 + 3.0)


def test_a_cpu_that_empties_its_queue_is_paid_for_the_part_it_used():
    """8 Mbit at 200 cycles/bit are 1.6 Gcycles, whatever its share can do; both presets' paid shares stand beside."""
    for idle, paid in ((False, [0.0, 1.6, 1.6]), (True, [30.0, 30.0, 30.0])):
        env = VehicularEdge(world([[(1.0, 200.0, 1.0, 1.0)]], idle_power_paid=idle))
        env.reset()
        for expected in paid:
            env.step_decoded(aim(env.params), shares(env.params, client=[1, 0, 0]))
            assert env.record["costs"]["lc"] == close([expected])


# ---- the same slot by hand, original

UPLINK = 8 * (0.6 + 0.45 + 2 * 0.7 + 0.5)  # Mbit offered to edge 0
I2I = 100 / (1 + 100e6 * 360 / 2e8)  # Mbit/s of one bit per delay
I2C = 1000 / (1 + 1000e6 * 250 / 2.25e8)


def test_original_flows_by_hand():
    _, record, _ = original()
    sent, radio = first(1000), first(1000) + SECOND
    assert record["in"]["lc"] == close([4, 12, 16]) and record["out"]["lc"] == close([2.5, 5, 2.5])
    assert record["in"]["v2v"] == close([0, 12.8]) and record["out"]["v2v"] == close([0, V2V])
    assert record["in"]["vc"] == close([0, 12.8]) and record["out"]["vc"] == close([0, 30])
    assert radio < UPLINK
    assert record["in"]["v2i"] == close([UPLINK, 0]) and record["out"]["v2i"] == close([radio, 0])
    assert record["in"]["i2i"] == close([0, sent]) and record["out"]["i2i"] == close([0, I2I])
    assert record["in"]["ec"] == close([radio, sent]) and record["out"]["ec"] == close([625, 500 / 3])
    assert record["in"]["i2c"] == close([SECOND]) and record["out"]["i2c"] == close([I2C])
    assert record["in"]["cc"] == close([I2C]) and record["out"]["cc"] == close([500])


def test_original_delay_queue_by_hand():
    _, _, record = original()
    sent, edge = first(1000), UPLINK + first(1000) + SECOND
    expected = [(4 + 25.6 + edge + 2 * sent) / 4, (edge + (SECOND + I2C) + 12) / 3, (edge + 16) / 2]
    assert record["delay"]["in"] == close(expected)
    assert record["delay"]["out"] == close([0.7 * 11, 1.7 / 3 * 8, 8])


def test_original_cost_drift_and_reward_by_hand():
    env, _, record = original()
    edges = (0.75 + 0.5) + (0.5 + 1) + (0.25 + 1)  # nothing was ever paid at edge 1: it reads 1
    cost = ((3 * 0.25 + 3 * 0.75 + 3 * 0.5) / 9 + (1 + 0.6) / 2 + edges / 6 + 0.25) / 4
    assert record["cost"] == close(cost)
    sent, radio = first(1000), first(1000) + SECOND
    delay, lc, vc = 1, (6 / 12 + 84 / 168 + 1) / 3, (0 + 220.16 / 440.32) / 2
    ec, cc = ((625 - radio) / 625 + (500 / 3 - sent) / (500 / 3)) / 2, (500 - I2C) / 500  # least in slot 0
    phi = 0.2 * (delay + lc + vc + ec + cc)
    assert record["drift"] == close(phi)
    assert record["reward"] == close(4 / 9 + 0.5 * (-0.7 * math.log(cost) - 0.3 * math.log(phi)))
    state = get_state(env)
    assert state["drift_max_lc"] == close([12, 168, 216]) and state["drift_min_lc"] == close([-10, -60, -40])
    assert state["max_lc"] == close([5.5, 19, 29.5]) and state["max_i2c"] == close([2 * SECOND - I2C])
    assert all(state[name] == close(np.zeros_like(state[name])) for name in ("cpu_lc", "cpu_vc", "cpu_ec", "cpu_cc"))


def test_the_virtual_queue_of_the_clouds_cpu_always_takes_the_first_weight():
    _, record, _ = original()
    empty = VehicularEdge(world([[]], cap_cloud=2, **ORIGINAL))
    empty.reset()
    empty.step_decoded(aim(empty.params), shares(empty.params, cloud=[3, 1]))
    assert empty.episode.virtual["cpu_cc"][0].arrived == 750.0 and record["costs"]["cc"] == close([250])


# ---- what that slot does not reach


def numbered(env, t=1):
    """The environment at slot t with another backlog in every queue; the state."""
    state, last = {}, 0
    for name, shape in state_shapes(env.params).items():
        count = math.prod(shape)
        state[name] = np.arange(last + 1, last + 1 + count, dtype=float).reshape(shape)
        last += count
    if not env.params.slot_tandem:
        np.fill_diagonal(state["i2i"], 0.0)
    set_state(env, state, t)
    return state


def test_backlog_on_the_way_of_every_task_with_routes():
    env = VehicularEdge(world(TASKS, **PLACES))
    Q = numbered(env)
    env.step_decoded(aim(env.params, *AIMS), shares(env.params, **BLOCKS))
    up, lc = Q["v2i"][0].sum(), Q["lc"]
    near, far, cloud = up + Q["ec"][0], up + Q["i2i"][0, 1] + Q["ec"][1], up + Q["i2c"][0] + Q["cc"][0]
    server, unreachable = Q["v2v"][1] + Q["vc"][1], Q["ec"][0]  # without an access edge only the edge's own backlog
    expected = [(lc[0] + server + near + far) / 4, (near + cloud + lc[1]) / 3, (unreachable + lc[2]) / 2]
    assert env.record["delay"]["in"] == close(expected)


@pytest.mark.parametrize("longer", ["v2i", "i2i"])
def test_backlog_on_the_way_of_every_task_in_the_original(longer):
    env = VehicularEdge(world(TASKS, **PLACES, **ORIGINAL))
    Q = numbered(env)
    Q[longer] += 1000.0
    set_state(env, Q, 1)
    env.step_decoded(aim(env.params, *AIMS), shares(env.params, **BLOCKS))
    lc, edge = Q["lc"], Q[longer] + Q["ec"]
    server, cloud = Q["v2v"][1] + Q["vc"][1], Q["i2c"][0] + Q["cc"][0]
    expected = [(lc[0] + server + edge.sum()) / 4, (edge[0] + cloud + lc[1]) / 3, (edge[0] + lc[2]) / 2]
    assert env.record["delay"]["in"] == close(expected)


def test_two_tasks_of_a_client_fill_a_wire_once_and_empty_it_twice():
    scenario = world([TASKS[0]], clients=CLIENTS[:1], edges=EDGES, cloud=(40.0, 250.0), **ORIGINAL)
    env = VehicularEdge(scenario)
    env.reset()
    env.step_decoded(aim(env.params, ["edge1", "edge1", "cloud", "cloud"]), shares(env.params, **BLOCKS))
    record, rate = env.record, 20 * math.log2(1 + 40.0**-3 * 0.75 / NOISE)
    assert record["in"]["i2i"] == close([0, rate]) and record["out"]["i2i"] == close([0, 2 * I2I])
    assert record["in"]["i2c"] == close([rate]) and record["out"]["i2c"] == close([2 * I2C])


def test_an_access_edge_pays_for_what_was_admitted_even_if_it_sent_more():
    switches = {"all_covering_pay": False, "rejected_transmit": True}
    scenario = world(
        [TASKS[0]], clients=CLIENTS[:1], edges=EDGES, cloud=(40.0, 250.0), cap_edge=1, cap_cloud=1, **switches
    )
    env = VehicularEdge(scenario)
    env.reset()
    env.step_decoded(aim(env.params, ["edge1", "edge1", "cloud", "cloud"]), np.ones(env.params.share_length))
    assert env.record["costs"]["i2i"] == close([1.0 * 360, 0]) and env.record["costs"]["i2c"] == close([1.0 * 250, 0])


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("running", [False, True])
def test_drift_of_every_family(running, pooled):
    calibration = Calibration(load=50.0, score_v2v=np.ones(1), score_v2i=np.ones(1))
    switches = {"running_scales": running, "slot_tandem": pooled}
    env = VehicularEdge(world(TASKS, **PLACES, calibration=calibration, **switches))
    before = numbered(env)
    env.step_decoded(aim(env.params, *AIMS), shares(env.params, **BLOCKS))
    after = get_state(env)
    L, next_L = (
        0.9 * (Q["v2v"].sum() + Q["v2i"].sum())
        + 0.8 * (Q["i2i"].sum() + Q["i2c"].sum())
        + 0.7 * sum(Q[name].sum() for name in ("lc", "vc", "ec", "cc"))
        for Q in (before, after)
    )
    assert env.record["drift"] == close((next_L - L + next_L / 50) / 50)
    assert not any(name.startswith("drift_") for name in after)  # bounds of the published form alone


def test_unsigned_drift_on_frozen_scales_is_clipped_to_one():
    scales = np.array([1e-3, 200.0, 1e6, 1e6, 1e6])
    calibration = Calibration(drift=scales, score_v2v=np.ones(1), score_v2i=np.ones(1))
    switches = ORIGINAL | {"running_scales": False}
    env = VehicularEdge(world(TASKS, **PLACES, calibration=calibration, client_cpu=1.0, **switches))
    Q = numbered(env)
    env.step_decoded(aim(env.params, *AIMS), shares(env.params, **BLOCKS))
    record = env.record
    phi = {name: np.abs((Q[name] - record["out"][name]) * record["in"][name]) for name in ("lc", "vc", "ec", "cc")}
    assert phi["lc"].min() < 200.0 and max(phi[name].max() for name in ("vc", "ec", "cc")) < 1e6
    rest = sum(phi[name].mean() for name in ("vc", "ec", "cc")) / 1e6
    assert record["drift"] == close(0.2 * (1.0 + np.minimum(phi["lc"] / 200.0, 1.0).mean() + rest))


@pytest.mark.parametrize("unsigned", [False, True])
def test_penalty_weight_multiplies_the_cost(unsigned):
    rewards = []
    for weight in (1.0, 3.0):
        env = VehicularEdge(world(TASKS, **PLACES, penalty_weight=weight, unsigned_drift=unsigned))
        env.reset()
        env.step_decoded(aim(env.params, *AIMS), shares(env.params, **BLOCKS))
        rewards.append(env.record["reward"])
    lost = 0.35 * math.log(3.0) if unsigned else 0.35 * 2.0 * env.record["cost"]
    assert rewards[0] - rewards[1] == close(lost)


# ---- the observation


def test_observation_has_its_parts_in_order():
    calibration = Calibration(
        backlog=[2.0, 4.0, 5.0, 3.0, 7.0, 11.0, 13.0, 17.0], size=4.0, work=8e9, score_v2v=[10.0], score_v2i=[20.0]
    )
    scenario = world(TASKS, **PLACES, calibration=calibration)
    env = VehicularEdge(scenario)
    env.reset()
    rng, p = np.random.default_rng(0), env.params
    state = {name: rng.random(shape) for name, shape in state_shapes(p).items()}
    set_state(env, state, 1)
    seen = env.observe()
    assert seen.shape == (p.observation_length,)
    tasks = seen[:24].reshape(3, 4, 2)
    assert tasks[0].ravel() == close([0.25, 0.2, 0.5, 0.8, 0.25, 0.1, 0.125, 0.15])
    assert (tasks[1, 3] == 0).all() and (tasks[2, 2:] == 0).all()
    assert seen[24:27] == close(state["lc"] / 2)
    assert seen[27] == close(math.dist(CLIENTS[0], FAR) / 10)  # the only component is the first link
    assert seen[28:32] == close([state["v2v"][0] / 4, state["vc"][0] / 5, state["v2v"][1] / 4, state["vc"][1] / 5])
    assert seen[32] == close(40 / 20)
    edges = np.stack([state["v2i"].sum(1) / 3, state["i2i"].sum(0) / 7, state["ec"] / 11], axis=1)
    assert seen[33:39] == close(edges.ravel())
    assert seen[39:] == close([state["i2c"].sum() / 13, state["cc"][0] / 17])


def test_original_observation_is_relative_to_the_largest_so_far():
    env, *_ = original()
    seen = env.observe()
    assert seen[:2] == close([1 / 3, 200 / 800])  # of 3 MB, of 2 MB at 400 cycles/bit
    assert seen[24:27] == close([1, 1, 1])
    assert seen[28] == 1.0  # server 0 never had a backlog
    env.reset()
    assert env.observe()[24:27] == close([0, 0, 0]) and env.observe()[28] == 1.0


def test_final_observation_has_no_tasks_and_the_distances_of_the_last_slot():
    scenario = small(index=1)
    env = VehicularEdge(scenario)
    env.reset()
    p = env.params
    for _ in range(p.slots):
        seen, *_ = env.step_decoded(np.zeros((p.clients, p.tasks), int), np.ones(p.share_length))
    tasks = 2 * p.tasks * p.clients
    assert (seen["offloading"][:tasks] == 0).all()
    lc = get_state(env)["lc"] / scenario.calibration.backlog[0]
    assert seen["offloading"][tasks : tasks + p.clients] == pytest.approx(lc, rel=1e-6)
    scores = seen["allocation"][tasks + p.clients : tasks + p.clients + p.components]
    assert scores == pytest.approx(scenario.scores_v2v[-1] / scenario.calibration.score_v2v, rel=1e-5)


# ---- episodes


def test_real_queues_rest_in_the_last_slot_of_the_original():
    env, *_ = original()
    before = get_state(env)
    env.step_decoded(aim(env.params, *AIMS), shares(env.params, **BLOCKS))
    after, record = get_state(env), env.record
    assert all((after[name] == before[name]).all() for name in record["in"])
    assert all((record[way][name] == 0).all() for way in ("in", "out", "dep") for name in record["in"])
    assert (after["delay"] != before["delay"]).all() and record["rate_v2i"].max() > 0


def random_play(env, seed, slots=99):
    rng, seen = np.random.default_rng(seed), []
    while env.agents and len(seen) < slots:
        actions = {agent: rng.random(env.params.action_length, dtype=np.float32) for agent in env.agents}
        observation, reward, *_ = env.step(actions)
        seen.append((reward["offloading"], env.observe(), observation["allocation"], get_state(env)))
    return seen


def same(one, other):
    assert len(one) == len(other) > 0
    for (reward, seen, sent, state), (reward_, seen_, sent_, state_) in zip(one, other, strict=True):
        assert reward == reward_ and (seen == seen_).all() and (sent == sent_).all()
        assert all((state[name] == state_[name]).all() for name in state)


@settings(max_examples=20, deadline=None)
@given(st.sets(st.sampled_from(SWITCHES)), st.sampled_from(["dense", "arterial"]), st.integers(0, 3))
def test_indexed_form_changes_no_bit_under_any_mixture_of_switches(switches, traffic, index):
    scenario = small(traffic=traffic, index=index, **dict.fromkeys(switches, True))
    found = []
    for indexed in (False, True):
        env = VehicularEdge(scenario, indexed=indexed)
        env.reset()
        found.append(random_play(env, seed=index))
    same(*found)


@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize("slots", [0, 3, 6])
def test_an_episode_continues_from_its_state(preset, slots):
    scenario = small(preset)
    env, other = VehicularEdge(scenario), VehicularEdge(scenario)
    for one in (env, other):
        one.reset()
    random_play(env, seed=1, slots=slots)
    set_state(other, get_state(env), env.t)
    assert other.agents == env.agents and (other.observe() == env.observe()).all()
    if env.agents:
        same(random_play(env, seed=2), random_play(other, seed=2))


def test_running_scales_outlive_an_episode_and_a_seed_puts_the_first_ones_back():
    env = VehicularEdge(small("original"))
    env.reset(seed=3)
    start = random_play(env, seed=1)
    env.reset()
    again = random_play(env, seed=1)
    assert start[0][0] != again[0][0]
    env.reset(seed=3)
    same(start, random_play(env, seed=1))


def test_an_episode_takes_the_scenario_of_the_pool_that_philox_names():
    pool = [small(index=index) for index in range(5)]
    env = VehicularEdge(pool)
    env.reset(seed=7)
    for episode in range(6):
        assert env.episode.scenario is pool[int(philox((0, episode, 0, 0), 7)[0]) % 5]
        env.reset()
    frozen = VehicularEdge(pool, params=Params(**{**vars(pool[0].params), "frozen_scenario": True}))
    frozen.reset(seed=7)
    frozen.reset()
    assert frozen.episode.scenario is frozen.scenarios[0]


def expected_excess(count, probability, cap):
    """E[max(X - cap, 0)] of a binomial number X."""
    return sum(
        (k - cap) * math.comb(count, k) * probability**k * (1 - probability) ** (count - k)
        for k in range(cap + 1, count + 1)
    )


def test_random_actions_in_the_original_are_rejected_as_often_as_binomial_numbers_pass_the_caps():
    scenario = draw(Params(**PRESETS["original"]), "dense", calibration=Calibration())
    env = VehicularEdge(scenario, indexed=True)
    env.reset()
    random_play(env, seed=5)  # ten episodes warm up in the published code; one raises what matters here
    env.reset()
    rng, p, records = np.random.default_rng(6), env.params, []
    while env.agents:
        env.step({agent: rng.random(p.action_length, dtype=np.float32) for agent in env.agents})
        records.append(dict(env.episode.outcome))
    tried = np.minimum(scenario.task_count, p.tasks)
    chance = 1 / (p.options - 1)  # every option but the cloud, which needs exactly 1
    excess = 0.0
    for t in range(p.slots):
        assert (scenario.server_of[t] >= 0).all() and (scenario.access[t] >= 0).all()
        for server in range(p.servers):
            reach = (scenario.server_of[t] == server).any(axis=1)
            excess += expected_excess(int(tried[t, reach].sum()), chance, p.cap_server)
        excess += sum(expected_excess(int(n), chance, p.cap_local) for n in tried[t])
        excess += p.edges * expected_excess(int(tried[t].sum()), chance, p.cap_edge)
    expected = 1 - excess / tried.sum()
    found = {name: np.mean([record[name] for record in records]) for name in ("success", "cost", "drift", "reward")}
    assert found["success"] == pytest.approx(expected, abs=0.01)
    assert 0.05 < found["drift"] < 0.3 and 0.6 < found["cost"] < 0.9
    assert found["reward"] == pytest.approx(
        0.5 * found["success"] - 0.35 * math.log(found["cost"]) - 0.15 * math.log(found["drift"]), abs=0.05
    )
