"""The original as a Gymnasium environment; published.py and clean.py hold the rules."""

import inspect
import math
import warnings
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box

from ...checks import choice, integer
from .. import tables
from ..features import prepared
from ..params import Params, make_params
from ..scenario import Market, bootstrap, generate, load
from . import ruled
from .account import Account
from .clean import Clean
from .published import Published

AGE_UNIT = 48  # bars, of ages in observations where there is no hold limit
ALLOWED = {"clean": lambda u: np.abs(u) <= 1, "one": np.isfinite, "two": lambda u: u == u}  # of an action


class CryptoTrading(gymnasium.Env):
    """The environment; an action orders a buy (positive) or a sale of each asset at the next bar.

    Args:
        scenario: a `Market`, or a list of one; None for the generated set "small"; or the path of a table of bars.
            Features are computed where it has none.
        seed, index: key of the noise, 0 .. 2^64-1, and number of the environment, 0 .. 2^32-1.
        window: [s, e) in bars of the market, that every episode plays in place of its segments.
        market: "given", or "bootstrap" for one of as many bars in blocks of its returns (`scenario.bootstrap`).
        scenario_seed: of these blocks.
        rule: one of `ruled.NAMES`, whose orders stand for the actions; "none" has none.

    Raises:
        ValueError: names a field, its value and what is allowed.
        ImportError: reading a file needs a library that is not installed.
    """

    metadata = {"name": "crypto_trading", "render_modes": []}

    def __init__(
        self,
        params: Params | None = None,
        scenario: "Market | list[Market] | str | Path | None" = None,
        seed: int = 0,
        index: int = 0,
        window: tuple[int, int] | None = None,
        market: str = "given",
        scenario_seed: int = 0,
        rule: str = "none",
    ):
        self.params, self.pooled = params or Params(), isinstance(scenario, list | tuple)
        self.market = prepared(market_of(scenario, market, scenario_seed), self.params)
        self.key, self.index = integer("seed", seed, 0, 2**64 - 1), integer("index", index, 0, 2**32 - 1)
        words = tables.check(self.params, self.market, window)
        self.window = None if window is None else tuple(map(int, window))
        if words:
            warnings.warn(words, stacklevel=3)
        self.rule = ruled.check(rule, self.market)
        self.rules = rules_of(self.params, self.market)
        self.observed = tables.observed(self.params, self.market)  # [T, F] float32
        N, F = self.market.assets, self.observed.shape[1]
        self.action_space = Box(-1.0, 1.0, (N,), np.float32)
        self.observation_space = Box(-np.inf, np.inf, (self.params.observed(N, F),), np.float32)
        self.number, self.account, self.over = -1, None, True

    # ---- Gymnasium

    def reset(self, seed: int | None = None, options: dict | None = None):
        """Opens the next episode; a seed begins with episode 0 again, and with a new holder where one is carried over.

        Args:
            seed: 0 .. 2^64-1.
            options: there are none; ignored, as Gymnasium's interface has it.

        Returns:
            Observation and info, as `step` has them.
        """
        seed = seed if seed is None else integer("seed", seed, 0, 2**64 - 1)
        super().reset(seed=seed)
        before = self.account
        if seed is not None:
            self.key, self.number, before = seed, -1, None
        self.number += 1
        window = self.window or tables.window(self.params, self.market, self.key, self.index, self.number)
        self.account, self.over = self.rules.open(*window, before), False
        return self.observe(), self._row(self.account.value)

    def step(self, action):
        """One bar.

        Args:
            action: u [N]; each from -1 to 1 in `clean`, any finite number in rule one, any but NaN in rule two. With
                `write_back` a float32 array, which the orders in units overwrite. With a rule it orders nothing.

        Returns:
            Observation, reward, terminated, truncated, and an info: "value" and "benchmark" ($), "cash" ($), "holdings"
            [N] (units), and of the step "fees" ($), "notional" ($, bought and sold), "turnover" (of the value before).

        Raises:
            ResetNeeded: no episode is open.
            ValueError: the action has another shape, or a number that is not allowed; names asset, number and range.
        """
        if self.over:
            raise ResetNeeded("no episode is open: call reset() first")
        u, account, before = self._checked(action), self.account, self.account.value
        bar = self.rules.next_bar(account)
        if self.rule == "none":
            orders = self.rules.orders(account, u, bar)
        else:
            orders = ruled.orders(self.rule, self.rules, self.market, account, bar)
        if self.params.write_back:
            action[:] = orders
        reward, terminated, truncated = self.rules.trade(account, orders, bar)
        self.over = terminated or truncated
        return self.observe(), reward, terminated, truncated, self._row(before)

    def observe(self) -> np.ndarray:
        """The observation [D] at this point of the episode (README.md, 2.5)."""
        a, p = self.account, self.params
        account = self._account_part(a)
        found = np.empty(self.observation_space.shape, np.float32)
        found[: len(account)] = account
        end = a.last if p.leak_features else a.first + a.bar + 1
        found[len(account) :] = self.observed[end - p.lookback : end][::-1].ravel()
        return found

    # ---- inside

    def _account_part(self, a: Account) -> list[float]:
        p = self.params
        if p.published:
            return [a.cash * p.norm_cash, *[h * p.norm_stocks for h in a.holdings]]
        price = self.market.close[a.first + a.bar].tolist()
        per = 1 / a.value if a.value > 0 else 0.0
        most, unit = (1.0, p.hold_limit) if p.hold_limit > 0 else (math.inf, AGE_UNIT)
        return [
            a.cash * per,
            *[h * c * per for h, c in zip(a.holdings, price, strict=True)],
            *[min(bars / unit, most) for bars in a.age],
            *[c / paid - 1 if paid > 0 else 0.0 for c, paid in zip(price, a.average, strict=True)],
        ]

    def _row(self, before: float) -> dict:
        a = self.account
        return {
            "value": a.value,
            "benchmark": a.benchmark,
            "cash": a.cash,
            "holdings": np.array(a.holdings),
            "fees": a.fees,
            "notional": a.notional,
            "turnover": a.notional / before if before > 0 else 0.0,
        }

    def _checked(self, action) -> np.ndarray:
        """The action as float32 [N]."""
        try:
            u = np.asarray(action)
        except (TypeError, ValueError):  # rows that differ in length
            u = np.asarray(None)
        if u.dtype.kind not in "biuf":
            raise ValueError(f"action={action!r:.60} must be numbers ({self.market.assets},)")
        with np.errstate(over="ignore"):  # of float64, which is infinite then
            u = u.astype(np.float32)
        if u.shape != self.action_space.shape:
            raise ValueError(f"action has shape {u.shape}, must have ({self.market.assets},)")
        if self.params.write_back and not (isinstance(action, np.ndarray) and action.dtype == np.float32):
            raise ValueError(f"action is {type(action).__name__}, must be a float32 array where write_back=True")
        right = ALLOWED[self.params.rules](u)
        if not right.all():
            i = int(right.argmin())
            rule = {"clean": "from -1 to 1", "one": "finite", "two": "a number"}[self.params.rules]
            raise ValueError(f"action[{i}] ({self.market.symbols[i]}) is {u[i]}, must be {rule}")
        return u


