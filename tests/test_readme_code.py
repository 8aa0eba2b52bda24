"""The Python in README.md runs as it stands."""

import re
from pathlib import Path

import pytest

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(), re.DOTALL)
LIBRARIES = ("stable_baselines3", "torchrl")


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("block", BLOCKS, ids=[block.splitlines()[0] for block in BLOCKS])
def test_the_code_runs(block):
    for library in LIBRARIES:
        if f"from {library}" in block:
            pytest.importorskip(library, reason=f"needs {library}")
    exec(compile(block, "README.md", "exec"), {})


def test_each_library_with_an_adapter_has_code():
    assert all(any(f"from {library}" in block for block in BLOCKS) for library in LIBRARIES)
