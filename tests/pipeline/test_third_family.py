"""A family more is one folder and one YAML as well, and an environment in it may be unlike all others.

The ferries of third_family/ are put into a copy of the repository: agents that end one after the other, noise in every
step, scenarios, a state of three types, a phase in torch. Whatever runs over all environments runs over them.
"""

import csv
import shutil
from pathlib import Path

import pytest

from tests.pipeline.copies import ROOT, copy_of_the_code, run, snakemake

NAME = "ferries"
FAMILY = Path("envs", "harbour")
TOY = ROOT / "tests" / "pipeline" / "third_family"
LONG = 1200  # seconds
KERNEL, PORT = FAMILY / NAME / "kernel.cuh", FAMILY / NAME / "port.py"
FAULTS = {  # what is wrong: where, what is written there, what in its place
    "gusts of the other ferry's stream": (KERNEL, "at.noise(GUSTS + a,", "at.noise(GUSTS + 1 - a,"),
    "agent that sails on after its end": (KERNEL, "if (at.plays(a)) sail", "sail"),
    "agent that bids on after its end": (KERNEL, "at.plays(a) && bid > 0", "bid > 0"),
    "money in float32": (KERNEL, "s.doubles[MONEY + a] += gain", "s.doubles[MONEY + a] += float(gain)"),
    "line that does not wear": (KERNEL, "Params::pull / real(s.integers[TOWS + a])", "Params::pull"),
    "observation of oneself": (KERNEL, "float(at.plays(1 - a))", "float(at.plays(a))"),
    "auction at the higher bid": (PORT, "bid.amin(dim=1)", "bid.amax(dim=1)"),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    copy = copy_of_the_code(tmp_path_factory.mktemp("third"))
    shutil.copytree(TOY / FAMILY.name, copy / FAMILY)
    settings = copy / "experiments" / FAMILY.name
    settings.mkdir()
    shutil.copy(TOY / f"{NAME}.yaml", settings)
    return copy


def output(folder: Path, module: str, *arguments: str) -> str:
    completed = run(folder, module, *arguments, timeout=LONG)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def correctness(folder: Path):
    return run(folder, "lockstep.experiments.run", "correctness", NAME, "--scale", "quick", timeout=LONG)


def test_it_is_listed_and_not_in_gymnasiums_registry(copy):
    show = copy / "show.py"
    show.write_text(
        "import gymnasium, lockstep\n"
        "print(*lockstep.names())\n"
        "print(*(name for name in gymnasium.registry if name.startswith('lockstep/')))\n"
    )
    names, registered = output(copy, "show").splitlines()
    assert NAME in names.split()
    assert "lockstep/CartPole-v1" in registered.split() and not [x for x in registered.split() if NAME in x.lower()]


def test_rules_take_it_up(copy):
    assert NAME in snakemake(copy, "--list-target-rules").split()
    plan = snakemake(copy, "--dry-run", NAME)
    for experiment in ("throughput", "correctness", "compilation"):
        assert f"python -m lockstep.experiments.run {experiment} {NAME} " in plan


@pytest.mark.slow
def test_it_is_what_its_page_says(copy):
    assert " passed" in output(copy, "pytest", "--quiet", f"tests/pipeline/{TOY.name}/facts.py")


@pytest.mark.slow
def test_contract_of_every_environment_holds(copy):
    assert " passed" in output(copy, "pytest", "--quiet", "tests/contract", "-k", NAME)


@pytest.mark.slow
def test_port_is_the_original(copy):
    completed = correctness(copy)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    with open(copy / "results" / NAME / "correctness.csv") as file:
        rows = list(csv.DictReader(file))
    assert rows and not [row for row in rows if row["passed"] == "False"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_fails_the_comparison(copy, tmp_path, fault):
    broken = shutil.copytree(copy, tmp_path / "a copy", ignore=shutil.ignore_patterns("results"))
    file, right, wrong = FAULTS[fault]
    text = (broken / file).read_text()
    assert text.count(right) == 1
    (broken / file).write_text(text.replace(right, wrong))
    completed = correctness(broken)
    assert completed.returncode == 1, completed.stdout + completed.stderr
    assert "the port differs from its original" in completed.stderr


@pytest.mark.slow
def test_its_speed_and_its_registers_are_measured_and_reported(copy):
    output(copy, "lockstep.experiments.run", "throughput", NAME, "--scale", "quick")
    output(copy, "lockstep.experiments.run", "compilation", NAME)
    (copy / "report.py").write_text("from lockstep.paper.report import Report\nReport().others()\n")
    output(copy, "report")
    results = copy / "results"
    tables = (f"{NAME}/throughput", f"{NAME}/compilation", "tables/family", "tables/compilation")
    for table in tables:
        with open(results / f"{table}.csv") as file:
            assert NAME in {row["environment"] for row in csv.DictReader(file)}
