"""A port compared with its original: single transitions, whole episodes, distributions of episodes."""

import sys

import pandas as pd

from lockstep import envs
from lockstep.experiments import UserError, block_correctness, command, config, fields, originals, thread_correctness
from lockstep.experiments.config import Settings
from lockstep.experiments.results import Journal
from lockstep.experiments.verdicts import COLUMNS, Comparison, report

SPECIAL = {"regions": thread_correctness.plan, "presets": block_correctness.plan}  # by what the YAML names


def plan(name: str, settings: Settings, devices: list[str]) -> dict[str, Comparison]:
    """Every comparison that can be made here, by name: those of an environment's own, or those of any."""
    found = [chosen for key, chosen in SPECIAL.items() if key in settings.correctness]
    return (found or [fields.plan])[0](name, settings, devices)


def main() -> None:
    arguments = command.parser("correctness", __doc__.split("\n")[0])
    options = arguments.parse_args()
    name = options.environment
    settings = config.load(name, options.scale)
    devices = command.devices(options.devices)
    try:
        envs.make_original(name).close()
    except ImportError as error:
        raise UserError(str(error)) from error
    output = options.output or command.output_path("correctness", name)
    asked = settings.plain() | {"asked": {"devices": devices}}
    journal = Journal(output, COLUMNS, "correctness", name, options.scale, asked, options.commit)
    todo = {label: found for label, found in plan(name, settings, devices).items() if label not in journal}
    for found in todo.values():
        if found.start:
            found.start()
    for label, found in command.progress(todo.items(), lambda item: item[0], options.deadline):
        journal.add(label, [{"environment": name} | compared for compared in found.rows()])
    originals.dismiss()
    rows = [
        {**found, "passed": None if pd.isna(found["passed"]) else str(found["passed"]) == "True"}
        for found in journal.frame().to_dict("records")
    ]
    failed = any(found["passed"] is False for found in rows)
    journal.finish(passed=not failed)
    print(report(rows))
    if failed:
        sys.exit("correctness: the port differs from its original (above)")


if __name__ == "__main__":
    command.run(main)
