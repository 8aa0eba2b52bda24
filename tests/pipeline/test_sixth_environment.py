"""An environment more is one folder and one YAML: rules, tests and report take it up by themselves."""

import csv

import pytest

from lockstep import envs
from tests.pipeline.copies import add_environment, copy_of_the_code, run, snakemake

NAME = "one_more"
TABLES = {f"tests/envs/test_{name}.py" for name in ("classic_control", "by_hand")}  # of facts that are written by hand


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    copy = copy_of_the_code(tmp_path_factory.mktemp("sixth"))
    add_environment(copy, NAME)
    return copy


def output(folder, module, *arguments) -> str:
    completed = run(folder, module, *arguments)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def test_the_rules_take_it_up(copy):
    assert NAME in snakemake(copy, "--list-target-rules").split()
    plan = snakemake(copy, "--dry-run", NAME)
    for experiment in ("throughput", "correctness", "compilation", "transfer"):
        assert f"python -m lockstep.experiments.run {experiment} {NAME} " in plan


def test_the_tests_take_it_up(copy):
    listed = output(copy, "pytest", "--collect-only", "--quiet", "tests/contract", "tests/envs").splitlines()
    collected = {test for test in listed if test.split("::")[0] not in TABLES}
    ours = {name for name in envs.names() if envs.port(name).gymnasium_id}
    of_all = {
        test
        for test in collected
        if "[cartpole" in test and all(test.replace("[cartpole", f"[{name}") in collected for name in ours)
    }
    by_hand = {test for test in of_all if test.replace("[cartpole", f"[{NAME}") not in collected}
    assert len(of_all) > 200 and not by_hand


def test_the_report_takes_it_up(copy):
    results = copy / "results"
    output(copy, "lockstep.experiments.run", "compilation", NAME, "--output", f"results/{NAME}/compilation.csv")
    show = copy / "show.py"
    show.write_text("from lockstep.paper.build import Report\nReport().others()\n")
    output(copy, "show")
    for table in ("family", "compilation"):
        with open(results / "tables" / f"{table}.csv") as file:
            environments = {row["environment"] for row in csv.DictReader(file)}
        assert NAME in environments
