"""Rates and memory over the number of vehicles: environment steps per second of chosen rungs, gains stored or drawn."""

import itertools
from dataclasses import asdict, dataclass

import pandas as pd

from lockstep import envs
from lockstep.experiments import experiment
from lockstep.experiments.bench import ladder, rungs, timing
from lockstep.experiments.bench.ladder import Group
from lockstep.experiments.bench.statistics import summarise
from lockstep.experiments.config import Settings
from lockstep.experiments.experiment import MEASURED, MISSING, Experiment, Plan, Request, by_label, each
from lockstep.experiments.ledger import provenance

FUSED_STEPS = 10  # of port-*-fused
COLUMNS = [
    *("environment", "rung", "device", "preset", "traffic", "vehicles", "clients", "servers", "edges", "gains"),
    *("num_envs", "threads", "dtype", "bytes_per_env", "bytes_per_scenario", "memory_mib"),
    *("block", "steps", "wall_s", "cpu_s", "first_call_s", "status", "reason"),
]


@dataclass(frozen=True)
class Cell(experiment.Group):
    """One measurement: a rung at one number of vehicles."""

    rung: str
    device: str
    parameters: tuple  # (name, value), the size
    num_envs: int
    threads: int
    gains: str  # stored | drawn


def cells(scaling: Settings, present: list[str]) -> list[Cell]:
    """The groups of the settings that can run here, each once; the original has one environment and stored gains."""
    found: dict[Cell, None] = {}
    for sweep in scaling.sweeps:
        for name, size in itertools.product(sweep.rungs, sweep.sizes):
            rung = rungs.RUNGS[name]
            if rung.device not in present:
                continue
            of_port = rung.batched
            threads = provenance.core_count() if rung.threaded else 1
            for num_envs, gains in itertools.product(
                sweep.get("num_envs", (1,)) if of_port else (1,), sweep.get("gains", ("stored",))
            ):
                kept = gains if of_port else "stored"
                found[Cell(name, rung.device, tuple(size.items()), num_envs, threads, kept)] = None
    return list(found)


def settings_of(cell: Cell, settings: Settings) -> Settings:
    """Settings under which a rung measures the cell."""
    options = settings.scaling.options.plain() | dict(cell.parameters)
    if rungs.RUNGS[cell.rung].batched:
        options["gains"] = cell.gains
    return Settings({"seed": settings.seed, "throughput": {"options": options}})


def measure(name: str, cell: Cell, settings: Settings) -> list[dict]:
    """The rows of a cell, one per block."""
    rung, own = rungs.RUNGS[cell.rung], settings_of(cell, settings)
    fused_steps = FUSED_STEPS if rung.fused else 1
    group = Group(cell.rung, cell.device, cell.num_envs, cell.threads, fused_steps, "random", "copy")
    same, reason = about(name, cell, own), None
    try:
        if rung.batched:
            same |= bytes_of_one(name, cell, own)
            reason = ladder.too_large(rungs.memory_needed(name, group, own))
    except MemoryError as error:  # one environment is already more than a block of this GPU shares
        reason = str(error)
    if reason:
        return [same | {"status": MISSING, "reason": reason}]
    found = ladder.clocked(rung.loop(name, group, own), cell.device, settings.scaling.blocks)
    same |= {"dtype": found.dtype, "memory_mib": found.memory_mib}
    same |= {"first_call_s": found.first_call_s, "status": MEASURED}
    return [same | block._asdict() | {"block": number} for number, block in enumerate(found.blocks)]


def about(name: str, cell: Cell, own: Settings) -> dict:
    """A row of a cell with all columns, of which those that settings and parameters decide are filled in."""
    options = own.throughput.options
    params = envs.port(name).make_params(options.get("preset"), dict(cell.parameters))
    sizes = {column: getattr(params, column) for column in ("vehicles", "clients", "servers", "edges")}
    filled = {"environment": name, "preset": options.get("preset"), "traffic": options.get("traffic"), **sizes}
    filled |= {column: value for column, value in asdict(cell).items() if column in COLUMNS}
    return dict.fromkeys(COLUMNS) | filled


def bytes_of_one(name: str, cell: Cell, own: Settings) -> dict[str, int]:
    """Bytes that one more environment and one more scenario take."""
    one = envs.make(name, 1, device=cell.device, scenarios=1, **own.throughput.options)
    return {"bytes_per_env": one.bytes_per_env, "bytes_per_scenario": one.bytes_per_scenario}


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per cell that was measured: median rates with their 95 % interval, and memory.

    Columns: those of COLUMNS that are the same in every block; rate, rate_low, rate_high in environment steps per
    second; vehicle_rate in vehicle steps per second.
    """
    rows = []
    keys = ["rung", "device", "preset", "traffic", "vehicles", "edges", "gains", "num_envs", "threads"]
    for _, blocks in frame[frame["status"] == MEASURED].groupby(keys, sort=False):
        rate = summarise(blocks["steps"] / blocks["wall_s"])
        found = {"rate": rate.median, "rate_low": rate.low, "rate_high": rate.high}
        first = blocks.iloc[0].drop(["block", "steps", "wall_s", "cpu_s"])
        rows.append({**first, **found, "vehicle_rate": rate.median * first["vehicles"]})
    return pd.DataFrame(rows)


def report(frame: pd.DataFrame, *_) -> str:
    """Rates and memory of every cell, as lines to print."""
    lines = [
        "vehicles, rung, environments: steps/s [95 % interval], vehicle-steps/s, KiB of an environment, of a scenario"
    ]
    for row in summary(frame).itertuples():
        where = f"{row.vehicles:5} {row.rung:16} {row.gains:6} B={row.num_envs}"
        memory = f"{row.bytes_per_env / 2**10:8.1f} {row.bytes_per_scenario / 2**10:9.1f}"
        rates = f"{row.rate:12,.1f} [{row.rate_low:,.1f}, {row.rate_high:,.1f}] {row.vehicle_rate:14,.0f}"
        lines.append(f"  {where:40} {rates} {memory}")
    return "\n".join(lines)


def plan(request: Request) -> Plan:
    name, settings = request.environment, request.settings
    return Plan(
        by_label(cells(settings.scaling, request.devices)),
        each(lambda cell: measure(name, cell, settings)),
        config=request.asked(),
        method=timing.method(settings.scaling.blocks),
    )


EXPERIMENT = Experiment(COLUMNS, plan, report, in_pieces=True, choices=("sweeps",))
