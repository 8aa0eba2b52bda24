"""Record this machine: run every experiment into results/recorded/<machine>/ and sign it with SHA256SUMS.

Needs no git, Snakemake or PettingZoo; what needs one is left out where it is missing. Killed runs go on where they
were; finished ones whose code, configuration and libraries are unchanged are kept. Rows that fail by the verdict of
their experiment go to <experiment>.failed.csv, and are measured again after all others, as are groups that were
measured on a busy machine. Where a command may take ten minutes only, `--minutes 8` stops before, and the same command,
again and again while its status is 75, does the rest.
"""

import argparse
import contextlib
import io
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lockstep.experiments import ROOT, SCALES, UserError, catalogue, command, config
from lockstep.experiments.ledger import fingerprint, provenance, results
from lockstep.experiments.ledger.checksums import SUMS, discard, is_signed, sign


def main() -> None:
    options = arguments()
    from lockstep import envs  # here, because whoever verifies a folder needs no torch

    folder = options.output or Path("results", "recorded", options.machine)
    known = envs.names()
    environments = options.environments or known
    for place in (folder, *folder.parents, *(folder / name for name in environments)):
        if place.exists() and not place.is_dir():
            raise UserError(f"--output: {place} is a file, and a folder is needed there")
    for name in environments:
        if name not in known:
            raise UserError(f"--environments: there is no environment {name!r}; there are {', '.join(known)}")
        config.load(name, options.scale)
    present = list(command.DEVICES) if options.assume_cuda else command.devices(None)
    if options.headline:
        steps = headline(environments, present)
    else:
        steps = every_step(options.experiments or list(catalogue.experiments()), environments)
    if options.dry_run:
        print("\n".join(listing(steps, options.scale, present, options.minutes)))
        return
    begun, failures = False, []
    for step in sorted(steps, key=lambda step: is_again(place_of(step, folder))):
        try:
            begun |= run(*step[:2], options.scale, folder, options.commit, options.deadline, step.headline, begun)
        except Failed as failure:
            begun = True
            failures.append(str(failure))
    print(f"recorded in {folder}, signed in {folder / SUMS}")
    if failures:
        raise UserError(f"{'; '.join(failures)}; what is signed stays")


class Failed(Exception):
    """An experiment has failed by its verdict, and all others can go on; the message says which."""


class Step(NamedTuple):
    """One command line of a recording."""

    experiment: str
    environment: str | None
    headline: str | None = None  # only what targets name, of this device


def every_step(experiments: Sequence[str], environments: Sequence[str]) -> list[Step]:
    """All that the environments take part in; says of the rest why not."""
    steps = []
    for experiment in experiments:
        for environment in [None] if catalogue.experiments()[experiment].needs == "machine" else environments:
            if reason := environment and catalogue.why_not(experiment, environment):
                print(f"{experiment} {environment}: left out, {reason}")
            else:
                steps.append(Step(experiment, environment))
    return steps


def headline(environments: Sequence[str], present: Sequence[str]) -> list[Step]:
    """Steps of what targets name: of the GPU in all environments, then of the CPU."""
    return [Step("throughput", name, device) for device in reversed(present) for name in environments]


def groups_of(step: Step, scale: str, present: list[str]) -> list[tuple[str, float]] | None:
    """The groups of a step with the seconds that each takes by estimate; None where there is none beforehand."""
    if not catalogue.experiments()[step.experiment].predicted:
        return None
    from lockstep.experiments import run  # here, because whoever verifies a folder needs no torch

    headline = ["--headline", "--devices", step.headline] if step.headline else []
    words = [step.experiment, *([step.environment] if step.environment else []), "--scale", scale, *headline]
    options = run.parser(step.experiment).parse_args(words)
    with contextlib.redirect_stdout(io.StringIO()):  # of what is left out it is told when measuring
        return list(run.planned(step.experiment, options, present).seconds.items())


