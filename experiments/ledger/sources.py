"""The files of this repository that an experiment runs: its import graph, and the folder of its environment.

The graph is read from the syntax trees, so nothing is imported, and imports inside functions count as well.
"""

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from lockstep.experiments import ROOT

BY_FOLDER = ("experiments/peer_workers", "paper")  # packages that find their modules by folder, and import none
DATA = (".yaml", ".json", ".npz")  # files that code may read
PACKAGE = "lockstep"  # whose modules are the folders of the repository, and what lies in the folder of that name
RECIPES = "agents/recipes"  # a package that reads one file per environment


def of(module: str, environment: str | None = None, root: Path = ROOT) -> list[str]:
    """Paths, relative to the repository, of every file that `module` runs for `environment`; sorted.

    These are the module, all it imports of ours, and files beside such a module that share its name (ceilings.cuh,
    gymnax.txt, throughput.schema.yaml). A package of BY_FOLDER comes with all its modules. `envs` finds its
    environments by folder, so where it is imported envs/kernels/ comes along, and with an environment that part of it
    which its kernel is compiled with, its own folder, and no other environment's. With an environment come its YAML and
    its family's own modules of the same names, and where recipes are read its recipe and the algorithms that either
    names, which `agents` finds by folder. Last come those data of its folder that a module so far reads.
    """
    files = imported([module], root)
    if not files:
        raise ValueError(f"{module} is no module of this repository")
    for folder in (root / package for package in BY_FOLDER):
        if folder / "__init__.py" in files:
            files |= imported([name_of(file, root) for file in code(folder)], root)
    if environment:
        family = family_of(environment, root)
        own = (family / file.name for file in files if file.parent == root / "experiments" and file.stem != "__init__")
        files |= imported([name_of(file, root) for file in own if file.is_file()], root)
        files.add(family / f"{environment}.yaml")
        if root / RECIPES / "__init__.py" in files:
            recipe = root / RECIPES / f"{environment}.yaml"
            files |= {recipe} if recipe.is_file() else set()
            words = {word for file in files if file.suffix == ".yaml" for word in re.findall(r"\w+", file.read_text())}
            files |= imported([f"{PACKAGE}.agents.{name}" for name in algorithms(root) & words], root)
    if any(file.is_relative_to(root / "envs") for file in files):
        folders = [root / "envs" / "kernels", *([environments(root)[environment]] if environment else [])]
        for folder in folders:
            files |= imported([name_of(file, root) for file in code(folder) if file.suffix == ".py"], root)
        files |= compiled(environment, root)
    if environment and root / "envs" / "__init__.py" in files:
        files |= read_by(files, environments(root)[environment])
    beside = (file.with_suffix(suffix) for file in files for suffix in (".cuh", ".txt", ".schema.yaml"))
    files |= {file for file in beside if file.is_file()}
    return sorted(file.relative_to(root).as_posix() for file in files)


def read_by(modules: Iterable[Path], folder: Path) -> set[Path]:
    """The data files of an environment's folder that a module names in a text, or whose folder within it it names."""
    found = {file: file.relative_to(folder).parts[0] for file in folder.rglob("*") if file.suffix in DATA}
    text = "".join(file.read_text() for file in modules if file.suffix == ".py") if found else ""
    return {file for file, name in found.items() if f'"{name}"' in text}


def compiled(environment: str | None, root: Path) -> set[Path]:
    """C++ files: the kernel of an environment, all it includes, and the launch form that is written for these.

    Where it includes the parts of none, every form counts.
    """
    kernels = root / "envs" / "kernels"
    files = [file for file in code(kernels) if file.suffix != ".py"]
    if environment is None:
        return set(files)
    batch, reached = kernels / "batch.cuh", included([environments(root)[environment] / "kernel.cuh"], root)
    forms = [file for file in files if batch in included([file], root)]
    own = [file for file in forms if reached & (includes(file, root) - included([batch], root))]
    always = [file for file in files if file.name in ("platform.cuh", "pool.cpp")]
    return reached | included([*(own or forms), *always], root)


