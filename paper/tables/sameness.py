"""The proof of sameness, and what the compiler makes of the kernels."""

from paper import quantities
from paper.tables import RUN, of_runs, table
from paper.typeset import DASH, LESS, Column, count, missing, number, significant, text, yes_no


@table(
    "The same environment, at three levels. The largest difference is that of the quantity that comes "
    "closest to its tolerance.",
    *RUN,
    text("level", "level", merge=True),
    text("pair", "pair"),
    Column("on", lambda row: DASH if missing(row["device"]) else f"{row['device']}, {row['dtype']}"),
    number("cases", "cases", count),
    text("quantity", "quantity"),
    number("largest difference", "error"),
    number("tolerance", "tolerance"),
    Column("differing (allowed)", lambda row: differing(row), "number"),
    number("smallest p", "p_value"),
    Column("checks held", lambda row: held(row), "number"),
)
def correctness(datasets):
    def summed_up(run) -> list[dict]:
        rows = []
        for key, group in run.frame.groupby(["level", "pair", "device", "dtype"], sort=False, dropna=False):
            share = (group["error"] / group["tolerance"]).dropna()
            worst = group.loc[share.idxmax()] if len(share) else {}
            judged = quantities.judged(group)
            rows.append(
                dict(zip(["level", "pair", "device", "dtype"], key, strict=True))
                | {name: worst.get(name) for name in ("quantity", "error", "tolerance")}
                | {name: group[name].sum(min_count=1) for name in ("differing", "allowed")}
                | {"cases": group["cases"].max(), "p_value": group["p_value"].min()}
                | {"held": int(judged.sum()), "checks": len(judged)}
            )
        return rows

    return of_runs(datasets, "correctness", summed_up)


def differing(row) -> str:
    return DASH if missing(row["differing"]) else f"{count(row['differing'])} ({count(row['allowed'])})"


def held(row) -> str:
    return DASH if missing(row["checks"]) else f"{count(row['held'])} of {count(row['checks'])}"


@table(
    "Every check of the sameness proof.",
    *RUN,
    text("level", "level", merge=True),
    text("pair", "pair", merge=True),
    text("device", "device", merge=True),
    text("type", "dtype", merge=True),
    text("quantity", "quantity", kind="long"),
    number("cases", "cases", count),
    Column("found", lambda row: found_difference(row), "number"),
    Column("allowed", lambda row: allowed_difference(row), "number"),
    Column("holds", lambda row: yes_no(row["passed"]), "status"),
    folded=True,
)
def correctness_checks(datasets):
    return of_runs(datasets, "correctness", lambda run: run.frame)


def found_difference(row) -> str:
    """A difference, a count, or a value with its interval, and the p-value of equal distributions."""
    if not missing(row["error"]):
        return significant(row["error"])
    if not missing(row["differing"]):
        return count(row["differing"])
    parts = [] if missing(row["value"]) else [significant(row["value"])]
    parts += [] if missing(row["low"]) else [f"[{significant(row['low'])}, {significant(row['high'])}]"]
    parts += [] if missing(row["p_value"]) else [f"p = {significant(row['p_value'], 2)}"]
    return ", ".join(parts) or DASH


def allowed_difference(row) -> str:
    if not missing(row["error"]):
        return DASH if missing(row["tolerance"]) else f"{LESS} {significant(row['tolerance'])}"
    if not missing(row["differing"]):
        return DASH if missing(row["allowed"]) else f"{LESS} {count(row['allowed'])}"
    return DASH if missing(row["low"]) or missing(row["passed"]) else "contains 0"


@table(
    "The kernels as NVRTC compiles them, on machines that need no GPU for it: the range over all builds of a kernel, "
    "that is over types, autoreset modes and kinds of observation.",
    *RUN,
    text("kernel", "kernel", merge=True),
    text("target", "target"),
    number("builds", "builds", count),
    Column("registers per thread", lambda row: registers(row), "number"),
    number("spilled, B", "spilled_bytes", count),
    number("stack, B", "stack_bytes", count),
    number("shared memory, B", "shared_bytes", count),
    Column("spill-free", lambda row: yes_no(row["spill_free"]), "status"),
)
def compilation(datasets):
    def by_kernel(run) -> list[dict]:
        rows = []
        spilled = run.frame["spill_store_bytes"] + run.frame["spill_load_bytes"]
        for (kernel, target), group in run.frame.assign(spilled=spilled).groupby(["kernel", "target"]):
            rows.append(
                {"kernel": kernel, "target": target, "builds": len(group)}
                | {"fewest_registers": group["registers"].min(), "most_registers": group["registers"].max()}
                | {name: group[name].max() for name in ("stack_bytes", "shared_bytes")}
                | {"spilled_bytes": group["spilled"].max(), "spill_free": not group["spilled"].any()}
            )
        return rows

    return of_runs(datasets, "compilation", by_kernel)


def registers(row) -> str:
    """The fewest and the most registers of a kernel's builds."""
    if missing(row["most_registers"]):
        return DASH
    ends = dict.fromkeys([count(row["fewest_registers"]), count(row["most_registers"])])
    return f" {DASH} ".join(ends)


@table(
    "Every build of every kernel.",
    *RUN,
    text("kernel", "kernel", merge=True),
    text("target", "target"),
    text("autoreset", "autoreset_mode"),
    text("type", "dtype"),
    text("observations", "obs"),
    number("registers per thread", "registers", count),
    number("spill stores, B", "spill_store_bytes", count),
    number("spill loads, B", "spill_load_bytes", count),
    number("stack, B", "stack_bytes", count),
    number("shared memory, B", "shared_bytes", count),
    folded=True,
)
def compilation_builds(datasets):
    keys = ["kernel", "target", "autoreset_mode", "dtype", "obs"]
    return of_runs(datasets, "compilation", lambda run: run.frame.sort_values(keys, kind="stable"))
