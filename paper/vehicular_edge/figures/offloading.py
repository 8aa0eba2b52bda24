"""Policies on each map: costs, tasks on time, delays."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lockstep.envs.vehicular_edge.params import Params
from lockstep.paper.figures import figure, grid, label_status, legend
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


@figure(
    "Places of policies and maps by return, over their places by half the share of tasks on time less 0.35 of the "
    "cost; the last is the best. Under the present reward, and for the same episodes under the earlier one, whose "
    "drift was of squared backlogs of CPUs and which charged CPUs for the shares that tasks were given, used or not: "
    "means over episodes in the original on scenarios that no agent was trained on.",
    "Two scatter plots, of the present and of the earlier reward, with a mark per policy and map: its place by return "
    "on the vertical axis, its place by half the share of tasks on time less 0.35 of the cost on the horizontal one. "
    "The titles say the rank correlation.",
)
def offloading_reward(datasets: list) -> Figure:
    runs = [run for run in policies.newest(datasets) if run.frame.get("earlier_return", pd.Series()).notna().any()]
    found = of_unseen(policies.summary(runs[0])) if runs else pd.DataFrame()
    rewards = {"return": "present reward", "earlier_return": "earlier reward"} if runs else {}
    aim = (0.5 * found["on_time"] - 0.35 * found["cost"]).rank() if runs else pd.Series()
    places = {name: found[name].rank() for name in rewards}
    titles = [f"{rewards[name]}: rank correlation {aim.corr(place):.2f}" for name, place in places.items()]
    figure, panels = grid(titles, 2.5)
    for panel, place in zip(panels, places.values(), strict=True):
        panel.axline((1, 1), slope=1, color="#d5dbe3", linewidth=0.8)
        for policy, rows in sorted(found.groupby("policy"), key=lambda item: policies.order(item[0])):
            label, colour, marker = policies.look(policy)
            at = aim[rows.index], place[rows.index]
            panel.plot(*at, color=colour, marker=marker, linestyle="none", label=label)
        panel.set(xlabel="place by 0.5 on time \u2212 0.35 cost", ylabel="place by return")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
        label_status(panel, runs[0])
    if panels:
        legend(figure, figure.axes, ncols=4)
    return figure


def of_unseen(found: pd.DataFrame) -> pd.DataFrame:
    """Of a summary the original at the plain penalty weight, unseen scenarios and no agent of one scenario."""
    found = found[(found["form"] == "original") & (found["penalty_weight"] == 1.0) & ~found["seen"].astype(bool)]
    return found[found["trained_on"] != "one"].reset_index(drop=True)


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
