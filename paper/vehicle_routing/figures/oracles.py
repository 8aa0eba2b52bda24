"""Costs of oracles beside PyVRP's, and the changes that neighbours in a batch make."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from lockstep.experiments.experiment import MEASURED
from lockstep.paper import quantities
from lockstep.paper.figures import PAGE, figure, legend, of_runs
from lockstep.paper.typeset import SPACE, count
from lockstep.paper.vehicle_routing import summaries

STATISTICS = {True: ("the batch's statistics", "#D55E00"), False: ("stored statistics", "#0072B2")}


def runs_of(datasets: list) -> list:
    return quantities.of(datasets, {"experiment": "oracles"})


@figure(
    "Mean cost of the first requests of a day over that of PyVRP at its longest, less one, by their number; bars: 95 % "
    "bootstrap intervals over days. Oracles that were not to be had are left out, and the table of oracles says why.",
    "Line charts, one panel per machine: the gap to PyVRP in per cent over the number of requests, a line for each "
    "oracle with vertical intervals. The table of oracles holds the numbers.",
)
def routing_gap(datasets: list) -> Figure:
    drawing, axes = of_runs(runs_of(datasets), 3.4)
    for panel, run in zip(axes, runs_of(datasets), strict=True):
        found = summaries.gaps(run).dropna(subset=["gap"])
        for oracle, rows in found.groupby("oracle", sort=False):
            label, colour, marker = summaries.look(oracle)
            panel.vlines(rows["requests"], rows["gap_low"], rows["gap_high"], color=colour, linewidth=0.9)
            style = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.2}
            if colour in {line.get_color() for line in panel.lines}:  # another number of seconds
                style |= {"markerfacecolor": PAGE, "linestyle": "--"}
            panel.plot(rows["requests"], rows["gap"], label=label, **style)
        panel.set(xlabel="requests so far", ylabel="cost over PyVRP's", xticks=sorted(found["requests"].unique()))
        panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=f"{SPACE}%"))
    legend(drawing, axes, ncols=2)
    return drawing


@figure(
    "Change of a problem's cost when the problems of its batch are exchanged for others, by the size of batches, for a "
    "network with batch norm that was trained here under the published masks: the share of problems whose cost changes "
    "by so much or less. A line at the top from the left edge on is a cost that knows no neighbours.",
    "Step charts, one panel per machine: the share of problems over the absolute change of their cost in minutes, a "
    "line for each size of batches, for statistics of the batch and for stored ones. The table of neighbours holds the "
    "numbers.",
)
def routing_neighbours(datasets: list) -> Figure:
    drawing, axes = of_runs(runs_of(datasets), 2.4)
    for panel, run in zip(axes, runs_of(datasets), strict=True):
        frame = run.frame[(run.frame["part"] == "neighbours") & (run.frame["status"] == MEASURED)]
        frame = frame.assign(change=(frame["among_others_min"] - frame["cost_min"]).abs())
        sizes, last = sorted(frame["batch"].unique()), frame["change"].max()
        several = frame["oracle"].nunique() > 1
        for (weights, statistics, batch), rows in frame.groupby(["oracle", "batch_statistics", "batch"]):
            label, colour = STATISTICS[bool(statistics)]
            change, share = np.sort(rows["change"]), np.arange(1, len(rows) + 1) / len(rows)
            style = {"color": colour, "alpha": 0.4 + 0.6 * (sizes.index(batch) + 1) / len(sizes)}
            panel.step([0, *change, last], [0, *share, 1], where="post", **style)
            about = [weights] * several + [label, f"batches of {count(batch)}"]
            panel.plot(change[-1], 1, "o", markerfacecolor=PAGE, label=", ".join(about), **style)
        panel.set(xlabel="change of cost, min", ylabel="problems", ylim=(-0.03, 1.06))
        panel.yaxis.set_major_formatter(PercentFormatter(1, symbol=f"{SPACE}%"))
    legend(drawing, axes, ncols=2)
    return drawing
