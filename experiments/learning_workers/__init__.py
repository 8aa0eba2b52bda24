"""The agents that learning.py measures, a module each: Lockstep's and those of other libraries.

A module has

    TITLE                its name in rows
    PACKAGE              whose version is noted
    ALGORITHMS           names of those that it is measured with, in the module of another library
    measure(job)         rows, as dicts of the columns that it fills

imports its library in functions alone, and is run as a process by `ask`, so that each library has a process of its
own. With requirements beside it (<module>.txt) it runs in a Python of its own, .venv-peers/<module>/, which
`make peers` sets up; so nothing that all of them share imports more than NumPy.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lockstep.experiments import peer_workers
from lockstep.experiments.peer_workers import last_error

FOLDER = Path(__file__).parent
TIMEOUT_S = 900  # for one job, compilation included
CHECKS = 2  # in succession, that must reach what counts as solved


@dataclass(frozen=True)
class Job:
    """The task of a process, in a form that JSON can hold."""

    part: str  # rate | solve | final
    algorithm: str
    environment: str  # our name
    gymnasium_id: str
    settings: dict  # every field of the algorithm's Config
    seeds: tuple[int, ...] = (0,)
    blocks: int = 0  # of a rate
    solved: float = 0.0  # mean greedy return that stops a run
    device: str = "cpu"
    threads: int = 1
    started: float = field(default=0.0)  # time.monotonic() when the process was asked for


class NotMeasured(Exception):
    """The reason why there is nothing to find."""


def ask(name: str, job: Job, **environment: str) -> list[dict]:
    """The rows that a module's process finds.

    Raises:
        NotMeasured: it is not installed, takes longer than TIMEOUT_S, or ends with an error, whose last line is told.
    """
    python = python_of(name)
    if python is None:
        raise NotMeasured(why_missing(name))
    threads = {variable: str(job.threads) for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    settings = peer_workers.variables(name, job.device, FOLDER) | threads | environment
    text = json.dumps(asdict(job) | {"started": time.monotonic()})
    # A folder of its own, because a library may leave files where it is started.
    with tempfile.TemporaryDirectory() as folder:
        try:
            finished = subprocess.run(
                [str(python), "-m", f"{__name__}.{name}"],
                **{"input": text, "cwd": folder, "env": os.environ | settings, "timeout": TIMEOUT_S},
                capture_output=True,
                text=True,
            )
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"no answer within {TIMEOUT_S} s") from None
    if finished.returncode:
        raise NotMeasured(f"its process ended with status {finished.returncode}: {last_error(finished.stderr)}")
    return json.loads(finished.stdout)


def serve(measure: Callable[[Job], list[dict]]) -> None:
    """The process of a module: a job on standard input, its rows on standard output."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not stand in the answer
    job = json.load(sys.stdin)
    print(json.dumps(measure(Job(**job | {"seeds": tuple(job["seeds"])}))), file=answers)


python_of = functools.partial(peer_workers.python_of, folder=FOLDER)
why_missing = functools.partial(peer_workers.why_missing, folder=FOLDER)


def version(name: str, package: str) -> str | None:
    """The version of a module's package, in its own Python or in ours; None where it is not installed."""
    return next((found.version for found in peer_workers.distributions(name, FOLDER, name=package)), None)


class Streak:
    """Says when CHECKS checks in succession have reached a score."""

    def __init__(self, solved: float):
        self.solved, self.reached = solved, 0

    def ends_with(self, score: float) -> bool:
        self.reached = self.reached + 1 if score >= self.solved else 0
        return self.reached >= CHECKS


def require(job: Job, library: str, **settings) -> None:
    """Raises ValueError where a setting is not the one that a library has alone, naming it."""
    for name, value in settings.items():
        if job.settings[name] != value:
            raise ValueError(f"{job.algorithm.upper()} of {library} needs {name}={value}")


def learning_rate(settings: dict, iteration: int) -> float:
    """Of an iteration, counted from 0: linearly to 0 where it is annealed, as in agents/ppo/."""
    iterations = float(settings["total_steps"] // (settings["num_envs"] * settings["horizon"]))  # too many for int32
    return settings["lr"] * (1 - iteration / iterations if settings["anneal_lr"] else 1)


def cold_and_warm(solve: Callable[[int], dict], seeds: Sequence[int]) -> list[dict]:
    """Rows of a process that solves once, which is cold, and then every seed, warm.

    solve: from a seed to a row with wall_s, of its own, and since_start_s, from the process's start.
    """
    first = solve(max(seeds) + 1)
    cold = first | {"variant": "cold", "wall_s": first["since_start_s"]}
    warm = [solve(seed) | {"variant": "warm"} for seed in seeds]
    return [{name: value for name, value in row.items() if name != "since_start_s"} for row in [cold, *warm]]
