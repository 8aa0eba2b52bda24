"""The ports beside the bounds of their machine: memory on the left, arithmetic on the right."""

import pandas as pd
from matplotlib.figure import Figure

from lockstep import paper
from lockstep.paper import quantities, rung
from lockstep.paper.figures import curve, figure, grid, label_outside, legend, log_axes, machines

MEMORY = ("port-cpu", "port-cuda-graph")
ARITHMETIC = ("port-cpu-fused", "port-cuda-fused")
BOUNDS = {"cpu": {"color": "#b3bcc7", "linewidth": 3}, "cuda": {"color": "#6f7b89", "linewidth": 3}}
STYLES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3)))


@figure(
    "The ports against the bounds of each machine; a line style per environment. Left: bytes of all buffers that a "
    "step reads and writes, times the rate, under the copy bandwidth measured there (grey). Right: how many fp32 "
    "operations the machine could do, at its measured rate, in the time of one fused step: the fewer, the nearer the "
    "bound of arithmetic. On as many threads as there are cores.",
    "Pairs of line charts for each machine, all axes logarithmic, with a line per rung and environment. Left: memory "
    "traffic over the bytes touched by one call, under grey curves of measured copy bandwidth. Right: available "
    "fp32 operations per step over the number of environments. The roofline table holds the same numbers.",
)
def roofline(datasets: list) -> Figure:
    runs = [run for run in quantities.of(datasets, {}) if bounded(datasets, run)]
    names = machines(runs)
    titles = [title for name in names for title in (f"{name}: memory", f"{name}: arithmetic")]
    figure, axes = grid(titles, height=2.2, sharex="col", sharey="col")
    dashes = dict(zip(sorted({run.provenance["environment"] for run in runs}), STYLES * len(runs), strict=False))
    for memory, arithmetic, name in zip(axes[::2], axes[1::2], names, strict=True):
        log_axes(memory, "bytes touched by one call", "bytes per second")
        log_axes(arithmetic, "environments B", "fp32 operations per step")
        of_machine = [run for run in runs if paper.machine(run) == name]
        for device, style in BOUNDS.items():
            copy = quantities.copy_curve(datasets, of_machine[0], device)
            if len(copy):
                memory.plot(
                    copy.index, copy, label={"cpu": "copy on CPU", "cuda": "copy on GPU"}[device], zorder=1, **style
                )
        for run in of_machine:
            look = {"linestyle": dashes[run.provenance["environment"]], "markersize": 3, "linewidth": 1.2}
            for rows, label, style in shown(run, MEMORY):
                touched = rows["bytes_per_step"] * rows["fused_steps"] * rows["num_envs"]
                curve(memory, touched, rows, label, style | look, rows["bytes_per_step"])
            for rows, label, style in shown(run, ARITHMETIC):
                fp32 = quantities.fp32_rate(datasets, run, rows["device"].iloc[0])
                arithmetic.plot(rows["num_envs"], fp32 / rows["rate"], label=label, **style | look)
    for name, dash in dashes.items():
        axes[0].plot([], [], color="#1c2430", linestyle=dash, label=name)
    for column in (axes[::2], axes[1::2]):
        label_outside(column)
    legend(figure, axes)
    return figure


def shown(run, names: tuple[str, ...]) -> list[tuple[pd.DataFrame, str, dict]]:
    """(rows by size, label, style) of some rungs, on the most threads, with the number of steps of most sizes."""
    rates, found = quantities.rates(run), []
    rates = rates[(rates["policy"] == "random") & (rates["obs"] == "copy")]
    for name in names:
        rows = rates[rates["rung"] == name]
        rows = rows[rows["threads"] == rows["threads"].max()]
        rows = rows[rows["fused_steps"] == rows["fused_steps"].mode().max()]
        if len(rows):
            about = rung(name)
            found.append((rows.sort_values("num_envs"), about.label, {"color": about.colour, "marker": about.marker}))
    return found


def bounded(datasets: list, run) -> bool:
    """True where the bounds of a run's machine were measured."""
    return any(len(quantities.ceilings(datasets, run, "copy", device)) for device in ("cpu", "cuda"))
