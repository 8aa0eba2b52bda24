"""The ladder of marine navigation at a glance: one line per rung."""

from matplotlib.figure import Figure

from lockstep.paper.common.figures.throughput import of_environment
from lockstep.paper.figures import figure


@figure(
    "The ladder of marine navigation at one batch size, five boats and four obstacles in each environment: live steps "
    "per second of all environments, each of five boats, and the ratio to the original on the same machine.",
    "Dot charts, one panel per machine, on a logarithmic axis: one line per rung of the ladder with the steps per "
    "second of all environments together and the ratio to the original. The ladder's table holds the numbers.",
)
def marine_ladder(datasets: list) -> Figure:
    return of_environment(datasets, "marine_navigation")
