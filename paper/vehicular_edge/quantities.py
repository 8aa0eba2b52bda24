"""Quantities of the operations of a step, and of what agents reach beside policies without learning."""

from collections.abc import Iterator

import pandas as pd

from lockstep.paper import typeset
from lockstep.paper.quantities import NAN, alone, extreme, matching, of, quantity, with_interval
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


@quantity(alone(lambda value: typeset.signed(value, 2)))
def lead_in_return(datasets, select, against):
    """Mean return of an agent on unseen scenarios less the largest of policies without learning; the least of maps."""
    for dataset in of(datasets, select):
        leads = [agent["return"] - others["return"].max() for agent, others in beside(dataset, select)]
        if leads:
            yield dataset, min(leads), NAN, NAN


@quantity(alone(lambda value: f"{typeset.signed(100 * value, 1)} points"))
def lead_on_time(datasets, select, against):
    """Its share of tasks on time less the largest of those that cost no more, at any penalty weight; likewise."""
    for dataset in of(datasets, select):
        leads = [
            agent["on_time"] - others["on_time"].where(others["cost"] <= agent["cost"], 0.0).max()
            for agent, others in beside(dataset, select, weights=True)
        ]
        if leads:
            yield dataset, min(leads), NAN, NAN


def beside(dataset, select, weights: bool = False) -> Iterator[tuple[pd.Series, pd.DataFrame]]:
    """Means of the agent that a selector names, and of the policies without learning, map by map; the original's.

    They are over the unseen scenarios that all of them have played.

    weights: search under other prices of cost than the reward's counts among them.
    """
    frame = dataset.frame.assign(environment=dataset.provenance["environment"])
    frame = frame[(frame["level"] == "episode") & (frame["form"] == "original") & (frame["seen"] == 0)]
    unlearned = frame[frame["trained_on"].isna() & (weights | (frame["penalty_weight"] == 1.0))]
    for _, agent in matching(frame, select).groupby(policies.SETTING, dropna=False):
        others = unlearned[unlearned["traffic"].isin(agent["traffic"])]
        played = others.groupby(policies.SETTING, dropna=False)["scenario"].agg(set)
        shared = set(agent["scenario"]).intersection(*played)
        agent, others = (rows[rows["scenario"].isin(shared)] for rows in (agent, others))
        yield agent[COMPARED].mean(), others.groupby(policies.SETTING, dropna=False)[COMPARED].mean()
