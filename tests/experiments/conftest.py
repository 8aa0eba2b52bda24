"""Tests run beside each other: what a busy machine does to rows is tested on its own, in test_timing.py."""

import gc
from pathlib import Path

import pytest

from lockstep.experiments.bench import timing


@pytest.fixture(autouse=True)
def nobody_tells_of_waiting(request, monkeypatch):
    if request.path.stem != "test_timing":
        monkeypatch.setattr(timing, "THREADS", Path("nowhere"))


@pytest.fixture(scope="package", autouse=True)
def garbage_of_before():
    """Clocks collect garbage before they start, and need not look through what other tests have left."""
    gc.collect()
    gc.freeze()
