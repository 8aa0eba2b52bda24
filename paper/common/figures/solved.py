"""Seeds solved over seconds of training."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter

from lockstep.experiments import curves
from lockstep.paper import machine, quantities
from lockstep.paper.common import learning as sums
from lockstep.paper.common.tables.transfer import DEVICES
from lockstep.paper.figures import PAGE, figure, grid, label_outside, legend

STARTED = "warm"  # in a process that has trained before: what is measured most
AGENTS = {"sb3": ("#D55E00", "s"), "sb3-adapter": ("#E69F00", "^"), "rejax": ("#009E73", "D")}
LINES = ("-", "--", ":", "-.")  # of machines: this one, then those on record
OURS, OTHER = ("#0072B2", "#56B4E9", "#CC79A7", "#6655CC", "#AA4422"), ("#777777", "X")


@figure(
    "Time to solve: share of seeds (n) solved within so many seconds of wall time, each in a process that has trained "
    "before; a colour and a marker for each learner and device, a kind of line for each machine. "
    "Where a curve stays below 100\N{NO-BREAK SPACE}% the other seeds were not solved; they end at the cross.",
    "Step charts, one panel per environment: the share of seeds solved, from 0 to 100 %, over seconds of training on a "
    "logarithmic axis, one curve per learner, device and machine. The table of the time to solve holds quartiles.",
)
def solved(datasets: list) -> Figure:
    found: dict[str, list] = {}
    for run in quantities.of(datasets, {"experiment": "learning"}):
        for setting, rows in curves.runs(run.frame, "solve"):
            known = rows.dropna(subset=["solved"])
            if setting["variant"] == STARTED and len(known):
                found.setdefault(setting["environment"], []).append((run, setting, known))
    columns = 1 if len(found) == 1 else 2
    figure, axes = grid(list(found), 2.3, columns, sharex=True, sharey=True)
    looks: dict[tuple, tuple] = {}
    places = dict.fromkeys(["here", *(machine(run) for learners in found.values() for run, *_ in learners)])
    for panel, learners in zip(axes, found.values(), strict=True):
        for run, setting, rows in learners:
            curve(panel, rows, label(run, setting, len(rows)), look(looks, list(places), run, setting))
        panel.set(xscale="log", xlabel="seconds of training", ylabel="seeds solved", ylim=(-0.03, 1.05))
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_major_formatter(PercentFormatter(1, symbol="\N{NO-BREAK SPACE}%"))
    label_outside(axes)
    legend(figure, axes, ncols=2)
    return figure


def curve(panel: Axes, rows, label: str, style: dict) -> None:
    """The share of seeds solved over seconds; a cross where the longest of those ended that never were."""
    times, last = np.sort(rows.loc[rows["solved"] == 1, "wall_s"].to_numpy(dtype=float)), rows["wall_s"].max()
    shares = np.arange(1, len(times) + 1) / len(rows)
    x, y = np.concatenate([times[:1], times, [last]]), np.concatenate([[0.0], shares, shares[-1:]])
    every = max(1, len(times) // 6)
    panel.step(x, y, where="post", label=label, markevery=(1, every), markersize=3.5, **style)
    if len(times) < len(rows):
        panel.plot(last, y[-1], "x", color=style["color"], markersize=6)


def label(run, setting: dict, seeds: int) -> str:
    """The learner, its device, its machine and the number of its seeds."""
    words = f"{sums.agent(setting['agent'])} {sums.algorithm(setting['algorithm'])}".strip()
    device = DEVICES.get(setting["device"], setting["device"])
    few = sums.stamp(setting["agent"], seeds)
    return f"{words}, {device}, {machine(run)}, n = {seeds}" + (f", {few}" if few else "")


def look(looks: dict[tuple, tuple], places: list[str], run, setting: dict) -> dict:
    """Colour and marker of a learner, the same in every panel; its machine's kind of line, markers by turns hollow."""
    key = setting["agent"], setting["algorithm"], setting["device"]
    if key not in looks:
        ours = [known for known in looks if known[0] == sums.OURS]
        mine = setting["agent"] == sums.OURS
        looks[key] = (OURS[len(ours) % len(OURS)], "o") if mine else AGENTS.get(setting["agent"], OTHER)
    colour, marker = looks[key]
    place = places.index(machine(run))
    style = {"color": colour, "marker": marker, "linestyle": LINES[place % len(LINES)]}
    return style | {"markerfacecolor": PAGE if place % 2 else colour}
