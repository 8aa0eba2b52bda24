"""The gain of each operation of a slot in each form, beside that which a plan expected of a GPU."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lockstep import paper
from lockstep.paper import quantities, rung
from lockstep.paper.figures import PAGE, figure, grid, label_status, legend, log_axes, title
from lockstep.paper.typeset import count, missing, short_time, times
from lockstep.paper.vehicular_edge import summaries
from lockstep.paper.vehicular_edge.tables.operations import claimed

BAND = {"facecolor": "none", "edgecolor": "#d1344b", "hatch": "////", "linewidth": 0, "alpha": 0.6, "zorder": 0.5}
PAPER = {"facecolor": PAGE, "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
BEHIND = {"fontsize": 6, "va": "center_baseline", "textcoords": "offset points", "bbox": PAPER}


@figure(
    "Operations of a slot, one by one: how many times faster than in the original each form computes one slot of one "
    "environment, with the factor and the batch size. Hatched: the factors that the plan of a GPU port expects; below "
    "an operation's name the time that it takes in the original.",
    "Horizontal bars on a logarithmic axis, one panel per machine: for each operation of a slot one bar per form with "
    "its factor over the original, and a hatched band for what was expected. The table of operations holds the "
    "numbers.",
)
def edge_operations(datasets: list) -> Figure:
    runs = quantities.of(datasets, {"experiment": "breakdown"})
    parts = [(run, *part) for run in runs for part in summaries.operations(run).groupby("vehicles", sort=False)]
    frames = [fastest(part) for *_, part in parts]
    rows = [len(frame) + frame["operation"].nunique() + 4 for frame in frames] or [1]
    names = [f"{title(run)}, {count(vehicles)} vehicles" for run, vehicles, _ in parts]
    figure, axes = grid(names, 0.135 * sum(rows) / len(rows), columns=1, sharex=True, height_ratios=rows)
    for panel, (run, *_), frame in zip(axes, parts, frames, strict=True):
        label_status(panel, run)
        bars(panel, frame)
        log_axes(panel, "times the original")
    for panel in axes[:-1]:
        panel.set_xlabel("")
    for panel in axes[:1]:  # whose axis all share
        ratios = pd.concat(frames)["ratio"]
        panel.set_xlim(min(0.5, 0.7 * ratios.min()), max(200.0, 12 * ratios.max()))
    legend(figure, axes)
    return figure


def fastest(frame: pd.DataFrame) -> pd.DataFrame:
    """Of each operation and form the setting with the shortest time, the operations in their order."""
    best = frame.loc[frame.groupby(["operation", "form"], sort=False)["seconds"].idxmin()]
    order = best.assign(place=best["form"].map(paper.rung_order), of=best["operation"].map(summaries.operation_order))
    return best.loc[order.sort_values(["of", "place"]).index]


def bars(panel: Axes, frame: pd.DataFrame) -> None:
    """A group of bars for each operation, from the top."""
    place, names = 0.0, {}
    for operation, rows in frame.groupby("operation", sort=False):
        top = place
        for row in rows[rows["form"] != "original"].to_dict("records"):
            look = rung(row["form"])
            panel.barh(place, row["ratio"] - 1, 0.84, 1, color=look.colour, label=look.label)
            words = f"{times(row['ratio'])}, B = {count(row['num_envs'])}"
            panel.annotate(words, (max(row["ratio"], 1), place), (4, 0), **BEHIND)
            place += 1
        ends = claimed(operation)
        if ends and place > top:
            box = Rectangle((ends[0], top - 0.5), ends[1] - ends[0], place - top, label="expected of a GPU", **BAND)
            panel.add_patch(box)
        base = rows.loc[rows["form"] == "original", "seconds"]
        time = "" if base.empty or missing(base.iloc[0]) else f"\n{short_time(base.iloc[0])}"
        names[(top + place - 1) / 2] = summaries.operation(operation) + time
        place += 1
    panel.set_yticks(list(names), list(names.values()))
    panel.set_ylim(place - 1.2, -0.8)
    panel.axvline(1, color="#8a8a8a", linewidth=1.2)
    panel.tick_params(axis="y", length=0)
    panel.grid(visible=False, axis="y")