def listing(steps: Sequence[Step], scale: str, present: list[str], minutes: float) -> list[str]:
    """Lines that tell what would be measured, in order, cut into pieces of so many minutes as measuring would be."""
    from lockstep.experiments.bench.ladder import START_S

    lines, pieces, spent_s = [], 1, 0.0
    for step in steps:
        found, named = groups_of(step, scale, present), name_of(step)
        if found is None:
            lines.append(f"{'':>8}  {named}: its time is not known beforehand")
        for number, (label, seconds) in enumerate(found or ()):
            starting_s = START_S if number == 0 else 0.0
            late = spent_s > 0 and spent_s + starting_s + seconds > 60 * minutes + command.GRACE_S
            if spent_s >= 60 * minutes or late:
                lines.append(f"---- piece {pieces} takes about {spent_s / 60:.1f} min; the next begins")
                pieces, spent_s, starting_s = pieces + 1, 0.0, START_S  # each piece starts its processes anew
            seconds += starting_s
            spent_s += seconds
            lines.append(f"{seconds:6.1f} s  {named}: {label}")
    return [*lines, f"---- piece {pieces} takes about {spent_s / 60:.1f} min, with nothing compiled before"]


def name_of(step: Step) -> str:
    return f"{step.experiment} {step.environment or ''}".strip()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lockstep.experiments.record", description=__doc__.split("\n")[0])
    parser.add_argument("--machine", type=machine_name, required=True, help="for example xeon-2core")
    parser.add_argument("--scale", choices=SCALES, default="quick", help="how much (default: quick)")
    parser.add_argument("--environments", nargs="+", help="default: all")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--experiments", nargs="+", choices=catalogue.experiments(), help="default: all")
    which.add_argument(
        "--headline", action="store_true", help="only the throughput that targets name; a later run does the rest"
    )
    parser.add_argument("--dry-run", action="store_true", help="list what would be measured, with predicted times")
    parser.add_argument("--assume-cuda", action="store_true", help="with --dry-run: as on a machine with a GPU")
    parser.add_argument("--commit", type=command.commit_id, help="the commit to note down in place of what git says")
    parser.add_argument("--output", type=Path, help="default: results/recorded/<machine>")
    command.add_minutes(parser)
    options = parser.parse_args()
    if options.assume_cuda and not options.dry_run:
        parser.error("--assume-cuda needs --dry-run")
    options.minutes = (options.deadline - time.monotonic()) / 60
    return options


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
    headline: str | None = None,
    begun: bool = False,
) -> bool:
    """Run one experiment's command line into the folder, unless its result there is of the present code.

    headline: only what targets name, of this device. begun: something has run since the deadline was set, so that even
    the first group waits if it is predicted to end too late.

    Returns:
        True where it was run, False where there was nothing to do.

    Raises:
        OutOfTime: the deadline (see `command.add_minutes`) has passed before it was done. What it has measured by then
            is signed, where the experiment leaves it.
        Failed: it has failed by its verdict, now or, where the deadline has passed, when it was measured last.
    """
    step = Step(experiment, environment, headline)
    output = place_of(step, folder)
    failed = output.with_suffix(results.FAILED)
    failure = Failed(f"{name_of(step)} has failed: {failed}")
    files = [output, output.with_suffix(".json")]
    from lockstep.experiments.bench.rungs import no_library  # here, because whoever verifies a folder needs no torch

    if catalogue.experiments()[experiment].originals and (reason := no_library(environment)):
        print(f"{experiment} {environment}: left out, {reason}", flush=True)
        return False
    wanted = [label for label, _ in groups_of(step, scale, command.devices(None))] if headline else None
    if wanted == []:
        print(f"{name_of(step)}: no target names a group of {headline}", flush=True)
        return False
    described = described_in(output)
    current = is_current(described, experiment, environment, scale)
    missing, busy = (
        [group for group in groups if wanted is None or group in wanted]
        for groups in (described.get("missing", []), results.disturbed_groups(described))
    )
    signed, left_s = is_signed(folder, files), deadline - time.monotonic()
    done = current and not missing and (signed or is_whole(output, described))
    if done and not signed:  # a run was killed after measuring
        sign(folder, files)
        for ending in () if busy else (".partial.csv", ".partial.json"):
            output.with_suffix(ending).unlink(missing_ok=True)
    if done and (not busy or left_s <= 0):
        disturbed = len(described.get("busy", ()))
        told = f"; {disturbed} of its groups were measured on a busy machine" if disturbed else ""
        print(f"{output}: kept, its code and configuration are unchanged{told}", flush=True)
        return False
    keep_larger_scale(output, described, scale)
    if left_s <= 0:
        raise failure if has_failed(output) else command.OutOfTime(f"{name_of(step)} is next")
    program = [sys.executable, "-m", "lockstep.experiments.run", experiment, *([environment] if environment else [])]
    program += ["--scale", scale, "--output", str(output.resolve()), "--aside"]
    program += ["--headline", "--devices", headline] if headline else []
    program += ["--commit", commit] if commit else []
    program += ["--minutes", f"{max(left_s / 60, 0.001):.3f}"] if left_s < math.inf else []  # 0 would be refused
    program += ["--strict-minutes"] if begun and left_s < math.inf else []
    print(name_of(step), flush=True)
    if not (done or (current and missing) or signed):  # such a piece is gone on from
        discard(folder, files)  # what is signed stays until something takes its place, whatever it is of
    failed.with_suffix(".json").unlink(missing_ok=True)  # so that one that is there afterwards is new
    status = status_of(program)
    if status == 1 and has_failed(output):
        raise failure
    if status not in (0, command.NOT_FINISHED):
        raise UserError(f"{experiment} ended with status {status} (see above); the same command goes on from there")
    if all(file.exists() for file in files):
        sign(folder, files)
    if status == command.NOT_FINISHED:
        raise command.OutOfTime(f"{name_of(step)} has begun")
    return True


