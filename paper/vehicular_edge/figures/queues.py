"""Work that waits in queues."""

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from lockstep.paper.figures import figure, grid, label_outside, label_status
from lockstep.paper.vehicular_edge import policies

NODES = ("v2i", "ec")  # queues of an edge node: radio, CPU
FAINTEST = 1.0  # Mbit: less is drawn as nothing


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
    found = [(policy, rows) for policy, rows in found if rows["backlog_mbit"].max() > FAINTEST]
    figure, axes = grid([policies.look(policy)[0] for policy, _ in found], 1.35, columns=3)
    if not found:
        return figure
    tables = [np.concatenate([table(rows, family) for family in NODES]) for _, rows in found]
    norm = LogNorm(FAINTEST, max(max(cells.max() for cells in tables), 10 * FAINTEST))
    for panel, cells in zip(axes, tables, strict=True):
        shown = np.ma.masked_less(cells, FAINTEST)
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
