"""The ladder at a glance: one line per rung."""

import pandas as pd
from matplotlib.figure import Figure

from lockstep.paper import quantities, rung, tables
from lockstep.paper.figures import log_axes, of_runs, on_threads
from lockstep.paper.typeset import missing, si, times

caption = (
    "The ladder, from the original to fused steps: live environment steps per second at the batch size of "
    "the headline, and how many times the rate of the original on the same machine that is."
)
alt = (
    "Dot charts, one panel per machine, on a logarithmic axis: one line per rung of the "
    "ladder with its environment steps per second and its ratio to the original. The ladder's table holds "
    "the numbers."
)
NUMBERS = 106  # points between a rung's name and its bar
NUMBER = {"textcoords": "offset points", "ha": "right", "va": "center_baseline", "annotation_clip": False}


def draw(datasets: list) -> Figure:
    return of_environment(datasets, tables.declared()["headline"]["environment"])


def of_environment(datasets: list, environment: str) -> Figure:
    """The ladder of one environment, a panel per machine."""
    runs = quantities.of(datasets, {"environment": environment})
    ladder = tables.ladder(datasets)
    frames = [quantities.matching(ladder, tables.source(run)) for run in runs]
    rows = [len(frame) + 3 for frame in frames] or [1]
    figure, axes = of_runs(runs, height=0.165 * sum(rows) / len(rows), columns=1, sharex=True, height_ratios=rows)
    for panel, frame in zip(axes, frames, strict=True):
        for place, row in enumerate(frame.to_dict("records")):
            colour = rung(row["rung"]).colour
            panel.plot([1, row["rate"]], [place, place], color=colour, linewidth=2.4, alpha=0.35)
            panel.plot(row["rate"], place, marker="o", markersize=6, color=colour)
            ratio = "" if missing(row["ratio"]) or row["rung"] == "original" else times(row["ratio"])
            # Between the names and the bars, so that a narrow screen that cuts off the bars still shows them.
            for words, offset in ((si(row["rate"]), -64), (ratio, -8)):
                panel.annotate(words, (0, place), (offset, 0), panel.get_yaxis_transform(), **NUMBER)
        log_axes(panel, "")
        panel.set_yticks(range(len(frame)), [name(row) for row in frame.to_dict("records")])
        panel.set_ylim(len(frame) - 0.4, -0.6)
        panel.tick_params(axis="y", length=0, pad=NUMBERS)
        panel.grid(visible=False, axis="y")
        panel.spines["left"].set_visible(False)
    if axes:
        rates = pd.concat(frames)["rate"]
        axes[-1].set_xlim(rates.min() / 3, rates.max() * 2)
        axes[-1].set_xlabel("environment steps per second")
    return figure


def name(row: dict) -> str:
    """The rung with its threads."""
    return rung(row["rung"]).label + on_threads(row["rung"], row["threads"])
