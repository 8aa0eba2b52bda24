"""The original against closed forms, identities and conservation laws."""

import dataclasses
import math
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.envs.vehicular_edge import delays
from lockstep.envs.vehicular_edge.original import VehicularEdge, get_state
from lockstep.envs.vehicular_edge.original.nodes import Queue, VirtualQueue
from lockstep.envs.vehicular_edge.original.radio import User, sic_rates, wire_rate
from lockstep.envs.vehicular_edge.scenario import Calibration
from tests.envs.vehicular_edge.worlds import ORIGINAL, aim, shares, small, world

BANDWIDTH, NOISE = 20.0, 1e-12  # MHz, W
TASK = (1.0, 200.0, 0.8, 1.0)  # MB, cycles/bit, tasks/s, mean MB
FAR_SERVER = (9000.0, 0.0)
SENDERS = st.lists(st.tuples(st.floats(1e-9, 1e-3), st.floats(0.0, 1.0)), min_size=1, max_size=12)


def rates(distances, switches):
    """bit/s at a server in the origin, of clients that far away, 0.5 W each, as the environment finds them."""
    clients, servers = [(metres, 0.0) for metres in distances], [(0.0, 0.0), FAR_SERVER]
    scenario = world([[TASK]] * len(distances), clients, servers, **switches)
    env = VehicularEdge(scenario)
    env.reset()
    target = aim(scenario.params, *[["server0"]] * len(distances))
    env.step_decoded(target, shares(scenario.params))
    return env.record["rate_v2v"][:, 0]


# ---- radio and wire


@pytest.mark.parametrize(
    ("rate_mbps", "speed", "metres", "bit_per_s"),
    [(100, 2e8, 200, 990_099.0099), (1000, 2.25e8, 250, 899_190.7283), (100, 2e8, 0, 1e8), (1000, 2.25e8, 0, 1e9)],
)
def test_one_bit_per_propagation_delay_leaves_so_much_of_a_wire(rate_mbps, speed, metres, bit_per_s):
    assert 1e6 * wire_rate(rate_mbps, speed, metres, one_bit=True) == pytest.approx(bit_per_s, rel=1e-10)
    assert wire_rate(rate_mbps, speed, metres, one_bit=False) == rate_mbps


# Q7 keeps client k from server k, so the original's first client is one that sends nothing: it stands out of range.
@pytest.mark.parametrize(
    ("preset", "distances", "bit_per_s"),
    [
        ({}, [50], [438_631_378.600]),
        (ORIGINAL, [50], [438_631_378.600]),
        ({}, [100], [378_631_429.094]),
        (ORIGINAL, [100], [378_631_429.094]),
        ({}, [50, 100], [63_398_448.733, 378_631_429.094]),
        (ORIGINAL, [50, 100], [229_912.776, 378_631_429.094]),
        ({}, [50, 100, 80], [37_820_549.923, 378_631_429.094, 31_244_810.317]),
        (ORIGINAL, [50, 100, 80], [78_059.381, 378_631_429.094, 56_300.312]),
    ],
)
def test_rates_of_users_at_one_server(preset, distances, bit_per_s):
    found = rates([FAR_SERVER[0] / 2, *distances], preset)
    assert found[0] == 0.0
    assert found[1:] == pytest.approx(bit_per_s, abs=1e-3)


@given(SENDERS)
def test_cancelling_users_one_by_one_reaches_the_capacity_of_their_sum(senders):
    users = [User(i, gain, watt) for i, (gain, watt) in enumerate(senders)]
    received = sum(gain * watt for gain, watt in senders)
    capacity = BANDWIDTH * math.log2(1.0 + received / NOISE)
    found = sic_rates(users, BANDWIDTH, NOISE, in_mw=False, silent_ties=False)
    assert sum(found.values()) == pytest.approx(capacity, rel=1e-9)


