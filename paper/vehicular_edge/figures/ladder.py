"""The ladder of the vehicular edge at a glance: one line per rung."""

from matplotlib.figure import Figure

from lockstep.paper.common.figures.throughput import of_environment
from lockstep.paper.figures import figure


@figure(
    "The ladder of vehicular edge computing at one batch size, from the original to fused slots: live slots per second "
    "of all environments, and the ratio to the original on the same machine.",
    "Dot charts, one panel per machine, on a logarithmic axis: one line per rung of the ladder with the slots per "
    "second of all environments together and the ratio to the original. The ladder's table holds the numbers.",
)
def edge_ladder(datasets: list) -> Figure:
    return of_environment(datasets, "vehicular_edge")
