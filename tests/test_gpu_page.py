"""Commands of docs/gpu.md can be typed, and it explains every line of the smoke test."""

import importlib
import importlib.util
import re
import shlex
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lockstep.experiments.ledger import provenance
from tests import smoke

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
COMMANDS = [
    [word for word in shlex.split(line, comments=True) if not re.fullmatch(r"[A-Z_]+=\S+", word)] for line in LINES
]
OURS = [words for words in COMMANDS if words[:2] == ["python", "-m"] and words[2] not in ("pytest", "pip")]
# Packages that the page takes for installed: its words, and the names of the packages.
INSTALLED = {
    "CuPy": "cupy-cuda13x",
    "torch": "torch",
    "pandas": "pandas",
    "matplotlib": "matplotlib",
    "PyYAML": "PyYAML",
    "threadpoolctl": "threadpoolctl",
    "mpmath": "mpmath",
    "pytest": "pytest",
}


@pytest.mark.parametrize("words", OURS, ids=" ".join)
def test_each_command_takes_its_options(words, monkeypatch):
    monkeypatch.setattr(sys, "argv", words[2:])
    module = importlib.import_module(words[2])
    if len(words) > 3:
        assert vars(module.arguments())
    else:
        assert module.main


def test_what_is_given_to_pytest_is_there():
    """Its options are those of the Makefile and of pyproject.toml; files, and a test for each word of -k."""
    given = [words for words in COMMANDS if words[1:3] == ["-m", "pytest"]]
    assert given
    tests = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    for words in given:
        assert all((ROOT / word).exists() for word in words if word.startswith("tests"))
        assert words[words.index("-m", 2) + 1] == "gpu"
        assert f"def test_{words[words.index('-k') + 1].removeprefix('not ')}" in tests


def test_nothing_else_is_typed_than_python_and_ncu():
    others = [words for words in COMMANDS if words[:2] != ["python", "-m"]]
    assert [words[0] for words in others] == ["ncu"]
    for words in others:
        compile(words[words.index("-c") + 1], "docs/gpu.md", "exec")


def needed(names) -> set[str]:
    """The packages with those that they need here, by what is installed."""
    found, left = set(), list(names)
    while left:
        name = canonicalize_name(left.pop())
        if name not in found:
            found.add(name)
            wanted = map(Requirement, metadata.requires(name) or ())
            left += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def test_the_wheels_are_all_that_is_needed_beside_what_is_installed():
    (words,) = [words for words in COMMANDS if words[1:4] == ["-m", "pip", "download"]]
    wheels = [Requirement(word) for word in words[words.index("--dest") + 2 :]]
    assert all(re.search(rf"\b{word}\b", PAGE) for word in INSTALLED)
    try:
        whole = needed(wheel.name for wheel in wheels) - needed(INSTALLED.values())
    except metadata.PackageNotFoundError as error:
        pytest.skip(f"{error} is not installed here")
    assert {canonicalize_name(wheel.name) for wheel in wheels} == whole
    locked = set((ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines())
    pinned = {f"{canonicalize_name(one.name)}{one.specifier}" for one in wheels if one.specifier}
    assert pinned and pinned <= locked


def test_it_names_all_that_makes_two_machines_the_same():
    said = re.search(r"equal in (.*?), which `provenance\.machine\(\)` tells", PAGE, re.DOTALL)[1]
    assert re.findall(r"`(\w+)`", said) == list(provenance.machine())


def test_every_step_of_the_half_hour_has_its_command():
    table = PAGE[PAGE.index("| step | minutes |") : PAGE.index("## What a line of the smoke test means")]
    steps = set(re.findall(r"^\| (\d) \|", table, re.MULTILINE))
    assert steps and steps == set(re.findall(r"  # (\d)$", table, re.MULTILINE))


def test_every_line_of_the_smoke_test_is_explained():
    table = PAGE[PAGE.index("| line | fails where |") :]
    explained = set(re.findall(r"`([\w-]+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))))
    assert explained == {name for name in smoke.PROBES if not name.startswith("step-")}
    assert "| `step-…` |" in table


def test_the_page_is_short_and_linked():
    assert len(PAGE.splitlines()) <= 120
    assert "(docs/gpu.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
