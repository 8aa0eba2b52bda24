import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from lockstep.envs.vehicular_edge import delays
from lockstep.envs.vehicular_edge.params import DRIFTS
from lockstep.envs.vehicular_edge.policies import POLICIES
from lockstep.envs.vehicular_edge.scenario.traffic import TRAFFIC
from lockstep.experiments import config
from lockstep.experiments.config import Settings
from lockstep.experiments.vehicular_edge import earlier_reward, offloading, offloading_episodes
from lockstep.experiments.vehicular_edge.offloading import AGENTS, SEARCHING, SIMPLE, UNSEEN, Group
from lockstep.experiments.vehicular_edge.offloading_episodes import Job, in_port, play


@pytest.fixture(scope="module")
def settings():
    return config.load("vehicular_edge", "quick")


@pytest.fixture(scope="module")
def rows(settings):
    found = offloading.measure("vehicular_edge", Group("original", "city", "random", 2), settings)
    return pd.DataFrame(found, columns=offloading.COLUMNS)


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_every_policy_is_played_on_every_map_in_the_original_and_the_simple_ones_in_the_port(scale):
    settings = config.load("vehicular_edge", scale)
    found = offloading.groups(settings, ["cpu", "cuda"])
    labels = [group.label for group in found]
    assert len(set(labels)) == len(labels)
    for traffic in settings.offloading.maps:
        for policy in (*SIMPLE, *SEARCHING):
            of_policy = [g for g in found if (g.traffic, g.policy) == (traffic, policy) and g.penalty_weight == 1.0]
            devices = sorted(group.device for group in of_policy if group.form == "port")
            assert devices == (["cpu", "cuda"] if policy in SIMPLE else [])
            assert sum(group.form == "original" for group in of_policy) == 1
    trained = [("city", "many"), ("dense", "many"), ("arterial", "many"), ("city", "one")]
    for traffic in {traffic for traffic, _ in trained} if scale == "full" else settings.offloading.maps[:1]:
        weights = [g.penalty_weight for g in found if (g.traffic, g.policy) == (traffic, "backpressure")]
        assert set(settings.offloading.penalty_weights) < set(weights)
    for name in AGENTS:
        agents = [(group.seed, group.traffic, group.trained_on) for group in found if group.policy == name]
        seeds = range(settings.offloading.agent.seeds if scale == "full" else 0)  # a quick run trains none
        assert agents == [(seed, *of) for seed in seeds for of in trained], name


def test_a_group_has_rows_of_every_level(rows, settings):
    assert set(rows["level"]) == {"episode", "route", "delay", "backlog", "little"}
    episodes = rows[rows["level"] == "episode"]
    assert episodes["scenario"].tolist() == [UNSEEN, UNSEEN + 1]
    slots, edges = 50, 9
    assert (rows["level"] == "backlog").sum() == 2 * slots * edges
    assert (rows["level"] == "delay").sum() == 22  # 0 to 20 s, and longer
    assert set(rows.loc[rows["level"] == "route", "route"]) == {*delays.ROUTES, "all"}
    assert (rows["policy"] == "random").all()


def test_tasks_add_up(rows):
    of = {level: part for level, part in rows.groupby("level")}
    episodes = of["episode"].set_index("scenario")
    dropped = episodes[["dropped_overflow", "dropped_cap", "dropped_coverage"]].sum(axis=1)
    routes = of["route"].pivot(index="scenario", columns="route", values="tasks")
    assert (routes[list(delays.ROUTES)].sum(axis=1) == routes["all"]).all()
    assert (routes["all"] + dropped == episodes["tasks"]).all()
    assert of["delay"]["tasks"].sum() < episodes["tasks"].sum()


def test_littles_law_holds_in_every_queue_of_the_original(rows):
    points = rows[rows["level"] == "little"]
    assert set(points["family"]) == {"lc", "v2v", "vc", "v2i", "i2i", "ec", "i2c", "cc"}
    assert np.allclose(points["backlog_mbit"], points["rate_mbps"] * points["delay_s"], rtol=1e-9)


