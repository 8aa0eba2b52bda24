"""Rules for all tests: no GPU, no GPU tests; and hypothesis draws the same examples in each run."""

import gc
import os

# One thread for torch, here and in what tests start: networks as small as theirs are slower on more.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Environments compile in a third of the time of -O3, to the same bits.
os.environ.setdefault("LOCKSTEP_CXXFLAGS", "-O0")

from pathlib import Path

import hypothesis
import pytest

HERE = Path(__file__).parent

# A first example may compile a kernel, so none has a deadline; no database, so nothing is left in the tree.
hypothesis.settings.register_profile("lockstep", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("lockstep")


# Tests of what environments share run on these, which have siblings, among the exhaustive cases.
SHARED = ("contract/", "agents/", "experiments/", "envs/test_policies.py", "envs/test_gpu_text.py")
SIBLINGS = {"acrobot", "mountain_car", "mountain_car_continuous"}


@pytest.fixture(params=["CUDA 13", "CUDA 12"])
def either_nvrtc(request, monkeypatch):
    """NVRTC of two versions of CUDA, of which `compile` is given one."""
    from lockstep.envs.kernels import compile
    from tests import nvrtc12

    major = int(request.param.removeprefix("CUDA "))
    if major == 12:
        monkeypatch.setattr(compile, "nvrtc", lambda: nvrtc12)
    assert compile.nvrtc().getVersion()[0] == major


def pytest_collection_finish():
    gc.freeze()  # no collection of garbage looks through all that was imported and collected


def pytest_collection_modifyitems(items):
    mark_exhaustive(items)
    skip_without_gpu(items)


def mark_exhaustive(items):
    for item in items:
        asked = item.callspec.params.values() if hasattr(item, "callspec") else ()
        shared = item.path.relative_to(HERE).as_posix().startswith(SHARED)
        if shared and SIBLINGS.intersection(value for value in asked if isinstance(value, str)):
            item.add_marker(pytest.mark.slow)


def skip_without_gpu(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    from lockstep import envs

    if not envs.cuda_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU, and torch finds none here"))
