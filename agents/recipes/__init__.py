"""The recipe of each environment, <environment>.yaml: how algorithms train on it.

    ppo: {recipe: solve, seed: 0, ...}      of an algorithm by its name: one of its recipes, and what differs from it

The settings of an algorithm are checked by its `config_of`.
"""

from collections.abc import Mapping
from pathlib import Path

import yaml

from lockstep import agents, files
from lockstep.reading import nearest, read_yaml

FOLDER = Path(__file__).parent


def names(folder: Path = FOLDER) -> list[str]:
    """The environments with a recipe, alphabetically."""
    return sorted(file.stem for file in folder.glob("*.yaml"))


def load(environment: str, folder: Path = FOLDER) -> dict:
    """The content of <environment>.yaml: settings by algorithm.

    Raises:
        ValueError: names the file, the key, and what would be right.
    """
    if environment not in names(folder):
        raise ValueError(f"there is no agents/recipes/{environment}.yaml{nearest(environment, names(folder))}")
    return read(folder / f"{environment}.yaml", f"agents/recipes/{environment}.yaml")


def of(environment: str, algorithm: str) -> dict:
    """The settings of an algorithm in an environment's recipe; ValueError as `load` and `section`."""
    return section(load(environment), algorithm, f"agents/recipes/{environment}.yaml")


def section(content: Mapping, algorithm: str, name: str) -> dict:
    """The settings of an algorithm in what `read` gave; ValueError with the file's name where there are none."""
    if algorithm not in content:
        raise ValueError(f"{name}: the key {algorithm!r} is missing")
    return dict(content[algorithm])


def is_file(recipe: str | Path) -> bool:
    """True where a recipe is meant as a file, not as a name."""
    return isinstance(recipe, Path) or Path(recipe).suffix in (".yaml", ".yml")


def read(path: Path, name: str | None = None) -> dict:
    """The content of a recipe's file, laid out as those here are; `name` is how errors call it.

    Raises:
        ValueError: names the file, the key, and what would be right.
    """
    name = str(path) if name is None else name
    content, known = read_yaml(path, name), agents.names()
    if not isinstance(content, Mapping):
        raise ValueError(f"{name}: {content!r} must be settings by algorithm, of {', '.join(known)}")
    for algorithm, settings in content.items():
        if algorithm not in known:
            raise ValueError(f"{name}: unknown key {algorithm!r}{nearest(algorithm, known)}")
        if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
            raise ValueError(f"{name}: {algorithm}: {settings!r} must be settings by name, as in {{num_envs: 256}}")
    return content


def write(path: Path, algorithm: str, settings: Mapping, comment: str) -> None:
    """Writes a file that `read` reads, in one step: settings of an algorithm, tuples as lists."""
    plain = {field: list(value) if isinstance(value, tuple) else value for field, value in settings.items()}
    with files.replacing(path, encoding="utf-8") as file:
        file.write(f"# {comment}\n" + yaml.safe_dump({algorithm: plain}, sort_keys=False))
