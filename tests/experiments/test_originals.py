"""Processes that work is shared out over end with the one that shares it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from lockstep.experiments import originals
from lockstep.experiments.ledger import provenance

BUSY = """
import os, time
from lockstep.experiments import command, originals

def main():
    originals.allot(2)
    print(originals.workers().apply(os.getpid), flush=True)
    time.sleep(600)

command.alone(main)
"""


@pytest.mark.slow
def test_a_signal_to_all_processes_at_once_leaves_none_waiting():
    """One that waits for work holds the lock of the queue; killed there it would keep the first from ending."""
    process = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout.readline().strip().isdecimal()
    os.killpg(process.pid, signal.SIGTERM)
    try:
        assert process.wait(timeout=60) == 128 + signal.SIGINT
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def here(group: int) -> list[dict]:
    return [{"group": group, "process": os.getpid(), "cores": originals.cores()}]


@pytest.mark.parametrize("cores", [1, 2])
def test_groups_of_one_core_each_are_measured_side_by_side_where_there_are_more(monkeypatch, cores):
    monkeypatch.setattr(provenance, "core_count", lambda: 2)
    originals.allot(cores)
    try:
        with originals.side_by_side(here)([3, 1, 2]) as rows_of:
            rows = [row for group in (3, 1, 2) for row in rows_of(group)]
    finally:
        originals.allot(None)
    assert [row["group"] for row in rows] == [3, 1, 2] and {row["cores"] for row in rows} == {1}
    assert (os.getpid() in {row["process"] for row in rows}) == (cores == 1)


def slow_or_wrong(group: int) -> list[dict]:
    if group == 0:
        raise ArithmeticError("of the first")
    time.sleep(60)


def test_an_error_in_one_group_ends_the_others(monkeypatch):
    monkeypatch.setattr(provenance, "core_count", lambda: 2)
    start = time.monotonic()
    with pytest.raises(ArithmeticError, match="of the first"), originals.side_by_side(slow_or_wrong)([0, 1, 2]) as rows:
        rows(0)
    assert time.monotonic() - start < 50 and not originals.workers.cache_info().currsize
