"""Claims of the families' source documents, and what the questions behind them give."""

import pandas as pd

from lockstep import paper
from lockstep.paper import families, quantities
from lockstep.paper.tables import NO_FIGURE, STATUS, not_measured, table
from lockstep.paper.typeset import DASH, Column, text

CLAIMING = [name for name in families.names() if "claims" in families.claims(name)]


def answers_of(datasets: list, family: str) -> list[list[dict]]:
    """The rows of each claim of a family: those of all its answers, in their order."""
    found = []
    for claim in families.claims(family)["claims"]:
        rows = []
        for answer in claim["answers"]:
            words = {"claim": claim["claim"], "measured": claim["measured"], "label": answer["label"]}
            findings = [finding._asdict() for finding in quantities.find(datasets, item(claim, answer))]
            rows += [words | finding for finding in findings or [not_measured() | NO_FIGURE]]
        found.append(rows)
    return found


def item(claim: dict, answer: dict) -> dict:
    """An answer's question, with what its claim says for all of them."""
    return claim | answer | {"select": claim.get("select", {}) | answer.get("select", {})}


@table(
    "The claims of the source documents one by one, with what each rests on and the first answer that a machine has "
    "given. The supplement has every answer with its interval.",
    text("source document of", "family", section=True),
    text("claim", "claim", kind="long"),
    text("what it rests on", "measured", kind="long prose"),
    text("question", "label", kind="long"),
    text("this work", "shown", kind="number"),
    Column("machine", lambda row: row["machine"] or DASH),
)
def claims(datasets):
    rows = [
        next((row for row in rows if row["status"] != paper.NOT_MEASURED), rows[0])
        | {"family": families.about(family)["title"]}
        for family in CLAIMING
        for rows in answers_of(datasets, family)
    ]
    return pd.DataFrame(rows).drop(columns="environment", errors="ignore")


def claims_of(family: str) -> None:
    """Make a table of the claims in a family's claims.yaml, <family>_claims."""
    about = families.claims(family)
    says, rests = about["headings"]

    def claims(datasets):
        rows = [row for rows in answers_of(datasets, family) for row in rows]
        # Selectors name the environment, or mean all of them.
        return pd.DataFrame(rows).drop(columns="environment", errors="ignore")

    claims.__name__ = f"{family}_claims"
    table(
        about["caption"],
        text(says, "claim", kind="long", section=True),
        text(rests, "measured", kind="long", section=True),
        text("question", "label", kind="long", merge=True),
        text("this work", "shown", kind="number"),
        text("95 % interval", "interval", kind="number"),
        STATUS,
        folded=True,
    )(claims)


for family in CLAIMING:
    claims_of(family)
