"""Throughput over the batch size, for every rung of the ladder."""

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from paper import quantities
from paper.figures import curve, legend, log_axes, of_runs, series

caption = (
    "Throughput over the batch size. Live environment steps per second, resets and limits included: medians "
    "with their 95 % intervals (bars, mostly smaller than the marks). Each panel is one machine."
)
alt = (
    "Line charts, one panel per environment and machine, both axes logarithmic: environment steps per second "
    "over the number of environments, one line per rung. The table of throughput holds the same numbers."
)


def draw(datasets: list) -> Figure:
    runs = quantities.of(datasets, {})
    figure, axes = of_runs(runs, height=3.4, sharex=True, sharey=True)
    for panel, run in zip(axes, runs, strict=True):
        log_axes(panel, "environments B", "environment steps per second")
        panel.yaxis.set_major_locator(LogLocator(numticks=12))
        for label, style, rows in series(quantities.rates(run)):
            curve(panel, rows["num_envs"], rows, label, style)
        panel.tick_params(labelbottom=True, labelleft=True)
    legend(figure, axes)
    return figure
