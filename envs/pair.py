"""The two files of a scenario: `<name>.npz` holds its arrays, `<name>.json` the rest and the SHA-256 of both."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lockstep import files

from . import reading


def paths(given) -> tuple[Path, Path]:
    """The .json and the .npz of a scenario's path, which has either suffix or none.

    Raises:
        ValueError: it names no file.
    """
    path = reading.path_of(given, "a scenario file, with or without .json or .npz")
    stem = path.with_suffix("") if path.suffix in (".json", ".npz") else path
    return stem.with_name(stem.name + ".json"), stem.with_name(stem.name + ".npz")


def write(path, arrays: Mapping[str, np.ndarray], header: dict):
    """Writes both files, each in one step.

    Raises:
        ValueError: they cannot be written; names the file.
    """
    text, binary = paths(path)
    try:
        text.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(binary, "wb") as file:
            np.savez(file, **arrays)
        header = header | {"sha256_npz": _sha256(binary.read_bytes())}
        header["sha256"] = _sha256_of(header)
        with files.replacing(text, encoding="utf-8") as file:
            file.write(json.dumps(header, indent=1) + "\n")
    except OSError as error:
        where = str(error.filename or binary).removesuffix(".partial")
        raise ValueError(f"{where} cannot be written: {error.strerror}") from error


def read(path, expected: Mapping[str, object]) -> tuple[dict[str, np.ndarray], dict]:
    """The arrays and the header, which has every field of `expected` with that value.

    Raises:
        ValueError: a file is not what was written, or a field differs; names the file, what is found and expected.
    """
    text, binary = paths(path)
    said, content = reading.content(text), reading.content(binary)
    header = reading.parsed(said, text)
    for name, value in expected.items():
        found = header.get(name) if isinstance(header, dict) else None
        if type(found) is not type(value) or found != value:
            raise ValueError(f"{text}: {name} is {found!r:.60}, must be {value}")
    stated = header.pop("sha256", None)
    for file, given, found in (
        (text, stated, _sha256_of(header)),
        (binary, header.get("sha256_npz"), _sha256(content)),
    ):
        if given != found:
            raise ValueError(f"{file}: its SHA-256 is {found}, {text.name} states {given}")
    return reading.arrays(content, binary), header


def _sha256_of(header: dict) -> str:
    return _sha256(json.dumps(header, sort_keys=True).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
