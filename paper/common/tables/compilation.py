"""Registers and spills of the kernels, as the compiler reports them."""

import pandas as pd

from lockstep.paper import quantities
from lockstep.paper.tables import ONE_MACHINE, RUN, of_runs, table
from lockstep.paper.typeset import DASH, Column, count, missing, number, text, yes_no

# Of a multiprocessor of every target here: registers of each of its parts, taken by the warp in pieces, and warps.
PARTS, PART_REGISTERS, PIECE, WARPS = 4, 16_384, 256, 64
BUILDS = (
    number("builds", "builds", count),
    Column("registers per thread", lambda row: registers(row), "number"),
    number(f"warps of {WARPS}", "warps", count),
    number("spilled, B", "spilled_bytes", count),
    number("stack, B", "stack_bytes", count),
    number("shared memory, B", "shared_bytes", count),
)


@table(
    "The kernels as NVRTC compiles them: ranges over kernels and builds (types, autoreset modes, kinds of "
    "observation). Warps: how many a multiprocessor can hold at once, given the registers of the largest build; more "
    "of them hide more of the memory's latency.",
    *ONE_MACHINE,
    text("targets", "target"),
    number("kernels", "kernels", count),
    *BUILDS,
    Column("spill-free", lambda row: yes_no(row["spill_free"]), "status"),
)
def compilation(datasets):
    return of_runs(datasets, "compilation", lambda run: built(run, ["environment"]), by_machine=True)


@table(
    "Every kernel, from the first machine that compiled an environment: the same compiler gives the same result "
    "everywhere.",
    *RUN,
    text("kernel", "kernel", merge=True),
    text("target", "target"),
    *BUILDS,
    folded=True,
)
def compilation_kernels(datasets):
    return of_runs(first(datasets), "compilation", lambda run: built(run, ["kernel", "target"]))


def built(run, keys: list[str]) -> list[dict]:
    """The builds of a run, summed up by the columns `keys`."""
    rows = []
    spilled = run.frame["spill_store_bytes"] + run.frame["spill_load_bytes"]
    for key, group in run.frame.assign(spilled=spilled).groupby(keys):
        rows.append(
            {"target": ", ".join(sorted(group["target"].unique()))}
            | dict(zip(keys, key, strict=True))
            | {"kernels": group["kernel"].nunique(), "builds": len(group)}
            | {"fewest_registers": group["registers"].min(), "most_registers": group["registers"].max()}
            | {"warps": warps(group["registers"].max())}
            | {name: group[name].max() for name in ("stack_bytes", "shared_bytes")}
            | {"spilled_bytes": group["spilled"].max(), "spill_free": not group["spilled"].any()}
        )
    return rows


def warps(registers: int) -> int:
    """Warps of 32 threads that a multiprocessor holds at once as far as their registers go."""
    of_warp = -(-32 * max(registers, 1) // PIECE) * PIECE
    return min(WARPS, PARTS * (PART_REGISTERS // of_warp))


def registers(row) -> str:
    """The fewest and the most registers of a kernel's builds."""
    if missing(row["most_registers"]):
        return DASH
    ends = dict.fromkeys([count(row["fewest_registers"]), count(row["most_registers"])])
    return f" {DASH} ".join(ends)


@table(
    "Every build of every kernel, from the first machine that compiled an environment.",
    *RUN,
    text("kernel", "kernel", merge=True),
    text("target", "target"),
    text("autoreset", "autoreset_mode"),
    text("type", "dtype"),
    text("observations", "obs"),
    number("registers per thread", "registers", count),
    number(f"warps of {WARPS}", "warps", count),
    number("spill stores, B", "spill_store_bytes", count),
    number("spill loads, B", "spill_load_bytes", count),
    number("stack, B", "stack_bytes", count),
    number("shared memory, B", "shared_bytes", count),
    folded=True,
)
def compilation_builds(datasets):
    keys = ["kernel", "target", "autoreset_mode", "dtype", "obs"]

    def builds(run) -> pd.DataFrame:
        return run.frame.sort_values(keys, kind="stable").assign(warps=lambda rows: rows["registers"].map(warps))

    return of_runs(first(datasets), "compilation", builds)


def first(datasets: list) -> list:
    """The first compilation of each environment."""
    found: dict = {}
    for run in quantities.of(datasets, {"experiment": "compilation"}):
        found.setdefault(run.provenance["environment"], run)
    return list(found.values())
