"""Environment steps per second: one batch size, all settings, fused steps."""

from collections.abc import Mapping

import pandas as pd

from lockstep import paper
from lockstep.experiments.ledger import results
from lockstep.paper import quantities
from lockstep.paper.common.tables.gains import SINGLE
from lockstep.paper.families import told_at
from lockstep.paper.tables import (
    ONE_MACHINE,
    RATES,
    RATIO,
    RUN,
    SETTING,
    in_ladder_order,
    label,
    of_runs,
    table,
)
from lockstep.paper.typeset import (
    DASH,
    SPACE,
    TIMES,
    Column,
    count,
    interval,
    missing,
    number,
    short_time,
    si,
    text,
    times,
)

NAN = float("nan")


@table(
    "The ladder at one batch size, in live environment steps. A ratio divides by the original of the same run.",
    *RUN,
    Column("rung", label),
    *SETTING,
    *RATES,
    RATIO,
    Column("fastest of all sizes", lambda row: fastest(row), "number"),
    folded=True,
)
def ladder(datasets):
    return of_runs(datasets, "throughput", at_one_size)


@paper.once
def at_one_size(run) -> list[dict]:
    """The settings of a run at the batch size at which it is told, one for each rung and number of threads.

    Where something is missing of a rung, none is its fastest of all sizes; `incomplete` are those that were missing at
    this size too, or nearer to the one that is told, `partial` those at this very size. `other_size` is the size where
    it is not the one that is told, `of_cores` the cores of the machine where a rung of the CPU ran on fewer threads.
    """
    told, cores = told_at(run.provenance["environment"]), run.provenance["machine"].get("cores", 1)
    most = in_ladder_order(run).groupby(["rung", "num_envs"])["threads"].max()
    rows, missing_groups = [], results.missing_groups(run.provenance)
    for (name, _), group in in_ladder_order(run).groupby(["rung", "threads"], sort=False):
        if (group["policy"] == "random").any():
            group = group[group["policy"] == "random"]
        # A rung that was not run at that size (a single original) is taken at the nearest to it.
        distance = (group["num_envs"] - told).abs()
        at_size = group[distance == distance.min()]
        chosen, peak = at_size.loc[at_size["rate"].idxmax()], group.loc[group["rate"].idxmax()]
        about = {"incomplete": False, "partial": False, "peak_rate": peak["rate"], "peak_num_envs": peak["num_envs"]}
        absent = [one for one in missing_groups if one.get("rung", name) == name and one.get("policy") != "fixed"]
        if absent:
            distances = [abs(one.get("num_envs", told) - told) for one in absent]
            about = {"incomplete": min(distances) <= distance.min(), "peak_rate": NAN, "peak_num_envs": NAN}
            about["partial"] = any(one.get("num_envs", chosen["num_envs"]) == chosen["num_envs"] for one in absent)
        about["other_size"] = chosen["num_envs"] if name not in SINGLE and distance.min() else NAN
        few = name.startswith("port-cpu") and most[name, chosen["num_envs"]] < cores
        rows.append({**chosen, **about, "of_cores": cores if few else NAN})
    return rows


def best(rows: pd.DataFrame) -> Mapping:
    """Of the rows that `at_one_size` has of a rung the fastest, of other sizes the nearest; empty where none is whole.

    A size counts of which all that was asked for is measured: that which is told, or else another one.
    """
    whole = rows[~rows["incomplete"].astype(bool)]
    whole = whole if len(whole) else rows[~rows["partial"].astype(bool)]
    if not len(whole):
        return {}
    distance = (whole["other_size"] - whole["environment"].map(told_at)).abs().fillna(0)
    nearest = whole[distance == distance.min()]
    return nearest.loc[nearest["rate"].idxmax()]


def rate_of(row: Mapping, bare: bool = False) -> str:
    """A rate with its ratio to the original, unless that is to be left out, and with its size and threads if named."""
    said = si(row["rate"]) + ("" if bare or missing(row["ratio"]) else f"{SPACE}({times(row['ratio'])})")
    said += "" if missing(row["other_size"]) else f" at {count(row['other_size'])}"
    threads, _ = quantities.thread_words(row["threads"], NAN, NAN)
    return said + ("" if missing(row["of_cores"]) else f", {threads} of {count(row['of_cores'])}")


def fastest(row) -> str:
    return DASH if missing(row["peak_rate"]) else f"{si(row['peak_rate'])} at {count(row['peak_num_envs'])}"


