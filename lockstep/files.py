"""Files that a kill, a full disk or a power cut leaves whole, and paths that one process holds at a time."""

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO


class HeldElsewhere(RuntimeError):
    """Another process holds a path; `holder` says which, where it has written that."""

    def __init__(self, process: str):
        self.holder = f"process {process}" if process else "another process"
        super().__init__(f"held by {self.holder}")


@contextlib.contextmanager
def naming(path: Path | None) -> Iterator[None]:
    """Name this path in an OSError that has none, as that of a file which is open already."""
    try:
        yield
    except OSError as error:
        if path and error.errno and error.filename is None:
            error.filename = str(path)
        raise


@contextlib.contextmanager
def replacing(path: Path, mode: str = "w", **options) -> Iterator[IO]:
    """A file that takes the place of `path` at the end of the block, on the disk; on an error the old one stays.

    It is written beside it, under a name that ends with .partial. options: of `open`.

    Raises:
        OSError: it cannot be written; names it.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with naming(path), open(partial, mode, **options) as file:
            yield file
        settle(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def make_room(path: Path) -> None:
    """Make the folder in which a file is to be written; OSError where that fails, or where a folder has its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))


def settle(file: Path, path: Path) -> None:
    """Give a finished file its name, in one step: content and name survive a power cut."""
    flush(file)
    os.replace(file, path)
    flush(path.parent)


def flush(path: Path) -> None:
    """Write what a file holds, or the names in a folder, to the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(opened)
    finally:
        os.close(opened)


@contextlib.contextmanager
def hold(path: Path, wait: bool = False) -> Iterator[None]:
    """Keep other processes from holding the same path meanwhile; a file there names the holder, and goes at the end.

    The hold ends with the process, however it ends. wait: until nobody else holds it.

    Raises:
        HeldElsewhere: another process holds it, unless `wait`.
        OSError: the file cannot be made or locked; names it.
    """
    while True:
        file = open(path, "a+")  # noqa: SIM115 - open as long as it is held
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
                break  # else who held it has taken it away
        except BlockingIOError:
            file.seek(0)
            with file:
                raise HeldElsewhere(file.read()) from None
        except FileNotFoundError:
            pass
        except OSError as error:  # flock knows no path
            file.close()
            raise OSError(error.errno, f"cannot be locked: {error.strerror}", str(path)) from error
        file.close()
    try:
        with naming(path):
            file.truncate(0)
            os.write(file.fileno(), f"{os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        fcntl.flock(file, fcntl.LOCK_UN)  # a process that was forked meanwhile has the file open too
        file.close()
