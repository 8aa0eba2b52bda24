"""The pins: one list for pip, the same for conda, each exact, and nothing imported that is not on it."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
PINS = PROJECT["dependencies"] + [pin for extra in EXTRAS.values() for pin in extra]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
OURS = {"agents", "envs", "experiments", "paper", "tests"}
# Where a module is not called what its package is.
PACKAGE_OF = {"cupy": "cupy-cuda13x", "pil": "pillow", "pygame": "pygame-ce", "yaml": "PyYAML"}
# Peers have environments of their own: gymnax.py runs with what gymnax.txt beside it lists.
PEERS = {file.with_suffix(".py"): file.read_text().split() for file in (ROOT / "experiments").rglob("*.txt")}
# Files that need more, by path: nothing else may import what is only there.
OPTIONAL = {
    "envs/adapters/sb3.py": EXTRAS["sb3"],
    "envs/adapters/torchrl.py": EXTRAS["torchrl"],
    "envs/render.py": EXTRAS["render"],
    "experiments/learning_workers/sb3.py": EXTRAS["sb3"],
    "paper/animation.py": EXTRAS["render"],
    "tests/experiments/steps_of_peers.py": [pin for pins in PEERS.values() for pin in pins],
} | {file.relative_to(ROOT).as_posix(): pins for file, pins in PEERS.items()}
ADAPTED = EXTRAS["sb3"] + EXTRAS["torchrl"] + EXTRAS["render"]


def name(pin: str) -> str:
    return pin.partition("==")[0].lower()


@pytest.mark.parametrize("pin", PINS)
def test_pins_are_exact(pin):
    assert re.fullmatch(r"[A-Za-z0-9-]+==\d+(\.\d+)+", pin)


def test_conda_installs_the_same_pins():
    *own, pip = CONDA["dependencies"]
    assert sorted(pip["pip"]) == sorted(PINS)
    assert {entry.partition("=")[0] for entry in own} == {"python", "pip", "cxx-compiler", "make"}
    assert CONDA["channels"] == ["conda-forge", "nodefaults"]


def test_python_3_11_is_enough():
    assert PROJECT["requires-python"] == ">=3.11"


def test_the_citation_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])


def test_the_licence_is_apache_2_in_full():
    words = (ROOT / "LICENSE").read_text().split()
    assert words[:4] == ["Apache", "License", "Version", "2.0,"]
    assert len(words) == 1581


def imported_packages(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text())))
    modules = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    packages = {module.partition(".")[0] for module in modules} - OURS - sys.stdlib_module_names
    return {PACKAGE_OF.get(package.lower(), package.replace("_", "-")).lower() for package in packages}


@pytest.mark.parametrize(
    ("folders", "pins"),
    [
        (["agents", "envs", "experiments", "paper"], PROJECT["dependencies"]),
        (["tests"], PROJECT["dependencies"] + EXTRAS["test"] + ADAPTED),
    ],
)
def test_whatever_is_imported_is_pinned(folders, pins):
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    assert files
    unpinned = {}
    for file in files:
        path = file.relative_to(ROOT).as_posix()
        unpinned[path] = imported_packages(file) - {name(pin) for pin in pins + OPTIONAL.get(path, [])}
    assert {file: packages for file, packages in unpinned.items() if packages} == {}


def test_every_package_is_installed_with_its_data():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = sorted(OURS - {"tests"})
    assert setuptools["packages"]["find"]["include"] == [f"{package}*" for package in packages]
    assert setuptools["package-data"] == {"*": ["*"]}  # kernels and recipes
