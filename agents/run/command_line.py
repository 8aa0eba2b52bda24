"""The command line of an algorithm: trains, then plays episodes in the original."""

import argparse
import functools
import math
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import torch

from lockstep import agents, envs, interrupt
from lockstep.reading import nearest

from . import config, evaluation, training
from .algorithm import Algorithm
from .environment import options_of
from .host import OnHost

WRONG = (ValueError, MemoryError, FloatingPointError, OSError, ImportError)  # whose message says all


class Parser(argparse.ArgumentParser):
    """Says in one sentence what is wrong with a command line, with the nearest option's name."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (--help lists what there is)\n")

    def parse(self) -> dict:
        given, unknown = self.parse_known_args()
        options = [option for option in self._option_string_actions if option.startswith("--")]
        for word in unknown:
            known = nearest(word.partition("=")[0], options).partition("; known")[0]
            self.error(f"no option {word}{known}" if word.startswith("-") else f"{word!r} belongs to no option")
        return vars(given)


def _path(word: str) -> Path:
    if not word:
        raise argparse.ArgumentTypeError("a path must not be empty")
    return Path(word)


def _count(word: str) -> int:
    if not word.isdecimal():
        raise argparse.ArgumentTypeError(f"{word!r} must be a whole number of at least 0")
    return int(word)


def _finite(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{word!r} must be a finite number")
    return number


@interrupt.told("interrupted")
def main(name: str) -> None:
    """`python -m lockstep.agents.<name> <environment>`: trains, then plays episodes in the original."""
    algorithm = agents.algorithm(name)
    program = f"python -m lockstep.agents.{name}"
    parser = Parser(
        prog=program,
        description=f"Train {name.upper()} on an environment, then play episodes in the original.",
        allow_abbrev=False,
    )
    parser.add_argument("environment", help=f"one of: {', '.join(envs.names())}")
    known = ", ".join(algorithm.RECIPES)
    parser.add_argument("--recipe", help=f"{known}, or a file *.yaml; without it agents/recipes/<environment>.yaml")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:<index> (default: cpu)")
    files = f"{training.PROGRESS}, {training.CHECKPOINT} and {training.CONFIG}"
    parser.add_argument("--output", type=_path, help=f"folder for {files}; with --resume that of the checkpoint")
    parser.add_argument(
        "--resume", type=_path, help="checkpoint to continue from, or its folder; its settings need not be repeated"
    )
    parser.add_argument("--init-from", type=_path, help="checkpoint, or its folder, with whose weights to begin")
    parser.add_argument(
        "--episodes",
        type=_count,
        default=evaluation.EPISODES,
        metavar="N",
        help=f"played in the original at the end, with each of three policies; 0: none [{evaluation.EPISODES}]",
    )
    parser.add_argument("--stop-at", type=_finite, help="stop once two checks in succession reach this mean return")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--tensorboard", action="store_true", help="the log as an event file in --output too")
    config.add_options(
        parser.add_argument_group(f"settings, which replace the recipe's [{next(iter(algorithm.RECIPES))}'s]"),
        algorithm.Config,
    )
    given = parser.parse()
    environment, recipe, device, episodes, stop_at, quiet = (
        given.pop(option) for option in ("environment", "recipe", "device", "episodes", "stop_at", "quiet")
    )
    output, resume, init_from, tensorboard = (
        given.pop(option) for option in ("output", "resume", "init_from", "tensorboard")
    )
    try:
        envs.port(environment)  # an unknown name is told before anything else
        if resume is None or recipe is not None:
            chosen = config.config_of(algorithm, environment, recipe, **given)
        else:
            chosen = config.replaced(training.config_in(training.file_of(resume), algorithm), given)
        output = training.file_of(resume).parent if resume is not None and output is None else output
        if output is not None:
            training.require_free(output, resume)
        named = options_of(chosen.options)
        check = training.Checks(environment, stop_at, device, **named) if stop_at is not None else None
        files = {"output": output, "resume": resume, "init_from": init_from, "tensorboard": tensorboard}
        run = training.train(algorithm, environment, chosen, device, **files, check=check, quiet=quiet)
        if run.ranks.rank == 0 and episodes:
            _tell(run, environment, episodes, named)
        run.ranks.close()
    except training.Interrupted as error:
        if int(os.environ.get("RANK", 0)) == 0:
            size = os.environ.get("WORLD_SIZE", "1")
            start = (
                program if size == "1" else f"torchrun --standalone --nproc-per-node {size} -m lockstep.agents.{name}"
            )
            rest = [environment, "--device", device, "--resume", str(error.path)]
            rest += ["--tensorboard"] * tensorboard
            rest += [] if stop_at is None else ["--stop-at", repr(stop_at)]
            rest += [] if episodes == evaluation.EPISODES else ["--episodes", str(episodes)]
            again = f"; to go on: {start} {shlex.join(rest)}" if error.path else ""
            print(f"{error}{again}", file=sys.stderr)
        raise SystemExit(128 + error.number) from None
    except (*WRONG, envs.kernels.compile.CompilerError) as error:
        raise SystemExit(f"error: {error}") from None


def _tell(run: Algorithm, environment: str, episodes: int, options: Mapping) -> None:
    """Scores of what was trained, in the original, beside a random policy."""
    torch.manual_seed(run.config.seed)  # of the sampled policy
    device = run.ranks.device
    greedy, sampled = OnHost(run.act, device), OnHost(functools.partial(run.act, greedy=False), device)
    rows = {
        "greedy": lambda: evaluation.in_original(environment, greedy, episodes, **options),
        "sampled": lambda: evaluation.in_original(environment, sampled, episodes, **options),
        "random": lambda: evaluation.random_policy(environment, episodes, **options),
    }
    member = " of member 0" if getattr(run.config, "population", 1) > 1 else ""
    print(f"{run.env_steps:,} steps; mean return{member} of {episodes} episodes in the original:")
    for policy, play in rows.items():
        returns = play().returns
        print(f"  {policy:8} {returns.mean():10.2f}  (smallest {returns.min():.2f}, largest {returns.max():.2f})")
