"""Record this machine: run every experiment into results/recorded/<machine>/ and sign it with SHA256SUMS.

Needs no git, Snakemake, Gymnasium or PettingZoo; what needs one is left out where it is missing. Killed runs go on
where they were; finished ones whose code and configuration are unchanged are kept. Where a command may take ten minutes
only, `--minutes 8` stops before, and the same command, again and again while its status is 75, does the rest.
"""

import argparse
import contextlib
import importlib.util
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments import ROOT, SCALES, UserError, command, config, peer_workers, provenance, sources
from experiments.checksums import SUMS, is_signed, sign

OF_THE_MACHINE = ("ceilings",)
OF_AN_ENVIRONMENT = ("compilation", "correctness", "throughput")
WITH_A_SECTION = ("transfer", "scaling", "breakdown", "offloading")  # of an environment whose YAML has the section
WITH_A_RECIPE = ("learning",)  # of an environment whose recipe in agents/recipes/ has that section
WITH_PEERS = ("peers",)  # of environments of one thread each, where at least one peer is installed
AGAINST_ORIGINALS = ("correctness",)  # nothing of it can run without the library of the originals
LIBRARIES = {"thread": "Gymnasium", "block": "PettingZoo"}  # of the originals, by kind of environment
EVERY = [*OF_THE_MACHINE, *OF_AN_ENVIRONMENT, *WITH_A_SECTION, *WITH_A_RECIPE, *WITH_PEERS]


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
    experiments = options.experiments or EVERY
    for experiment in experiments:
        for environment in [None] if experiment in OF_THE_MACHINE else environments:
            if environment and experiment not in experiments_of(environment):
                print(f"{experiment} {environment}: left out, {why_not(experiment, environment)}")
            else:
                run(experiment, environment, options.scale, folder, options.commit, options.deadline)
    print(f"recorded in {folder}, signed in {folder / SUMS}")


def experiments_of(environment: str) -> list[str]:
    """The experiments that an environment takes part in: by its YAML's sections, its recipe, the peers installed."""
    sections = config.parse(config.FOLDER / f"{environment}.yaml")
    asked = [experiment for experiment in WITH_A_SECTION if experiment in sections]
    asked += [experiment for experiment in WITH_A_RECIPE if experiment in sections_of_recipe(environment)]
    peers = WITH_PEERS if config.kind(environment) == "thread" and peer_workers.installed() else ()
    return [*OF_AN_ENVIRONMENT, *asked, *peers]


def recipe_of(environment: str) -> Path:
    return ROOT / "agents" / "recipes" / f"{environment}.yaml"


def sections_of_recipe(environment: str) -> list[str]:
    """The sections of its recipe, none where there is no recipe."""
    file = recipe_of(environment)
    return re.findall(r"^(\w+):", file.read_text(), re.MULTILINE) if file.exists() else []


def why_not(experiment: str, environment: str) -> str:
    """Why an environment takes no part in an experiment."""
    if experiment in WITH_PEERS and config.kind(environment) != "thread":
        return "no peer has such an environment"
    if experiment in WITH_PEERS:
        return "no peer is installed; make peers installs them"
    if experiment in WITH_A_RECIPE:
        file = recipe_of(environment)
        return (
            f"{file.relative_to(ROOT)} has no such section"
            if file.exists()
            else f"there is no {file.relative_to(ROOT)}"
        )
    return f"experiments/{environment}.yaml has no such section"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.record", description=__doc__.split("\n")[0])
    parser.add_argument("--machine", type=machine_name, required=True, help="for example xeon-2core")
    parser.add_argument("--scale", choices=SCALES, default="quick", help="how much (default: quick)")
    parser.add_argument("--environments", nargs="+", help="default: all")
    parser.add_argument("--experiments", nargs="+", choices=EVERY, help="default: all")
    parser.add_argument("--commit", type=command.commit_id, help="the commit to note down where there is no git")
    parser.add_argument("--output", type=Path, help="default: results/recorded/<machine>")
    command.add_minutes(parser)
    return parser.parse_args()


def machine_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} may hold letters, digits and '-' only, as in xeon-2core")
    return text


def run(
    experiment: str,
    environment: str | None,
    scale: str,
    folder: Path,
    commit: str | None,
    deadline: float = math.inf,
) -> None:
    """Run one experiment's command line into the folder, unless its result there is of the present code.

    Raises:
        OutOfTime: the deadline (see `command.add_minutes`) has passed before it was done.
    """
    output = folder / (environment or "") / f"{experiment}.csv"
    library = LIBRARIES[config.kind(environment)] if experiment in AGAINST_ORIGINALS else None
    if library and importlib.util.find_spec(library.lower()) is None:
        print(f"{experiment} {environment}: left out, {library} is not installed", flush=True)
        return
    if is_current(folder, output, experiment, environment, scale):
        print(f"{output}: kept, its code and configuration are unchanged", flush=True)
        return
    keep_larger_scale(output, scale)
    named = f"{experiment} {environment or ''}".strip()
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise command.OutOfTime(f"{named} is next")
    program = [sys.executable, "-m", f"experiments.{experiment}", *([environment] if environment else [])]
    program += ["--scale", scale, "--output", str(output.resolve())]
    program += ["--commit", commit] if commit else []
    program += ["--minutes", f"{max(left_s / 60, 0.001):.3f}"] if left_s < math.inf else []  # 0 would be refused
    print(named, flush=True)
    # What is there is not current: let nobody take it for that.
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        output.with_suffix(".json").unlink()
    status = status_of(program)
    if status == command.NOT_FINISHED:
        raise command.OutOfTime(f"{named} has begun")
    if status:
        raise UserError(
            f"experiments.{experiment} ended with status {status} (see above); the same command goes on from there"
        )
    sign(folder, [output, output.with_suffix(".json")])


def status_of(program: Sequence[str]) -> int:
    """Runs a command line to its end; an interrupt waits for it, so that it ends what it has started."""
    process = subprocess.Popen(program, cwd=ROOT)
    try:
        return process.wait()
    except KeyboardInterrupt:
        try:
            process.wait(timeout=2)  # Ctrl-C has reached it too; a signal to this process alone has not
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
        raise


def keep_larger_scale(output: Path, scale: str) -> None:
    """UserError where a full recording would be replaced by a quick one."""
    try:
        recorded = json.loads(output.with_suffix(".json").read_text()).get("scale")
    except (OSError, ValueError):
        return
    if recorded == "full" and scale == "quick":
        raise UserError(
            f"{output} was recorded at full scale, which a quick one would replace; "
            "give another --machine or --output, or record at --scale full"
        )


def is_current(folder: Path, output: Path, experiment: str, environment: str | None, scale: str) -> bool:
    """Is the result there of this scale, this machine and the files as they are now, and as it was signed?"""
    if not is_signed(folder, [output, output.with_suffix(".json")]):
        return False
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
        and described.get("passed") is not False
    )


if __name__ == "__main__":
    command.run(main)
