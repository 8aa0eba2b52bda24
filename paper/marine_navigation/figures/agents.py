"""Success of agents along their training."""

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from lockstep.paper.common.tables.transfer import DEVICES
from lockstep.paper.figures import figure, grid, label_outside, label_status, legend
from lockstep.paper.marine_navigation import summaries
from lockstep.paper.typeset import SPACE


@figure(
    "Agents of marine navigation along their training: the share of episodes that succeed in the port, over all "
    "settings of the published evaluation. Lines: means over seeds; shaded: the least and the most of several; axes of "
    "steps differ, as a GPU has time for the published number.",
    "Line charts, one panel per version, preset, variant and device: success over environment steps, one line per "
    "agent. The table of policies holds the shares at the end.",
)
def marine_agents(datasets: list) -> Figure:
    runs = summaries.fullest(datasets, "navigation")
    by = ["version", "preset", "variant"]
    parts = [(run, *part) for run in runs for part in summaries.common(summaries.curves(run)).groupby(by, sort=False)]
    titles = [f"{version}, preset {preset}, {variant} agents" for _, (version, preset, variant), _ in parts]
    figure, axes = grid(titles, 2.0, sharey=True)
    for panel, (run, _, rows) in zip(axes, parts, strict=True):
        label_status(panel, run, f"trained on a {DEVICES[summaries.trained_on(run)]}, ")
        for _, of_agent in rows.groupby("policy", sort=False):
            label, colour, marker = summaries.look(summaries.name(of_agent.iloc[0]))
            points = of_agent.groupby("env_steps")["success"].agg(["mean", "min", "max"])
            panel.plot(
                points.index, points["mean"], label=label, color=colour, marker=marker, markersize=3, linewidth=1.2
            )
            panel.fill_between(points.index, points["min"], points["max"], color=colour, alpha=0.2, linewidth=0)
        panel.set(xlabel="environment steps", ylabel="episodes that succeed", xlim=(0, None), ylim=(-0.03, 1.03))
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.yaxis.set_major_formatter(PercentFormatter(1, symbol=f"{SPACE}%"))
    label_outside(axes)
    for panel in axes:
        panel.tick_params(labelbottom=True)  # steps differ by device
    legend(figure, axes)
    return figure
