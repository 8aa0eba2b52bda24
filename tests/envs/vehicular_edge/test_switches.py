"""One mutation per switch: flipped alone from `original`, it changes what it names and nothing computed before that."""

import dataclasses
import re
import time

import numpy as np
import pytest

from lockstep.envs.vehicular_edge.original import VehicularEdge, get_state
from lockstep.envs.vehicular_edge.params import FAMILIES, PRESETS, SWITCHES, Params
from lockstep.envs.vehicular_edge.scenario import Calibration, draw, from_trace, traces
from tests.envs.vehicular_edge import worlds
from tests.envs.vehicular_edge.worlds import BLOCKS, CLIENTS, ORIGINAL, aim, shares, switch, switched, world

# ---- what a scenario holds: Q5, Q6, Q7, Q15, Q16, Q24, Q25

DRAWN = (
    "xy_client", "xy_server", "active_client", "client_cpu", "server_cpu", "client_power", "task_count", "task_size",
    "task_rate", "task_mean", "task_cycles", "edge_xy", "edge_cpu", "fading_v2v", "fading_v2i", "in_range",
    "edge_range", "covered",
)  # fmt: skip


TASKS_OF_A_SCENARIO = {"task_count", "task_size", "task_rate", "task_mean", "task_cycles"}


def drawn(params, traffic="dense"):
    return draw(params, traffic, calibration=Calibration.ones(params))


def in_the_city(params):
    return drawn(params, "city")


def recorded(params):
    """Vehicles seen from second 2 on, with a gap, and no more after second 6."""
    seconds = np.array([2.0, 3.0, 6.0])
    vehicle = np.repeat(np.arange(params.vehicles), 3)
    first = {"vehicle": [params.vehicles], "utc_s": [0.0], "x": [0.0], "y": [0.0]}  # the window opens; not taken
    rows = {
        "vehicle": vehicle,
        "utc_s": np.tile(seconds, params.vehicles),
        "x": np.tile(seconds**2, params.vehicles) + 7.0 * vehicle,
        "y": 3.0 * vehicle,
    }
    records = traces.Records(*(np.concatenate([first[name], rows[name]]) for name in rows))
    return from_trace(records, params, calibration=Calibration.ones(params))


SCENARIOS = {  # switch: how its scenario is made, what changes in it
    5: (drawn, {"client_cpu", "server_cpu"}),
    6: (in_the_city, {"edge_range", "covered"}),
    7: (drawn, {"in_range"}),
    15: (recorded, {"xy_client", "xy_server", "active_client", "in_range", "covered"} | TASKS_OF_A_SCENARIO),
    24: (drawn, {"task_rate", "task_mean"}),
    25: (drawn, {"task_size", "task_mean"}),  # the mean in hindsight is of the sizes
}


@pytest.mark.parametrize("number", list(SCENARIOS))
def test_switch_changes_what_it_names_of_a_scenario(number):
    make, changed = SCENARIOS[number]
    sizes = {"slots": 12, "vehicles": 40, "edges": 4, "components": 2}
    params = Params(**PRESETS["original"], **sizes)
    kept, flipped = make(params), make(dataclasses.replace(params, **{switch(number): False}))
    found = {name for name in DRAWN if not np.array_equal(getattr(kept, name), getattr(flipped, name))}
    assert found == changed


def test_q16_moves_the_window_and_nothing_else(monkeypatch):
    start, site = "2005-04-13 17:00:00", "America/Los_Angeles"
    published = {}
    for zone in ("UTC", "Asia/Shanghai"):
        with monkeypatch.context() as machine:
            machine.setenv("TZ", zone)
            time.tzset()
            published[zone] = traces.window_start(start, Params(local_time_window=True), site)
    time.tzset()
    right = traces.window_start(start, Params(), site)
    assert right - published["UTC"] == (7 - 15) * 3600
    assert right == published["Asia/Shanghai"]  # whose clocks are 15 h ahead in summer


# ---- what a slot does, in the order in which it is computed

TASKS, PLACES = worlds.TASKS[:2], worlds.PLACES | {"clients": CLIENTS[:2]}  # two clients whose tasks go everywhere
AIMS = [["local", "server0", "edge0", "edge1"], ["edge0", "cloud", "local"]]


def quantities(env):
    """The numbers of the last slot, by name, in this order."""
    record, state = env.record, get_state(env)
    found = {"target": record["target"], "admitted": record["admitted"]}
    found["C_e"] = [[client.index for client in edge.senders] for edge in env.episode.network.edges]
    found |= {name: record[name] for name in ("rate_v2v", "rate_v2i")}
    for family in FAMILIES:
        found |= {f"{family} {way}": record[way][family] for way in ("in", "out")}
        found[f"{family} backlog"] = state[family]
    found |= {f"delay {way}": record["delay"][way] for way in ("in", "out")} | {"delay backlog": state["delay"]}
    found["fields"] = [name for name in state if name.startswith("cpu_")]
    found |= {f"spent {kind}": values for kind, values in record["costs"].items()}
    found |= {name: record[name] for name in ("cost", "drift", "success", "reward")}
    found["observation"] = env.observe()
    return found


