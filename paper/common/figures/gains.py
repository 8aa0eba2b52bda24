"""The gain of each step of the ladder, and where a GPU loses."""

import math

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lockstep import paper
from lockstep.paper import quantities, rung
from lockstep.paper.common.tables.gains import crossing, gain, steps
from lockstep.paper.figures import PAGE, WIDTH, figure, label_outside, legend, log_axes, say_nothing
from lockstep.paper.typeset import count, missing, times

COLOURS = {"batching": "#E69F00", "compiling": "#56B4E9", "fusing": "#CC79A7", "threads": "#a9a9a9", "graph": "#DDCC77"}
COLOURS |= {"indexing": "#c49a8a", "batching on GPU": "#b8860b", "one kernel": "#44AA99", "not waiting": "#009E73"}
ON_BAR = "#101010"  # whatever the page's colours are
BAR = ["environment", "way"]  # what one bar is of
CURVES = ("gymnasium-vector", "port-cpu", "port-cuda", "port-cuda-graph")
IN_A_ROW = 5  # line charts at most


@figure(
    "For each machine, above: the way from the original to fused steps at one batch size; each part of a bar is one "
    "step (hatched: several together, because a rung between them was not measured at that size), with its factor "
    "where that fits, hollow where it loses. Below: one step per call over the batch size, as a multiple of the "
    "original: a port loses below the grey line.",
    "For each machine stacked bars on a logarithmic axis of steps per second, one for each environment and device, and "
    "line charts, one per environment, of the gain over one original by batch size. The tables of the breakdown and of "
    "break-even sizes hold the numbers.",
    on_gpu="; a diamond marks where a GPU overtakes the port on the CPU",
)
def breakdown(datasets: list) -> Figure:
    found = [(run, pd.DataFrame(steps(run))) for run in quantities.of(datasets, {})]
    blocks: dict[str, list] = {name: [] for name in paper.machines([run for run, part in found if len(part)])}
    for run, part in found:
        if len(part):
            blocks[paper.machine(run)].append((run, part.assign(environment=run.provenance["environment"])))
    bars = {name: pd.concat([part for _, part in block]) for name, block in blocks.items()}
    rows = {name: math.ceil(len(block) / IN_A_ROW) for name, block in blocks.items()}
    heights = [
        inches
        for name, part in bars.items()
        for inches in (0.5 + 0.19 * part.groupby(BAR).ngroups, 1.1 * rows[name] + 0.2)
    ]
    figure = Figure(figsize=(WIDTH, sum(heights, 0.9)), layout="constrained")
    if not bars:
        say_nothing(figure.subplots())
        return figure
    places, ends = iter(figure.add_gridspec(len(heights), 1, height_ratios=heights)), pd.concat(bars.values())
    for name, block in blocks.items():
        panel = figure.add_subplot(next(places))
        panel.set_title(f"{name}: steps per second")
        ladders(panel, bars[name])
        panel.set_xlim(ends["rate_before"].min() / 1.5, ends["rate"].max() * 1.5)
        grid = next(places).subgridspec(rows[name], min(len(block), IN_A_ROW))
        below = list(grid.subplots(sharex=True, sharey=True, squeeze=False).flat)
        for small, (run, _) in zip(below, block, strict=False):
            contest(small, quantities.rates(run))
            small.set_title(run.provenance["environment"], fontsize=6)
        for unused in below[len(block) :]:
            unused.remove()
        label_outside(below[: len(block)])
    legend(figure, figure.axes)
    return figure


def ladders(panel: Axes, frame: pd.DataFrame) -> None:
    """A stacked bar for each environment and way."""
    bars = list(frame.groupby(BAR, sort=False))
    for place, (_, part) in enumerate(bars):
        for row in part.to_dict("records"):
            low, high = sorted((row["rate_before"], row["rate"]))
            first, *_, last = (COLOURS[step] for step in row["step"].split(" + ") for _ in range(2))
            style = {"edgecolor": last, "hatch": "" if first == last else "////"}
            panel.barh(place, 0, 0.72, low, facecolor=first, label=row["step"], **style)  # for the legend, never hollow
            face = PAGE if row["factor"] < 1 else first
            panel.barh(place, high - low, 0.72, low, facecolor=face, **style)
            if row["factor"] > 2.5:
                ground = {"facecolor": face, "edgecolor": "none", "pad": 0.8}
                where = {"ha": "center", "va": "center_baseline", "bbox": ground}
                panel.text(np.sqrt(low * high), place, times(row["factor"]), fontsize=6, color=ON_BAR, **where)
    log_axes(panel, "", base=100)
    panel.set_yticks(range(len(bars)), [named(*names, part["other_size"].iloc[0]) for names, part in bars])
    panel.set_ylim(len(bars) - 0.4, -0.6)
    panel.tick_params(axis="y", length=0, labelsize=7)
    panel.grid(visible=False, axis="y")


def named(environment: str, way: str, other_size: float | None) -> str:
    """The name of a bar, with its batch size where that is not the one at which the environment is told."""
    return f"{environment}, {way}" + ("" if missing(other_size) else f", B = {count(other_size)}")


def contest(panel: Axes, rates: pd.DataFrame) -> None:
    """Gain over the single original by batch size, and where a GPU catches up with the CPU."""
    panel.axhline(1, color="#8a8a8a", linewidth=1.5)
    found = {name: gain(rates, name, "original").dropna() for name in CURVES}
    for name, curve in found.items():
        style = {"color": rung(name).colour, "marker": rung(name).marker, "markersize": 2.5, "linewidth": 1.1}
        panel.plot(curve.index, curve, label=rung(name).label if len(curve) else "", **style)
    at, low, high = crossing(gain(rates, "port-cuda", "port-cpu"))
    if low < high < np.inf:
        height = np.interp(np.log(at), np.log(found["port-cuda"].index), np.log(found["port-cuda"]))
        panel.plot(at, np.exp(height), "D", color="black", markersize=4)
    log_axes(panel, "environments B", "× original", base=100)
