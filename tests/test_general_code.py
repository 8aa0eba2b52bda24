"""General code knows no family, no environment and no algorithm by name; texts that explain it may give examples."""

import ast
import re
from pathlib import Path

from lockstep import agents
from lockstep.experiments import ROOT
from lockstep.experiments.ledger import fingerprint, sources
from lockstep.paper import families

ENVIRONMENTS = sources.environments()
NAMED = {folder.relative_to(ROOT / "envs").parts[0] for folder in ENVIRONMENTS.values()} | {*ENVIRONMENTS}
NAMED |= {*agents.names()}
GENERAL = ["agents/__init__.py", "agents/recipes/*.py", "agents/run/*", "agents/parts/**/*", "lockstep/*", "envs/*.py"]
GENERAL += ["envs/batch/*", "envs/kernels/*", "experiments/*", "experiments/bench/*", "experiments/ledger/*", "rules/*"]
GENERAL += ["Makefile", "Snakefile", "paper/*", "paper/chapters/*"]
GENERAL += ["paper/common/*.py", "paper/common/*/*", "paper/common/aims.yaml"]
NO_CODE = {".md", ".bib", ".pyc", ".typed"}
ALLOWED = {
    ("aims.yaml", families.headline()["environment"]),
    ("curves.py", "ppo"),  # what was recorded before there was another
    *((file, "cartpole") for file in ("run.py", "Makefile")),  # an example in a line of help
    ("06_learning.ipynb", "ppo"),  # where its sources are cited
}


class WithMessages(fingerprint.Bare):
    """Bare code with its errors' messages."""

    visit_Raise = ast.NodeTransformer.generic_visit


def code(file: Path) -> str:
    """The text without docstrings, imports and comments."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        return ast.unparse(WithMessages().visit(ast.parse(text)))
    return text if file.suffix == ".ipynb" else re.sub(r"(//|#).*", "", text)


def test_general_code_names_nobody():
    files = [file for pattern in GENERAL for file in ROOT.glob(pattern) if file.is_file()]
    texts = {file: code(file) for file in files if file.suffix not in NO_CODE}
    found = {(file.name, name) for file, text in texts.items() for name in NAMED if re.search(rf"\b{name}\b", text)}
    assert len(texts) > 150 and found == ALLOWED
