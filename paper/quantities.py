"""Single figures out of the results: what claims.yaml, the tables and the prose ask for.

A selector names rows of one experiment's CSV by column and value. Every answer belongs to one machine and to one run on
it; whatever divides two rates takes both from the same run. common/quantities/ and the families' `quantities` hold the
quantities themselves; this file has what they share, and what tables and figures take from it.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from lockstep import paper
from lockstep.experiments.bench import statistics
from lockstep.experiments.ledger import results
from lockstep.paper import families, typeset

NAN = float("nan")


class Finding(NamedTuple):
    """A figure of one environment on one machine, with its 95 % interval where it has one (else NaN), and as text."""

    value: float
    low: float
    high: float
    shown: str
    interval: str
    environment: str
    status: str
    machine: str
    date: str
    scale: str | None


REGISTERED: dict[str, tuple[Callable, Callable]] = {}


def quantity(write: Callable[[float, float, float], tuple[str, str]]) -> Callable:
    """Make a function (datasets, select, against) -> (dataset, value, low, high)... a quantity.

    write: puts value, low and high into words, the figure and its interval apart.
    """

    def register(function: Callable) -> Callable:
        REGISTERED[function.__name__] = (function, write)
        return function

    return register


def every() -> dict[str, tuple[Callable, Callable]]:
    """All quantities by name: the function, and how its figures are put into words."""
    families.modules("quantities")
    return REGISTERED


def find(datasets: list, item: Mapping) -> list[Finding]:
    """All answers to an item of claims.yaml (select, quantity, perhaps against); those measured here first.

    Raises ValueError for a quantity or a column that does not exist.
    """
    name = item["quantity"]
    if name not in every():
        raise ValueError(f"quantity {name!r} is unknown; there are {', '.join(sorted(every()))}")
    function, write = every()[name]
    found = []
    for dataset, value, low, high in function(datasets, item["select"], item.get("against")):
        shown, interval = write(value, low, high)
        words = {"environment": dataset.provenance["environment"], "status": dataset.status}
        words |= {"machine": paper.machine(dataset), "date": paper.date(dataset)}
        words["scale"] = dataset.provenance["scale"]
        found.append(Finding(value, low, high, shown, interval, **words))
    return found


def of(datasets: list, select: Mapping) -> list:
    """The datasets that a selector's experiment and environment name."""
    experiment = select.get("experiment", "throughput")
    return [
        dataset
        for dataset in paper.in_order(datasets)
        if dataset.provenance["experiment"] == experiment
        and select.get("environment", dataset.provenance["environment"]) == dataset.provenance["environment"]
    ]


def matching(frame: pd.DataFrame, select: Mapping) -> pd.DataFrame:
    """The rows of a frame that fit a selector (see `statistics.fitting`), whose experiment is that of the frame."""
    return statistics.fitting(frame, without_experiment(select))


def without_experiment(select: Mapping) -> dict:
    return {column: value for column, value in select.items() if column != "experiment"}


def unanswered(dataset, select: Mapping) -> bool:
    """Tells of a run that rows which a selector names are yet to be measured."""
    missing = results.missing_groups(dataset.provenance)
    return bool(missing) and statistics.may_change(dataset.frame, without_experiment(select), missing)


@paper.once
def rates(dataset) -> pd.DataFrame:
    """One row per setting of a throughput run: columns of statistics.throughput_summary, `ratio` and `memory_mib`.

    ratio: the rate over that of the original in the same run, under the same policy if the original ran it,
    else under random actions; NaN where the run has no original, or not yet the one under that policy, and for a rate
    that counts no live steps.
    """
    frame = statistics.throughput_summary(dataset.frame)
    originals = frame[frame["rung"] == "original"].groupby("policy")["rate"].max()
    for one in results.missing_groups(dataset.provenance):
        if one.get("rung", "original") == "original" and "policy" in one:
            originals[one["policy"]] = NAN
    frame["ratio"] = frame["rate"] / frame["policy"].map(originals).fillna(originals.get("random", NAN))
    frame.loc[frame["rung"] == paper.NOT_LIVE, "ratio"] = NAN
    frame["memory_mib"] = NAN
    if "memory_mib" in dataset.frame:  # which early recordings lack
        settings = dataset.frame.groupby(statistics.GROUP, sort=False, dropna=False)
        frame["memory_mib"] = settings["memory_mib"].max().to_numpy(dtype=float)
    return frame


@paper.once
def timed(dataset) -> pd.DataFrame:
    """The blocks of a throughput run with their rates."""
    return statistics.with_rates(dataset.frame)


