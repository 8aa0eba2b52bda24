"""Throughput over the batch size, for every rung of the ladder."""

from matplotlib.figure import Figure

from lockstep.paper import quantities
from lockstep.paper.figures import by_machine, curve, label_outside, legend, log_axes, series

caption = (
    "Throughput over the batch size. Live environment steps per second, resets and limits included: medians "
    "with their 95 % intervals (bars, mostly smaller than the marks). Each panel is one environment on one machine; "
    "of the fused steps K the number that was measured at the most sizes."
)
alt = (
    "Line charts, one panel per environment and machine, both axes logarithmic: environment steps per second "
    "over the number of environments, one line per rung. The table of throughput holds the same numbers."
)


def draw(datasets: list) -> Figure:
    figure, panels = by_machine(quantities.of(datasets, {}), height=1.75)
    for panel, run in panels:
        log_axes(panel, "environments B", "steps per second", base=100)
        for label, style, rows in series(quantities.rates(run)):
            curve(panel, rows["num_envs"], rows, label, style | {"markersize": 3, "linewidth": 1.1})
    axes = [panel for panel, _ in panels]
    label_outside(axes)
    legend(figure, axes, ncols=3, fontsize=6.5)
    return figure
