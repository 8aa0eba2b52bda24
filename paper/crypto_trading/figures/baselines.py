"""Equity curves of rules without learning: one market, and all markets against the holder."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from lockstep.experiments.crypto_trading.measures import BAND
from lockstep.paper.crypto_trading import summaries
from lockstep.paper.figures import figure, grid, label_status, legend

HOLDER = "fair holder of equal weights"


@figure(
    "Rules without learning on generated markets; none of it is advice. Above, accounts on the first market; below, "
    "accounts over a fair holder of equal weights on all, the median and the middle "
    f"{BAND[2] - BAND[0]:.0%}; where no rule sells by force, lines may coincide.",
    "Two rows of line charts, a column per kind of market, over bars of five minutes: the value of the account under "
    "each rule; and that value over the value of a holder of equal weights, as a line with a shaded band. The table of "
    "baselines holds the means.",
)
def crypto_baselines(datasets: list) -> Figure:
    runs = summaries.newest(datasets)
    frame = runs[0].frame if runs else None
    markets = list(dict.fromkeys(frame["market"])) if runs else []
    names = [*markets, *(f"{market}: over the holder" for market in markets)]
    figure, axes = grid(names, 1.9, max(len(markets), 1), sharex=True)
    for above, below, market in zip(axes, axes[len(markets) :], markets, strict=False):
        label_status(above, runs[0])
        rows = frame[(frame["level"] == "curve") & (frame["market"] == market)]
        accounts(above, rows)
        over_holder(below, rows)
    legend(figure, axes)
    return figure


def of_rules(rows) -> list:
    """(rule, its rows), in their order."""
    return sorted(rows.groupby("rule"), key=lambda item: summaries.order(item[0]))


def accounts(panel: Axes, rows) -> None:
    """Values of the account on the market of the first seed, and the holder's."""
    for rule, points in of_rules(rows):
        line(panel, rule, points, "value")
    first = rows[rows["rule"] == rows["rule"].iloc[0]]
    panel.plot(first["bar"], first["benchmark"], color="#000000", linewidth=0.9, linestyle=":", label=HOLDER)
    panel.set_ylabel("value, $")
    panel.yaxis.set_major_formatter(EngFormatter(sep=""))


def over_holder(panel: Axes, rows) -> None:
    """Values over the holder's, with bands over seeds."""
    for rule, points in of_rules(rows):
        shade = {"color": summaries.look(rule)[1], "alpha": 0.13, "linewidth": 0}
        panel.fill_between(points["bar"], points["over_low"], points["over_high"], **shade)
        line(panel, rule, points, "over")
    panel.set(xlabel="bars", ylabel="times the holder's", ylim=(0, None))
    panel.xaxis.set_major_locator(MaxNLocator(5))


def line(panel: Axes, rule: str, points, name: str) -> None:
    label, colour, dash, width = summaries.look(rule)
    panel.plot(points["bar"], points[name], color=colour, linestyle=dash, linewidth=width, label=label)
