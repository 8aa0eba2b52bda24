"""SHA256SUMS of a recorded folder: written once, checked before use."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from lockstep.experiments import UserError, command
from lockstep.experiments.ledger import provenance
from lockstep.files import hold, replacing

SUMS = "SHA256SUMS"


class ChecksumError(UserError):
    """A recorded file is not the one that was signed."""


def unfinished(file: Path) -> bool:
    """Tells of a file that it is no result: still being made, held, or what a verdict has put aside."""
    return bool({".partial", ".failed"}.intersection(file.suffixes)) or file.suffix == ".lock"


def signed_files(folder: Path) -> list[str]:
    """Every file of a recorded folder, relative to it, but the sums and what is `unfinished`."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not unfinished(file))
    return [file.relative_to(folder).as_posix() for file in files if file != folder / SUMS]


def read_sums(folder: Path) -> dict[str, str]:
    """Path, relative to the folder, and SHA-256 of every signed file; empty where there is no SHA256SUMS."""
    signed = {}
    for line in (folder / SUMS).read_text().splitlines() if (folder / SUMS).is_file() else []:
        match = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        if not match:
            raise ChecksumError(f"{folder / SUMS}: this line is no checksum: {line!r}")
        signed[match[2]] = match[1]
    return signed


def sign(folder: Path, files: list[Path]) -> None:
    """Put files of a folder into its SHA256SUMS; `sha256sum -c SHA256SUMS` checks it too."""
    signed = provenance.hashes([file.relative_to(folder).as_posix() for file in files], folder)
    with changing(folder) as sums:
        sums |= signed


@contextlib.contextmanager
def changing(folder: Path) -> Iterator[dict[str, str]]:
    """The sums, to change: they are written at the end of the block, in one step, and nobody else does it meanwhile.

    Raises:
        UserError: they cannot be written.
    """
    kept = "; the same command continues from there"
    with command.writing(folder / SUMS, lambda: kept), hold(folder / f"{SUMS}.lock", wait=True):
        sums = read_sums(folder)
        yield sums
        with replacing(folder / SUMS) as file:
            file.writelines(f"{digest}  {path}\n" for path, digest in sorted(sums.items()))


def discard(folder: Path, files: list[Path]) -> None:
    """Remove files of a folder, and from its SHA256SUMS."""
    gone = [file.relative_to(folder).as_posix() for file in files]
    if (folder / SUMS).is_file():
        with changing(folder) as sums:
            for path in gone:
                sums.pop(path, None)
    for path in gone:
        (folder / path).unlink(missing_ok=True)


def is_signed(folder: Path, files: list[Path]) -> bool:
    """Tells of files of a folder that they are there as they were signed."""
    signed = read_sums(folder)
    paths = [file.relative_to(folder).as_posix() for file in files]
    return all(path in signed and provenance.is_file_with(folder / path, signed[path]) for path in paths)


def verify(folder: Path) -> None:
    """Check a recorded folder against its SHA256SUMS: every file signed, every signed one there, unedited.

    ChecksumError names the first file that is not, and what is wrong with it.
    """
    folder = Path(folder)
    if not (folder / SUMS).is_file():
        raise ChecksumError(f"{folder} has no {SUMS}; record it again or restore the file")
    signed = read_sums(folder)
    present = signed_files(folder)
    for path in sorted({*signed, *present}):
        if path not in present:
            raise ChecksumError(f"{folder / path} is signed in {SUMS} but missing")
        if path not in signed:
            raise ChecksumError(f"{folder / path} is not signed in {SUMS}")
        if not provenance.is_file_with(folder / path, signed[path]):
            raise ChecksumError(f"{folder / path} is not as signed in {SUMS}; restore it or record it again")
