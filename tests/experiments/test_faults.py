"""Experiments whose files cannot be written at some moment: no finished group is lost, and the next run goes on."""

import contextlib
import errno
import gc
import multiprocessing
import os
import random
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest

from lockstep.experiments import UserError, command, run
from lockstep.experiments.ledger import results
from tests import kills
from tests.faults import Faults, failing, files_of_at_most

FORK = multiprocessing.get_context("fork")
GROUPS = {name: [{"group": name, "block": k, "steps": 100 * k} for k in range(40)] for name in "abcdef"}


def measured(path, added: list[str]) -> list[dict]:
    """The rows of a run that goes on from what lies there; notes the groups that it has added."""
    journal = results.Journal(path, ["group", "block", "steps"], "ceilings", None, "quick", {})
    assert set(journal.groups) >= set(added)  # what was finished before
    for group, rows in GROUPS.items():
        if group not in journal:
            journal.add(group, rows)
            added.append(group)
    journal.finish()
    return results.read(path)[0].to_dict("records")


EXPECTED = [row for rows in GROUPS.values() for row in rows]


@contextlib.contextmanager
def told():
    """A failure is told in a sentence; the journal of the run that had it is gone, as with the end of a process."""
    with contextlib.suppress(UserError):
        yield
    gc.collect()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("trials", [5, pytest.param(70, marks=pytest.mark.long)])
def test_a_failing_call_loses_no_finished_group(tmp_path, number, trials):
    count = Faults()
    with failing(count):
        assert measured(tmp_path / "whole.csv", []) == EXPECTED
    draw = random.Random(number)
    for trial in range(trials):
        path, added = tmp_path / f"{trial}.csv", []
        for at in (draw.randint(1, count.calls), draw.randint(1, count.calls)):
            with told(), failing(Faults(at, number)):
                measured(path, added)
            if path.with_suffix(".json").exists():
                break
        else:
            assert measured(path, added) == EXPECTED
        assert results.read(path)[0].to_dict("records") == EXPECTED and len(added) == len(set(added))


@pytest.mark.parametrize("trials", [5, pytest.param(70, marks=pytest.mark.long)])
def test_a_full_disk_loses_no_finished_group(tmp_path, trials):
    draw = random.Random(2)
    assert measured(tmp_path / "whole.csv", []) == EXPECTED
    length = os.path.getsize(tmp_path / "whole.csv")
    for trial in range(trials):
        path, added = tmp_path / f"{trial}.csv", []
        with told(), files_of_at_most(draw.randrange(length)):
            measured(path, added)
        assert measured(path, added) == EXPECTED and added == list(GROUPS)


def pooled(killed: str) -> None:
    """A run whose pool loses a worker, or none, and which then waits for its parts."""
    sys.stderr = open(os.environ["SAID"], "w")  # noqa: SIM115 - to the end of the process
    with command.watching_workers():
        pool = FORK.Pool(2)
        parts = pool.map_async(time.sleep, [0.3] * 4)
        if killed == "a worker":
            os.kill(pool._pool[0].pid, signal.SIGKILL)
        parts.get()
        pool.terminate()  # which is no loss


@pytest.mark.parametrize(("killed", "status"), [("a worker", 1), ("none", 0)])
def test_a_run_that_loses_a_worker_ends_in_a_sentence(tmp_path, monkeypatch, killed, status):
    """A pool alone waits for ever for the part that was lost."""
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    process = FORK.Process(target=pooled, args=(killed,))
    process.start()
    process.join(30)
    assert process.exitcode == status
    expected = f"error: {command.KILLED}\n" if status else ""
    assert (tmp_path / "said").read_text() == expected


def kept_busy(start: str, told) -> None:
    """A process that has a pool, and then waits for ever."""
    os.setsid()
    context = multiprocessing.get_context(start)
    with ProcessPoolExecutor(2, context, command.worker) as pool:
        assert list(pool.map(abs, [-1, 2])) == [1, 2]
        told.send(True)
        time.sleep(60)


@pytest.mark.parametrize("start", ["fork", "forkserver"])
def test_a_pool_ends_with_the_process_that_has_it(start):
    """Its workers would else wait for work for ever."""
    listening, told = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=kept_busy, args=(start, told))
    process.start()
    assert listening.recv()
    started = kills.session(process.pid) - {process.pid}
    assert len(started) >= 2
    process.kill()
    process.join()
    assert kills.comes(lambda: not kills.session(process.pid), 10), f"left: {kills.session(process.pid)}"


def test_outside_of_a_run_nothing_is_watched():
    with command.watching_workers():
        pass
    process = FORK.Process(target=time.sleep, args=(60,))
    process.start()
    process.kill()
    process.join()
    time.sleep(3 * command.LOOK_EVERY_S)  # this process is still there


@pytest.mark.parametrize("lost", [EOFError, ConnectionResetError, BrokenProcessPool])
def test_a_timed_run_that_loses_a_process_says_so(monkeypatch, lost):
    def measure(*_):
        raise lost

    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(sys, "argv", ["run", "ceilings"])
    with pytest.raises(UserError, match="a process that it had started was killed"):
        run.main()
