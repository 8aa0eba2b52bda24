"""Environment steps per second: one batch size, all settings, fused steps."""

import pandas as pd

from lockstep import paper
from lockstep.experiments.ledger import results
from lockstep.paper import quantities
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
from lockstep.paper.typeset import DASH, TIMES, Column, count, interval, missing, number, short_time, si, text, times

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


def at_one_size(run) -> list[dict]:
    """The settings of a run at the batch size at which it is told, one for each rung and number of threads.

    Where something is missing of a rung, none is its fastest of all sizes; `incomplete` are those that were missing at
    this size too, or nearer to the one that is told.
    """
    told = told_at(run.provenance["environment"])
    rows, missing_groups = [], results.missing_groups(run.provenance)
    for (name, _), group in in_ladder_order(run).groupby(["rung", "threads"], sort=False):
        if (group["policy"] == "random").any():
            group = group[group["policy"] == "random"]
        # A rung that was not run at that size (a single original) is taken at the nearest to it.
        distance = (group["num_envs"] - told).abs()
        at_size = group[distance == distance.min()]
        chosen, peak = at_size.loc[at_size["rate"].idxmax()], group.loc[group["rate"].idxmax()]
        about = {"incomplete": False, "peak_rate": peak["rate"], "peak_num_envs": peak["num_envs"]}
        absent = [one for one in missing_groups if one.get("rung", name) == name and one.get("policy") != "fixed"]
        if absent:
            distances = [abs(one.get("num_envs", told) - told) for one in absent]
            about = {"incomplete": min(distances) <= distance.min(), "peak_rate": NAN, "peak_num_envs": NAN}
        rows.append({**chosen, **about})
    return rows


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


def of_family(heading: str, name: str) -> Column:
    """A rate; of the port on the CPU with its ratio to the original."""

    def cell(row) -> str:
        if missing(row[f"{name}_rate"]):
            return DASH
        bare = not name.startswith("port-cpu") or missing(row[f"{name}_ratio"])
        return si(row[f"{name}_rate"]) + ("" if bare else f" ({times(row[f'{name}_ratio'])})")

    return Column(heading, cell, "number")


@table(
    "All environments, steps per second at one batch size B, each on the number of threads that is fastest. In "
    "brackets, the ratio to the original, one environment in one process of the same machine.",
    *ONE_MACHINE,
    number("B", "num_envs", count),
    *(of_family(heading, name) for heading, name in FAMILY.items()),
    number("fastest, any size", "peak_rate", si),
)
def family(datasets):
    def one_line(run) -> list[dict]:
        rows = pd.DataFrame(at_one_size(run))
        distance = (rows["num_envs"] - told_at(run.provenance["environment"])).abs()
        found: dict = {"num_envs": rows.loc[distance.idxmin(), "num_envs"]}
        for name in FAMILY.values():
            of_rung = rows[(rows["rung"] == name) & ~rows["incomplete"]]
            best = of_rung.loc[of_rung["rate"].idxmax()] if len(of_rung) else {}
            found |= {f"{name}_{figure}": best.get(figure) for figure in ("rate", "ratio", "threads")}
        peaks = rows["peak_rate"].where(rows["rung"] != paper.NOT_LIVE)
        if run.provenance.get("missing"):  # perhaps the fastest
            peaks[:] = NAN
        peak = rows.loc[peaks.idxmax()] if peaks.notna().any() else {}
        names = {"peak_rate": "peak_rate", "peak_num_envs": "peak_num_envs", "peak_rung": "rung"}
        return [found | {column: peak.get(name) for column, name in names.items()}]

    return of_runs(datasets, "throughput", one_line, by_machine=True)


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
