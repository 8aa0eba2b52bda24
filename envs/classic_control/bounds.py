"""The box that first states are drawn from, as Gymnasium's classic control takes it among the options of reset."""

from collections.abc import Mapping

import numpy as np


def interval(options: Mapping, low: float, high: float, limit: float) -> tuple[float, float]:
    """Reset bounds `low` and `high` of the options.

    Raises:
        ValueError: not numbers, low > high, or beyond what the kernel is written for.
    """
    bounds = []
    for name, default in (("low", low), ("high", high)):
        value = options.get(name, default)
        try:
            bounds.append(float(value))
        except (TypeError, ValueError):
            raise ValueError(f"options[{name!r}]={value!r} must be a number") from None
        if not abs(bounds[-1]) <= max(limit, float(np.float32(limit))):  # as float32 may have rounded it
            raise ValueError(f"options[{name!r}]={value!r} must lie in [-{limit}, {limit}]")
    if bounds[0] > bounds[1]:
        raise ValueError(f"options: low={bounds[0]} must not exceed high={bounds[1]}")
    return bounds[0], bounds[1]
