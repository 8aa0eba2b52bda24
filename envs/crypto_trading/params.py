"""Parameters, presets and switches of crypto trading.

Axes: N assets, L lookback in bars.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Literal

from ..presets import bounded, of_preset

MOST_LOOKBACK = 1_000
PUBLISHED, ALL = ("one", "two"), ("one", "two", "clean")


def _number(default: float, rules=ALL, **allowed):
    return field(default=default, metadata={"rules": rules} | allowed)


def _option(default, rules=("clean",)):
    return field(default=default, metadata={"rules": rules})


def _switch(rules=PUBLISHED):
    return field(default=False, metadata={"rules": rules})


@dataclass(frozen=True)
class Params:
    """One configuration (README.md, 1 and 3).

    Fields that a rule set does not read must keep their defaults there.

    Raises:
        ValueError: a value of the wrong kind or out of range, or values that do not fit together; names the field, the
            value and what is allowed.
    """

    rules: Literal["one", "two", "clean"] = "clean"
    features: Literal["clean", "finrl-crypto", "cappuccino"] = "clean"  # computed where a market brings none
    lookback: int = _number(1, least=1, most=MOST_LOOKBACK)  # L, bars

    # Account and trading rules.
    capital: float = _number(1_000_000.0, positive=True)  # C, $
    fee_buy: float = _number(0.003, least=0.0, most=1.0)  # f_b, share; in `clean` a market's own go first
    fee_sell: float = _number(0.003, least=0.0, most=1.0)  # f_s
    spending: float = _number(0.99, positive=True, most=1.0)  # κ, share of the cash that a buy may take, fee included
    hold_limit: int = _number(48, least=0, most=2**24)  # bars; 0: off
    trim: float = _number(0.05, least=0.0, most=1.0)  # share sold at the hold limit
    min_margin: float = _number(1.0, least=0.0)  # q' = min_margin q
    stop: float = _number(0.0, rules=("two", "clean"), least=0.0, below=1.0)  # share below the peak; 0: off
    reserve: float = _number(0.0, rules=("two", "clean"), least=0.0, most=1.0)  # R, share of C that buys leave

    # Scales of the published rules; `clean` reads norm_action in orders="units", norm_reward in "excess_dollar".
    norm_cash: float = _number(2.0**-12, rules=PUBLISHED)
    norm_stocks: float = _number(2.0**-8, rules=PUBLISHED)
    norm_tech: float = _number(2.0**-15, rules=PUBLISHED)
    norm_reward: float = _number(2.0**-10)
    norm_action: float = _number(10_000.0, positive=True)  # A
    discount: float = _number(0.99, rules=PUBLISHED, least=0.0, most=1.0)  # of the running sum G
    decay_floor: float = _number(0.0, rules=("two",), least=0.0, most=1.0)
    concentration: float = _number(0.0, rules=("two",), least=0.0)  # z

    # Options of `clean`.
    orders: Literal["notional", "target_weight", "units"] = _option("notional")
    order_share: float = _number(0.1, rules=("clean",), positive=True)  # η, share of V that an action of 1 orders
    buy_order: Literal["listed", "rotating", "pro_rata"] = _option("listed")
    fill: Literal["next_close", "next_open"] = _option("next_close")
    slippage: float = _number(0.0, rules=("clean",), least=0.0, below=1.0)  # s, share of the price
    impact: float = _number(0.0, rules=("clean",), least=0.0)  # k, share of the price times sqrt(units / volume)
    reward: Literal["excess_log", "excess_dollar", "log"] = _option("excess_log")
    value_floor: float = _number(0.1, rules=("clean",), least=0.0, below=1.0)  # share of C, below which an episode ends

    # Episodes.
    starts: Literal["full", "random"] = _option("full", rules=ALL)
    episode_bars: int = _number(2016, least=1, most=2**31 - 1)  # steps of an episode with starts="random"
    reachable: Literal["error", "warn"] = _option("error", rules=ALL)

    # Behaviour of the published code that `clean` mends; README.md, 3, has a line on each.
    carry_over: bool = _switch()
    terminal_sum: bool = _switch()
    log_quotient: bool = _switch(rules=("one",))
    drop_tail: bool = _switch()
    unguarded_trim: bool = _switch()
    float32_holdings: bool = _switch()
    published_benchmark: bool = _switch()
    write_back: bool = _switch(rules=("one",))
    # Negative controls of the tests.
    leak_features: bool = _switch(rules=ALL)
    parallel_budget: bool = _switch(rules=ALL)

    def __post_init__(self):
        for spec in fields(self):
            object.__setattr__(self, spec.name, bounded(spec, getattr(self, spec.name)))
        for spec in fields(self):
            value = getattr(self, spec.name)
            if self.rules not in spec.metadata.get("rules", ALL) and value != spec.default:
                raise ValueError(f"{spec.name}={value!r} must be {spec.default!r} where rules={self.rules!r}")
        if self.carry_over and self.starts == "random":
            raise ValueError("starts='random' must be 'full' where carry_over=True, which needs one fixed window")

    # ---- what follows from the numbers

    @property
    def published(self) -> bool:
        """True for rule sets one and two."""
        return self.rules != "clean"

    def steps(self, bars: int) -> int:
        """Steps of an episode on a window of so many bars."""
        return bars - self.lookback - (self.lookback if self.drop_tail else 0)

    @property
    def least_bars(self) -> int:
        """Bars of the shortest window that an episode can be played on."""
        return self.lookback + 1 + (self.lookback if self.drop_tail else 0)

    @property
    def episode_window(self) -> int:
        """Bars of a window with starts="random"."""
        return self.episode_bars + self.least_bars - 1

    def observed(self, assets: int, features: int) -> int:
        """D, numbers of an observation."""
        return 1 + (1 if self.published else 3) * assets + features * self.lookback


_PUBLISHED_SWITCHES = {
    name: True
    for name in ("carry_over", "terminal_sum", "drop_tail", "unguarded_trim", "float32_holdings", "published_benchmark")
}
PRESETS = {
    "clean": {},
    "finrl-crypto": _PUBLISHED_SWITCHES
    | {"rules": "one", "features": "finrl-crypto", "spending": 0.9, "min_margin": 1.1, "log_quotient": True},
    "cappuccino": _PUBLISHED_SWITCHES
    | {"rules": "two", "features": "cappuccino", "min_margin": 1.1, "lookback": 5, "capital": 500.0}
    | {"fee_buy": 0.0025, "fee_sell": 0.0025, "norm_action": 100.0, "reachable": "warn"},
}
# Minimum order in units by base asset, of the published rules; other assets have the market's (README.md, 1).
MINIMUMS = {
    "one": {"AAVE": 0.01, "AVAX": 0.1, "BTC": 0.0001, "NEAR": 0.1, "LINK": 0.1, "ETH": 0.001, "LTC": 0.01,
            "MATIC": 10.0, "UNI": 0.1, "SOL": 0.01},
    "two": {"AAVE": 0.005, "AVAX": 0.03, "BTC": 0.00001, "LINK": 0.1, "ETH": 0.0003, "LTC": 0.01, "UNI": 0.15},
}  # fmt: skip


def make_params(preset: str | None = None, options: Iterable[str] = (), **chosen) -> Params:
    """The parameters of a preset (None: "clean") with single ones replaced.

    Args:
        options: further names, which an error knows.

    Raises:
        ValueError: an unknown preset or parameter (the nearest known name is given), or what `Params` refuses.
    """
    return of_preset("crypto_trading", Params, PRESETS, preset, chosen, options)
