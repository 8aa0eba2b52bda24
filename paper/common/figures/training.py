"""Rate of training, return and parts of the time over the number of environments."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator

from lockstep import paper
from lockstep.experiments import curves
from lockstep.paper import quantities
from lockstep.paper.common import learning
from lockstep.paper.common.tables.training import iteration, scaling
from lockstep.paper.common.tables.transfer import DEVICES
from lockstep.paper.figures import curve, figure, grid, legend, log_axes, write_below

COLOURS = {"rollout": "#0072B2", "advantage": "#E69F00", "update": "#009E73", "rest": "#c4cad3"}
EQUAL = {"steps": ("equal steps", "#D55E00", "o"), "seconds": ("equal time", "#6655CC", "s")}
RATE = {"color": "#2b2b2b", "marker": "o", "label": "steps per second, from end to end"}


@figure(
    "Training over the number of environments B: environment steps per second from end to end, the return in the "
    "original after equally many steps and after equally long training, and where the time of an iteration goes. "
    "Returns are interquartile means over seeds with their intervals; dashed: fewer seeds than a claim needs.",
    "Three charts per environment, machine, algorithm and device over the number of environments: steps per second, "
    "the return at equal steps and at equal time, and stacked bars of the shares of roll-out, advantages, update and "
    "the rest. The tables of scaling and of one iteration hold the numbers.",
)
def learning_scaling(datasets: list) -> Figure:
    runs = quantities.of(datasets, {"experiment": "learning"})
    found = [(run, *key, rows) for run in runs for key, rows in scaling(run).groupby(["algorithm", "device"])]
    titles = [
        f"{run.provenance['environment']}, {learning.algorithm(algorithm)}, {DEVICES.get(device, device)}"
        for run, algorithm, device, _ in found
    ]
    figure, axes = grid([title for title in titles for _ in range(3)], height=1.9, columns=3)
    for (run, algorithm, device, rows), rate, score, share in zip(
        found, axes[::3], axes[1::3], axes[2::3], strict=True
    ):
        known = rows.dropna(subset=["rate"])
        curve(rate, known["num_envs"], known, RATE["label"], {"color": RATE["color"], "marker": RATE["marker"]})
        log_axes(rate, "environments B", "steps per second")
        rate.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        if len(known):
            rate.set_ylim(known["rate"].min() / 2, known["rate"].max() * 2)
        returns(score, rows)
        stack(share, shares(run, algorithm, device))
        score.set_title("return")
        share.set_title("share of the time")
        about = paper.status_text(run.status, paper.machine(run), paper.date(run))
        for panel, words in ((rate, about), (score, " "), (share, " ")):
            write_below(panel, words)
            panel.texts[-1].set_in_layout(False)  # a long status may reach into the next panel's empty line
    legend(figure, axes)
    return figure


def returns(panel: Axes, rows: pd.DataFrame) -> None:
    """Scores at equal steps and at equal seconds, with their intervals."""
    for name, (label, colour, marker) in EQUAL.items():
        known = rows.dropna(subset=[f"{name}_score"]).astype({f"{name}_score": float})
        few = len(known) and learning.stamp(learning.OURS, known[f"{name}_seeds"].min())
        label = f"return at {label}" + (f", {few}" if few else "")
        style = {"color": colour, "marker": marker, "linestyle": "--" if few else "-"}
        panel.plot(known["num_envs"], known[f"{name}_score"], label=label if len(known) else "", **style)
        panel.vlines(known["num_envs"], known[f"{name}_score_low"], known[f"{name}_score_high"], color=colour)
    log_axes(panel, "environments B")


def shares(run, algorithm: str, device: str) -> pd.DataFrame:
    """Shares of the phases by number of environments, of the part scaling."""
    rows = iteration(run)
    scaled = curves.rate_summary(run.frame, "scaling")
    rows = rows[(rows["algorithm"] == algorithm) & (rows["device"] == device)]
    kept = rows[rows["num_envs"].isin(scaled["num_envs"])]
    return kept.drop_duplicates("num_envs", keep="last").sort_values("num_envs")


def stack(panel: Axes, rows: pd.DataFrame) -> None:
    """A bar for each number of environments, the phases above each other."""
    bottom = [0.0] * len(rows)
    for phase, colour in COLOURS.items():
        heights = 100 * rows[phase].astype(float).fillna(0.0)
        panel.bar(range(len(rows)), heights, 0.7, bottom, color=colour, label=phase)
        bottom = [below + height for below, height in zip(bottom, heights, strict=True)]
    panel.set_xticks(range(len(rows)), map(EngFormatter(sep="", places=0), rows["num_envs"]))
    panel.set(xlabel="environments B", ylim=(0, 100))
    panel.set_yticks([0, 50, 100], ["0", "50 %", "100 %"])
    panel.grid(visible=False, axis="x")
