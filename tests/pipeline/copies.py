"""Copies of the repository to change, and what Snakemake plans in them."""

import csv
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from lockstep.experiments import config
from lockstep.experiments.ledger import sources

ROOT = Path(__file__).parents[2]
TOYS = Path(__file__).parent / "toys"
# Experiments that run if a YAML has such a section.
ON_REQUEST = {"learning", "transfer"}
ON_REQUEST |= {"breakdown", "offloading", "policies", "navigation", "oracles", "baselines"}  # of a family
AT_FULL_SCALE = {"compilation"}  # and, where a YAML has the section:
ON_REQUEST_AT_FULL_SCALE = {"scaling", "crossing", "weak_scaling"}


def copy_of_the_code(folder: Path) -> Path:
    """The tree without what runs have made, in a folder with a space in its name."""
    caches = shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info")

    def made_by_runs(parent: str, names: list[str]) -> set[str]:
        results = set(names) - {"recorded"} if Path(parent) == ROOT / "results" else set()
        return caches(parent, names) | results

    copy = folder / "a copy"
    shutil.copytree(ROOT, copy, ignore=made_by_runs)
    return copy


def add_environment(copy: Path, name: str) -> None:
    """One folder, its settings and its recipe more: CartPole once again, under another name."""
    family = copy / "envs" / "classic_control"
    shutil.copytree(family / "cartpole", family / name)
    port = family / name / "port.py"
    port.write_text(port.read_text().replace('title="CartPole-v1"', f'title="{name}"'))
    for folder in (copy / "experiments" / family.name, copy / "agents" / "recipes"):
        shutil.copy(folder / "cartpole.yaml", folder / f"{name}.yaml")


def environments(copy: Path) -> list[str]:
    """Those with settings and a port."""
    return sorted(name for name in config.files(copy / "experiments") if name in sources.environments(copy))


def experiments(copy: Path, environment: str, scale: str = "quick") -> list[str]:
    """The experiments of an environment at a scale: all, but where its YAML has to ask, only then."""
    text = config.file_of(environment, copy / "experiments").read_text()
    full = scale == "full"
    asked = (ON_REQUEST | (ON_REQUEST_AT_FULL_SCALE if full else set())).intersection(
        re.findall(r"^(\w+):", text, re.M)
    )
    return ["throughput", "correctness", *sorted(asked | (AT_FULL_SCALE if full else set()))]


def run(
    folder: Path, module: str, *arguments: str, timeout: int = 120, **environment: str
) -> subprocess.CompletedProcess:
    """python -m module arguments, in that folder."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def output(folder: Path, module: str, *arguments: str, **options) -> str:
    """The output of python -m module arguments; it must succeed."""
    completed = run(folder, module, *arguments, **options)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def snakemake(folder: Path, *arguments: str, **options) -> str:
    """The output of Snakemake; it must succeed."""
    completed = run(folder, "snakemake", *arguments, **options)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout + completed.stderr


def planned(folder: Path, *arguments: str) -> set[str]:
    """The outputs that a run would make anew, but for tables, figures and the supplement."""
    completed = run(folder, "snakemake", "--summary", *arguments)
    assert completed.returncode == 0, completed.stderr
    rows = csv.DictReader(io.StringIO(completed.stdout), delimiter="\t")
    outputs = {row["output_file"] for row in rows if row["plan"] != "no update"}
    return {output for output in outputs if output.endswith((".csv", "report.html"))}
