"""Every environment, for tests that ask for `name`."""

import os

import pytest

from lockstep.envs.kernels import compile
from tests.compiling import flags_at
from tests.contract.batches import NAMES


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture(autouse=True)
def _quickly_compiled(monkeypatch):
    """Kernels at -O0, of the same bits: what steps so little spends its time on compiling."""
    if os.environ["LOCKSTEP_CXXFLAGS"] == "-O2":  # not where somebody asks for another level
        monkeypatch.setenv("LOCKSTEP_CXXFLAGS", "-O0")
        monkeypatch.setattr(compile, "FLAGS", flags_at("-O0"))
