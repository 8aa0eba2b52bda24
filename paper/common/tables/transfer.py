"""The share of copies between host and device in a loop."""

from collections.abc import Callable

from lockstep.experiments.shares import CLOSURE, NEEDS_GPU
from lockstep.paper import quantities, rung
from lockstep.paper.common.quantities.loops import shares_of
from lockstep.paper.tables import RUN, of_asked, table
from lockstep.paper.typeset import DASH, SPACE, Column, count, missing, number, percent, short_time, significant

SETTINGS = {"note": "a: timed apart", "real": "b: a loop", "resident": "c: resident", "rows": "d: row by row"}
DEVICES = {"cuda": "GPU", "cpu": "CPU"}


def of_rows(words: str) -> Callable[[list], str]:
    """Words of a caption on setting d, for datasets that have rows of it."""

    def said(datasets: list) -> str:
        runs = quantities.of(datasets, {"experiment": "transfer"})
        return words if any((run.frame["loop"] == "rows").any() for run in runs) else ""

    return said


@table(
    "Copies between host and device, as medians per step of the whole batch. a: step and copies timed apart, as in the "
    "source document; b: a loop with a policy of two layers of 64; c: the same policy where the port is.",
    *RUN,
    Column("setting", lambda row: SETTINGS.get(row["loop"], DASH), merge=True),
    Column("policy on", lambda row: DASH if row["loop"] == "note" else DEVICES.get(row["device"], DASH)),
    Column("environments", lambda row: DASH if missing(row["source"]) else rung(row["source"]).label),
    Column("host memory", lambda row: DASH if missing(row["memory"]) or row["memory"] == "none" else row["memory"]),
    number("B", "num_envs", count),
    number("up", "up", short_time),
    number("policy", "policy", short_time),
    number("down", "down", short_time),
    number("step", "step", short_time),
    number("loop", "whole", short_time),
    Column("transfer", lambda row: transferred(row), "number"),
    number("copies over step", "over_step", percent),
    Column("parts over loop", lambda row: closure(row), "number"),
    number("copies", "copies", "{:g}".format),
    number("copy within the host", "host_copy", short_time),
    more=of_rows("; d: b for one original after the other, each with a call of the policy of its own"),
    folded=True,
)
def transfer(datasets):
    return of_asked(datasets, "transfer", with_gaps)


def with_gaps(run) -> list[dict]:
    """The summary of a run, and what a machine without a GPU could not measure."""
    rows = shares_of(run).to_dict("records")
    if not any(row["device"] == "cuda" for row in rows):
        present = {row["loop"] for row in rows}
        rows += [{"loop": loop, "device": "cuda", "remark": NEEDS_GPU} for loop in SETTINGS if loop in present]
    return [{"remark": None, **row} for row in sorted(rows, key=place)]


def place(row: dict) -> tuple:
    """The place of a row: settings and devices in their order, the sizes of each loop together."""
    where = list(SETTINGS).index(row["loop"]), list(DEVICES).index(row["device"])
    return *where, row.get("source", ""), row.get("memory", ""), row.get("num_envs", 0)


def transferred(row) -> str:
    """The share of transfer with its interval, or why there is none."""
    if not missing(row["remark"]):
        return row["remark"]
    if missing(row["share"]):
        return DASH
    apart = missing(row["share_low"]) or row["share_low"] == row["share_high"]
    interval = "" if apart else f" [{percent(row['share_low'])}, {percent(row['share_high'])}]"
    return percent(row["share"]) + interval


def closure(row) -> str:
    if missing(row["closure"]):
        return DASH
    apart = "" if abs(row["closure"] - 1) <= CLOSURE else ", apart"
    return f"{significant(100 * row['closure'])}{SPACE}%{apart}"
