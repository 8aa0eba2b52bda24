"""Figures and tables of offloading, from episodes written by hand."""

import numpy as np
import pandas as pd
import pytest

from lockstep import paper
from lockstep.experiments.vehicular_edge.offloading import COLUMNS, Group
from lockstep.paper import figures, quantities, tables
from lockstep.paper.typeset import DASH
from lockstep.paper.vehicular_edge import policies
from lockstep.paper.vehicular_edge import quantities as of_edge
from tests.paper import handwritten
from tests.paper.reading import seen

NAME = "vehicular_edge"


def row(level, policy, **columns):
    same = dict.fromkeys(COLUMNS, "") | {"environment": NAME, "level": level, "form": "original", "device": "cpu"}
    same |= {"traffic": "city", "policy": policy, "penalty_weight": 1.0, "seed": 0, "scenario": 1000, "seen": 0}
    return same | columns


def episode(policy, cost, on_time, scenario=1000, p95=4.0, **columns):
    totals = {"return": 50 * on_time, "cost": cost, "success": 0.5, "on_time": on_time, "energy_j": 2000.0, "jain": 1.0}
    totals["earlier_return"] = 30 - 50 * on_time
    about = {"scenario": scenario} | columns
    return [
        row("episode", policy, **totals, **about),
        row("route", policy, route="all", tasks=10, delay_p50_s=1.0, delay_p95_s=p95, delay_p99_s=9.0, **about),
    ]


def rows():
    found = [cell for number in range(5) for cell in episode("greedy", 0.1 * number, 0.5, 1000 + number)]
    found += episode("backpressure", 0.3, 0.75, p95="inf") + episode("backpressure", 0.4, 0.8, penalty_weight=0.1)
    for seed in range(2):
        for index, on_time in ((1000, 0.2), (0, 0.6)):
            found += episode("ppo", 0.2, on_time, index, seed=seed, trained_on="one", seen=int(index == 0))
    found += [row("delay", "greedy", delay_s=s, tasks=tasks) for s, tasks in ((0, 0), (1, 6), (2, 2), ("inf", 2))]
    found += [
        row("backlog", "greedy", family=family, node=node, slot=slot, backlog_mbit=10.0 * node)
        for family in ("v2i", "ec")
        for node in range(2)
        for slot in range(3)
    ]
    return [*found, row("little", "greedy", family="lc", node=0, backlog_mbit=4.0, rate_mbps=2.0, delay_s=2.0)]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    root = tmp_path_factory.mktemp("played")
    handwritten.write(root, None, "offloading", rows(), handwritten.HERE, environment=NAME)
    return paper.load(root)


def test_means_are_over_episodes_and_have_an_interval_from_five_on(played):
    found = policies.summary(played[0]).set_index(["policy", "penalty_weight", "seen"])
    greedy = found.loc["greedy", 1.0, 0]
    assert greedy["episodes"] == 5
    assert greedy["cost"] == pytest.approx(0.2)
    assert 0.0 < greedy["cost_low"] < 0.2 < greedy["cost_high"] < 0.4
    assert found.loc["backpressure", 1.0, 0].isna()["cost_low"]
    assert found.loc["backpressure", 0.1, 0]["on_time"] == pytest.approx(0.8)
    assert found.loc["backpressure", 1.0, 0]["delay_p95_s"] == float("inf")


def test_an_agent_leads_by_its_distance_to_the_best_of_those_that_do_not_learn(played):
    """Of greedy (50 * 0.5) and backpressure (50 * 0.75) in return; on time of greedy alone, which costs no more."""
    asked = {"select": {"experiment": "offloading", "environment": NAME, "policy": "ppo", "trained_on": "one"}}
    (of_return,) = quantities.find(played, asked | {"quantity": "lead_in_return"})
    assert of_return.value == pytest.approx(50 * 0.2 - 50 * 0.75)
    assert of_return.shown == "\N{MINUS SIGN}27.50"
    (on_time,) = quantities.find(played, asked | {"quantity": "lead_on_time"})
    assert on_time.value == pytest.approx(0.2 - 0.5)
    assert on_time.shown == "\N{MINUS SIGN}30.0 points"


