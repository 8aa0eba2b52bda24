"""The spec sheet: its code runs, and what it says of the comparison is what that permits."""

import re
from pathlib import Path

import pytest

from lockstep.envs import marine_navigation
from lockstep.experiments.marine_navigation import correctness

SHEET = (Path(marine_navigation.__file__).parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_code_runs():
    known = {}
    blocks = re.findall(r"```python\n(.*?)```", SHEET, re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        exec(compile(block, "README.md", "exec"), known)


def test_the_shares_that_are_left_out_are_those_permitted():
    text = " ".join(SHEET.split())
    assert f"multiplies a rounding, at most {100 / correctness.MULTIPLYING:g} %, and those within" in text
    assert f"tolerance of a threshold, at most {100 / correctness.NEAR:g} %;" in text
