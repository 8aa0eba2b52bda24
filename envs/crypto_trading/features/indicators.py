"""Indicators of bars (README.md, 4.3): causal, by column; NaN where not defined.

Arrays are [T, N] float64: bars, oldest first, and assets. Zero denominators give 0.
"""

import importlib
import warnings

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..scenario.market import Market


def ratio(above, below) -> np.ndarray:
    """above / below, 0 where that divides by 0."""
    found = np.divide(
        above, below, out=np.zeros(np.broadcast_shapes(np.shape(above), np.shape(below))), where=below != 0
    )
    return np.where(np.isnan(above) | np.isnan(below), np.nan, found)


def lag(x: np.ndarray, n: int = 1) -> np.ndarray:
    """x of n bars before."""
    found = np.full(x.shape, np.nan)
    found[n:] = x[:-n]
    return found


def windows(x: np.ndarray, n: int) -> np.ndarray:
    """The last n bars of each, [T, N, n]; NaN before the first."""
    return sliding_window_view(np.concatenate([np.full((n - 1, *x.shape[1:]), np.nan), x]), n, axis=0)


def mean(x: np.ndarray, n: int) -> np.ndarray:
    """Mean of n bars."""
    return windows(x, n).mean(axis=-1)


def mean_of_some(x: np.ndarray, n: int) -> np.ndarray:
    """Mean of those of n bars where x is defined."""
    rows = windows(x, n)
    there = ~np.isnan(rows)
    found = ratio(np.where(there, rows, 0.0).sum(axis=-1), there.sum(axis=-1).astype(float))
    return np.where(there.any(axis=-1), found, np.nan)


def smooth(x: np.ndarray, n: int, weight: float) -> np.ndarray:
    """y += weight (x - y), which begins with the mean of the first n defined bars."""
    found, defined = np.full(x.shape, np.nan), np.flatnonzero(~np.isnan(x).any(axis=1))
    if len(defined) >= n:
        begin = defined[0] + n - 1
        level = found[begin] = x[defined[0] : begin + 1].mean(axis=0)
        for t in range(begin + 1, len(x)):
            level = level + weight * (x[t] - level)
            found[t] = level
    return found


def ema(x: np.ndarray, n: int) -> np.ndarray:
    return smooth(x, n, 2 / (n + 1))


def wilder(x: np.ndarray, n: int) -> np.ndarray:
    return smooth(x, n, 1 / n)


def log_return(close: np.ndarray, n: int) -> np.ndarray:
    """ln(P_t / P_{t-n}); 0 where a price is 0."""
    before = lag(close, n)
    priced = (close > 0) & (before > 0)
    found = np.log(np.where(priced, close, 1.0)) - np.log(np.where(priced, before, 1.0))
    return np.where(np.isnan(before), np.nan, found)


def volatility(close: np.ndarray, n: int) -> np.ndarray:
    """sqrt(mean ret_1² of n bars)."""
    return np.sqrt(mean(log_return(close, 1) ** 2, n))


def rsi(close: np.ndarray, n: int) -> np.ndarray:
    """100 up / (up + down) of smoothed gains and losses; 50 without either."""
    change = close - lag(close)
    up, down = wilder(np.maximum(change, 0), n), wilder(np.maximum(-change, 0), n)
    return np.where(up + down == 0, 50.0, 100 * ratio(up, up + down))


def volume_share(volume: np.ndarray, n: int) -> np.ndarray:
    """ln((volume + 1) / (mean + 1))."""
    return np.log((volume + 1) / (mean(volume, n) + 1))


def direction(close: np.ndarray) -> np.ndarray:
    """Sign of the last change."""
    return np.sign(close - lag(close))


def balance_share(close: np.ndarray, volume: np.ndarray, n: int) -> np.ndarray:
    """Σ sign(ret_1) volume / Σ volume of n bars."""
    signed = direction(close) * volume
    return ratio(windows(signed, n).sum(axis=-1), windows(np.where(np.isnan(signed), np.nan, volume), n).sum(axis=-1))


