"""Policies of the vehicular edge."""

from collections.abc import Callable

import pandas as pd

from lockstep.paper.tables import FORM, RUN, of_asked, table
from lockstep.paper.typeset import DASH, Column, count, missing, number, percent, significant, text, with_interval
from lockstep.paper.vehicular_edge import policies as sums

EMPTY = "No environment has tasks to offload, or nothing was measured."


def both(row) -> str:
    """Median and 95th percentile of the delay."""
    return DASH if missing(row["delay_p50_s"]) else ", ".join(significant(row[name], 2) for name in sums.DELAYS)


def policy(row) -> str:
    return DASH if missing(row["policy"]) else sums.named(row["policy"], row["trained_on"])


COLUMNS = (
    *RUN,
    text("map", "traffic", merge=True),
    Column("policy", policy),
    FORM,
    number("episodes", "episodes", count),
    with_interval("return", "return", significant),
    with_interval("cost", "cost", significant),
    with_interval("admitted", "success", percent),
    with_interval("on time", "on_time", percent),
    Column("delay, s: median, 95 %", lambda row: both(row), "number"),
    with_interval("energy, kJ", "energy_j", lambda joules: significant(joules / 1e3)),
)


@table(
    "Policies on scenarios that no agent was trained on: means over episodes with bootstrap intervals, for agents "
    "over seeds (none below five); cost is per slot, return and energy per episode. Admitted and on time are shares "
    "of all tasks; delays are those of admitted tasks, infinite if still queued and late at the end.",
    *COLUMNS,
    empty=EMPTY,
    folded=True,
)
def offloading(datasets):
    return of_runs(datasets, lambda found: found[(found["penalty_weight"] == 1.0) & ~found["seen"].astype(bool)])


@table(
    "Agents trained on one frozen scenario beside agents trained on many, each on scenarios seen in training and on "
    "unseen ones.",
    *RUN,
    text("map", "traffic", merge=True),
    Column("policy", policy, merge=True),
    text("played on", "seen", lambda seen: "seen" if seen else "unseen"),
    *COLUMNS[5:],
    empty=EMPTY,
)
def generalisation(datasets):
    return of_runs(datasets, lambda found: found[found["trained_on"].notna()])


@table(
    "The penalty weight of the per-slot search, varied.",
    *RUN,
    text("map", "traffic", merge=True),
    Column("policy", policy, merge=True),
    number("penalty weight", "penalty_weight", lambda weight: f"{weight:g}"),
    *COLUMNS[5:],
    empty=EMPTY,
    folded=True,
)
def penalty_weights(datasets):
    def swept(found: pd.DataFrame) -> pd.DataFrame:
        found = found[found["form"] == "original"]
        varied = found.groupby(["traffic", "policy"])["penalty_weight"].transform("nunique") > 1
        return found[varied].sort_values(["traffic", "policy", "penalty_weight"], kind="stable")

    return of_runs(datasets, swept)


def of_runs(datasets: list, chosen: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
    """Rows of the summary of every run; where none has such rows, one that says so."""
    found = of_asked(datasets, "offloading", lambda run: chosen(sums.summary(run)))
    return found if len(found) else of_asked([], "offloading", chosen)
