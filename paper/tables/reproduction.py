"""What reproducing the paper costs."""

import pandas as pd

from lockstep import paper
from lockstep.paper.tables import declared, table
from lockstep.paper.typeset import DASH, Column, count, missing, number, seconds, text

NAN = float("nan")


@table(
    "What each experiment took over all environments, from its provenance, and the sum for each machine and scale "
    "against the time allowed. The time that Snakemake itself takes, and that of making this page, is not in it.",
    text("machine", "machine", merge=True),
    text("scale", "scale", merge=True),
    text("experiment", "experiment"),
    number("environments", "environments", count),
    number("wall time", "wall_s", seconds),
    number("CPU time", "cpu_s", seconds),
    number("time allowed", "allowed_s", seconds),
    Column("allowance", lambda row: DASH if missing(row["met"]) else "met" if row["met"] else "not met", "status"),
)
def cost(datasets):
    machines: dict[str, list] = {}
    for run in sorted(paper.in_order(datasets), key=lambda run: (run.origin != "here", run.machine)):
        machines.setdefault(paper.machine(run), []).append(run.provenance)
    rows = [row for machine, runs in machines.items() for row in spent(machine, runs)]
    columns = ["machine", "scale", "experiment", "environments", "wall_s", "cpu_s", "allowed_s", "met"]
    return pd.DataFrame(rows, columns=columns)


def spent(machine: str, runs: list[dict]) -> list[dict]:
    """What a machine's experiments took, and a sum for each scale that it ran at, against the time allowed.

    What has no scale belongs to every sum.
    """
    rows = []
    for scale in dict.fromkeys(run["scale"] for run in runs if run["scale"]) or [None]:
        of_scale = [run for run in runs if run["scale"] in (scale, None)]
        about = {"machine": machine, "scale": scale}
        for experiment in sorted({run["experiment"] for run in of_scale}):
            parts = [run for run in of_scale if run["experiment"] == experiment]
            number_of = sum(run["environment"] is not None for run in parts) or None
            rows.append(about | {"experiment": experiment, "environments": number_of} | time_of(parts))
        total, allowed = time_of(of_scale), declared()["budgets"].get(scale)
        met = None if allowed is None or missing(total["wall_s"]) else total["wall_s"] <= allowed
        rows.append(about | {"experiment": "all"} | total | {"allowed_s": allowed, "met": met})
    return rows


def time_of(runs: list[dict]) -> dict[str, float]:
    """Wall and CPU seconds of some runs together; NaN where one of them did not note its time."""
    return {
        name: NAN if any(missing(run[name]) for run in runs) else sum(run[name] for run in runs)
        for name in ("wall_s", "cpu_s")
    }
