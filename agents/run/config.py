"""Configurations of algorithms: frozen dataclasses whose fields say what they mean and what they may be."""

import argparse
import dataclasses
import functools
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from lockstep.agents import recipes
from lockstep.reading import nearest


def setting(default, explanation: str, *, least: float = -math.inf, most: float = math.inf, choices: Sequence = ()):
    """A field with its line of help, and the range or the values it may have.

    A tuple as a value is one per member: each of its numbers must lie in the range.
    """
    rules = {"help": explanation, "least": least, "most": most, "choices": tuple(choices)}
    return dataclasses.field(default=default, metadata=rules)


def check(config) -> None:
    """Raises ValueError that names field, value and what is allowed."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        choices, least, most = (field.metadata[rule] for rule in ("choices", "least", "most"))
        if not _is_of(value, field.type):
            raise ValueError(f"{field.name}={value!r} must be {_words(field.type)}")
        if choices and value not in choices:
            raise ValueError(f"{field.name}={value!r} must be one of {', '.join(map(repr, choices))}")
        for number in value if isinstance(value, tuple) else (value,):
            is_number = isinstance(number, int | float) and not isinstance(number, bool)
            if is_number and not math.isfinite(number):
                raise ValueError(f"{field.name}={value!r} must be finite")
            if is_number and not least <= number <= most:
                raise ValueError(
                    f"{field.name}={value!r} must lie in [{least:g}, {most:g}]".replace(", inf]", ", ...]")
                )


def require_iteration(config) -> None:
    """Raises ValueError where a run's steps are not one iteration of num_envs x horizon."""
    steps = config.num_envs * config.horizon
    if config.total_steps < steps:
        raise ValueError(
            f"total_steps={config.total_steps} must be at least one iteration, num_envs x horizon = {steps}"
        )


@dataclass(frozen=True)
class Settings:
    """Settings of every algorithm's `Config`; with the environment's name it determines every number of a run."""

    num_envs: int = setting(4, "B, environments, over all processes", least=1)
    total_steps: int = setting(500_000, "environment steps of the whole run, rounded down to whole iterations", least=1)
    threads: int | None = setting(None, "of the CPU, at most; None: as many as torch uses", least=1, most=1024)
    seed: int = setting(0, "of everything", least=0, most=2**63 - 1)
    options: str = setting("", "of an environment that is made by its name: name=value, with commas between several")
    eval_every: int = setting(8192, "environment steps between checks, which --stop-at asks for", least=1)
    save_every: int = setting(0, "environment steps between checkpoints; 0: only the last", least=0)

    def __post_init__(self):
        check(self)


def config_of(algorithm: type, environment: str, recipe: str | Path | None = None, **changes):
    """A recipe's configuration of an algorithm, with single fields replaced.

    Args:
        environment: one of agents/recipes/, whose recipe is taken where no other is named.
        recipe: a name, or a file *.yaml like those of agents/recipes/ or the config.yaml of a run.
        **changes: fields.

    Raises:
        ValueError: an unknown recipe, environment or field (the nearest name is given), or a value that is not allowed;
            names the file where it stands in one.
    """
    if recipe is None:
        found = _of_file(algorithm, recipes.load(environment), f"agents/recipes/{environment}.yaml")
    elif recipes.is_file(recipe):
        found = _of_file(algorithm, recipes.read(Path(recipe)), str(recipe))
    else:
        return _named(algorithm, {"recipe": recipe} | changes)
    return replaced(found, changes)


def _of_file(algorithm: type, content: Mapping[str, Any], name: str):
    chosen = recipes.section(content, algorithm.name, name)
    try:
        return _named(algorithm, chosen)
    except ValueError as error:
        raise ValueError(f"{name}: {algorithm.name}: {error}") from error


def _named(algorithm: type, chosen: Mapping[str, Any]):
    """The recipe that is named, or the first, with all else that was chosen in its fields."""
    fields = dict(chosen)
    recipe = fields.pop("recipe", next(iter(algorithm.RECIPES)))
    if not isinstance(recipe, str) or recipe not in algorithm.RECIPES:
        known = ", ".join(map(repr, algorithm.RECIPES))
        raise ValueError(f"recipe={recipe!r} must be one of {known}, or a file *.yaml")
    return replaced(algorithm.RECIPES[recipe], fields)


def replaced(config, changes: Mapping[str, Any]):
    """The configuration with some fields replaced; integers stand for floats and lists for tuples, as in YAML.

    Raises:
        ValueError: an unknown field (the nearest name is given), or a value that is not allowed.
    """
    known = {field.name: field for field in dataclasses.fields(config)}
    changed = {}
    for name, value in changes.items():
        if name not in known:
            raise ValueError(f"{type(config).__name__} has no field {name!r}{nearest(name, known)}")
        changed[name] = _plain(value, known[name].type)
    return dataclasses.replace(config, **changed)


def add_options(parser: argparse.ArgumentParser, config: type) -> None:
    """An option --field-name per field, with its default in the help; absent from the parsed names unless given."""
    for field in dataclasses.fields(config):
        option = "--" + field.name.replace("_", "-")
        choices = ", ".join(field.metadata["choices"])
        explained = f"{field.metadata['help']} ({choices})" if choices else field.metadata["help"]
        explained = f"{explained} [{_as_given(field.default)}]".replace("%", "%%")
        shown = {"dest": field.name, "default": argparse.SUPPRESS, "help": explained}
        if field.type is bool:
            parser.add_argument(option, action=argparse.BooleanOptionalAction, **shown)
        elif get_origin(field.type) is tuple:
            parser.add_argument(option, type=int, nargs="+", metavar="N", **shown)
        else:
            kinds = _kinds(field.type)
            if tuple[float, ...] in kinds:
                parser.add_argument(option, type=float, nargs="+", metavar="X", action=_OneOrSeveral, **shown)
            else:
                kind = next(kind for kind in (int, float, str) if kind in kinds)
                read = _or_none(kind) if types.NoneType in kinds else kind
                parser.add_argument(option, type=read, metavar=kind.__name__, **shown)


def _or_none(kind: type) -> Callable[[str], Any]:
    """A reader of words that are of a kind, or "none"; argparse calls it by the kind's name where it refuses one."""

    @functools.wraps(kind, updated=())
    def read(word: str):
        return None if word == "none" else kind(word)

    return read


def _as_given(value) -> str:
    """A value as one types it on the command line."""
    if isinstance(value, bool | None):
        return {True: "on", False: "off", None: "none"}[value]
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


class _OneOrSeveral(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, values[0] if len(values) == 1 else tuple(values))


def _kinds(kind) -> tuple:
    return get_args(kind) if isinstance(kind, types.UnionType) else (kind,)


def _is_of(value, kind) -> bool:
    return any(_is_one(value, one) for one in _kinds(kind))


def _is_one(value, kind) -> bool:
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and bool(value) and all(_is_one(item, get_args(kind)[0]) for item in value)
    if kind in (int, float):
        return isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
    return isinstance(value, kind)


def _plain(value, kind):
    if isinstance(value, list):
        return tuple(value)
    if float in _kinds(kind) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _words(kind) -> str:
    names = {int: "an integer", float: "a number", bool: "True or False", str: "a word", types.NoneType: "None"}
    return " or ".join(
        f"a tuple of {names[get_args(one)[0]].split()[-1]}s" if get_origin(one) is tuple else names[one]
        for one in _kinds(kind)
    )
