"""Actions as users give them to the original (README.md, 2.3)."""

import numbers

import numpy as np

from ..params import RATES, Params


def action(given, agent: str, p: Params, check: bool) -> "int | tuple[float, float]":
    """An index, or for a thruster boat rates of thrust of its left and right thruster in N/s.

    Args:
        agent: named by the errors.
        check: refuse what lies outside the space; else numbers are clipped, and NaN and indices that are none act as 0.

    Raises:
        ValueError: another shape or type, or a value outside the space.
    """
    if p.action_kind == "continuous":
        left, right = _numbers(given, agent, check)
        return p.thrust_rate * left, p.thrust_rate * right
    index = _index(given, agent, p.choices - 1, check)
    if p.version != "thruster":
        return index
    left, right = divmod(index, len(RATES))
    return p.thrust_rate * RATES[left], p.thrust_rate * RATES[right]


def _numbers(given, agent: str, check: bool) -> list[float]:
    try:
        array = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given)  # of a tensor its numbers
    except ValueError:  # ragged
        array = np.zeros(0)
    right = array.shape == (2,) and array.dtype.kind in "iuf"
    if not right or (check and not (np.abs(array) <= 1).all()):
        raise ValueError(f"action of {agent}: {given!r:.60} must be two numbers from -1 to 1")
    return np.clip(np.nan_to_num(array.astype(np.float64), posinf=1.0, neginf=-1.0), -1.0, 1.0).tolist()


def _index(given, agent: str, most: int, check: bool) -> int:
    index = given.item() if np.ndim(given) == 0 and hasattr(given, "item") else given  # of an array or a tensor
    whole = isinstance(index, numbers.Integral) and not isinstance(index, bool)
    if not whole or (check and not 0 <= index <= most):
        raise ValueError(f"action of {agent}: {given!r:.60} must be an integer from 0 to {most}")
    return int(index) if 0 <= index <= most else 0
