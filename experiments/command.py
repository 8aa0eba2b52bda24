"""Parts that the experiments' command lines share: options, devices, progress, and how a mistake ends a run."""

import argparse
import math
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

from lockstep import interrupt
from lockstep.experiments import UserError
from lockstep.reading import nearest

DEVICES = ("cpu", "cuda")
GRACE_S = 60.0  # by which what is begun in time may be predicted to end late
NOT_FINISHED = 75  # exit status where the time given was over: the same command goes on
KILLED = "a process that it had started was killed, perhaps for want of memory; the same command continues from here"
LOOK_EVERY_S = 0.5
PATIENCE_S = 10.0


class OutOfTime(Exception):
    """The time given is over and something is left; the message says what."""


@contextmanager
def writing(path: Path, kept: Callable[[], str] = str) -> Iterator[None]:
    """A place that cannot be written to, or is full, becomes a UserError; kept() tells what then is not lost."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}{kept()}") from error


def add_minutes(arguments: argparse.ArgumentParser) -> None:
    """The option --minutes, whose value is the moment, on `time.monotonic`, from which nothing more is begun."""
    arguments.add_argument(
        "--minutes",
        type=moment,
        dest="deadline",
        metavar="MINUTES",
        default=math.inf,
        help=f"begin nothing after so many; with something left the status is {NOT_FINISHED} (default: no end)",
    )


def moment(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not minutes > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of minutes above 0")
    return time.monotonic() + 60 * minutes


def count(text: str) -> int:
    if not re.fullmatch("[1-9][0-9]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def output_path(experiment: str, environment: str | None) -> Path:
    """results/<environment>/<experiment>.csv, or results/<experiment>.csv for a machine's own."""
    return Path("results", *([environment] if environment else []), f"{experiment}.csv")


def csv_path(text: str) -> Path:
    if not text.endswith(".csv"):
        raise argparse.ArgumentTypeError(f"{text!r} must end in .csv")
    return Path(text)


def commit_id(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{7,64}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no commit: 7 to 64 digits 0-9 a-f")
    return text


def chosen(what: str, known: Iterable[str], asked: Sequence[str] | None) -> list[str]:
    """Those of the known rungs or peers (`what`) that are asked for, all by default; UserError names an unknown one."""
    known = list(known)
    for name in asked or []:
        if name not in known:
            raise UserError(f"--{what}s: there is no {what} {name!r}{nearest(name, known)}")
    return [name for name in known if not asked or name in asked]


def devices(asked: list[str] | None) -> list[str]:
    """The devices to run on: those asked for, or all present; UserError where cuda is asked for in vain."""
    from lockstep import envs

    if asked is None:
        return ["cpu", "cuda"] if envs.cuda_available() else ["cpu"]
    if "cuda" in asked and not envs.cuda_available():
        raise UserError("--devices cuda: torch finds no CUDA device here; leave the option out or say cpu")
    return [device for device in DEVICES if device in asked]


def progress(
    items: Iterable,
    label: Callable[[object], str],
    deadline: float = math.inf,
    seconds: Callable[[object], float] = lambda item: 0.0,
) -> Iterator:
    """Hand out the items: under a bar on a terminal, with one plain line each in a log.

    seconds: the time that an item is predicted to take, where that is known.

    Raises:
        OutOfTime: the deadline (see `add_minutes`) has passed and there are items left, or the next one is predicted to
            end more than GRACE_S after it.
    """
    items = list(items)
    on_terminal = sys.stderr.isatty()
    if on_terminal:
        from tqdm import tqdm

        bar = tqdm(items, file=sys.stderr)
    for number, item in enumerate(bar if on_terminal else items, 1):
        now = time.monotonic()
        if now >= deadline or now + seconds(item) > deadline + GRACE_S:
            raise OutOfTime(f"{label(item)} is next, {len(items) - number + 1} are left")
        if on_terminal:
            bar.set_description(label(item))
        else:
            print(f"[{number}/{len(items)}] {label(item)}", file=sys.stderr, flush=True)
        yield item


def worker(begin: Callable | None = None, *arguments) -> None:
    """Begin a process of a pool, and end it as soon as its parent has ended, also where that was killed.

    A pool's process waits for work for ever: it holds the other end of what it waits at.
    """
    parent = multiprocessing.parent_process()

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    if begin is not None:
        begin(*arguments)


@contextmanager
def watching_workers() -> Iterator[None]:
    """End this process in a sentence where one that is started in here is killed.

    A pool of processes would wait for that one's part for ever, and might not even be closed.
    """
    started, over, start = [], threading.Event(), BaseProcess.start
    starting = threading.RLock()

    def noted(process: BaseProcess) -> None:
        with starting:
            start(process)
            started.append(process)

    def watch() -> None:
        while not over.wait(LOOK_EVERY_S):
            codes = [process.exitcode or 0 for process in started]
            if any(code < 0 and code != -signal.SIGTERM for code in codes):  # by which pools end their own
                with starting:  # the pool starts nothing more
                    for process in started:
                        process.kill()
                    print(f"error: {KILLED}", file=sys.stderr, flush=True)
                    os._exit(1)

    watcher = threading.Thread(target=watch, daemon=True)
    BaseProcess.start = noted
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        BaseProcess.start = start


def run(main: Callable[[], None]) -> None:
    """Run `main`; a mistake that explains itself ends it with that sentence, an interrupt with status 130.

    A request to terminate is an interrupt, so that whoever has processes ends them. Where the time given is over, the
    status is NOT_FINISHED.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with interrupt.told("interrupted; the same command continues from here"):
            main()
    except OutOfTime as rest:
        print(f"not finished, the time is over: {rest}; the same command continues from here", file=sys.stderr)
        raise SystemExit(NOT_FINISHED) from None
    except Exception as error:
        from lockstep.envs.kernels.compile import CompilerError  # not at the top: torch comes with it, and seconds

        if not isinstance(error, UserError | CompilerError):
            raise
        raise SystemExit(f"error: {error}") from None
    finally:
        signal.signal(signal.SIGTERM, before)


def alone(main: Callable[[], None]) -> None:
    """`run` as all that a process is for: one that is interrupted waits PATIENCE_S for those that it has started.

    A signal to all of them at once may have ended one that held the lock of a queue, for which a pool would wait.
    """

    def leave() -> None:
        for process in multiprocessing.active_children():
            process.kill()
        os._exit(interrupt.STATUS)

    try:
        run(main)
    except SystemExit as left:
        if left.code == interrupt.STATUS:
            patience = threading.Timer(PATIENCE_S, leave)
            patience.daemon = True
            patience.start()
        raise
