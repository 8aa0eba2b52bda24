"""The peers, a module each, and Lockstep itself as one of them; experiments/peers.py starts and asks them.

The folder is the list. A module has

    TITLE                      its name in tables
    PACKAGES                   whose versions are noted, its own first
    differences(gymnasium_id)  how its task differs from Gymnasium's in short words, "" where it does not,
                               None where it has no such task
    groups(sizes)              what to measure of it: sizes says on how many threads at each size
    loop(task, group)          a context manager that yields a Loop
    DEVICES                    cpu, and cuda where it runs on a GPU too; a module without it runs on the CPU alone

and imports its library within functions alone. With requirements beside it (<module>.txt) it runs in a Python of its
own, .venv-peers/<module>/, which `make peers` sets up: the peers' requirements clash with ours and with each
other's. So nothing that all of them share imports more than NumPy.
"""

import importlib
import importlib.metadata
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

from lockstep.experiments import ROOT
from lockstep.experiments.bench import timing

FOLDER = Path(__file__).parent
ENVIRONMENTS = ROOT / ".venv-peers"
DRAWN_BATCHES = 32  # of actions, drawn before the clock starts and used again and again
JAX = {  # where it has to run, so that it never takes the other device instead
    "cpu": {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""},
    "cuda": {"JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
}
SEED_OF_ACTIONS = 1  # so that they are not drawn from the environment's stream


@dataclass(frozen=True)
class Task:
    """A task: our name and Gymnasium's."""

    environment: str
    gymnasium_id: str
    seed: int


@dataclass(frozen=True)
class Group:
    """One measurement of a peer."""

    mode: str  # step: one step per call | fused: many in one call
    num_envs: int
    threads: int  # that the peer may use
    fused_steps: int = 1
    device: str = "cpu"


@dataclass
class Loop:
    """A peer's loop, as the clock takes it."""

    run: Callable[[], int]  # one call; returns its live steps
    how: str  # what runs, for the table
    dtype: str  # of the state
    synchronize: Callable[[], None] = timing.nothing
    live_share: Callable[[], float] = lambda: 1.0  # of all steps called so far


class NotMeasured(Exception):
    """The reason why a group is left out."""


class NextStep:
    """Steps a vector environment whose call after an episode's end resets instead (Gymnasium's NEXT_STEP).

    step: takes actions, returns observation, reward, terminated [B], truncated [B], info.
    """

    def __init__(self, step: Callable, actions: Iterator, num_envs: int):
        self.step, self.actions, self.num_envs = step, actions, num_envs
        self.ended = 0  # environments that the next call resets
        self.steps = self.resets = 0

    def run(self) -> int:
        """One call; returns the live steps in it."""
        _, _, terminated, truncated, _ = self.step(next(self.actions))
        live = self.num_envs - self.ended
        self.steps += self.num_envs
        self.resets += self.ended
        self.ended = int(np.count_nonzero(terminated | truncated))
        return live

    def live_share(self) -> float:
        return 1 - self.resets / self.steps


def cycled(batches: Iterable) -> Iterator:
    """The batches over and over."""
    return itertools.cycle(list(batches))


def drawn_actions(space, num_envs: int, seed: int, dtype: str | None = None) -> Iterator:
    """Endless batches of random actions of a Gymnasium space: [B] of a Discrete one, [B, n] of a Box."""
    rng = np.random.default_rng([seed, SEED_OF_ACTIONS])
    if hasattr(space, "n"):
        return cycled(rng.integers(space.n, size=(DRAWN_BATCHES, num_envs)).astype(dtype or space.dtype))
    batches = rng.uniform(space.low, space.high, (DRAWN_BATCHES, num_envs, *space.shape))
    return cycled(batches.astype(dtype or space.dtype))


def names() -> list[str]:
    """The modules here; Lockstep's last."""
    found = sorted(path.stem for path in FOLDER.glob("[!_]*.py"))
    return sorted(found, key=lambda name: name == "lockstep")


def worker(name: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{name}")


def devices(name: str) -> tuple[str, ...]:
    return getattr(worker(name), "DEVICES", ("cpu",))


def requirements(name: str, folder: Path = FOLDER) -> Path | None:
    """The file in the folder of a worker that says what its own Python holds; None where it runs in ours."""
    path = folder / f"{name}.txt"
    return path if path.exists() else None


def ready(name: str) -> bool:
    return (ENVIRONMENTS / name / "ready").exists()


def installed() -> list[str]:
    """The peers that have a Python of their own, ready to run."""
    return [name for name in names() if requirements(name) and ready(name)]


def python_of(name: str, folder: Path = FOLDER) -> Path | None:
    """The Python that runs a worker; None where `make peers` has not set it up."""
    if requirements(name, folder) is None:
        return Path(sys.executable)
    return ENVIRONMENTS / name / "bin" / "python" if ready(name) else None


def why_missing(name: str, folder: Path = FOLDER) -> str:
    """The reason why a worker has no Python: nobody asked for it, or the last error of its installation."""
    package = requirements(name, folder).read_text().split()[0]
    log = ENVIRONMENTS / name / "install.log"
    if not log.exists():
        return f"{package} is not installed; make peers installs it"
    return f"{package} does not install here: {last_error(log.read_text())}"


def distributions(worker: str, folder: Path = FOLDER, **which) -> Iterator[importlib.metadata.Distribution]:
    """The packages of a worker, or those named so (`which`: as of importlib), in its own Python or in ours."""
    own = [str(found) for found in (ENVIRONMENTS / worker).glob("lib/python*/site-packages")]
    places = {"path": own} if requirements(worker, folder) else {}
    yield from importlib.metadata.distributions(**places, **which)


def variables(name: str, device: str, folder: Path = FOLDER) -> dict[str, str]:
    """Environment variables of a worker's process on a device. What a user has on PYTHONPATH is for our own Python."""
    own = None if requirements(name, folder) else os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), own)))} | JAX[device]


def last_error(text: str) -> str:
    """The last line of a program's output that names an error, else its last line; without folders' names."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it says nothing"]
    named = [line for line in lines if re.match(r"(\w+\.)*\w*(Error|Exception|ERROR)\b", line)]
    return re.sub(r"(?<![\w:/])/(?:[^\s/'\":]+/)+", "", (named or lines)[-1])


def versions(name: str) -> dict[str, str]:
    """The versions of a peer's packages, in its own Python or in ours."""
    if python_of(name) is None:
        return {}
    found = {package.name.lower(): package.version for package in distributions(name)}
    return {package: found[package] for package in worker(name).PACKAGES if package in found}
