"""Single figures out of the results: what claims.yaml, the tables and the prose ask for.

A selector names rows of one experiment's CSV by column and value. Every answer belongs to one machine and
to one run on it; whatever divides two rates takes both from the same run.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

import paper
from experiments import curves, peers, shares, statistics
from paper import edge, learning, typeset

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


QUANTITIES: dict[str, tuple[Callable, Callable]] = {}


def quantity(write: Callable[[float, float, float], tuple[str, str]]) -> Callable:
    """Make a function (datasets, select, against) -> (dataset, value, low, high)... a quantity.

    write: puts value, low and high into words, the figure and its interval apart.
    """

    def register(function: Callable) -> Callable:
        QUANTITIES[function.__name__] = (function, write)
        return function

    return register


def find(datasets: list, item: Mapping) -> list[Finding]:
    """All answers to an item of claims.yaml (select, quantity, perhaps against); those measured here first.

    Raises ValueError for a quantity or a column that does not exist.
    """
    name = item["quantity"]
    if name not in QUANTITIES:
        raise ValueError(f"quantity {name!r} is unknown; there are {', '.join(QUANTITIES)}")
    function, write = QUANTITIES[name]
    found = []
    for dataset, value, low, high in function(datasets, item["select"], item.get("against")):
        shown, interval = write(value, low, high)
        words = {"environment": dataset.provenance["environment"], "status": dataset.status}
        words |= {"machine": paper.machine(dataset), "date": paper.date(dataset)}
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
    """The rows of a frame that fit a selector; threads "all" is the largest number that fits so far."""
    for column, value in select.items():
        if column == "experiment":
            continue
        if column not in frame:
            raise ValueError(f"a selector names the column {column!r}; there are {', '.join(frame.columns)}")
        every = column == "threads" and value == "all"
        frame = frame[frame[column] == (frame[column].max() if every else value)]
    return frame


def rates(dataset) -> pd.DataFrame:
    """One row per setting of a throughput run: the columns of statistics.throughput_summary, and `ratio`.

    ratio: the rate over that of the original in the same run, under the same policy if the original ran it,
    else under random actions; NaN where the run has no original, and for a rate that counts no live steps.
    """
    frame = statistics.throughput_summary(dataset.frame)
    originals = frame[frame["rung"] == "original"].groupby("policy")["rate"].max()
    frame["ratio"] = frame["rate"] / frame["policy"].map(originals).fillna(originals.get("random", NAN))
    frame.loc[frame["rung"] == paper.NOT_LIVE, "ratio"] = NAN
    return frame


def blocks(dataset, row: pd.Series, column: str = "rate") -> np.ndarray:
    """Every block's rate (or cpu_rate) of the setting that `row` of rates() summarises; [blocks], steps/s."""
    frame = statistics.with_rates(dataset.frame)
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


# Of throughput.


def fastest(datasets: list, select: Mapping, by: str = "rate") -> Iterator[tuple]:
    """(dataset, its summary, the fastest fitting row) for every throughput run that has one."""
    for dataset in of(datasets, select) if select.get("experiment", "throughput") == "throughput" else []:
        frame = rates(dataset)
        fitting = matching(frame, select)
        if len(fitting):
            yield dataset, frame, fitting.loc[fitting[by].idxmax()]


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


@quantity(rate_words("steps/s"))
def rate(datasets, select, against):
    """Live environment steps per second."""
    for dataset, _, row in fastest(datasets, select):
        yield dataset, row["rate"], row["rate_low"], row["rate_high"]


@quantity(rate_words("steps/CPU-s"))
def cpu_rate(datasets, select, against):
    """Live environment steps per second of CPU time, over all threads."""
    for dataset, _, row in fastest(datasets, select, "cpu_rate"):
        yield dataset, row["cpu_rate"], row["cpu_rate_low"], row["cpu_rate_high"]


def thread_words(value: float, low: float, high: float) -> tuple[str, str]:
    return f"{typeset.count(value)} thread{'s' if value > 1 else ''}", typeset.DASH


@quantity(thread_words)
def threads(datasets, select, against):
    """Threads of the row that `rate` speaks of."""
    for dataset, _, row in fastest(datasets, select):
        yield dataset, float(row["threads"]), NAN, NAN


