"""Success of policies in each setting, original beside port, and what has been published."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from lockstep.paper.families import about
from lockstep.paper.figures import PAGE, figure, grid, label_outside, label_status, legend
from lockstep.paper.marine_navigation import summaries
from lockstep.paper.typeset import SPACE

WIDE = 0.8  # of a setting, which all its marks share
ORDER = list(summaries.POLICIES)
BY = ["version", "preset"]  # a panel


@figure(
    "Episodes that succeed under policies without learning and agents trained here, by robots, cores and obstacles; "
    "filled: in the original, hollow: in the port, with Wilson's intervals, or of several seeds bootstrap intervals; "
    "of an agent that was trained on two devices the longer training. Bars: what has been published of these policies "
    "and of trained networks, under the preset that is like the published code.",
    "Dot charts, one panel per version and preset: the share of episodes that succeed for each setting and "
    "policy, with vertical intervals and short bars for published shares. The table of policies holds the numbers.",
)
def marine_policies(datasets: list) -> Figure:
    runs = [run for name in ("policies", "navigation") for run in summaries.fullest(datasets, name)]
    every = longest(pd.concat([own(run) for run in runs], ignore_index=True)) if runs else pd.DataFrame(columns=BY)
    parts = [(runs[0], *part) for part in every.groupby(BY, sort=False)]
    figure, axes = grid([f"{version}, preset {preset}" for _, (version, preset), _ in parts], 2.2, sharey=True)
    figure.set_figheight(figure.get_figheight() + (1.0 if runs else 0))  # the legend has several lines
    for panel, (run, (version, preset), rows) in zip(axes, parts, strict=True):
        label_status(panel, run)
        settings = list(dict.fromkeys(rows[["robots", "cores", "obstacles"]].itertuples(index=False, name=None)))
        known = published(version, settings) if preset == "original" else {}
        names = sorted({*rows["policy"], *known}, key=lambda name: (ORDER.index(name) if name in ORDER else 99, name))
        for number, name in enumerate(names):
            at = (number + 0.5) * WIDE / len(names) - WIDE / 2
            marks(panel, name, rows[rows["policy"] == name], settings, at)
            for place, share in enumerate(known.get(name, ())):
                style = {"color": summaries.look(name)[1], "linewidth": 3.5, "alpha": 0.45, "zorder": 0.5}
                label = f"{summaries.look(name)[0]}, published"
                panel.plot([place + at - 0.06, place + at + 0.06], [share, share], label=label, **style)
        panel.set_xticks(range(len(settings)), [", ".join(f"{n:.0f}" for n in setting) for setting in settings])
        panel.set(xlabel="robots, cores, obstacles", ylim=(-0.03, 1.03), ylabel="episodes that succeed")
        panel.yaxis.set_major_formatter(PercentFormatter(1, symbol=f"{SPACE}%"))
        panel.grid(visible=False, axis="x")
    label_outside(axes)
    legend(figure, axes)
    return figure


def own(run) -> pd.DataFrame:
    """Rows of policies and agents by their names, without variants of agents and other risks."""
    rows = summaries.played(run)
    corrected = rows["variant"].isna() | (rows["variant"] == summaries.CORRECTED)
    usual = corrected & (rows["risk"].isna() | rows["risk"].isin(["1", "adaptive"]))
    return rows.assign(policy=rows.apply(summaries.name, axis=1))[usual]


def longest(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows without the shorter trainings of an agent."""
    return rows[
        rows["env_steps"].isna() | (rows["env_steps"] == rows.groupby([*BY, "policy"])["env_steps"].transform("max"))
    ]


def published(version: str, settings: list) -> dict[str, list[float]]:
    """Published shares by policy where they are of these settings, in their order."""
    known = about(summaries.NAME)["published"].get(version, {"settings": None})
    return known["success"] if known["settings"] == [list(map(int, setting)) for setting in settings] else {}


def marks(panel: Axes, policy: str, rows, settings: list, at: float) -> None:
    """A mark for each setting and form, beside one another."""
    label, colour, marker = summaries.look(policy)
    for row in rows.to_dict("records"):
        of_port = row["form"] != "original"
        x = settings.index((row["robots"], row["cores"], row["obstacles"])) + at + (0.03 if of_port else -0.03)
        panel.vlines(x, row["success_low"], row["success_high"], color=colour, linewidth=0.9)
        style = {"color": colour, "marker": marker, "markerfacecolor": PAGE if of_port else colour, "linestyle": "none"}
        panel.plot(x, row["success"], label=f"{label}, {row['form']}", **style)
