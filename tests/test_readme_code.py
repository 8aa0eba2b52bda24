"""The Python in README.md and in docs/ runs as it stands, and so does what envs/ says of the vehicular edge."""

import re
from pathlib import Path

import numpy as np
import pytest

from lockstep import envs

ROOT = Path(__file__).parents[1]
EDGE = "vehicular_edge"
LIBRARIES = ("stable_baselines3", "torchrl")


def blocks(document):
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)


PAGES = ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
BLOCKS = [(page, block) for page in PAGES for block in blocks(page)]


@pytest.fixture
def traffic(tmp_path, monkeypatch):
    """A working folder with fcd.xml and taxis.csv: a hundred vehicles drive along one street for two minutes, from
    second 600 on."""
    monkeypatch.chdir(tmp_path)
    lines = ["<fcd-export>"]
    for second in range(600, 720):
        lines.append(f'<timestep time="{second}">')
        lines += [f'<vehicle id="v{k}" x="{5 * k + 8 * (second - 600)}" y="{k % 4}"/>' for k in range(100)]
        lines.append("</timestep>")
    (tmp_path / "fcd.xml").write_text("\n".join([*lines, "</fcd-export>"]))
    taxis = [f"{k},1,{s},{104.05 + 5e-5 * k + 8e-5 * (s - 600)},30.65" for s in range(600, 720) for k in range(100)]
    (tmp_path / "taxis.csv").write_text("\n".join(taxis))


@pytest.mark.slow
@pytest.mark.usefixtures("traffic")
@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[page for page, _ in BLOCKS])
def test_the_code_runs(page, block):
    for library in LIBRARIES:
        if f"from {library}" in block:
            pytest.importorskip(library, reason=f"needs {library}")
    exec(compile(block, page, "exec"), {})


def test_each_library_with_an_adapter_has_code():
    assert all(any(f"from {library}" in block for _, block in BLOCKS) for library in LIBRARIES)


@pytest.mark.slow
@pytest.mark.usefixtures("traffic")
@pytest.mark.parametrize("document", ["envs/README.md", f"envs/{EDGE}/README.md"])
def test_the_pages_on_the_vehicular_edge_run_with_fewer_environments(document):
    few, params = 2, envs.port(EDGE).make_params("physical", {})
    target = np.zeros((few, params.clients, params.tasks), dtype=np.int32)
    known = {"envs": envs, "target": target, "share": np.ones((few, params.share_length), dtype=np.float32)}
    spoken = [block for block in blocks(document) if EDGE in block]
    assert spoken
    for block in spoken:
        fewer = re.sub(rf'("{EDGE}", (?:num_envs=)?)\d+', rf"\g<1>{few}", block)
        exec(compile(fewer, document, "exec"), known)
