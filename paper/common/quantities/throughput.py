"""Of throughput: rates, times, their ratios, and the share of the machine's bandwidth."""

from collections.abc import Iterator, Mapping

from lockstep.experiments.bench import statistics
from lockstep.paper import typeset
from lockstep.paper.quantities import (
    NAN,
    blocks,
    copy_bandwidth,
    matching,
    of,
    quantity,
    rate_words,
    rates,
    ratio_to,
    thread_words,
    unanswered,
    with_interval,
)


def fastest(datasets: list, select: Mapping, by: str = "rate") -> Iterator[tuple]:
    """(dataset, its summary, the fastest fitting row) for every throughput run that has one, and all that fit."""
    for dataset in of(datasets, select) if select.get("experiment", "throughput") == "throughput" else []:
        frame = rates(dataset)
        fitting = matching(frame, select)
        if len(fitting) and not unanswered(dataset, select):
            yield dataset, frame, fitting.loc[fitting[by].idxmax()]


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
        if len(base) and not unanswered(dataset, {**select, **against}):
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
        if len(base) and not unanswered(dataset, {**select, **against}):
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
        if fitting.empty or unanswered(dataset, select):
            continue
        fitting = fitting[fitting["num_envs"] == fitting["num_envs"].max()]
        row = fitting.loc[fitting["rate"].idxmax()]
        size = row["bytes_per_step"] * row["fused_steps"] * row["num_envs"]
        ceiling = copy_bandwidth(datasets, dataset, row["device"], size, row["threads"])
        if not typeset.missing(ceiling):
            scale = row["bytes_per_step"] / ceiling
            yield dataset, row["rate"] * scale, row["rate_low"] * scale, row["rate_high"] * scale
