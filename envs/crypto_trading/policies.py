"""Rules without learning, played from the first bar of a window to its end (README.md, 7)."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..checks import choice, integer
from . import streams, tables
from .features import prepared
from .original import ruled
from .original.account import Account
from .original.environment import rules_of
from .params import Params
from .scenario import Market

NAMES = (*ruled.RULES, "random")


def played(
    name: str, params: Params, market: Market, seed: int = 0, lane: int = 0, window: tuple[int, int] | None = None
) -> Iterator[Account]:
    """The account of an episode of a rule, the same object at reset and after each step.

    Args:
        name: one of `NAMES`; "random" draws actions of the box (`streams.random_rule`), the others order units.
        seed, lane: of the random actions.
        window: [s, e) in bars of the market; None: all bars.

    Raises:
        ValueError: an unknown rule, one that needs a signal that the market lacks, a window that is too short, or
            another argument out of range; names it.
    """
    if choice("rule", name, NAMES) != "random":
        ruled.check(name, market)
    seed, lane = integer("seed", seed, 0, 2**64 - 1), integer("lane", lane, 0, 2**32 - 1)
    window = (0, market.bars) if window is None else window
    tables.check(replace(params, starts="full"), market, window)
    rules = rules_of(params, market)
    account, over = rules.open(*map(int, window)), False
    yield account
    while not over:
        bar = rules.next_bar(account)
        if name == "random":
            x = rules.orders(account, streams.random_rule(seed, lane, account.bar, market.assets), bar)
        else:
            x = ruled.orders(name, rules, market, account, bar)
        _, terminated, truncated = rules.trade(account, x, bar)
        yield account
        over = terminated or truncated


def play(
    name: str, params: Params, market: Market, seed: int = 0, lane: int = 0, window: tuple[int, int] | None = None
) -> np.ndarray:
    """V [1 + steps], $, of an episode of a rule, the capital first; arguments and errors as of `played`."""
    market = prepared(market, params)
    return np.array([account.value for account in played(name, params, market, seed, lane, window)])
