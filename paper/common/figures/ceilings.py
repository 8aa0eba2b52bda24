"""The ports under the roof of their machine: copy bandwidth and arithmetic."""

import itertools
import re

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from lockstep import paper
from lockstep.experiments.bench import machine_code
from lockstep.paper import quantities, rung
from lockstep.paper.common.tables.transfer import DEVICES
from lockstep.paper.families import told_at
from lockstep.paper.figures import SOFT, figure, grid, label_outside, legend, log_axes

KERNELS = {  # of a rung, whose name ends like this
    r"cpu|cuda-graph": r"step_\w+",
    r".*-fused": "rollout_random_statistics",
    r".*-trajectory": "rollout_random_trajectory",
    r".*-mlp": "rollout_mlp_trajectory",
}
MARKERS = "oD^vPX*<>"
ROOF = {"color": SOFT, "linewidth": 1.4, "zorder": 1}


@figure(
    "Roofline: operations per second over operations per byte, a point for each environment and rung at one batch "
    "size, under the copy bandwidth and fp32 rate (two operations per multiply-add) of the machine. Operations are the "
    "instructions of a step in the GPU kernel's machine code (counted where one lane holds an environment), bytes "
    "those of all buffers that a step reads and writes.",
    "Scatter plots, one per machine and device, both axes logarithmic: points under two slanted lines, the copy "
    "bandwidth in and out of the cache, and a horizontal one, the rate of arithmetic. The roofline table holds the "
    "rates, bytes and bounds.",
)
def roofline(datasets: list) -> Figure:
    runs, counts = quantities.of(datasets, {}), machine_code.published()
    places = [
        (name, device, found(datasets, runs, name, device, counts))
        for name in paper.machines(runs)
        for device in DEVICES
    ]
    places = [place for place in places if place[2]]
    titles = [f"{name}, {DEVICES[device]}" for name, device, _ in places]
    figure, axes = grid(titles, 2.9, sharex=True, sharey=True)
    names = sorted({row["environment"] for *_, rows in places for row in rows})
    looks = dict(zip(names, itertools.cycle(MARKERS), strict=False))
    at = [row["operations"] / row["bytes"] for *_, rows in places for row in rows]
    for panel, (_, device, rows) in zip(axes, places, strict=True):
        for row in rows:
            style = {"color": rung(row["rung"]).colour, "marker": looks[row["environment"]]}
            panel.plot(row["operations"] / row["bytes"], row["operations"] * row["rate"], **style, linestyle="")
        for name in dict.fromkeys(row["rung"] for row in rows):
            panel.plot([], [], color=rung(name).colour, linewidth=5, label=rung(name).label)
        log_axes(panel, "operations per byte", "operations per second")
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        roof(panel, datasets, rows[0]["run"], device, min(at) / 3, max(at) * 2)
    for name, marker in looks.items():
        axes[0].plot([], [], color=SOFT, marker=marker, linestyle="", label=name)
    label_outside(axes)
    legend(figure, axes)
    return figure


def found(datasets: list, runs: list, machine: str, device: str, counts: dict) -> list[dict]:
    """Operations, bytes and rate of the rungs on a machine whose bounds are known, the most threads of each."""
    points = []
    for run in (run for run in runs if paper.machine(run) == machine):
        name, rates = run.provenance["environment"], quantities.rates(run)
        rates = rates[(rates["device"] == device) & (rates["bytes_per_step"] > 0) & (rates["obs"] == "copy")]
        for one, rows in rates[rates["policy"] != "fixed"].groupby("rung"):
            kernel = next((known for end, known in KERNELS.items() if re.fullmatch(f"port-({end})", one)), None)
            count = next(
                (n for (of, k), n in counts.items() if of == name and kernel and re.fullmatch(kernel, k)), None
            )
            if count and len(quantities.copy_curve(datasets, run, device)):
                near = (np.log(rows["num_envs"]) - np.log(told_at(name))).abs()
                best = rows[near == near.min()].sort_values("rate").iloc[-1]
                about = {"environment": name, "rung": one, "run": run, "operations": count}
                points.append(about | {"bytes": best["bytes_per_step"], "rate": best["rate"]})
    return points


def roof(panel: Axes, datasets: list, run, device: str, low: float, high: float) -> None:
    """Lines of the bandwidth of the largest copy and of the fastest, up to the rate of arithmetic."""
    copy, most = quantities.copy_curve(datasets, run, device), quantities.fp32_rate(datasets, run, device)
    for words, bandwidth, line in (("copy, memory", copy.iloc[-1], "-"), ("copy, cache", copy.max(), "--")):
        x = np.array([low, max(low, most / bandwidth)])
        panel.plot(x, np.minimum(x * bandwidth, most), line, label=words, **ROOF)
    panel.plot([min(most / copy.max(), high), high], [most, most], label="", **ROOF)
    panel.annotate("fp32 rate", (high, most), (-2, 3), ha="right", textcoords="offset points", fontsize=6.5, color=SOFT)
