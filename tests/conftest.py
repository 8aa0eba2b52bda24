"""Rules for all tests: no GPU, no GPU tests; and hypothesis draws the same examples in each run."""

import os

# One thread for torch, here and in what tests start: networks as small as theirs are slower on more.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Kernels compile in half the time of -O3, to the same bits.
os.environ.setdefault("LOCKSTEP_CXXFLAGS", "-O2")

import hypothesis
import pytest

# A first example may compile a kernel, so none has a deadline; no database, so nothing is left in the tree.
hypothesis.settings.register_profile("lockstep", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("lockstep")


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    from lockstep import envs

    if not envs.cuda_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU, and torch finds none here"))
