"""Rules for all tests: no GPU, no GPU tests; and hypothesis draws the same examples in each run."""

import contextlib
import gc
import os

# One thread for torch, here and in what tests start: networks as small as theirs are slower on more.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Environments compile in a third of the time of -O3, to the same bits; the headers of C are read once for all of them.
os.environ.setdefault("LOCKSTEP_CXXFLAGS", "-O0 -include headers.hpp")

import subprocess
import tempfile
from pathlib import Path

import hypothesis
import pytest

HERE = Path(__file__).parent
collect_ignore = ["cluster"]  # which make test-cluster names
HEADERS = Path(os.environ.get("LOCKSTEP_CACHE") or Path.home() / ".cache" / "lockstep").absolute() / "headers.hpp"
os.environ["CPLUS_INCLUDE_PATH"] = f"{HEADERS.parent}:{os.environ.get('CPLUS_INCLUDE_PATH', '')}".rstrip(":")

# A first example may compile a kernel, so none has a deadline; no database, so nothing is left in the tree.
hypothesis.settings.register_profile("lockstep", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("lockstep")


# Environments that have siblings: tests of what all share run on these among the slow cases, slow tests among the long.
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
    with contextlib.suppress(OSError, RuntimeError):  # no compiler, or nothing can be written: whoever needs it says so
        compile_headers()
    gc.freeze()  # no collection of garbage looks through all that was imported and collected


def compile_headers():
    """Those that every kernel includes; a compiler that cannot take them compiled reads them as they are."""
    from lockstep.envs.kernels import compile

    HEADERS.parent.mkdir(parents=True, exist_ok=True)
    HEADERS.write_text("#include <math.h>\n#include <string.h>\n")
    flags = [flag for flag in (*compile.FLAGS, *compile.target_flags()[0]) if flag not in ("-include", HEADERS.name)]
    with tempfile.TemporaryDirectory(dir=HEADERS.parent) as scratch:
        made = Path(scratch) / "headers.gch"
        command = [*compile.compiler(), *flags, "-x", "c++-header", str(HEADERS), "-o", str(made)]
        if subprocess.run(command, capture_output=True).returncode == 0:
            os.replace(made, f"{HEADERS}.gch")


def pytest_collection_modifyitems(items):
    put_siblings_off(items)
    skip_without_gpu(items)


def put_siblings_off(items):
    for item in items:
        asked = item.callspec.params.values() if hasattr(item, "callspec") else ()
        shared = item.path.relative_to(HERE).as_posix().startswith(SHARED)
        if shared and SIBLINGS.intersection(value for value in asked if isinstance(value, str)):
            item.add_marker(pytest.mark.long if item.get_closest_marker("slow") else pytest.mark.slow)


def skip_without_gpu(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    from lockstep import envs

    if not envs.cuda_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU, and torch finds none here"))
