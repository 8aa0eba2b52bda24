"""A family more in the paper is one folder: chapter, claims, table, figure and words of it appear by themselves."""

import re
import shutil
import subprocess
import sys

import nbformat
import pytest

from lockstep.experiments import ROOT
from lockstep.paper import families

FILES = {
    "about.yaml": "title: Harbour\nlimits: '- The harbour is small.'\noriginals: Its ferries sail on paper.\n"
    "headline: {environment: ferries, num_envs: 64, rungs: [original]}\n",
    "claims.yaml": "introduction: Harbours claim much.\ncaption: Its claims.\nheadings: [it says, it rests on]\n"
    "claims: [{claim: Fast., measured: Guessed., quantity: ferries, answers: [{label: how fast}]}]\n",
    "quantities.py": "from lockstep.paper.quantities import alone, quantity\n"
    "@quantity(alone(str))\ndef ferries(datasets, select, against):\n    return []\n",
    "tables.py": "import pandas as pd\nfrom lockstep.paper.tables import table\n"
    "@table('Ferries.')\ndef ferries(datasets):\n    return pd.DataFrame({'ferry': ['Aurora']})\n",
    "figures.py": "from lockstep.paper.figures import figure, grid\n"
    "@figure('Wakes.', 'Lines.')\ndef wakes(datasets):\n    return grid(['wakes'], 1)[0]\n",
}
SHOW = """
from lockstep.paper import build, families, figures, readme, report, tables

shown = report.Report(folder="shown")
shown.shown["table"] = [name for name in tables.every() if name not in ("ferries", "harbour_claims")]
shown.shown["figure"] = [name for name in figures.every() if name != "wakes"]
print(shown.others().data)
print(*(cell.source for cell in build.joined().cells), sep="\\n")
print(families.told_at("ferries"), *readme.PARTS)
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Packages and chapters with a harbour among the families, and no results."""
    copy = tmp_path_factory.mktemp("harbour")
    for folder in ("agents", "envs", "experiments", "lockstep", "paper"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    harbour = copy / "paper" / "harbour"
    (harbour / "chapters").mkdir(parents=True)
    for name, text in FILES.items():
        (harbour / name).write_text(text)
    cells = [nbformat.v4.new_markdown_cell("## Harbours"), nbformat.v4.new_code_cell("1 + 1")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), harbour / "chapters" / "08_harbour.ipynb")
    return copy


def test_a_folder_more_is_a_family_more(copy):
    done = subprocess.run([sys.executable, "-c", SHOW], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    out = done.stdout
    for name in ("table-ferries", "table-harbour_claims", "figure-wakes"):
        assert f'id="{name}"' in out
    assert "Aurora" in out and "how fast" in out
    headings = re.findall(r"^## (.*)$", out, re.MULTILINE)
    assert headings.index("Harbours") == headings.index("Learning") - 2  # before vehicular edge computing
    assert "Its ferries sail on paper." in out and "- The harbour is small." in out
    assert re.search(r"^8192 .*\bharbour\b", out, re.MULTILINE)  # no environment of that name is in envs/


def test_general_code_names_no_family():
    """Nor an environment, except for the one of the headline."""
    folder = families.FOLDER
    general = [*folder.glob("*.py"), *folder.glob("common/**/*"), *folder.glob("chapters/*"), folder / "report.css"]
    named = {*families.names(), *(headline["environment"] for headline in families.headlines().values())}
    found = {
        (file.name, name)
        for file in general
        if file.is_file() and file.suffix != ".pyc"
        for name in named
        if re.search(rf"\b{name}\b", file.read_text(encoding="utf-8"))
    }
    assert found == {("aims.yaml", families.headline()["environment"])}
