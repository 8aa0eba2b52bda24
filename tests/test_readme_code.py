"""The Python in README.md runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(), re.DOTALL)
LIBRARIES = ("stable_baselines3", "torchrl")


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=[block.splitlines()[0] for block in BLOCKS])
def test_the_code_runs(block):
    for library in LIBRARIES:
        if f"from {library}" in block:
            pytest.importorskip(library, reason=f"needs {library}")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small networks are slower on more, above all beside other tests
    try:
        exec(compile(block, "README.md", "exec"), {})
    finally:
        torch.set_num_threads(threads)


def test_each_library_with_an_adapter_has_code():
    assert all(any(f"from {library}" in block for block in BLOCKS) for library in LIBRARIES)
