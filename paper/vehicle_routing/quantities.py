"""Quantities of oracles, and of the memory of a batch."""

from collections.abc import Iterator

from lockstep.paper import typeset
from lockstep.paper.common.quantities.scaling import sizes
from lockstep.paper.quantities import NAN, alone, extreme, matching, of, quantity, with_interval
from lockstep.paper.vehicle_routing import summaries


def minutes(value: float) -> str:
    return f"{typeset.significant(value)}{typeset.SPACE}min"


@quantity(with_interval(typeset.percent))
def oracle_gap(datasets, select, against):
    """Mean cost over PyVRP's, less 1; of several settings the largest."""
    return extreme(datasets, select, summaries.gaps, "gap")


@quantity(alone(minutes))
def day_cost(datasets, select, against):
    """Mean cost of a day's first requests; of several settings the largest."""
    return largest(datasets, select, summaries.gaps, "cost_min")


@quantity(with_interval(typeset.percent))
def cost_changed(datasets, select, against):
    """Share of costs that other neighbours in the batch change; of several settings the largest."""
    return extreme(datasets, select, summaries.among_others, "changed")


@quantity(alone(minutes))
def cost_change(datasets, select, against):
    """Mean change of a cost by other neighbours in the batch; of several settings the largest."""
    return largest(datasets, select, summaries.among_others, "change_min")


@quantity(alone(lambda value: f"{typeset.si(value)}B"))
def batch_bytes(datasets, select, against):
    """Bytes of all buffers of a batch, by the experiment `scaling`; of several settings the most."""
    return largest(datasets, select, lambda run: sizes(run).eval("bytes = bytes_per_env * num_envs"), "bytes")


def largest(datasets, select, summary, name: str) -> Iterator[tuple]:
    for dataset in of(datasets, select):
        values = matching(summary(dataset), select)[name].dropna()
        if len(values):
            yield dataset, float(values.max()), NAN, NAN
