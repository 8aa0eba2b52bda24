"""Quantities of the number of environments, and of their memory."""

import math

from lockstep.paper import typeset
from lockstep.paper.common.quantities.scaling import best, sizes
from lockstep.paper.quantities import NAN, alone, matching, of, quantity, rates, unanswered


def environments(value: float) -> str:
    return "more than measured" if math.isinf(value) else typeset.count(value)


@quantity(alone(environments))
def break_even(datasets, select, against):
    """Fewest environments, of those measured, from which on rows are faster than the fastest that fits `against`.

    Of several rows of a batch size the fastest counts; infinite where the largest batch is no faster.
    """
    for dataset in of(datasets, select):
        scaling, other = select.get("experiment") == "scaling", {**select, **against}
        if not scaling and (unanswered(dataset, select) or unanswered(dataset, other)):
            continue
        frame = (sizes(dataset) if scaling else rates(dataset)).dropna(subset=["rate"])
        rows, others = matching(frame, select), matching(frame, other)
        if len(rows) and len(others):
            faster = rows.groupby("num_envs")["rate"].max() > others["rate"].max()
            last_slow = faster.index[~faster].max() if not faster.all() else 0
            yield dataset, float(min(faster.index[faster.index > last_slow], default=math.inf)), NAN, NAN


@quantity(alone(lambda value: f"{typeset.count(value)} bytes"))
def environment_bytes(datasets, select, against):
    """Bytes that one more environment takes; of several settings the fewest."""
    return ((dataset, value, NAN, NAN) for dataset, value in best(datasets, select, "bytes_per_env", "min"))
