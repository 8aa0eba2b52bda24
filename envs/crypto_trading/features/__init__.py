"""Features of a market: indicators by asset, their statistics, and how far back each looks."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from lockstep.reading import nearest

from ..params import Params
from ..scenario.market import BARS, Market, instance
from . import indicators as on

SETS = {  # by `Params.features`
    "clean": ("ret_1", "ret_12", "ret_48", "vol_48", "rsi_14", "volume_48", "obv_48"),
    "finrl-crypto": ("close", "volume", "rsi_14", "dx", "ultosc", "obv", "ht_dcphase"),
    "cappuccino": (
        *("open", "high", "low", "close", "volume", "macd", "macd_signal", "macd_difference"),
        *("rsi_14", "cci", "dx", "atr_excess", "breakout", "adx_bend"),
    ),
}
INDICATORS: dict[str, Callable[[Market], np.ndarray]] = {
    "open": lambda m: m.open,
    "high": lambda m: m.high,
    "low": lambda m: m.low,
    "close": lambda m: m.close,
    "volume": lambda m: m.volume,
    "ret_1": lambda m: on.log_return(m.close, 1),
    "ret_12": lambda m: on.log_return(m.close, 12),
    "ret_48": lambda m: on.log_return(m.close, 48),
    "vol_48": lambda m: on.volatility(m.close, 48),
    "rsi_14": lambda m: on.rsi(m.close, 14),
    "volume_48": lambda m: on.volume_share(m.volume, 48),
    "obv_48": lambda m: on.balance_share(m.close, m.volume, 48),
    "macd": lambda m: on.macd(m.close)[0],
    "macd_signal": lambda m: on.macd(m.close)[1],
    "macd_difference": lambda m: on.macd(m.close)[2],
    "atr": lambda m: on.atr(m, 14),
    "dx": lambda m: on.dx(m, 14),
    "adx": lambda m: on.adx(m, 14),
    "cci": lambda m: on.cci(m, 14),
    "ultosc": on.ultosc,
    "obv": lambda m: on.balance(m.close, m.volume),
    "ht_dcphase": lambda m: on.ht_dcphase(m.close),
    "atr_excess": on.atr_excess,
    "breakout": on.breakout,
    "adx_bend": on.adx_bend,
}
FLAT = 1e-12  # of the largest value: a smaller deviation is rounding


def compute(market: Market, names: Sequence[str]) -> np.ndarray:
    """Indicators [T, N * n] float32 of a market, asset by asset; NaN where not defined, as before an asset is listed.

    Raises:
        ValueError: no market, no name, or an unknown one; gives the nearest.
    """
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise ValueError(f"names={names!r:.60} must be a tuple of one feature or more")
    for name in names:
        if name not in INDICATORS:
            raise ValueError(f"no feature is called {name!r}{nearest(name, INDICATORS)}")
    indicators, listed = [INDICATORS[name] for name in names], instance("market", market, Market).listed
    columns = np.full((market.bars, market.assets, len(names)), np.nan, np.float32)
    for first in set(listed.tolist()) - {market.bars}:
        own = listed == first
        bars = SimpleNamespace(**{name: getattr(market, name)[first:, own] for name in BARS})
        columns[first:, own] = np.stack([indicator(bars) for indicator in indicators], axis=-1)
    return columns.reshape(market.bars, -1)


def prepared(market: Market, params: Params) -> Market:
    """The market with features, and with their mean and deviation over its `train` bars where they are defined.

    Features are those that it brings, else the set that `params.features` names, and last the signal where that is
    visible. The deviation divides by the number of bars; of a constant it counts as 1.

    Raises:
        ValueError: no market, or no parameters.
    """
    market, params = instance("market", market, Market), instance("params", params, Params)
    X, names = market.features, market.feature_names
    if X is None:
        kinds = SETS[params.features]
        X, names = compute(market, kinds), tuple(f"{symbol}:{kind}" for symbol in market.symbols for kind in kinds)
        if market.visible:
            X, names = np.column_stack([X, market.signal.astype(np.float32)]), (*names, "signal")
    elif market.mean is not None:
        return market
    mean, std = statistics(X, market.train)
    return replace(market, features=X, feature_names=names, mean=mean, std=std).check()


def statistics(X: np.ndarray, train: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation [F] of the columns of X [T, F] over bars [a, b) of `train` [K, 2], float64."""
    rows = np.concatenate([X[first:last] for first, last in train.tolist()]).astype(np.float64)
    there = ~np.isnan(rows)
    count, rows = np.maximum(there.sum(axis=0), 1), np.where(there, rows, 0.0)
    mean = rows.sum(axis=0) / count
    std = np.sqrt((np.where(there, rows - mean, 0.0) ** 2).sum(axis=0) / count)
    return mean, np.where(std <= FLAT * np.abs(rows).max(axis=0, initial=0.0), 1.0, std)
