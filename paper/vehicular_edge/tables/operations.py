"""The operations of a slot, one by one."""

from collections.abc import Callable

from lockstep import paper
from lockstep.paper.families import about
from lockstep.paper.tables import REMARK, RUN, measured, of_asked, table, with_gap
from lockstep.paper.typeset import (
    DASH,
    SPACE,
    TIMES,
    Column,
    count,
    missing,
    number,
    short_time,
    significant,
    text,
    times,
)
from lockstep.paper.vehicular_edge import summaries


def claimed(operation: str) -> tuple[float, float] | None:
    """From what to what factor the plan of a GPU port expects an operation to gain; None where it says nothing."""
    found = about("vehicular_edge")["expected"].get(operation)
    return found and (float(found[0]), float(found[1]))


def in_words(row) -> str:
    """The plan's expectation of an operation."""
    ends = None if missing(row["operation"]) else claimed(row["operation"])
    return DASH if ends is None else f"{significant(ends[0], 2)} {DASH} {significant(ends[1], 2)}{TIMES}"


@table(
    "Operations of a slot, timed one by one in each form, as time per slot of one environment, ratio to the original "
    "of the same run, and share of the same form's slot; the port's stages are shares of its cycles. Expected: the "
    "gain on a GPU that the source document expects.",
    *RUN,
    text("vehicles", "vehicles", count, kind="number", merge=True),
    text("operation", "operation", summaries.operation, merge=True),
    text("form", "form", lambda form: paper.rung(form).label),
    number("B", "num_envs", count),
    Column("time per slot", lambda row: measured(row, "seconds", short_time), "number"),
    Column("95 % interval", lambda row: between(row, "seconds", short_time), "number"),
    number("share", "share", lambda share: f"{significant(100 * share, 2)}{SPACE}%"),
    number(f"{TIMES} original", "ratio", times),
    Column("95 % interval of it", lambda row: between(row, "ratio", times), "number"),
    Column("expected", in_words, "number"),
    REMARK,
    empty="No environment is taken apart.",
    folded=True,
)
def operations(datasets):
    return of_asked(datasets, "breakdown", lambda run: with_gap(summaries.operations(run)))


def between(row, name: str, write: Callable[[float], str]) -> str:
    """The interval of a figure."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return DASH if missing(low) else f"{write(low)} {DASH} {write(high)}"
