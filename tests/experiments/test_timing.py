import math
import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.experiments.bench import timing


class Paces(timing.Pace):
    """A pace that takes what it is given, the last of it for ever."""

    def __init__(self, *given):
        self.least, self.given = math.inf, list(given)

    def __call__(self):
        spent = self.given.pop(0) if len(self.given) > 1 else self.given[0]
        self.least = min(self.least, spent)
        return spent


class Machine:
    """A clock that advances by what each call costs, in seconds; the costs are used one after the other."""

    def __init__(self, *costs, cores=1.0):
        self.now, self.calls, self.synchronised, self.costs, self.cores = 0.0, 0, 0, costs, cores

    def run(self):
        self.now += self.costs[min(self.calls, len(self.costs) - 1)]
        self.calls += 1

    def synchronize(self):
        self.synchronised += 1

    def measure(self, run=None, **options):
        given = {"clock": lambda: self.now, "clocks": lambda: timing.Spent(self.cores * self.now, 0.0)}
        given |= {"synchronize": self.synchronize, "pace": Paces(1.0)}
        return timing.measure(run or self.run, **given | options)


def test_blocks_of_a_steady_machine():
    """10 ms per call of 7 steps on 2 cores: 20 calls fill a block of 0.2 s, 140 steps, 0.4 CPU-seconds."""
    blocks = Machine(0.01, cores=2).measure(steps_per_call=7, blocks=3)
    assert len(blocks) == 3
    for block in blocks:
        assert block.steps in (140, 147)  # the sum of 20 times 0.01 may round below 0.2
        assert block.wall_s == pytest.approx(block.steps / 700)
        assert block.cpu_s == pytest.approx(2 * block.wall_s)
        assert block.rate == pytest.approx(700)


@given(cost=st.floats(1e-5, 3), blocks=st.integers(1, 4))
def test_every_block_lasts_long_enough(cost, blocks):
    measured = Machine(cost).measure(steps_per_call=1, blocks=blocks)
    assert len(measured) == blocks
    assert all(block.wall_s >= timing.MIN_BLOCK_S for block in measured)


def test_a_block_that_came_out_short_goes_on():
    """Calibrated at 0.1 s per call, then 16 times as fast: no block is shorter than asked for."""
    measured = Machine(*[0.1] * 2, 0.1 / 16).measure(steps_per_call=1, blocks=2)
    assert all(0.2 <= block.wall_s < 0.25 for block in measured)


def test_run_may_count_its_own_steps():
    machine = Machine(0.05)

    def run():
        machine.run()
        return 3 if machine.calls % 2 else 1  # 2 on average

    blocks = machine.measure(run, blocks=2)
    assert [block.rate for block in blocks] == pytest.approx([40, 40])


def test_the_device_is_synchronised_before_and_after_each_block():
    machine = Machine(0.3)  # one call is a block
    machine.measure(steps_per_call=1, blocks=4)
    calibration, warm_up = 1, 3
    assert machine.calls == calibration + warm_up + 4
    assert machine.synchronised == 2 * machine.calls


@pytest.mark.parametrize(
    ("paces", "kept", "used"),
    [
        ([1.0, 1.1, 1.0, 1.1], [0, 1, 2], 3),
        ([1.0, 1.4, 1.4, 1.0, 1.0, 1.1, 1.0], [3, 4, 5], 6),  # a block is slow if it is on either side
        ([1.4, 1.4, 1.4, 1.0, 1.0, 1.0, 1.0], [3, 4, 5], 6),  # what is slow shows once it is not
        ([1.0, 1.0, 1.4], [0, 1, 2], 3 * timing.ATTEMPTS),  # of slow ones the first, after all attempts
        ([1.4], [0, 1, 2], 3),  # never anything else
    ],
)
def test_blocks_beside_which_a_core_was_slowed_down_are_measured_again(paces, kept, used):
    numbers = iter(range(100))
    assert timing.unslowed(lambda: next(numbers), 3, pace=Paces(*paces)) == kept
    assert next(numbers) == used


def test_a_device_of_its_own_is_not_measured_again():
    numbers, pace = iter(range(100)), Paces(1.0, 9.0)
    assert timing.unslowed(lambda: next(numbers), 3, "cuda", pace) == [0, 1, 2]
    assert len(pace.given) == 2


def test_a_measurement_leaves_out_what_was_slowed_down():
    """One call is a block: one calibrates, three warm up, of the others the second and third lie beside a slow core."""
    machine = Machine(*[0.3] * 5, 0.5, 0.5, 0.3)
    blocks = machine.measure(steps_per_call=1, blocks=3, pace=Paces(1.0, 1.0, 1.5, 1.0, 1.0))
    assert [block.wall_s for block in blocks] == pytest.approx([0.3] * 3)
    assert machine.calls == 1 + 3 + 5


