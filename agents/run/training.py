"""The loop around an algorithm: log, checks, checkpoints, interruption."""

import contextlib
import dataclasses
import math
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import gymnasium
import numpy as np
import torch

from lockstep import envs, files
from lockstep.agents import recipes

from . import checkpoint, config, evaluation, log
from .algorithm import Algorithm
from .config import Settings
from .ranks import Ranks

A = TypeVar("A", bound=Algorithm)
MAY_DIFFER = ("eval_every", "save_every", "save_replay")  # between a checkpoint and the run that continues it
MAY_LACK = ("replay", "device")  # parts of a state that a run goes on without
OF_DEVICE = ("generator",)  # parts that a device of another kind has in another shape, and does not take
HOW = ("precision", "graph", "rollout", "gradient")  # settings that say how a device does its work, where it can
CHECKPOINT, PROGRESS, CONFIG = "checkpoint.pt", "progress.csv", "config.yaml"
PATIENCE_S = 1.0  # within which a second signal is not meant as one


class Interrupted(Exception):
    """SIGTERM or Ctrl-C came; the message says what was kept.

    Attributes:
        number: of the signal.
        path: the checkpoint written then, or None.
    """

    def __init__(self, message: str, number: int, path: Path | None):
        super().__init__(message)
        self.number, self.path = number, path


class Checks:
    """Greedy episodes in the port between iterations; called with a run, it answers whether the task is solved.

    Args:
        environment: a folder of `envs/`.
        solved: the mean return that two checks in succession must reach; None: the run goes on to its end.
        **options: of `envs.make`, as the run's settings name them.
    """

    def __init__(self, environment: str, solved: float | None = None, device="cpu", **options):
        self.episodes = evaluation.PortEpisodes(environment, device=device, **options)
        self.solved = solved
        self.scores: list[tuple[int, float]] = []  # environment steps, mean return

    def __call__(self, run: Algorithm) -> bool:
        self.scores.append((run.env_steps, float(self.episodes.play(run.policy() or run.act).returns.mean())))
        last = [score for _, score in self.scores[-2:]]
        return self.solved is not None and len(last) == 2 and min(last) >= self.solved


