"""Speed-up over processes and nodes: of training, measured and modelled, and of recordings."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lockstep import paper
from lockstep.paper import tables
from lockstep.paper.common.tables.nodes import LOOPBACK, RECORDING, TRAINING
from lockstep.paper.figures import PAGE, SOFT, figure, grid, legend, log_axes, write_below
from lockstep.paper.tables import worded_status
from lockstep.paper.typeset import count

LINKS = ("#0072B2", "#009E73", "#CC79A7", "#6655CC")
MEASURED, PACKED = "#D55E00", "#2b2b2b"


@figure(
    "Speed-up over the number of nodes. Training: processes through the loopback interface as measured (hollow: more "
    "than the machine has cores) and nodes through links as modelled; recording: all jobs, packed onto so many nodes.",
    "Charts with logarithmic axes, one for training of each environment and machine and one for the recording of each "
    "machine: speed-up over nodes, beside a dashed line where n nodes are n times as fast. The table of nodes holds "
    "the numbers.",
)
def nodes(datasets: list) -> Figure:
    frame = tables.frame("nodes", datasets)
    frame = frame[frame["status"] != paper.NOT_MEASURED]
    keys = ["work", "environment", "machine", "scale"]
    parts = list(frame.groupby(keys, sort=False, dropna=False)) if len(frame) else []
    figure, axes = grid([title(*key) for key, _ in parts], 2.2)
    for panel, ((work, *_), rows) in zip(axes, parts, strict=True):
        write_below(panel, worded_status(rows.iloc[0]))
        most = rows["nodes"].max()
        panel.plot([1, most], [1, most], "--", color=SOFT, linewidth=1, label="n nodes n times as fast")
        if work == TRAINING:
            trained(panel, rows)
        else:
            panel.plot(rows["nodes"], rows["speedup"], "s-", color=PACKED, label="a recording, packed onto nodes")
        log_axes(panel, "nodes n", "speed-up", base=2)
        panel.set_xticks(sorted(rows["nodes"].unique()), [count(n) for n in sorted(rows["nodes"].unique())])
    legend(figure, axes, ncols=2)
    return figure


def title(work: str, environment: object, machine: str, scale: object) -> str:
    """Of a panel: training of an environment, or recording at a scale; and the machine."""
    return f"{work}, {f'{scale} scale' if work == RECORDING else environment}, {machine}"


def trained(panel: Axes, rows: pd.DataFrame) -> None:
    """Processes as measured, and a line for each link."""
    measured = rows[rows["wall_s"].notna() & rows["speedup"].notna()]
    crowded = measured["crowded"].astype(bool)
    style = {"color": MEASURED, "marker": "o", "linestyle": ""}
    for some, fill, label in ((~crowded, MEASURED, f"measured, {LOOPBACK}"), (crowded, PAGE, "")):
        shown = measured[some]
        panel.plot(shown["nodes"], shown["speedup"], markerfacecolor=fill, label=label if len(shown) else "", **style)
    modelled = rows[rows["wall_s"].isna()]
    for place, (link, known) in enumerate(modelled.groupby("link", sort=False)):
        colour = LINKS[place % len(LINKS)]
        panel.plot(known["nodes"], known["speedup"], color=colour, label=f"modelled, {link}")