@pytest.mark.parametrize("blocks", [6, 30])
def test_a_measurement_takes_about_as_long_as_predicted(blocks):
    """Work of 10 ms a call that is slower in every other 0.2 s, so that warm-up takes its time, and blocks too."""
    machine = Machine()

    def run():
        machine.now += 0.011 if int(machine.now / 0.2) % 2 else 0.01

    machine.measure(run, steps_per_call=1, blocks=blocks)
    assert 0.2 * (timing.AGREEING_BLOCKS + blocks) < machine.now <= 1.1 * timing.expected_s(blocks)


def test_the_least_pace_is_known_to_processes_that_are_started_later(monkeypatch):
    monkeypatch.setenv(timing.LEAST_PACE, "1e-9")
    assert timing.Pace().least == 1e-9
    monkeypatch.delenv(timing.LEAST_PACE)
    pace = timing.Pace()
    paces = [pace() for _ in range(5)]
    assert pace.least == min(paces) == float(os.environ[timing.LEAST_PACE]) > 0


@pytest.mark.parametrize(
    ("rates", "used", "settled"),
    [
        ([100, 100, 100, 1], 3, True),
        ([50, 100, 104, 101, 1], 4, True),
        ([100, 105.1, 100, 100, 100, 1], 5, True),  # 5.1 % apart
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], timing.MAX_WARM_UP_BLOCKS, False),
    ],
)
def test_warm_up_ends_when_three_blocks_agree_or_at_its_cap(rates, used, settled):
    left = iter(rates)
    assert timing.warm_up(lambda: next(left)) == settled
    assert len(rates) - len(list(left)) == used


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_cpu_seconds_count_threads_and_ended_children_but_no_sleep():
    start = timing.cpu_seconds()
    time.sleep(0.3)
    assert timing.cpu_seconds() - start < 0.1

    start = timing.cpu_seconds()
    thread = threading.Thread(target=spin, args=(0.3,))
    thread.start()
    thread.join()
    assert timing.cpu_seconds() - start >= 0.29

    burn = "import time\nwhile time.process_time() < 0.3: pass"
    start = timing.cpu_seconds()
    subprocess.run([sys.executable, "-S", "-c", burn], check=True)
    assert timing.cpu_seconds() - start >= 0.29


def test_real_clocks():
    """A call that sleeps 5 ms takes hardly any CPU time, and about 5 ms."""
    (block,) = timing.measure(lambda: time.sleep(0.005), steps_per_call=1, blocks=1)
    assert 0.005 <= block.wall_s / block.steps < 0.02
    assert block.cpu_s < 0.5 * block.wall_s


# ---- A busy machine ----


@pytest.mark.parametrize(
    ("waits", "attempts", "had"),  # seconds without a core during each attempt, each of 0.75 CPU-seconds
    [
        ([0.0], 1, 1.0),
        ([0.06], 1, 0.75 / 0.81),
        ([0.3, 0.0], 2, 1.0),
        ([0.3, 0.2, 0.6], 3, 0.75 / 0.95),  # the best of three
        ([math.nan], 1, math.nan),  # a system that does not tell
    ],
)
def test_what_other_processes_slowed_is_measured_again(waits, attempts, had):
    machine, waited, asked = Machine(0.25), [0.0], iter(waits)
    before = 1 + 3  # calls: one to count them, and the shortest warm-up

    def run():
        machine.run()
        if machine.calls > before and (machine.calls - before) % 3 == 1:
            waited[0] += next(asked)

    clocks = lambda: timing.Spent(machine.now, waited[0])  # noqa: E731
    blocks = machine.measure(run, steps_per_call=1, blocks=3, clocks=clocks)
    assert len(blocks) == 3 and machine.calls == before + 3 * attempts
    assert [block.had for block in blocks] == pytest.approx([had] * 3, nan_ok=True)


BURN = "import time\nprint(flush=True)\nend = time.time() + 60\nwhile time.time() < end: pass"


@pytest.fixture
def load():
    """Two processes per core that do nothing but run."""
    burning = [
        subprocess.Popen([sys.executable, "-S", "-c", BURN], stdout=subprocess.PIPE)
        for _ in range(2 * len(os.sched_getaffinity(0)))
    ]
    for process in burning:
        process.stdout.readline()
    yield
    for process in burning:
        process.kill()
        process.communicate()


@pytest.mark.skipif(not timing.THREADS.is_dir(), reason="only Linux tells for how long threads wait")
def test_a_loop_beside_a_load_says_that_the_machine_was_busy(load):
    blocks = timing.measure(lambda: sum(range(1000)), steps_per_call=1, blocks=2)
    assert 0 < blocks[0].had < timing.ENOUGH
    assert blocks[0].cpu_s < timing.ENOUGH * blocks[0].wall_s


@pytest.mark.skipif(not timing.THREADS.is_dir(), reason="only Linux tells for how long threads wait")
def test_sleeping_is_no_waiting():
    waited = []
    for _ in range(3):  # on a busy machine the spinning may wait that long
        before = timing.spent()
        spin(0.02)
        time.sleep(0.3)
        waited.append(timing.spent().waited_s - before.waited_s)
    assert min(waited) < 0.1
