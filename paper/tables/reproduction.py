"""What reproducing the paper costs."""

import pandas as pd

import paper
from paper.tables import OF_MACHINE, declared, source, table
from paper.typeset import DASH, Column, missing, number, seconds, text

NAN = float("nan")


@table(
    "What each experiment took, from its provenance, and the sum for each machine and scale against the time "
    "allowed. The time that Snakemake itself takes, and that of making this page, is not in it.",
    text("machine", "machine", merge=True),
    text("environment", "environment", merge=True),
    text("experiment", "experiment"),
    text("scale", "scale"),
    number("wall time", "wall_s", seconds),
    number("CPU time", "cpu_s", seconds),
    number("time allowed", "allowed_s", seconds),
    Column("allowance", lambda row: DASH if missing(row["met"]) else "met" if row["met"] else "not met", "status"),
    text("status", "status", kind="status"),
)
def cost(datasets):
    rows, machines = [], {}
    for run in sorted(paper.in_order(datasets), key=lambda run: (run.origin != "here", run.machine)):
        machines.setdefault(paper.machine(run), []).append(run)
    for machine, runs in machines.items():
        for run in runs:
            about = {name: run.provenance[name] for name in ("experiment", "scale", "wall_s", "cpu_s")}
            rows.append(source(run) | about)
            rows[-1]["environment"] = rows[-1]["environment"] or OF_MACHINE
        rows += totals(machine, runs)
    columns = [
        "machine",
        "environment",
        "experiment",
        "scale",
        "wall_s",
        "cpu_s",
        "allowed_s",
        "met",
        "status",
        "date",
    ]
    return pd.DataFrame(rows, columns=columns)


def totals(machine: str, runs: list) -> list[dict]:
    """A sum for each scale that a machine ran at, with the verdict where that scale has a time allowed.

    What has no scale belongs to every one of them. A run that did not note its time leaves the sum open.
    """
    scales = dict.fromkeys(run.provenance["scale"] for run in runs if run.provenance["scale"])
    rows = []
    for scale in scales or [None]:
        of_scale = [run.provenance for run in runs if run.provenance["scale"] in (scale, None)]
        total = {
            name: NAN if any(missing(about[name]) for about in of_scale) else sum(about[name] for about in of_scale)
            for name in ("wall_s", "cpu_s")
        }
        allowed = declared()["budgets"].get(scale)
        met = None if allowed is None or missing(total["wall_s"]) else total["wall_s"] <= allowed
        about = {"machine": machine, "environment": "all", "experiment": "all", "scale": scale}
        rows.append(about | total | {"allowed_s": allowed, "met": met})
    return rows
