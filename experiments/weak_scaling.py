"""Weak scaling of training: iterations of 1, 2, ... processes that sum their gradients, and such sums by themselves.

Each process has its own environments, equally many, and one thread, as torchrun starts them; sums go by gloo through
the loopback interface. growth.py models nodes from that.
"""

import dataclasses
import math
import multiprocessing
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass

import pandas as pd
import torch
import torch.distributed as distributed

from lockstep import agents
from lockstep.agents.run.config import config_of
from lockstep.agents.run.ranks import Ranks
from lockstep.experiments import UserError, command, config, growth
from lockstep.experiments.bench import timing
from lockstep.experiments.config import ConfigError, Settings
from lockstep.experiments.experiment import Experiment, Group, Plan, Request, by_label, each
from lockstep.experiments.ledger import provenance
from lockstep.reading import nearest

COLUMNS = [
    *("environment", "algorithm", "part", "ranks", "cores", "rank", "num_envs", "block", "iterations", "env_steps"),
    *("calls", "bytes", "per_iteration", "wall_s", "cpu_s", "sum_s"),
]
HOST, INTERFACE = "127.0.0.1", "lo"
THREADS = 2  # of a rank among several: the one that learns, and gloo's, through which each sum goes
ENDLESS = 2**50  # steps, which no run here comes to
LONE_SHARE = 0.25  # of a block's least length, of a block of sums by themselves


@dataclass(frozen=True)
class World(Group):
    """Processes that train together."""

    ranks: int


@dataclass(frozen=True)
class Task:
    """The task of every rank; settings: the Config of the whole run."""

    environment: str
    algorithm: str
    settings: object
    ranks: int
    cores: int
    blocks: int
    block_s: float
    probes: tuple[int, ...]  # bytes


def measure(name: str, group: World, section: Settings, seed: int) -> list[dict]:
    """The rows of a number of ranks: for each rank and block one of training, and one of each sum by itself."""
    task = Task(
        *(name, section.algorithm, settings_of(name, section, group.ranks, seed), group.ranks),
        *(provenance.core_count(), *timing.asked(section), section.probes),
    )
    variables = {"WORLD_SIZE": str(group.ranks), "MASTER_ADDR": HOST, "MASTER_PORT": str(free_port())}
    variables |= {"GLOO_SOCKET_IFNAME": INTERFACE}
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([__name__])  # so that torch is imported once
    with ProcessPoolExecutor(group.ranks, server, command.worker) as pool:
        ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(group.ranks)]
        started = [pool.submit(rows_of_rank, task, variables | rank) for rank in ranks]
        try:
            return rows_of_all(started)
        except ValueError as error:  # of an algorithm that trains in one process alone, say
            raise UserError(f"weak_scaling {name}: {section.algorithm} in {group.label}: {error}") from error


def rows_of_all(started: Sequence[Future]) -> list[dict]:
    """The rows of all ranks, or the first error of one that has not merely lost another."""
    errors = [error for rank in started if (error := rank.exception())]
    if errors:
        raise next((error for error in errors if not isinstance(error, ConnectionError)), errors[0])
    return [row for rank in started for row in rank.result()]


def settings_of(name: str, section: Settings, ranks: int, seed: int):
    """Every setting of a run of so many ranks: each has as many environments as the section says, and one thread."""
    one = config_of(agents.algorithm(section.algorithm), name, **section.settings.plain())
    changed = {"num_envs": ranks * one.num_envs, "total_steps": ENDLESS, "threads": 1, "seed": seed}
    return dataclasses.replace(one, **changed)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        return listening.getsockname()[1]


# ---- In a rank -----------------------------------------------------------------------------------------------------


class Sums:
    """`all_reduce` that notes sizes in bytes, with how often each came, and seconds, since `clear`."""

    def __init__(self):
        self.plain = distributed.all_reduce
        self.clear()

    def clear(self) -> None:
        self.sizes, self.seconds = Counter(), 0.0

    def __call__(self, tensor: torch.Tensor, *arguments) -> None:
        start = time.perf_counter()
        self.plain(tensor, *arguments)
        self.seconds += time.perf_counter() - start
        self.sizes[tensor.nbytes] += 1


@dataclass(frozen=True)
class Together:
    """Clocks that read the same in every rank, so that all decide alike when a block ends and what is repeated."""

    ranks: int
    all_reduce: Callable

    def clock(self) -> float:
        """The moment at which the last rank asks; the processes of a machine have one clock."""
        return self._over([time.perf_counter()], distributed.ReduceOp.MAX)[0]

    def spent(self) -> timing.Spent:
        """Spent by all ranks."""
        return timing.Spent(*self._over(list(timing.spent()), distributed.ReduceOp.SUM))

    def _over(self, numbers: list[float], operation) -> list[float]:
        if self.ranks == 1:
            return numbers
        told = torch.tensor(numbers, dtype=torch.float64)
        self.all_reduce(told, operation)
        return told.tolist()


