"""Environment steps per second of every rung of the ladder, over batch sizes."""

import argparse
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields

import pandas as pd

from lockstep import envs
from lockstep.experiments import UserError, command, config
from lockstep.experiments.bench import ladder, timing
from lockstep.experiments.bench.ladder import Group, Rung
from lockstep.experiments.bench.rungs import LARGE_BATCH, RUNGS, memory_needed, set_up_s
from lockstep.experiments.bench.statistics import fitting, targets, throughput_summary
from lockstep.experiments.config import Settings
from lockstep.experiments.experiment import Experiment, LeftOut, Plan, Request, by_label, each
from lockstep.experiments.ledger import provenance
from lockstep.reading import nearest

COLUMNS = [
    *("environment", "rung", "device", "num_envs", "threads", "fused_steps", "policy", "obs", "dtype"),
    *("bytes_per_step", "block", "steps", "wall_s", "cpu_s", "first_call_s", "preset", "memory_mib"),
]


def groups(rung_name: str, rung: Rung, settings: Settings) -> list[Group]:
    """Groups of a rung that the settings ask for, each once, smallest batch first in each sweep."""
    scale, cores = settings.throughput, provenance.core_count()
    found: dict[Group, None] = {}
    for sweep in scale.get("rungs", {}).get(rung_name, [{}]):
        threads = [cores if asked == "all" else asked for asked in sweep.get("threads", (1, "all"))]
        policies = [asked for asked in sweep.get("policies", rung.policies[:1]) if asked in rung.policies]
        if "fixed" in policies and "fixed_policy" not in scale:
            raise config.ConfigError(f"throughput.rungs.{rung_name} asks for a fixed policy; fixed_policy is missing")
        axes = itertools.product(
            sweep.get("fused_steps", scale.fused_steps) if rung.fused else [1],
            policies,
            sweep.get("obs", ["copy"]),
            threads if rung.threaded else [1],
            sorted(sweep.get("num_envs", scale.num_envs)) if rung.batched else [1],
        )
        for fused_steps, policy, obs, thread_count, num_envs in axes:
            if rung_name == "original-all-cores":
                num_envs = thread_count = cores
            found[Group(rung_name, rung.device, num_envs, thread_count, fused_steps, policy, obs)] = None
    return list(found)


def planned(name: str, settings: Settings, present: list[str], rungs_asked: list[str] | None = None) -> list[Group]:
    """All groups of the rungs that can run on the devices present; says which cannot, a line for each reason."""
    found, left_out = [], {}
    for rung_name in command.chosen("rung", RUNGS, rungs_asked):
        rung, device = RUNGS[rung_name], RUNGS[rung_name].device
        reason = rung.missing(name, settings) if device in present else f"{device} is not among the devices"
        if reason:
            left_out.setdefault(reason, []).append(rung_name)
        else:
            found += groups(rung_name, rung, settings)
    for reason, rungs in left_out.items():
        print(f"{', '.join(rungs)}: left out, {reason}")
    return found


def headline(groups: Iterable[Group], settings: Settings, devices: Sequence[str]) -> list[Group]:
    """Of the groups those of some devices that the environment's targets name."""
    targets = settings.throughput.get("targets", ())
    selectors = [target[side] for target in targets for side in ("numerator", "denominator") if side in target]
    groups = [one for one in groups if one.device in devices]
    frame = pd.DataFrame(map(asdict, groups), columns=[field.name for field in fields(Group)])
    named = {number for selector in selectors for number in fitting(frame, selector).index}
    return [one for number, one in enumerate(groups) if number in named]


def in_order(
    groups: list[Group], settings: Settings, devices: Sequence[str], headline_only: bool = False
) -> list[Group]:
    """Groups in the order in which they are measured: what targets name, the GPU's before the CPU's, then the rest."""
    first = [
        one for device in reversed(command.DEVICES) if device in devices for one in headline(groups, settings, [device])
    ]
    return first if headline_only else first + [one for one in groups if one not in first]


def predicted(name: str, settings: Settings, groups: Iterable[Group]) -> list[tuple[str, float]]:
    """Seconds that measuring each group takes by estimate, with nothing compiled yet; by label."""
    compiled, found = set(), []
    for group in groups:
        first = group.rung.startswith("port") and group.rung not in compiled
        compiled.add(group.rung)
        compiling_s = ladder.COMPILE_S[group.device] if first else 0.0
        timed_s = timing.expected_s(*timing.asked(settings.throughput))
        found.append((group.label, set_up_s(name, group) + compiling_s + timed_s))
    return found