def test_a_task_is_on_time_as_a_queue_of_bits_tells():
    """The policy `local`, by a queue of tasks that each client serves one after the other."""
    job = Job("city", UNSEEN, "local", 0)
    scenario = offloading_episodes.drawn("city", UNSEEN)
    params, on_time, known = scenario.params, 0, 0
    for i in range(params.clients):
        waiting, done = [], {}
        for t in range(params.slots):
            listed = min(int(scenario.task_count[t, i]), params.cap_local)
            each = 1e3 * scenario.client_cpu[i] / params.cap_local  # Mcycles/s of a share
            service = sum(each / scenario.task_cycles[t, i, k] for k in range(listed))
            service += (params.cap_local - listed) * each / scenario.mean_density
            while waiting and service >= waiting[0][1] - 1e-9:
                came, mbit = waiting.pop(0)
                service -= mbit
                done[came] = t
            if waiting:
                waiting[0] = (waiting[0][0], waiting[0][1] - service)
            mbit = 8.0 * scenario.task_size[t, i, :listed].sum()
            if listed:
                waiting.append((t, mbit))
        for t in range(params.slots):
            tried = min(int(scenario.task_count[t, i]), params.tasks)
            for k in range(min(tried, params.cap_local)):
                deadline = scenario.task_deadline[t, i, k]
                if t in done:
                    on_time, known = on_time + (done[t] - t <= deadline), known + 1
                else:
                    known += params.slots - t > deadline
            known += int(scenario.task_count[t, i]) - min(tried, params.cap_local)
    assert play(job).totals["on_time"] == pytest.approx(on_time / known, abs=1e-12)


def test_the_port_plays_the_episodes_of_the_original():
    for policy in ("nearest_edge", "greedy"):
        for scenario, ours in in_port(Job("city", UNSEEN, policy, 0), 2, "cpu", "float64"):
            theirs = play(Job("city", scenario, policy, 0))
            for name, value in theirs.totals.items():  # some are float32 outputs of the port
                assert ours.totals[name] == pytest.approx(value, rel=1e-6), name
            assert np.allclose(ours.backlogs, theirs.backlogs, rtol=1e-9, atol=1e-6)
            assert (ours.delays == theirs.delays).all()


def test_a_larger_penalty_weight_makes_the_search_pay_less():
    costs = []
    for weight in (0.1, 10.0):
        costs.append(play(Job("city", UNSEEN, "drift_plus_penalty", 0, (("penalty_weight", weight),))).totals["cost"])
    assert costs[1] < 0.5 * costs[0]


def test_the_earlier_drift_by_hand():
    """A family's two queues hold 0, 2, 3 and 0, 0, 0 Mbit; the virtual one, whose out may exceed what it holds, 0."""
    nothing = np.zeros((1, 3, 1))
    arrived, departed = (dict.fromkeys(DRIFTS, nothing) for _ in range(2))
    arrived["lc"] = np.array([[[2, 0], [2, 0], [2, 0]]])
    departed["lc"] = np.array([[[0, 0], [1, 0], [0, 0]]])
    arrived["delay"], departed["delay"] = nothing + 1, nothing + 5
    scale = dict.fromkeys(DRIFTS, 4.0)
    found = earlier_reward.drift(arrived, departed, scale)
    assert found == pytest.approx(np.array([[0.0, 0.2 * 2 / 2 / 4, 0.2 * 6 / 2 / 4]]))


def test_the_earlier_cost_by_hand():
    """Of two clients one waits and uses half of its CPU, the other is new with 0.6 for its tasks; the rest is idle."""
    idle = {"vc": [0.0], "ec": [0.0], "cc": [0.0]}
    record = {"out": {"lc": [8.0, 6.0]} | idle, "dep": {"lc": [4.0, 0.0]} | idle}
    shares = {"admitted": [0.3, 0.6], "whole": [1.0, 1.0]}
    record["cpu"] = {name: {"lc": np.array(of)} | {k: np.zeros(1) for k in idle} for name, of in shares.items()}
    assert earlier_reward.cost_above(record) == pytest.approx((0.5 + 0.6) / 2 / 12)
    edges = {"out": record["out"] | {"ec": [5.0]}, "dep": record["dep"] | {"ec": [1.0]}, "cpu": record["cpu"]}
    edges["cpu"]["whole"]["ec"] = np.ones(1)
    assert earlier_reward.cost_above(edges) == pytest.approx((0.5 + 0.6) / 2 / 12 + 0.8 / 12)