def included(files: Iterable[Path], root: Path) -> set[Path]:
    """The files with all that they include of ours."""
    reached: set[Path] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in reached:
            reached.add(file)
            waiting += includes(file, root)
    return reached


@functools.cache
def includes(file: Path, root: Path) -> frozenset[Path]:
    """The files of quoted includes: beside the file, or from envs/."""
    named = re.findall(r'^#include "(.+)"', file.read_text(), re.MULTILINE)
    places = ((file.parent / name, root / "envs" / name) for name in named)
    return frozenset(place for both in places for place in both if place.is_file())


def of_experiment(name: str, environment: str | None = None, root: Path = ROOT) -> list[str]:
    """The same of an experiment by its name: a general one, or one of the environment's family."""
    general = root / "experiments" / f"{name}.py"
    return of(
        name_of(general if general.is_file() else family_of(environment, root) / f"{name}.py", root), environment, root
    )


def algorithms(root: Path = ROOT) -> set[str]:
    """The learning algorithms: files in agents/, and folders that can be run."""
    agents = root / "agents"
    return {file.stem for file in agents.glob("*.py")} | {file.parent.name for file in agents.glob("*/__main__.py")}


def family_of(environment: str, root: Path = ROOT) -> Path:
    """The folder in experiments/ of an environment's family."""
    return root / "experiments" / environments(root)[environment].relative_to(root / "envs").parts[0]


def environments(root: Path = ROOT) -> dict[str, Path]:
    """The folders of environments by name: each has a kernel."""
    return {kernel.parent.name: kernel.parent for kernel in (root / "envs").rglob("kernel.cuh")}


def in_gymnasium(environment: str, root: Path = ROOT) -> bool:
    """Tells of an environment that its original is Gymnasium's, as the text of its port says."""
    port = environments(root)[environment] / "port.py"
    return re.search(r"^ +gymnasium_id=", port.read_text(), re.MULTILINE) is not None


def code(folder: Path) -> list[Path]:
    return sorted(file for suffix in ("py", "cuh", "cpp") for file in folder.rglob(f"*.{suffix}"))


def imported(modules: Iterable[str], root: Path) -> set[Path]:
    """The files of modules, their packages and everything of ours they import; empty if none is ours."""
    files: set[Path] = set()
    seen: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        file = None if name in seen else file_of(name, root)
        seen.add(name)
        if file is None:
            continue
        files.add(file)
        waiting.extend(imports(file, root))
        # Importing a.b runs a/__init__.py first.
        waiting.extend([name.rpartition(".")[0]] if "." in name else [])
    return files


@functools.cache  # Snakemake asks for every job, and the jobs share most files
def imports(file: Path, root: Path) -> tuple[str, ...]:
    """Every module name that an import statement of the file may mean, ours or not."""
    return tuple(_imports(file, root))


def _imports(file: Path, root: Path) -> Iterator[str]:
    package = name_of(file, root).split(".")
    if file.name != "__init__.py":
        package = package[:-1]
    for node in statements(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            # `from package import name` means a module where a file of that name stands in the package.
            yield from (f"{base}.{alias.name}" for alias in node.names)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements within a node, however deep, but those for type checkers alone.

    Their expressions, of which there are many more, are left out.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            yield from statements(ast.Module(child.orelse, []))
        elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield child
            yield from statements(child)


def file_of(module: str, root: Path) -> Path | None:
    """The file of a module of ours, None for any other, and for a folder without __init__.py."""
    package, *inside = module.split(".")
    if package != PACKAGE or not inside:  # the front door imports whatever is asked for
        return None
    path, own = root.joinpath(*inside), root.joinpath(PACKAGE, *inside)
    candidates = (path / "__init__.py", path.with_suffix(".py"), own.with_suffix(".py"))
    return next((file for file in candidates if file.is_file()), None)


def name_of(file: Path, root: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    parts = parts[1:] if parts[0] == PACKAGE else parts
    return ".".join([PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)])
