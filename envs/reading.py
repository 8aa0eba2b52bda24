"""Files as they are read, which others may have made."""

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np

MOST = 2**29  # bytes of a file, and of all arrays in one


def path_of(given, what: str, suffixes: tuple[str, ...] = ()) -> Path:
    """A path that was given, of any suffix where `suffixes` has none.

    Raises:
        ValueError: it names no file, says what it must be that of; or another suffix.
    """
    path = Path(given) if isinstance(given, str | os.PathLike) else Path()
    if path.name in ("", "..") or "\0" in str(path):
        raise ValueError(f"path={given!r:.60} must be that of {what}")
    if suffixes and path.suffix not in suffixes:
        raise ValueError(f"{path}: the suffix must be {' or '.join(suffixes)}")
    return path


def content(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        ValueError: no regular file, one that cannot be read, or more than MOST bytes; names it.
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError("no regular file")
        with path.open("rb") as file:
            found = file.read(MOST + 1)
    except (OSError, ValueError) as error:  # a ValueError of characters that no path has
        where = str(path)[:200].replace("\0", "\\0")
        raise ValueError(f"{where} cannot be read: {getattr(error, 'strerror', error)}") from None
    if len(found) > MOST:
        raise ValueError(f"{path} has more than {MOST:,} bytes, which is the most")
    return found


def parsed(found: bytes, path: Path):
    """The object of the bytes of a JSON file.

    Raises:
        ValueError: no JSON, of whatever encoding or depth, or one that names a field twice; names `path`.
    """

    def once(pairs: list[tuple]) -> dict:
        fields = {}
        for name, value in pairs:
            if name in fields:
                raise ValueError(f"{name!r:.60} is there twice")
            fields[name] = value
        return fields

    try:
        return json.loads(found, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from error


def arrays(found: bytes, path: Path) -> dict[str, np.ndarray]:
    """The arrays of the bytes of an .npz.

    Raises:
        ValueError: no such archive, or more than MOST bytes in it; names `path`.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(found)) as archive:
            size = sum(part.file_size for part in archive.infolist())
        if size > MOST:
            raise ValueError(f"has {size:,} bytes, must have at most {MOST:,}")
        with np.load(io.BytesIO(found), allow_pickle=False) as stored:
            arrays = dict(stored)
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise ValueError(f"{name} is no array")
        return arrays
    except Exception as error:  # bytes that are no archive can fail in any way
        raise ValueError(f"{path} is not an archive of arrays of numbers: {error}") from None
