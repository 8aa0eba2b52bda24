"""What docs/gpu.md tells to type can be typed, and it explains every line of the smoke test."""

import importlib
import importlib.util
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests import smoke

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
COMMANDS = [
    [word for word in shlex.split(line, comments=True) if not re.fullmatch(r"[A-Z_]+=\S+", word)] for line in LINES
]
OURS = [words for words in COMMANDS if words[:2] == ["python", "-m"] and words[2] != "pytest"]


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
    others = [words for words in COMMANDS if words not in OURS and words[1:3] != ["-m", "pytest"]]
    assert [words[0] for words in others] == ["ncu"]
    for words in others:
        compile(words[words.index("-c") + 1], "docs/gpu.md", "exec")


def test_every_line_of_the_smoke_test_is_explained():
    table = PAGE[PAGE.index("| line | fails where |") :]
    explained = set(re.findall(r"`([\w-]+)`", "".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))))
    assert explained == {name for name in smoke.PROBES if not name.startswith("step-")}
    assert "| `step-…` |" in table


def test_the_page_is_short_and_linked():
    assert len(PAGE.splitlines()) <= 120
    assert "(docs/gpu.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
