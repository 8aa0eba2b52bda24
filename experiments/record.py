"""Record this machine: run every experiment into results/recorded/<machine>/ and sign it with SHA256SUMS.

Needs no git, Snakemake or Gymnasium; what needs Gymnasium is left out where it is missing. Killed runs go on
where they were; finished ones whose code and configuration are unchanged are kept.
"""

import argparse
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

from experiments import ROOT, SCALES, UserError, command, config, provenance, sources

SUMS = "SHA256SUMS"
OF_THE_MACHINE = ("ceilings",)
OF_AN_ENVIRONMENT = ("compilation", "correctness", "throughput")
AGAINST_ORIGINALS = ("correctness",)  # nothing of it can run without Gymnasium


class ChecksumError(UserError):
    """A recorded file is not the one that was signed."""


def main() -> None:
    options = arguments()
    import envs  # here, because whoever verifies a folder needs no torch

    folder = options.output or Path("results", "recorded", options.machine)
    known = envs.names()
    environments = options.environments or known
    for name in environments:
        if name not in known:
            raise UserError(f"--environments: there is no environment {name!r}; there are {', '.join(known)}")
        config.load(name, options.scale)
    experiments = options.experiments or [*OF_THE_MACHINE, *OF_AN_ENVIRONMENT]
    for experiment in experiments:
        for environment in [None] if experiment in OF_THE_MACHINE else environments:
            run(experiment, environment, options.scale, folder, options.commit)
    write_sums(folder)
    print(f"recorded in {folder}, signed in {folder / SUMS}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.record", description=__doc__.split("\n")[0])
    every = [*OF_THE_MACHINE, *OF_AN_ENVIRONMENT]
    parser.add_argument("--machine", type=machine_name, required=True, help="for example xeon-2core")
    parser.add_argument("--scale", choices=SCALES, default="quick", help="how much (default: quick)")
    parser.add_argument("--environments", nargs="+", help="default: all")
    parser.add_argument("--experiments", nargs="+", choices=every, help="default: all")
    parser.add_argument("--commit", type=command.commit_id, help="the commit to note down where there is no git")
    parser.add_argument("--output", type=Path, help="default: results/recorded/<machine>")
    return parser.parse_args()


def machine_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} may hold letters, digits and '-' only, as in xeon-2core")
    return text


def run(experiment: str, environment: str | None, scale: str, folder: Path, commit: str | None) -> None:
    """Run one experiment's command line into the folder, unless its result there is of the present code."""
    output = folder / (environment or "") / f"{experiment}.csv"
    if experiment in AGAINST_ORIGINALS and importlib.util.find_spec("gymnasium") is None:
        print(f"{experiment} {environment}: left out, Gymnasium is not installed", flush=True)
        return
    if is_current(output, experiment, environment, scale):
        print(f"{output}: kept, its code and configuration are unchanged", flush=True)
        return
    program = [sys.executable, "-m", f"experiments.{experiment}", *([environment] if environment else [])]
    program += ["--scale", scale, "--output", str(output.resolve())]
    program += ["--commit", commit] if commit else []
    print(f"{experiment} {environment or ''}".strip(), flush=True)
    finished = subprocess.run(program, cwd=ROOT)
    if finished.returncode:
        raise UserError(
            f"experiments.{experiment} ended with status {finished.returncode} (see above); "
            "the same command goes on from there"
        )


def is_current(output: Path, experiment: str, environment: str | None, scale: str) -> bool:
    """Is the result there of this scale, this machine and the files as they are now, the YAML among them?"""
    try:
        described = json.loads(output.with_suffix(".json").read_text())
    except (OSError, ValueError):
        return False
    now = provenance.hashes(sources.of(f"experiments.{experiment}", environment))
    return (
        output.exists()
        and described.get("scale") in (scale, None)
        and described.get("sources") == now
        and described.get("machine") == provenance.machine()
    )


def signed_files(folder: Path) -> list[str]:
    """Every file of a recorded folder, relative to it, but the sums and what is still being made."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and ".partial." not in file.name)
    return [file.relative_to(folder).as_posix() for file in files if file != folder / SUMS]


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS over everything in the folder; `sha256sum -c SHA256SUMS` checks it too."""
    sums = provenance.hashes(signed_files(folder), folder)
    (folder / SUMS).write_text("".join(f"{digest}  {path}\n" for path, digest in sums.items()))


def verify(folder: Path) -> None:
    """Check a recorded folder against its SHA256SUMS: every file signed, every signed one there, unedited.

    ChecksumError names the first file that is not, and what is wrong with it.
    """
    folder = Path(folder)
    if not (folder / SUMS).is_file():
        raise ChecksumError(f"{folder} has no {SUMS}; record it again or restore the file")
    signed = {}
    for line in (folder / SUMS).read_text().splitlines():
        match = re.fullmatch(r"([0-9a-f]{64})  (.+)", line)
        if not match:
            raise ChecksumError(f"{folder / SUMS}: this line is no checksum: {line!r}")
        signed[match[2]] = match[1]
    present = signed_files(folder)
    for path in sorted({*signed, *present}):
        if path not in present:
            raise ChecksumError(f"{folder / path} is signed in {SUMS} but missing")
        if path not in signed:
            raise ChecksumError(f"{folder / path} is not signed in {SUMS}")
        if not provenance.is_file_with(folder / path, signed[path]):
            raise ChecksumError(f"{folder / path} is not as signed in {SUMS}; restore it or record it again")


if __name__ == "__main__":
    command.run(main)