def rows_of_rank(task: Task, variables: Mapping[str, str]) -> list[dict]:
    """The rows of one rank, in a process of its own."""
    os.environ |= variables
    torch.set_num_threads(1)
    sums = distributed.all_reduce = Sums()
    together = Together(task.ranks, sums.plain)
    ranks = Ranks("cpu")  # before anything that may fail in one of them, for which the others would wait
    try:
        run = agents.algorithm(task.algorithm)(task.environment, task.settings, "cpu")
        while run.iteration == 0 or not run.learns:
            run.iterate()
        training = blocks_of(run.iterate, together, sums, task, task.block_s)
        run.statistics()  # raises where something is not finite
        steps = run.env_steps // run.iteration
        same = {"environment": task.environment, "algorithm": task.algorithm, "ranks": task.ranks}
        same |= {"cores": task.cores, "rank": ranks.rank, "num_envs": task.settings.num_envs // task.ranks}
        rows = [
            same | {"part": growth.TRAINING, "per_iteration": None, "env_steps": steps * row["iterations"]} | row
            for row in training
        ]
        if task.ranks > 1:
            rows += lone_sums(run, together, sums, task, same)
    finally:
        ranks.close()  # the others wait for this one no longer
    return rows


def lone_sums(run, together: Together, sums: Sums, task: Task, same: Mapping) -> list[dict]:
    """Rows of sums that nothing stands between: of each size that an iteration has, and of the probes."""
    sums.clear()
    run.iterate()
    often = dict(sums.sizes)
    rows = []
    for size in sorted({*often, *task.probes}):
        tensor = torch.zeros(size // 4, dtype=torch.float32)
        timed = blocks_of(lambda tensor=tensor: sums(tensor), together, sums, task, LONE_SHARE * task.block_s)
        about = {"part": growth.LONE, "per_iteration": often.get(size, 0), "env_steps": None}
        rows += [same | about | row | {"iterations": None} for row in timed]
    return rows


def blocks_of(work: Callable[[], None], together: Together, sums: Sums, task: Task, least_s: float) -> list[dict]:
    """Timed blocks of calls of `work`, once they have warmed up.

    With more threads than cores the ranks themselves keep each other from them, and nothing can be said of other
    processes.
    """
    calls = timing.calls_per_block(work, timing.nothing, least_s, together.clock)

    def block() -> dict:
        start = together.clock()
        sums.clear()
        before, done, wall_s, more = timing.spent(), 0, 0.0, calls
        while wall_s < least_s:
            for _ in range(more):
                work()
            done, wall_s, more = done + more, together.clock() - start, math.ceil(calls / 16)
        cpu_s = timing.spent().cpu_s - before.cpu_s
        size = sum(size * often for size, often in sums.sizes.items())
        counted = {"iterations": done, "calls": sums.sizes.total(), "bytes": size}
        return counted | {"wall_s": wall_s, "cpu_s": cpu_s, "sum_s": sums.seconds}

    def speed() -> float:
        row = block()
        return row["iterations"] / row["wall_s"]

    timing.warm_up(speed)

    def attempt() -> list[dict]:
        return [block() for _ in range(task.blocks)]

    crowded = task.ranks > 1 and task.ranks * THREADS > task.cores
    measured, had = (attempt(), math.nan) if crowded else timing.undisturbed(attempt, together.spent)
    return [row | {"block": number, "had": had} for number, row in enumerate(measured)]


# ---- Planning and telling ------------------------------------------------------------------------------------------


def check(name: str, section: Settings, seed: int) -> None:
    """ConfigError where the section names no algorithm, or settings that it does not allow."""
    place = f"{config.shown(config.file_of(name))}: weak_scaling"
    if section.algorithm not in agents.names():
        unknown = f"there is no algorithm {section.algorithm!r}{nearest(section.algorithm, agents.names())}"
        raise ConfigError(f"{place}.algorithm: {unknown}")
    for size in section.probes:
        if size % 4:
            raise ConfigError(f"{place}.probes: {size} is no number of whole float32, a multiple of 4")
    try:
        for ranks in section.ranks:
            settings_of(name, section, ranks, seed)
    except ValueError as error:
        raise ConfigError(f"{place}.settings: {error}") from error


def plan(request: Request) -> Plan:
    name, section, seed = request.environment, request.settings.weak_scaling, request.settings.seed
    check(name, section, seed)
    return Plan(
        by_label([World(ranks) for ranks in section.ranks] if "cpu" in request.devices else []),
        each(lambda group: measure(name, group, section, seed)),
        config=request.asked(),
        method=timing.method(*timing.asked(section), again=False)
        | {"transport": "gloo through the loopback interface"},
    )


def report(frame: pd.DataFrame, settings: Settings, *_) -> str:
    """Rates and times of every number of ranks, and those that the model gives of them, as lines to print."""
    model = growth.model_of(frame)
    lines = ["ranks: steps/s of all; ms of an iteration, by the model, in sums, by themselves, CPU of each; efficiency"]
    for row in growth.summary(frame).itertuples():
        modelled = model.iteration_s(row.ranks) if model else math.nan
        times = (row.iteration_s, modelled, row.sum_s, row.lone_s, row.cpu_s)
        words = " ".join(f"{1e3 * seconds:9.3f}" for seconds in times)
        crowded = f" {row.ranks} ranks on {row.cores} cores" if row.crowded else ""
        lines.append(f"  {row.ranks:5} {row.rate:13,.0f} {words} {row.efficiency:6.1%}{crowded}")
    return "\n".join(lines)


EXPERIMENT = Experiment(
    COLUMNS, plan, report, in_pieces=True, quick=False, choices=("ranks", "links", "nodes"), gpu=False
)
