"""Faults put into the kernels' text, which a named test must notice."""

import functools
import os
import shutil
import traceback
from collections.abc import Callable, Iterable

import pytest

from lockstep import envs
from lockstep.envs.kernels import compile
from tests.contract.batches import equal
from tests.emulator import gpu

PASSES, FAILS, BROKEN = range(3)  # exit statuses of a test in a process of its own


def every(mutants: dict[str, tuple], rungs: dict[str, tuple], *given: tuple) -> Callable:
    """A test that each fault of a table is noticed by a test of `rungs`: of each file the first, the others if slow.

    given: modules, names and values that these have meanwhile.
    """
    first = {file: fault for fault, (file, *_) in reversed(mutants.items())}.values()
    cases = [pytest.param(fault, marks=[pytest.mark.slow] * (fault not in first)) for fault in mutants]

    @pytest.mark.parametrize("fault", cases)
    def test(tmp_path, monkeypatch, fault):
        for one in given:
            monkeypatch.setattr(*one)
        *planted, rung = mutants[fault]
        assert_noticed(tmp_path, monkeypatch, planted, *rungs[rung])

    return test


def assert_noticed(tmp_path, monkeypatch, fault: tuple[str, str, str], test: Callable, *arguments):
    """The test passes as it is, and fails with a fault: a file of envs/, what stands in it, and what is put there."""
    file, right, wrong = fault
    folder = tmp_path / "envs"
    shutil.copytree(compile.ENVS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / file).read_text()
    assert right in text
    (folder / file).write_text(text.replace(right, wrong))
    # Apart from the libraries that other tests have loaded.
    monkeypatch.setattr(compile, "library", functools.cache(compile.library.__wrapped__))
    test(*arguments)  # passes without the fault
    monkeypatch.setattr(compile, "KERNELS", folder / "kernels")
    monkeypatch.setattr(compile, "ENVS", folder)
    monkeypatch.setattr(envs, "_FOLDER", folder)
    assert fails(test, *arguments), f"the fault is not noticed: {wrong!r} in {file}"


def fails(test: Callable, *arguments) -> bool:
    """Tells if a test fails, in a process of its own: a fault may write anywhere, and the process may die of it."""
    process = os.fork()
    if process == 0:
        status = BROKEN
        try:
            test(*arguments)
            status = PASSES
        except (AssertionError, pytest.fail.Exception):
            status = FAILS
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status != BROKEN, "the test failed otherwise than by an assertion, as is said above"
    return status != PASSES


def shows(pairs: Iterable[Callable], run: Callable) -> bool:
    """Tells if a run in the GPU's form is stopped, or differs from that in the CPU's, of any pair that can be made."""
    for pair in pairs:
        try:  # a batch resets itself when it is made
            if not equal(*map(run, pair())):
                return True
        except gpu.EmulationError:
            return True
    return False
