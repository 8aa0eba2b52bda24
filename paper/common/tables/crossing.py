"""Policies that were trained on other libraries' forms of an environment, scored in the original."""

from lockstep.experiments import crossing as experiment
from lockstep.paper.common import learning as sums
from lockstep.paper.common.tables.peers import name
from lockstep.paper.tables import RUN, of_asked, table
from lockstep.paper.typeset import GREATER, MINUS, Column, count, missing, number, text, with_interval, yes_no


@table(
    "Training by one recipe on each library's form of an environment: greedy return in the original, the mean over "
    "seeds with Student's 95 % interval, and its difference from training on Gymnasium's vector environment. Beside it "
    "the return in a batch of the library's own, whose episodes begin elsewhere, and whether the mean reaches what the "
    "task asks for.",
    *RUN,
    Column("trained on", name),
    number("seeds", "seeds", count),
    with_interval("in the original", "original"),
    with_interval("difference", "difference"),
    with_interval("in its own batch", "batch"),
    number("accepted", "accepted", lambda aim: f"{GREATER} {aim:g}".replace("-", MINUS)),
    Column("reached", lambda row: yes_no(row["reached"]), "status"),
    text("remark", "reason", kind="long"),
    folded=True,
    empty="No environment asks for it, and nothing was measured.",
)
def crossing(datasets):
    def by_library(run) -> list[dict]:
        wanted = sums.wanted(run.provenance["environment"])
        accepted, rows = wanted.get("solved", wanted.get("aim")), []
        for row in experiment.summary(run.frame).to_dict("records"):
            row |= {"peer": row["library"], "accepted": accepted, "reached": None}
            if accepted is not None and not missing(row.get("original")):
                row["reached"] = row["original"] >= accepted
            rows.append(row)
        return rows

    return of_asked(datasets, "crossing", by_library)
