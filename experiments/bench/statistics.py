"""Medians with their intervals, ratios, and the summary of throughput.csv.

Intervals hold for any distribution: of a median by order statistics (Conover, Practical Nonparametric
Statistics, 1999, section 3.2), of a ratio by a percentile bootstrap with a fixed seed.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from math import nan
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy  # whose stats are imported when they are first used

CONFIDENCE = 0.95
RESAMPLES = 10_000
GROUP = [
    *("environment", "rung", "device", "num_envs", "threads", "fused_steps", "policy", "obs", "dtype"),
    "bytes_per_step",
]


class Summary(NamedTuple):
    """Median, its 95 % interval [low, high], 5th and 95th percentile."""

    median: float
    low: float
    high: float
    p5: float
    p95: float


class Ratio(NamedTuple):
    """Ratio of two medians and its 95 % interval."""

    ratio: float
    low: float
    high: float


def summarise(values: Sequence[float]) -> Summary:
    """Median, interval, p5 and p95 of the values; the interval is NaN below six values."""
    values = np.asarray(values, dtype=float)
    if values.size == 0 or not np.isfinite(values).all():
        raise ValueError(f"values must be finite and at least one, got {values.tolist()}")
    p5, p95 = np.percentile(values, [5, 95])
    low, high = (nan, nan) if (ends := ranks(values.size)) is None else np.sort(values)[list(ends)]
    return Summary(float(np.median(values)), float(low), float(high), float(p5), float(p95))


@functools.cache
def ranks(count: int) -> tuple[int, int] | None:
    """The places, among so many sorted values, of the ends of the median's interval; None where there is none."""
    low, high = scipy.stats.quantile_test(np.arange(count)).confidence_interval(CONFIDENCE)
    return None if np.isnan([low, high]).any() else (int(low), int(high))


def resampled(statistic: Callable, *samples: np.ndarray, draws: int, seed: int = 0) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of statistic(*samples, axis=...), each sample drawn from apart.

    It is that of scipy.stats.bootstrap to the bit, which refuses a sample of one value.
    """
    rng = np.random.default_rng(seed)
    drawn = [rng.choice(sample, (draws, sample.size)) for sample in samples]
    low, high = np.percentile(statistic(*drawn, axis=-1), [2.5, 97.5])
    return float(low), float(high)


def ratio(numerator: Sequence[float], denominator: Sequence[float], seed: int = 0) -> Ratio:
    """Median of the one over median of the other; both are resampled, apart, for the interval."""

    def of_medians(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.median(a, axis=axis) / np.median(b, axis=axis)

    numerator, denominator = np.asarray(numerator, dtype=float), np.asarray(denominator, dtype=float)
    if numerator.size == 0 or denominator.size == 0 or not (denominator > 0).all():
        raise ValueError("a ratio needs values on both sides, and a denominator above 0")
    interval = resampled(of_medians, numerator, denominator, draws=RESAMPLES, seed=seed)
    return Ratio(float(of_medians(numerator, denominator)), *interval)


def with_rates(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of throughput.csv with `rate`, steps/s, and `cpu_rate`, steps per CPU-second."""
    return frame.assign(rate=frame["steps"] / frame["wall_s"], cpu_rate=frame["steps"] / frame["cpu_s"])


def throughput_summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per group of throughput.csv, in its order.

    Columns: the group's, then rate (median), rate_low, rate_high, rate_p5, rate_p95, the same for cpu_rate,
    first_call_s, blocks.
    """
    rows = []
    for key, group in with_rates(frame).groupby(GROUP, sort=False, dropna=False):
        row = dict(zip(GROUP, key, strict=True))
        for quantity in ("rate", "cpu_rate"):
            summary = summarise(group[quantity])
            row[quantity] = summary.median
            others = zip(summary._fields[1:], summary[1:], strict=True)
            row.update({f"{quantity}_{name}": value for name, value in others})
        rows.append(row | {"first_call_s": group["first_call_s"].iloc[0], "blocks": len(group)})
    return pd.DataFrame(rows)


def targets(frame: pd.DataFrame, wanted: Sequence[Mapping], missing: Sequence[Mapping] = ()) -> pd.DataFrame:
    """Reach of one machine's rows of throughput.csv towards the targets of an environment's YAML.

    A target has name, per ("second" or "CPU-second"), numerator, optionally denominator, and floor. Numerator
    and denominator are selectors (see `fitting`); of several groups that fit, the fastest counts. missing: groups
    that are not measured yet (see `results.missing_groups`); while one of them would fit, there is no answer. Columns:
    name, unit, value, low, high, floor, status ("reached", "missed" or "not measured").
    """
    rows = []
    for target in wanted:
        quantity = {"second": "rate", "CPU-second": "cpu_rate"}[target["per"]]
        relative = "denominator" in target
        row = {
            "name": target["name"],
            "unit": "x" if relative else f"steps per {target['per']}",
            "value": nan,
            "low": nan,
            "high": nan,
            "floor": float(target["floor"]),
            "status": "not measured",
        }
        numerator = fastest(frame, target["numerator"], quantity, missing)
        denominator = fastest(frame, target["denominator"], quantity, missing) if relative else None
        if numerator is not None and (denominator is not None or not relative):
            found = ratio(numerator, denominator) if relative else summarise(numerator)[:3]
            row["value"], row["low"], row["high"] = found
            row["status"] = "reached" if row["value"] >= row["floor"] else "missed"
        rows.append(row)
    return pd.DataFrame(rows)


def fitting(frame: pd.DataFrame, selector: Mapping) -> pd.DataFrame:
    """The rows that have a selector's values in its columns; threads "all" is the largest number among the others.

    ValueError for a column that there is not.
    """
    for column in selector:
        if column not in frame:
            raise ValueError(f"a selector names the column {column!r}; there are {', '.join(frame.columns)}")
    every = selector.get("threads") == "all"
    for column, value in selector.items():
        if not (every and column == "threads"):
            frame = frame[frame[column] == value]
    return frame[frame["threads"] == frame["threads"].max()] if every else frame


def may_change(frame: pd.DataFrame, selector: Mapping, missing: Sequence[Mapping]) -> bool:
    """Tells that groups which are missing would be among the rows of a selector, once they are there.

    What is not told of a missing group may be anything.
    """
    if not all(missing):
        return True
    absent = pd.DataFrame(missing)
    absent = fitting(absent, {column: value for column, value in selector.items() if column in absent})
    if selector.get("threads") == "all" and len(present := fitting(frame, selector)):
        absent = absent[absent["threads"] >= present["threads"].max()]
    return len(absent) > 0


def fastest(
    frame: pd.DataFrame, selector: Mapping, quantity: str, missing: Sequence[Mapping] = ()
) -> np.ndarray | None:
    """The `quantity` of each block of the fastest group, by median, that fits; None if none does, or one is missing."""
    found = fitting(with_rates(frame), selector)
    if missing and may_change(frame, selector, missing):
        return None
    groups = [group[quantity].to_numpy() for _, group in found.groupby(GROUP, sort=False, dropna=False)]
    return max(groups, key=np.median, default=None)
