"""The settings of an environment: experiments/<family>/<environment>.yaml, checked against the experiments' schemas."""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

from lockstep.experiments import SCALES, UserError
from lockstep.experiments.bench.parameters import params_of
from lockstep.extras import extra
from lockstep.reading import nearest, read_yaml

with extra("paper", of="lockstep.experiments"):
    import jsonschema

FOLDER = Path(__file__).parent
SCHEMA = ".schema.yaml"  # beside an experiment: what its section may hold
RULES = {"type": "must be of type", "minimum": "must be at least", "exclusiveMinimum": "must be above"}


class ConfigError(UserError, ValueError):
    """A settings file that is missing or says what it may not."""


class Settings(Mapping):
    """A frozen mapping whose keys are attributes as well; lists in it are tuples."""

    def __init__(self, values: Mapping):
        object.__setattr__(self, "_values", {key: frozen(value) for key, value in values.items()})

    def __getitem__(self, key: str) -> object:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, key: str) -> object:
        if key.startswith("_"):  # pickle and copy ask for such names before there are values
            raise AttributeError(key)
        try:
            return self._values[key]
        except KeyError:
            raise AttributeError(f"there is no setting {key!r} here, only {', '.join(self)}") from None

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError(f"settings are frozen: {key} cannot be set")

    def plain(self) -> dict:
        """The same as dicts and lists, for JSON."""
        return {key: thawed(value) for key, value in self.items()}


def frozen(value: object) -> object:
    if isinstance(value, Mapping):
        return Settings(value)
    return tuple(frozen(item) for item in value) if isinstance(value, list) else value


def thawed(value: object) -> object:
    if isinstance(value, Settings):
        return value.plain()
    return [thawed(item) for item in value] if isinstance(value, tuple) else value


def files(folder: Path = FOLDER) -> dict[str, Path]:
    """The settings file of every environment by its name: <family>/<environment>.yaml."""
    return {file.stem: file for file in sorted(folder.glob("*/*.yaml")) if not file.name.endswith(SCHEMA)}


def file_of(environment: str, folder: Path = FOLDER) -> Path:
    """The settings file of an environment; ConfigError names the nearest there is."""
    known = files(folder)
    if environment not in known:
        raise ConfigError(
            f"unknown environment {environment!r}, no experiments/*/{environment}.yaml{nearest(environment, known)}"
        )
    return known[environment]


def shown(file: Path) -> str:
    """A settings file as sentences name it."""
    return f"experiments/{file.parent.name}/{file.name}"


def load(environment: str, scale: str, folder: Path = FOLDER) -> Settings:
    """The settings of an environment at a scale; ConfigError names file, key and what would be right.

    Wherever the file gives `quick` and `full`, those of the scale stand in their section's place:
    load("cartpole", "quick").throughput.blocks.
    """
    if scale not in SCALES:
        raise ConfigError(f"scale {scale!r} is not one of {', '.join(SCALES)}")
    file = file_of(environment, folder)
    content = parse(file)
    check(content, schema_of(file), shown(file))
    return Settings(at_scale(content, scale))


def schema_of(file: Path) -> dict:
    """The schema of settings files: schema.yaml, and a section for each <experiment>.schema.yaml.

    A family's own, beside the file, takes the place of a general one.
    """
    sections = (part for folder in (file.parents[1], file.parent) for part in sorted(folder.glob(f"*{SCHEMA}")))
    parts = (file.parents[1] / "schema.yaml", *sections)
    return joined(tuple((part, part.stat().st_mtime_ns) for part in parts))


@functools.cache
def joined(parts: tuple[tuple[Path, int], ...]) -> dict:
    """The schema of such files, each with the time of its last change."""
    whole = parse(parts[0][0])
    for section, _ in parts[1:]:
        content = parse(section)
        whole["$defs"] |= content.pop("$defs", {})
        whole["properties"][section.name.removesuffix(SCHEMA)] = content
    return whole


def check_policy(environment: str, settings: Settings, outputs: int, inputs: int) -> None:
    """ConfigError unless the fixed policy, if there is one, has weights [outputs, inputs] and bias [outputs]."""
    policy = settings.throughput.get("fixed_policy")
    if policy is None:
        return
    where = f"{shown(file_of(environment))}: throughput.fixed_policy"
    rows = [len(row) for row in policy.weights]
    if rows != [inputs] * outputs:
        raise ConfigError(f"{where}.weights: {outputs} rows of {inputs} numbers are needed, found rows of {rows}")
    if len(policy.bias) != outputs:
        raise ConfigError(f"{where}.bias: {outputs} numbers are needed, found {len(policy.bias)}")


def check_options(place: str, options: Mapping, port) -> None:
    """ConfigError unless the options are ones that batches of a port take: a preset, its own, its parameters.

    Args:
        place: of the options, "experiments/classic_control/cartpole.yaml: throughput.options".
        port: `envs.Port` of the environment.
    """
    try:
        params_of(port, options)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error


def parse(file: Path) -> object:
    """The content of a YAML file; ConfigError names it and the place."""
    try:
        return read_yaml(file, shown(file))
    except ValueError as error:
        raise ConfigError(str(error)) from error


def check(content: object, schema: Mapping, name: str) -> None:
    """ConfigError with the first thing in `content` that the schema does not allow."""
    if content is None:
        raise ConfigError(f"{name} is empty; {', '.join(schema['required'])} are missing")
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(content))
    if error is not None:
        steps = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.absolute_path)
        place = "".join(steps).removeprefix(".")
        raise ConfigError(": ".join(part for part in (name, place, explained(error)) if part))


def explained(error) -> str:
    """One sentence on a jsonschema error: what was found and what would be right."""
    if error.validator == "additionalProperties" and isinstance(error.schema.get("properties"), Mapping):
        known = list(error.schema["properties"])
        unknown = next(key for key in error.instance if key not in known)
        return f"unknown key {unknown!r}{nearest(unknown, known)}"
    if "propertyNames" in error.schema_path and error.validator == "enum":
        return f"unknown key {error.instance!r}{nearest(error.instance, error.validator_value)}"
    if error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        return f"the key {missing!r} is missing"
    if error.validator == "dependentRequired":
        pairs = ((given, key) for given, keys in error.validator_value.items() for key in keys)
        given, missing = next(pair for pair in pairs if pair[0] in error.instance and pair[1] not in error.instance)
        return f"{missing!r} must stand beside {given!r}"
    if error.validator == "enum":
        return f"{error.instance!r} is not allowed; allowed: {', '.join(map(str, error.validator_value))}"
    rule = RULES.get(error.validator)
    return f"{error.instance!r} is not allowed: {rule} {error.validator_value}" if rule else error.message


def at_scale(content: object, scale: str) -> object:
    """The content with every pair of `quick` and `full` replaced by what the one of the scale holds."""
    if isinstance(content, list):
        return [at_scale(item, scale) for item in content]
    if not isinstance(content, Mapping):
        return content
    chosen = content[scale] if set(SCALES) <= set(content) else {}
    merged = {key: value for key, value in content.items() if not chosen or key not in SCALES} | chosen
    return {key: at_scale(value, scale) for key, value in merged.items()}
