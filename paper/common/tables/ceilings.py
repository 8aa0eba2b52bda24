"""Rates against what the machine can do at most."""

import pandas as pd

from lockstep.experiments.bench import statistics
from lockstep.paper import quantities
from lockstep.paper.families import told_at
from lockstep.paper.tables import RUN, SETTING, in_ladder_order, label, of_runs, on_cpu, source, table
from lockstep.paper.typeset import (
    DASH,
    Column,
    count,
    gigabytes,
    interval,
    missing,
    number,
    percent,
    short_time,
    si,
    text,
)


@table(
    "Share of the machine's own bounds. Traffic: bytes of all buffers that a step reads and writes, times the rate; "
    "copy: the bandwidth measured for as many bytes as one call touches.",
    *RUN,
    Column("rung", label, merge=True),
    *SETTING,
    number("bytes per step", "bytes_per_step"),
    number("traffic, GB/s", "traffic", gigabytes),
    number("copy, GB/s", "copy_bandwidth", gigabytes),
    number("share reached", "share", percent),
    number("fp32 operations possible per step", "operations"),
    folded=True,
)
def roofline(datasets):
    def bounded(run) -> list[dict]:
        rates = in_ladder_order(run)
        usual = rates["rung"].str.startswith("port") & (rates["policy"] != "fixed") & (rates["obs"] != "view")
        best = rates.loc[rates[usual].groupby(["rung", "num_envs", "threads"], sort=False)["rate"].idxmax()]
        # The batch at which the environment is told, and the largest of each rung.
        largest = best["num_envs"] == best.groupby("rung")["num_envs"].transform("max")
        best = best[largest | (best["num_envs"] == told_at(run.provenance["environment"]))]
        rows = []
        for row in best.to_dict("records"):
            size = row["bytes_per_step"] * row["fused_steps"] * row["num_envs"]
            copy = quantities.copy_bandwidth(datasets, run, row["device"], size, row["threads"])
            fp32 = quantities.fp32_rate(datasets, run, row["device"], row["threads"])
            traffic = row["rate"] * row["bytes_per_step"]
            share = {"traffic": traffic, "copy_bandwidth": copy, "share": traffic / copy}
            rows += [] if missing(fp32) else [row | share | {"operations": fp32 / row["rate"]}]
        return rows or [{"rung": None}]

    return of_runs(datasets, "throughput", bounded)


@table(
    "Bounds measured on each machine: copying memory (bytes read and written) and fp32 arithmetic.",
    RUN[1],
    text("bound", "quantity", merge=True),
    text("device", "device", merge=True),
    Column("threads", lambda row: on_cpu(row, "threads", count), "number"),
    number("both buffers, B", "size_bytes", si),
    Column("median", lambda row: f"{si(row['rate'])}{unit(row)}/s", "number"),
    interval("95 % interval", "low", "high", "rate"),
    Column("time of each", lambda row: time_of_each(row), "number"),
    folded=True,
    on_gpu="; of a GPU also the cost of a launch and of a graph's node",
)
def ceilings(datasets):
    rows = []
    for run in quantities.of(datasets, {"experiment": "ceilings"}):
        keys = ["quantity", "device", "threads", "size_bytes", "unit"]
        for key, group in run.frame.groupby(keys, sort=False, dropna=False):
            found = statistics.summarise(group["amount"] / group["wall_s"])
            figures = {"rate": found.median, "low": found.low, "high": found.high}
            rows.append(source(run) | dict(zip(keys, key, strict=True)) | figures)
    return pd.DataFrame(rows, columns=None if rows else ["machine", "status"])


def unit(row) -> str:
    return "B" if row["unit"] == "byte" else f" {row['unit']}" if row["unit"] == "flop" else f" {row['unit']}s"


def time_of_each(row) -> str:
    return short_time(1 / row["rate"]) if row["unit"] in ("launch", "node") else DASH