@quantity(with_interval(typeset.times))
def ratio(datasets, select, against):
    """Rate over the rate of another row of the same run."""
    for dataset, frame, row in fastest(datasets, select):
        base = matching(frame, {**select, **against})
        if len(base):
            yield dataset, *ratio_to(dataset, row, base.loc[base["rate"].idxmax()])


@quantity(with_interval(typeset.short_time))
def step_time(datasets, select, against):
    """Seconds per environment step: one over the rate."""
    for dataset, _, row in fastest(datasets, select):
        yield dataset, 1 / row["rate"], 1 / row["rate_high"], 1 / row["rate_low"]


@quantity(with_interval(typeset.short_time))
def step_cpu_time(datasets, select, against):
    """CPU seconds per environment step, over all threads."""
    for dataset, _, row in fastest(datasets, select, "cpu_rate"):
        yield dataset, 1 / row["cpu_rate"], 1 / row["cpu_rate_high"], 1 / row["cpu_rate_low"]


@quantity(with_interval(typeset.times))
def cpu_ratio(datasets, select, against):
    """Rate per CPU-second over that of another row of the same run."""
    for dataset, frame, row in fastest(datasets, select, "cpu_rate"):
        base = matching(frame, {**select, **against})
        if len(base):
            other = blocks(dataset, base.loc[base["cpu_rate"].idxmax()], "cpu_rate")
            yield dataset, *statistics.ratio(blocks(dataset, row, "cpu_rate"), other)


@quantity(with_interval(typeset.short_time))
def call_time(datasets, select, against):
    """Seconds per call that steps the whole batch once."""
    for dataset, _, row in fastest(datasets, select):
        size = row["num_envs"] * row["fused_steps"]
        yield dataset, size / row["rate"], size / row["rate_high"], size / row["rate_low"]


@quantity(with_interval(typeset.percent))
def bandwidth_share(datasets, select, against):
    """Traffic of the largest batch over the copy bandwidth of that machine for as many bytes."""
    for dataset in of(datasets, select):
        fitting = matching(rates(dataset), select).dropna(subset=["bytes_per_step"])
        if fitting.empty:
            continue
        fitting = fitting[fitting["num_envs"] == fitting["num_envs"].max()]
        row = fitting.loc[fitting["rate"].idxmax()]
        size = row["bytes_per_step"] * row["fused_steps"] * row["num_envs"]
        ceiling = copy_bandwidth(datasets, dataset, row["device"], size, row["threads"])
        if not typeset.missing(ceiling):
            scale = row["bytes_per_step"] / ceiling
            yield dataset, row["rate"] * scale, row["rate_low"] * scale, row["rate_high"] * scale


# Of the operations of a step, and of fleets.


@quantity(with_interval(typeset.short_time))
def operation_time(datasets, select, against):
    """Seconds that an operation takes of a step of one environment; of several settings the shortest."""
    for dataset in of(datasets, select):
        rows = matching(edge.operations(dataset), select)
        if len(rows):
            yield dataset, *rows.loc[rows["seconds"].idxmin()][["seconds", "seconds_low", "seconds_high"]].astype(float)


@quantity(with_interval(typeset.times))
def operation_ratio(datasets, select, against):
    """Times faster than in the original that an operation is; of several settings the fastest."""
    for dataset in of(datasets, select):
        rows = matching(edge.operations(dataset), select).dropna(subset=["ratio"])
        if len(rows):
            yield dataset, *rows.loc[rows["ratio"].idxmax()][["ratio", "ratio_low", "ratio_high"]].astype(float)


@quantity(alone(typeset.percent))
def operation_share(datasets, select, against):
    """Share of an operation in the whole step of the same form and setting; of several the largest."""
    for dataset in of(datasets, select):
        shares = matching(edge.operations(dataset), select)["share"].dropna().astype(float)
        if len(shares):
            yield dataset, float(shares.max()), NAN, NAN


@quantity(rate_words("steps/s"))
def fleet_rate(datasets, select, against):
    """Environment steps per second at a number of vehicles; of several settings the fastest."""
    for dataset in of(datasets, select):
        rows = matching(edge.scaling(dataset), select).dropna(subset=["rate"])
        if len(rows):
            yield dataset, *rows.loc[rows["rate"].idxmax()][["rate", "rate_low", "rate_high"]].astype(float)


