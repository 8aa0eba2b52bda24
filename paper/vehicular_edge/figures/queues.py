"""Work that waits in queues."""

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from lockstep.paper.figures import figure, grid, label_outside, label_status, legend, log_axes
from lockstep.paper.vehicular_edge import policies

NODES = ("v2i", "ec")  # queues of an edge node: radio, CPU
LEAST = 1.0  # Mbit: less is drawn as nothing
FAMILIES = {
    "lc": ("client CPU", "#8a8a8a"),
    "v2v": ("V2V radio", "#56B4E9"),
    "vc": ("server CPU", "#0072B2"),
    "v2i": ("V2I radio", "#E69F00"),
    "i2i": ("wire between edges", "#A6761D"),
    "ec": ("edge CPU", "#009E73"),
    "i2c": ("wire to the cloud", "#CC79A7"),
    "cc": ("cloud CPU", "#D55E00"),
}


@figure(
    "Backlog of every edge node over one episode on the first map, in Mbit: what waits for the radio of the node "
    "(above the line) and what waits for its CPU (below), an edge node per line, a column per slot. Empty: nothing "
    "waits; a policy under which nothing ever waits there is left out.",
    "Heat maps, one per policy: edge nodes on the vertical axis, twice, for the uplink and for the CPU; slots on the "
    "horizontal axis; the colour is the backlog in Mbit on a logarithmic scale.",
)
def offloading_queues(datasets: list) -> Figure:
    runs = policies.newest(datasets)
    first = policies.maps(runs[0].frame)[0] if runs else ""
    found = list(policies.of_policies(runs[0].frame, "backlog", first)) if runs else []
    found = [(policy, rows) for policy, rows in found if rows["backlog_mbit"].max() > LEAST]
    figure, axes = grid([policies.look(policy)[0] for policy, _ in found], 1.35, columns=3)
    if not found:
        return figure
    tables = [np.concatenate([table(rows, family) for family in NODES]) for _, rows in found]
    norm = LogNorm(LEAST, max(max(cells.max() for cells in tables), 10 * LEAST))
    for panel, cells in zip(axes, tables, strict=True):
        shown = np.ma.masked_less(cells, LEAST)
        image = panel.imshow(shown, aspect="auto", norm=norm, cmap="viridis_r", interpolation="nearest")
        panel.axhline(len(cells) / 2 - 0.5, color="black", linewidth=0.8)
        panel.set_yticks([len(cells) / 4 - 0.5, 3 * len(cells) / 4 - 0.5], ["radio", "CPU"])
        panel.set(xlabel="slot", ylabel="")
        panel.grid(False)
    label_outside(axes)
    label_status(axes[0], runs[0])
    figure.colorbar(image, ax=axes, label="Mbit", pad=0.01, aspect=30)
    return figure


def table(rows, family: str) -> np.ndarray:
    """[Ne, T] Mbit."""
    of_family = rows[rows["family"] == family]
    return of_family.pivot_table(index="node", columns="slot", values="backlog_mbit", aggfunc="mean").to_numpy()


@figure(
    "Little's law: the mean backlog of every queue in which something arrived, as the original held it, against its "
    "arrivals times the mean delay of its bits, which comes from matching departing with arriving bits. All policies "
    "and maps, one episode each; a bit that stays counts until the end. On the line both are equal.",
    "A scatter plot with logarithmic axes of mean backlog over arrival rate times mean delay, one mark per queue in "
    "the colour of its family, all on the diagonal.",
)
def littles_law(datasets: list) -> Figure:
    runs = policies.newest(datasets)
    figure, axes = grid(["backlog and delay"] if runs else [], 2.6)
    for panel in axes if runs else []:
        label_status(panel, runs[0])
        rows = runs[0].frame[runs[0].frame["level"] == "little"]
        rows = rows.assign(product=rows["rate_mbps"] * rows["delay_s"])
        rows = rows[(rows["product"] > 0) & (rows["backlog_mbit"] > 0)]
        if len(rows):
            ends = [rows["backlog_mbit"].min(), rows["backlog_mbit"].max()]
            panel.plot(ends, ends, color="#d1344b", linewidth=0.7)
        for family, (label, colour) in FAMILIES.items():
            part = rows[rows["family"] == family]
            if len(part):
                style = {"color": colour, "linestyle": "none", "marker": ".", "markersize": 7, "markeredgewidth": 0}
                panel.plot(part["product"], part["backlog_mbit"], label=label, alpha=0.6, rasterized=True, **style)
        log_axes(panel, "arrivals times delay, Mbit", "mean backlog, Mbit")
    legend(figure, axes, ncols=4)
    return figure
