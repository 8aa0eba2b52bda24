"""One command line for every experiment: python -m lockstep.experiments.run <experiment> [<environment>] [options].

An experiment is a module with an EXPERIMENT, here or in a family's folder; catalogue.py finds it by that.
"""

import argparse
import importlib
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path

from lockstep.experiments import SCALES, UserError, catalogue, command, config
from lockstep.experiments.config import Settings
from lockstep.experiments.experiment import Experiment, Group, LeftOut, Plan, Request
from lockstep.experiments.ledger import results
from lockstep.experiments.ledger.results import Journal
from lockstep.reading import nearest


def experiment_of(name: str) -> Experiment:
    """The experiment of a name; UserError names the nearest there is."""
    listed = catalogue.experiments()
    if name not in listed:
        raise UserError(f"there is no experiment {name!r}{nearest(name, list(listed))}")
    return importlib.import_module(listed[name].module).EXPERIMENT


def parser(name: str | None = None) -> argparse.ArgumentParser:
    """The options of an experiment, or, without its name, the list of all."""
    listed = catalogue.experiments()
    words = [f"  {one.name:14}{sentence_of(one.file)}" for one in listed.values()]
    arguments = argparse.ArgumentParser(
        prog="python -m lockstep.experiments.run",
        description=sentence_of(listed[name].file) if name else "\n".join(["The experiments:", *words]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("experiment", help="followed by --help: its options")
    if name is None:
        return arguments
    of_machine = listed[name].needs == "machine"
    if not of_machine:
        arguments.add_argument("environment", help="a folder of envs/, for example cartpole")
    default = command.output_path(name, None if of_machine else "<environment>")
    arguments.add_argument("--scale", choices=SCALES, default="quick", help="how much (default: quick)")
    arguments.add_argument("--output", type=command.csv_path, help=f"where the rows go (default: {default})")
    arguments.add_argument("--devices", nargs="+", choices=command.DEVICES, help="default: all that are present")
    arguments.add_argument("--commit", type=command.commit_id, help="the commit to note down in place of what git says")
    arguments.add_argument(
        "--cores", type=command.count, help="to share out over what is not timed (default: all there are)"
    )
    command.add_minutes(arguments)
    if experiment_of(name).in_pieces:
        arguments.add_argument(
            "--only", nargs="+", metavar="GROUP", help="these, as lines of progress name them, in turn"
        )
    arguments.add_argument(
        "--strict-minutes",
        action="store_true",
        help=f"do not begin the first group either if it is predicted to end {command.GRACE_S:.0f} s after --minutes",
    )
    arguments.add_argument(
        "--aside",
        action="store_true",
        help=f"rows that fail go to <experiment>{results.FAILED}: where that is an error, or a good result is there",
    )
    if add := experiment_of(name).options:
        add(arguments)
    return arguments


def sentence_of(file: Path) -> str:
    return file.read_text().split('"""')[1].splitlines()[0]


def request_of(name: str, options: argparse.Namespace, present: list[str] | None = None) -> Request:
    """The request of the options, of the devices present; UserError where the environment takes no part."""
    environment, settings = getattr(options, "environment", None), Settings({})
    if environment:
        settings = config.load(environment, options.scale)
        reason = catalogue.why_not(name, environment)
        if reason and catalogue.experiments()[name].needs != "peers":  # one that is missing has a row that says so
            raise UserError(reason)
    there = present or command.devices(None)
    chosen = (
        [one for one in there if one in (options.devices or there)] if present else command.devices(options.devices)
    )
    return Request(environment, options.scale, settings, chosen, there, options)


def planned(name: str, options: argparse.Namespace, present: list[str]) -> Plan:
    """The plan of a command line with these options and devices."""
    return experiment_of(name).plan(request_of(name, options, present))


def measure(name: str, request: Request) -> None:
    """Measure what is asked for and is not there yet, group by group; write it and print the report."""
    experiment, options = experiment_of(name), request.options
    with request.stack:
        plan = experiment.plan(request)
        output = options.output or command.output_path(name, request.environment)
        place = name, request.environment, request.scale
        title = " ".join(filter(None, place[:2]))
        journal = Journal(
            output, plan.columns or experiment.columns, *place, plan.config, options.commit, plan.conditions
        )
        journal.keep(plan.groups)
        planned = {label: asdict(group) if isinstance(group, Group) else {} for label, group in plan.groups.items()}
        order = getattr(options, "only", None) or plan.order or plan.groups
        if unknown := [label for label in order if label not in plan.groups]:
            raise UserError(f"--only: there is no group {unknown[0]!r}{nearest(unknown[0], list(plan.groups))}")
        left = [label for label in order if label not in journal]
        left.sort(key=journal.groups.__contains__)  # what was disturbed is measured again after all else
        with leaving(experiment, journal, planned, plan.method):
            measure_groups(plan, left, journal, planned, options, title)
    if not journal.groups:
        raise UserError("nothing was measured: none of what was asked for can run here")
    busy = journal.busy(planned)
    quiet = results.undisturbed(journal.frame(), {"busy": busy})
    passed = experiment.verdict(quiet) if experiment.verdict and len(quiet) else None
    aside = passed is False and options.aside and (experiment.failure is not None or is_good(output))
    output = journal.finish(plan.method, passed, planned, aside)
    missing = [fields for label, fields in planned.items() if label not in journal]
    if len(quiet):
        print(f"{title}: {output}")
        print(experiment.report(quiet, request.settings, missing + [one["fields"] for one in busy]))
    for one in busy:
        print(f"{one['group']}: left out, the machine was busy: it had {one['had']:.0%} of the cores it could use")
    if passed is False and (experiment.failure or aside):
        sys.exit(f"{name}: {experiment.failure or 'it fails, and what was there before does not'}")


def is_good(output: Path) -> bool:
    """Tells that there is a result whose verdict, if it has one, is that it passes."""
    described = results.read_json(output.with_suffix(".json"))
    return described is not None and described.get("passed") is not False


def measure_groups(
    plan: Plan, left: list[str], journal: Journal, planned: dict, options: argparse.Namespace, title: str
) -> None:
    """Put the groups that are left into the journal; one that is left out is no longer planned.

    title: before each line of progress, since several experiments may run side by side.
    """
    measured = options.strict_minutes

    def predicted_s(label: str) -> float:
        """Of a group that may wait; where nothing is measured yet, one that always waited would never be."""
        return plan.seconds.get(label, 0.0) if measured else 0.0

    with plan.measuring([plan.groups[label] for label in left]) as rows_of:
        for label in command.progress(left, f"{title}: {{}}".format, options.deadline, predicted_s):
            try:
                journal.add(label, rows_of(plan.groups[label]))
                measured = True
            except LeftOut as reason:
                print(f"{label}: left out, {reason}")
                del planned[label]
                journal.keep(planned)


@contextmanager
def leaving(experiment: Experiment, journal: Journal, planned: Mapping, method: Mapping | None) -> Iterator[None]:
    """Finish what there is where the time given is over in here, if that is a result.

    Where all is there, only not measured again that was measured on a busy machine, the run goes on to its end.
    """
    try:
        yield
    except command.OutOfTime as rest:
        if all(label in journal.groups for label in planned):
            print(f"disturbed before, and no time to measure again: {rest}", file=sys.stderr)
            return
        if experiment.in_pieces and journal.groups:
            journal.finish(method, planned=planned)
        raise


def main() -> None:
    named = next((word for word in sys.argv[1:2] if not word.startswith("-")), None)
    if named:
        experiment_of(named)
    options = parser(named).parse_args()
    timed = catalogue.experiments()[options.experiment].timed  # so that a watch would take time of it
    try:
        with nullcontext() if timed else command.watching_workers():
            measure(options.experiment, request_of(options.experiment, options))
            if not timed:
                from lockstep.experiments import originals  # here, because torch comes with it

                originals.dismiss()  # while they are watched: what has lost a worker cannot be closed
    except (EOFError, ConnectionError, BrokenExecutor) as error:
        raise UserError(command.KILLED) from error


if __name__ == "__main__":
    command.alone(main)
