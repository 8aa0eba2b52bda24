"""Targets and what each machine reached of them: all of them, and the main claims that they make."""

import functools
import re
from collections.abc import Mapping

import pandas as pd

from lockstep import paper
from lockstep.experiments import config
from lockstep.experiments.bench import statistics
from lockstep.experiments.ledger import results as ledger
from lockstep.paper import families, quantities
from lockstep.paper.common import learning
from lockstep.paper.tables import NO_FIGURE, STATUS, not_measured, source, table
from lockstep.paper.typeset import GREATER, LESS, SPACE, Column, grouped, missing, text, times, yes_no

NAN = float("nan")
FULL = "full"  # the scale that a bound is of where it says nothing else
TRAINED = (  # keys of a section `learning`, what they are targets of, and the quantity that is held against them
    ("aim", "Return of the greedy policy after training with {}, in the original", "final_return"),
    ("above_random", "Return of the greedy policy after training with {}, above a random policy", "return_over_random"),
)
SEEDS = "Seeds of {} whose greedy policy returns {:g} or more in the original"
OVER_PEER = "their share less that of {}"
NINE_IN_TEN = 0.9
# Claims that count targets, each of one environment, rather than name the worst of them.
FLOORS = "Throughput targets that are met, over all environments"
RETURNS = "Targets for the return after training that are met, over all environments"


@table(
    "The main claims: on record, measured here, and the range that was fixed beforehand. Of several environments the "
    "worst counts; where nothing was measured here, the verdict is that on the record.",
    text("claim", "claim", kind="long"),
    text("recorded", "recorded", kind="number"),
    text("recorded on", "recorded_on"),
    text("here", "here", kind="number"),
    text("accepted", "accepted", kind="long"),
    Column("verdict", lambda row: verdict(row), "status"),
)
def results(datasets):
    measured = [row for row in judged(datasets) if row["status"] != paper.NOT_MEASURED]
    sides = {"recorded": on_record(measured), "here": [row for row in measured if row["machine"] == "here"]}
    rows = []
    for claim in dict.fromkeys(claim for row in measured for claim in row["claims"]):
        of = {side: [row for row in found if claim in row["claims"]] for side, found in sides.items()}
        found = {side: together(claim, judgements) for side, judgements in of.items()}
        about = {"claim": claim, "recorded_on": ", ".join({row["machine"]: None for row in of["recorded"]}) or None}
        about["accepted"] = "; ".join(dict.fromkeys(one["accepted"] for one in found.values() if one))
        for side, one in found.items():
            about |= {side: one.get("shown"), f"{side}_value": one.get("value"), f"{side}_met": one.get("met")}
        rows.append(about)
    return pd.DataFrame(rows, columns=None if rows else ["claim"])


def on_record(rows: list[dict]) -> list[dict]:
    """One row for each target that a recorded machine can tell of: the first at full scale, or else the first."""
    kept: dict[tuple, dict] = {}
    recorded = (row for row in rows if row["machine"] != "here")
    for row in sorted(recorded, key=lambda row: row["scale"] != FULL):
        kept.setdefault((row["environment"], row["target"]), row)
    return list(kept.values())


def together(claim: str, rows: list[dict]) -> dict:
    """The rows of a claim as one figure: the worst, or how many there are of those that count."""
    if not rows:
        return {}
    met = all(row["met"] for row in rows)
    if claim in (FLOORS, RETURNS):
        value = sum(row["met"] for row in rows)
        return {"shown": quantities.out_of(value, NAN, len(rows))[0], "value": value, "met": met, "accepted": "all"}
    if rows[0]["bound"] == "all":
        value, high = (sum(row[name] for row in rows) for name in ("value", "high"))
        return rows[0] | {"shown": quantities.out_of(value, NAN, high)[0], "value": value, "met": met}
    worst = min if rows[0]["bound"] == "at_least" else max
    found = worst(rows, key=lambda row: row["value"])
    scaled = found["scaled"] and f"{found['accepted']} at {found['scale']} scale"
    return found | {"met": met, "accepted": scaled or found["accepted"]}


def verdict(row) -> str:
    """The verdict on this machine, or else on the one on record."""
    if not missing(row["here_met"]):
        return "met" if row["here_met"] else "not met"
    return "met on record" if row["recorded_met"] else "not met on record"


@table(
    "Every target, as it was set before the measurements, and what each machine reached.",
    text("environment", "environment", section=True),
    text("target", "target", kind="long", merge=True),
    text("accepted", "accepted", kind="number", merge=True),
    text("reached", "shown", kind="number"),
    text("95 % interval", "interval", kind="number"),
    Column("met", lambda row: yes_no(row["met"]), "status"),
    STATUS,
    folded=True,
)
def targets(datasets):
    order = {name: place for place, name in enumerate(paper.environments())}
    rows = sorted(judged(datasets), key=lambda row: order.get(row["environment"], len(order)))
    return pd.DataFrame(rows).drop(columns=["claims", "bound", "scaled"])


def judged(datasets: list) -> list[dict]:
    """The targets in the order of the main claims, each on every machine that can tell; "not measured" if none can.

    claims: the main claims that a row belongs to. bound: the kind of what is accepted.
    """
    items, general = families.targets(), len(families.aims()["targets"])
    throughput = [row for name in paper.environments() for row in throughput_targets(datasets, name)]
    return [
        *(row for item in items[:general] for row in answers(datasets, item)),
        *sorted(throughput, key=lambda row: not row["claims"][1:]),
        *(row for item in [*items[general:], *learning_targets()] for row in answers(datasets, item)),
    ]


