"""Tables of the paper: each a function from datasets to a DataFrame, with its caption and its columns.

The DataFrame holds plain numbers, with status, machine and date apart; it becomes results/tables/<name>.csv. The
columns say how a reader sees it in <name>.md and in the report. Decorating a function in common/tables/ or in the
`tables` of a family is all it takes for one more. This file has what they share.
"""

import re
from collections.abc import Callable

import pandas as pd

from lockstep import paper
from lockstep.experiments.shares import NEEDS_GPU
from lockstep.paper import families, quantities, rung
from lockstep.paper.typeset import DASH, TIMES, Column, Table, count, interval, missing, number, si, text, times

NO_FIGURE = dict.fromkeys(["value", "low", "high", "shown", "interval"])
REGISTERED: dict[str, Table] = {}


def table(caption: str, *columns: Column, **options) -> Callable:
    """Make a function of `datasets` a table of the paper, under the function's name."""

    def register(function: Callable[[list], pd.DataFrame]) -> Callable[[list], pd.DataFrame]:
        REGISTERED[function.__name__] = Table(function.__name__, caption, columns, function, **options)
        return function

    return register


def every() -> dict[str, Table]:
    """All tables, by name."""
    families.modules("tables")
    return dict(sorted(REGISTERED.items()))


def frame(name: str, datasets: list) -> pd.DataFrame:
    """The numbers of a table."""
    return every()[name].frame(datasets)


# Origin of a row.


def source(run) -> dict:
    """The columns that say where a row comes from."""
    return {
        "environment": run.provenance["environment"],
        "machine": paper.machine(run),
        "status": run.status,
        "date": paper.date(run),
    }


def not_measured() -> dict:
    """Columns of provenance in a row that nobody has measured."""
    return {"machine": "", "status": paper.NOT_MEASURED, "date": ""}


def of_runs(datasets: list, experiment: str, rows_of: Callable, by_machine: bool = False) -> pd.DataFrame:
    """rows_of(run) over all runs of an experiment, with where they come from.

    Runs are in order of their environments, or of their machines and statuses. An environment that nobody has
    run has one row, "not measured".
    """
    runs = quantities.of(datasets, {"experiment": experiment})
    if by_machine:
        runs.sort(key=lambda run: (run.origin != "here", run.machine, run.status, paper.date(run)))
    measured = {run.provenance["environment"] for run in runs}
    absent = [name for name in paper.environments() if name not in measured]
    frames = [pd.DataFrame(rows_of(run)).assign(**source(run)) for run in runs]
    frames += [pd.DataFrame([{"environment": name} | not_measured()]) for name in absent]
    return pd.concat(frames, ignore_index=True)


def of_asked(datasets: list, experiment: str, rows_of: Callable, asked: Callable | None = None) -> pd.DataFrame:
    """of_runs; an environment that is not asked for has no row that says so.

    asked: tells it of an environment; without it those that take part in the experiment are asked for.
    """
    found = of_runs(datasets, experiment, rows_of)
    asked = asked or (lambda name: experiment in paper.experiments_of(name))
    return found[(found["status"] != paper.NOT_MEASURED) | found["environment"].map(asked)]


def worded_status(row) -> str:
    return paper.status_text(row["status"], row["machine"], row["date"])


def form(row) -> str:
    """The original, or the port and its device."""
    return DASH if missing(row["form"]) else row["form"] if row["form"] == "original" else f"port, {row['device']}"


FORM = Column("form", form)
STATUS = Column("status", worded_status, "status")
RUN = (
    text("environment", "environment", section=True),
    Column("status", worded_status, "status", section=True),
)
ONE_MACHINE = (RUN[1], text("environment", "environment"))  # the same where a run has one line


def plain(value: object) -> str:
    """A value of the provenance as text, without trademark signs; "" for None."""
    return "" if value is None else re.sub(r"\((R|TM)\)", "", str(value))


# Shared parts of tables of throughput.


def on_cpu(row, name: str, write: Callable[[float], str]) -> str:
    """A number that says nothing about a GPU."""
    return DASH if row["device"] == "cuda" or missing(row[name]) else write(row[name])


def label(row) -> str:
    return DASH if missing(row["rung"]) else rung(row["rung"]).label


SETTING = (
    number("B", "num_envs", count),
    Column("threads", lambda row: on_cpu(row, "threads", count), "number"),
    number("K", "fused_steps", count),
)
RATES = (
    number("rate, steps/s", "rate", si),
    interval("95 % interval", "rate_low", "rate_high", "rate"),
    Column("per CPU-second", lambda row: on_cpu(row, "cpu_rate", si), "number"),
)
RATIO = number(f"{TIMES} original", "ratio", times)
REMARK = text("remark", "reason", kind="long")


def measured(row, name: str, write: Callable[[float], str]) -> str:
    """A figure, or that there is none."""
    return paper.NOT_MEASURED if missing(row[name]) else write(row[name])


def with_gap(found: pd.DataFrame, **about) -> pd.DataFrame:
    """The rows of a run, and where it had no GPU one whose remark says so."""
    found = found if "reason" in found else found.assign(reason=None)
    if (found["device"] == "cuda").any():
        return found
    gap = {"device": "cuda", "reason": NEEDS_GPU} | about
    return pd.DataFrame([*found.to_dict("records"), gap])


def in_ladder_order(run) -> pd.DataFrame:
    """The settings of a throughput run (quantities.rates), rung by rung."""
    rates = quantities.rates(run)
    keys = ["place", "threads", "fused_steps", "policy", "obs", "dtype", "num_envs"]
    order = rates.assign(place=rates["rung"].map(paper.rung_order)).sort_values(keys, kind="stable")
    return rates.loc[order.index]
