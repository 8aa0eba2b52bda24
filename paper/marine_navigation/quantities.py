"""Quantities of policies."""

from lockstep.paper import typeset
from lockstep.paper.marine_navigation import summaries
from lockstep.paper.quantities import matching, of, quantity, with_interval


@quantity(with_interval(typeset.percent))
def policy_success(datasets, select, against):
    """Share of episodes in which every robot reaches its goal and none hits anything; of several settings the least."""
    for dataset in of(datasets, select):
        rows = matching(summaries.played(dataset), select)
        if len(rows):
            row = rows.loc[rows["success"].idxmin()]
            yield dataset, row["success"], row["success_low"], row["success_high"]
