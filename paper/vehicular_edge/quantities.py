"""Quantities of the operations of a step, and of what agents reach beside policies without learning."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from lockstep.experiments.bench.statistics import resampled
from lockstep.experiments.ledger import results
from lockstep.experiments.vehicular_edge import LIKELIEST
from lockstep.paper import typeset
from lockstep.paper.quantities import NAN, alone, extreme, matching, of, quantity, unanswered, with_interval
from lockstep.paper.vehicular_edge import policies, summaries

COMPARED = ["return", "on_time", "cost"]


@quantity(with_interval(typeset.short_time))
def operation_time(datasets, select, against):
    """Seconds that an operation takes of a step of one environment; of several settings the shortest."""
    return extreme(datasets, select, summaries.operations, "seconds", "min")


@quantity(with_interval(typeset.times))
def operation_ratio(datasets, select, against):
    """Times faster than in the original that an operation is; of several settings the fastest."""
    return extreme(datasets, select, summaries.operations, "ratio")


@quantity(alone(typeset.percent))
def operation_share(datasets, select, against):
    """Share of an operation in the whole step of the same form and setting; of several the largest."""
    for dataset in of(datasets, select):
        shares = matching(summaries.operations(dataset), select)["share"].dropna().astype(float)
        if len(shares):
            yield dataset, float(shares.max()), NAN, NAN


@quantity(with_interval(lambda value: typeset.signed(value, 2)))
def lead_in_return(datasets, select, against):
    """Mean return of an agent on unseen scenarios less the largest of policies without learning; the least of maps.

    Its interval is of a bootstrap over each map's seeds.
    """
    for dataset in of(datasets, select):
        yield from least(
            dataset, [agent["return"] - others["return"].max() for agent, others in beside(dataset, select)]
        )


@quantity(with_interval(lambda value: f"{typeset.signed(100 * value, 1)} points"))
def lead_on_time(datasets, select, against):
    """Its share of tasks on time less the largest of those that cost no more, or of the cheapest if none is as cheap.

    Likewise the least of maps. Those that search do so at other penalty weights, too, on maps where these are varied.
    """
    for dataset in of(datasets, select):
        leads = []
        for agent, others in beside(dataset, select, weights=True):
            limit = max(agent["cost"].mean(), others["cost"].min())
            leads.append(agent["on_time"] - others["on_time"][others["cost"] <= limit].max())
        yield from least(dataset, leads)


def least(dataset, leads: list[pd.Series]) -> Iterator[tuple]:
    """The smallest of the maps' means over seeds; its interval draws seeds anew on every map, none of few seeds."""

    def smallest(*maps: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.min([seeds.mean(axis=axis) for seeds in maps], axis=0)

    if leads:
        maps = [lead.to_numpy() for lead in leads]
        enough = min(map(len, maps)) >= policies.FEW
        interval = resampled(smallest, *maps, draws=policies.RESAMPLES) if enough else (NAN, NAN)
        yield dataset, float(smallest(*maps)), *interval


def beside(dataset, select, weights: bool = False) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Means of each seed of the agent that a selector names, and of each policy without learning, map by map.

    They are the original's, over the unseen scenarios that all of them have played; a map that lacks either is left
    out. Nothing while seeds of the agent, or policies without learning, are yet to be measured.

    weights: search under other prices of cost than the reward's counts among them.
    """
    named, missing = select["policy"].removesuffix(LIKELIEST), results.missing_groups(dataset.provenance)
    if unanswered(dataset, {**select, "policy": named}) or any(one["trained_on"] is None for one in missing):
        return
    frame = dataset.frame.assign(environment=dataset.provenance["environment"])
    frame = frame[(frame["level"] == "episode") & (frame["form"] == "original") & (frame["seen"] == 0)]
    unlearned = frame[frame["trained_on"].isna() & (weights | (frame["penalty_weight"] == 1.0))]
    for _, agent in matching(frame, select).groupby(policies.SETTING, dropna=False):
        others = unlearned[unlearned["traffic"].isin(agent["traffic"])]
        played = others.groupby(policies.SETTING, dropna=False)["scenario"].agg(set)
        shared = set(agent["scenario"]).intersection(*played)
        agent, others = (rows[rows["scenario"].isin(shared)] for rows in (agent, others))
        if len(agent) and len(others):
            of_seeds, of_policies = agent.groupby("seed"), others.groupby(policies.SETTING, dropna=False)
            yield of_seeds[COMPARED].mean(), of_policies[COMPARED].mean()
