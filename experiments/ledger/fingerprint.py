"""A fingerprint of what determines measured rows: the code that makes them, without comments, docstrings and imports.

Kernels count as the compiler sees them. A file that is moved, renamed or reformatted leaves the fingerprint as it is.
"""

import ast
import functools
import hashlib
import re
from pathlib import Path

from lockstep.experiments import ROOT, catalogue, config
from lockstep.experiments.ledger import sources
from lockstep.reading import read_yaml

# Code that writes down, asks, and finds, and code that only shows: no row depends on it.
ASIDE = ("experiments/ledger/", "experiments/command.py", "experiments/config.py", "experiments/experiment.py")
DRAWING = "render.py"
OF_A_GPU = "_cuda.cuh"  # files of kernels that only a GPU's form has
C_TEXT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)  # a string, which is kept, or a comment


def of(experiment: str, environment: str | None = None, root: Path = ROOT, gpu: bool = True) -> str:
    """The fingerprint of the code that measures an experiment of an environment, 64 hexadecimal digits.

    The recipe by which agents are trained counts, and so do the data that an environment's folder has for the code; the
    settings of experiments are told apart from code: `settings_of`.

    gpu: the machine has one. Without it files of a GPU's kernels count only where they are compiled.
    """
    paths = sources.of_experiment(experiment, environment, root)
    counts = gpu or catalogue.experiments()[experiment].compiles
    aside = (*sources.DATA, DRAWING, *[OF_A_GPU][counts:])
    counted = [path for path in paths if not path.startswith(ASIDE) and not path.endswith(aside)]
    digests = [digest_of_meaning(Path(path).suffix, (root / path).read_text()) for path in counted]
    read = [path for path in paths if path.startswith((sources.RECIPES, "envs/")) and path.endswith(sources.DATA)]
    digests += [digest_of_content(root / path) for path in read]
    return digest("".join(sorted(digests)))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_content(file: Path) -> str:
    """The digest of what a YAML file says, and of any other byte by byte."""
    if file.suffix == ".yaml":
        return digest(str(read_yaml(file, file.name)))
    return hashlib.sha256(file.read_bytes()).hexdigest()


@functools.cache  # experiments share most files
def digest_of_meaning(suffix: str, text: str) -> str:
    return digest(meaning(suffix, text))


def meaning(suffix: str, text: str) -> str:
    """The text of a file but for what may change without changing what it does."""
    if suffix == ".py":
        bare = map(Bare().visit, on_the_timed_path(ast.parse(text).body))
        return "\n".join(ast.dump(node) for node in bare if node)
    if suffix in (".cuh", ".cpp"):
        return " ".join(C_TEXT.sub(lambda found: found[1] or " ", text).split())
    return text


def on_the_timed_path(body: list[ast.stmt]) -> list[ast.stmt]:
    """Of an experiment with a function `measure` that, and what it names, and so on; of other modules everything.

    What plans, options and reports do besides is left out.
    """
    named = {name: node for node in body for name in names_of(node)}
    if not {"EXPERIMENT", "measure"} <= named.keys():
        return body
    reached, waiting = set(), ["measure"]
    while waiting:
        name = waiting.pop()
        if name in named and name not in reached:
            reached.add(name)
            waiting += [node.id for node in ast.walk(named[name]) if isinstance(node, ast.Name)]
    return [node for node in body if reached.intersection(names_of(node))]


def names_of(node: ast.stmt) -> list[str]:
    """Names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


class Bare(ast.NodeTransformer):
    """Drops imports, whose files count themselves, and statements that are nothing but a text."""

    def visit_Import(self, node: ast.Import) -> None:
        return None

    visit_ImportFrom = visit_Import

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text else self.generic_visit(node)


def section_of(experiment: str, environment: str | None, scale: str) -> dict:
    """The section of an experiment in the settings, resolved; empty where there is none."""
    return whole_of(environment, scale).get(experiment, {})


def whole_of(environment: str | None, scale: str) -> dict:
    return config.at_scale(config.parse(config.file_of(environment)), scale) if environment else {}


def settings_of(experiment: str, environment: str | None, scale: str) -> dict:
    """The settings that every group depends on: what only chooses groups is left out of the section."""
    whole, choices = whole_of(environment, scale), catalogue.experiments()[experiment].choices
    shared = {key: value for key, value in whole.get(experiment, {}).items() if key not in choices}
    return shared | {"seed": whole.get("seed"), "fixed_policy": whole.get("throughput", {}).get("fixed_policy")}
