"""Reach of rules without learning."""

from lockstep.paper.crypto_trading import summaries
from lockstep.paper.crypto_trading.summaries import logarithm
from lockstep.paper.tables import RUN, of_asked, table
from lockstep.paper.typeset import count, number, percent, text, with_interval


def trim(bars: float) -> str:
    """The bars until a trim is forced."""
    return f"after {count(bars)} bars" if bars else "never"


@table(
    "Rules without learning on generated markets, means over seeds; none of it is advice. Gain: ln(V/C) less that of a "
    "fair holder of equal weights, with its 95 % bootstrap interval; turnover and Sharpe ratios are for a year, fees a "
    "share of the capital.",
    *RUN,
    text("set", "set", merge=True),
    text("market", "market", merge=True),
    text("forced trim", "hold_limit", trim, merge=True),
    text("rule", "rule", lambda rule: summaries.look(rule)[0]),
    number("seeds", "seeds", count),
    with_interval("gain over the holder", "gain", logarithm),
    number("ln(V/C)", "growth", logarithm),
    number("Sharpe ratio", "sharpe"),
    number("the holder's", "holder_sharpe"),
    number("drawdown", "drawdown", percent),
    number("turnover", "turnover"),
    number("fees", "fees", percent),
    number("bars invested", "invested", percent),
    empty="No rules have been played.",
    folded=True,
)
def crypto_baselines(datasets):
    return of_asked(datasets, "baselines", summaries.played)
