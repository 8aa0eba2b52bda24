"""Given runs of a batched environment as arrays; in this process, or in the Python of a peer.

Needs nothing but NumPy and the environment's own library. Axes: T steps, B environments, k numbers of a state.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lockstep.experiments import ROOT, UserError, peer_workers
from lockstep.experiments.verify import subjects
from lockstep.experiments.verify.subjects import Subject

PARTS = ("actions", "follows", "states", "playing")  # of a run, that are arrays
TIMEOUT_S = 3600  # of all runs in another Python


@dataclass(frozen=True)
class Run:
    """A run to play.

    seed: of the reset.
    actions: [T, B, ...].
    policy: package.module:function, from observations [B, ...] to actions [B, ...], that acts where `follows` [T, B].
    states: [T, B, k]; each step is then one from these, after a reset of its own.
    playing: [T, B, A] bool, of several agents those that act in these states.
    """

    seed: int
    actions: np.ndarray
    policy: str | None = None
    follows: np.ndarray | None = None
    states: np.ndarray | None = None
    playing: np.ndarray | None = None


@dataclass(frozen=True)
class Lives:
    """A run as it was seen. observation: [T + 1, B, ...], those after the reset first."""

    seed: int
    observation: np.ndarray
    actions: np.ndarray  # [T, B, ...]
    reward: np.ndarray  # [T, B]
    terminated: np.ndarray
    truncated: np.ndarray
    last: np.ndarray  # [T, B, ...]: the observation that an episode ended with, where `given` [T, B]
    given: np.ndarray
    agents: np.ndarray | None = None  # [T, B, 4, A] of several, as in Step

    @property
    def of_agents(self) -> np.ndarray:
        """`agents`, or as if the environment had one."""
        if self.agents is not None:
            return self.agents
        one = self.reward, self.terminated, self.truncated, np.ones_like(self.terminated)
        return np.stack(one, axis=2).astype(float)[..., None]


@dataclass(frozen=True)
class Record:
    """All runs of a subject: lives, None of a run in another size than it has; its mode; versions by package."""

    lives: list[Lives | None]
    mode: str | None
    versions: dict[str, str]


def record(name: str, runs: Sequence[Run], inject: str | None = None) -> Record:
    """Plays runs one after the other, those of one size on one object.

    A named kind whose library is not here is played in the Python that `make peers` has set up for it.

    Raises:
        UserError: its library is nowhere, or it cannot be made or played; says why.
    """
    python = python_of(name)
    return played(name, runs, inject) if python is None else elsewhere(python, name, runs, inject)


def python_of(name: str) -> str | None:
    """The Python in which a name, or a kind, is played, None of this one; UserError where its library is nowhere."""
    if subjects.is_here(name):
        return None
    kind = name.partition(":")[0]
    if kind not in peer_workers.names() or not peer_workers.requirements(kind):
        raise UserError(f"{name}: {subjects.KINDS[kind].package} is not installed here")
    python = peer_workers.python_of(kind)
    if python is None:
        raise UserError(f"{name}: {peer_workers.why_missing(kind)}")
    return str(python)


def libraries() -> dict[str, dict[str, str] | str]:
    """The versions of each named kind's packages, where it is played, or the reason why it is not."""
    found = {}
    for kind in subjects.KINDS:
        try:
            found[kind] = subjects.versions(kind) if python_of(kind) is None else peer_workers.versions(kind)
        except UserError as reason:
            found[kind] = str(reason)
    return found


def played(name: str, runs: Sequence[Run], inject: str | None = None) -> Record:
    put = subjects.function("--inject", inject) if inject else None
    made: dict[int, Subject] = {}
    lives: list[Lives | None] = []
    with contextlib.ExitStack() as stack:
        for run in runs:
            B = run.actions.shape[1]
            if B not in made:
                made[B] = Subject(name, B, put)
                stack.callback(made[B].close)
            lives.append(lived(made[B], run) if made[B].num_envs == B else None)
        mode = next(iter(made.values())).mode
    return Record(lives, mode, subjects.versions(name))


