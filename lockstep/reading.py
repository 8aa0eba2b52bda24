"""Reading of what people write: YAML, and names that are nearly those that there are. Needs no torch."""

import difflib
from collections.abc import Iterable
from pathlib import Path

import yaml

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the former is ten times as fast; PyYAML may be built without


def read_yaml(file: Path, name: str) -> object:
    """The content of a YAML file; ValueError where it cannot be read, by the name that sentences give it."""
    try:
        return yaml.load(file.read_text("utf-8"), LOADER)
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{name} is no YAML: {' '.join(str(error).split())}") from error


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint to append to an error: "; did you mean 'x'?" or the list of what exists."""
    known = list(map(str, known))
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
