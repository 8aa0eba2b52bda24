"""The environments with large states: their operations one by one, and their size."""

import pandas as pd

import paper
from experiments import record
from paper import edge
from paper.tables import RATES, RUN, declared, label, of_runs, on_cpu, table
from paper.typeset import DASH, TIMES, Column, count, missing, number, short_time, si, significant, text, times

MIB = 2**20


def of_asked(datasets: list, experiment: str, rows_of) -> pd.DataFrame:
    """of_runs; an environment that takes no part in the experiment has no row that says so."""
    found = of_runs(datasets, experiment, rows_of)
    asked = found["environment"].map(lambda name: experiment in record.experiments_of(name))
    return found[asked | (found["status"] != paper.NOT_MEASURED)]


def claimed(operation: str) -> tuple[float, float] | None:
    """From what to what factor the plan of a GPU port expects an operation to gain; None where it says nothing."""
    found = declared()["edge"]["gains"].get(operation)
    return found and (float(found[0]), float(found[1]))


def operation(row) -> str:
    return DASH if missing(row["operation"]) else edge.operation(row["operation"])


def in_words(row) -> str:
    """What the plan expects of an operation."""
    ends = None if missing(row["operation"]) else claimed(row["operation"])
    return DASH if ends is None else f"{significant(ends[0], 2)} {DASH} {significant(ends[1], 2)}{TIMES}"


@table(
    "Operations of a slot, timed one by one in each form: the time of one slot of one environment, and how many times "
    "faster than in the original of the same run. Share: of the same form's whole slot; what is missing to all of it "
    "are drift, reward, observation and what the operations share. The last column is what the plan expects of a GPU.",
    *RUN,
    Column("vehicles", lambda row: DASH if missing(row["vehicles"]) else count(row["vehicles"]), "number", merge=True),
    Column("operation", lambda row: operation(row), merge=True),
    Column("form", lambda row: DASH if missing(row["form"]) else paper.rung(row["form"]).label),
    number("B", "num_envs", count),
    Column("threads", lambda row: on_cpu(row, "threads", count), "number"),
    number("time per slot", "seconds", short_time),
    Column("95 % interval", lambda row: times_between(row), "number"),
    number("share", "share", lambda share: f"{significant(100 * share, 2)} %"),
    number(f"{TIMES} original", "ratio", times),
    Column("95 % interval of it", lambda row: ratios_between(row), "number"),
    Column("expected", in_words, "number"),
    empty="No environment is taken apart.",
    folded=True,
)
def operations(datasets):
    return of_asked(datasets, "breakdown", lambda run: edge.operations(run).assign(**expected(run)))


def expected(run) -> dict:
    """The plan's range for each row, as columns."""
    ends = edge.operations(run)["operation"].map(claimed)
    return {name: [None if pair is None else pair[j] for pair in ends] for j, name in enumerate(("least", "most"))}


def times_between(row) -> str:
    if missing(row["seconds_low"]):
        return DASH
    return f"{short_time(row['seconds_low'])} {DASH} {short_time(row['seconds_high'])}"


def ratios_between(row) -> str:
    return DASH if missing(row["ratio_low"]) else f"{times(row['ratio_low'])} {DASH} {times(row['ratio_high'])}"


def memory(heading: str, name: str) -> Column:
    """Bytes as MiB."""
    return number(heading, name, lambda value: significant(value / MIB))


@table(
    "How far the environment grows: slots per second of all environments together, and the same times the number of "
    "vehicles that each moves. Memory: all buffers of one environment, and the tables of one scenario.",
    *RUN,
    Column("rung", label, merge=True),
    text("gains", "gains"),
    number("vehicles", "vehicles", count),
    number("B", "num_envs", count),
    Column("threads", lambda row: on_cpu(row, "threads", count), "number"),
    *RATES,
    number("vehicle steps/s", "vehicle_rate", si),
    memory("MiB per environment", "bytes_per_env"),
    memory("MiB per scenario", "bytes_per_scenario"),
    text("remark", "reason", kind="long"),
    empty="No environment is scaled.",
    folded=True,
)
def scaling(datasets):
    def rows_of(run) -> pd.DataFrame:
        found, absent = edge.scaling(run), edge.open_settings(run)
        return pd.concat([found, absent]) if len(absent) else found

    return of_asked(datasets, "scaling", rows_of)
