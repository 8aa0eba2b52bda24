"""The rooms of the folder: no imports between them go round in a circle, those within functions included."""

import ast
import graphlib
from pathlib import Path

from lockstep.envs import vehicular_edge

FOLDER = Path(vehicular_edge.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))


def imported(file: Path) -> set[Path]:
    """Files of the folder that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for alias in node.names:  # a module of that name, else a name of the module or package
                candidates = (base / f"{alias.name}.py", base.with_suffix(".py"), base / "__init__.py")
                found |= set([path for path in candidates if path in FILES][:1])
    return found


def room(file: Path) -> str:
    """The folder that a file lies in, or its own name where it lies in none."""
    return file.relative_to(FOLDER).with_suffix("").parts[0]


def test_files_import_each_other_in_no_circle():
    edges = {file: imported(file) for file in FILES}
    assert sum(map(len, edges.values())) > 2 * len(FILES)
    graphlib.TopologicalSorter(edges).prepare()  # CycleError names a circle


def test_rooms_import_each_other_in_no_circle():
    """As importing a file of a room runs the room's __init__ first."""
    edges = {room(file): set() for file in FILES}
    for file in FILES:
        edges[room(file)] |= {room(other) for other in imported(file)} - {room(file)}
    assert edges["arrays"] == {"port", "slot"}
    graphlib.TopologicalSorter(edges).prepare()