def test_an_agent_leads_on_those_scenarios_that_all_have_played(tmp_path):
    """On 1000 and 1001 it does 0.7, backpressure 0.65 and greedy, which costs less, 0.4.

    Greedy has one more, where it does all and costs most, and the agent one where it does nothing.
    """
    found = episode("greedy", 0.9, 1.0, 1002)
    for scenario, greedy, backpressure in ((1000, 0.5, 0.75), (1001, 0.3, 0.55)):
        found += episode("greedy", 0.1, greedy, scenario) + episode("backpressure", 0.3, backpressure, scenario)
    for seed in range(2):
        for scenario, on_time in ((1000, 0.6), (1001, 0.8), (1003, 0.0)):
            found += episode("ppo", 0.2, on_time, scenario, seed=seed, trained_on="many")
    handwritten.write(tmp_path, None, "offloading", found, handwritten.HERE, environment=NAME)
    asked = {"select": {"experiment": "offloading", "environment": NAME, "policy": "ppo", "trained_on": "many"}}
    (of_return,) = quantities.find(paper.load(tmp_path), asked | {"quantity": "lead_in_return"})
    assert of_return.value == pytest.approx(50 * 0.7 - 50 * 0.65)
    assert of_return.shown == "+2.50"
    (on_time,) = quantities.find(paper.load(tmp_path), asked | {"quantity": "lead_on_time"})
    assert on_time.value == pytest.approx(0.7 - 0.4)
    assert on_time.shown == "+30.0 points"


def leads(root, found, missing=()):
    """Findings of both leads of PPO, trained on many scenarios. missing: groups that are yet to be measured."""
    root.mkdir()
    about = {"environment": NAME, "missing_groups": [vars(group) for group in missing]}
    handwritten.write(root, None, "offloading", found, handwritten.HERE, **about)
    select = {"experiment": "offloading", "environment": NAME, "policy": "ppo", "trained_on": "many"}
    asked = ("lead_in_return", "lead_on_time")
    return [quantities.find(paper.load(root), {"select": select, "quantity": name}) for name in asked]


def test_an_agent_that_costs_less_than_all_others_is_held_against_the_cheapest(tmp_path):
    """It does 0.6 at 0.1, greedy 0.7 at 0.2; backpressure, which does most, costs more, but at another weight 0.15."""
    found = (
        episode("ppo", 0.1, 0.6, trained_on="many") + episode("greedy", 0.2, 0.7) + episode("backpressure", 0.3, 0.9)
    )
    _, (on_time,) = leads(tmp_path / "one", found)
    assert on_time.value == pytest.approx(0.6 - 0.7)
    _, (on_time,) = leads(tmp_path / "two", found + episode("backpressure", 0.15, 0.65, penalty_weight=10.0))
    assert on_time.value == pytest.approx(0.6 - 0.65)


def test_an_agent_leads_nobody_where_nobody_else_has_played(tmp_path):
    agent = episode("ppo", 0.1, 0.6, trained_on="many")
    assert leads(tmp_path / "alone", agent) == [[], []]
    assert leads(tmp_path / "apart", agent + episode("greedy", 0.2, 0.7, 1001)) == [[], []]


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        (Group("original", "dense", "ppo", 8, trained_on="many", seed=1), False),
        (Group("original", "sparse", "greedy", 16), False),
        (Group("original", "city", "mappo", 8, trained_on="many", seed=0), True),
        (Group("original", "city", "ppo", 8, trained_on="one", seed=0), True),
    ],
)
def test_an_agent_leads_once_its_seeds_and_all_that_it_is_held_against_are_there(tmp_path, missing, told):
    found = episode("greedy", 0.2, 0.3) + episode("ppo", 0.2, 0.5, trained_on="many")
    assert [len(lead) for lead in leads(tmp_path / "some", found, [missing])] == [int(told)] * 2


def test_targets_name_both_kinds_of_agents_that_settings_train(played, tmp_path):
    """MAPPO by the actions that it draws, which do better than its likeliest ones (agents/README.md)."""
    agent = {"trained_on": "many"}
    found = [*rows(), *episode("ppo_mean", 0.2, 0.7, **agent), *episode("mappo", 0.2, 0.4, **agent)]
    handwritten.write(tmp_path, None, "offloading", found, handwritten.HERE, environment=NAME)
    datasets = paper.load(tmp_path)
    led = {row["target"].split()[0].rstrip(","): row["shown"] for row in leads_of(datasets)}
    assert led == {"PPO's": "\N{MINUS SIGN}2.50", "MAPPO": "\N{MINUS SIGN}17.50"}
    assert {row["status"] for row in leads_of(played) if row["target"].startswith("MAPPO")} == {"not measured"}


def leads_of(datasets):
    """Rows of the targets of agents' returns."""
    found = tables.frame("targets", datasets).to_dict("records")
    return [row for row in found if "its return over that of the best policy" in row["target"]]


