"""Rules without learning, which order units in the place of actions (README.md, 7)."""

from collections.abc import Callable
from typing import NamedTuple

from ...checks import choice
from ..params import Params
from ..scenario import Market
from .account import Account, Bar
from .clean import Clean
from .published import Published

REBALANCED = 288  # bars from one rebalancing to the next


class Moment(NamedTuple):
    """The account at bar t, by which a rule orders, and the bar t + 1 that its orders are filled at."""

    params: Params
    account: Account
    bar: Bar
    signal: int  # g at t; 1 where a market has none


def cash(at: Moment) -> list[float]:
    """Nothing."""
    return [0.0] * len(at.bar.fill)


def weights(at: Moment) -> list[float]:
    """Orders that bring each tradable asset to κ V / N, V at fill prices."""
    share = at.params.spending * at.account.worth(at.bar.fill) / len(at.bar.fill)
    rows = zip(at.bar.fill, at.account.holdings, at.bar.tradable, strict=True)
    return [share / price - held if ok else 0.0 for price, held, ok in rows]


def hold(at: Moment) -> list[float]:
    """κ C / N of each asset at the first bar after reset, and nothing again."""
    return weights(at) if at.account.bar == at.params.lookback - 1 else cash(at)


def equal_weight(at: Moment) -> list[float]:
    """κ V / N of each asset at the first bar after reset and every 288 bars from there."""
    return weights(at) if (at.account.bar - at.params.lookback + 1) % REBALANCED == 0 else cash(at)


def reference(at: Moment) -> list[float]:
    """κ V / N of each asset that is not held while the planted signal is 1; all is sold while it is -1."""
    held = at.account.holdings
    if at.signal < 0:
        return [-h for h in held]
    return [x if h == 0 else 0.0 for x, h in zip(weights(at), held, strict=True)]


RULES: dict[str, Callable[[Moment], list[float]]] = {
    "hold": hold,
    "equal_weight": equal_weight,
    "cash": cash,
    "reference": reference,
}
NAMES = ("none", *RULES)  # "none" goes by the actions; the kernel has them in this order


def check(rule: str, market: Market) -> str:
    """The rule itself; ValueError where it is unknown or needs a signal that the market lacks."""
    choice("rule", rule, NAMES)
    if rule == "reference" and market.signal is None:
        raise ValueError("rule='reference' needs a market with a planted sign, as generate(signal='momentum') makes it")
    return rule


def orders(rule: str, rules: Clean | Published, market: Market, account: Account, bar: Bar) -> list[float]:
    """Orders x [N] of one of `RULES`, units, rounded as the rule set `rules` keeps holdings."""
    signal = 1 if market.signal is None else int(market.signal[account.first + account.bar])
    return [rules.stored(x) for x in RULES[rule](Moment(rules.params, account, bar, signal))]
