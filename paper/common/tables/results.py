"""Results at hand, machines, rungs, and the cost of reproducing."""

from collections.abc import Callable

import pandas as pd

from lockstep import paper
from lockstep.experiments import catalogue
from lockstep.paper import families, quantities, rung
from lockstep.paper.tables import plain, table
from lockstep.paper.typeset import DASH, Column, count, missing, number, seconds, text

OF_MACHINE = "the machine itself"  # stands for an environment where an experiment needs none
NAN = float("nan")


@table(
    "What was measured on the machine that made this page, and what is on record from others.",
    text("experiment", "experiment", merge=True),
    text("status", "status", kind="status"),
    text("machine", "machine"),
    text("scale", "scale"),
    text("date", "date"),
    text("environments", "environments", kind="long"),
)
def status(datasets):
    of_the_machine = catalogue.of_the_machine()
    known = {(None, experiment): [] for experiment in of_the_machine}
    for name in paper.environments():
        known |= {(name, experiment): [] for experiment in paper.experiments_of(name)}
    for run in paper.in_order(datasets):
        known.setdefault((run.provenance["environment"], run.provenance["experiment"]), []).append(run)
    rows: dict[tuple, list[str]] = {}
    for (environment, experiment), runs in known.items():
        found = [(run.status, paper.machine(run), run.provenance["scale"], paper.date(run)) for run in runs]
        if not any(run.origin == "here" for run in runs):
            found.insert(0, (paper.NOT_MEASURED, "here", None, None))
        for about in found:
            rows.setdefault((experiment, *about), []).append(environment or OF_MACHINE)
    everything = paper.environments()
    columns = ["experiment", "status", "machine", "scale", "date"]

    def order(row: tuple) -> tuple:
        experiment, _, machine, *others = row
        return experiment in of_the_machine, experiment, machine != "here", machine, *map(str, others)

    return pd.DataFrame(
        dict(zip(columns, row, strict=True))
        | {"environments": f"all {len(everything)}" if sorted(rows[row]) == everything else ", ".join(rows[row])}
        for row in sorted(rows, key=order)
    )


@table(
    "The machines, from the provenance beside each result. A dash: not there, or not noted.",
    empty="No machine has measured anything yet.",
)
def machines(datasets):
    found = paper.by_machine(datasets)

    def row(name: str, say: Callable) -> dict:
        said = {machine: {plain(say(run)) for run in runs} - {""} for machine, runs in found.items()}
        return {"property": name} | {machine: ", ".join(sorted(words)) or DASH for machine, words in said.items()}

    described = {
        "CPU": "cpu",
        "cores": "cores",
        "memory, GiB": "memory_gib",
        "GPU": "gpu",
        "GPU memory, GiB": "gpu_memory_gib",
        "GPU driver": "driver",
        "CUDA": "cuda",
        "operating system": "os",
        "C++ compiler": "compiler",
    }
    rows = [row(name, lambda run, key=key: run.provenance["machine"].get(key)) for name, key in described.items()]
    packages = {name for run in datasets for name in run.provenance["packages"]}
    for package in sorted(packages, key=lambda name: (name != "python", name)):
        rows.append(row(package, lambda run, package=package: run.provenance["packages"].get(package)))
    rows.append(row("scale", lambda run: run.provenance["scale"]))
    rows.append(row("commit", commit))
    rows.append(row("measured on", paper.date))
    return pd.DataFrame(rows if found else [], columns=["property", *found])


def commit(run) -> str:
    """The commit of a run, shortened."""
    known = run.provenance["commit"]
    changed = " with changes" if run.provenance["dirty"] else ""
    return f"{known[:12]}{changed}" if known else "unknown"


@table(
    "The rungs of the ladder, from the original to fused steps on a device.",
    text("rung", "label"),
    text("what runs", "meaning", kind="long"),
    text("measured on", "machines", kind="long"),
)
def rungs(datasets):
    having: dict[str, dict] = {name: {} for name in paper.RUNGS}
    for run in quantities.of(datasets, {}):
        for name in run.frame["rung"].unique():
            having.setdefault(name, {})[paper.machine(run)] = None
    return pd.DataFrame(
        {
            "rung": name,
            "label": rung(name).label,
            "meaning": rung(name).meaning,
            "machines": ", ".join(machines) or None,
        }
        for name, machines in having.items()
    )


@table(
    "Time of each experiment over all environments, and the sum for each machine and scale against the time allowed. "
    "Snakemake's own time and that of making this page are not included.",
    text("machine", "machine", merge=True),
    text("scale", "scale", merge=True),
    Column("experiment", lambda row: f"{row['experiment']}, in part" if row["in_part"] else row["experiment"]),
    number("environments", "environments", count),
    number("wall time", "wall_s", seconds),
    number("CPU time", "cpu_s", seconds),
    number("time allowed", "allowed_s", seconds),
    Column("allowance", lambda row: DASH if missing(row["met"]) else "met" if row["met"] else "not met", "status"),
)
def cost(datasets):
    of_all = paper.by_machine(paper.in_order(datasets))
    rows = [row for name, runs in of_all.items() for row in spent(name, [run.provenance for run in runs])]
    columns = ["machine", "scale", "experiment", "in_part", "environments", "wall_s", "cpu_s", "allowed_s", "met"]
    return pd.DataFrame(rows, columns=columns)


def spent(machine: str, runs: list[dict]) -> list[dict]:
    """Time of a machine's experiments, and a sum for each scale that it ran at, against the time allowed.

    What has no scale belongs to every sum.
    """
    rows = []
    for scale in dict.fromkeys(run["scale"] for run in runs if run["scale"]) or [None]:
        of_scale = [run for run in runs if run["scale"] in (scale, None)]
        about = {"machine": machine, "scale": scale}
        for experiment in sorted({run["experiment"] for run in of_scale}):
            parts = [run for run in of_scale if run["experiment"] == experiment]
            number_of = sum(run["environment"] is not None for run in parts) or None
            found = {"experiment": experiment, "in_part": in_part(parts), "environments": number_of}
            rows.append(about | found | time_of(parts))
        total, allowed = time_of(of_scale), families.aims()["budgets"].get(scale)
        met = None if allowed is None or missing(total["wall_s"]) else total["wall_s"] <= allowed
        every = {"experiment": "all", "in_part": in_part(of_scale)}
        rows.append(about | every | total | {"allowed_s": allowed, "met": met})
    return rows


def in_part(runs: list[dict]) -> bool:
    """True where a run has groups that are yet to be measured."""
    return any(run.get("missing") for run in runs)


def time_of(runs: list[dict]) -> dict[str, float]:
    """Wall and CPU seconds of some runs together; NaN where one of them did not note its time."""
    return {
        name: NAN if any(missing(run[name]) for run in runs) else sum(run[name] for run in runs)
        for name in ("wall_s", "cpu_s")
    }
