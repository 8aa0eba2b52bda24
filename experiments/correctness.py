"""A port compared with its original: single transitions, whole episodes, distributions of episodes.

A family's own comparisons are the `plan` of correctness.py in its folder here; without it those of fields.py are made,
which know nothing but what a port declares.
"""

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pandas as pd

from lockstep import envs
from lockstep.experiments import UserError, config, fields, originals
from lockstep.experiments.experiment import Experiment, Plan, Request
from lockstep.experiments.verdicts import COLUMNS, Comparison


def plan(request: Request) -> Plan:
    name = request.environment
    try:
        envs.make_original(name).close()
    except ImportError as error:
        raise UserError(str(error)) from error
    todo = comparisons_of(name)(name, request.settings, request.devices)
    return Plan(todo, functools.partial(compared, name), config=request.asked())


def comparisons_of(name: str) -> Callable[..., dict[str, Comparison]]:
    """The function that names every comparison of an environment: its family's own, else the general one."""
    family = config.file_of(name).parent
    own = (family / "correctness.py").is_file()
    return importlib.import_module(f"{__package__}.{family.name}.correctness").plan if own else fields.plan


@contextmanager
def compared(name: str, left: Sequence[Comparison]) -> Iterator[Callable[[Comparison], list[dict]]]:
    """Has the originals of all that is left begin, and lets go of their processes at the end."""
    for one in left:
        if one.start:
            one.start()
    yield lambda one: [{"environment": name} | row for row in one.rows()]
    originals.dismiss()


def failed(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that did not pass; of what is not judged the verdict is empty."""
    return frame[frame["passed"].map(str) == "False"]


def report(frame: pd.DataFrame, *_) -> str:
    """The comparisons that failed, or one line that says that none did."""
    rows = failed(frame)[["level", "pair", "device", "dtype", "quantity"]].itertuples(index=False)
    lines = [" ".join(["FAILED", *map(str, row)]) for row in rows]
    return "\n".join(lines or [f"all {len(frame)} comparisons passed"])


EXPERIMENT = Experiment(
    COLUMNS,
    plan,
    report,
    verdict=lambda frame: failed(frame).empty,
    failure="the port differs from its original (above)",
    originals=True,
)
