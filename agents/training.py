"""The loop around an algorithm: log, checks, checkpoints, interruption, and the command line."""

import argparse
import contextlib
import dataclasses
import importlib.metadata
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

import envs

from . import checkpoint, config, evaluation
from .log import Log

MAY_DIFFER = ("eval_every", "save_every")  # between a checkpoint and the run that continues it
PACKAGES = ("torch", "numpy", "gymnasium")
CHECKPOINT, PROGRESS = "checkpoint.pt", "progress.csv"


class Interrupted(Exception):
    """SIGTERM or Ctrl-C came; the message says where the run can be continued from."""


class Checks:
    """Greedy episodes in the port between iterations; called with a run, it answers whether the task is solved.

    Args:
        environment: a folder of `envs/`.
        solved: the mean return that two checks in succession must reach; None: the run goes on to its end.
    """

    def __init__(self, environment: str, solved: float | None = None, device="cpu", member: int = 0):
        self.episodes = evaluation.PortEpisodes(environment, device=device)
        self.solved, self.member = solved, member
        self.scores: list[tuple[int, float]] = []  # environment steps, mean return

    def __call__(self, run) -> bool:
        policy = run.policy(member=self.member) or (lambda obs: run.act(obs, member=self.member))
        self.scores.append((run.env_steps, float(self.episodes.play(policy).returns.mean())))
        last = [score for _, score in self.scores[-2:]]
        return self.solved is not None and len(last) == 2 and min(last) >= self.solved


def train(
    algorithm: type,
    environment,
    settings,
    device="cpu",
    *,
    output: str | Path | None = None,
    resume: str | Path | None = None,
    check: Callable[[object], bool] | None = None,
    quiet: bool = True,
):
    """Runs an algorithm to its end.

    Args:
        algorithm: `PPO`.
        environment, settings, device: what it is made of.
        output: a folder for progress.csv and checkpoint.pt; None: nothing is written.
        resume: a checkpoint to continue from, bit for bit on the same device.
        check: called every `settings.eval_every` steps at iteration ends; the run ends where it answers True.
        quiet: no bar and no lines.

    Returns:
        The run.

    Raises:
        ValueError: settings that are not allowed, or a checkpoint of other ones (each such field is named).
        FloatingPointError: something was not finite; the message names it, and the checkpoint written then.
        Interrupted: SIGTERM or Ctrl-C; a checkpoint is written first.
    """
    run = algorithm(environment, settings, device)
    described = {"environment": environment if isinstance(environment, str) else type(environment).__name__}
    described |= dataclasses.asdict(settings)
    before = 0.0
    if resume is not None:
        content = checkpoint.load(resume)
        checkpoint.require_same(content["config"], described, MAY_DIFFER)
        run.load_state(content["state"])
        before = content["wall_s"]
    writes = output is not None and run.ranks.rank == 0
    path = Path(output) / CHECKPOINT if writes else None
    start = time.perf_counter() - before

    def save() -> None:
        if path is not None:
            versions = {name: importlib.metadata.version(name) for name in PACKAGES if _installed(name)}
            content = {"config": described, "state": run.state(), "wall_s": time.perf_counter() - start}
            checkpoint.save(path, content | {"versions": versions})

    progress = Path(output) / PROGRESS if writes else None
    after = run.iteration if resume is not None else None
    with (
        Log(progress, settings.total_steps, resume_after=after, quiet=quiet or run.ranks.rank > 0) as log,
        interruption() as interrupted,
    ):
        rows = Rows(run, start)
        while run.iteration < run.iterations:
            earlier = run.env_steps
            run.iterate()
            try:
                if log.due() or run.iteration == run.iterations:
                    log.row(rows.next())
            except FloatingPointError as error:
                save()
                where = f"; the last finite parameters are in {path}" if path else ""
                raise FloatingPointError(f"{error}{where}") from None
            if run.ranks.any(bool(interrupted)):
                save()
                where = f"continue with --resume {path}" if path else "nothing was kept, for no output folder was given"
                raise Interrupted(f"interrupted after {run.env_steps:,} steps; {where}")
            if check is not None and _passed(earlier, run.env_steps, settings.eval_every) and check(run):
                break
            if settings.save_every and _passed(earlier, run.env_steps, settings.save_every):
                save()
        save()
    return run


