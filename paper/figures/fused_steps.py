"""What fusing K steps into one call buys."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from lockstep.paper import quantities, rung, tables
from lockstep.paper.figures import curve, legend, log_axes, of_runs, on_threads

caption = (
    "Steps fused into one call, for the environment and the batch size of the headline. The mark at K = 1 is one "
    "call, or launch, per step; medians with their 95 % intervals."
)
alt = (
    "Line charts, one panel per machine, both axes logarithmic: environment steps per "
    "second over the number K of fused steps, from one call per step. The table of fused steps holds the "
    "same numbers."
)


def draw(datasets: list) -> Figure:
    fused = tables.fused_steps(datasets)
    headline = {"environment": tables.declared()["headline"]["environment"]}
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
            style |= {"markerfacecolor": "white" if single else rung(name).colour}
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
