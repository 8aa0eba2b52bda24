"""Policies on each map: costs, tasks on time, delays."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lockstep.envs.vehicular_edge.params import Params
from lockstep.paper.figures import figure, legend
from lockstep.paper.vehicular_edge import policies


@figure(
    "Cost against tasks on time, one panel per map: means over episodes in the original, on scenarios that no agent "
    "was trained on; on time is the share of all tasks whose fate is known, those never admitted among the late. Small "
    "marks on a line: the penalty weight of the search, varied; better is up and to the left.",
    "Scatter plots, one per map, of the mean cost per slot on the horizontal and the share of tasks on time on the "
    "vertical axis, a mark per policy. The table of offloading holds the numbers.",
)
def offloading_cost(datasets: list) -> Figure:
    figure, panels = policies.by_map(datasets, 2.3)
    for panel, run, traffic in panels:
        found = policies.summary(run)
        found = found[(found["traffic"] == traffic) & (found["form"] == "original") & ~found["seen"].astype(bool)]
        marks(panel, found[found["trained_on"] != "one"])
        panel.set(xlabel="cost per slot", ylabel="tasks on time", xlim=(0, None), ylim=(0, 1))
    legend(figure, figure.axes, ncols=4)
    return figure


def marks(panel: Axes, found) -> None:
    """A mark per policy, and a line through what other penalty weights lead to."""
    for policy, rows in sorted(found.groupby("policy"), key=lambda item: policies.order(item[0])):
        label, colour, marker = policies.look(policy)
        rows = rows.sort_values("penalty_weight")
        if len(rows) > 1:
            panel.plot(rows["cost"], rows["on_time"], color=colour, marker=".", markersize=3, linewidth=0.9)
        usual = rows[rows["penalty_weight"] == 1.0]
        panel.plot(usual["cost"], usual["on_time"], color=colour, marker=marker, linestyle="none", label=label)
        known = usual.dropna(subset=["on_time_low", "cost_low"])
        panel.vlines(known["cost"], known["on_time_low"], known["on_time_high"], color=colour, linewidth=0.8)
        panel.hlines(known["on_time"], known["cost_low"], known["cost_high"], color=colour, linewidth=0.8)


@figure(
    "Share of tasks done within so many seconds, one panel per map, in the original; of the slots whose later fate is "
    "known. What was never admitted is never done; grey: where the deadlines lie.",
    "Step lines, one panel per map and one line per policy: the cumulative share of tasks over the delay in seconds, "
    "with the range of deadlines shaded.",
)
def offloading_deadlines(datasets: list) -> Figure:
    figure, panels = policies.by_map(datasets, 2.2)
    for panel, run, traffic in panels:
        panel.axvspan(Params.deadline_low_s, Params.deadline_high_s, color="#e4e8ee", linewidth=0)
        for policy, rows in policies.of_policies(run.frame, "delay", traffic):
            line(panel, policy, rows.groupby("delay_s")["tasks"].sum())
        panel.set(xlabel="delay, s", ylabel="tasks done", ylim=(0, 1), xlim=(0, None))
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend(figure, figure.axes, ncols=4)
    return figure


def line(panel: Axes, policy: str, tasks) -> None:
    """The distribution of tasks over delays; the last one, infinite, is of those that take longer."""
    label, colour, _ = policies.look(policy)
    finite = tasks[np.isfinite(tasks.index)]
    share = finite.cumsum() / max(tasks.sum(), 1)
    panel.step(finite.index, share, where="post", color=colour, linewidth=1.2, label=label)
