"""Rates and memory over sizes: environment steps per second of chosen rungs, by parameters and batch size."""

import inspect
import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import pandas as pd

from lockstep import envs
from lockstep.experiments import config, experiment
from lockstep.experiments.bench import ladder, rungs, timing
from lockstep.experiments.bench.ladder import Group
from lockstep.experiments.bench.parameters import params_of
from lockstep.experiments.config import ConfigError, Settings
from lockstep.experiments.experiment import MEASURED, MISSING, Experiment, Plan, Request, by_label, each
from lockstep.experiments.ledger import provenance
from lockstep.experiments.sizes import COLUMNS, HORIZON, summary
from lockstep.reading import nearest

FUSED_STEPS = 10  # of port-*-fused


@dataclass(frozen=True)
class Cell(experiment.Group):
    """One measurement: a rung at one size."""

    rung: str
    device: str
    parameters: tuple  # (name, value), the size and the port's own options
    num_envs: int
    threads: int


def cells(scaling: Settings, present: list[str]) -> list[Cell]:
    """The groups of the settings that can run here, each once."""
    found: dict[Cell, None] = {}
    every = provenance.core_count()
    for sweep in scaling.sweeps:
        for name, size in itertools.product(sweep.rungs, sweep.sizes):
            rung = rungs.RUNGS[name]
            if rung.device not in present:
                continue
            asked = sweep.get("threads", ("all",)) if rung.threaded else (1,)
            threads = [every if one == "all" else one for one in asked]
            sizes = sweep.get("num_envs", (1,)) if rung.batched else (1,)
            own = sweep.get("port_options", ({},)) if name.startswith("port") else ({},)
            for num_envs, options, count in itertools.product(sizes, own, threads):
                found[Cell(name, rung.device, (*size.items(), *options.items()), num_envs, count)] = None
    return list(found)


def columns_of(scaling: Settings) -> list[str]:
    """The columns of an environment's rows."""
    own = [column for column in scaling.options if column not in scaling.columns]
    return [*COLUMNS[:3], *own, *scaling.columns, *COLUMNS[3:]]


def told(name: str, options: Mapping, column: str) -> object:
    """The value of a column under options: a parameter, an option, or the horizon; ValueError if it is none."""
    port = envs.port(name)
    params = params_of(port, options)
    if hasattr(params, column):
        return getattr(params, column)
    known = {option: inspect.signature(port.world).parameters[option].default for option in port.own_options}
    known |= {"preset": None, HORIZON: port.of("horizon", params)} | dict(options)
    if column not in known:
        raise ValueError(f"columns: {column!r} is no parameter, no option{nearest(column, [*vars(params), *known])}")
    return known[column]


def check(name: str, scaling: Settings) -> None:
    """ConfigError where the section does not fit the environment: options, sizes, columns, what it grows by."""
    place, port = f"{config.shown(config.file_of(name))}: scaling", envs.port(name)
    if scaling.over not in scaling.columns:
        raise ConfigError(f"{place}.over: {scaling.over!r} is none of the columns, {', '.join(scaling.columns)}")
    for number, sweep in enumerate(scaling.sweeps):
        for size, own in itertools.product(sweep.sizes, sweep.get("port_options", ({},))):
            options = scaling.options.plain() | dict(size) | dict(own)
            config.check_options(f"{place}.sweeps[{number}]", options, port)
            try:
                for column in scaling.columns:
                    told(name, options, column)
            except ValueError as error:
                raise ConfigError(f"{place}.{error}") from error


def measure(name: str, cell: Cell, settings: Settings) -> list[dict]:
    """The rows of a cell, one per block."""
    rung, own = rungs.RUNGS[cell.rung], settings_of(cell, settings)
    fused_steps = FUSED_STEPS if rung.fused else 1
    group = Group(cell.rung, cell.device, cell.num_envs, cell.threads, fused_steps, "random", "copy")
    same, reason = about(name, cell, settings), rung.missing(name, own)
    try:
        if cell.rung.startswith("port"):
            same |= bytes_of_one(name, cell, own)
            reason = reason or ladder.too_large(rungs.memory_needed(name, group, own))
    except MemoryError as error:  # one environment is already more than a block of this GPU shares
        reason = str(error)
    if reason:
        return [same | {"status": MISSING, "reason": reason}]
    found = ladder.clocked(rung.loop(name, group, own), cell.device, *timing.asked(settings.scaling))
    same |= {"dtype": found.dtype, "memory_mib": found.memory_mib}
    same |= {"first_call_s": found.first_call_s, "status": MEASURED}
    return [same | block._asdict() | {"block": number} for number, block in enumerate(found.blocks)]


def settings_of(cell: Cell, settings: Settings) -> Settings:
    """Settings under which a rung measures the cell."""
    options = settings.scaling.options.plain() | dict(cell.parameters)
    return Settings({"seed": settings.seed, "throughput": {"options": options}})


def about(name: str, cell: Cell, settings: Settings) -> dict:
    """A row of a cell with all columns, of which those that settings and parameters decide are filled in."""
    options = settings_of(cell, settings).throughput.options
    row = dict.fromkeys(columns_of(settings.scaling))
    row |= {column: told(name, options, column) for column in row if column not in COLUMNS}
    return row | {"environment": name} | {column: value for column, value in asdict(cell).items() if column in row}


def bytes_of_one(name: str, cell: Cell, own: Settings) -> dict[str, int]:
    """Bytes that one more environment takes, and one more scenario where there is a pool of them."""
    pool = rungs.pool_of(name, 1)
    one = envs.make(name, 1, device=cell.device, **pool, **own.throughput.options)
    return {"bytes_per_env": one.bytes_per_env, "bytes_per_scenario": one.bytes_per_scenario if pool else None}


def report(frame: pd.DataFrame, settings: Settings, *_) -> str:
    """Rates and memory of every cell, as lines to print."""
    own = settings.scaling.columns
    lines = [
        f"{', '.join(own)}, rung, environments: steps/s [95 % interval], the same times {settings.scaling.over}, "
        "KiB of an environment, of a scenario, µs of a reset"
    ]
    for row in summary(frame, settings.scaling).dropna(subset=["rate"]).to_dict("records"):
        where = " ".join(str(row[column]) for column in own)
        rates = f"{row['rate']:13,.1f} [{row['rate_low']:,.1f}, {row['rate_high']:,.1f}] {row['counted_rate']:14,.0f}"
        last = row["bytes_per_env"] / 2**10, row["bytes_per_scenario"] / 2**10, 1e6 * row["reset_s"]
        shown = " ".join(f"{value:9.4g}" if value == value else f"{'-':>9}" for value in last)
        lines.append(f"  {where:34} {row['rung']:16} B={row['num_envs']:<6} {rates} {shown}")
    return "\n".join(lines)


def plan(request: Request) -> Plan:
    name, settings = request.environment, request.settings
    check(name, settings.scaling)
    return Plan(
        by_label(cells(settings.scaling, request.devices)),
        each(lambda cell: measure(name, cell, settings)),
        config=request.asked(),
        method=timing.method(*timing.asked(settings.scaling)),
        columns=columns_of(settings.scaling),
    )


EXPERIMENT = Experiment(COLUMNS, plan, report, in_pieces=True, quick=False, choices=("sweeps", "over", "columns"))
