"""Recorded values against those of this machine."""

import textwrap

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterMathtext

from lockstep.paper import families, quantities, tables
from lockstep.paper.common.tables.claims import item
from lockstep.paper.figures import SOFT, WIDTH, figure, legend, log_axes, say_nothing
from lockstep.paper.typeset import times

BAND = 2  # the factor that the band is wide to either side
MOST = 10  # outliers that are named
COUNTS = ("cases", "checks_held", "checks_told", "environments_held", "seeds_solved")  # of what was asked for
LOOKS = {"targets": ("#0072B2", "o"), "claims": ("#E69F00", "s")}
ALIKE = ["kind", "environment", "label"]


@figure(
    "Values behind the targets and the claims, as recorded and as measured here, one dot each in its own unit. Shaded: "
    f"within a factor of {BAND}; the dots farthest outside are numbered and named.",
    "Scatter plots with logarithmic axes, one for each recorded machine: this machine's values over the recorded "
    "ones, around the diagonal, with a list of outliers. The tables of targets and of claims hold the values.",
)
def reproduced(datasets: list) -> Figure:
    known = values(datasets)
    here = known[known["machine"] == "here"]
    others = [(name, rows.merge(here, on=ALIKE)) for name, rows in known.groupby("machine") if name != "here"]
    others = [(name, both.drop_duplicates(["environment", "value_x", "value_y"])) for name, both in others if len(both)]
    figure = Figure(figsize=(WIDTH, 3.6 * len(others) if others else 1.2), layout="constrained")
    if not others:
        say_nothing(figure.subplots())
        return figure
    axes = figure.subplots(len(others), 2, squeeze=False, width_ratios=[1.25, 1])
    for (panel, beside), (name, both) in zip(axes, others, strict=True):
        scatter(panel, both, name)
        beside.set_axis_off()
        beside.text(0, 1, outliers(panel, both), fontsize=6.5, va="top", linespacing=1.35, transform=beside.transAxes)
    legend(figure, list(axes[:, 0]))
    return figure


def values(datasets: list) -> pd.DataFrame:
    """The values of the tables of targets and of claims, by ALIKE and machine; positive ones, whose axis is."""
    counts = [target["target"] for target in families.targets() if target["quantity"] in COUNTS]
    targets = tables.frame("targets", datasets).assign(kind="targets").rename(columns={"target": "label"})
    rows = targets[~targets["label"].isin(counts)][[*ALIKE, "machine", "value"]].to_dict("records")
    for family in families.names():
        claims = families.claims(family).get("claims", ())
        asked = [item(claim, answer) for claim in claims for answer in claim["answers"]]
        for question in (one for one in asked if one["quantity"] not in COUNTS):
            for found in quantities.find(datasets, question):
                about = {"kind": "claims", "environment": found.environment, "label": question["label"]}
                rows.append(about | {"machine": found.machine, "value": found.value})
    frame = pd.DataFrame(rows).dropna(subset=["value"]).astype({"value": float})
    frame = frame[(frame["value"] > 0) & np.isfinite(frame["value"])]
    return frame.drop_duplicates([*ALIKE, "machine"])


def scatter(panel: Axes, both: pd.DataFrame, name: str) -> None:
    """Dots around the diagonal, with its band."""
    values = both[["value_x", "value_y"]]
    ends = np.array([values.min().min() / 3, values.max().max() * 3])
    panel.fill_between(ends, ends / BAND, ends * BAND, color="#8a8a8a", alpha=0.35, linewidth=0)
    panel.plot(ends, ends, color=SOFT, linewidth=1)
    for kind, (colour, marker) in LOOKS.items():
        rows = both[both["kind"] == kind]
        style = {"color": colour, "marker": marker, "linestyle": "", "markersize": 4, "alpha": 0.75}
        panel.plot(rows["value_x"], rows["value_y"], label=kind if len(rows) else "", markeredgewidth=0, **style)
    log_axes(panel, f"recorded on {name}", "measured here", base=1e3)
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(LogFormatterMathtext())
    panel.set(xlim=ends, ylim=ends)
    within = np.abs(np.log(values["value_y"] / values["value_x"])) <= np.log(BAND)
    panel.set_title(f"{within.sum()} of {len(both)} within a factor of {BAND}")


def outliers(panel: Axes, both: pd.DataFrame) -> str:
    """The dots farthest outside the band get a number; the names behind them."""
    ratio = both["value_y"] / both["value_x"]
    apart = np.abs(np.log(ratio)).sort_values(ascending=False)
    lines = []
    for place in apart[apart > np.log(BAND)].index[:MOST]:
        row, number = both.loc[place], len(lines) + 1
        where = {"textcoords": "offset points", "fontsize": 6, "va": "center_baseline"}
        panel.annotate(str(number), (row["value_x"], row["value_y"]), (4, 4), **where)
        words = f"{number}  {times(ratio[place])}: {row['environment']}, {row['label']}"
        lines.append(textwrap.shorten(words, 120, placeholder=" …"))
    return "\n".join(textwrap.fill(line, 58, subsequent_indent="    ") for line in lines)
