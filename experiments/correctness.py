"""A port compared with its original: single transitions, whole episodes, distributions of episodes.

What a family compares otherwise than the walk over declared fields (walk.py) are the `walks` of correctness.py in its
folder here.
"""

import functools
import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import pandas as pd

from lockstep import envs
from lockstep.envs.kernels import compile
from lockstep.experiments import UserError, config, originals
from lockstep.experiments.config import Settings
from lockstep.experiments.experiment import Experiment, Plan, Request, word
from lockstep.experiments.verdicts import COLUMNS
from lockstep.experiments.walk import Walk

COUNTS = ("states", "episodes", "played")  # keys of settings with numbers of what is compared, or with mappings of them
QUICK = 10  # times fewer at quick scale


class Comparison(NamedTuple):
    rows: Callable[[], Iterator[dict]]
    start: Callable[[], object] | None  # begins the original's part, which then goes on by itself


def plan(request: Request) -> Plan:
    name = request.environment
    try:
        envs.make_original(name).close()
    except ImportError as error:
        raise UserError(str(error)) from error
    originals.allot(request.options.cores)
    settings, quick = request.settings.plain(), request.scale == "quick"
    if quick:
        settings["correctness"] = fewer(settings["correctness"])
    todo = comparisons(walks(name, Settings(settings)), request.devices)
    asked = {"asked": {"devices": request.devices}}
    return Plan(todo, functools.partial(compared, name, quick), config=settings | asked)


def fewer(content: object, counts: bool = False) -> object:
    """Settings with a QUICK-th of every number of states and episodes, rounded up. counts: whole numbers in it are."""
    if isinstance(content, dict):
        return {key: fewer(value, counts or key in COUNTS) for key, value in content.items()}
    if isinstance(content, list):
        return [fewer(value, counts) for value in content]
    return math.ceil(content / QUICK) if counts and type(content) is int else content


def walks(name: str, settings: Settings) -> list[Walk]:
    """The walks of an environment's family, or that over what its port declares."""
    family = config.file_of(name).parent
    if not (family / "correctness.py").is_file():
        return [Walk(name, settings)]
    return importlib.import_module(f"{__package__}.{family.name}.correctness").walks(name, settings)


def comparisons(walks: Sequence[Walk], devices: Sequence[str]) -> dict[str, Comparison]:
    """Every comparison that can be made here, by name."""
    found = {}
    for walk in walks:
        for start, compare, *arguments in walk.comparisons(devices):
            words = [compare.__name__.replace("_", " "), *(word("", one) for one in arguments), walk.label]
            found[" ".join(filter(None, words))] = Comparison(functools.partial(compare, walk, *arguments), start)
    return found


@contextmanager
def compared(name: str, quick: bool, left: Sequence[Comparison]) -> Iterator[Callable[[Comparison], list[dict]]]:
    """Has the originals of all that is left begin, and lets go of their processes at the end.

    quick: the port's libraries are compiled in less time.
    """
    for one in left:
        if one.start:
            one.start()
    with compile.sooner() if quick else nullcontext():
        yield lambda one: [{"environment": name} | row for row in one.rows()]
    originals.dismiss()


def failed(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that did not pass; of what is not judged the verdict is empty."""
    return frame[frame["passed"].map(str) == "False"]


def report(frame: pd.DataFrame, *_) -> str:
    """The comparisons that failed, or one line that says that none did."""
    rows = failed(frame)[["level", "pair", "device", "dtype", "quantity"]].itertuples(index=False)
    lines = [" ".join(["FAILED", *map(str, row)]) for row in rows]
    judged = int(frame["passed"].map(str).isin(["True", "False"]).sum())
    told = f"; {len(frame) - judged} rows report a value without judging it" if judged < len(frame) else ""
    return "\n".join(lines or [f"all {judged} comparisons passed{told}"])


EXPERIMENT = Experiment(
    COLUMNS,
    plan,
    report,
    verdict=lambda frame: failed(frame).empty,
    failure="the port differs from its original (above)",
    timed=False,
    originals=True,
)
