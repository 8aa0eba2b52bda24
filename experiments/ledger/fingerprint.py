"""A fingerprint of what determines measured rows: the code that makes them, without what cannot change a number.

Comments, docstrings, imports, annotations of functions and messages of errors do not count, nor do parts of kernels for
a GPU on a machine without one. A file that is moved, renamed or reformatted leaves the fingerprint as it is.
"""

import ast
import functools
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from lockstep.experiments import ROOT, catalogue, config
from lockstep.experiments.ledger import sources
from lockstep.reading import read_yaml

# Code that writes down, asks, and finds, and code that only shows: no row depends on it.
ASIDE = (
    *("experiments/ledger/", "experiments/command.py", "experiments/config.py", "experiments/experiment.py"),
    *("lockstep/files.py", "lockstep/interrupt.py", "lockstep/extras.py"),
)
DRAWING = "render.py"
# Code that only times: no row depends on it where nothing is timed.
TIMING = ("experiments/bench/ladder.py", "experiments/bench/timing.py")
OF_A_GPU = "_cuda.cuh"  # files of kernels that only a GPU's form has
C_TEXT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)  # a string, which is kept, or a comment
CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef|else|endif)\b\s*(.*?)\s*$")
ASSIGNMENT = ast.Assign | ast.AnnAssign | ast.AugAssign
GPU = "__CUDACC__"  # defined where a kernel is compiled for a GPU


def of(experiment: str, environment: str | None = None, root: Path = ROOT, gpu: bool = True) -> str:
    """The fingerprint of the code that measures an experiment of an environment, 64 hexadecimal digits.

    The recipe by which agents are trained counts, and so do the data that an environment's folder has for the code; the
    settings of experiments are told apart from code: `settings_of`.

    gpu: the machine has one. Without it files of a GPU's kernels count only where they are compiled.
    """
    paths = sources.of_experiment(experiment, environment, root)
    counts = counts_gpu(experiment, gpu)
    endings = (*sources.DATA, DRAWING, *[OF_A_GPU][counts:])
    aside = ASIDE if is_timed(experiment) else (*ASIDE, *TIMING)
    counted = [path for path in paths if not path.startswith(aside) and not path.endswith(endings)]
    digests = [digest_of_meaning(Path(path).suffix, (root / path).read_text(), counts) for path in counted]
    read = [path for path in paths if path.startswith((sources.RECIPES, "envs/")) and path.endswith(sources.DATA)]
    digests += [digest_of_content(root / path) for path in read]
    return digest("".join(sorted(digests)))


def counts_gpu(experiment: str, gpu: bool) -> bool:
    """Tells that a GPU's parts of kernels count: the machine has one, or the experiment compiles them."""
    return gpu or catalogue.experiments()[experiment].compiles


def is_timed(experiment: str) -> bool:
    """Tells that rows of an experiment may be times; of one that is not known they may."""
    return experiment not in catalogue.experiments() or catalogue.timed(experiment)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_content(file: Path) -> str:
    """The digest of what a YAML file says, and of any other byte by byte."""
    if file.suffix == ".yaml":
        return digest(str(read_yaml(file, file.name)))
    return hashlib.sha256(file.read_bytes()).hexdigest()


@functools.cache  # experiments share most files
def digest_of_meaning(suffix: str, text: str, gpu: bool = True) -> str:
    return digest(meaning(suffix, text, gpu))


def meaning(suffix: str, text: str, gpu: bool = True) -> str:
    """The text of a file but for what may change without changing what it does, without a GPU on a CPU."""
    if suffix == ".py":
        bare = map(Bare().visit, on_the_timed_path(ast.parse(text).body))
        return "\n".join(ast.dump(node) for node in bare if node)
    if suffix in (".cuh", ".cpp"):
        text = C_TEXT.sub(lambda found: found[1] or " ", text)
        return " ".join((text if gpu else "\n".join(for_a_cpu(text.splitlines()))).split())
    return text


def for_a_cpu(lines: Iterable[str]) -> Iterator[str]:
    """The lines that are compiled where GPU is not defined, as far as conditions on it alone tell."""
    sides = []  # of each condition around a line: whether this side of it is compiled, None of a condition on others
    for line in lines:
        directive, condition = found.groups() if (found := CONDITION.match(line)) else (None, "")
        of_gpu = False  # a directive about GPU, which is left out
        if directive in ("if", "ifdef", "ifndef"):
            sides.append({f"ifdef {GPU}": False, f"ifndef {GPU}": True}.get(f"{directive} {condition}"))
            of_gpu = sides[-1] is not None
        elif directive and sides:
            of_gpu = sides[-1] is not None
            if directive == "endif":
                sides.pop()
            elif of_gpu:
                sides[-1] = not sides[-1]
        if not of_gpu and False not in sides:
            yield line


def on_the_timed_path(body: list[ast.stmt]) -> list[ast.stmt]:
    """Of an experiment with a function `measure` that, and what it names, and so on; of other modules everything.

    What plans, options and reports do besides is left out.
    """
    named = {id(node): names_of(node) for node in body}
    if not {"EXPERIMENT", "measure"} <= set(itertools.chain(*named.values())):
        return body
    reached, waiting = set(), ["measure", *(name for node in body if not named[id(node)] for name in read_in(node))]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += [used for node in body if name in named[id(node)] for used in read_in(node)]
    return [node for node in body if not named[id(node)] or reached.intersection(named[id(node)])]


def names_of(node: ast.stmt) -> list[str]:
    """Names that a statement of a module defines or changes."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = getattr(node, "targets", []) or [node.target] if isinstance(node, ASSIGNMENT) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def read_in(node: ast.stmt) -> list[str]:
    return [name.id for name in ast.walk(node) if isinstance(name, ast.Name)]


class Bare(ast.NodeTransformer):
    """Drops what changes no number: imports, whose files count themselves, texts, annotations, errors' messages."""

    def visit_Import(self, node: ast.Import) -> None:
        return None

    visit_ImportFrom = visit_Import

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc, node.cause = node.exc.func, None
        return node


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
