"""Checks of the numbers that a user hands to the original."""

import numpy as np


def numbers(what: str, values) -> np.ndarray:
    """An array of what was given; ValueError, which names it, where it holds no real numbers."""
    try:
        values = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{what} holds {values.dtype}, must hold real numbers")
    return values


def check_range(what: str, values: np.ndarray, low: float, high: float, finite: bool = True):
    """ValueError names the first index whose number is NaN or outside [low, high], or where `finite` asks, infinite."""
    wrong = ~((values >= low) & (values <= high)) | (finite & ~np.isfinite(values))
    if wrong.any():
        index = tuple(np.argwhere(wrong)[0].tolist())
        raise ValueError(f"{what}: index {index} is {values[index]}, must lie in [{low:g}, {high:g}]")
