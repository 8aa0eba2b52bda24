"""Quantities of scaling: rates, their ratios, resets and CPU time over the sizes of environments."""

from collections.abc import Iterator

import pandas as pd

from lockstep import paper
from lockstep.experiments import config
from lockstep.experiments.bench import statistics
from lockstep.experiments.sizes import summary
from lockstep.paper import typeset
from lockstep.paper.quantities import NAN, alone, estimate, extreme, matching, of, quantity, rate_words, with_interval


def section(environment: str):
    """The settings of the experiment: what an environment grows by, its columns, its sweeps."""
    return config.load(environment, "full").scaling


@paper.once
def sizes(run) -> pd.DataFrame:
    """The experiment's summary (`sizes.summary`) by rung, then by what grows and the number of environments."""
    name = run.provenance["environment"]
    about = section(name)
    found = summary(run.frame, about).assign(environment=name)
    order = found.assign(place=found["rung"].map(paper.rung_order))
    return found.loc[order.sort_values(["place", about.over, "num_envs", "threads"], kind="stable").index]


@quantity(rate_words("steps/s"))
def size_rate(datasets, select, against):
    """Environment steps per second at a size; of several settings the fastest."""
    return extreme(datasets, select, sizes, "rate")


@quantity(rate_words("steps/s"))
def counted_rate(datasets, select, against):
    """Steps per second times what an environment grows by, as steps of single vehicles; of several the fastest."""
    for dataset in of(datasets, select):
        over = section(dataset.provenance["environment"]).over
        rows = matching(sizes(dataset), select).dropna(subset=["counted_rate"])
        if len(rows):
            row = rows.loc[rows["counted_rate"].idxmax()]
            yield dataset, *(rate * row[over] for rate in estimate(row, "rate"))


@quantity(alone(typeset.short_time))
def reset_time(datasets, select, against):
    """Seconds that the reset of one environment adds to a step; of several settings the shortest."""
    return ((dataset, seconds, NAN, NAN) for dataset, seconds in best(datasets, select, "reset_s", "min"))


@quantity(alone(typeset.short_time))
def size_step_cpu_time(datasets, select, against):
    """CPU seconds of a step of one environment, over all threads; of several settings the shortest."""
    return ((dataset, 1 / rate, NAN, NAN) for dataset, rate in best(datasets, select, "cpu_rate", "max"))


@quantity(with_interval(typeset.times))
def batch_ratio(datasets, select, against):
    """Rate of one size over that of another, in the same run; medians of blocks."""
    return over(datasets, select, against, "rate")


@quantity(with_interval(typeset.times))
def batch_cpu_ratio(datasets, select, against):
    """Rate per CPU-second of one size over that of another, likewise."""
    return over(datasets, select, against, "cpu_rate")


def over(datasets, select, against, name: str) -> Iterator[tuple]:
    """(dataset, ratio, low, high) of a column of rates, of each dataset that has both sizes."""
    for dataset in of(datasets, select):
        frame = statistics.with_rates(dataset.frame)
        above, below = (matching(frame, one)[name].dropna() for one in (select, select | against))
        if len(above) and len(below):
            yield dataset, *statistics.ratio(above, below)


def best(datasets, select, name: str, which: str):
    """(dataset, the largest, or "min" the smallest, figure of a name that fits)."""
    for dataset in of(datasets, select):
        values = matching(sizes(dataset), select)[name].dropna()
        if len(values):
            yield dataset, float(getattr(values, which)())
