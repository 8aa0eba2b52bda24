"""How long tasks take under each policy, against their deadlines."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lockstep.envs.vehicular_edge.params import Params
from lockstep.paper import offloading
from lockstep.paper.figures import by_map, legend

caption = (
    "Share of tasks done within so many seconds, one panel per map, in the original; of the slots whose later fate is "
    "known. What was never admitted is never done. Grey: where the deadlines lie."
)
alt = (
    "Step lines, one panel per map and one line per policy: the cumulative share of tasks over the delay in seconds, "
    "with the range of deadlines shaded."
)


def draw(datasets: list) -> Figure:
    figure, panels = by_map(datasets, 2.2)
    for panel, run, traffic in panels:
        panel.axvspan(Params.deadline_low_s, Params.deadline_high_s, color="#e4e8ee", linewidth=0)
        for policy, rows in offloading.of_policies(run.frame, "delay", traffic):
            line(panel, policy, rows.groupby("delay_s")["tasks"].sum())
        panel.set(xlabel="delay, s", ylabel="tasks done", ylim=(0, 1), xlim=(0, None))
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(figure, figure.axes, ncols=4)
    return figure


def line(panel: Axes, policy: str, tasks) -> None:
    """The distribution of tasks over delays; the last one, infinite, is of those that take longer."""
    label, colour, _ = offloading.look(policy)
    finite = tasks[np.isfinite(tasks.index)]
    share = finite.cumsum() / max(tasks.sum(), 1)
    panel.step(finite.index, share, where="post", color=colour, linewidth=1.2, label=label)