# Of peers and transfer.


@quantity(with_interval(typeset.times))
def peer_ratio(datasets, select, against):
    """The port's rate over that of a peer in the same mode, one run; of several that fit over the fastest."""
    for dataset in of(datasets, select):
        rows = matching(peers.summary(dataset.frame), select).dropna(subset=["ratio"])
        if len(rows):
            yield dataset, *rows.loc[rows["ratio"].idxmin()][["ratio", "ratio_low", "ratio_high"]].astype(float)


def of_loops(datasets: list, select: Mapping, column: str) -> Iterator[tuple]:
    """(dataset, the row with the largest figure in a column) for every run of transfer that has one."""
    for dataset in of(datasets, select):
        rows = matching(shares.transfer_summary(dataset.frame), select).dropna(subset=[column])
        if len(rows):
            yield dataset, rows.loc[rows[column].idxmax()]


@quantity(with_interval(typeset.percent))
def transfer_share(datasets, select, against):
    """Copies in the sum of a loop's parts; of several environments' forms the largest."""
    for dataset, row in of_loops(datasets, select, "share"):
        yield dataset, row["share"], row["share_low"], row["share_high"]


@quantity(with_interval(typeset.percent))
def copies_over_step(datasets, select, against):
    """Copies timed apart over a step timed apart; of several environments' forms the largest."""
    for dataset, row in of_loops(datasets, select, "over_step"):
        yield dataset, row["over_step"], NAN, NAN


# Of learning.


@quantity(rate_words("steps/s"))
def training_rate(datasets, select, against):
    """Environment steps per second of training, from end to end; of several settings the fastest."""
    for dataset in of(datasets, select):
        rows = matching(learning.rates(dataset), select)
        if len(rows):
            yield dataset, *rows.loc[rows["rate"].idxmax()][["rate", "rate_low", "rate_high"]].astype(float)


@quantity(with_interval(typeset.times))
def training_ratio(datasets, select, against):
    """Our rate of training over that of another agent in the same work; of several settings the smallest."""
    for dataset in of(datasets, select):
        rows = matching(learning.rates(dataset), select).dropna(subset=["ratio"])
        if len(rows):
            yield dataset, *rows.loc[rows["ratio"].idxmin()][["ratio", "ratio_low", "ratio_high"]].astype(float)


@quantity(with_interval(typeset.significant))
def final_return(datasets, select, against):
    """Interquartile mean over seeds of the return in the original after training; of several settings the lowest.

    Fewer than learning.FEW seeds are an illustration, and no answer.
    """
    for dataset in of(datasets, select):
        rows = matching(curves.final_summary(dataset.frame), select)
        rows = rows[rows["seeds"] >= learning.FEW]
        if len(rows):
            yield dataset, *rows.loc[rows["score"].idxmin()][["score", "score_low", "score_high"]].astype(float)


@quantity(with_interval(typeset.significant))
def return_over_random(datasets, select, against):
    """The same less that of a random policy in the same run."""
    for dataset, *figures in final_return(datasets, select, against):
        scores = curves.final_summary(dataset.frame)
        for score in scores.loc[scores["agent"] == learning.RANDOM, "score"]:
            yield dataset, *(figure - score for figure in figures)


def of_solves(datasets: list, select: Mapping, share: float) -> Iterator[tuple]:
    """(dataset, the seconds within which that share of the seeds was solved) of each setting with enough of them."""
    for dataset in of(datasets, select):
        for setting, rows in curves.runs(dataset.frame, "solve"):
            seconds = learning.within(rows, share)
            if len(matching(pd.DataFrame([setting]), select)) and not typeset.missing(seconds):
                yield dataset, seconds, NAN, NAN


@quantity(alone(typeset.short_time))
def nine_in_ten_solved(datasets, select, against):
    """Seconds within which nine in ten seeds were solved, of ten or more; infinite where fewer were at all."""
    yield from of_solves(datasets, select, 0.9)


