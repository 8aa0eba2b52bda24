"""Other libraries beside the port, over the batch size."""

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from lockstep.experiments import peers as experiment
from lockstep.paper import quantities
from lockstep.paper.common.quantities.loops import peer_rates
from lockstep.paper.common.tables.peers import MODES
from lockstep.paper.figures import by_machine, curve, figure, label_outside, legend, log_axes

LOOKS = {
    experiment.OURS: ("#0072B2", "o"),
    "gymnax": ("#D55E00", "s"),
    "Gymnasium": ("#CC79A7", "D"),
    "EnvPool": ("#009E73", "^"),
    "PufferLib": ("#E69F00", "v"),
}
OTHER = ("#777777", "X")


@figure(
    "Peers side by side over the batch size, on the CPU of one machine: live environment steps per second, medians "
    "with their 95 % intervals, each on the number of threads that suits it best at that size. Filled marks: one step "
    "per call; hollow ones and dashes: many steps in one call.",
    "Line charts, one panel per environment and machine, both axes logarithmic: live environment steps per second over "
    "the number of environments, one line per library and mode. The table of all batch sizes holds the same numbers.",
)
def peers(datasets: list) -> Figure:
    figure, panels = by_machine(quantities.of(datasets, {"experiment": "peers"}), height=1.75)
    sizes: set[float] = set()
    for panel, run in panels:
        log_axes(panel, "environments B", "live steps per second")
        panel.xaxis.set_major_locator(LogLocator(base=10, numticks=6))
        panel.yaxis.set_major_locator(LogLocator(base=100, numticks=8))
        rates = peer_rates(run).dropna(subset=["rate"])
        best = rates.loc[rates.groupby(["peer", "mode", "num_envs"])["rate"].idxmax()]
        sizes |= set(best["num_envs"])
        for (peer, mode), rows in sorted(best.groupby(["peer", "mode"]), key=place):
            colour, marker = LOOKS.get(peer, OTHER)
            fused = mode == "fused"
            style = {"color": colour, "marker": marker, "linestyle": "--" if fused else "-", "markersize": 3}
            style |= {"markerfacecolor": "white" if fused else colour, "linewidth": 1.1}
            curve(panel, rows["num_envs"], rows, f"{peer}, {MODES.get(mode, mode)}", style)
    axes = [panel for panel, _ in panels]
    for panel in axes[:1]:  # whose axis all share
        panel.set_xlim(min(sizes) / 2, max(sizes) * 2)
    label_outside(axes)
    legend(figure, axes)
    return figure


def place(entry: tuple) -> tuple:
    """The order of the legend: libraries as in LOOKS, the others after them, one step per call first."""
    (peer, mode), _ = entry
    return list(LOOKS).index(peer) if peer in LOOKS else len(LOOKS), peer, mode == "fused"
