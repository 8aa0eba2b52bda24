"""Other libraries beside the port, each at its best."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

from lockstep import paper
from lockstep.experiments import peers as experiment
from lockstep.paper import quantities
from lockstep.paper.common.quantities.loops import peer_rates
from lockstep.paper.figures import PAGE, WIDTH, figure, label_outside, legend, say_nothing
from lockstep.paper.typeset import si

COLOURS = {experiment.OURS: "#0072B2"}
OTHER = "#E69F00"
HATCHES = {"step": ("", "one step per call"), "fused": ("////", "many steps in one call")}
ROW, HEAD = 0.19, 0.45  # inches of a bar, and of what stands around those of a panel
RATE = {"fontsize": 6.5, "va": "center_baseline", "textcoords": "offset points"}


@figure(
    f"Other libraries side by side at {experiment.TARGET_SIZE:,} environments on the CPU of one machine: live "
    "environment steps per second, the median with its 95\N{NO-BREAK SPACE}% interval. Each library runs on the number "
    "of threads that suits it best, step by step (plain) and, where it can, many steps in one call (hatched).",
    "Horizontal bars on a logarithmic axis of environment steps per second, one panel per environment and machine, a "
    "bar for each library and mode, fastest first. The table of peers holds the same numbers.",
)
def peers(datasets: list) -> Figure:
    runs = [(run, best(peer_rates(run))) for run in quantities.of(datasets, {"experiment": "peers"})]
    runs = [(run, rows) for run, rows in runs if len(rows)]
    if not runs:
        figure = Figure(figsize=(WIDTH, 1.2), layout="constrained")
        say_nothing(figure.subplots())
        return figure
    lines = [list(runs[place : place + 2]) for place in range(0, len(runs), 2)]
    heights = [HEAD + ROW * max(len(rows) for _, rows in line) for line in lines]
    figure = Figure(figsize=(WIDTH, sum(heights, 0.35)), layout="constrained")
    panels = figure.subplots(len(lines), min(2, len(runs)), sharex=True, squeeze=False, height_ratios=heights)
    ends = pd.concat([rows for _, rows in runs])
    for line, beside in zip(lines, panels, strict=True):
        for panel in beside[len(line) :]:
            panel.set_visible(False)
        for panel, (run, rows) in zip(beside, line, strict=False):
            bars(panel, rows)
            about = "" if run.origin == "here" else paper.machine(run)
            panel.set_title(", ".join(filter(None, [run.provenance["environment"], about])))
            panel.set_xlim(ends["rate_low"].min() / 2, ends["rate_high"].max() * 8)
    axes = [panel for panel in panels.flat if panel.get_visible()]
    label_outside(axes)
    for panel in axes:
        panel.tick_params(labelleft=True)  # each has an order of its own
    legend(figure, axes, ncols=2)
    return figure


def best(rates: pd.DataFrame) -> pd.DataFrame:
    """Of each library and mode the fastest setting on the CPU at TARGET_SIZE, the fastest first."""
    rows = rates[(rates["device"] == "cpu") & (rates["num_envs"] == experiment.TARGET_SIZE)].dropna(subset=["rate"])
    return rows.loc[rows.groupby(["peer", "mode"])["rate"].idxmax()].sort_values("rate", ascending=False)


def bars(panel: Axes, rows: pd.DataFrame) -> None:
    """A bar for each row, with its interval and its rate."""
    for place, row in enumerate(rows.to_dict("records")):
        colour, (hatch, label) = COLOURS.get(row["peer"], OTHER), HATCHES.get(row["mode"], ("..", row["mode"]))
        style = {"color": colour, "hatch": hatch, "edgecolor": PAGE, "linewidth": 0}
        label = f"{experiment.OURS if row['peer'] == experiment.OURS else 'others'}, {label}"
        panel.barh(place, row["rate"], 0.7, label=label, **style)
        panel.plot([row["rate_low"], row["rate_high"]], [place, place], color="#1c2430", linewidth=1.2)
        panel.annotate(si(row["rate"]), (row["rate_high"], place), (4, 0), **RATE)
    panel.set(xscale="log", xlabel="live steps per second")
    panel.xaxis.set_major_locator(LogLocator(base=10, numticks=15))
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.set_yticks(range(len(rows)), rows["peer"])
    for words, peer in zip(panel.get_yticklabels(), rows["peer"], strict=True):
        words.set_fontweight("bold" if peer == experiment.OURS else "normal")
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.tick_params(axis="y", length=0)
    panel.grid(visible=False, axis="y")
