"""Faults of files, put where the operating system would have them: calls that fail, and files that may not grow."""

import builtins
import contextlib
import io
import os
import resource
from collections.abc import Iterator

import pytest


class Faults:
    """Calls of the operating system that make a file last, of which the n-th fails; counts them."""

    def __init__(self, at: int = 0, number: int = 0):
        self.at, self.number, self.calls = at, number, 0

    def __call__(self, call):
        def failing(*arguments, **options):
            self.calls += 1
            if self.calls == self.at:
                path = [] if isinstance(arguments[0], int) else [str(arguments[0])]  # fsync knows no path
                raise OSError(self.number, os.strerror(self.number), *path)
            return call(*arguments, **options)

        return failing

    def where_it_writes(self, call):
        """The same of `open`, where a path is opened to be written; what is only read does not fail."""
        failing = self(call)

        def opened(file, mode="r", *arguments, **options):
            writes = not isinstance(file, int) and set(mode) & set("wax+")
            return (failing if writes else call)(file, mode, *arguments, **options)

        return opened


@contextlib.contextmanager
def failing(faults: Faults) -> Iterator[None]:
    """Within, files are opened, flushed and renamed with these faults."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "replace", "open"):
            patch.setattr(os, name, faults(getattr(os, name)))
        for module in (builtins, io):  # of which pathlib takes the latter
            patch.setattr(module, "open", faults.where_it_writes(open))
        yield


@contextlib.contextmanager
def files_of_at_most(length: int) -> Iterator[None]:
    """Within, a write beyond so many bytes of a file fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
