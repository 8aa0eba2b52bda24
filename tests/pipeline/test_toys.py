"""A family more, an environment in it that is unlike all others, and an algorithm more are nothing but new files.

toys/ holds them: the ferries, whose agents end one after the other, with noise in every step, scenarios, a state of
three types and a phase in torch; and the cross-entropy method, which has no network, no gradient and no horizon.
Whatever runs over all environments and all algorithms runs over them.
"""

import csv
import shutil
from pathlib import Path

import pytest

from lockstep import envs
from lockstep.experiments.ledger import checksums
from tests.pipeline.copies import TOYS, output, run, snakemake

LONG = 1200  # seconds
KERNEL, PORT = (f"envs/harbour/ferries/{name}" for name in ("kernel.cuh", "port.py"))
FAULTS = {  # what is wrong: where, what is written there, what in its place
    "gusts of the other ferry's stream": (KERNEL, "at.noise(GUSTS + a,", "at.noise(GUSTS + 1 - a,"),
    "agent that sails on after its end": (KERNEL, "if (at.plays(a)) sail", "sail"),
    "agent that bids on after its end": (KERNEL, "at.plays(a) && bid > 0", "bid > 0"),
    "money in float32": (KERNEL, "s.doubles[MONEY + a] += gain", "s.doubles[MONEY + a] += float(gain)"),
    "line that does not wear": (KERNEL, "Params::pull / real(s.integers[TOWS + a])", "Params::pull"),
    "observation of oneself": (KERNEL, "float(at.plays(1 - a))", "float(at.plays(a))"),
    "auction at the higher bid": (PORT, "bid.amin(dim=1)", "bid.amax(dim=1)"),
}
MARKS = (pytest.mark.slow, pytest.mark.long)
LISTS = """
import gymnasium, lockstep
from lockstep import agents
from lockstep.agents import recipes
from lockstep.experiments import catalogue
from lockstep.paper import build, families, figures, quantities, tables

print(*lockstep.names())
print(*(name for name in gymnasium.registry if name.startswith("lockstep/")))
print(*agents.names(), agents.algorithm("cem").__name__)
print(*recipes.load("ferries"), *catalogue.experiments_of("ferries"))
print(families.of("ferries"), *families.names())
print(*tables.every(), *figures.every(), *quantities.every())
print(*(cell.source.splitlines()[0] for cell in build.joined().cells if cell.source.startswith("## ")), sep="|")
print(*(cell.source.replace("\\n", " ") for cell in build.joined().cells))
"""
OF_ONE = {f"tests/envs/test_{name}.py" for name in ("classic_control", "by_hand")}  # of facts that are written by hand


def rows(folder: Path, table: str) -> list[dict]:
    """The rows of results/<table>.csv."""
    with open(folder / "results" / f"{table}.csv") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def copy(toys, tmp_path):
    """A copy of its own for a test to change."""
    return shutil.copytree(toys, tmp_path / "a copy")


def with_a_part_in_the_paper(folder: Path, copy: Path) -> Path:
    shutil.copytree(TOYS / "paper", copy / "paper")
    return shutil.copytree(folder, copy, dirs_exist_ok=True)


# ---- Lists and rules ----


def test_they_are_in_every_list(toys, tmp_path):
    copy = with_a_part_in_the_paper(toys, tmp_path / "a copy")
    (copy / "lists.py").write_text(LISTS)
    names, registered, algorithms, experiments, families, shown, headings, words = output(copy, "lists").splitlines()
    assert "ferries" in names.split()
    assert "lockstep/CartPole-v1" in registered.split() and "ferries" not in registered.lower()
    assert "cem" in algorithms.split() and algorithms.endswith(" CEM")
    assert experiments.split() == ["ppo", "cem", "compilation", "correctness", "learning", "scaling", "throughput"]
    assert families.split().count("harbour") == 2
    of_families = {f"harbour_{name}" for name in ("claims", "environments", "scaling")}
    assert {"crossings", "wakes", "ferry_rate"} | of_families <= set(shown.split())
    chapters = headings.split("|")
    assert chapters.index("## Harbours") == chapters.index("## Marine navigation") - 1
    assert "Its ferries sail on paper." in words and "- The harbour is small." in words


def test_rules_take_them_up(toys):
    quick, full = (
        snakemake(toys, "--dry-run", "--printshellcmds", "ferries", "--config", f"scale={scale}")
        for scale in ("quick", "full")
    )
    for experiment in ("throughput", "correctness", "compilation", "learning", "scaling"):
        command = f"python -m lockstep.experiments.run {experiment} ferries "
        assert command in full and (command in quick) == (experiment not in ("compilation", "scaling"))


@pytest.mark.slow
def test_tests_take_an_environment_of_gymnasium_up(measured):
    """Whatever runs over all of them runs over the twin of CartPole."""
    collected = output(
        measured, "pytest", "--collect-only", "--quiet", "tests/contract", "tests/envs", PYTHONDONTWRITEBYTECODE="1"
    )
    listed = {test for test in collected.splitlines() if test.split("::")[0] not in OF_ONE}
    ours = {name for name in envs.names() if envs.port(name).gymnasium_id}
    of_all = {
        test
        for test in listed
        if "[cartpole" in test and all(test.replace("[cartpole", f"[{name}") in listed for name in ours)
    }
    assert len(of_all) > 200 and {test.replace("[cartpole", "[twin") for test in of_all} <= listed


# ---- The environment ----


@pytest.mark.slow
def test_the_environment_is_what_its_page_says(toys):
    assert " passed" in output(toys, "pytest", "--quiet", "tests/envs/harbour", timeout=LONG)


