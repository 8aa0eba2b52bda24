"""The claims of the note, and what the questions behind them give."""

import pandas as pd

from lockstep.paper import quantities
from lockstep.paper.tables import NO_FIGURE, STATUS, declared, not_measured, table
from lockstep.paper.typeset import text

ANSWERED = (
    text("asked properly", "label", kind="long", merge=True),
    text("our figure", "shown", kind="number"),
    text("95 % interval", "interval", kind="number"),
    STATUS,
)


@table(
    "Each claim of the note, what its benchmark measured, and what the question behind it gives when it "
    "is asked of the results at hand.",
    text("the note says", "claim", kind="long", section=True),
    text("what its benchmark measured", "measured", kind="long", section=True),
    *ANSWERED,
)
def claims(datasets):
    return answered(datasets, "claims")


@table(
    "Each expectation of the plan of a GPU port of vehicular edge computing, what it rests on, and what the question "
    "behind it gives when it is asked of the results at hand.",
    text("the plan says", "claim", kind="long", section=True),
    text("what it rests on", "measured", kind="long", section=True),
    *ANSWERED,
)
def edge_claims(datasets):
    return answered(datasets, "edge_claims")


def answered(datasets: list, part: str) -> pd.DataFrame:
    """The claims of one part of claims.yaml with all answers to the questions behind them."""
    rows = []
    for claim in declared()[part]:
        for answer in claim["answers"]:
            about = {"claim": claim["claim"], "measured": claim["measured"], "label": answer["label"]}
            found = [finding._asdict() for finding in quantities.find(datasets, answer)]
            rows += [about | finding for finding in found or [not_measured() | NO_FIGURE]]
    # Selectors name the environment, or mean all of them.
    return pd.DataFrame(rows).drop(columns="environment", errors="ignore")
