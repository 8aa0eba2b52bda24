"""Processes of their own that begin with all imports of training done: a server of this process has them, and forks."""

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.agents.training_worker"])


def process(said: Path | str, work: Callable, *arguments, daemon: bool = False, **environment: str) -> BaseProcess:
    """A process that works, and writes what it says to a file or a terminal."""
    started = CONTEXT.Process(target=_begin, args=(str(said), environment, work, arguments), daemon=daemon)
    started.start()
    return started


def status(process: BaseProcess, timeout_s: float = 60) -> int:
    """The exit status; a process that goes on is killed."""
    process.join(timeout_s)
    process.kill()
    process.join()
    return process.exitcode


def _begin(said: str, environment: dict[str, str], work: Callable, arguments: tuple) -> None:
    os.environ |= environment
    sys.stdout = sys.stderr = open(said, "a")  # noqa: SIM115 - as long as the process
    work(*arguments)


def command_line(algorithm: str, *arguments: str) -> None:
    """The work of `python -m lockstep.agents.<algorithm> <arguments>`."""
    from lockstep.agents.run import command_line

    sys.argv = [algorithm, *arguments]
    command_line.main(algorithm)
