"""Quality of routing oracles: costs beside those of PyVRP, and costs among other neighbours in a batch.

gap         the first requests of a day as they are asked, which every oracle routes
neighbours  the learned oracle, whose batch norm takes the statistics of the batch or stored ones: the same problems
            in batches, and again among others
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lockstep.envs.vehicle_routing.oracles import Problem, make_oracle, problem_of
from lockstep.envs.vehicle_routing.oracles.attention import Attention
from lockstep.envs.vehicle_routing.params import TICKS, Params, make_params
from lockstep.envs.vehicle_routing.scenario import Scenario, city, draw
from lockstep.experiments import experiment
from lockstep.experiments.config import Settings
from lockstep.experiments.experiment import MEASURED, MISSING, Experiment, Plan, Request, by_label, each

COLUMNS = [
    *("environment", "part", "oracle", "requests", "batch", "batch_statistics", "problem"),
    *("cost_min", "among_others_min", "vehicles", "status", "reason"),
]
# A row is a problem. oracle: its word, of `neighbours` the weights. batch: problems of one. among_others_min: cost
# with other neighbours, of `neighbours` alone.


@dataclass(frozen=True)
class Group(experiment.Group):
    """Rows that are measured and journalled in one piece."""

    part: str  # gap | neighbours
    oracle: str
    requests: int
    batch: int = 1
    batch_statistics: bool = False


def groups(settings: Settings) -> list[Group]:
    """The groups of the settings, each once."""
    gap, others = settings.oracles.gap, settings.oracles.neighbours
    found = [Group("gap", oracle, n) for n in gap.requests for oracle in (*gap.oracles, *gap.references)]
    found += [
        Group("neighbours", name, others.requests, batch, statistics)
        for name in others.weights
        for batch in others.batches
        for statistics in (True, False)
    ]
    return list(dict.fromkeys(found))


def measure(name: str, group: Group, settings: Settings) -> list[dict]:
    """The rows of a group; a single one, with the reason, where the oracle is not to be had."""
    same = dict.fromkeys(COLUMNS) | {"environment": name, **vars(group)}
    try:
        columns = (gap if group.part == "gap" else neighbours)(group, settings)
    except (ImportError, ValueError) as error:
        return [same | {"status": MISSING, "reason": str(error)}]
    rows = pd.DataFrame(columns).to_dict("records")
    return [same | {"problem": number, "status": MEASURED} | row for number, row in enumerate(rows)]


def gap(group: Group, settings: Settings) -> dict[str, np.ndarray]:
    """Columns of an oracle's answers to the first requests of days.

    Raises:
        ImportError: a solver is not installed.
        ValueError: weights that are not there, or days without an answer, as of a solver in too few seconds.
    """
    params = make_params()
    scenario = city(params=params)
    oracle = make_oracle(group.oracle, params, scenario.travel)
    problems = days(scenario, params, settings.oracles.seed, settings.oracles.gap.problems, group.requests)
    cost, _, vehicles, ok = oracle.solve(*stacked(problems))
    if not ok.all():
        raise ValueError(f"{group.oracle} has no answer to {(~ok).sum()} of {len(ok)} problems")
    return {"cost_min": cost / TICKS, "vehicles": vehicles}


def neighbours(group: Group, settings: Settings) -> dict[str, np.ndarray]:
    """Columns of costs in batches of problems in their order, and in batches of the same problems shuffled.

    In double precision, so that the order of a sum decides no walk.

    Raises:
        ValueError: weights that are not there.
    """
    params = make_params("original", batch_statistics=group.batch_statistics, unseeded_instances=False)
    scenario, asked = city(params=params), settings.oracles.neighbours
    given = {"chunk": group.batch, "dtype": "float64", "form": "torch"}
    oracle = Attention(params, scenario.travel, group.oracle, **given)
    columns = stacked(days(scenario, params, settings.oracles.seed, asked.problems, group.requests))
    order = np.random.default_rng(settings.oracles.seed).permutation(asked.problems)
    cost, _, vehicles, _ = oracle.solve(*columns)
    again = np.empty_like(cost)
    again[order] = oracle.solve(*(column[order] for column in columns))[0]
    return {"cost_min": cost / TICKS, "among_others_min": again / TICKS, "vehicles": vehicles}


def days(scenario: Scenario, params: Params, seed: int, number: int, requests: int) -> list[Problem]:
    """Problems of the first requests of so many days, none of them shifted."""
    found = []
    for day in range(number):
        instance = draw(scenario, params, seed, 0, day)
        asked = instance.order[:requests]
        place = [(traveller, instance.trip[traveller]) for traveller in asked]
        rows = [instance.offered[traveller] for traveller in asked]
        service = [scenario.service[one].tolist() for one in place]
        demand = [int(scenario.demand[one]) for one in place]
        found.append(problem_of(params, scenario.travel.tolist(), scenario.depot, rows, service, demand))
    return found


def stacked(problems: Sequence[Problem]) -> list[np.ndarray]:
    """Zones, earliest, latest, demand and service [B, N], as `Oracle.solve` takes them."""
    names = ("zone", "earliest", "latest", "demand", "service")
    return [np.array([getattr(problem, name) for problem in problems]) for name in names]


def report(frame: pd.DataFrame, *_) -> str:
    """Mean costs, and how many of them others change, as lines to print."""
    lines = []
    keys = ["part", "requests", "oracle", "batch", "batch_statistics"]
    for key, rows in frame[frame["status"] == MEASURED].groupby(keys, sort=False):
        changed = (rows["cost_min"] != rows["among_others_min"]).mean() if key[0] == "neighbours" else None
        words = "" if changed is None else f", {changed:.0%} change among others"
        lines.append(f"{' '.join(map(str, key)):44} {rows['cost_min'].mean():8.1f} min{words}")
    lines += [f"{row.oracle}: {row.reason}" for row in frame[frame["status"] == MISSING].itertuples()]
    return "\n".join(lines)


def plan(request: Request) -> Plan:
    name, settings = request.environment, request.settings
    return Plan(by_label(groups(settings)), each(lambda group: measure(name, group, settings)), config=request.asked())


EXPERIMENT = Experiment(COLUMNS, plan, report, timed=False, gpu=False)
