"""Learning algorithms on batched environments, one file or folder each, which is found by its name.

`parts` holds what algorithms are made of, `run` what surrounds any of them, `recipes` their settings by environment.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.reading import nearest

if TYPE_CHECKING:
    from .run.algorithm import Algorithm

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The algorithms, alphabetically: files <name>.py here, and folders that can be run."""
    files = (file.stem for file in FOLDER.glob("*.py") if file.name != "__init__.py")
    return sorted([*files, *(main.parent.name for main in FOLDER.glob("*/__main__.py"))])


def algorithm(name: str) -> "type[Algorithm]":
    """The class of an algorithm: the one in the module `lockstep.agents.<name>` whose attribute `name` is this.

    Raises:
        ValueError: there is none; the nearest name is given.
    """
    if name not in names():
        raise ValueError(f"there is no algorithm {name!r}{nearest(name, names())}")
    found = vars(importlib.import_module(f"{__name__}.{name}")).values()
    return next(value for value in found if isinstance(value, type) and vars(value).get("name") == name)
