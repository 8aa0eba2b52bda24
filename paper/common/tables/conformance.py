"""Other libraries' forms of an environment, verified as the port is."""

import pandas as pd

from lockstep.experiments.conformance import found
from lockstep.experiments.experiment import MEASURED
from lockstep.experiments.ledger import sources
from lockstep.experiments.verify.checks import DIFFERS, INJECTED, TOLD, UNSEEN
from lockstep.paper import families
from lockstep.paper.common.tables.peers import name
from lockstep.paper.tables import RUN, of_asked, table
from lockstep.paper.typeset import DASH, Column, count, missing, number, significant, text

KEY = ["library", "version", "status"]


def checks(frame: pd.DataFrame) -> pd.DataFrame:
    """The checks of a run that judge, or would have if something could be seen; `name` tells which each is."""
    every = found(frame)
    every = every[every["verdict"] != TOLD]
    put = every["property"] + ", " + INJECTED
    return every.assign(name=every["property"].where(every["seen"] != INJECTED, put))


def alike(row) -> str:
    return DASH if missing(row["judged"]) else f"{count(row['alike'])} of {count(row['judged'])}"


def said(check: str, lines: pd.DataFrame) -> str:
    """A check that found a difference, with its largest error or least p-value, and what was seen."""
    words = []
    if lines["error"].notna().any():
        worst = lines.loc[lines["error"].idxmax()]
        words = [f"error {significant(worst['error'], 2)} of {worst['field']}, beyond in {count(worst['differing'])}"]
    elif lines["p_value"].notna().any():
        least = lines.loc[lines["p_value"].idxmin()]
        words = [f"p {significant(least['p_value'], 2)} of {least['field']}"]
    words += lines["words"].dropna().iloc[:1].tolist()
    return check + (f" ({'; '.join(words)})" if words else "")


@table(
    "Libraries' batched forms of Gymnasium's environments, each beside Gymnasium's own, one environment at a time: "
    "checks that found no difference, what the others found, and what the library's code, read once, says of it. The "
    "port stands among them.",
    *RUN,
    Column("library", name),
    number("transitions compared", "cases", count),
    Column("checks alike", alike, "number"),
    text("differs in, or why it was not compared", "remark", kind="long"),
    text("what its own code says", "looked_up", kind="long"),
    text("cannot be seen", "unseen", kind="long"),
    folded=True,
)
def conformance(datasets):
    def by_library(run) -> list[dict]:
        rows, every, environment = [], checks(run.frame), run.provenance["environment"]
        for (library, version, status), part in run.frame.groupby(KEY, sort=False, dropna=False):
            same = {"peer": library, "version": version}
            if status != MEASURED:
                rows.append(same | {"remark": part["reason"].iloc[0]})
                continue
            own = every[every["library"] == library]
            judged, differs = own[own["verdict"] != UNSEEN], own[own["verdict"] == DIFFERS]
            lines = part[part["verdict"] == DIFFERS].groupby(["property", "seen"], sort=False)
            told = [said(check, group) for check, (_, group) in zip(differs["name"], lines, strict=True)]
            same |= {"cases": own.loc[own["name"] == "transitions", "cases"].max(), "judged": len(judged)}
            same |= {"alike": len(judged) - len(differs), "remark": "; ".join(told) or None}
            said_there = families.looked_up(environment, library, set(differs["property"]))
            same |= {"looked_up": "; ".join(said_there) or None}
            rows.append(same | {"unseen": ", ".join(own.loc[own["verdict"] == UNSEEN, "name"]) or None})
        return rows

    return of_asked(datasets, "conformance", by_library, sources.in_gymnasium)
