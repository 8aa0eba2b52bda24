"""Every fault that a test plants has the text in whose place it is put, which else a slow test would find out."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from lockstep import envs
from lockstep.agents.parts import kernels
from lockstep.envs.kernels import compile
from tests.agents.parts import test_gpu_text as agents
from tests.envs import test_gpu_mutants, test_mutants
from tests.envs.crypto_trading import test_faults as crypto
from tests.envs.faults import fails
from tests.envs.marine_navigation import test_faults as marine
from tests.envs.marine_navigation import test_gpu_text as marine_lanes
from tests.envs.vehicle_routing import test_faults as routing
from tests.envs.vehicle_routing import test_gpu_text as routing_lanes
from tests.envs.vehicular_edge import test_gpu_text as edge_lanes
from tests.experiments import test_tasks_correctness as tasks
from tests.pipeline import test_toys as toys

WALKED = (test_mutants, crypto, marine, routing)  # by `faults.every`
TESTS = Path(__file__).parents[1]
TABLE = re.compile(r"^(?:MUTANTS|FAULTS|OF_GROUPS) = ", re.MULTILINE)


def unit_of(name: str) -> str:
    """The kernels of an environment with all that they include."""
    several, seen = envs.port(name).of("lanes") > 1, set()
    before, around = ("lanes.cuh", "block.cuh") if several else ("state.cuh", "tile.cuh")
    files = compile.KERNELS / "platform.cuh", compile.KERNELS / before, envs.folder(name) / "kernel.cuh"
    return "\n".join(compile.expand(file, seen) for file in (*files, compile.KERNELS / around))


def planted() -> Iterator[tuple[ModuleType, str, str, str, str]]:
    """Of each fault its module and name, the text in which it is planted, what has to stand there, and what is put."""
    for module in WALKED:
        for name, (file, right, wrong, _) in module.MUTANTS.items():
            yield module, name, (compile.ENVS / file).read_text(), right, wrong
    for environment, right, wrong, quantity in tasks.MUTANTS:
        yield tasks, quantity, (envs.folder(environment) / "kernel.cuh").read_text(), right, wrong
    for name, (file, right, wrong) in toys.FAULTS.items():
        yield toys, name, (toys.TOYS / file).read_text(), right, wrong
    for module, environment, faults in (
        *((test_gpu_mutants, environment, test_gpu_mutants.FAULTS) for environment in test_gpu_mutants.NAMES),
        (edge_lanes, "vehicular_edge", edge_lanes.FAULTS | edge_lanes.OF_GROUPS),
        (marine_lanes, "marine_navigation", marine_lanes.FAULTS),
        (routing_lanes, "vehicle_routing", routing_lanes.FAULTS),
    ):
        unit = unit_of(environment)
        for name, (right, wrong) in faults.items():
            yield module, f"{name}, {environment}", unit, right, wrong
    for name, (right, wrong, _) in agents.FAULTS.items():
        yield agents, name, kernels.unit("cuda"), right, wrong


def test_every_fault_has_its_place():
    found = list(planted())
    out_of_place = [
        f"{module.__name__}: {name}: {right!r}" for module, name, text, right, wrong in found if right not in text
    ]
    assert not out_of_place
    assert all(text.replace(right, wrong) != text for _, _, text, right, wrong in found)
    assert len(found) > 250


@pytest.mark.parametrize("module", WALKED)
def test_a_change_of_nothing_is_not_noticed(tmp_path, monkeypatch, module):
    """So that the walk over a table fails where its test notices no fault."""
    fault, (file, right, _, rung) = next(iter(module.MUTANTS.items()))
    monkeypatch.setitem(module.MUTANTS, fault, (file, right, f"{right}/* */", rung))
    with pytest.raises(AssertionError, match="the fault is not noticed"):
        module.test_a_fault_is_noticed(tmp_path, monkeypatch, fault)


def test_a_process_that_a_fault_kills_has_noticed_it():
    assert fails(lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(AssertionError, match="otherwise than by an assertion"):
        fails(int, "nothing")


def test_every_table_of_faults_is_looked_at():
    tables = {file for file in TESTS.rglob("test_*.py") if TABLE.search(file.read_text())}
    assert tables == {Path(module.__file__) for module, *_ in planted()}


@pytest.mark.parametrize("table", ["MUTANTS = {", "FAULTS = [", "OF_GROUPS = {"])
def test_a_table_is_known_by_its_name(table):
    assert TABLE.search(f"import pytest\n\n{table}\n") and not TABLE.search(f"    {table}\nALL_{table}\n")
