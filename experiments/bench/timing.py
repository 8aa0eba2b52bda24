"""Time that something takes: warm-up, blocks, wall and CPU seconds.

A block calls `run` a fixed number of times, chosen once so that it lasts `min_block_s`, with the device
synchronised before the clock starts and before it stops. Blocks are thrown away until three in a row agree
within 5 %. Where other processes kept these from the cores, they are measured again, and say so if that did not help.

A virtual core may be one of two threads of a core. The other one's work, perhaps another machine's, slows it down for
seconds at a time, and no clock of the system shows that. So a short fixed piece of work is run beside each block on the
CPU, and blocks beside which it was slow are measured again.
"""

import contextlib
import math
import os
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

MIN_BLOCK_S = 0.2
AGREEING_BLOCKS = 3
AGREEMENT = 1.05  # slowest over fastest of the agreeing blocks
MAX_WARM_UP_BLOCKS = 8  # a machine that never settles is measured as it is; the interval shows it
ENOUGH = 0.9  # share of the time in which threads could run that they must have had a core; below it a machine is busy
ATTEMPTS = 3  # of measuring on a machine that is
SLOWED = 1.2  # pace over the least one, beyond which a core is taken to be slowed down
PIECE = 30_000  # turns of a loop of Python's, two milliseconds or so
LEAST_PACE = "LOCKSTEP_LEAST_PACE"  # in the environment of processes that this one starts
THREADS = Path("/proc/self/task")
T = TypeVar("T")


class Block(NamedTuple):
    """One timed block: live environment steps (or what else `run` counts), wall and CPU seconds.

    had: share of the time in which threads could run that they had a core, over all blocks of a measurement; or NaN.
    """

    steps: int
    wall_s: float
    cpu_s: float
    had: float = math.nan

    @property
    def rate(self) -> float:
        return self.steps / self.wall_s


def cpu_seconds() -> float:
    """CPU seconds of this process, all its threads, and its children that have ended, user and system."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Spent(NamedTuple):
    """CPU seconds so far, and seconds in which threads could have run and had no core."""

    cpu_s: float
    waited_s: float

    def had_since(self, before: "Spent") -> float:
        """Share of the time in which threads could run that they had a core; NaN where the system does not tell."""
        ran, waited = self.cpu_s - before.cpu_s, max(self.waited_s - before.waited_s, 0.0)
        return ran / (ran + waited) if ran > 0 else 1.0


def spent() -> Spent:
    """Spent by this process; its children count with their CPU seconds once they have ended."""
    return Spent(cpu_seconds(), waited_seconds())


def waited_seconds() -> float:
    """Seconds that the threads there are have waited for a core, as Linux's scheduler counts them; NaN elsewhere."""
    waited = math.nan if not THREADS.is_dir() else 0.0
    for thread in THREADS.glob("*/schedstat"):
        with contextlib.suppress(OSError):  # it has ended
            waited += int(thread.read_text().split()[1]) / 1e9
    return waited


def undisturbed(attempt: Callable[[], T], clocks: Callable[[], Spent] = spent) -> tuple[T, float]:
    """The result of an attempt in which threads had the cores they could use, or of the best of ATTEMPTS; their share.

    clocks: of the processes that do the work.
    """
    best: tuple[T, float] | None = None
    for _ in range(ATTEMPTS):
        before, found = clocks(), attempt()
        had = clocks().had_since(before)
        if best is None or had > best[1]:
            best = found, had
        if not had < ENOUGH:
            break
    return best


class Pace:
    """CPU seconds of a fixed piece of work.

    least: of all so far, in this process and before it in those that started it.
    """

    def __init__(self):
        self.least = float(os.environ.get(LEAST_PACE, math.inf))

    def __call__(self) -> float:
        start, total = time.thread_time(), 0
        for number in range(PIECE):
            total += number * number
        spent = time.thread_time() - start
        if spent < self.least:
            self.least, os.environ[LEAST_PACE] = spent, repr(spent)
        return spent


PACE = Pace()


class Unslowed:
    """Results of blocks, and whether the core was slowed down beside each.

    The piece of work runs when this is made and after each block. Nothing marks slow blocks that stand in for others.

    count: of the results that are wanted.
    """

    def __init__(self, count: int, pace: Pace = PACE):
        self.count, self.pace, self.before = count, pace, pace()
        self.found: list[tuple[float, object]] = []

    def add(self, result: object) -> bool:
        """Takes the result of a block; tells if there are enough, or ATTEMPTS times as many as are wanted."""
        after = self.pace()
        self.found.append((max(self.before, after), result))
        self.before = after
        quiet = sum(slowest <= SLOWED * self.pace.least for slowest, _ in self.found)
        return quiet >= self.count or len(self.found) >= ATTEMPTS * self.count

    @property
    def results(self) -> list:
        """As many as are wanted, slow ones last; each kind in the order of measuring."""
        by_kind = sorted(self.found, key=lambda one: one[0] > SLOWED * self.pace.least)
        return [result for _, result in by_kind[: self.count]]


