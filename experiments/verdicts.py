"""Verdicts on comparisons: the rows of correctness.csv, the same for every environment."""

import numpy as np
import scipy  # whose stats are imported when they are first used

COLUMNS = [
    *("environment", "level", "pair", "device", "dtype", "quantity", "cases", "error", "tolerance"),
    *("differing", "allowed", "value", "low", "high", "p_value", "passed"),
]
LEAST_P = 1e-3  # of a Kolmogorov-Smirnov test
CONFIDENCE = 0.999  # of Welch's interval of a difference of means


def row(place: tuple, quantity: str, cases: int, passed: bool | None, **found) -> dict:
    """A row of the CSV. place: level, pair, device, dtype. What was not found is empty; passed None is not judged."""
    empty = dict.fromkeys(("error", "tolerance", "differing", "allowed", "value", "low", "high", "p_value"))
    same = dict(zip(("level", "pair", "device", "dtype"), place, strict=True))
    return same | {"quantity": quantity, "cases": cases} | empty | {"passed": passed} | found


def within(place: tuple, quantity: str, errors: np.ndarray, most: float) -> dict:
    """A row for floats: the largest absolute error against the tolerance. NaN never passes."""
    error = float(np.max(errors))
    return row(place, quantity, len(errors), bool(error <= most), error=error, tolerance=most)


def equal(place: tuple, quantity: str, different: np.ndarray, allowed: int = 0) -> dict:
    """A row for integers and flags: how many differ, and how many may."""
    count = int(np.sum(different))
    return row(place, quantity, len(different), count <= allowed, differing=count, allowed=allowed)


def alike(place: tuple, name: str, ours: np.ndarray, theirs: np.ndarray, fixed: bool = True) -> dict:
    """A row on two samples being of one distribution; where every value is the same, there is only that to compare.

    fixed: such a value is so by the rules, and none may differ; else as many may as chance explains.
    """
    if np.ptp(theirs) == 0:
        allowed = 0 if fixed else rarely(len(ours), len(theirs))
        return equal(place, f"{name}: always {theirs[0]:g}", ours != theirs[0], allowed)
    low, high = scipy.stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(CONFIDENCE)
    p = scipy.stats.ks_2samp(ours, theirs).pvalue
    found = {"value": np.mean(ours) - np.mean(theirs), "low": low, "high": high, "p_value": p}
    return row(place, f"{name}: difference of means", len(ours), bool(low <= 0 <= high and p > LEAST_P), **found)


def rarely(ours: int, theirs: int) -> int:
    """The most rare values that may all lie in the first of two samples of these sizes with probability LEAST_P."""
    shares = (ours - np.arange(ours)) / (ours + theirs - np.arange(ours))
    return int((np.cumprod(shares) >= LEAST_P).sum())
