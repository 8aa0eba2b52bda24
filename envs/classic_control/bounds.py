"""The box that first states are drawn from, as Gymnasium's classic control takes it among the options of reset."""

from collections.abc import Mapping

import numpy as np


def number(name: str, value) -> float:
    """An option of reset as a float; ValueError where it is none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last one of torch, for complex numbers
        raise ValueError(f"options[{name!r}]={value!r:.60} must be a number") from None


def interval(options: Mapping, low: float, high: float, limit: float) -> tuple[float, float]:
    """Reset bounds `low` and `high` of the options.

    Raises:
        ValueError: not numbers, low > high, or beyond what the kernel is written for.
    """
    bounds = []
    for name, default in (("low", low), ("high", high)):
        value = options.get(name, default)
        bounds.append(number(name, value))
        if not abs(bounds[-1]) <= max(limit, float(np.float32(limit))):  # as float32 may have rounded it
            raise ValueError(f"options[{name!r}]={value!r} must lie in [-{limit}, {limit}]")
    if bounds[0] > bounds[1]:
        raise ValueError(f"options: low={bounds[0]} must not exceed high={bounds[1]}")
    return bounds[0], bounds[1]