@torch.inference_mode(False)  # in which nothing learns
def train(
    algorithm: type[A],
    environment,
    settings: Settings,
    device="cpu",
    *,
    output: str | Path | None = None,
    resume: str | Path | None = None,
    init_from: str | Path | None = None,
    check: Callable[[A], bool] | None = None,
    quiet: bool = True,
    tensorboard: bool = False,
) -> A:
    """Runs an algorithm to its end.

    Args:
        algorithm: a class, as `agents.algorithm` finds it by name.
        environment, settings, device: what it is made of.
        output: a folder for progress.csv, checkpoint.pt and config.yaml, a recipe of these settings; None: nothing is
            written. Without `resume` it must hold no checkpoint.
        resume: a checkpoint to continue from, or its folder; bit for bit on the same device.
        init_from: a checkpoint, or its folder, whose weights and normaliser a new run begins with.
        check: called every `settings.eval_every` steps at iteration ends; the run ends where it answers True.
        quiet: no bar and no lines.
        tensorboard: the log's rows in an event file in `output` too.

    With several processes (torchrun) each calls this; they stop together, and the first alone writes. A process that
    is done calls `run.ranks.close()`.

    Returns:
        The run.

    Raises:
        ValueError: settings that are not allowed, or a checkpoint of other ones (each such field is named).
        FloatingPointError: something was not finite; the message names it, and the checkpoint written then. Its
            parameters are finite. Where the environment's state is not, no run continues from it: a port refuses the
            state, and of another environment the run stops again.
        Interrupted: SIGTERM or Ctrl-C; a checkpoint is written first. A second one ends at once (KeyboardInterrupt).
        ConnectionError: another process has ended.
        ImportError: TensorBoard is asked for and not installed.
    """
    described = {"environment": environment if isinstance(environment, str) else type(environment).__name__}
    described |= dataclasses.asdict(settings)
    kept = None
    if output is not None:
        before = stamp(Path(output) / CHECKPOINT)
        require_free(Path(output), resume)
    if tensorboard:
        if output is None:
            raise ValueError("tensorboard=True writes into the output folder, so it needs output=...")
        log.summary_writer()  # before anything is written
    if resume is not None and init_from is not None:
        raise ValueError("resume and init_from exclude each other: a run that goes on has its weights")
    if resume is not None:
        resume = file_of(resume)
        kept = checkpoint.of_run(resume, algorithm.name)
        of_then = dataclasses.asdict(algorithm.Config()) | kept["config"]  # a setting that is new since has its default
        checkpoint.require_same(of_then, described, [name for name in MAY_DIFFER if name in described])
    run = algorithm(environment, settings, device)
    if kept is not None:
        states = kept["states"]
        if len(states) != run.ranks.size:
            raise ValueError(f"checkpoint {resume} is of {len(states)} processes; this run has {run.ranks.size}")
        restore(run, states[run.ranks.rank], resume)
    if init_from is not None:
        initialise(run, file_of(init_from))
    writes = output is not None and run.ranks.rank == 0
    path = Path(output) / CHECKPOINT if writes else None
    start = time.perf_counter() - (kept["wall_s"] if kept is not None else 0.0)

    def save() -> None:
        if output is None:
            return
        written.flush()  # so that the log of a run that is killed next ends no earlier than its checkpoint
        states = run.ranks.gather(run.state())
        if path is not None:
            versions = {package.__name__: str(package.__version__) for package in (torch, np, gymnasium)}
            content = {"algorithm": algorithm.name, "config": described, "states": states}
            checkpoint.save(path, content | {"wall_s": time.perf_counter() - start, "versions": versions})

    def tell() -> None:
        problem = ""
        try:
            row = rows.next()
        except FloatingPointError as error:
            problem = str(error)
        if run.ranks.most([bool(problem)])[0]:
            save()
            where = f"; the parameters in {path} are finite" if path else ""
            raise FloatingPointError(f"{problem or 'something in another process is not finite'}{where}")
        written.row(over_ranks(row, run.ranks))

    progress = Path(output) / PROGRESS if writes else None
    after = run.iteration if kept is not None else None
    with (
        holding(Path(output), before) if writes else contextlib.nullcontext(),
        log.Log(
            progress,
            settings.total_steps,
            (*log.COLUMNS, *algorithm.COLUMNS),
            resume_after=after,
            quiet=quiet or run.ranks.rank > 0,
            tensorboard=tensorboard,
        ) as written,
        interruption() as received,
        of_torch(run.torch_threads(settings) if settings.threads else None),
    ):
        if writes:
            plain = dataclasses.asdict(settings)
            recipes.write(Path(output) / CONFIG, algorithm.name, plain, f"Of {described['environment']}.")
        rows = Rows(run, start)
        while run.iteration < run.iterations:
            earlier = run.env_steps
            run.iterate()
            saves = settings.save_every and _passed(earlier, run.env_steps, settings.save_every)
            signalled, due = run.ranks.most([received[0] if received else 0, written.due()])
            tells = bool(signalled or due or saves or run.iteration == run.iterations)
            if tells:  # before anything is saved, so that a checkpoint was looked at
                tell()
            if signalled:
                save()
                run.ranks.close()
                raise Interrupted(f"interrupted after {run.env_steps:,} steps; {_kept(output)}", signalled, path)
            checks = check is not None and _passed(earlier, run.env_steps, settings.eval_every)
            if checks and run.ranks.most([bool(check(run))])[0]:
                if not tells:
                    tell()
                break
            if saves:
                save()
        save()
        if received:  # while that was written
            raise Interrupted(
                f"interrupted after the last of {run.env_steps:,} steps; {_kept(output)}", received[0], path
            )
    return run


