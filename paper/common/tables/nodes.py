"""Growth with processes and nodes: of training, measured and modelled, and of a recording whose jobs are packed."""

from collections.abc import Iterator

import pandas as pd

from lockstep import paper
from lockstep.experiments import config, growth
from lockstep.paper.common import learning
from lockstep.paper.tables import of_asked, table, worded_status
from lockstep.paper.typeset import (
    DASH,
    SPACE,
    Column,
    count,
    missing,
    number,
    percent,
    seconds,
    short_time,
    si,
    times,
)

TRAINING, RECORDING = "training", "recording"
NODES = (1, 2, 4, 8)  # that share the jobs of a recording
LOOPBACK = "loopback"
COLUMNS = [
    *("work", "environment", "algorithm", "num_envs", "scale", "jobs", "machine", "status", "date", "link", "nodes"),
    *("wall_s", "model_s", "sum_s", "lone_s", "cpu_s", "rate", "speedup", "efficiency", "cpu_efficiency"),
    *("crowded", "cores", "longest", "longest_s"),
]


def what(row) -> str:
    """Training of an environment, or recording at a scale."""
    if row["work"] == RECORDING:
        return f"{RECORDING}, {count(row['jobs'])} jobs at {row['scale']} scale"
    batch = "" if missing(row["num_envs"]) else f", B = {count(row['num_envs'])} in each process"
    return f"{TRAINING}, {' '.join(filter(None, (row['environment'], learning.algorithm(row['algorithm']))))}{batch}"


def time(row) -> str:
    """Of an iteration or a recording, as measured or, of a recording on several nodes, as packed."""
    if missing(row["wall_s"]):
        return DASH
    return seconds(row["wall_s"]) if row["work"] == RECORDING else short_time(row["wall_s"])


def remark(row) -> str:
    """Of the job that bounds a recording, or of processes that shared cores."""
    if not missing(row["longest"]):
        return f"the longest job, {row['longest']}, takes {seconds(row['longest_s'])}"
    if row["crowded"] is not True:
        return DASH
    bound = f"with a core each at most {percent(row['cpu_efficiency'])} efficient, by their CPU time"
    return f"{count(row['nodes'])} processes on {count(row['cores'])} core{'s' * (row['cores'] > 1)}; {bound}"


@table(
    "Growth with n processes or nodes: an iteration of training with equal work in each, and a recording whose jobs n "
    "nodes share, the longest first. Sums are those of gradients over the processes, as an iteration waits for them "
    "and by themselves; the model is that of the text.",
    Column("work", what, section=True),
    Column("status", worded_status, "status", section=True),
    Column("between processes", lambda row: DASH if missing(row["link"]) else row["link"], merge=True),
    number("n", "nodes", count),
    Column("time", time, "number"),
    number("by the model", "model_s", short_time),
    number("in sums", "sum_s", short_time),
    number("sums alone", "lone_s", short_time),
    number("CPU time of each", "cpu_s", short_time),
    number("steps/s", "rate", si),
    number("speed-up", "speedup", times),
    number("efficiency", "efficiency", percent),
    Column("remark", remark, "long", merge=True),
    folded=True,
)
def nodes(datasets):
    trained = of_asked(datasets, "weak_scaling", lambda run: training(run).drop(columns="environment"))
    rows = [*trained.assign(work=TRAINING).to_dict("records"), *recordings(datasets)]
    return pd.DataFrame(rows, columns=COLUMNS)


def section(environment: str) -> config.Settings | None:
    """The settings of the experiment, of them nodes and links; None where the environment does not ask for it."""
    return config.load(environment, "full").get("weak_scaling")


@paper.once
def training(run) -> pd.DataFrame:
    """Numbers of processes as measured through the loopback, then nodes through each link as modelled."""
    found, model = growth.summary(run.frame), growth.model_of(run.frame)
    rows = [
        row
        | {"nodes": row["ranks"], "wall_s": row["iteration_s"], "speedup": row["ranks"] * row["efficiency"]}
        | {"link": None if row["ranks"] == 1 else LOOPBACK, "model_s": model and model.iteration_s(row["ranks"])}
        for row in found.to_dict("records")
    ]
    asked = section(run.provenance["environment"])
    for link in asked.links if asked and model else ():
        name = f"{link.gbit_per_s:g}{SPACE}Gbit/s, {short_time(link.latency_s)}"
        for ranks in asked.nodes:
            model_s = model.iteration_s(ranks, link)
            efficiency = model.compute_s / model_s
            rate = ranks * found.loc[found["ranks"] == 1, "env_steps"].iloc[0] / model_s
            rows.append(
                {"nodes": ranks, "link": name, "model_s": model_s, "rate": rate, "num_envs": rows[0]["num_envs"]}
                | {"efficiency": efficiency, "speedup": ranks * efficiency}
            )
    return pd.DataFrame(rows).assign(
        algorithm=run.frame["algorithm"].iloc[0], environment=run.provenance["environment"]
    )


def recordings(datasets: list) -> Iterator[dict]:
    """What each machine has measured at a scale, as it would take on several nodes like it."""
    for machine, runs in paper.by_machine(datasets).items():
        for scale in dict.fromkeys(run.provenance["scale"] for run in runs if run.provenance["scale"]):
            jobs = [run for run in runs if run.provenance["scale"] in (scale, None)]
            jobs = [run for run in jobs if not missing(run.provenance["wall_s"])]
            took = [run.provenance["wall_s"] for run in jobs]
            if len(jobs) < 2:
                continue
            longest = max(jobs, key=lambda run: run.provenance["wall_s"]).provenance
            name = " of ".join(filter(None, (longest["experiment"], longest["environment"])))
            changed = [run.status for run in jobs if run.status in (paper.CHANGED_HERE, paper.CHANGED)]
            same = {"work": RECORDING, "machine": machine, "scale": scale, "jobs": len(jobs)}
            same |= {"status": [*changed, jobs[0].status][0], "date": max(map(paper.date, jobs))}
            same |= {"longest": name, "longest_s": longest["wall_s"]}
            for nodes in NODES:
                wall_s = growth.packed_s(took, nodes)
                speedup = sum(took) / wall_s
                yield same | {"nodes": nodes, "wall_s": wall_s, "speedup": speedup, "efficiency": speedup / nodes}
