"""Faults of files, put where the operating system would have them: calls that fail, and files that may not grow."""

import contextlib
import os
import resource
from collections.abc import Iterator

import pytest


class Faults:
    """Calls of the operating system that make a file last, of which the n-th fails; counts them."""

    def __init__(self, at: int = 0, number: int = 0):
        self.at, self.number, self.calls = at, number, 0

    def __call__(self, call):
        def failing(*arguments):
            self.calls += 1
            if self.calls == self.at:
                raise OSError(self.number, os.strerror(self.number))
            return call(*arguments)

        return failing


@contextlib.contextmanager
def failing(faults: Faults) -> Iterator[None]:
    """Within, files are opened, flushed and renamed with these faults."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "replace", "open"):
            patch.setattr(os, name, faults(getattr(os, name)))
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
