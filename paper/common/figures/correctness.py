"""The errors of the port's steps beside their tolerances."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from lockstep.paper import quantities
from lockstep.paper.common.tables.transfer import DEVICES
from lockstep.paper.figures import PAGE, figure, grid, legend

PAIRS = {
    "original-port": "port against original",
    "arrays-port": "port against array code",
    "original-indexed": "indexed original against original",
    "cpu-cuda": "GPU against CPU",
}
COLOURS = {"original-port": "#0072B2", "arrays-port": "#E69F00", "cpu-cuda": "#009E73"}
EXACT = 1e-5  # where a difference of nothing is drawn
MOST = 30  # lines that a panel has room for: a large state has a figure of its own
APART = 0.8  # of the height of a line, which all marks of a quantity share
MARKERS = {"cpu": "o", "cuda": "s"}


@figure(
    "Largest difference of one step from any state, as a share of its tolerance, on all machines: nothing "
    "may stand right of the line. Filled: float32, hollow: float64, each pair a little below the one before; exact "
    "agreement stands at the left edge.",
    "Dot charts, one panel per environment: for each compared quantity the largest difference over its "
    "tolerance, on a logarithmic axis, with a vertical line at one. The table of checks holds the same "
    "numbers.",
)
def correctness(datasets: list) -> Figure:
    checked: dict[str, list[pd.DataFrame]] = {}
    for run in quantities.of(datasets, {"experiment": "correctness"}):
        rows = run.frame[(run.frame["level"] == "transition") & (run.frame["tolerance"] > 0)]
        # Regions and variants, in brackets, stand on the line of the quantity: the largest of them.
        line = rows["quantity"].str.replace(r" \(.*\)$", "", regex=True)
        if 0 < line.nunique() <= MOST:
            checked.setdefault(run.provenance["environment"], []).append(rows.assign(line=line))
    frames = {name: pd.concat(parts) for name, parts in checked.items()}
    most = max((frame["line"].nunique() for frame in frames.values()), default=0)
    figure, axes = grid(list(frames), height=0.8 + 0.2 * most, columns=1 if len(frames) == 1 else 2)
    for panel, frame in zip(axes, frames.values(), strict=True):
        lines = list(frame["line"].unique())
        series = list(frame.groupby(["pair", "device", "dtype"], sort=False))
        pairs = list(dict.fromkeys((pair, device) for (pair, device, _), _ in series))
        for (pair, device, dtype), rows in series:
            share = (rows["error"] / rows["tolerance"]).clip(lower=EXACT).groupby(rows["line"]).max()
            style = {"marker": MARKERS.get(device, "D"), "color": COLOURS.get(pair, "#777777")}
            style |= {} if dtype == "float32" else {"markerfacecolor": PAGE}
            label = f"{PAIRS.get(pair, pair)}, {DEVICES.get(device, device)}, {dtype}"
            below = APART * ((pairs.index((pair, device)) + 0.5) / len(pairs) - 0.5)
            panel.plot(share, [lines.index(line) + below for line in share.index], linestyle="", label=label, **style)
        panel.axvline(1, color="#d1344b", linewidth=1.2)
        panel.set_xscale("log")
        panel.set_xlim(EXACT * 0.7, 3)
        panel.set_xticks([1e-4, 1e-2, 1], ["0.0001", "0.01", "1"])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set_yticks(range(len(lines)), lines)
        panel.set_ylim(len(lines) - 0.5, -0.5)
        panel.set_xlabel("largest difference / tolerance")
    legend(figure, axes)
    return figure
