"""Dockerfile and workflow: what they start from, copy and run is there."""

import fnmatch
import re
import shlex
import shutil
import subprocess
import tomllib

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from tests.pipeline.copies import ROOT

PYTHONS = SpecifierSet(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"])
TEXT = re.sub(r"\\\n|^#.*\n", " ", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
INSTRUCTIONS = [(word, rest) for word, _, rest in (line.strip().partition(" ") for line in TEXT.splitlines())]
# Commands of the workflow's only script, and of the container.
CI = [words for words in map(shlex.split, (ROOT / ".ci" / "run").read_text().splitlines()) if words[:1] == ["make"]]
CONTAINER = [
    command
    for word, rest in INSTRUCTIONS
    if word in ("RUN", "CMD")
    for part in rest.split("&&")
    if (command := re.findall(r"[^\s\[\]\",]+", part))[0] == "make"
]


def of(instruction: str) -> list[str]:
    return [rest for word, rest in INSTRUCTIONS if word == instruction]


def test_the_container_starts_from_a_python_that_is_new_enough():
    (image,) = of("FROM")
    assert re.fullmatch(r"python:3\.\d+-slim-bookworm", image)
    assert image.split(":")[1].split("-")[0] in PYTHONS


def test_the_container_has_a_compiler_and_all_that_git_keeps():
    assert any({"apt-get", "install", "g++", "make"} <= {*rest.split()} for rest in of("RUN"))
    assert of("COPY") == [". ."]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    made = re.findall(r"^/([\w.-]+)/$", (ROOT / ".gitignore").read_text(), re.MULTILINE)
    assert {*made, "results/*", "!results/recorded"} <= {*ignored}
    assert not [line for line in ignored if (ROOT / line).exists() and line not in (*made, ".git")]


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
@pytest.mark.parametrize("command", CI + CONTAINER, ids=" ".join)
def test_every_make_command_has_its_target(command):
    done = subprocess.run(["make", "--dry-run", *command[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_container_sets_up_and_reports():
    assert CONTAINER == [["make", ".venv/ready"], ["make", "report"]]


@pytest.mark.parametrize("python", ["exit 1", "exit 0", "echo gone"], ids=["fails", "names none", "names one"])
def test_ci_fails_where_tables_cannot_be_named_or_are_missing(tmp_path, python):
    """With programs that do nothing in the place of make and of Debian's."""
    programs = {"bin/make": "exit 0", "bin/dpkg": "exit 0", ".venv/bin/python": python}
    for place, text in programs.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / place).chmod(0o755)
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    done = subprocess.run(["bash", tmp_path / ".ci" / "run"], env={"PATH": path}, capture_output=True, text=True)
    assert done.returncode == 1 and "holds every table" not in done.stdout


def test_the_workflow_runs_what_ci_runs():
    (job,) = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"].values()
    owned, script = [step["run"] for step in job["steps"] if "run" in step]
    assert shlex.split(owned) == ["git", "config", "--global", "--add", "safe.directory", "$GITHUB_WORKSPACE"]
    assert script == "bash .ci/run"
    assert [words[1] for words in CI] == ["test-all", "lint", "report", "test-cluster"]
    (python,) = re.fullmatch(r"python:(3\.\d+)-bookworm", job["container"]).groups()  # as root
    assert python in PYTHONS
    assert job["env"]["REQUIRE_CLUSTER"]
    (kept,) = [step["with"]["path"] for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    made = re.findall(r'"(results/\w+(?:\.html)?)"', (ROOT / "Snakefile").read_text())
    assert all(any(fnmatch.fnmatch(file, one) for file in made) for one in kept.split())
