"""Ctrl-C on a command line: one sentence and status 130, from the import of the first module on."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

STATUS = 128 + signal.SIGINT


def command() -> str:
    """Name of the module that `python -m` is about to run, empty where it was not started so or runs already."""
    return sys.orig_argv[-len(sys.argv)].removeprefix("-m") if sys.argv[:1] == ["-m"] else ""


def while_importing() -> None:
    """End the process on Ctrl-C without a traceback, until `told`; nothing has begun that would have to be ended.

    It ends at once: modules of C++ that are being imported may turn an exception into another one, or abort.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background jobs ignore it
        signal.signal(signal.SIGINT, _end)


def _end(number, frame) -> None:
    os.write(2, b"\ninterrupted before it began\n")
    os._exit(STATUS)


@contextlib.contextmanager
def told(sentence: str) -> Iterator[None]:
    """Make of a KeyboardInterrupt a line on stderr and the status 130.

    Raises:
        SystemExit: in its place.
    """
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        print(f"\n{sentence}", file=sys.stderr)
        raise SystemExit(STATUS) from None


if command().startswith(f"{__package__}."):
    while_importing()
