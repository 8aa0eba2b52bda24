"""Learning curves: the return in the original over steps and over seconds."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

from lockstep import paper
from lockstep.paper import quantities
from lockstep.paper.common import learning as sums
from lockstep.paper.common.tables.transfer import DEVICES
from lockstep.paper.figures import figure, grid, legend, write_below

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6655CC", "#AA4422", "#117733", "#8a6d00")
MARKERS = ("o", "s", "^", "D", "v", "P")
MANY_TIMES = 4
ENTRY = 0.16  # inches, of a line of the legend
AXES = {"env_steps": "environment steps", "wall_s": "seconds"}


@figure(
    "Learning curves, over environment steps and over seconds of training: the interquartile mean over seeds of the "
    "mean return of a hundred greedy episodes in the original, with its bootstrap interval (shaded). Grey: a random "
    "policy and published returns; red: the aim, where there is one; dashed: fewer seeds than a claim needs; a "
    "colour for each algorithm, a marker for each machine and device.",
    "Line charts, one row per environment, its return over environment steps on the left and over seconds on the "
    "right, one line with a shaded interval per machine, device, agent and algorithm. The table of the curves holds "
    "the numbers.",
)
def learning(datasets: list) -> Figure:
    found = [(run, sums.curve(run)) for run in quantities.of(datasets, {"experiment": "learning"})]
    found = [(run, points) for run, points in found if len(points)]
    names = list(dict.fromkeys(run.provenance["environment"] for run, _ in found))
    figure, axes = grid([name for name in names for _ in AXES], height=1.7)
    colours: dict[str, str] = {}
    markers: dict[tuple, str] = {}
    for name, *panels in zip(names, axes[::2], axes[1::2], strict=True):
        of_name = [(run, points) for run, points in found if run.provenance["environment"] == name]
        for panel, (column, label) in zip(panels, AXES.items(), strict=True):
            for run, points in of_name:
                lines(panel, run, points, column, colours, markers)
            marks(panel, [run for run, _ in of_name], name)
            panel.set_xlabel(label if name == names[-1] else "")
        by_steps, by_seconds = panels
        by_steps.set(xlim=(0, None), ylabel="return")
        by_steps.xaxis.set_major_formatter(EngFormatter(sep=""))
        by_seconds.set_title("", loc="left")
        over_seconds(by_seconds, [max(line.get_xdata()) for line in by_seconds.lines if line.get_marker() in MARKERS])
        by_seconds.sharey(by_steps)
        by_seconds.tick_params(labelleft=False)
        said = (paper.status_text(run.status, paper.machine(run), paper.date(run)) for run, _ in of_name)
        write_below(by_steps, "; ".join(said))
        by_steps.texts[-1].set_in_layout(False)  # it may reach above the other panel
    figure.align_ylabels(axes[::2])
    legend(figure, axes, ncols=2)
    named = {label for panel in axes for label in panel.get_legend_handles_labels()[1]}
    figure.set_figheight(figure.get_figheight() + ENTRY * -(-len(named) // 2))
    return figure


def lines(panel: Axes, run, points, column: str, colours: dict[str, str], markers: dict[tuple, str]) -> None:
    """The curves of a run, one for each agent, algorithm and device.

    colours, markers: those given so far, by agent and algorithm, and by machine and device.
    """
    for (agent, algorithm, device), rows in points.groupby(["agent", "algorithm", "device"], sort=False):
        few = sums.stamp(agent, rows["seeds"].min())
        learner, place = f"{sums.agent(agent)} {sums.algorithm(algorithm)}", (paper.machine(run), device)
        label = ", ".join(filter(None, [learner, DEVICES.get(device, device), paper.machine(run), few]))
        colour = colours.setdefault(learner, COLOURS[len(colours) % len(COLOURS)])
        marker = markers.setdefault(place, MARKERS[len(markers) % len(MARKERS)])
        rows = rows.sort_values("env_steps")
        style = {"color": colour, "linestyle": "--" if few else "-", "marker": marker}
        panel.plot(rows[column], rows["score"], label=label, linewidth=1.2, markersize=2.2, **style)
        panel.fill_between(rows[column], rows["low"], rows["high"], color=colour, alpha=0.2, linewidth=0)


def over_seconds(panel: Axes, ends: list[float]) -> None:
    """An axis of seconds, logarithmic where one run takes many times as long as another."""
    if max(ends) > MANY_TIMES * min(ends):
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_minor_locator(NullLocator())
    else:
        panel.set_xlim(left=0)
    panel.xaxis.set_major_formatter("{x:g}")


def marks(panel: Axes, runs: list, name: str) -> None:
    """Lines at the return of a random policy, at what others published, and at the aim."""
    for run in runs[:1]:
        finals = sums.final(run)
        for agent, style in {sums.RANDOM: "-", sums.REFERENCE: "-."}.items():
            for score in finals.loc[finals["agent"] == agent, "score"]:
                label = sums.agent(agent)
                panel.axhline(score, color="#8a8a8a", linewidth=1.1, linestyle=style, label=label)
    aim = sums.wanted(name).get("aim")
    if aim is not None:
        panel.axhline(aim, color="#d1344b", linewidth=0.9, linestyle=":", label="aim")