@pytest.mark.parametrize(
    ("policy", "traffic", "earlier"),
    [
        ("local", "city", 8.4049982819916),
        ("random", "dense", 13.43759061413112),
        ("greedy", "sparse", 10.7516489576227),
    ],
)
def test_the_earlier_return_is_what_the_code_of_that_time_recorded(policy, traffic, earlier):
    assert play(Job(traffic, UNSEEN, policy, 0)).totals["earlier_return"] == pytest.approx(earlier, rel=1e-9)


CONTROL = {  # reward of a slot, drift
    "local": {"arterial": (0.153, 0.03), "city": (0.153, 0.03), "dense": (0.153, 0.03), "sparse": (0.153, 0.03)},
    "nearest_edge": {"arterial": (0.041, 0.13), "city": (0.180, 0.06), "dense": (0.016, 0.06), "sparse": (0.191, 0.07)},
    "random": {"arterial": (-0.078, 0.69), "city": (0.043, 0.03), "dense": (-0.161, 0.86), "sparse": (0.050, 0.03)},
    "greedy": {"arterial": (0.016, 0.73), "city": (0.165, 0.13), "dense": (-0.068, 0.92), "sparse": (0.163, 0.14)},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "traffic", "reward", "drift"),
    [(policy, traffic, *values) for policy, of in CONTROL.items() for traffic, values in of.items()],
)
def test_reward_and_drift_are_what_was_worked_out_apart_from_logged_queues(policy, traffic, reward, drift, monkeypatch):
    """Control values of the specification, to their digits: means over scenarios 0 to 3.

    Its rewards have the present drift and the earlier cost. Its backpressure is of the earlier form, and not here.
    """
    monkeypatch.setattr(offloading_episodes, "earlier_drifts", lambda records, *_: np.zeros((1, len(records))))
    played = [play(Job(traffic, index, policy, 0)).totals for index in range(4)]
    drifts = [totals["drift"] for totals in played]
    assert np.mean(drifts) == pytest.approx(drift, abs=0.0051)
    rest = np.mean([totals["earlier_return"] for totals in played]) / 50
    assert rest - 0.5 * np.mean(drifts) == pytest.approx(reward, abs=0.00051)


@pytest.mark.slow
def test_the_return_ranks_policies_on_maps_as_tasks_on_time_less_cost_do():
    """The earlier return of the same episodes does not."""
    found = []
    for traffic, policy in itertools.product(TRAFFIC, POLICIES):
        totals = play(Job(traffic, UNSEEN, policy, 0)).totals
        found.append((totals["return"], totals["earlier_return"], 0.5 * totals["on_time"] - 0.35 * totals["cost"]))
    present, earlier, aim = np.transpose(found)
    assert stats.spearmanr(present, aim).statistic >= 0.8
    assert stats.spearmanr(earlier, aim).statistic < 0.5


TRAINING = {
    "ppo": {"num_envs": 4, "horizon": 44, "total_steps": 352, "bootstrap": False},
    "mappo": {"num_envs": 4, "horizon": 25, "total_steps": 200, "minibatches": 4},
}


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_plays_seen_and_unseen_scenarios_drawing_actions_and_taking_the_likeliest(name, settings):
    plain = settings.plain()
    plain["offloading"]["agent"] = {"seeds": 1, "scenarios": 1, "pool": 2, name: TRAINING[name]}
    group = Group("original", "city", name, 1, trained_on="many", seed=0)
    found = pd.DataFrame(offloading.measure("vehicular_edge", group, Settings(plain)), columns=offloading.COLUMNS)
    episodes = found[found["level"] == "episode"]
    assert sorted(zip(episodes["policy"], episodes["scenario"], episodes["seen"], strict=True)) == [
        (name, 0, 1), (name, UNSEEN, 0), (f"{name}_mean", 0, 1), (f"{name}_mean", UNSEEN, 0)
    ]  # fmt: skip
    assert np.isfinite(episodes["return"].astype(float)).all()
    for _, tasks in found[found["level"] == "delay"].groupby("policy")["tasks"]:  # of the unseen episode alone
        assert 0 < tasks.sum() < episodes["tasks"].min()


def test_longer_delays_are_counted_in_the_last_place(rows):
    part = rows[rows["level"] == "delay"]
    assert part["delay_s"].tolist() == [*range(21), math.inf]
    assert part["tasks"].iloc[-1] > 0
