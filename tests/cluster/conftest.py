"""A cluster for all tests of this folder, which `make test-cluster` runs; make test leaves them out."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.cluster import slurm
from tests.pipeline.copies import copy_of_the_code


@pytest.fixture(scope="session")
def cluster():
    if reason := slurm.missing():
        if os.environ.get("REQUIRE_CLUSTER"):
            pytest.fail(f"REQUIRE_CLUSTER is set, and a cluster {reason}", pytrace=False)
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # one that root's munged takes for safe
    try:
        with contextlib.ExitStack() as ends:
            try:
                running = ends.enter_context(slurm.Cluster(folder).running())
            except slurm.NotStarted as reason:
                pytest.fail(str(reason), pytrace=False)
            yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def copy(tmp_path) -> Path:
    """The tree without what runs have made, in a folder with a space in its name."""
    return copy_of_the_code(tmp_path)


@pytest.fixture
def send(copy):
    """A function that starts Snakemake in the copy with the profile, and asks for its jobs more often than that does.

    What it says is in said.txt.
    """
    often = ["--seconds-between-status-checks", "2", "--slurm-init-seconds-before-status-checks", "2"]
    program = [sys.executable, "-m", "snakemake", "--workflow-profile", "profiles/slurm", *often]
    started = []

    def start(*arguments: str) -> subprocess.Popen:
        with open(copy / "said.txt", "a") as said:
            started.append(subprocess.Popen([*program, *arguments], cwd=copy, stdout=said, stderr=said))
        return started[-1]

    yield start
    for run in started:
        run.kill()
        run.wait()