def check(name: str, settings: Settings) -> None:
    """ConfigError where the YAML does not fit the environment: options, rungs, policies, observations."""
    port, scale = envs.port(name), settings.throughput
    where = f"{config.shown(config.file_of(name))}: throughput"
    config.check_options(f"{where}.options", scale.get("options", {}), port)
    if "fixed_policy" in scale:
        config.check_policy(name, settings, *port.policy_shape)
    for rung, sweeps in scale.get("rungs", {}).items():
        if rung not in RUNGS:
            raise config.ConfigError(f"{where}.rungs: unknown key {rung!r}{nearest(rung, list(RUNGS))}")
        if not port.observes_state and any("view" in sweep.get("obs", ()) for sweep in sweeps):
            raise config.ConfigError(f"{where}.rungs.{rung}: obs 'view' needs observations that are the state")


def measure(name: str, group: Group, settings: Settings) -> list[dict]:
    """The rows of one group, one per block."""
    loop_of = RUNGS[group.rung].loop(name, group, settings)
    found = ladder.clocked(loop_of, group.device, *timing.asked(settings.throughput))
    same = {
        "environment": name,
        **asdict(group),
        "dtype": found.dtype,
        "bytes_per_step": found.bytes_per_step,
        "first_call_s": found.first_call_s,
        "preset": settings.throughput.get("options", {}).get("preset"),
        "memory_mib": found.memory_mib,
    }
    rows = ({**same, **block._asdict(), "block": number} for number, block in enumerate(found.blocks))
    return [{column: row[column] for column in (*COLUMNS, "had")} for row in rows]


def too_large(name: str, group: Group, settings: Settings) -> str | None:
    """The reason why a group does not fit into the memory, None if it does."""
    # Small groups are not asked: to count its bytes an environment is made, which compiles the kernel.
    if not group.rung.startswith("port") or group.num_envs < LARGE_BATCH:
        return None
    return ladder.too_large(memory_needed(name, group, settings))


def report(frame: pd.DataFrame, settings: Settings, missing: Sequence[Mapping] = ()) -> str:
    """The rates of every group, and the environment's targets beside what was reached, as lines to print.

    missing: what is not measured yet, as for `statistics.targets`.
    """
    lines = ["million steps per second [95 % interval], and per CPU-second"]
    for row in throughput_summary(frame).itertuples():
        rates = [value / 1e6 for value in (row.rate, row.rate_low, row.rate_high, row.cpu_rate)]
        lines.append("  {:60} {:11.4f} [{:.4f}, {:.4f}] {:11.4f}".format(Group.of(row).label, *rates))
    lines.append("figures to reach [95 % interval]")
    for row in targets(frame, settings.throughput.get("targets", ()), missing).itertuples():
        value = f" {row.value:,.5g} [{row.low:,.5g}, {row.high:,.5g}]" if row.value == row.value else ""
        lines.append(f"  {row.status:12} {row.name}:{value}, floor {row.floor:,.5g} {row.unit}")
    return "\n".join(lines)


def options(arguments: argparse.ArgumentParser) -> None:
    arguments.add_argument("--rungs", nargs="+", help="default: all that can run here")
    arguments.add_argument(
        "--headline", action="store_true", help="only what the targets name; a run without this option does the rest"
    )


def plan(request: Request) -> Plan:
    name, settings, asked = request.environment, request.settings, request.options
    check(name, settings)
    if asked.headline and asked.rungs:
        raise UserError("--headline chooses the rungs itself; leave --rungs out")
    if asked.rungs and not asked.output:
        whole = command.output_path("throughput", name)
        raise UserError(f"--rungs measures a part; say where with --output, since {whole} is for whole runs")
    # The headline's groups are a part of a run on all devices, whichever of them are measured now.
    devices = request.present if asked.headline else request.devices
    todo = planned(name, settings, devices, asked.rungs)
    order = in_order(todo, settings, request.devices, asked.headline)

    def measured(group: Group) -> list[dict]:
        if reason := too_large(name, group, settings):
            raise LeftOut(reason)
        return measure(name, group, settings)

    return Plan(
        by_label(todo),
        each(measured),
        config=settings.plain() | {"asked": {"devices": devices, "rungs": asked.rungs}},
        method=timing.method(*timing.asked(settings.throughput)),
        order=[group.label for group in order],
        seconds=dict(predicted(name, settings, order)),
    )


EXPERIMENT = Experiment(
    COLUMNS,
    plan,
    report,
    in_pieces=True,
    options=options,
    predicted=True,
    choices=("num_envs", "fused_steps", "rungs", "targets"),
)