class Rows:
    """The rows of a log."""

    def __init__(self, run, start: float):
        self.run, self.start = run, start
        self.steps, self.time = run.env_steps, time.perf_counter()

    def next(self) -> dict:
        """A row of what happened since the last one; waits for the device."""
        figures = self.run.statistics()
        steps, now = self.run.env_steps, time.perf_counter()
        rate = (steps - self.steps) / (now - self.time)
        self.steps, self.time = steps, now
        place = {"iteration": self.run.iteration, "env_steps": steps, "wall_s": now - self.start, "steps_per_s": rate}
        return place | figures


@contextlib.contextmanager
def interruption() -> Iterator[list[int]]:
    """A list that SIGTERM and Ctrl-C put their number into instead of ending the process; a second one ends it."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # signals reach the main thread alone
        return

    def note(number, frame):
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _passed(earlier: int, now: int, every: int) -> bool:
    return now // every > earlier // every


def _installed(name: str) -> bool:
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def command_line(name: str, algorithm: type, settings: type, recipes: Mapping, settings_of: Callable) -> None:
    """`python -m agents.<name> <environment>`: trains, then plays 100 episodes in the original."""
    parser = argparse.ArgumentParser(
        prog=f"python -m agents.{name}",
        description=f"Train {name.upper()} on an environment. torchrun spreads the environments over processes.",
    )
    parser.add_argument("environment", help=f"one of: {', '.join(envs.names())}")
    known = ", ".join(recipes)
    parser.add_argument("--recipe", help=f"{known}; without it what agents/recipes/<environment>.yaml says")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:<index> (default: cpu)")
    parser.add_argument("--output", type=Path, help=f"folder for {PROGRESS} and {CHECKPOINT}")
    parser.add_argument("--resume", type=Path, help="checkpoint to continue from, with the same settings")
    parser.add_argument("--stop-at", type=float, help="stop once two checks in succession reach this mean return")
    config.add_options(parser.add_argument_group("settings, which replace the recipe's"), settings)
    given = vars(parser.parse_args())
    environment, recipe, device, output, resume, stop_at = (
        given.pop(option) for option in ("environment", "recipe", "device", "output", "resume", "stop_at")
    )
    run = None
    try:
        envs.port(environment)  # an unknown name is told before anything else
        chosen = settings_of(environment, recipe, **given)
        check = Checks(environment, stop_at, device) if stop_at is not None else None
        run = train(algorithm, environment, chosen, device, output=output, resume=resume, check=check, quiet=False)
        if run.ranks.rank == 0:
            _tell(run, environment)
    except Interrupted as error:
        print(error, file=sys.stderr)
        raise SystemExit(130) from None
    except (ValueError, MemoryError, FloatingPointError, OSError, envs.kernels.compile.CompilerError) as error:
        raise SystemExit(f"error: {error}") from None
    finally:
        if run is not None:
            run.ranks.close()


def _tell(run, environment: str) -> None:
    """Scores of what was trained, in the original, beside a random policy."""
    torch.manual_seed(run.config.seed)  # of the sampled policy
    rows = {
        "greedy": lambda: evaluation.in_original(environment, run.act),
        "sampled": lambda: evaluation.in_original(environment, lambda obs: run.act(obs, greedy=False)),
        "random": lambda: evaluation.random_policy(environment),
    }
    print(f"{run.env_steps:,} steps; mean return of {evaluation.EPISODES} episodes in the original:")
    for policy, play in rows.items():
        returns = play().returns
        print(f"  {policy:8} {returns.mean():10.2f}  (smallest {returns.min():.2f}, largest {returns.max():.2f})")
