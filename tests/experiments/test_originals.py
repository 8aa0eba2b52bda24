"""Processes that work is shared out over end with the one that shares it."""

import os
import signal
import subprocess
import sys

import pytest

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
