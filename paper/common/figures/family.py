"""All environments at a glance: original, fastest other library, port."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lockstep import paper
from lockstep.experiments import peers as experiment
from lockstep.paper import families, quantities, rung, tables
from lockstep.paper.common.quantities.loops import peer_rates
from lockstep.paper.figures import figure, grid, legend, log_axes
from lockstep.paper.typeset import DASH, TIMES, missing, times

LIBRARY, LIBRARY_LABEL = {"color": "#E69F00", "marker": "^"}, "fastest other library"
VECTOR = "gymnasium-vector"  # a library that the ladder has measured too
PLACE = ["environment", "machine"]
# Headings of the factors: of the rungs with one call per step, as the libraries have them, and over the library.
FACTORS = {"port-cpu": f"CPU {TIMES} original", "port-cuda-graph": f"GPU {TIMES} original"}
FACTORS |= {"library": f"CPU {TIMES} library"}
COLUMN, MARGIN = 56, 6  # points, of a factor and before the axis
NUMBER = {"textcoords": "offset points", "ha": "right", "va": "center_baseline", "annotation_clip": False}


@figure(
    "Environment steps per second of every environment at one batch size: the original, the fastest other library on "
    "the CPU and the port, each on the fastest of the threads that were measured. Factors: the port with one call per "
    "step on a CPU and on a GPU over the original (a dash: not measured at that size), and over that library in a run "
    "of its own, with actions drawn beforehand, so not the ratio of these marks.",
    "Dot charts, one panel per machine, on a logarithmic axis: one line per environment, with a mark for the original, "
    "the fastest other library and each of the main ways to run the port, and factors beside the name. The table "
    "of the family holds the same numbers.",
)
def family(datasets: list) -> Figure:
    table, peers = (tables.frame(name, datasets) for name in ("family", "peers_fastest"))
    table = table.merge(peers.reindex(columns=[*PLACE, "rate", "ratio"]), "left", on=PLACE)
    parts = list(table[table["machine"] != ""].groupby("machine", sort=False))
    rows = [len(part) + 2.2 for _, part in parts] or [1]
    figure, axes = grid(
        [name for name, _ in parts], (0.6 + 0.19 * sum(rows)) / len(rows), columns=1, sharex=True, height_ratios=rows
    )
    found = [factors(part.sort_values("environment").to_dict("records")) for _, part in parts]
    most = max(map(len, found), default=0)
    for panel, (machine, part), beside in zip(axes, parts, found, strict=True):
        lines(panel, part.sort_values("environment").to_dict("records"))
        write_factors(panel, beside, most)
        panel.set_title(f"{machine}: steps per second")
    for panel in axes[:-1]:
        panel.set_xlabel("")
    legend(figure, axes)
    return figure


def lines(panel: Axes, rows: list[dict]) -> None:
    """A line for each environment, from its lowest rate to its highest."""
    rungs = [name for name in families.headline()["rungs"] if name != VECTOR]
    for place, row in enumerate(rows):
        shown = {name: row[f"{name}_rate"] for name in rungs if not missing(row[f"{name}_rate"])}
        looks = {name: {"color": rung(name).colour, "marker": rung(name).marker} for name in shown}
        marks = [(rate, looks[name] | {"label": rung(name).label}) for name, rate in shown.items()]
        marks += [] if missing(row["rate"]) else [(row["rate"], LIBRARY | {"label": LIBRARY_LABEL})]
        ends = [rate for rate, _ in marks]
        panel.plot([min(ends, default=1), max(ends, default=1)], [place, place], color="#d5dbe3", linewidth=2, zorder=1)
        for rate, style in marks:
            panel.plot(rate, place, linestyle="", markersize=5.5, **style)
    log_axes(panel, "environment steps per second", base=10)
    panel.set_yticks(range(len(rows)), [row["environment"] for row in rows])
    panel.set_ylim(len(rows) - 0.5, -0.6)
    panel.grid(visible=False, axis="y")
    panel.spines["left"].set_visible(False)


def factors(rows: list[dict]) -> dict[str, list]:
    """The factors of each heading, a row each, of those of which any is known."""
    found = {name: [row["ratio" if name == "library" else f"{name}_ratio"] for row in rows] for name in FACTORS}
    return {name: column for name, column in found.items() if not all(map(missing, column))}


def write_factors(panel: Axes, found: dict[str, list], columns: int) -> None:
    """Factors between names and axis, under their headings, in the first of so many columns."""
    style = {"xycoords": panel.get_yaxis_transform(), **NUMBER}
    for number, (name, column) in enumerate(found.items()):
        across = -MARGIN - COLUMN * (columns - 1 - number)
        panel.annotate(FACTORS[name], (0, -0.85), (across, 0), fontsize=6.5, **style)
        for place, factor in enumerate(column):
            words = DASH if missing(factor) else times(factor)
            panel.annotate(words, (0, place), (across, 0), fontsize=7.5, **style)
    panel.tick_params(axis="y", length=0, pad=MARGIN + COLUMN * columns)


def fastest_peer(datasets: list, environment: str, machine: str) -> pd.DataFrame:
    """The fastest other library on a machine's CPU at each batch size, in whichever way it is fastest."""
    runs = quantities.of(datasets, {"experiment": "peers", "environment": environment})
    found = [peer_rates(run).dropna(subset=["rate"]) for run in runs if paper.machine(run) == machine]
    rates = pd.concat(found) if found else pd.DataFrame({"peer": [], "device": [], "num_envs": [], "rate": []})
    others = rates[(rates["device"] == "cpu") & (rates["peer"] != experiment.OURS)]
    return others.sort_values("rate").drop_duplicates("num_envs", keep="last").sort_values("num_envs")
