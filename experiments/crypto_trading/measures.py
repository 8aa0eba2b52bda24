"""Measures of an account by its values V [1 + T], $, bar by bar."""

import math

import numpy as np

BAND = (0.1, 0.5, 0.9)  # quantiles over seeds, of curves
FLAT = 1e-12  # of the largest return: a smaller deviation is rounding


def sharpe(value: np.ndarray, bars_per_year: float) -> float:
    """Annual Sharpe ratio of simple returns: sqrt(bars per year) mean/deviation (ddof 1), 0 if they are all equal."""
    returns = np.diff(value) / value[:-1]
    deviation = float(returns.std(ddof=1)) if len(returns) > 1 else 0.0
    if deviation <= FLAT * np.abs(returns).max(initial=0.0):
        return 0.0
    return float(returns.mean()) / deviation * math.sqrt(bars_per_year)


def drawdown(value: np.ndarray) -> float:
    """Largest share of its highest value so far that the account lost."""
    return float((1 - value / np.maximum.accumulate(value)).max())
