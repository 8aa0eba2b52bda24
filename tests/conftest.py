"""Rules for all tests: no GPU, no GPU tests; and hypothesis draws the same examples in each run."""

import os

# One thread for torch, here and in what tests start: networks as small as theirs are slower on more.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest

# A first example may compile a kernel, so none has a deadline; no database, so nothing is left in the tree.
hypothesis.settings.register_profile("lockstep", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("lockstep")


def pytest_addoption(parser):
    parser.addoption("--optimised", action="store_true", help="compile kernels with -O3, as users have them, not -O2")


def pytest_configure(config):
    """Kernels at -O2, whose bits are those at -O3, compile in half the time."""
    if not config.getoption("--optimised"):
        from lockstep.envs.kernels import compile

        compile.FLAGS = tuple("-O2" if flag == "-O3" else flag for flag in compile.FLAGS)


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    from lockstep import envs

    if not envs.cuda_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU, and torch finds none here"))
