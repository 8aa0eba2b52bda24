"""All environments at a glance: original, fastest other library, port."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lockstep import paper
from lockstep.experiments import peers as experiment
from lockstep.paper import families, quantities, rung, tables
from lockstep.paper.common.quantities.loops import peer_rates
from lockstep.paper.figures import figure, grid, legend, log_axes
from lockstep.paper.typeset import TIMES, missing, times

LIBRARY, LIBRARY_LABEL = {"color": "#E69F00", "marker": "^"}, "fastest other library"
VECTOR = "gymnasium-vector"  # a library that the ladder has measured too
PLACE = ["environment", "machine"]
STEPPED = ("port-cuda-graph", "port-cpu")  # rungs of one call per step, as the libraries have them
FACTORS = {"over": -52, "library": -6}  # points between a factor and the axis
NUMBER = {"textcoords": "offset points", "ha": "right", "va": "center_baseline", "annotation_clip": False}


@figure(
    "Environment steps per second of every environment: the original, the fastest other library on the CPU and the "
    "port, each on the threads that suit it best. Factors: the port with one call per step over the original, and over "
    "that library in a run of its own, with actions drawn beforehand, so not the ratio of these marks.",
    "Dot charts, one panel per machine, on a logarithmic axis: one line per environment, with a mark for the original, "
    "the fastest other library and each of the main ways to run the port, and two factors beside the name. The table "
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
    for panel, (machine, part) in zip(axes, parts, strict=True):
        lines(panel, part.sort_values("environment").to_dict("records"))
        panel.set_title(f"{machine}: steps per second")
    for panel in axes[:-1]:
        panel.set_xlabel("")
    legend(figure, axes)
    return figure


def lines(panel: Axes, rows: list[dict]) -> None:
    """A line for each environment, from its lowest rate to its highest, with its factors beside its name."""
    rungs = [name for name in families.headline()["rungs"] if name != VECTOR]
    for place, row in enumerate(rows):
        shown = {name: row[f"{name}_rate"] for name in rungs if not missing(row[f"{name}_rate"])}
        looks = {name: {"color": rung(name).colour, "marker": rung(name).marker} for name in shown}
        marks = [(rate, looks[name] | {"label": rung(name).label}) for name, rate in shown.items()]
        port = next((name for name in STEPPED if name in shown), None)
        library, over = row["rate"], row["ratio"]  # both of one run of the peers
        marks += [] if missing(library) else [(library, LIBRARY | {"label": LIBRARY_LABEL})]
        ends = [rate for rate, _ in marks]
        panel.plot([min(ends, default=1), max(ends, default=1)], [place, place], color="#d5dbe3", linewidth=2, zorder=1)
        for rate, style in marks:
            panel.plot(rate, place, linestyle="", markersize=5.5, **style)
        factors = {"over": row[f"{port}_ratio"] if port else None, "library": over}
        for name, factor in factors.items():
            words = "" if missing(factor) else times(factor)
            panel.annotate(words, (0, place), (FACTORS[name], 0), panel.get_yaxis_transform(), fontsize=7.5, **NUMBER)
    for name, words in (("over", f"{TIMES} original"), ("library", f"{TIMES} library")):
        panel.annotate(words, (0, -0.85), (FACTORS[name], 0), panel.get_yaxis_transform(), fontsize=6.5, **NUMBER)
    log_axes(panel, "environment steps per second", base=10)
    panel.set_yticks(range(len(rows)), [row["environment"] for row in rows])
    panel.set_ylim(len(rows) - 0.5, -0.6)
    panel.tick_params(axis="y", length=0, pad=2 - 2 * FACTORS["over"] + FACTORS["library"])
    panel.grid(visible=False, axis="y")
    panel.spines["left"].set_visible(False)


def fastest_peer(datasets: list, environment: str, machine: str) -> pd.DataFrame:
    """The fastest other library on a machine's CPU at each batch size, in whichever way it is fastest."""
    runs = quantities.of(datasets, {"experiment": "peers", "environment": environment})
    found = [peer_rates(run).dropna(subset=["rate"]) for run in runs if paper.machine(run) == machine]
    rates = pd.concat(found) if found else pd.DataFrame({"peer": [], "device": [], "num_envs": [], "rate": []})
    others = rates[(rates["device"] == "cpu") & (rates["peer"] != experiment.OURS)]
    return others.sort_values("rate").drop_duplicates("num_envs", keep="last").sort_values("num_envs")
