"""Rates and memory over the number of environments and of vehicles."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lockstep import paper
from lockstep.paper import quantities
from lockstep.paper.figures import PAGE, curve, figure, grid, label_status, legend, log_axes, title
from lockstep.paper.typeset import count
from lockstep.paper.vehicular_edge import summaries

FLEETS = ("#9ecae1", "#4292c6", "#08519c", "#41ab5d", "#e6550d", "#7a0177")  # by number of vehicles
DEVICES = {"cpu": ("-", "o"), "cuda": ("--", "s")}
MEMORY = {
    "one environment": ("bytes_per_env", "#0072B2", "o", None),
    "scenario, gains stored": ("bytes_per_scenario", "#D55E00", "s", "stored"),
    "scenario, gains drawn": ("bytes_per_scenario", "#009E73", "^", "drawn"),
}


@figure(
    "How far vehicular edge computing grows, one row for each machine. Slots of all environments per second over the "
    "number of environments, a colour for each number of vehicles (best gains and threads), dashed on a GPU; the best "
    "of these over the number of vehicles, and times that number; memory of one environment, and of one scenario with "
    "stored and with drawn gains.",
    "Rows of three line charts for each machine, all axes logarithmic: slots per second over environments for several "
    "numbers of vehicles; slots and vehicle steps per second over vehicles; memory over vehicles. The table of scaling "
    "holds the numbers.",
)
def edge_scaling(datasets: list) -> Figure:
    runs = quantities.of(datasets, {"experiment": "scaling"})
    figure, axes = grid([name for run in runs for name in (title(run), "over vehicles", "memory")], 1.8, columns=3)
    figure.set_figheight(figure.get_figheight() + (1.6 if runs else 0))  # the legend has many lines
    frames = [summaries.scaling(run).dropna(subset=["rate"]) for run in runs]
    numbers = sorted({number for found in frames for number in found["vehicles"]})
    colours = dict(zip(numbers, FLEETS * len(numbers), strict=False))
    for place, (run, found) in enumerate(zip(runs, frames, strict=True)):
        sizes, fleets, memory = axes[3 * place : 3 * place + 3]
        label_status(sizes, run)
        over_environments(sizes, found, colours)
        over_vehicles(fleets, found)
        bytes_over_vehicles(memory, found)
    legend(figure, axes)
    return figure


def over_environments(panel: Axes, found, colours: dict) -> None:
    """Lines of the port, the fastest setting of every size."""
    ported = found[found["rung"].str.startswith("port")]
    best = ported.loc[ported.groupby(["device", "vehicles", "num_envs"])["rate"].idxmax()]
    for (device, vehicles), rows in best.groupby(["device", "vehicles"]):
        dash, marker = DEVICES.get(device, ("-", "o"))
        style = {"color": colours[vehicles], "marker": marker, "linestyle": dash, "markersize": 3}
        curve(panel, rows["num_envs"], rows, f"{count(vehicles)} vehicles", style)
    log_axes(panel, "environments B", "slots per second")


def over_vehicles(panel: Axes, found) -> None:
    """The best rate of each rung, and hollow the same times the number of vehicles."""
    for name, rows in sorted(found.groupby("rung"), key=lambda item: paper.rung_order(item[0])):
        best = rows.loc[rows.groupby("vehicles")["rate"].idxmax()].sort_values("vehicles")
        look = paper.rung(name)
        style = {"color": look.colour, "marker": look.marker, "markersize": 3}
        curve(panel, best["vehicles"], best, look.label, style)
        panel.plot(
            best["vehicles"],
            best["vehicle_rate"],
            **style | {"linestyle": ":", "markerfacecolor": PAGE},
            label=f"{look.label}, times vehicles",
        )
    log_axes(panel, "vehicles N", "per second")
    fleet_ticks(panel, found["vehicles"])


def bytes_over_vehicles(panel: Axes, found) -> None:
    for label, (name, colour, marker, gains) in MEMORY.items():
        rows = found[found[name].notna() & (True if gains is None else found["gains"] == gains)]
        largest = rows.groupby("vehicles")[name].max()
        if len(largest):
            panel.plot(largest.index, largest, color=colour, marker=marker, markersize=3, label=label)
    log_axes(panel, "vehicles N", "bytes")
    fleet_ticks(panel, found["vehicles"])


def fleet_ticks(panel: Axes, vehicles) -> None:
    """A tick at every number of vehicles."""
    numbers = sorted(vehicles.unique())
    panel.set_xticks(numbers, [count(number) for number in numbers])