def balance(close: np.ndarray, volume: np.ndarray) -> np.ndarray:
    """Σ sign(ret_1) volume of all bars so far, 0 at the first."""
    return np.cumsum(np.nan_to_num(direction(close)) * volume, axis=0)


def macd(close: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ema_12 - ema_26, its ema_9, and their difference."""
    line = ema(close, 12) - ema(close, 26)
    signal = ema(line, 9)
    return line, signal, line - signal


def true_range(market: Market) -> np.ndarray:
    before = lag(market.close)
    return np.maximum(market.high, before) - np.minimum(market.low, before)


def atr(market: Market, n: int) -> np.ndarray:
    return wilder(true_range(market), n)


def dx(market: Market, n: int) -> np.ndarray:
    """100 |DI+ - DI-| / (DI+ + DI-), in which the true range cancels."""
    up, down = market.high - lag(market.high), lag(market.low) - market.low
    plus = wilder(np.where(np.isnan(up), np.nan, np.where((up > down) & (up > 0), up, 0.0)), n)
    minus = wilder(np.where(np.isnan(up), np.nan, np.where((down > up) & (down > 0), down, 0.0)), n)
    return np.where(atr(market, n) == 0, 0.0, 100 * ratio(np.abs(plus - minus), plus + minus))


def adx(market: Market, n: int) -> np.ndarray:
    return wilder(dx(market, n), n)


def cci(market: Market, n: int) -> np.ndarray:
    """(tp - mean) / (0.015 mean absolute deviation), tp = (high + low + close) / 3."""
    typical = (market.high + market.low + market.close) / 3
    rows = windows(typical, n)
    level = rows.mean(axis=-1)
    spread = np.abs(rows - level[..., None]).mean(axis=-1)
    flat = rows.max(axis=-1) == rows.min(axis=-1)
    return np.where(flat, 0.0, ratio(typical - level, np.where(flat, 0.0, 0.015 * spread)))


def ultosc(market: Market) -> np.ndarray:
    """100 (4 A_7 + 2 A_14 + A_28) / 7, A_n = Σ buying pressure / Σ true range of n bars."""
    pressure = market.close - np.minimum(market.low, lag(market.close))
    spread = true_range(market)
    share = [ratio(windows(pressure, n).sum(axis=-1), windows(spread, n).sum(axis=-1)) for n in (7, 14, 28)]
    return 100 * (4 * share[0] + 2 * share[1] + share[2]) / 7


def atr_excess(market: Market) -> np.ndarray:
    """(atr - mean_50) / (mean_50 + 1e-8)."""
    level = atr(market, 14)
    usual = mean_of_some(level, 50)
    return (level - usual) / (usual + 1e-8)


def breakout(market: Market) -> np.ndarray:
    """volume / mean_20, times 1 above the highest high of 20 bars, -1 below the lowest low. The current bar is one of
    them, so that it is 0 always."""
    highest, lowest = np.nanmax(windows(market.high, 20), axis=-1), np.nanmin(windows(market.low, 20), axis=-1)
    side = (market.close > highest).astype(float) - (market.close < lowest)
    return ratio(market.volume, mean_of_some(market.volume, 20)) * side


def adx_bend(market: Market) -> np.ndarray:
    """Second difference of ADX."""
    level = adx(market, 14)
    return level - 2 * lag(level) + lag(level, 2)


def ht_dcphase(close: np.ndarray) -> np.ndarray:
    """TA-Lib's phase of the dominant cycle, degrees; 0 with a warning where TA-Lib is not installed."""
    try:
        library = importlib.import_module("talib")
    except ImportError:
        warnings.warn("ht_dcphase is 0: TA-Lib is not installed", stacklevel=2)
        return np.zeros(close.shape)
    return np.stack([library.HT_DCPHASE(np.ascontiguousarray(column)) for column in close.T], axis=1)