def played(scenario, actions, episodes=1):
    """`quantities` of every slot of the last of some episodes."""
    env = VehicularEdge(scenario)
    for _ in range(episodes):
        env.reset()
        slots = []
        while env.agents:
            if "target" in actions:
                env.step_decoded(actions["target"], actions["share"])
            else:
                env.step(actions)
            slots.append(quantities(env))
    return slots


def differ(one, other):
    return one != other if isinstance(one, list) else not np.array_equal(one, other)


def decoded(scenario, *names, **blocks):
    return {"target": aim(scenario.params, *names), "share": shares(scenario.params, **(BLOCKS | blocks))}


def usual(**options):
    """Two clients whose tasks go everywhere."""
    scenario = world(TASKS, **PLACES, client_cpu=1.0, **options, **ORIGINAL)
    return scenario, decoded(scenario, *AIMS)


def highest_but_one():
    scenario, _ = usual()
    vector = np.full(scenario.params.action_length, 0.99, dtype=np.float32)
    return scenario, {"offloading": vector, "allocation": vector}


def in_other_units():
    return usual(calibration=Calibration(score_v2v=np.array([8.0]), score_v2i=np.array([9.0])))


def more_tasks_than_slots():
    scenario, _ = usual(count=[6, 3])
    return scenario, decoded(scenario, *AIMS)


def crowded(**caps):
    """Three clients with two tasks for edge 0, that admits two."""
    scenario = world(
        [TASKS[0][:2]] * 3, clients=[(0.0, 0.0), (100.0, 0.0), (50.0, 9.0)], edges=[(40.0, 0.0)], **caps, **ORIGINAL
    )
    return scenario, decoded(scenario, *[["edge0", "edge0"]] * 3, edge=[1] * scenario.params.cap_edge)


def tie():
    """Two clients as far from edge 0 as each other."""
    scenario = world(TASKS, **PLACES | {"edges": [(50.0, 0.0), (400.0, 0.0)]}, **ORIGINAL)
    return scenario, decoded(scenario, *AIMS)


def covered_twice():
    """Both edges cover both clients."""
    return usual(edge_range=500.0)


SLOTS = {  # switch: fixture, what changes first, what else must change
    1: (highest_but_one, "target", ["i2c in"]),
    2: (usual, "rate_v2i", ["v2i out"]),
    3: (usual, "lc in", ["v2v in", "v2i in"]),
    4: (usual, "vc in", ["ec in", "cc in", "v2i backlog"]),
    8: (usual, "i2i out", ["i2c out"]),
    9: (usual, "fields", []),
    10: (usual, "drift", ["reward"]),
    11: (usual, "cost", ["reward"]),
    13: (more_tasks_than_slots, "success", ["reward"]),
    14: (usual, "lc in", ["lc out", "lc backlog"]),
    17: (lambda: crowded(cap_edge=2), "admitted", []),
    18: (tie, "rate_v2i", ["v2i out"]),
    19: (usual, "cost", ["reward"]),
    20: (lambda: crowded(cap_edge=2), "C_e", ["rate_v2i", "v2i in"]),
    21: (covered_twice, "spent i2i", ["spent i2c"]),
    22: (usual, "spent power_v2v", ["spent lc"]),
    23: (usual, "lc out", ["vc out", "ec out", "cc out"]),
    26: (in_other_units, "observation", []),
}


@pytest.mark.parametrize("number", list(SLOTS))
def test_switch_changes_what_it_names_of_a_slot_and_nothing_before(number):
    fixture, first, others = SLOTS[number]
    scenario, actions = fixture()
    kept, flipped = (played(switched(scenario, **{switch(number): on}), actions) for on in (True, False))
    for before, after in zip(kept, flipped, strict=True):
        changed = [name for name in before if differ(before[name], after[name])]
        if changed:
            assert changed[0] == first
            assert set(others) <= set(changed)
            return
    pytest.fail(f"{switch(number)} changes nothing on its fixture")


def test_q1_leaves_the_cloud_to_a_number_of_exactly_one():
    scenario, actions = highest_but_one()
    for number, cloud in ((np.nextafter(np.float32(1), np.float32(0)), False), (np.float32(1), True)):
        vector = np.full(scenario.params.action_length, number, dtype=np.float32)
        target, _ = VehicularEdge(scenario).decode(vector, vector)
        assert (target == scenario.params.options - 1).all() == cloud
    target, _ = VehicularEdge(switched(scenario, cloud_only_at_one=False)).decode(actions["offloading"], vector)
    assert (target == scenario.params.options - 1).all()