def rules_of(params: Params, market: Market) -> Published | Clean:
    """The rule set of the parameters."""
    return (Published if params.published else Clean)(params, market)


def market_of(given, market: str = "given", seed: int = 0) -> Market:
    """The market that was given: an object, a list of one, a path, or None for the generated set "small"; or, where
    `market` is "bootstrap", one of blocks of its returns, drawn with the seed."""
    drawn = choice("market", market, ("given", "bootstrap")) == "bootstrap"
    if integer("scenario_seed", seed, 0, 2**64 - 1) and not drawn:
        raise ValueError(f"scenario_seed={seed!r} must be 0 where market='given', which draws nothing")
    found = _given(given)
    return bootstrap(found, int(seed)) if drawn else found


def _given(given) -> Market:
    if isinstance(given, list | tuple) and len(given) == 1:
        (given,) = given
    if given is None:
        return generate("small")
    if isinstance(given, str | Path):
        return load(given)
    if not isinstance(given, Market):
        shown = " ".join(repr(given).split())  # an array's has several lines
        raise ValueError(f"scenario={shown:.60} must be a Market, a list of one, a path of a table of bars, or None")
    return given.check()


def make(
    preset: str | None = None,
    scenario: "Market | list[Market] | str | Path | None" = None,
    seed: int = 0,
    index: int = 0,
    window: tuple[int, int] | None = None,
    market: str = "given",
    scenario_seed: int = 0,
    rule: str = "none",
    **params,
) -> CryptoTrading:
    """The original.

    Args:
        preset: "clean" (None), "finrl-crypto" or "cappuccino".
        scenario, seed, index, window, market, scenario_seed, rule: as in `CryptoTrading`.
        **params: single fields of `params.Params`.

    Raises:
        ValueError: an unknown preset or parameter, or a value that is not allowed; names it.
    """
    options = [name for name in inspect.signature(make).parameters if name != "params"]
    chosen = make_params(preset, options, **params)
    return CryptoTrading(chosen, scenario, seed, index, window, market, scenario_seed, rule)
