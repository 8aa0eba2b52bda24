"""agents/README.md: its table is that of the recipes, its code runs."""

import dataclasses
import re
from pathlib import Path

import pytest

from lockstep.agents import ppo

TEXT = (Path(__file__).parents[2] / "agents" / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def shown(value) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def test_the_table_shows_in_what_recipes_differ():
    fields = [field.name for field in dataclasses.fields(ppo.Config)]
    differing = [name for name in fields if len({getattr(recipe, name) for recipe in ppo.RECIPES.values()}) > 1]
    rows = [["", *ppo.RECIPES], ["---"] * (1 + len(ppo.RECIPES))]
    rows += [[name, *(shown(getattr(recipe, name)) for recipe in ppo.RECIPES.values())] for name in differing]
    section = TEXT.partition("## Recipes")[2].partition("\n## ")[0]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line]
    assert found == rows


def test_the_recipe_of_one_s_own_is_one(tmp_path):
    (text,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "my.yaml").write_text(text)
    config = ppo.config_of("cartpole", tmp_path / "my.yaml")
    assert config == dataclasses.replace(ppo.RECIPES["solve"], total_steps=262_144, hidden=(32, 32))


def test_the_code_runs_in_its_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in BLOCKS:
        if "torch.onnx" in block:
            pytest.importorskip("onnxscript", reason="needs ONNX: pip install onnx onnxscript")
        exec(compile(block, "agents/README.md", "exec"), {})