def test_q7_a_client_does_not_reach_the_server_of_its_own_index():
    scenario = world(
        [[TASKS[0][0]]] * 2, clients=[(0.0, 0.0), (9.0, 0.0)], servers=[(0.0, 9.0), (9.0, 9.0)], **ORIGINAL
    )
    actions = decoded(scenario, ["server0"], ["server0"])
    first = [
        slots[0]["v2v in"].tolist()
        for slots in (played(scenario, actions), played(switched(scenario, index_clash=False), actions))
    ]
    assert first == [[4.0, 4.0], [8.0, 0.0]]


def test_q11_a_repeated_episode_earns_the_same_only_with_frozen_scales():
    for running in (True, False):
        scenario, _ = usual()
        env, rewards = VehicularEdge(switched(scenario, running_scales=running)), []
        for _ in range(2):
            env.reset()
            rng = np.random.default_rng(0)
            while env.agents:
                env.step({agent: rng.random(env.params.action_length, dtype=np.float32) for agent in env.agents})
                rewards.append(env.record["reward"])
        assert (rewards[:3] == rewards[3:]) != running


def test_q12_another_episode_takes_other_tasks_only_while_clear():
    pool = [world([[(size, 200.0, 1.0, 1.0)]], **ORIGINAL) for size in (1.0, 2.0)]
    for frozen in (True, False):
        env = VehicularEdge(pool, params=dataclasses.replace(pool[0].params, frozen_scenario=frozen))
        sizes = set()
        for _ in range(8):
            env.reset()
            sizes.add(env.episode.scenario.task_size[0, 0, 0])
        assert sizes == ({1.0} if frozen else {1.0, 2.0})


def test_q14_the_queues_differ_in_the_last_slot_alone():
    scenario, actions = usual()
    kept, flipped = (played(switched(scenario, idle_last_slot=on), actions) for on in (True, False))
    same = [not differ(a["lc backlog"], b["lc backlog"]) for a, b in zip(kept, flipped, strict=True)]
    assert same == [True, True, False]


def test_q17_priority_starts_at_another_client_in_every_slot():
    scenario, actions = crowded(cap_edge=2)
    for fixed, winners in ((True, [0, 0, 0]), (False, [0, 1, 2])):
        slots = played(switched(scenario, fixed_priority=fixed), actions)
        assert [np.flatnonzero(slot["admitted"].all(axis=1)).tolist() for slot in slots] == [[w] for w in winners]


def test_q18_the_higher_of_two_equal_clients_is_decoded_last():
    scenario, actions = tie()
    silent, by_index = (
        played(switched(scenario, silent_ties=on), actions)[0]["rate_v2i"][:, 0] for on in (True, False)
    )
    assert silent[0] == silent[1] == by_index[1] > by_index[0] > 0.0


def test_q20_affects_only_who_sends_where_queues_are_routed():
    scenario, actions = crowded(cap_edge=2)
    scenario = switched(scenario, slot_tandem=False)
    kept, flipped = (played(switched(scenario, rejected_transmit=on), actions)[0] for on in (True, False))
    assert (kept["C_e"], flipped["C_e"]) == ([[0, 1, 2]], [[0]])
    assert (kept["v2i in"] == flipped["v2i in"]).all()


def test_q22_only_senders_pay_for_power():
    scenario, actions = usual()
    kept, flipped = (played(switched(scenario, idle_power_paid=on), actions)[0] for on in (True, False))
    assert kept["spent power_v2v"].tolist() == [250.0, 250.0]
    assert flipped["spent power_v2v"].tolist() == [250.0, 0.0]
    assert (kept["spent power_v2i"] == flipped["spent power_v2i"]).all()
    assert kept["spent lc"].tolist() == [0.5, 0.5] and flipped["spent lc"].tolist() == [0.0, 0.0]  # nothing waits yet


def test_q24_changes_the_delay_queues_service():
    params = Params(**PRESETS["original"], slots=6, vehicles=40, edges=4, components=2)
    vectors = np.random.default_rng(0).random((2, params.action_length), dtype=np.float32)
    actions = dict(zip(("offloading", "allocation"), vectors, strict=True))
    rated = {"rate_weighted_bits": False}  # as the bits offered, too, are weighted by the rate
    kept, flipped = (
        played(drawn(dataclasses.replace(params, hindsight_means=on, **rated)), actions)[0] for on in (True, False)
    )
    assert next(name for name in kept if differ(kept[name], flipped[name])) == "delay out"


def test_q26_the_box_of_scaled_observations_has_no_upper_bound():
    scenario, _ = usual()
    raw = VehicularEdge(scenario).observation_space("offloading")
    assert raw.low.max() == 0.0 and raw.high.min() == raw.high.max() == 1.0
    box = VehicularEdge(switched(scenario, raw_observation=False)).observation_space("offloading")
    assert box.high.min() == np.inf and np.isneginf(box.low).sum() == 2 * scenario.params.components


def test_every_switch_has_its_mutation():
    alone = {int(found[1]) for name in globals() if (found := re.match(r"test_q(\d+)_", name))}
    assert alone | set(SCENARIOS) | set(SLOTS) == set(range(1, len(SWITCHES) + 1))
