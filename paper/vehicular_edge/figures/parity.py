"""Differences between the forms of the vehicular edge."""

import numpy as np
from matplotlib.figure import Figure

from lockstep.paper import quantities
from lockstep.paper.common.figures.correctness import PAIRS
from lockstep.paper.common.quantities.correctness import differences
from lockstep.paper.common.tables.transfer import DEVICES
from lockstep.paper.figures import figure, grid, legend, log_axes, write_below
from lockstep.paper.typeset import count

COLOURS = {"original-port": "#0072B2", "arrays-port": "#E69F00", "original-indexed": "#AA4422", "cpu-cuda": "#009E73"}
EXACT = 1e-18  # where a difference of nothing is drawn


@figure(
    "Largest relative differences between original and port (and other pairs), counted over all quantities, maps, "
    "presets and sizes that are compared, on all machines. Red: the tolerances; in double precision the right one "
    "is of what leaves the port in single precision all the same; exact agreement is counted at the left edge.",
    "Histograms on a logarithmic axis of relative difference, one panel for float64 and one for float32, stacked by "
    "pair and device, with a vertical line at each tolerance. The table of checks holds the numbers.",
)
def edge_parity(datasets: list) -> Figure:
    select = {"experiment": "correctness", "environment": "vehicular_edge"}
    found = [differences(run) for run in quantities.of(datasets, select)]
    dtypes = [name for name in ("float64", "float32") if any((part["dtype"] == name).any() for part in found)]
    figure, axes = grid(dtypes, height=2.3, sharey=True)
    bins = np.logspace(np.log10(EXACT), 0, 37)
    for panel, dtype in zip(axes, dtypes, strict=True):
        rows = [part[part["dtype"] == dtype] for part in found]
        groups: dict = {}
        for part in rows:
            for (pair, device), group in part.groupby(["pair", "device"]):
                groups.setdefault((pair, device), []).extend(group["error"].clip(EXACT * 1.01, 0.99))
        keys = sorted(groups)
        colours = [COLOURS.get(pair, "#777777") for pair, _ in keys]
        labels = [f"{PAIRS.get(pair, pair)}, {DEVICES.get(device, device)}" for pair, device in keys]
        hatches = ["//" if device == "cuda" else "" for _, device in keys]
        panel.hist([groups[key] for key in keys], bins, stacked=True, color=colours, label=labels, hatch=hatches)
        for tolerance in sorted({value for part in rows for value in part["tolerance"]}):
            panel.axvline(tolerance, color="#d1344b", linewidth=1.2)
        log_axes(panel, "largest relative difference", base=1e4)
        panel.xaxis.set_major_formatter("{x:.0e}")
        panel.set_ylabel("quantities")
        write_below(panel, f"{count(sum(map(len, rows)))} quantities compared")
    legend(figure, axes)
    return figure