def unslowed(block: Callable[[], T], count: int, device: str = "cpu", pace: Pace = PACE) -> list[T]:
    """So many results of a block, which is measured again where the core was slowed down.

    What shares the host's cores does not slow down a GPU: there every call's result counts.
    """
    if device != "cpu":
        return [block() for _ in range(count)]
    found = Unslowed(count, pace)
    while not found.add(block()):
        pass
    return found.results


def asked(scale: Mapping) -> tuple[int, float]:
    """The number of blocks and the least length of one that a section's settings at a scale ask for."""
    return scale["blocks"], scale.get("block_s", MIN_BLOCK_S)


def nothing() -> None:
    """Synchronise a device that works at once."""


def measure(
    run: Callable[[], int | None],
    *,
    steps_per_call: int | None = None,
    synchronize: Callable[[], None] = nothing,
    blocks: int,
    min_block_s: float = MIN_BLOCK_S,
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
    clocks: Callable[[], Spent] = spent,
    pace: Pace = PACE,
) -> list[Block]:
    """Time `run` in `blocks` blocks of at least `min_block_s` seconds each.

    steps_per_call: what one call counts for; None where it varies, then `run` returns it.
    clocks: to be given where processes that still live do the work.
    """

    def block(calls: int) -> Block:
        synchronize()
        before, start = clocks(), clock()
        steps, wall_s, more = 0, 0.0, calls
        while wall_s < min_block_s:
            for _ in range(more):
                counted = run()
                steps += counted if steps_per_call is None else steps_per_call
            synchronize()
            wall_s = clock() - start
            # A block that came out short goes on in small pieces: dropping it would drop the fast ones.
            more = math.ceil(calls / 16)
        return Block(steps, wall_s, clocks().cpu_s - before.cpu_s)

    calls = calls_per_block(run, synchronize, min_block_s, clock)
    warm_up(lambda: block(calls).rate)
    measured, had = undisturbed(lambda: unslowed(lambda: block(calls), blocks, device, pace), clocks)
    return [one._replace(had=had) for one in measured]


def calls_per_block(
    run: Callable[[], object],
    synchronize: Callable[[], None],
    min_block_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """Number of calls that last `min_block_s`, from a quarter of that time, doubling from one call."""
    calls = 1
    while True:
        synchronize()
        start = clock()
        for _ in range(calls):
            run()
        synchronize()
        wall_s = clock() - start
        if wall_s >= min_block_s / 4:
            return math.ceil(calls * min_block_s / wall_s)
        calls *= 2


def warm_up(rate: Callable[[], float]) -> bool:
    """Call `rate` until its last three values agree within 5 %, a limited number of times; tells if they did."""
    rates = []
    while len(rates) < MAX_WARM_UP_BLOCKS:
        rates.append(rate())
        last = rates[-AGREEING_BLOCKS:]
        if len(last) == AGREEING_BLOCKS and max(last) <= AGREEMENT * min(last):
            return True
    return False


def expected_s(blocks: int, min_block_s: float = MIN_BLOCK_S) -> float:
    """Seconds that `measure` takes by estimate of work whose calls are short against a block.

    Finding their number counts as a block; then come the longest warm-up and the blocks. It is no bound: work that
    has become slower since its calls were counted takes as much longer, and so do blocks that are measured again, up to
    ATTEMPTS^2 times in all.
    """
    return (1 + MAX_WARM_UP_BLOCKS + blocks) * min_block_s


def method(blocks: int, min_block_s: float = MIN_BLOCK_S, again: bool = True) -> dict:
    """The rules above, as they go into a result's provenance.

    again: blocks beside which a core was slowed down are measured again.
    """
    slowed = f"on the CPU, a piece of work beside a block over {SLOWED:g} times its least; up to {ATTEMPTS} attempts"
    return {
        "blocks": blocks,
        "min_block_s": min_block_s,
        "warm_up": f"until {AGREEING_BLOCKS} blocks agree within {round(100 * (AGREEMENT - 1))} %, "
        f"at most {MAX_WARM_UP_BLOCKS}",
        "synchronise": "before and after each block",
        "cpu_s": "user and system, process and children",
        **({"slowed": slowed} if again else {}),
        "busy": f"below {ENOUGH:.0%} of a core while a thread could run; up to {ATTEMPTS} attempts",
    }
