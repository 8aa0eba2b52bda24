"""Of the harbour."""

from lockstep.paper.figures import figure, grid
from lockstep.paper.quantities import of, rates


@figure("Wakes.", "A bar for each setting of the ferries on each machine: its steps per second.")
def wakes(datasets):
    found = [rate for run in of(datasets, {"environment": "ferries"}) for rate in rates(run)["rate"]]
    drawn, (panel,) = grid(["ferries"], 1)
    panel.bar(range(len(found)), found)
    return drawn