@torch.inference_mode(False)  # as a batch is made
def load(algorithm: type[A], path: str | Path, device="cpu", environment=None) -> A:
    """A run as a checkpoint left it, to be used: nothing is trained and nothing written.

    Where the device lacks what the settings ask for (`HOW`), those of `to_act` take their place, and the run has the
    checkpoint's weights and normaliser alone; so it has them of several processes, in which they are equal, and for an
    `environment` that is given.

    Args:
        algorithm: a class, as `agents.algorithm` finds it by name.
        path: a checkpoint, or its folder.
        device: where the run is to be, whichever it was trained on.
        environment: as the algorithm takes it, which begins anew; None: the one whose name the checkpoint has, of one
            process in the state it was in.

    Raises:
        ValueError: names the file and what does not fit.
    """
    path = file_of(path)
    kept = checkpoint.of_run(path, algorithm.name)
    given = dict(kept["config"])
    name = given.pop("environment")
    if environment is None and name not in envs.names():
        raise ValueError(f"checkpoint {path}: {name!r} is no environment of envs; give yours as environment=...")
    try:
        asked = config.replaced(algorithm.Config(), given)
        run = _to_act(algorithm, name if environment is None else environment, asked, device)
    except ValueError as error:
        raise ValueError(f"checkpoint {path} does not fit: {error}") from error
    if environment is None and run.config == asked and len(kept["states"]) == 1:
        restore(run, kept["states"][0], path)
    else:
        initialise(run, path)
    return run


def _to_act(algorithm: type[A], environment, settings: Settings, device) -> A:
    """A run with these settings or, where they cannot be, with others of `HOW`."""
    try:
        return algorithm(environment, settings, device)
    except ValueError:
        small = algorithm.to_act(settings)
        plain = dataclasses.replace(settings, **{name: getattr(small, name) for name in HOW if hasattr(small, name)})
        if plain == settings:
            raise
    return algorithm(environment, plain, device)


def restore(run: Algorithm, state: Mapping, path: Path) -> None:
    """Continues from a checkpoint's state; ValueError names the file and what does not fit."""
    try:
        own = run.state()
        elsewhere = state.get("device") != own.get("device")  # or of before that was told
        free = {key for key in MAY_LACK if key not in state} | {key for key in OF_DEVICE if elsewhere and key in state}
        own = {key: part for key, part in own.items() if key not in free}
        checkpoint.require_like(state, own | {"environment": {}} if "environment" in own else own)
        checkpoint.require_finite(state, run.weights())
        checkpoint.require_countable(state, {key: part for key, part in own.items() if key != "environment"})
        if not 0 <= state["iteration"] <= run.iterations:
            raise ValueError(f"iteration={state['iteration']} must be in 0 .. {run.iterations}")
        run.load_state(state)
    except (ValueError, KeyError) as error:  # a port takes no state that is not finite
        problem = f"the environment's state has no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"checkpoint {path} cannot be continued: {problem}") from error


def initialise(run: Algorithm, path: Path) -> None:
    """Begins with the weights of a checkpoint; ValueError names the file and what does not fit."""
    kept = checkpoint.of_run(path, run.name)
    defaults = {field.name: field.default for field in dataclasses.fields(run.config)}  # of what came later
    shapes = {name: kept["config"].get(name, defaults[name]) for name in run.SHAPES}
    try:
        checkpoint.require_same(shapes, {name: getattr(run.config, name) for name in run.SHAPES})
        run.load_weights(kept["states"][0])
    except ValueError as error:
        raise ValueError(f"checkpoint {path} does not fit these networks: {error}") from error


def config_in(path: Path, algorithm: type[Algorithm]):
    """The configuration of a checkpoint's run; fields that it lacks have their defaults, and unknown ones are left out.

    Raises:
        ValueError: names the file and what is not allowed.
    """
    kept = checkpoint.of_run(path, algorithm.name)["config"]
    fields = [field.name for field in dataclasses.fields(algorithm.Config) if field.name in kept]
    try:
        return config.replaced(algorithm.Config(), {field: kept[field] for field in fields})
    except ValueError as error:
        raise ValueError(f"checkpoint {path} does not fit: {error}") from error


