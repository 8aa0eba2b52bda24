"""Errors of whole episodes over their steps, port against original."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterMathtext

from lockstep.paper import quantities
from lockstep.paper.common.tables.transfer import DEVICES
from lockstep.paper.figures import PAGE, figure, grid, label_outside, legend, log_axes

LOOKS = {"float32": ("#D55E00", "o"), "float64": ("#0072B2", "s")}
EXACT = 1e-17  # where no difference at all is drawn


@figure(
    "Largest difference of any state field between port and original over the steps of an episode under equal actions, "
    "on all machines that have measured it, relative for values above one. Solid: the largest of all episodes still "
    "running, dotted: the largest median of a policy; exact agreement lies at the bottom.",
    "Line charts, one panel per environment, both axes logarithmic: difference over step, a pair of lines for each "
    "floating-point type and device. The table of every check holds the numbers, in the rows of the level drift.",
)
def drift(datasets: list) -> Figure:
    runs = quantities.of(datasets, {"experiment": "correctness"})
    runs = [run for run in runs if (run.frame["level"] == "drift").any()]
    frames = [run.frame[run.frame["level"] == "drift"] for run in runs]
    told = pd.concat(frames) if frames else pd.DataFrame({"environment": []})
    panels = list(told.groupby("environment"))
    figure, axes = grid([name for name, _ in panels], 1.7, columns=3, sharex=True, sharey=True)
    for panel, (_, rows) in zip(axes, panels, strict=True):
        for (device, dtype), part in rows.groupby(["device", "dtype"], sort=False):
            colour, marker = LOOKS[dtype]
            over = part.groupby("value")[["error", "low"]].max().clip(lower=EXACT)
            style = {"color": colour, "marker": marker, "markersize": 3, "linewidth": 1.2}
            style |= {"markerfacecolor": PAGE} if device == "cuda" else {}
            label = f"{dtype}, {DEVICES.get(device, device)}"
            panel.plot(over.index, over["error"], label=label, **style)
            panel.plot(over.index, over["low"], color=colour, linestyle=":", linewidth=1.1)
        log_axes(panel, x="step")
        log_axes(panel, y="difference", base=1e4)
        panel.yaxis.set_major_formatter(LogFormatterMathtext())
    label_outside(axes)
    legend(figure, axes)
    return figure
