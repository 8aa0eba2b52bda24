"""Success of an agent that learns from batches of several sizes, at equal samples and at equal time."""

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from lockstep.paper.common.tables.transfer import DEVICES
from lockstep.paper.figures import figure, grid, label_outside, label_status, legend
from lockstep.paper.marine_navigation import summaries
from lockstep.paper.typeset import SPACE

AXES = {"env_steps": ("environment steps", ""), "wall_s": ("time of training", "s")}  # label, unit


@figure(
    "Agents that learn from batches of several sizes, at equal samples and at equal time; the learning rate grows with "
    "the root of the size. Lines: means over seeds; shaded: the least and the most of several.",
    "Line charts, two panels per device: success over environment steps and over seconds, one line per batch size.",
)
def marine_batches(datasets: list) -> Figure:
    parts = [
        (run, asked, axis, rows)
        for run in summaries.fullest(datasets, "navigation")
        for asked, rows in summaries.batches(run).groupby(["version", "preset", "policy"], sort=False)
        for axis in AXES
    ]
    titles = [f"{summaries.look(policy)[0]}, {version} boats" for _, (version, _, policy), *_ in parts]
    figure, axes = grid(titles, 2.0, sharey=True)
    for panel, (run, _, axis, rows) in zip(axes, parts, strict=True):
        label_status(panel, run, f"trained on a {DEVICES[summaries.trained_on(run)]}, ")
        for size, of_size in rows.groupby("batch_size"):
            points = of_size.groupby("env_steps").agg({axis: "mean", "success": ["mean", "min", "max"]})
            x, mean, *spread = (points[column] for column in points)
            (line,) = panel.plot(x, mean, label=f"batches of {size:,.0f}", marker="o", markersize=3, linewidth=1.2)
            panel.fill_between(x, *spread, color=line.get_color(), alpha=0.2, linewidth=0)
        label, unit = AXES[axis]
        panel.set(xlabel=label, ylabel="episodes that succeed", xlim=(0, None), ylim=(-0.03, 1.03))
        panel.xaxis.set_major_formatter(EngFormatter(unit, sep=SPACE if unit else ""))
        panel.yaxis.set_major_formatter(PercentFormatter(1, symbol=f"{SPACE}%"))
    label_outside(axes)
    for panel in axes:
        panel.tick_params(labelbottom=True)  # axes differ
    legend(figure, axes)
    return figure
