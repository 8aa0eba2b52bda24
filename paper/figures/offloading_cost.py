"""What being in time costs: the cost of a slot against the share of tasks on time, per policy and map."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lockstep.paper import offloading
from lockstep.paper.figures import by_map, legend

caption = (
    "Cost against tasks on time, one panel per map: means over episodes in the original, on scenarios that no agent "
    "was trained on. On time is the share of all tasks whose fate is known, those never admitted among the late. "
    "Small marks on a line: the penalty weight of the search, varied. Better is up and to the left."
)
alt = (
    "Scatter plots, one per map, of the mean cost per slot on the horizontal and the share of tasks on time on the "
    "vertical axis, a mark per policy. The table of offloading holds the numbers."
)


def draw(datasets: list) -> Figure:
    figure, panels = by_map(datasets, 2.3)
    for panel, run, traffic in panels:
        found = offloading.summary(run)
        found = found[(found["traffic"] == traffic) & (found["form"] == "original") & ~found["seen"].astype(bool)]
        marks(panel, found[found["trained_on"] != "one"])
        panel.set(xlabel="cost per slot", ylabel="tasks on time", xlim=(0, None), ylim=(0, 1))
    legend(figure, figure.axes, ncols=4)
    return figure


def marks(panel: Axes, found) -> None:
    """A mark per policy, and a line through what other penalty weights lead to."""
    for policy, rows in sorted(found.groupby("policy"), key=lambda item: offloading.order(item[0])):
        label, colour, marker = offloading.look(policy)
        rows = rows.sort_values("penalty_weight")
        if len(rows) > 1:
            panel.plot(rows["cost"], rows["on_time"], color=colour, marker=".", markersize=3, linewidth=0.9)
        usual = rows[rows["penalty_weight"] == 1.0]
        panel.plot(usual["cost"], usual["on_time"], color=colour, marker=marker, linestyle="none", label=label)
        known = usual.dropna(subset=["on_time_low", "cost_low"])
        panel.vlines(known["cost"], known["on_time_low"], known["on_time_high"], color=colour, linewidth=0.8)
        panel.hlines(known["on_time"], known["cost_low"], known["cost_high"], color=colour, linewidth=0.8)
