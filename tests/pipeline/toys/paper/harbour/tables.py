"""Of the harbour."""

import pandas as pd

from lockstep.paper.quantities import of, rates
from lockstep.paper.tables import label, table
from lockstep.paper.typeset import Column, number, si


@table("Crossings.", Column("rung", label), number("steps/s", "rate", si), empty="Nobody has crossed yet.")
def crossings(datasets):
    found = [rates(run) for run in of(datasets, {"environment": "ferries"})]
    return pd.concat(found) if found else pd.DataFrame()
