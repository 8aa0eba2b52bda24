"""Environment steps per second: the ladder, batch sizes, fused steps."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from lockstep import paper
from lockstep.paper import families, quantities, rung, tables
from lockstep.paper.common.figures.family import LIBRARY, LIBRARY_LABEL, fastest_peer
from lockstep.paper.figures import (
    PAGE,
    by_machine,
    curve,
    figure,
    label_outside,
    legend,
    log_axes,
    of_runs,
    on_threads,
    series,
)
from lockstep.paper.typeset import missing, si, times

SHOWN = ("original", "port-cpu", "port-cpu-fused", "port-cuda-graph", "port-cuda-fused")
NUMBERS = 106  # points between a rung's name and its bar
NUMBER = {"textcoords": "offset points", "ha": "right", "va": "center_baseline", "annotation_clip": False}


@figure(
    "The ladder, from the original to fused steps: live environment steps per second at the batch size of "
    "the headline, and how many times the rate of the original on the same machine that is.",
    "Dot charts, one panel per machine, on a logarithmic axis: one line per rung of the "
    "ladder with its environment steps per second and its ratio to the original. The ladder's table holds "
    "the numbers.",
)
def ladder(datasets: list) -> Figure:
    return of_environment(datasets, families.headline()["environment"])


def of_environment(datasets: list, environment: str) -> Figure:
    """The ladder of one environment, a panel per machine."""
    runs = quantities.of(datasets, {"environment": environment})
    ladder = tables.frame("ladder", datasets)
    frames = [quantities.matching(ladder, tables.source(run)) for run in runs]
    rows = [len(frame) + 3 for frame in frames] or [1]
    figure, axes = of_runs(
        runs, height=(0.3 + 0.165 * sum(rows)) / len(rows), columns=1, sharex=True, height_ratios=rows
    )
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
        axes[-1].set_xlabel(f"{families.steps(environment)} per second, of all environments")
    return figure


def name(row: dict) -> str:
    """The rung with its threads."""
    return rung(row["rung"]).label + on_threads(row["rung"], row["threads"])


@figure(
    "Throughput over the batch size: live environment steps per second, medians with their 95\N{NO-BREAK SPACE}% "
    "intervals, one panel for each environment and machine. Dotted: the original's rate; the other library ran on the "
    "CPU; the table of throughput has the other rungs.",
    "Line charts, one panel per environment and machine, both axes logarithmic: environment steps per second "
    "over the number of environments, one line each for original, fastest other library, port and fused port. The "
    "table of throughput holds the same numbers.",
)
def throughput(datasets: list) -> Figure:
    figure, panels = by_machine(quantities.of(datasets, {}), height=1.5)
    for panel, run in panels:
        log_axes(panel, "environments B", base=100)
        log_axes(panel, y="steps per second")
        rates, small = quantities.rates(run), {"markersize": 3, "linewidth": 1.1}
        rates = rates[rates["rung"].isin(SHOWN) & rates["threads"].isin([1, rates["threads"].max()])]
        rates = rates[rates["policy"] == "random"]
        for label, style, rows in series(rates):
            curve(panel, rows["num_envs"], rows, label, style | small)
        for rate in rates.loc[rates["rung"] == "original", "rate"]:
            look = {"color": rung("original").colour, "linewidth": 0.9, "linestyle": ":"}
            panel.plot([0, 1], [rate, rate], transform=panel.get_yaxis_transform(), **look)
        peers = fastest_peer(datasets, run.provenance["environment"], paper.machine(run))
        if len(peers):
            curve(panel, peers["num_envs"], peers, LIBRARY_LABEL, LIBRARY | small)
    axes = [panel for panel, _ in panels]
    label_outside(axes)
    legend(figure, axes, ncols=3)
    return figure


@figure(
    "Steps fused into one call, for the environment and the batch size of the headline. The mark at K = 1 is one "
    "call per step; medians with their 95 % intervals.",
    "Line charts, one panel per machine, both axes logarithmic: environment steps per "
    "second over the number K of fused steps, from one call per step. The table of fused steps holds the "
    "same numbers.",
)
def fused_steps(datasets: list) -> Figure:
    fused = tables.frame("fused_steps", datasets)
    headline = {"environment": families.headline()["environment"]}
    runs = [run for run in quantities.of(datasets, headline) if len(quantities.matching(fused, tables.source(run)))]
    figure, axes = of_runs(runs, height=2.9)
    for panel, run in zip(axes, runs, strict=True):
        log_axes(panel, "fused steps K", "environment steps per second")
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter("{x:.0f}")
        panel.xaxis.set_minor_locator(NullLocator())
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        frame = quantities.matching(fused, {**tables.source(run), "policy": "random"})
        for (name, threads), rows in frame.groupby(["rung", "threads"], sort=False, dropna=False):
            single = name.startswith("port-cpu") and threads < frame["threads"].max()
            style = {
                "color": rung(name).colour,
                "marker": rung(name).marker,
                "linestyle": "--" if single else "-",
            }
            style |= {"markerfacecolor": PAGE if single else rung(name).colour}
            # The rung underneath stands at K = 1; a trajectory, which stores more, has none.
            rows = rows.sort_values("fused_steps") if name.endswith("-trajectory") else with_base(rows)
            label = rung(name).label + on_threads(name, threads)
            curve(panel, rows["fused_steps"], rows, label, style)
    legend(figure, axes)
    return figure


def with_base(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with one in front for the call per step that they are compared with."""
    first = rows.iloc[:1].assign(fused_steps=1)
    for column in ("rate", "rate_low", "rate_high"):
        first[column] = first[f"base_{column}"]
    return pd.concat([first, rows.sort_values("fused_steps")])
