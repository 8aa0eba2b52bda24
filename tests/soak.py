"""Memory of a process that makes, steps, trains and throws away environments again and again: it does not grow.

    python -m tests.soak --minutes 60      of which each environment has an equal share, in a process of its own

A turn makes a batch, lives in it through steps, roll-outs, restarts and saved states, drops it, and trains on such
ones by all algorithms that have a recipe for it; PPO where there is none. After each the resident memory of the process
is read. The turns of the first third of the time warm up; of the others a line is fitted, and what it grows by
from end to end must stay below MOST_GROWTH. Files and threads must be as many at the end as after the warm-up.
"""

import argparse
import ctypes
import dataclasses
import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from lockstep import agents, envs
from lockstep.agents import recipes
from lockstep.agents.run import config, contract, training
from tests import sanitize

MOST_GROWTH = 2 * 2**20  # bytes
WARM_UP = 1 / 3  # of the time
FEWEST = 8  # turns, however long they take, so that there is a line to fit
PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 2**20
SMALL = {"total_steps": 64, "num_envs": 4, "horizon": 8, "minibatches": 2, "epochs": 1, "threads": 1}
SMALL |= {"learning_starts": 0, "batch_size": 16, "capacity": 1024}  # of those that have these


def resident() -> int:
    """Bytes of memory that this process holds, without what it has freed."""
    ctypes.CDLL(None).malloc_trim(0)  # of glibc, which keeps some of it, now more, now less
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def held() -> tuple[int, int]:
    """Numbers of files that this process has open, and of its threads."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def turn(name: str, number: int) -> int:
    """Makes, lives in and trains on small batches, seeded by the turn's number; how many steps were made."""
    env = sanitize.small(name, "cpu")
    env.reset(seed=number)
    for action in env.random_actions(20):
        env.step(action)
    sanitize.restart(env)
    env.rollout(20)
    env.statistics()
    steps = 40 * env.num_envs
    for algorithm, settings in learners(name, number, contract.is_joint(env)):
        run = training.train(algorithm, name, settings)
        run.ranks.close()
        steps += run.env_steps
    return steps


def learners(name: str, seed: int, joint: bool) -> Iterator[tuple[type, config.Settings]]:
    """The algorithms that an environment has recipes of, and settings of a short run of each."""
    known = recipes.load(name) if name in recipes.names() else {"ppo": {"recipe": "cleanrl", "joint": joint}}
    for chosen, recipe in known.items():
        algorithm = agents.algorithm(chosen)
        fields = {field.name for field in dataclasses.fields(algorithm.Config)}
        small = {key: value for key, value in SMALL.items() if key in fields}
        yield algorithm, config.config_of(algorithm, name, **recipe | small, seed=seed)


def growth(found: list[int]) -> float:
    """Growth of the line that fits numbers best, from the first to the last of them."""
    return float(np.polyfit(np.arange(len(found)), found, 1)[0]) * (len(found) - 1)


def soaked(turn_of: Callable[[int], int], seconds: float) -> dict:
    """Turns for so many seconds: how many, their steps, memory after the warm-up and at the end, and its growth."""
    start, steps, number, found, before = time.monotonic(), 0, 0, [], None
    while time.monotonic() - start < seconds or len(found) < FEWEST:
        steps += turn_of(number)
        number += 1
        gc.collect()
        if time.monotonic() - start >= WARM_UP * seconds and number >= FEWEST:
            before = before or held()
            found.append(resident())
    return {
        "turns": number, "steps": steps, "first": found[0], "last": found[-1], "growth": growth(found),
        "files": held()[0] - before[0], "threads": held()[1] - before[1],
    }  # fmt: skip


def alone(name: str, seconds: float, answer) -> None:
    torch.set_num_threads(1)
    answer.send(soaked(lambda number: turn(name, number), seconds))


def rows(names: list[str], minutes: float) -> Iterator[tuple[str, dict]]:
    """Findings on each environment.

    Raises:
        SystemExit: a process ended before it was done.
    """
    context = multiprocessing.get_context("fork")  # of a process that has imported everything and made nothing
    for name in names:
        answer, theirs = context.Pipe(duplex=False)
        process = context.Process(target=alone, args=(name, 60 * minutes / len(names), theirs))
        process.start()
        theirs.close()
        try:
            yield name, answer.recv()
        except EOFError:
            sys.exit(f"soak: {name}: ended with an error (above)")
        finally:
            process.join()


def wrong(row: dict) -> list[str]:
    """Sentences on what grows."""
    found = [f"{row[kind]} {kind} more" for kind in ("files", "threads") if row[kind] > 0]
    return [f"memory grows by {row['growth'] / MIB:.1f} MiB"] * (row["growth"] > MOST_GROWTH) + found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="of all environments together (default: 1)")
    parser.add_argument("--only", nargs="+", choices=envs.names(), default=envs.names(), metavar="ENV")
    options, findings = parser.parse_args(), []
    print(f"{'environment':26}{'turns':>7}{'steps':>12}{'MiB before':>12}{'MiB after':>11}{'growth, MiB':>13}")
    for name, row in rows(options.only, options.minutes):
        memory = f"{row['first'] / MIB:12.1f}{row['last'] / MIB:11.1f}{row['growth'] / MIB:13.2f}"
        print(f"{name:26}{row['turns']:7}{row['steps']:12,}{memory}", flush=True)
        findings += [f"{name}: {sentence}" for sentence in wrong(row)]
    if findings:
        sys.exit(f"soak: {'; '.join(findings)}")
    print(f"soak: nothing grows; allowed are {MOST_GROWTH / MIB:.0f} MiB after the warm-up")


if __name__ == "__main__":
    main()