FAMILY = {  # columns of the overview, and the rungs that they show
    "original": "original",
    "Gymnasium's vector class": "gymnasium-vector",
    "CPU, call per step": "port-cpu",
    "CPU, fused": "port-cpu-fused",
    "GPU, graph": "port-cuda-graph",
    "GPU, fused": "port-cuda-fused",
}


FIGURES = ("rate", "ratio", "threads", "other_size", "of_cores")  # of a rung in the overview
ELSEWHERE = "elsewhere"  # a rung's figures at another size than the one that is told


def of_rung(heading: str, name: str, bare: bool = False) -> Column:
    """A rung's rate in the overview, at the size that is told or else at another; perhaps without its ratio."""

    def cell(row) -> str:
        key = name if missing(row[f"{name}_{ELSEWHERE}_rate"]) else f"{name}_{ELSEWHERE}"
        figures = {figure: row[f"{key}_{figure}"] for figure in FIGURES}
        return DASH if missing(figures["rate"]) else rate_of(figures, bare)

    return Column(heading, cell, "number")


@paper.once
def overview_of(run) -> list[dict]:
    """The line of a run in the overview: the figures of each of its rungs, and the fastest of all."""
    rows = pd.DataFrame(at_one_size(run)).assign(environment=run.provenance["environment"])
    found: dict = {"num_envs": told_at(run.provenance["environment"])}
    for name in FAMILY.values():
        chosen = best(rows[rows["rung"] == name])
        there = not missing(chosen.get("other_size"))
        for key, figures in ((name, {} if there else chosen), (f"{name}_{ELSEWHERE}", chosen if there else {})):
            found |= {f"{key}_{figure}": figures.get(figure) for figure in FIGURES}
    peaks = rows["peak_rate"].where(rows["rung"] != paper.NOT_LIVE)
    if run.provenance.get("missing"):  # perhaps the fastest
        peaks[:] = NAN
    peak = rows.loc[peaks.idxmax()] if peaks.notna().any() else {}
    names = {"peak_rate": "peak_rate", "peak_num_envs": "peak_num_envs", "peak_rung": "rung"}
    return [found | {column: peak.get(name) for column, name in names.items()}]


@table(
    "All environments, steps per second at one batch size B (else at the nearest size measured, which is named), each "
    "on the fastest of the numbers of threads that were measured (named where all are fewer than the cores). In "
    "brackets, the ratio to the original, one environment in one process of the same machine.",
    *ONE_MACHINE,
    number("B", "num_envs", count),
    *(of_rung(heading, name, bare=not name.startswith("port-cpu")) for heading, name in FAMILY.items()),
    number("fastest, any size", "peak_rate", si),
)
def family(datasets):
    return of_runs(datasets, "throughput", overview_of, by_machine=True)


@table(
    "Throughput of every setting. Memory: the increase of memory in use, on the device that the rung runs on.",
    *RUN,
    Column("rung", label, merge=True),
    *SETTING,
    text("policy", "policy"),
    text("observations", "obs"),
    text("type", "dtype"),
    *RATES,
    RATIO,
    interval("5 to 95 % of blocks", "rate_p5", "rate_p95", "rate"),
    number("first call", "first_call_s", short_time),
    number("memory, MiB", "memory_mib"),
    folded=True,
)
def throughput(datasets):
    return of_runs(datasets, "throughput", in_ladder_order)


@table(
    "Steps fused into one call against one call per step, with the same batch, threads and policy.",
    *RUN,
    Column("rung", label, merge=True),
    text("policy", "policy"),
    *SETTING,
    *RATES,
    number(f"{TIMES} call per step", "gain", times),
    folded=True,
)
def fused_steps(datasets):
    def with_base(run) -> list[dict]:
        rates = in_ladder_order(run)
        rates = rates[(rates["num_envs"] == told_at(run.provenance["environment"])) & (rates["obs"] != "view")]
        rows = []
        for row in rates.to_dict("records"):
            base, _, kind = row["rung"].rpartition("-")
            if kind not in ("fused", "trajectory"):
                continue
            same = quantities.matching(rates, {"rung": base, "policy": row["policy"], "threads": row["threads"]})
            below = same.iloc[0] if len(same) else {}
            of_base = {f"base_{name}": below.get(name, NAN) for name in ("rate", "rate_low", "rate_high")}
            rows.append(row | of_base | {"gain": row["rate"] / of_base["base_rate"]})
        return rows

    return of_runs(datasets, "throughput", with_base)
