"""Oracles of oracles.csv: gaps to PyVRP, and costs that depend on neighbours, one row per setting."""

import numpy as np
import pandas as pd

from lockstep import paper
from lockstep.experiments.bench.statistics import resampled
from lockstep.experiments.curves import wilson
from lockstep.experiments.experiment import MEASURED

NAME = "vehicle_routing"
DRAWS = 2000
LOOKS = {  # label, colour, marker, in the order of legends and tables
    "insertion": ("insertion", "#0072B2", "o"),
    "am": ("attention model, greedy", "#D55E00", "s"),
    "am-sample": ("attention model, best of {} samples", "#CC79A7", "D"),
    "am-pomo": ("attention model, best of {} first pickups", "#AA4422", "P"),
    "greedy:mixed": ("greedy, soonest and nearest", "#009E73", "^"),
    "greedy:nearest": ("greedy, nearest", "#E69F00", "v"),
    "greedy:soonest": ("greedy, soonest", "#56B4E9", ">"),
    "ortools": ("OR-Tools, {} s", "#117733", "d"),
    "pyvrp": ("PyVRP, {} s", "#6655CC", "X"),
}
REFERENCE = "pyvrp"


def look(oracle: str) -> tuple[str, str, str]:
    """Label, colour and marker of an oracle's word; an unknown one in grey under its own name."""
    name, _, argument = oracle.partition(":")
    label, colour, marker = LOOKS.get(oracle) or LOOKS.get(name) or (oracle, "#777777", "X")
    return label.format(argument), colour, marker


def place(oracle: str) -> tuple[int, str]:
    """The place of an oracle in legends and tables."""
    known = [name for name in LOOKS if name in (oracle, oracle.partition(":")[0])]
    return (list(LOOKS).index(known[-1]) if known else len(LOOKS)), oracle


@paper.once
def gaps(run) -> pd.DataFrame:
    """One row per oracle and number of requests: mean cost and vehicles, and `gap` with its bootstrap interval.

    gap: mean over problems of the cost over that of PyVRP's longest run, less 1; NaN of that itself. Of an oracle that
    could not be had, the reason alone.
    """
    frame = run.frame[run.frame["part"] == "gap"]
    known = frame[(frame["status"] == MEASURED) & (frame["oracle"].str.partition(":")[0] == REFERENCE)]
    longest = max(known["oracle"], key=lambda word: float(word.partition(":")[2]), default=None)
    best = known[known["oracle"] == longest].set_index(["requests", "problem"])["cost_min"]
    rows = []
    for (oracle, requests), part in frame.groupby(["oracle", "requests"], sort=False):
        row = {"oracle": oracle, "requests": requests, "reference": longest, "reason": part["reason"].iloc[0]}
        if (part["status"] == MEASURED).all():
            row |= {"problems": len(part), "cost_min": part["cost_min"].mean(), "vehicles": part["vehicles"].mean()}
        if longest != oracle and "problems" in row and requests in best.index.get_level_values("requests"):
            excess = part["cost_min"].to_numpy() / best.loc[requests].loc[part["problem"]].to_numpy() - 1
            low, high = resampled(np.mean, excess, draws=DRAWS)
            row |= {"gap": excess.mean(), "gap_low": low, "gap_high": high}
        rows.append(row)
    rows.sort(key=lambda row: (place(row["oracle"]), row["requests"]))
    columns = ["oracle", "requests", "problems", "cost_min", "gap", "gap_low", "gap_high", "vehicles", "reference"]
    return pd.DataFrame(rows, columns=[*columns, "reason"]).assign(
        environment=run.provenance["environment"], part="gap"
    )


@paper.once
def among_others(run) -> pd.DataFrame:
    """One row per weights, batch and statistics: `changed`, the share of costs that other neighbours change.

    With Wilson's interval; change_min and most_min: mean and largest absolute change.
    """
    frame = run.frame[run.frame["part"] == "neighbours"]
    keys, rows = ["oracle", "requests", "batch", "batch_statistics"], []
    for key, part in frame.groupby(keys, sort=False):
        row = dict(zip(keys, key, strict=True)) | {"reason": part["reason"].iloc[0]}
        if (part["status"] == MEASURED).all():
            change = (part["among_others_min"] - part["cost_min"]).abs()
            share = wilson(int((change > 0).sum()), len(part))
            row |= dict(zip(("changed", "changed_low", "changed_high"), share, strict=True))
            row |= {"problems": len(part), "change_min": change.mean(), "most_min": change.max()}
        rows.append(row)
    columns = [*keys, "problems", "changed", "changed_low", "changed_high", "change_min", "most_min", "reason"]
    return pd.DataFrame(rows, columns=columns).assign(environment=run.provenance["environment"], part="neighbours")
