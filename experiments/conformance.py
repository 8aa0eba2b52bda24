"""Batched forms of an environment, other libraries' and the port, each verified beside Gymnasium's.

They stand the checks of `lockstep.experiments.verify`. A library that has no such environment, or is not installed, has
a row that says why.
"""

from dataclasses import asdict, dataclass

import pandas as pd

from lockstep import envs
from lockstep.experiments import ROOT, UserError
from lockstep.experiments.experiment import MEASURED, MISSING, Experiment, Plan, Request, by_label, each
from lockstep.experiments.experiment import Group as Base
from lockstep.experiments.ledger import provenance
from lockstep.experiments.verify import comparison, lives, shown, subjects
from lockstep.experiments.verify.checks import DIFFERS, TOLD, UNSEEN
from lockstep.experiments.verify.comparison import Asked
from lockstep.experiments.verify.originals import Original

OURS = "lockstep"
COLUMNS = [
    *(
        "environment",
        "library",
        "version",
        "status",
        "reason",
        "property",
        "seen",
        "cases",
        "field",
        "error",
        "p_value",
    ),
    *("allowed", "differing", "verdict", "words", "example"),
]
TRANSITIONS = {"quick": 10_000, "full": 1_000_000}


@dataclass(frozen=True)
class Group(Base):
    """One library."""

    library: str


def plan(request: Request) -> Plan:
    environment, identity = request.environment, envs.port(request.environment).gymnasium_id
    if identity is None:
        words = "its original is not Gymnasium's, so no library has another form of it"
        raise UserError(f"conformance {environment}: {words}")
    seen = shown.declared(identity)
    asked = Asked(seed=request.settings.seed, transitions=TRANSITIONS[request.scale], policy=seen.named_policy)

    def measure(group: Group) -> list[dict]:
        same = dict.fromkeys(COLUMNS) | {"environment": environment} | asdict(group)
        name = f"{group.library}:{environment if group.library == OURS else identity}"
        try:
            rows, record = comparison.compare(name, Original(identity), seen, asked)
        except UserError as reason:
            return [same | {"status": MISSING, "reason": str(reason)}]
        same |= {"status": MEASURED, "version": record.versions.get(subjects.KINDS[group.library].installed[0])}
        return [same | line for row in rows for line in row.lines()]

    declared = provenance.hashes(file.relative_to(ROOT).as_posix() for file in shown.files())
    return Plan(
        by_label([Group(library) for library in subjects.KINDS]),
        each(measure),
        config=asdict(asked) | {"original": identity},
        conditions={"declared": declared, "libraries": lives.libraries()},
    )


def found(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for each check of each library: of its numbers that of the first field."""
    return frame[frame["status"] == MEASURED].drop_duplicates(["environment", "library", "property", "seen"])


def differing(frame: pd.DataFrame) -> pd.DataFrame:
    return found(frame).query("verdict == @DIFFERS")


def holds(frame: pd.DataFrame) -> bool:
    """Tells that the port was compared and no check found a difference."""
    return OURS in set(found(frame)["library"]) - set(differing(frame)["library"])


def report(frame: pd.DataFrame, *_) -> str:
    """A line for each library: how many checks found it the same, and in what it differs."""
    lines = []
    for (library, status), rows in frame.groupby(["library", "status"], sort=False):
        if status != MEASURED:
            lines.append(f"  {library:10} {status}: {rows['reason'].iloc[0]}")
            continue
        checks = found(rows)
        judged = checks[~checks["verdict"].isin([TOLD, UNSEEN])]
        names = ", ".join(dict.fromkeys(judged.loc[judged["verdict"] == DIFFERS, "property"]))
        lines.append(f"  {library:10} {len(judged)} checks, {'differs: ' + names if names else 'the same'}")
    return "\n".join(lines)


EXPERIMENT = Experiment(
    COLUMNS,
    plan,
    report,
    verdict=holds,
    failure="the port differs from its original, or was not compared (above)",
    needs="peers",
    timed=False,
    quick=False,
    gpu=False,
)
