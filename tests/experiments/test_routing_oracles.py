"""Costs of oracles on the same days, and among other neighbours in a batch."""

import sys

import pandas as pd
import pytest

from lockstep.envs.vehicle_routing.oracles import ORACLES, Answer
from lockstep.envs.vehicle_routing.original import make
from lockstep.envs.vehicle_routing.params import make_params
from lockstep.envs.vehicle_routing.scenario import city
from lockstep.experiments import config
from lockstep.experiments.config import Settings
from lockstep.experiments.vehicle_routing import oracles
from lockstep.experiments.vehicle_routing.oracles import Group

NAME = "vehicle_routing"


@pytest.fixture(scope="module")
def few():
    """Settings of four small problems."""
    plain = config.load(NAME, "quick").plain()
    plain["oracles"]["gap"]["problems"] = 4
    plain["oracles"]["neighbours"] |= {"requests": 6, "problems": 8}
    return Settings(plain)


def rows_of(few, *given) -> pd.DataFrame:
    return pd.DataFrame(oracles.measure(NAME, Group(*given), few), columns=oracles.COLUMNS)


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_every_oracle_is_asked_at_every_size_and_both_statistics_in_every_batch(scale):
    settings = config.load(NAME, scale)
    gap, others = settings.oracles.gap, settings.oracles.neighbours
    found = oracles.groups(settings)
    assert len({group.label for group in found}) == len(found)
    assert sum(group.part == "gap" for group in found) == len(gap.requests) * (len(gap.oracles) + len(gap.references))
    assert sum(group.part == "neighbours" for group in found) == 2 * len(others.batches) * len(others.weights)
    solvers = [word.partition(":")[::2] for word in gap.references]
    lengths = {name: {seconds for other, seconds in solvers if other == name} for name in ("pyvrp", "ortools")}
    assert lengths["ortools"] <= lengths["pyvrp"]  # so that they stand beside each other at equal seconds
    assert len(solvers) == sum(map(len, lengths.values()))


def test_a_single_request_costs_its_ride_by_every_oracle(few):
    """From the depot to the pickup, to the drop-off and back."""
    params = make_params()
    scenario = city(params=params)
    alone = []
    for problem in oracles.days(scenario, params, few.oracles.seed, 4, 1):
        depot, start, end = problem.zone
        alone.append((scenario.travel[depot, start] + scenario.travel[start, end] + scenario.travel[end, depot]) / 10)
    for word in ("insertion", "greedy:nearest", "am", "pyvrp:0.01"):
        rows = rows_of(few, "gap", word, 1)
        assert rows["cost_min"].tolist() == pytest.approx(alone)
        assert rows["vehicles"].tolist() == [1] * 4 and rows["problem"].tolist() == [0, 1, 2, 3]


def test_insertion_costs_what_days_of_the_original_cost(few):
    """Its travellers are asked for no shift."""
    rows = rows_of(few, "gap", "insertion", 7)
    env = make(oracle="insertion", seed=few.oracles.seed)
    for cost in rows["cost_min"]:
        env.reset()
        for _ in range(7):
            info = env.step(12)[-1]
        assert info["cost"] / 10 == cost


def test_neighbours_change_costs_by_statistics_of_the_batch_alone(few):
    among = rows_of(few, "neighbours", "published", 6, 2, True)
    stored = rows_of(few, "neighbours", "published", 6, 2, False)
    assert (among["cost_min"] != among["among_others_min"]).any()
    assert stored["cost_min"].tolist() == stored["among_others_min"].tolist()


def test_a_batch_of_all_problems_knows_no_order(few):
    """Statistics over the same problems are the same."""
    rows = rows_of(few, "neighbours", "published", 6, 8, True)
    assert rows["cost_min"].tolist() == rows["among_others_min"].tolist()


def test_an_oracle_that_is_not_there_says_so(few, monkeypatch):
    (row,) = rows_of(few, "gap", "am:none", 3).to_dict("records")
    assert row["status"] == "not measured" and "none.npz" in row["reason"] and row["cost_min"] is None
    monkeypatch.setitem(sys.modules, "pyvrp", None)
    (row,) = rows_of(few, "gap", "pyvrp:1", 3).to_dict("records")
    assert row["status"] == "not measured" and "lockstep[routing]" in row["reason"]
    monkeypatch.setattr(ORACLES["insertion"], "route", lambda *_: Answer(0, [0], 0, False))
    (row,) = rows_of(few, "gap", "insertion", 3).to_dict("records")
    days = few.oracles.gap.problems
    assert row["status"] == "not measured" and row["reason"] == f"insertion has no answer to {days} of {days} problems"


def test_a_report_has_means_and_reasons(few):
    frame = pd.concat([rows_of(few, "gap", "insertion", 1), rows_of(few, "gap", "am:none", 1)])
    mean = frame["cost_min"].mean()
    first, last = oracles.report(frame).splitlines()
    assert f"{mean:8.1f} min" in first and last.startswith("am:none: ")
