"""The recipe of each environment, <environment>.yaml: how algorithms train on it, and what its learning experiment
measures where it has one (Gymnasium's environments do).

    ppo: {recipe: solve, seed: 0, ...}      of an algorithm by its name: one of its recipes, and what differs from it
    learning: {solved: 475, quick: {ppo: {...}}, full: {ppo: {...}}}

The fields of an algorithm are checked by its `config_of`, everything else here. LAYOUT says what may stand where.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from lockstep import agents

FOLDER = Path(__file__).parent
NUMBER, COUNT, TEXT = "a number", "a whole number of at least 1", "text"
SETTINGS = "settings by name"  # recipe, and any field of the algorithm's Config

# Keys that end in ? may be left out. [x] is a list of x.
PEER = {"agent": TEXT, "seeds": COUNT, "threads?": COUNT}
SCALE = {
    "curves?": {"seeds": COUNT, "points": COUNT, "episodes": COUNT},
    "solve?": {"warm": COUNT, "cold?": COUNT, "first?": COUNT, "peers?": [PEER]},
    "together?": [{"settings": SETTINGS, "devices?": [TEXT]}],
    "rates?": [{"settings": SETTINGS, "agents": [TEXT], "blocks": COUNT, "devices?": [TEXT], "threads?": COUNT}],
    "scaling?": {"settings": SETTINGS, "num_envs": [COUNT], "blocks": COUNT, "seeds": COUNT, "seconds?": NUMBER},
    "ablations?": [{"variant": TEXT, "settings": SETTINGS, "seeds?": COUNT, "blocks?": COUNT, "devices?": [TEXT]}],
}
BY_ALGORITHM = {f"{name}?": SCALE for name in agents.names()}
LAYOUT = {
    **{f"{name}?": SETTINGS for name in agents.names()},
    "learning?": {
        "solved?": NUMBER,  # mean greedy return that stops a run to solve
        "aim?": NUMBER,  # greedy return in the original that is asked for
        "above_random?": NUMBER,  # how far above a random policy's return the trained one must come
        "reference?": {"score": NUMBER, "source": TEXT},  # published, for comparison
        "quick": BY_ALGORITHM,
        "full": BY_ALGORITHM,
    },
}


class RecipeError(ValueError):
    """A recipe that is missing or says what it may not."""


def names(folder: Path = FOLDER) -> list[str]:
    """The environments with a recipe, alphabetically."""
    return sorted(file.stem for file in folder.glob("*.yaml"))


def load(environment: str, folder: Path = FOLDER) -> dict:
    """The content of <environment>.yaml: a dict of algorithms, and with `learning` where there is such an experiment.

    Raises:
        RecipeError: names the file, the key, and what would be right.
    """
    if environment not in names(folder):
        raise RecipeError(f"there is no agents/recipes/{environment}.yaml{nearest(environment, names(folder))}")
    return read(folder / f"{environment}.yaml", f"agents/recipes/{environment}.yaml")


def of(environment: str, algorithm: str) -> dict:
    """The settings of an algorithm in an environment's recipe; RecipeError as `load` and `section`."""
    return section(load(environment), algorithm, f"agents/recipes/{environment}.yaml")


def section(content: Mapping, algorithm: str, name: str) -> dict:
    """The settings of an algorithm in what `read` gave; RecipeError with the file's name where there are none."""
    if algorithm not in content:
        raise RecipeError(f"{name}: the key {algorithm!r} is missing")
    return dict(content[algorithm])


def is_file(recipe: str | Path) -> bool:
    """True where a recipe is meant as a file, not as a name."""
    return isinstance(recipe, Path) or Path(recipe).suffix in (".yaml", ".yml")


def read(path: Path, name: str | None = None) -> dict:
    """The content of a recipe's file, laid out as those here are; `name` is how errors call it.

    Raises:
        RecipeError: names the file, the key, and what would be right.
    """
    name = str(path) if name is None else name
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise RecipeError(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecipeError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except yaml.YAMLError as error:
        raise RecipeError(f"{name} is no YAML: {' '.join(str(error).split())}") from error
    check(content, LAYOUT, name)
    return content


def write(path: Path, algorithm: str, settings: Mapping, comment: str) -> None:
    """Writes a file that `read` reads: settings of an algorithm, tuples as lists."""
    plain = {field: list(value) if isinstance(value, tuple) else value for field, value in settings.items()}
    path.write_text(f"# {comment}\n" + yaml.safe_dump({algorithm: plain}, sort_keys=False), "utf-8")


def check(value: object, layout: object, place: str) -> None:
    """RecipeError with the first thing in `value` that does not follow the layout."""
    if isinstance(layout, Mapping):
        check_keys(value, layout, place)
    elif isinstance(layout, Sequence) and not isinstance(layout, str):
        if not isinstance(value, list) or not value:
            raise RecipeError(f"{place}: {value!r} must be a list with something in it")
        for number, item in enumerate(value):
            check(item, layout[0], f"{place}[{number}]")
    elif layout == SETTINGS:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise RecipeError(f"{place}: {value!r} must be {layout}, as in {{recipe: cleanrl, num_envs: 256}}")
    elif not fits(value, layout):
        hint = "; YAML takes it for text, write the number as in 1.0e-6" if is_number_as_text(value, layout) else ""
        raise RecipeError(f"{place}: {value!r} must be {layout}{hint}")


def check_keys(value: object, layout: Mapping, place: str) -> None:
    if not isinstance(value, Mapping):
        raise RecipeError(f"{place}: {value!r} must have the keys {', '.join(key.rstrip('?') for key in layout)}")
    known = {key.rstrip("?"): inside for key, inside in layout.items()}
    for key in value:
        if key not in known:
            raise RecipeError(f"{place}: unknown key {key!r}{nearest(str(key), list(known))}")
    for key in layout:
        if not key.endswith("?") and key not in value:
            raise RecipeError(f"{place}: the key {key!r} is missing")
    for key, inside in value.items():
        check(inside, known[key], f"{place}: {key}" if is_file(place) else f"{place}.{key}")


def fits(value: object, kind: str) -> bool:
    if kind == TEXT:
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return kind == NUMBER or (isinstance(value, int) and value >= 1)


def is_number_as_text(value: object, kind: str) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return isinstance(value, str) and kind != TEXT


def nearest(word: str, known: Sequence[str]) -> str:
    """The end of a sentence that says what may have been meant, and what there is."""
    close = difflib.get_close_matches(word, known, n=1)
    guess = f"; did you mean {close[0]!r}?" if close else "."
    return f"{guess} Known: {', '.join(sorted(known))}"