def place_of(step: Step, folder: Path) -> Path:
    """The CSV of a step in the folder of a machine."""
    return folder / (step.environment or "") / f"{step.experiment}.csv"


def has_failed(output: Path) -> bool:
    """Tells of a result that it was measured since, and failed by its verdict."""
    return output.with_suffix(results.FAILED).with_suffix(".json").exists()


def is_again(output: Path) -> bool:
    """Tells of a result that it was measured before, to no good: it failed, or a part of it was disturbed.

    What was never measured goes first: on a machine that stays busy, minutes given again and again come to an end.
    """
    described = results.read_json(output.with_suffix(".json")) or {}
    return has_failed(output) or bool(results.disturbed_groups(described) and not described.get("missing"))


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


def described_in(output: Path) -> dict:
    """The provenance of a result, empty where there is none; UserError where it is damaged."""
    file = output.with_suffix(".json")
    try:
        described = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        described = None
    if not isinstance(described, dict):
        raise UserError(f"{file} is damaged; restore it, or remove it and {output.name} to measure anew")
    return described


def is_whole(output: Path, described: dict) -> bool:
    """Tells of a result that its rows are those that its provenance describes."""
    return "rows_sha256" in described and provenance.is_file_with(output, described["rows_sha256"])


def keep_larger_scale(output: Path, described: dict, scale: str) -> None:
    """UserError where a full recording would be replaced by a quick one."""
    if described.get("scale") == "full" and scale == "quick":
        raise UserError(
            f"{output} was recorded at full scale, which a quick one would replace; "
            "give another --machine or --output, or record at --scale full"
        )


def is_current(described: dict, experiment: str, environment: str | None, scale: str) -> bool:
    """Tells of a result that it is of this scale, machine, libraries, and the code and settings as they are now."""
    return (
        described.get("scale") in (scale, None)
        and "sources" in described
        and results.is_of_the_present_code(described | {"scale": scale})
        and described.get("section") in (fingerprint.section_of(experiment, environment, scale), None)
        and described.get("machine") == provenance.machine()
        and results.libraries_of(described) == provenance.libraries()
        and described.get("passed") is not False
    )


if __name__ == "__main__":
    command.run(main)
