"""Parts of a ladder: a setting to measure, a loop for the clock, a rung.

rungs.py holds the rungs themselves. Every rung draws its actions inside the timed loop, on the device it steps on.
"""

import ctypes
import gc
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch

from lockstep.envs.checks import available_memory
from lockstep.experiments import experiment
from lockstep.experiments.bench import timing
from lockstep.experiments.config import Settings

ON_CPU = {"threaded": True}
ON_CUDA = {"device": "cuda"}
MEMORY_SHARE = 0.8  # of what is free that a group may take
CALL_S = 0.03  # of processes on all cores between two answers: waiting for the slowest then costs little
OWNERS = {"cpu": "the host", "cuda": "the GPU"}  # of memory
# Allowances of a prediction, in seconds: of a process until its first group, of a group that is set up and called once,
# and of compiling what a rung of the port needs, with nothing cached.
START_S, SET_UP_S, COMPILE_S = 8.0, 1.0, {"cpu": 10.0, "cuda": 5.0}


@dataclass(frozen=True)
class Group(experiment.Group):
    """One measurement: a rung at one size and setting."""

    rung: str
    device: str
    num_envs: int
    threads: int  # of the CPU; processes in original-all-cores
    fused_steps: int  # K steps in one call of the port, else 1
    policy: str  # random | fixed | constant (always the same action) | mlp
    obs: str  # copy | view


@dataclass
class Loop:
    """A rung's loop, as the clock takes it."""

    run: Callable[[], int | None]
    steps_per_call: int | None  # None: `run` returns its live steps
    dtype: str  # of the state
    bytes_per_step: float | None = None  # memory traffic of one step of one environment, where it is counted
    clocks: Callable[[], timing.Spent] = timing.spent


@dataclass(frozen=True)
class Rung:
    """A way to step an environment, and what about it may vary."""

    loop: Callable  # (name, group, settings): a context that sets a Loop up, yields it, and cleans up
    device: str = "cpu"
    batched: bool = True  # num_envs varies
    threaded: bool = False  # threads vary
    fused: bool = False  # fused_steps vary
    policies: tuple[str, ...] = ("random", "fixed")
    missing: Callable[[str, Settings], str | None] = lambda name, settings: None  # why it cannot run for a name here


class Clocked(NamedTuple):
    """The times of a loop."""

    blocks: list[timing.Block]
    first_call_s: float  # setting up, compilation included, and one call
    memory_mib: float | None  # in use more than before, by this process; None where others do the work
    dtype: str
    bytes_per_step: float | None


def clocked(
    loop_of: AbstractContextManager[Loop], device: str, blocks: int, block_s: float = timing.MIN_BLOCK_S
) -> Clocked:
    """Sets up a rung's loop on a device, calls it once, measures so many blocks, and lets go of its memory."""
    synchronize = torch.cuda.synchronize if device == "cuda" else timing.nothing
    let_go(device)
    before, start = memory_used(device), time.perf_counter()
    with loop_of as loop:
        loop.run()
        synchronize()
        first_call_s = time.perf_counter() - start
        measured = timing.measure(
            loop.run,
            steps_per_call=loop.steps_per_call,
            synchronize=synchronize,
            blocks=blocks,
            min_block_s=block_s,
            device=device,
            clocks=loop.clocks,
        )
        alone = loop.clocks is timing.spent
        memory_mib = (memory_used(device) - before) / 2**20 if alone else None
        found = Clocked(measured, first_call_s, memory_mib, loop.dtype, loop.bytes_per_step)
    del loop  # which holds the environment, whose memory the next group may need
    let_go(device)
    return found


def let_go(device: str) -> None:
    """Gives back the memory that nothing uses any more."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # of glibc, which else takes from what it has kept
        trim(0)
    if device == "cuda":
        import cupy

        torch.cuda.empty_cache()
        cupy.get_default_memory_pool().free_all_blocks()


def memory_used(device: str) -> int:
    """Bytes in use now, all of this process: on the GPU those that torch and CuPy have reserved."""
    if device == "cuda":
        import cupy

        return torch.cuda.memory_reserved() + cupy.get_default_memory_pool().total_bytes()
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except FileNotFoundError:  # macOS, which tells the most that there ever was, in bytes
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def too_large(needed: Mapping[str, float]) -> str | None:
    """The reason why a group that needs so many bytes of each device ("cpu": of the host) does not fit, or None."""
    for device, size in needed.items():
        free = available_memory(torch.device(device))
        if size > MEMORY_SHARE * free:
            return (
                f"it needs {size / 2**30:.1f} GiB of {OWNERS[device]}'s memory, "
                f"{MEMORY_SHARE:.0%} of {free / 2**30:.1f} GiB free may be used"
            )
    return None


def all_cores(stepper: Callable[[str, Group, Settings], Callable[[int], None]]) -> Callable:
    """A rung with one process per core, each stepping one original; pipes carry step counts, no observations.

    Args:
        stepper: a module's function; what it returns steps an original so many times.
    """

    @contextmanager
    def rung(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
        context = multiprocessing.get_context("spawn")
        pipes, workers = [], []
        for number in range(group.threads):
            pipe, theirs = context.Pipe()
            own = Settings({**settings.plain(), "seed": settings.seed + number})
            workers.append(
                context.Process(target=step_on_demand, args=(theirs, stepper, name, group, own), daemon=True)
            )
            workers[-1].start()
            pipes.append(pipe)
            theirs.close()
        spent = [timing.Spent(0.0, 0.0)] * len(pipes)  # by each worker when it last answered

        def run() -> int:
            for pipe in pipes:
                pipe.send(CALL_S)
            steps = 0
            for number, pipe in enumerate(pipes):
                stepped, *clocks = pipe.recv()
                spent[number], steps = timing.Spent(*clocks), steps + stepped
            return steps

        def clocks() -> timing.Spent:
            return timing.Spent(time.process_time() + sum(cpu_s for cpu_s, _ in spent), sum(s for _, s in spent))

        try:
            yield Loop(run, None, "float64", clocks=clocks)
        finally:
            for pipe in pipes:
                pipe.close()
            for worker in workers:
                worker.join()

    return rung


def step_on_demand(pipe, stepper: Callable, name: str, group: Group, settings: Settings) -> None:
    """A worker of `all_cores`: steps for so many seconds as it is told, answers with its steps and what it has spent.

    It looks at the clock some twenty times meanwhile, however long a step takes.
    """
    run, at_once = stepper(name, group, settings), 1
    try:
        while True:
            seconds, steps = pipe.recv(), 0
            start = last = time.perf_counter()
            while last - start < seconds:
                run(at_once)
                steps, now = steps + at_once, time.perf_counter()
                at_once = at_once * 2 if now - last < seconds / 20 else max(at_once // 2, 1)
                last = now
            pipe.send((steps, time.process_time(), timing.waited_seconds()))
    except EOFError:  # the other end is closed: the measurement is over
        pass