@pytest.mark.slow
def test_contract_of_every_environment_holds(toys):
    assert " passed" in output(toys, "pytest", "--quiet", "tests/contract", "-k", "ferries", timeout=LONG)


@pytest.mark.slow
def test_port_is_the_original(results_of_toys):
    found = rows(results_of_toys, "ferries/correctness")
    assert found and not [row for row in found if row["passed"] == "False"]


@pytest.mark.parametrize("fault", [pytest.param(fault, marks=MARKS[n > 1]) for n, fault in enumerate(FAULTS)])
def test_planted_fault_fails_the_comparison(copy, fault):
    file, right, wrong = FAULTS[fault]
    text = (copy / file).read_text()
    assert text.count(right) == 1
    (copy / file).write_text(text.replace(right, wrong))
    completed = run(copy, "lockstep.experiments.run", "correctness", "ferries", timeout=LONG)
    assert completed.returncode == 1, completed.stdout + completed.stderr
    assert "the port differs from its original" in completed.stderr


# ---- The algorithm ----


@pytest.mark.slow
def test_protocol_of_every_algorithm_holds(toys):
    tests = ("tests/agents/test_algorithms.py", "tests/agents/test_recipes.py")
    assert " passed" in output(toys, "pytest", "--quiet", *tests, timeout=LONG)


@pytest.mark.slow
def test_it_learns_goes_on_from_its_checkpoint_and_is_scored(copy):
    def trained(*arguments: str) -> str:
        return output(copy, "lockstep.agents.cem", "cartpole", "--threads", "1", "--quiet", *arguments)

    assert "--elite int" in output(copy, "lockstep.agents.cem", "--help")
    recipe = ("--recipe", "plain", "--episodes", "20")
    said = trained(*recipe, "--output", "whole")
    greedy, random = (float(line.split()[1]) for line in said.splitlines() if line.split()[0] in ("greedy", "random"))
    assert greedy > 400 > 50 > random
    with open(copy / "whole" / "progress.csv") as file:
        last = list(csv.DictReader(file))[-1]
    assert last["env_steps"] == "192000" and float(last["elite_return"]) > 400
    trained(*recipe, "--stop-at", "50", "--output", "part")
    assert trained("--resume", "part", "--episodes", "20") == said


# ---- The report and the README ----


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(False, id="nothing of it in paper/", marks=pytest.mark.long),
        pytest.param(True, id="a folder of it in paper/", marks=pytest.mark.slow),
    ],
)
def test_report_tells_of_them(results_of_toys, tmp_path, part):
    copy = tmp_path / "a copy"
    (with_a_part_in_the_paper if part else shutil.copytree)(results_of_toys, copy)
    shutil.rmtree(copy / "results" / "recorded")  # without which the page is written in a fraction of the time
    output(copy, "lockstep.experiments.run", "scaling", "ferries", timeout=LONG)
    output(copy, "lockstep.paper.build", timeout=LONG)
    for table in ("family", "throughput", "correctness", "learning_final", "learning_curves", "targets"):
        assert "ferries" in {row["environment"] for row in rows(copy, f"tables/{table}")}
    trained = {(row["environment"], row["algorithm"]) for row in rows(copy, "tables/learning_final")}
    assert {("ferries", "cem"), ("ferries", "ppo")} <= trained
    for table in ("training_rates", "training_iteration"):
        assert ("ferries", "cem") in {(row["environment"], row["algorithm"]) for row in rows(copy, f"tables/{table}")}
    (reached,) = (row for row in rows(copy, "tables/targets") if "with CEM" in row["target"])
    assert float(reached["value"]) > 0 and reached["status"] == "measured here"
    page, more = ((copy / "results" / name).read_text() for name in ("report.html", "supplement.html"))
    assert "Lockstep CEM, CPU, here" in more and "Lockstep PPO, CPU, here" in more
    assert (" Harbours</a>" in page) == part  # in the contents
    if part:
        assert "Claims of the harbour." in more and "Its ferries sail on paper." in page
        assert 'id="table-crossings"' in page and 'id="figure-wakes"' not in page
        assert more.index(">Further tables and figures</h2>") < more.index('id="figure-wakes"')
        assert {row["crates"] for row in rows(copy, "ferries/scaling")} == {"16", "64"}
        assert {row["environment"] for row in rows(copy, "tables/harbour_scaling")} == {"ferries"}
        once, twice = (float(row["value"]) for row in rows(copy, "tables/harbour_claims"))
        assert twice == pytest.approx(2 * once, rel=1e-6) and once > 0


@pytest.mark.slow
def test_readme_tells_of_them_once_they_are_recorded(results_of_toys, tmp_path):
    copy = shutil.copytree(results_of_toys, tmp_path / "a copy")
    machine = copy / "results" / "recorded" / "toy"
    shutil.copytree(copy / "results" / "ferries", machine / "ferries")
    checksums.sign(machine, sorted(machine.glob("ferries/*.*")))
    output(copy, "lockstep.paper.readme")
    output(copy, "lockstep.paper.readme", "--check")
    front, results = ((copy / page).read_text().splitlines() for page in ("README.md", "docs/results.md"))
    (row,) = (line for line in front if line.startswith("| [ferries](envs/harbour/ferries/README.md) |"))
    assert "| written here |" in row and row.count("| toy, ") == 2  # one of its rate, one of how far it agrees
    told = [line.split(" | ") for line in results if "| ferries |" in line]
    assert {line[0] for line in told} == {"| ferries"} and all("recorded on toy" in line[-1] for line in told)
    assert {line[2] for line in told[1:]} == {"CEM", "PPO"}  # the first is of rates
