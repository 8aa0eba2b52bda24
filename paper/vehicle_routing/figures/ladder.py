"""The ladder of vehicle routing at a glance: one line per rung."""

from matplotlib.figure import Figure

from lockstep.paper.common.figures.throughput import of_environment
from lockstep.paper.figures import figure


@figure(
    "The ladder of vehicle routing at one batch size, thirty requests an episode, routes by insertion: steps per "
    "second of all environments, each with an answer of the oracle, and the ratio to the original on the same machine.",
    "Dot charts, one panel per machine, on a logarithmic axis: one line per rung of the ladder with the steps per "
    "second of all environments together and the ratio to the original. The ladder's table holds the numbers.",
)
def routing_ladder(datasets: list) -> Figure:
    return of_environment(datasets, "vehicle_routing")
