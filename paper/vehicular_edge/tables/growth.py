"""The environments with large states: their operations one by one, and their size."""

from collections.abc import Callable

import pandas as pd

from lockstep import paper
from lockstep.experiments.shares import NEEDS_GPU
from lockstep.paper.families import about
from lockstep.paper.tables import RATES, RUN, label, of_asked, on_cpu, table
from lockstep.paper.typeset import (
    DASH,
    SPACE,
    TIMES,
    Column,
    count,
    missing,
    number,
    short_time,
    si,
    significant,
    text,
    times,
)
from lockstep.paper.vehicular_edge import summaries


def with_gap(found: pd.DataFrame, **about) -> pd.DataFrame:
    """The rows of a run, and where it had no GPU one that says so."""
    found = found.assign(reason=None) if "reason" not in found else found
    if (found["device"] == "cuda").any():
        return found
    gap = {"device": "cuda", "reason": NEEDS_GPU} | about
    return pd.DataFrame([*found.to_dict("records"), gap])


def claimed(operation: str) -> tuple[float, float] | None:
    """From what to what factor the plan of a GPU port expects an operation to gain; None where it says nothing."""
    found = about("vehicular_edge")["expected"].get(operation)
    return found and (float(found[0]), float(found[1]))


def operation(row) -> str:
    return DASH if missing(row["operation"]) else summaries.operation(row["operation"])


def in_words(row) -> str:
    """The plan's expectation of an operation."""
    ends = None if missing(row["operation"]) else claimed(row["operation"])
    return DASH if ends is None else f"{significant(ends[0], 2)} {DASH} {significant(ends[1], 2)}{TIMES}"


def merged(heading: str, name: str) -> Column:
    """A column of whole numbers, equal neighbours in one cell."""
    return Column(heading, lambda row: DASH if missing(row[name]) else count(row[name]), "number", merge=True)


def measured(row, name: str, write: Callable[[float], str]) -> str:
    """A figure, or that there is none."""
    return paper.NOT_MEASURED if missing(row[name]) else write(row[name])


REMARK = text("remark", "reason", kind="long")


@table(
    "Operations of a slot, timed one by one in each form, as time per slot of one environment, ratio to the original "
    "of the same run, and share of the same form's slot; the port's stages are shares of its cycles. Expected: the "
    "gain on a GPU that the source document expects.",
    *RUN,
    merged("vehicles", "vehicles"),
    Column("operation", lambda row: operation(row), merge=True),
    Column("form", lambda row: DASH if missing(row["form"]) else paper.rung(row["form"]).label),
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


def memory(heading: str, name: str) -> Column:
    """Bytes as KiB."""
    return number(heading, name, lambda value: significant(value / 2**10))


@table(
    "Slots per second of all environments, and that rate times the number of vehicles, as environments and vehicles "
    "grow. Memory: all buffers of one environment, the tables of one scenario, and the increase of memory in use.",
    *RUN,
    Column("rung", label, merge=True),
    text("gains", "gains"),
    number("vehicles", "vehicles", count),
    number("edges", "edges", count),
    number("B", "num_envs", count),
    Column("threads", lambda row: on_cpu(row, "threads", count), "number"),
    Column("rate, steps/s", lambda row: measured(row, "rate", si), "number"),
    *RATES[1:],
    number("vehicle steps/s", "vehicle_rate", si),
    memory("KiB per environment", "bytes_per_env"),
    memory("KiB per scenario", "bytes_per_scenario"),
    number("MiB in use", "memory_mib"),
    REMARK,
    empty="No environment is scaled.",
    folded=True,
)
def scaling(datasets):
    return of_asked(datasets, "scaling", lambda run: with_gap(summaries.scaling(run), rung="port-cuda-graph"))
