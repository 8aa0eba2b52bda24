"""Reading of what people write: YAML, and names that are nearly those that there are. Needs no torch."""

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

import yaml


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # the former is ten times as fast; PyYAML may lack it
    """YAML, with 1e-3 a number as in YAML 1.2; PyYAML's 1.1 has it a text, for want of a point."""


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\.\d+|\d+\.?\d*)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_yaml(file: Path, name: str) -> object:
    """The content of a YAML file; ValueError where it cannot be read, by the name that sentences give it."""
    try:
        return yaml.load(file.read_text("utf-8"), Loader)
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