@quantity(alone(typeset.short_time))
def nineteen_in_twenty_solved(datasets, select, against):
    """The same of nineteen in twenty, of twenty seeds or more."""
    yield from of_solves(datasets, select, 0.95)


@quantity(out_of)
def seeds_solved(datasets, select, against):
    """Seeds that were solved; `high` is how many were trained."""
    for dataset in of(datasets, select):
        for row in matching(curves.solve_summary(dataset.frame), select).to_dict("records"):
            yield dataset, float(row["solved"]), NAN, float(row["seeds"])


# Of correctness and compilation.


@quantity(alone(typeset.percent))
def tolerance_share(datasets, select, against):
    """Largest difference over its tolerance, over all fitting rows that have one."""
    for dataset in of(datasets, select):
        rows = matching(dataset.frame, select)
        share = (rows["error"] / rows["tolerance"]).dropna()
        if len(share):
            yield dataset, float(share.max()), NAN, NAN


@quantity(alone(typeset.significant))
def largest_difference(datasets, select, against):
    """Largest difference over all fitting rows that have a tolerance."""
    for dataset in of(datasets, select):
        errors = matching(edge.differences(dataset), select)["error"]
        if len(errors):
            yield dataset, float(errors.max()), NAN, NAN


@quantity(alone(typeset.count))
def cases(datasets, select, against):
    """Cases compared, over all regions and without variants, of the pair, device and type that has the fewest."""
    for dataset in of(datasets, select):
        rows = matching(dataset.frame, select)
        rows = rows[~rows["quantity"].str.contains("=")]  # (g=9.81) is a variant, (slow) a region
        if len(rows):
            about = rows.assign(of=rows["quantity"].str.replace(r" \(.*\)$", "", regex=True))
            compared = about.groupby(["pair", "device", "dtype", "of"])["cases"].sum()
            yield dataset, float(compared.groupby(["pair", "device", "dtype"]).max().min()), NAN, NAN


def judged(checks: pd.DataFrame) -> pd.Series:
    """Whether each check holds, without the rows that only report something."""
    return checks["passed"].dropna().astype(bool)


@quantity(out_of)
def checks_held(datasets, select, against):
    """Checks that hold; `high` is their number."""
    for dataset in of(datasets, select):
        held = judged(matching(dataset.frame, select))
        if len(held):
            yield dataset, float(held.sum()), NAN, float(len(held))


@quantity(alone(typeset.count))
def checks_told(datasets, select, against):
    """Rows that only report something, where there are any."""
    for dataset in of(datasets, select):
        told = matching(dataset.frame, select)["passed"].isna().sum()
        if told:
            yield dataset, float(told), NAN, NAN


def divergence_words(value: float, low: float, high: float) -> tuple[str, str]:
    interval = f"{typeset.count(low)} {typeset.DASH} {typeset.count(high)}"
    return f"at step {typeset.count(value)} in the median (5{typeset.DASH}95{typeset.SPACE}%: {interval})", interval


@quantity(divergence_words)
def divergence(datasets, select, against):
    """First step at which a replayed episode is apart from the original's: median, 5 % and 95 % of episodes.

    Of several pairs, devices and types the one that parts first.
    """
    for dataset in of(datasets, select):
        rows = matching(dataset.frame, {**select, "level": "episode"})
        rows = rows[rows["quantity"].str.startswith("first step more than")]
        if len(rows):
            yield dataset, *rows.sort_values("value").iloc[0][["value", "low", "high"]].astype(float)


@quantity(out_of)
def environments_held(datasets, select, against):
    """Environments of a machine whose every check holds; `high` is how many were checked there."""
    found: dict[str, list] = {}
    for dataset in of(datasets, select):
        found.setdefault(paper.machine(dataset), []).append(dataset)
    for checked in found.values():
        held = sum(judged(dataset.frame).all() for dataset in checked)
        yield checked[0], float(held), NAN, float(len(checked))


@quantity(alone(typeset.count))
def spilled_bytes(datasets, select, against):
    """Bytes of registers spilled, stores and loads, over all fitting kernels and targets."""
    for dataset in of(datasets, select):
        rows = matching(dataset.frame, select)
        if len(rows):
            yield dataset, float(rows[["spill_store_bytes", "spill_load_bytes"]].to_numpy().sum()), NAN, NAN