@given(SENDERS, st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_the_order_of_the_users_changes_no_rate(senders, random, in_mw, silent_ties):
    users = [User(i, gain, watt) for i, (gain, watt) in enumerate(senders)]
    found = sic_rates(users, BANDWIDTH, NOISE, in_mw, silent_ties)
    random.shuffle(users)
    assert sic_rates(users, BANDWIDTH, NOISE, in_mw, silent_ties) == pytest.approx(found, rel=1e-12)


@given(SENDERS, st.floats(1.0, 10.0))
def test_more_own_power_never_lowers_the_own_rate(senders, factor):
    users = [User(i, gain, watt) for i, (gain, watt) in enumerate(senders)]
    for in_mw in (False, True):
        before = sic_rates(users, BANDWIDTH, NOISE, in_mw, silent_ties=False)
        louder = [user._replace(watt=user.watt * factor) if user.index == 0 else user for user in users]
        after = sic_rates(louder, BANDWIDTH, NOISE, in_mw, silent_ties=False)
        assert after[0] >= before[0]
        assert all(after[i] <= before[i] * (1 + 1e-12) for i in range(1, len(users)))


def test_a_second_task_at_the_same_server_changes_no_rate():
    found = []
    for repeated in (1, 2):
        scenario = world([[TASK, TASK], [TASK]], clients=[(50.0, 0.0), (100.0, 0.0)], servers=[(0.0, 0.0)])
        env = VehicularEdge(scenario)
        env.reset()
        env.step_decoded(aim(scenario.params, ["server0"] * repeated, ["server0"]), shares(scenario.params))
        found.append(env.record["rate_v2v"])
    assert (found[0] == found[1]).all() and found[0].min() > 0.0


# ---- queues


@pytest.mark.parametrize(
    ("switches", "arrived_mbit", "served_mbit"),
    [
        ({"rate_weighted_bits": True, "empty_places_idle": True}, 19.2, 97.5),
        ({"rate_weighted_bits": False, "empty_places_idle": True}, 24.0, 97.5),
        ({"rate_weighted_bits": True, "empty_places_idle": False}, 19.2, 117.5),
    ],
)
def test_local_queue_of_30_ghz_with_two_tasks_and_three_shares(switches, arrived_mbit, served_mbit):
    scenario = world(
        [[(1.0, 200.0, 0.8, 1.0), (2.0, 400.0, 0.8, 1.0)]], client_cpu=30.0, mean_density=300.0, **switches
    )
    env = VehicularEdge(scenario)
    env.reset()
    env.step_decoded(aim(scenario.params), shares(scenario.params, client=[0.5, 0.3, 0.2]))
    assert env.record["in"]["lc"] == pytest.approx([arrived_mbit], rel=1e-14)
    assert env.record["out"]["lc"] == pytest.approx([served_mbit], rel=1e-14)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=20), st.booleans())
def test_little_bit_by_bit_the_backlogs_add_up_to_the_delays(slots, is_virtual):
    queue, line, waited, backlogs = (VirtualQueue if is_virtual else Queue)(), deque(), 0, 0
    drained = slots + [(0, 6)] * (len(slots) + 1)
    for t, (arrived, capacity) in enumerate(drained):
        if is_virtual:
            line.extend([t] * arrived)
        waited += sum(t - line.popleft() for _ in range(min(capacity, len(line))))
        if not is_virtual:
            line.extend([t] * arrived)
        queue.flow(arrived, capacity)
        backlogs += queue.backlog
        assert queue.backlog == len(line)
    assert backlogs == waited


# ---- conservation, bounds, monotonicity


def play(env, rng, slots=None):
    """Random slots; the records."""
    records = []
    while env.agents and len(records) != slots:
        env.step({agent: rng.random(env.params.action_length, dtype=np.float32) for agent in env.agents})
        records.append(env.record)
    return records


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 99), st.sampled_from(["dense", "sparse", "city"]), st.integers(0, 99))
def test_what_arrives_is_served_or_waits_on_every_route(index, traffic, seed):
    scenario = small(traffic=traffic, index=index)
    env = VehicularEdge(scenario)
    env.reset()
    Ne, records = env.params.edges, play(env, np.random.default_rng(seed))
    arrived, departed = (
        {name: sum(record[way][name] for record in records) for name in records[0][way]} for way in ("in", "dep")
    )
    waits = get_state(env)
    up, wire = waits["v2i"], waits["i2i"].sum()
    routes = [  # what came in, what was served in the end, what waits on the way
        (arrived["lc"], departed["lc"], waits["lc"]),
        (arrived["v2v"], departed["vc"], waits["v2v"] + waits["vc"]),
        (arrived["v2i"][:, :Ne].sum(), departed["ec"].sum(), up[:, :Ne].sum() + wire + waits["ec"].sum()),
        (arrived["v2i"][:, Ne].sum(), departed["cc"].sum(), up[:, Ne].sum() + waits["i2c"].sum() + waits["cc"].sum()),
    ]
    for came, served, queued in routes:
        assert came == pytest.approx(served + queued, abs=1e-9)
    admitted = sum((scenario.task_size[t] * record["admitted"]).sum() for t, record in enumerate(records))
    offered = sum(arrived[name].sum() for name in ("lc", "v2v", "v2i"))
    assert offered == pytest.approx(8.0 * admitted, abs=1e-9)
    tasks = sum(record["tasks_admitted"] + sum(record["dropped"]) for record in records)
    assert tasks == scenario.task_count.sum()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 99), st.sampled_from(["physical", "original"]), st.integers(0, 99))
def test_backlogs_are_never_negative_and_ratios_lie_between_0_and_1(index, preset, seed):
    env = VehicularEdge(small(preset, index=index))
    rng = np.random.default_rng(seed)
    for _ in range(2):
        env.reset()
        for record in play(env, rng):
            queues = [*env.episode.queues.values(), *env.episode.virtual.values()]
            assert min(queue.backlog for family in queues for queue in family) >= 0.0
            assert 0.0 <= record["success"] <= 1.0 and 0.0 < record["jain"] <= 1.0
            if preset == "original":
                assert 0.0 <= record["cost"] <= 1.0 and 0.0 <= record["drift"] <= 1.0
            else:
                assert all(record["costs"][kind].max() <= 1000.0 for kind in ("power_v2v", "power_v2i"))
                nodes = {"lc": "client_cpu", "vc": "server_cpu", "ec": "edge_cpu"}
                for kind, cpu in nodes.items():
                    spent, most = record["costs"][kind], getattr(env.episode.scenario, cpu)
                    assert (spent >= 0.0).all() and (spent <= most * (1 + 1e-12)).all()


