"""Copies of the repository: one in which everything is measured, as far as Snakemake can tell, and one with toys."""

import json
import shutil
from pathlib import Path

import pytest

from tests.pipeline.copies import TOYS, add_environment, copy_of_the_code, environments, experiments, snakemake

collect_ignore = [TOYS.name]  # they are tested in a copy


@pytest.fixture(scope="session")
def measured(tmp_path_factory) -> Path:
    """A copy with a twin of CartPole more, for Snakemake all measured; not to be changed."""
    copy = copy_of_the_code(tmp_path_factory.mktemp("measured"))
    add_environment(copy, "twin")
    results = copy / "results"
    for environment in environments(copy):
        (results / environment).mkdir(parents=True)
        for experiment in experiments(copy, environment):
            for ending in ("csv", "json"):
                (results / environment / f"{experiment}.{ending}").touch()
    for made in ("ceilings.csv", "ceilings.json", "report.html", "supplement.html"):
        (results / made).touch()
    for made in ("tables", "figures"):
        (results / made).mkdir()
    snakemake(copy, "--touch", "--forceall")
    return copy


@pytest.fixture(scope="session")
def toys(tmp_path_factory) -> Path:
    """A copy with a family and an algorithm more, without a part for the family in the paper; not to be changed."""
    copy = copy_of_the_code(tmp_path_factory.mktemp("toys"))
    assert not [file for file in TOYS.rglob("*.*") if (copy / file.relative_to(TOYS)).is_file()]  # nothing is edited
    return shutil.copytree(TOYS, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("paper", "__pycache__"))


@pytest.fixture(scope="session")
def results_of_toys(toys, tmp_path_factory) -> Path:
    """Such a copy in which the family's environment was measured, as its page says; not to be changed.

    Other tests run meanwhile, so that the machine is busy; here that leaves nothing out.
    """
    copy = shutil.copytree(toys, tmp_path_factory.mktemp("results") / "a copy")
    snakemake(copy, "--cores", "all", "ferries", timeout=1200)
    for file in (copy / "results").glob("*/*.json"):
        described = json.loads(file.read_text())
        file.write_text(json.dumps({name: value for name, value in described.items() if name != "busy"}))
    return copy