def lived(subject: Subject, run: Run) -> Lives | None:
    """One run of a subject of its size; None where states are wanted and cannot be put."""
    policy = subjects.function("--policy", run.policy) if run.policy else None
    seen, taken, steps = [checked(subject, subject.reset(run.seed))], [], []
    if run.states is not None and not subject.can_put:
        return None
    for t, actions in enumerate(run.actions):
        if run.states is not None:
            subject.reset(run.seed + t)
            subject.put(run.states[t], None if run.playing is None else run.playing[t])
        if policy is not None and run.follows[t].any():
            chosen = np.asarray(policy(seen[-1])).astype(actions.dtype).reshape(actions.shape)
            actions = np.where(run.follows[t].reshape(-1, *[1] * (actions.ndim - 1)), chosen, actions)
        step = subject.step(actions)
        seen.append(step.observation)
        taken.append(actions)
        steps.append(step[1:])
    *parts, agents = zip(*steps, strict=True)
    parts.append(None if agents[0] is None else agents)
    return Lives(run.seed, np.array(seen), np.array(taken), *(None if one is None else np.array(one) for one in parts))


def checked(subject: Subject, observation: np.ndarray) -> np.ndarray:
    """First observations, which must be arrays [B, ...]."""
    if observation.dtype == object or observation.ndim < 1 or len(observation) != subject.num_envs:
        shape = f"{observation.dtype} {list(observation.shape)}"
        raise UserError(f"{subject.name}: observations must be numbers [{subject.num_envs}, ...], got {shape}")
    return observation


# ---- in another Python --------------------------------------------------------------------------------------------


def elsewhere(python: str, name: str, runs: Sequence[Run], inject: str | None = None) -> Record:
    """What `played` gives, from a process of that Python within TIMEOUT_S: arrays go through files, one each way."""
    with tempfile.TemporaryDirectory() as folder:  # its own, because a library may leave files where it is started
        job = {"name": name, "inject": inject, "runs": [{"seed": run.seed, "policy": run.policy} for run in runs]}
        save(Path(folder, "job.npz"), job, {n: {key: getattr(run, key) for key in PARTS} for n, run in enumerate(runs)})
        command = [python, "-m", __spec__.name]
        about = {"cwd": folder, "env": variables(), "timeout": TIMEOUT_S}
        try:
            done = subprocess.run(command, **about, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            raise UserError(f"{name}: no answer within {TIMEOUT_S:g} s; give fewer --transitions") from None
        if done.returncode:
            raise UserError(f"{name}: {peer_workers.last_error(done.stderr).removeprefix('error: ')}")
        answer, arrays = load(Path(folder, "lives.npz"))
    found = [Lives(run.seed, **arrays[n]) if n in arrays else None for n, run in enumerate(runs)]
    return Record(found, answer["mode"], answer["versions"])


def variables() -> dict[str, str]:
    """The environment variables of a process in another Python."""
    paths = [str(ROOT), str(Path.cwd()), os.environ.get("PYTHONPATH")]  # the last two have the user's own functions
    path = os.pathsep.join(filter(None, paths))
    return os.environ | {"PYTHONPATH": path} | peer_workers.JAX["cpu"]


def save(path: Path, words: dict, arrays: dict[int, dict[str, np.ndarray | None]]) -> None:
    """A file with arrays by number and name."""
    every = {f"{n}.{key}": one for n, named in arrays.items() for key, one in named.items() if one is not None}
    np.savez(path, words=np.array(json.dumps(words)), **every)


def load(path: Path) -> tuple[dict, dict[int, dict[str, np.ndarray]]]:
    found: dict[int, dict[str, np.ndarray]] = {}
    with np.load(path) as file:
        words = json.loads(str(file["words"]))
        for key in file.files:
            number, dot, name = key.partition(".")
            if dot:
                found.setdefault(int(number), {})[name] = file[key]
    return words, found


def main() -> None:
    """The process in the other Python, in the folder where the job lies."""
    job, arrays = load(Path("job.npz"))
    runs = [Run(**one, **arrays[n]) for n, one in enumerate(job["runs"])]
    try:
        found = played(job["name"], runs, job["inject"])
    except UserError as error:
        sys.exit(f"error: {error}")
    seen = {n: vars(lives) for n, lives in enumerate(found.lives) if lives is not None}
    arrays = {n: {key: one for key, one in own.items() if key != "seed"} for n, own in seen.items()}
    save(Path("lives.npz"), {"mode": found.mode, "versions": found.versions}, arrays)


if __name__ == "__main__":
    main()