def blocks(dataset, row: pd.Series, column: str = "rate") -> np.ndarray:
    """Every block's rate (or cpu_rate) of the setting that `row` of rates() summarises; [blocks], steps/s."""
    frame = timed(dataset)
    for name in statistics.GROUP:
        frame = frame[frame[name].isna() if typeset.missing(row[name]) else frame[name] == row[name]]
    return frame[column].to_numpy()


def ratio_to(dataset, row: pd.Series, base: pd.Series) -> statistics.Ratio:
    """Rate of one setting over that of another of the same run."""
    return statistics.ratio(blocks(dataset, row), blocks(dataset, base))


def copy_bandwidth(datasets: list, dataset, device: str, size_bytes: float, threads: int | None = None) -> float:
    """Median copy bandwidth of a dataset's machine for buffers of that size together, bytes/s.

    Interpolated over the logarithm of the sizes measured, beyond them the nearest; NaN where there are none.
    """
    curve = copy_curve(datasets, dataset, device, threads)
    if curve.empty:
        return NAN
    return float(np.interp(np.log(size_bytes), np.log(curve.index.to_numpy(dtype=float)), curve.to_numpy()))


def copy_curve(datasets: list, dataset, device: str, threads: int | None = None) -> pd.Series:
    """Copy bandwidth of a dataset's machine over size_bytes, bytes/s; of so many threads, or of the most."""
    frame = of_threads(ceilings(datasets, dataset, "copy", device), device, threads)
    return (frame["amount"] / frame["wall_s"]).groupby(frame["size_bytes"]).median().sort_index()


def fp32_rate(datasets: list, dataset, device: str, threads: int | None = None) -> float:
    """Median fp32 rate of a dataset's machine, operations/s; of that many threads, or of the most; or NaN."""
    frame = of_threads(ceilings(datasets, dataset, "fp32", device), device, threads)
    return float((frame["amount"] / frame["wall_s"]).median()) if len(frame) else NAN


def of_threads(frame: pd.DataFrame, device: str, threads: int | None) -> pd.DataFrame:
    """The rows of ceilings.csv with that many CPU threads, or with the most if none have; all on a GPU."""
    if device != "cpu" or frame.empty:
        return frame
    known = frame["threads"]
    return frame[known == (threads if (known == threads).any() else known.max())]


def ceilings(datasets: list, dataset, name: str, device: str) -> pd.DataFrame:
    """The rows of one ceiling on the machine of a dataset."""
    for other in datasets:
        if other.provenance["experiment"] == "ceilings" and paper.machine(other) == paper.machine(dataset):
            return other.frame[(other.frame["quantity"] == name) & (other.frame["device"] == device)]
    return pd.DataFrame({"threads": [], "size_bytes": [], "amount": [], "wall_s": []})


# Words for figures.


def estimate(row: pd.Series, name: str) -> tuple[float, float, float]:
    """A figure of a row and the two ends of its interval, NaN where there is no column `name`_low or `name`_high."""
    value, low, high = row.reindex([name, f"{name}_low", f"{name}_high"]).astype(float)
    return value, low, high


def extreme(datasets: list, select: Mapping, summary: Callable, name: str, which: str = "max") -> Iterator[tuple]:
    """(dataset, a figure, the ends of its interval): the largest, or "min", that fits of each run's summary."""
    for dataset in of(datasets, select):
        rows = matching(summary(dataset), select).dropna(subset=[name])
        if len(rows):
            yield dataset, *estimate(rows.loc[getattr(rows[name], f"idx{which}")()], name)


def with_interval(write: Callable[[float], str]) -> Callable:
    def words(value: float, low: float, high: float) -> tuple[str, str]:
        return write(value), typeset.DASH if typeset.missing(low) else f"{write(low)} {typeset.DASH} {write(high)}"

    return words


def alone(write: Callable[[float], str]) -> Callable:
    return lambda value, low, high: (write(value), typeset.DASH)


def out_of(value: float, low: float, high: float) -> tuple[str, str]:
    return f"{typeset.count(value)} of {typeset.count(high)}", typeset.DASH


def rate_words(unit: str) -> Callable:
    def words(value: float, low: float, high: float) -> tuple[str, str]:
        interval = typeset.DASH if typeset.missing(low) else typeset.si_range(low, high, value)
        return f"{typeset.si(value)} {unit}", interval

    return words


def thread_words(value: float, low: float, high: float) -> tuple[str, str]:
    return f"{typeset.count(value)} thread{'s' if value > 1 else ''}", typeset.DASH


def judged(checks: pd.DataFrame) -> pd.Series:
    """The verdict of each check, without the rows that only report something."""
    return checks["passed"].dropna().astype(bool)
