"""Quantities of the operations of a step."""

from lockstep.paper import typeset
from lockstep.paper.quantities import NAN, alone, extreme, matching, of, quantity, with_interval
from lockstep.paper.vehicular_edge import summaries


@quantity(with_interval(typeset.short_time))
def operation_time(datasets, select, against):
    """Seconds that an operation takes of a step of one environment; of several settings the shortest."""
    return extreme(datasets, select, summaries.operations, "seconds", "min")


@quantity(with_interval(typeset.times))
def operation_ratio(datasets, select, against):
    """Times faster than in the original that an operation is; of several settings the fastest."""
    return extreme(datasets, select, summaries.operations, "ratio")


@quantity(alone(typeset.percent))
def operation_share(datasets, select, against):
    """Share of an operation in the whole step of the same form and setting; of several the largest."""
    for dataset in of(datasets, select):
        shares = matching(summaries.operations(dataset), select)["share"].dropna().astype(float)
        if len(shares):
            yield dataset, float(shares.max()), NAN, NAN
