"""The gain of each step of the ladder, and the batch size from which on a batch pays."""

import math

import numpy as np
import pandas as pd

from lockstep import paper
from lockstep.paper import quantities
from lockstep.paper.families import told_at
from lockstep.paper.tables import ONE_MACHINE, RUN, label, of_runs, table
from lockstep.paper.typeset import DASH, LESS, SPACE, Column, count, interval, missing, number, si, text, times

# Two ways up the ladder: what each step adds, and the rung that it leads to. A rung that was not run is passed over,
# and the next step adds what both do; but for indexing, which no other step does as well.
WAYS = {
    "CPU": (
        (None, {"rung": "original"}),
        ("indexing", {"rung": "original-indexed"}),
        ("batching", {"rung": "arrays-numpy"}),
        ("compiling", {"rung": "port-cpu", "threads": 1}),
        ("fusing", {"rung": "port-cpu-fused", "threads": 1}),
        ("threads", {"rung": "port-cpu-fused", "threads": "all"}),
    ),
    "GPU": (
        (None, {"rung": "original"}),
        ("batching on GPU", {"rung": "arrays-cupy"}),
        ("one kernel", {"rung": "port-cuda-sync"}),
        ("not waiting", {"rung": "port-cuda"}),
        ("graph", {"rung": "port-cuda-graph"}),
        ("fusing", {"rung": "port-cuda-fused"}),
    ),
}
SINGLE = ("original", "original-indexed")  # one environment, whatever the batch size
# Contests of two rungs: heading, the one, the other.
CONTESTS = {
    "CPU over the original": ("port-cpu", "original"),
    "CPU over the indexed original": ("port-cpu", "original-indexed"),
    "CPU over Gymnasium's vector class": ("port-cpu", "gymnasium-vector"),
    "GPU over the original": ("port-cuda", "original"),
    "GPU over CPU": ("port-cuda", "port-cpu"),
    "GPU, graph, over CPU": ("port-cuda-graph", "port-cpu"),
}


@table(
    "What each step of the ladder multiplies the rate by, at one batch size for each way, with a bootstrap interval; "
    "both rates are from one run. A rung that was not run at that size is joined with the next.",
    *RUN,
    text("way", "way", merge=True),
    text("step", "step"),
    Column("from", lambda row: DASH if missing(row["before"]) else paper.rung(row["before"]).label),
    Column("to", label),
    number("B", "num_envs", count),
    number("factor", "factor", times),
    interval("95 % interval", "low", "high", "factor"),
    number("rate, steps/s", "rate", si),
    folded=True,
)
def breakdown(datasets):
    return of_runs(datasets, "throughput", lambda run: steps(run) or [{"way": None}])


@paper.once
def steps(run) -> list[dict]:
    """The steps of both ways, each at one batch size: that which the environment is told at, or the nearest."""
    rates, rows = quantities.rates(run), []
    usual = rates[(rates["policy"] == "random") & (rates["obs"] == "copy")]
    told = told_at(run.provenance["environment"])
    for way, rungs in WAYS.items():
        before, added, size = None, [], nearest_size(usual, [select for _, select in rungs], told)
        at_size = usual[usual["rung"].isin(SINGLE) | (usual["num_envs"] == size)]
        for step, select in rungs:
            found = fastest(at_size, select)
            if found is None and step == "indexing":
                continue
            added += [step] if step else []
            if found is None or (before is not None and not different(found, before)):
                continue
            if before is not None:
                factor = quantities.ratio_to(run, found, before)
                about = {"way": way, "step": " + ".join(added), "before": before["rung"], "rung": found["rung"]}
                figures = {"factor": factor.ratio, "low": factor.low, "high": factor.high}
                speeds = {"rate_before": before["rate"], "rate": found["rate"]}
                sizes = {"num_envs": found["num_envs"], "other_size": None if size == told else size}
                rows.append(about | sizes | figures | speeds)
            before, added = found, []
    return rows


def nearest_size(rates: pd.DataFrame, rungs: list[dict], told: int) -> int:
    """The batch size nearest to `told` at which any of these rungs was run; `told` where none was."""
    batches = rates[~rates["rung"].isin(SINGLE)]
    sizes = pd.concat([quantities.matching(batches, select) for select in rungs])["num_envs"].unique()
    return min(sizes, key=lambda size: abs(size - told), default=told)


def fastest(rates: pd.DataFrame, select: dict) -> pd.Series | None:
    """The fastest setting of a rung; None where it was not run."""
    found = quantities.matching(rates, select)
    return found.loc[found["rate"].idxmax()] if len(found) else None


def different(row: pd.Series, other: pd.Series) -> bool:
    """True where two settings are not the same one: with a single core the last step leads nowhere."""
    return (row["rung"], row["threads"]) != (other["rung"], other["threads"])


@table(
    "Batch size from which one rung is faster than another on the same machine, at one step per call; interpolated "
    "between the measured sizes in brackets. A dash: one of the two was not run.",
    *ONE_MACHINE,
    *(Column(heading, lambda row, heading=heading: from_size(row, heading), "number") for heading in CONTESTS),
)
def break_even(datasets):
    def one_line(run) -> list[dict]:
        rates, found = quantities.rates(run), {}
        for heading, (one, other) in CONTESTS.items():
            figures = zip(("at", "low", "high"), crossing(gain(rates, one, other)), strict=True)
            found |= {f"{heading}: {name}": value for name, value in figures}
        return [found]

    return of_runs(datasets, "throughput", one_line, by_machine=True)


def gain(rates: pd.DataFrame, one: str, other: str) -> pd.Series:
    """Rate of one rung over that of another by batch size, at the sizes that both ran; a single original at all."""

    def curve(name: str) -> pd.Series:
        usual = rates[(rates["rung"] == name) & (rates["policy"] == "random") & (rates["obs"] == "copy")]
        return usual.groupby("num_envs")["rate"].max()

    ours, theirs = curve(one), curve(other)
    if other in SINGLE:
        return ours / theirs.max()
    return (ours / theirs).dropna()


def crossing(gain: pd.Series) -> tuple[float, float, float]:
    """The batch size from which on a gain by size stays above one, and the sizes measured on either side of it.

    Interpolated between logarithms. Above one at every size: the smallest, twice. Below it at the largest: infinity.
    Nothing measured: NaN.
    """
    gain = gain.dropna().sort_index()
    if gain.empty:
        return math.nan, math.nan, math.nan
    sizes, behind = gain.index.to_numpy(dtype=float), np.flatnonzero(gain.to_numpy() < 1)
    if not len(behind):
        return sizes[0], sizes[0], sizes[0]
    last = behind[-1]
    if last == len(sizes) - 1:
        return math.inf, sizes[last], math.inf
    around = slice(last, last + 2)
    at = np.exp(np.interp(0, np.log(gain.to_numpy()[around]), np.log(sizes[around])))
    return float(at), sizes[last], sizes[last + 1]


def from_size(row, heading: str) -> str:
    """A crossing in words."""
    at, low, high = (row[f"{heading}: {name}"] for name in ("at", "low", "high"))
    if missing(at):
        return DASH
    if math.isinf(at):
        return f"above {count(low)}"
    if low == high:
        return f"{LESS}{SPACE}{count(at)}"
    return f"{count(math.ceil(at))} ({count(low)} {DASH} {count(high)})"
