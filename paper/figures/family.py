"""All environments at a glance: one line for each, one panel per machine."""

from matplotlib.figure import Figure

from lockstep.paper import rung, tables
from lockstep.paper.figures import grid, legend, log_axes
from lockstep.paper.typeset import missing

caption = (
    "All environments, each at the batch size at which it is told: live environment steps per second on each machine, "
    "from the original to fused steps, with as many threads as are fastest."
)
alt = (
    "Dot charts, one panel per machine, on a logarithmic axis: one line per environment, with a mark for each of "
    "the main rungs of the ladder. The table of the family holds the same numbers."
)


def draw(datasets: list) -> Figure:
    family = tables.family(datasets)
    measured = family[family["machine"] != ""]
    environments = sorted(measured["environment"].unique())
    machines = list(measured["machine"].unique())
    height = 1.1 + 0.22 * len(environments)
    figure, axes = grid(machines, height, columns=3, sharex=True, sharey=True)
    for panel, machine in zip(axes, machines, strict=True):
        for row in measured[measured["machine"] == machine].to_dict("records"):
            place = environments.index(row["environment"])
            shown = {name: row[f"{name}_rate"] for name in tables.declared()["headline"]["rungs"]}
            shown = {name: rate for name, rate in shown.items() if not missing(rate)}
            if shown:
                ends = [min(shown.values()), max(shown.values())]
                panel.plot(ends, [place, place], color="#d5dbe3", linewidth=2, zorder=1)
            for name, rate in shown.items():
                about = rung(name)
                style = {"color": about.colour, "marker": about.marker, "linestyle": "", "label": about.label}
                panel.plot(rate, place, **style)
        log_axes(panel, "steps per second", base=100)
        panel.set_yticks(range(len(environments)), environments)
        panel.set_ylim(len(environments) - 0.5, -0.5)
        panel.tick_params(axis="y", length=0)
    legend(figure, axes)
    return figure