def file_of(path: str | Path) -> Path:
    """The checkpoint itself, where its folder was given."""
    return Path(path) / CHECKPOINT if Path(path).is_dir() else Path(path)


class Rows:
    """The rows of a log."""

    def __init__(self, run: Algorithm, start: float):
        self.run, self.start = run, start
        self.steps, self.time = run.env_steps, time.perf_counter()

    def next(self) -> dict:
        """A row of what happened since the last one; waits for the device."""
        metrics = self.run.statistics()
        steps, now = self.run.env_steps, time.perf_counter()
        rate = (steps - self.steps) / (now - self.time)
        self.steps, self.time = steps, now
        place = {"iteration": self.run.iteration, "env_steps": steps, "wall_s": now - self.start, "steps_per_s": rate}
        return place | metrics


def over_ranks(row: dict, ranks: Ranks) -> dict:
    """The row with the episodes of all processes; its other metrics are already those of all, or of the first."""
    if ranks.size == 1:
        return row
    episodes, *means = log.OF_EPISODES
    count = row[episodes]
    sums = [count, *(count * row[name] if count else 0.0 for name in means)]  # a mean over no episodes is NaN
    total = torch.tensor(sums, dtype=torch.float64, device=ranks.device)
    ranks.reduce(total)
    count, *sums = total.tolist()
    return row | {episodes: count, **dict(zip(means, (s / count if count else math.nan for s in sums), strict=True))}


@contextlib.contextmanager
def of_torch(threads: int | None) -> Iterator[None]:
    """Within it torch uses so many threads of the CPU; None: as many as it does."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        if threads is not None:
            torch.set_num_threads(before)


@contextlib.contextmanager
def interruption() -> Iterator[list[int]]:
    """A list that SIGTERM and Ctrl-C put their number into instead of ending the process; a second one ends it.

    Within `PATIENCE_S` further ones are taken for the same: on Ctrl-C a process gets one from the terminal and one from
    torchrun. A daemon, such as a pool's process, ends as any other: it is its parent that terminates it, and waits.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread() or multiprocessing.current_process().daemon:
        yield received  # signals reach the main thread alone
        return
    first = math.inf

    def note(number, frame):
        nonlocal first
        if received and time.monotonic() - first > PATIENCE_S:
            raise KeyboardInterrupt
        if not received:
            first = time.monotonic()
            received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def holding(output: Path, before: tuple[int, int] | None) -> Iterator[None]:
    """Keeps other trainings from writing into a folder, which is made where missing.

    Args:
        before: `stamp` of the folder's checkpoint when it was looked at.

    Raises:
        ValueError: another one does, or has written a checkpoint since then.
    """
    output.mkdir(parents=True, exist_ok=True)
    try:
        with files.hold(output / "training.lock"):
            if stamp(output / CHECKPOINT) != before:
                raise ValueError(
                    f"output={str(output)!r}: another training has written a checkpoint there meanwhile; "
                    "resume it, or choose another folder"
                )
            yield
    except files.HeldElsewhere as error:
        raise ValueError(
            f"output={str(output)!r} is being written by another training ({error.holder}); choose another folder"
        ) from None


def stamp(file: Path) -> tuple[int, int] | None:
    """Inode and time of a file, which change where it is written anew; None where there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def require_free(output: Path, resume: str | Path | None) -> None:
    if output.exists() and not output.is_dir():
        raise ValueError(f"output={str(output)!r} is a file; it must be a folder")
    if resume is None and (output / CHECKPOINT).exists():
        raise ValueError(f"output={str(output)!r} already holds a checkpoint; resume it, or choose another folder")


def _kept(output: str | Path | None) -> str:
    return "nothing was kept, for no output folder was given" if output is None else f"saved in {output}"


def _passed(earlier: int, now: int, every: int) -> bool:
    return now // every > earlier // every