def test_leads_have_an_interval_over_five_seeds_and_none_over_fewer(tmp_path):
    """Of the map that is least: in the city seeds do 0.5 to 0.9 beside 0.3, on another map each 0.9 beside 0.2."""
    found = episode("greedy", 0.2, 0.3) + episode("greedy", 0.2, 0.2, traffic="dense")
    for seed in range(5):
        found += episode("ppo", 0.2, 0.5 + 0.1 * seed, seed=seed, trained_on="many")
        found += episode("ppo", 0.2, 0.9, seed=seed, trained_on="many", traffic="dense")
    for (lead,), unit in zip(leads(tmp_path / "five", found), (50, 1), strict=True):
        assert lead.value == pytest.approx(0.4 * unit)
        assert 0.2 * unit < lead.low < lead.value < lead.high < 0.6 * unit
        assert lead.interval.count("+") == 2
    few = [row for row in found if row["seed"] < 4]
    assert {lead.interval for (lead,) in leads(tmp_path / "few", few)} == {DASH}


def test_policies_stand_in_their_order(played):
    assert list(dict.fromkeys(policies.summary(played[0])["policy"])) == ["greedy", "backpressure", "ppo"]


def test_the_tables_tell_unseen_from_seen_scenarios(played):
    cells = seen("offloading", played)
    assert [cell["policy"] for cell in cells] == ["greedy", "backpressure", "PPO, trained on one scenario"]
    assert cells[1]["delay, s: median, 95 %"] == "1.0, \N{INFINITY}"
    found = tables.frame("generalisation", played)
    assert dict(zip(found["seen"], found["on_time"], strict=True)) == pytest.approx({0: 0.2, 1: 0.6})
    assert set(tables.frame("penalty_weights", played)["policy"]) == {"backpressure"}


def test_the_cost_figure_has_a_mark_per_policy_and_a_line_over_penalty_weights(played):
    (panel,) = figures.draw("offloading_cost", played).axes
    marks = {line.get_label(): line.get_xydata().tolist() for line in panel.lines}
    assert marks["backpressure"] == [[0.3, 0.75]]
    assert [[0.4, 0.8], [0.3, 0.75]] in marks.values()
    assert marks["greedy"][0] == pytest.approx([0.2, 0.5])


def test_the_reward_figure_has_both_rewards_over_tasks_on_time_less_cost(played):
    """Greedy does half of the tasks at a cost of 0.2, backpressure three quarters at 0.3; the agent is left out."""
    present, earlier = figures.draw("offloading_reward", played).axes
    titles = [panel.get_title(loc="left") for panel in (present, earlier)]
    assert titles == ["present reward: rank correlation 1.00", "earlier reward: rank correlation -1.00"]
    for panel, places in ((present, [[1, 1], [2, 2]]), (earlier, [[1, 2], [2, 1]])):
        marks = {line.get_label(): line.get_xydata().tolist()[0] for line in panel.lines if line.get_marker() != "None"}
        assert marks == dict(zip(("greedy", "backpressure"), places, strict=True))


def test_a_run_without_the_earlier_reward_draws_no_such_figure(tmp_path):
    lacking = [{key: value for key, value in row.items() if key != "earlier_return"} for row in rows()]
    handwritten.write(tmp_path, None, "offloading", lacking, handwritten.HERE, environment=NAME)
    (panel,) = figures.draw("offloading_reward", paper.load(tmp_path)).axes
    assert [text.get_text() for text in panel.texts] == ["not measured yet"]


def test_tasks_that_are_never_done_keep_the_line_below_one(played):
    (panel,) = figures.draw("offloading_deadlines", played).axes
    (line,) = [line for line in panel.lines if line.get_label() == "greedy"]
    assert line.get_ydata().tolist() == [0.0, 0.6, 0.8]


def test_queues_are_drawn_where_something_waits(played):
    (panel, _) = figures.draw("offloading_queues", played).axes
    assert panel.get_title(loc="left") == "greedy"
    assert panel.images[0].get_array().shape == (4, 3)


def test_the_interval_of_the_least_of_maps_is_of_all_maps():
    """One map's seeds agree on 1, the other's are as good in the mean and vary: their least is 1 at most."""
    even, uneven = pd.Series([1.0] * 6), pd.Series([0.5, 1.5] * 3)
    ((dataset, value, low, high),) = of_edge.least("a run", [even, uneven])
    assert (dataset, value, high) == ("a run", 1.0, 1.0) and low < 0.9
    assert np.isnan(next(of_edge.least("a run", [even, uneven[:4]]))[2:]).all()
