"""Summary of transfer.csv: of each loop the time of its parts, and the share that copies have in it."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from lockstep.experiments.bench.statistics import summarise

PARTS = ("up", "policy", "down", "step")  # of one round of a real loop, in this order
CLOSURE = 0.03  # the parts' sum may differ from the loop by this share
NEEDS_GPU = "not measured: needs a GPU"
NAN = float("nan")
COLUMNS = [
    *("environment", "loop", "source", "device", "memory", "num_envs", "threads"),
    *(*PARTS, "whole", "host_copy", "copies", "share", "share_low", "share_high", "over_step", "closure"),
]


def transfer_summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per loop, source, device, memory and size of transfer.csv; see COLUMNS.

    up, policy, down, step, whole, host_copy: median seconds of each per batched step, NaN where not measured;
    host_copy is a copy of the observations within the host. copies: between host and device per batched step, as
    counted. share, with its 95 % interval: of up and down in the sum of all parts; of a resident loop 0 where none
    was counted. over_step: up and down over the step where they were timed apart, the source document's ratio.
    closure: the median of the parts' sum over the loop, which were measured in turn.

    The document's copies know no environment: they stand in the row of each source, once for each kind of memory.
    """
    rows = [row for _, group in frame.groupby(["environment", "num_envs"], sort=False) for row in of_size(group)]
    return pd.DataFrame(rows, columns=COLUMNS)


def of_size(frame: pd.DataFrame) -> Iterator[dict]:
    """The rows of one environment and size: first the source document's procedure, then the loops."""
    note, loops = frame[frame["loop"] == "note"], frame[frame["loop"] != "note"]
    copies = {memory: seconds(rows) for memory, rows in note[note["device"] == "cuda"].groupby("memory", sort=False)}
    host = seconds(note[note["part"] == "host-copy"]).get("host-copy")
    for _, rows in note[note["part"] == "step"].groupby("source", sort=False):
        for memory, copied in (copies or {"none": {}}).items():
            about = {"memory": memory, "device": "cuda" if copied else "cpu"}
            row = described(rows) | about | timed(seconds(rows) | copied)
            row["over_step"] = (row["up"] + row["down"]) / row["step"]
            yield row | {"host_copy": NAN if host is None else float(np.median(host))}
    for _, rows in loops.groupby(["loop", "source", "device", "memory"], sort=False):
        row = described(rows) | timed(seconds(rows))
        counted = rows[rows["part"] == "copies"].dropna(subset=["copies"])
        if len(counted):
            row["copies"] = float(counted["copies"].sum() / counted["calls"].sum())
            if row["copies"] == 0:
                row |= {"share": 0.0, "share_low": 0.0, "share_high": 0.0}
        yield row


def described(rows: pd.DataFrame) -> dict:
    """A row's subject, with nothing found yet."""
    return dict.fromkeys(COLUMNS, NAN) | {name: rows[name].iloc[0] for name in COLUMNS[:7]}


def seconds(rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """Seconds per call of every part that was timed, one for each block."""
    timed = rows.dropna(subset=["wall_s"])
    return {part: (some["wall_s"] / some["calls"]).to_numpy() for part, some in timed.groupby("part", sort=False)}


def timed(found: dict[str, np.ndarray]) -> dict[str, float]:
    """Medians of the parts and of the loop, and what follows from them, where there is all that it takes."""
    median = {part: float(np.median(values)) for part, values in found.items()}
    row = {part: median[part] for part in PARTS if part in median}
    parts = [found[part] for part in PARTS if part in found]
    if "loop" in found:
        row["whole"] = median["loop"]
        # Of each pair of neighbouring blocks, so that a machine whose speed drifts is not found wanting.
        row["closure"] = float(np.median(sum(parts) / found["loop"])) if parts else NAN
    if {"up", "down", "step"} <= found.keys():
        across = found["up"] + found["down"]
        share = summarise(across / sum(parts))
        row |= {"share": share.median, "share_low": share.low, "share_high": share.high}
    return row


def closes(summary: pd.DataFrame) -> bool:
    """True where in every loop that was taken apart the parts sum to the loop."""
    closure = summary["closure"].dropna()
    return bool(((closure - 1).abs() <= CLOSURE).all())
