"""A copy of the repository in which everything is measured, as far as Snakemake can tell."""

from pathlib import Path

import pytest

from tests.pipeline.copies import add_environment, copy_of_the_code, environments, experiments, snakemake


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
    for made in ("ceilings.csv", "ceilings.json", "report.html"):
        (results / made).touch()
    for made in ("tables", "figures"):
        (results / made).mkdir()
    snakemake(copy, "--touch", "--forceall")
    return copy
