"""Operations of a slot, of breakdown.csv, in words and as one row per setting."""

import pandas as pd

from lockstep import paper
from lockstep.experiments.bench import statistics

OPERATIONS = {  # parts of a slot that every form has, as the forms call them, in their order
    "offloading": "decode and admit",
    "noma": "rates with interference cancelled",
    "queue_update": "queues",
    "cost": "cost",
    "offloading_queues_cost": "all but rates, together",
    "step": "a whole slot",
}
OPERATION = ["vehicles", "operation", "form", "device", "num_envs", "threads"]  # a setting of breakdown.csv


def operation(name: str) -> str:
    """An operation in words; an unknown one under its own name."""
    return OPERATIONS.get(name, name.replace("_", " "))


def operation_order(name: str) -> int:
    """Place of an operation in a slot; unknown ones last."""
    return list(OPERATIONS).index(name) if name in OPERATIONS else len(OPERATIONS)


@paper.once
def operations(run) -> pd.DataFrame:
    """One row per setting of a breakdown run: `seconds` of a slot of one environment, and `ratio` to the original.

    With seconds_low, seconds_high, ratio_low, ratio_high, cpu_seconds, and `share`, of the same form's whole slot.
    """
    frame = run.frame.dropna(subset=["wall_s"]).fillna({"threads": 1})
    frame = frame.assign(
        seconds=frame["wall_s"] / frame["steps"],
        cpu_seconds=frame["cpu_s"] / frame["steps"],
        order=frame["operation"].map(operation_order),
    )
    frame = frame.sort_values(["vehicles", "order"], ascending=[False, True], kind="stable")
    groups = dict(list(frame.groupby(OPERATION, sort=False)))
    rows = []
    for key, part in groups.items():
        setting = dict(zip(OPERATION, key, strict=True))
        found = statistics.summarise(part["seconds"])
        row = setting | {"seconds": found.median, "seconds_low": found.low, "seconds_high": found.high}
        row["cpu_seconds"] = part["cpu_seconds"].median()
        whole = groups.get((key[0], "step", *key[2:]))
        row["share"] = None if whole is None else found.median / whole["seconds"].median()
        same = frame[(frame["vehicles"] == key[0]) & (frame["operation"] == key[1]) & (frame["form"] == "original")]
        if len(same) and setting["form"] != "original":
            over = statistics.ratio(same["seconds"], part["seconds"])
            row |= dict(zip(("ratio", "ratio_low", "ratio_high"), over, strict=True))
        rows.append(row)
    columns = [*OPERATION, "seconds", "seconds_low", "seconds_high", "cpu_seconds", "share"]
    found = pd.DataFrame(rows, columns=[*columns, "ratio", "ratio_low", "ratio_high"])
    return found.assign(environment=run.provenance["environment"])