def answers(datasets: list, item: Mapping) -> list[dict]:
    """The rows of a target of aims.yaml, or of a family's claims.yaml."""
    bound = next(name for name in ("at_least", "at_most", "all") if name in item)
    environment = item["select"].get("environment", "every environment")
    about = {"environment": environment, "target": item["target"], "bound": bound}
    about |= {"claims": (item["claim"],) if "claim" in item else (), "scaled": isinstance(item[bound], Mapping)}
    about["on_gpu"] = on_gpu(item["select"])
    rows = []
    for finding in quantities.find(datasets, item):
        if finding.environment not in item.get("except", ()):
            about |= {"accepted": accepted(item, bound, finding.scale), "met": accepts(item, bound, finding)}
            rows.append(about | finding._asdict())
    missed = {"accepted": accepted(item, bound, None), "met": None}
    return rows or [about | missed | not_measured() | NO_FIGURE]


def limit(item: Mapping, bound: str, scale: str | None) -> float:
    """The number of a bound, which may be another one at another scale."""
    given = item[bound]
    return float(given.get(scale, given[FULL]) if isinstance(given, Mapping) else given)


def accepts(item: Mapping, bound: str, finding: quantities.Finding) -> bool:
    """True where a finding is in the range of a target."""
    if bound == "all":
        return bool(finding.value == finding.high)
    known = limit(item, bound, finding.scale)
    return bool(finding.value >= known if bound == "at_least" else finding.value <= known)


def accepted(item: Mapping, bound: str, scale: str | None) -> str:
    """The range of a target in words."""
    if bound == "all":
        return "all"
    write = quantities.every()[item["quantity"]][1]
    return f"{GREATER if bound == 'at_least' else LESS}{SPACE}{short(write(limit(item, bound, scale), NAN, NAN)[0])}"


def on_gpu(select: Mapping) -> bool:
    """True where a selector names rows of a GPU."""
    return any("cuda" in str(value) for value in select.values())


def learning_targets() -> list[dict]:
    """The targets of training, as items like those of aims.yaml."""
    items = []
    for name in paper.environments():
        asked = learning.wanted(name)
        for algorithm in learning.algorithms(name, "curves"):
            select = {"experiment": "learning", "environment": name, "agent": learning.OURS, "algorithm": algorithm}
            said, same = learning.algorithm(algorithm), {"claim": RETURNS, "select": select}
            for key, target, quantity in TRAINED:
                if key in asked:
                    about = {"target": target.format(said), "quantity": quantity, "at_least": asked[key]}
                    items.append(same | about)
            if "aim" not in asked:
                continue
            of_seeds = SEEDS.format(said, asked["aim"]).replace("-", "\N{MINUS SIGN}")
            items.append(same | {"target": of_seeds, "quantity": "seeds_at_aim", "at_least": NINE_IN_TEN})
            for peer in learning.beside(name, algorithm):
                about = {"target": f"{of_seeds}: {OVER_PEER.format(learning.agent(peer))}", "at_least": 0}
                items.append(same | about | {"quantity": "seeds_at_aim_over_peer", "select": select | {"agent": peer}})
    return items


@functools.cache
def declared(environment: str) -> list[dict]:
    return config.parse(config.file_of(environment))["throughput"].get("targets", [])


def throughput_targets(datasets: list, environment: str) -> list[dict]:
    """The targets of an environment's YAML; the first is a main claim if the environment stands for a family."""
    rows, headlines = [], [about["environment"] for about in families.headlines().values()]
    for place, target in enumerate(declared(environment)):
        unit = {"second": "steps/s", "CPU-second": "steps/CPU-s"}[target["per"]]
        write = quantities.with_interval(times) if "denominator" in target else quantities.rate_words(unit)
        name = grouped(target["name"])
        about = {"environment": environment, "target": name, "bound": "at_least", "scaled": False}
        about["accepted"] = f"{GREATER}{SPACE}{short(write(target['floor'], NAN, NAN)[0])}"
        first = (
            (f"{families.about(families.of(environment))['title']}: {name}",)
            if environment in headlines and place == 0
            else ()
        )
        about |= {"claims": (FLOORS, *first), "on_gpu": on_gpu(target["numerator"])}
        found = []
        for run in quantities.of(datasets, {"environment": environment}):
            reached = statistics.targets(run.frame, [target], ledger.missing_groups(run.provenance)).iloc[0]
            if reached["status"] != paper.NOT_MEASURED:
                figure = {name: float(reached[name]) for name in ("value", "low", "high")}
                words = dict(zip(("shown", "interval"), write(*figure.values()), strict=True))
                met = {"met": reached["status"] == "reached", "scale": run.provenance["scale"]}
                found.append(about | source(run) | figure | words | met)
        rows += found or [about | not_measured() | NO_FIGURE | {"met": None}]
    return rows


def short(written: str) -> str:
    """A number that was written down as such, without the zeros that measured ones carry and a sign of nothing."""
    return re.sub(r"^\+0(?! *[\d.])", "0", re.sub(r"\.0+\b", "", written))
