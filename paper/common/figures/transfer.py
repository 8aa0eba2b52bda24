"""The share of copies between host and device in a loop, beside that which the source document gives."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lockstep.paper import quantities, rung, tables
from lockstep.paper.common.tables.transfer import DEVICES, SETTINGS
from lockstep.paper.figures import WIDTH, figure, grid, legend, title
from lockstep.paper.typeset import count, missing, short_time

NOTE = 0.574  # of "57.4 % of 330 us is transfer"
COLOURS = {"up": "#D55E00", "down": "#E69F00", "policy": "#009E73", "step": "#0072B2", "policy and step": "#117733"}
MEANINGS = {  # of settings
    "note": "step and copies apart, as in the source document",
    "real": "the parts of a loop with a policy",
    "resident": "the port where the policy is",
    "rows": "the loop for one original after the other",
}
HEADING = {"fontsize": 8.5, "fontweight": "bold"}
INSIDE = {"fontsize": 6, "color": "white", "ha": "right", "va": "center_baseline"}


def of_drawn(datasets: list) -> str:
    """Words of the caption on the settings that have a bar."""
    frame, runs = tables.frame("transfer", datasets), quantities.of(datasets, {"experiment": "transfer"})
    parts = [bars(frame, run, device) for run in runs for device in DEVICES]
    loops = {loop for part in parts for loop in part["loop"]}
    said = [f"{setting(loop)}, {words}" for loop, words in MEANINGS.items() if loop in loops]
    return f": {'; '.join(said)}" if said else ""


@figure(
    "Shares of a step's time (at a bar's end).",
    "Stacked horizontal bars, a row of panels per machine and device of the policy, one panel per batch size: the "
    "shares of copies up, copies down, policy and step. The table of transfers holds the times.",
    more=of_drawn,
    on_gpu=". Red: the document's 57.4\N{NO-BREAK SPACE}%; diamond: its own ratio, of copies to the step, if below one",
)
def transfer(datasets: list) -> Figure:
    frame, runs = tables.frame("transfer", datasets), quantities.of(datasets, {"experiment": "transfer"})
    rows = [(run, device, part) for run in runs for device in DEVICES if len(part := bars(frame, run, device))]
    if not rows:
        return grid([], 1)[0]
    heights = [0.9 + 0.19 * part["name"].nunique() for *_, part in rows]
    figure = Figure(figsize=(WIDTH, sum(heights, 0.5)), layout="constrained")
    parts, panels = figure.subfigures(len(rows), 1, height_ratios=heights, squeeze=False), []
    for block, (run, device, part) in zip(parts.flat, rows, strict=True):
        sizes = sorted(part["num_envs"].unique())
        names = list(part["name"].unique())
        axes = list(block.subplots(1, len(sizes), sharey=True, squeeze=False).flat)
        block.suptitle(f"{title(run)}, policy on the {DEVICES[device]}: {run.status}", x=0.01, ha="left", **HEADING)
        for panel, size in zip(axes, sizes, strict=True):
            stack(panel, part[part["num_envs"] == size].to_dict("records"), names)
            panel.set_xlabel(f"B = {count(size)}")
        panels += axes
    legend(figure, panels)
    return figure


def bars(frame: pd.DataFrame, run, device: str) -> pd.DataFrame:
    """Rows of a run that are drawn for a device, with a `name`; of timings apart those with the document's memory."""
    part = quantities.matching(frame, {**tables.source(run), "device": device}).dropna(subset=["num_envs"])
    part = part[(part["loop"] != "note") | (part["memory"] == "pageable")]
    return part.assign(name=[name(row) for row in part.to_dict("records")])


def stack(panel: Axes, rows: list[dict], names: list[str]) -> None:
    """A bar for each row in the place of its name, copies first."""
    for row in rows:
        place = names.index(row["name"])
        parts = {part: row[part] for part in COLOURS if not missing(row.get(part))}
        parts, left = parts or {"policy and step": row["whole"]}, 0.0
        for part, seconds in parts.items():
            share = 100 * seconds / sum(parts.values())
            panel.barh(place, share, 0.72, left, color=COLOURS[part], label=part)
            left += share
        panel.text(98.5, place, short_time(sum(parts.values())), **INSIDE)
        if row["over_step"] < 1:
            panel.plot(
                100 * row["over_step"], place, "kD", markersize=3.5, label="copies over step, as in the document"
            )
    if "cuda" in [row["device"] for row in rows]:
        panel.axvline(100 * NOTE, color="#d1344b", linewidth=1.2, label="the document's share")
    panel.set(xlim=(0, 100), ylim=(len(names) - 0.4, -0.6))
    panel.set_xticks([0, 50, 100], ["0", "50 %", "100 %"])
    panel.set_yticks(range(len(names)), names)
    panel.tick_params(axis="y", length=0, labelsize=6.5)
    panel.grid(visible=False, axis="y")


def name(row: dict) -> str:
    words = f"{setting(row['loop'])}: {rung(row['source']).label}"
    return words if row["memory"] == "none" else f"{words}, {row['memory']}"


def setting(loop: str) -> str:
    """A setting in the words of the table, without its letter."""
    return SETTINGS[loop].partition(": ")[2]