def lyapunov(state):
    """L in Mbit."""
    weights = {"v2v": 0.9, "v2i": 0.9, "i2i": 0.8, "i2c": 0.8, "lc": 0.7, "vc": 0.7, "ec": 0.7, "cc": 0.7}
    return sum(weight * state[name].sum() for name, weight in weights.items())


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 99), st.sampled_from(["dense", "sparse", "city"]), st.integers(0, 99))
def test_the_drift_adds_up_to_what_is_left_and_no_slot_leaves_its_bounds(index, traffic, seed):
    scenario = small(traffic=traffic, index=index)
    G, rng = 8 * scenario.task_size.sum(axis=(1, 2)).mean(), np.random.default_rng(seed)
    env = VehicularEdge(dataclasses.replace(scenario, calibration=dataclasses.replace(scenario.calibration, load=G)))
    env.reset()
    total, L = 0.0, 0.0
    while env.agents:
        (record,) = play(env, rng, slots=1)
        before, L = L, lyapunov(get_state(env))
        admitted = sum(record["in"][name].sum() for name in ("lc", "v2v", "v2i"))
        assert -before - 1e-9 <= G * record["drift"] <= 0.9 * admitted + L / 50 + 1e-9
        total += record["drift"] - L / 50 / G
    assert total == pytest.approx(L / G, abs=1e-9)
    assert 0.0 <= total <= 0.9 * 8 * scenario.task_size.sum() / G


SCHEDULES = {  # when the CPU is on
    "always": lambda t, slots: True,
    "every fourth slot": lambda t, slots: t % 4 == 3,
    "last third": lambda t, slots: t >= 2 * slots // 3,
}


def scheduled(schedule, slots=12):
    """(return, share on time, mean drift of squared backlogs) of 8 Mbit per slot, of which a CPU serves 150 in one."""
    scenario = world([[(1.0, 200.0, 1.0, 1.0)]], slots=slots, calibration=Calibration(
        load=8.0, score_v2v=np.ones(1), score_v2i=np.ones(1)
    ))  # fmt: skip
    scenario = dataclasses.replace(scenario, task_deadline=np.full_like(scenario.task_deadline, 2.0))
    env, records, squared, total = VehicularEdge(scenario), [], 0.0, 0.0
    env.reset()
    for t in range(slots):
        backlog = get_state(env)["lc"][0]
        on = [1, 0, 0] if schedule(t, slots) else [0, 0, 0]
        total += env.step_decoded(aim(env.params), shares(env.params, client=on))[1]["offloading"]
        records.append(env.record)
        squared += backlog * (env.record["in"]["lc"][0] - env.record["dep"]["lc"][0])
    delivered = delays.deliver(delays.flows(records, env.params), delays.paths([scenario]), env.params)
    return total, delays.on_time_share(delivered)[0], squared / slots


def test_the_same_work_is_worth_less_the_later_it_is_done():
    """And the earlier drift, of squared backlogs, paid for doing it late: the further below 0, the more it paid."""
    returns, on_time, squared = zip(*map(scheduled, SCHEDULES.values()), strict=True)
    assert on_time[0] == 1.0 > on_time[1] > on_time[2]
    assert returns[0] > returns[1] > returns[2]
    assert squared == pytest.approx([0.0, -960 / 12, -1792 / 12])


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 99), st.sampled_from(["cap_local", "cap_server", "cap_edge", "cap_cloud"]), st.integers(0, 99))
def test_a_higher_cap_never_lowers_the_number_of_tasks_admitted(index, cap, seed):
    admitted = []
    for value in (1, 2, 4):
        env = VehicularEdge(small(index=index, **{cap: value}))
        env.reset()
        rng, p = np.random.default_rng(seed), env.params
        for _ in range(p.slots):
            target = rng.integers(0, p.options, (p.clients, p.tasks))
            env.step_decoded(target, np.ones(p.share_length))
            admitted.append(env.record["tasks_admitted"])
    rows = np.array(admitted).reshape(3, p.slots)
    assert (np.diff(rows, axis=0) >= 0).all()


@pytest.mark.parametrize("preset", ["physical", "original"])
def test_zero_weights_serve_and_send_nothing(preset):
    env = VehicularEdge(small(preset))
    env.reset()
    p = env.params
    target = np.random.default_rng(0).integers(0, p.options, (p.clients, p.tasks))
    env.step_decoded(target, np.zeros(p.share_length))
    record = env.record
    assert record["tasks_admitted"] > 0
    assert all((record["out"][name] == 0.0).all() for name in ("lc", "v2v", "vc", "v2i", "ec", "cc"))
    assert record["rate_v2v"].max() == record["rate_v2i"].max() == record["energy"] == 0.0
