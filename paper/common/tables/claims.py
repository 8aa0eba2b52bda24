"""Aims and what was reached; claims of others, and what the questions behind them give."""

import functools
import itertools
import re

import pandas as pd

from lockstep import paper
from lockstep.experiments import config
from lockstep.experiments.bench import statistics
from lockstep.experiments.ledger import results
from lockstep.paper import families, quantities
from lockstep.paper.common import learning
from lockstep.paper.tables import NO_FIGURE, STATUS, not_measured, source, table
from lockstep.paper.typeset import GREATER, LESS, Column, text, times, yes_no

NAN = float("nan")
RETURNS = (  # keys of a section `learning`, what they aim at, and the quantity that is held against them
    ("aim", "Return of the greedy policy after training with {}, in the original", "final_return"),
    ("above_random", "Return of the greedy policy after training with {}, above a random policy", "return_over_random"),
)


@table(
    "What was aimed at, and what each machine reached.",
    text("environment", "environment", section=True),
    text("target", "target", kind="long", merge=True),
    text("aim", "aim", kind="number", merge=True),
    text("reached", "shown", kind="number"),
    text("95 % interval", "interval", kind="number"),
    Column("met", lambda row: yes_no(row["met"]), "status"),
    STATUS,
    folded=True,
)
def targets(datasets):
    rows = [row for name in paper.environments() for row in throughput_targets(datasets, name)]
    for item in [*families.targets(), *learning_targets()]:
        least = "at_least" in item
        bound = item["at_least"] if least else item["at_most"]
        write = quantities.every()[item["quantity"]][1]
        aim = f"{GREATER if least else LESS} {short(write(float(bound), NAN, NAN)[0])}"
        environment = item["select"].get("environment", "every environment")
        about = {"environment": environment, "target": item["target"], "aim": aim}
        excluded = item.get("except", ())
        found = [finding for finding in quantities.find(datasets, item) if finding.environment not in excluded]
        for finding in found:
            met = finding.value >= bound if least else finding.value <= bound
            rows.append(about | finding._asdict() | {"met": bool(met)})
        rows += [] if found else [about | not_measured() | NO_FIGURE | {"met": None}]
    order = {name: place for place, name in enumerate(paper.environments())}
    return pd.DataFrame(sorted(rows, key=lambda row: order.get(row["environment"], len(order))))


def learning_targets() -> list[dict]:
    """The aims of training, as items like those of aims.yaml."""
    items = []
    for name in paper.environments():
        asked = learning.wanted(name)
        for algorithm, (key, target, quantity) in itertools.product(learning.algorithms(name, "curves"), RETURNS):
            if key in asked:
                select = {"experiment": "learning", "environment": name, "agent": learning.OURS, "algorithm": algorithm}
                words = target.format(learning.algorithm(algorithm))
                items.append({"target": words, "select": select, "quantity": quantity, "at_least": asked[key]})
    return items


@functools.cache
def declared(environment: str) -> list[dict]:
    return config.parse(config.file_of(environment))["throughput"].get("targets", [])


def throughput_targets(datasets: list, environment: str) -> list[dict]:
    """The targets of an environment's YAML on every machine that can tell; "not measured" if none can."""
    rows = []
    for target in declared(environment):
        unit = {"second": "steps/s", "CPU-second": "steps/CPU-s"}[target["per"]]
        write = quantities.with_interval(times) if "denominator" in target else quantities.rate_words(unit)
        aim = f"{GREATER} {short(write(target['floor'], NAN, NAN)[0])}"
        about = {"environment": environment, "target": target["name"], "aim": aim}
        found = []
        for run in quantities.of(datasets, {"environment": environment}):
            reached = statistics.targets(run.frame, [target], results.missing_groups(run.provenance)).iloc[0]
            if reached["status"] != paper.NOT_MEASURED:
                figure = {name: float(reached[name]) for name in ("value", "low", "high")}
                words = dict(zip(("shown", "interval"), write(*figure.values()), strict=True))
                found.append(about | source(run) | figure | words | {"met": reached["status"] == "reached"})
        rows += found or [about | not_measured() | NO_FIGURE | {"met": None}]
    return rows


def short(written: str) -> str:
    """A number that was written down as such, without the zeros that measured ones carry."""
    return re.sub(r"\.0+\b", "", written)


def item(claim: dict, answer: dict) -> dict:
    """An answer's question, with what its claim says for all of them."""
    return claim | answer | {"select": claim.get("select", {}) | answer.get("select", {})}


def claims_of(family: str) -> None:
    """Make a table of the claims in a family's claims.yaml, <family>_claims."""
    about = families.claims(family)
    says, rests = about["headings"]

    def claims(datasets):
        rows = []
        for claim in about["claims"]:
            for answer in claim["answers"]:
                words = {"claim": claim["claim"], "measured": claim["measured"], "label": answer["label"]}
                found = [finding._asdict() for finding in quantities.find(datasets, item(claim, answer))]
                rows += [words | finding for finding in found or [not_measured() | NO_FIGURE]]
        # Selectors name the environment, or mean all of them.
        return pd.DataFrame(rows).drop(columns="environment", errors="ignore")

    claims.__name__ = f"{family}_claims"
    table(
        about["caption"],
        text(says, "claim", kind="long", section=True),
        text(rests, "measured", kind="long", section=True),
        text("asked properly", "label", kind="long", merge=True),
        text("our figure", "shown", kind="number"),
        text("95 % interval", "interval", kind="number"),
        STATUS,
    )(claims)


for family in families.names():
    if "claims" in families.claims(family):
        claims_of(family)
