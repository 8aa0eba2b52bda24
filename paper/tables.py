"""The tables of the paper: each a function from datasets to a DataFrame, with its caption and its columns.

The DataFrame holds plain numbers, with status, machine and date apart; it becomes
results/tables/<name>.csv. The columns say how a reader sees it in <name>.md and in the report. Decorating a
function is all it takes for one more.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd
import yaml

import paper
from experiments import config, record, statistics
from paper import quantities, rung
from paper.typeset import (
    DASH,
    TIMES,
    Column,
    Table,
    count,
    gigabytes,
    interval,
    missing,
    number,
    percent,
    seconds,
    short_time,
    si,
    significant,
    text,
    times,
    yes_no,
)

GREATER, LESS, NAN = "\N{GREATER-THAN OR EQUAL TO}", "\N{LESS-THAN OR EQUAL TO}", float("nan")
OF_MACHINE = "the machine itself"  # stands for an environment where an experiment needs none
NO_FIGURE = dict.fromkeys(["value", "low", "high", "shown", "interval"])
CLAIMS = Path(__file__).with_name("claims.yaml")
TABLES: dict[str, Table] = {}


def table(caption: str, *columns: Column, **options) -> Callable:
    """Make a function of `datasets` a table of the paper, under the function's name."""

    def register(function: Callable[[list], pd.DataFrame]) -> Callable[[list], pd.DataFrame]:
        TABLES[function.__name__] = Table(function.__name__, caption, columns, function, **options)
        return function

    return register


@cache
def declared() -> dict:
    """paper/claims.yaml: headline, budgets, targets, claims."""
    return yaml.safe_load(CLAIMS.read_text(encoding="utf-8"))


# Where a row comes from.


def source(run) -> dict:
    """The columns that say where a row comes from."""
    return {
        "environment": run.provenance["environment"],
        "machine": paper.machine(run),
        "status": run.status,
        "date": paper.date(run),
    }


def not_measured() -> dict:
    """The same of a row that nobody has measured."""
    return {"machine": "", "status": paper.NOT_MEASURED, "date": ""}


def of_runs(datasets: list, experiment: str, rows_of: Callable) -> pd.DataFrame:
    """rows_of(run) over all runs of an experiment, with where they come from.

    An environment that nobody has run has one row, "not measured".
    """
    runs = quantities.of(datasets, {"experiment": experiment})
    measured = {run.provenance["environment"] for run in runs}
    absent = [name for name in paper.environments() if name not in measured]
    frames = [pd.DataFrame(rows_of(run)).assign(**source(run)) for run in runs]
    frames += [pd.DataFrame([{"environment": name} | not_measured()]) for name in absent]
    return pd.concat(frames, ignore_index=True)


def worded_status(row) -> str:
    return paper.status_text(row["status"], row["machine"], row["date"])


STATUS = Column("status", worded_status, "status")
RUN = (
    text("environment", "environment", section=True),
    Column("status", worded_status, "status", section=True),
)


# What there is.


@table(
    "What was measured on the machine that made this page, and what is on record from others.",
    text("environment", "environment", merge=True),
    text("experiment", "experiment", merge=True),
    text("status", "status", kind="status"),
    text("machine", "machine"),
    text("scale", "scale"),
    text("date", "date"),
)
def status(datasets):
    known = {(None, experiment): [] for experiment in record.OF_THE_MACHINE}
    for name in paper.environments():
        known |= {(name, experiment): [] for experiment in record.OF_AN_ENVIRONMENT}
    for run in paper.in_order(datasets):
        known.setdefault((run.provenance["environment"], run.provenance["experiment"]), []).append(run)
    rows = []
    for (environment, experiment), runs in known.items():
        about = {"environment": environment or OF_MACHINE, "experiment": experiment}
        if not any(run.origin == "here" for run in runs):
            rows.append(not_measured() | {"machine": "here", "scale": None, "date": None} | about)
        rows += [source(run) | {"scale": run.provenance["scale"]} | about for run in runs]
    rows.sort(key=lambda row: (row["environment"] == OF_MACHINE, row["environment"], row["experiment"]))
    return pd.DataFrame(rows)[["environment", "experiment", "status", "machine", "scale", "date"]]


@table(
    "The machines, from the provenance beside each result. A dash: not there, or not noted.",
    empty="No machine has measured anything yet.",
)
def machines(datasets):
    found: dict[str, list] = {}
    for run in sorted(datasets, key=lambda run: (run.origin != "here", run.machine)):
        found.setdefault(paper.machine(run), []).append(run)

    def row(name: str, say: Callable) -> dict:
        said = {machine: {plain(say(run)) for run in runs} - {""} for machine, runs in found.items()}
        return {"property": name} | {machine: ", ".join(sorted(words)) or DASH for machine, words in said.items()}

    described = {
        "CPU": "cpu",
        "cores": "cores",
        "memory, GiB": "memory_gib",
        "GPU": "gpu",
        "GPU memory, GiB": "gpu_memory_gib",
        "GPU driver": "driver",
        "CUDA": "cuda",
        "operating system": "os",
        "C++ compiler": "compiler",
    }
    rows = [row(name, lambda run, key=key: run.provenance["machine"].get(key)) for name, key in described.items()]
    packages = {name for run in datasets for name in run.provenance["packages"]}
    for package in sorted(packages, key=lambda name: (name != "python", name)):
        rows.append(row(package, lambda run, package=package: run.provenance["packages"].get(package)))
    rows.append(row("scale", lambda run: run.provenance["scale"]))
    rows.append(row("commit", commit))
    rows.append(row("measured on", paper.date))
    return pd.DataFrame(rows if found else [], columns=["property", *found])


def plain(value: object) -> str:
    """A value of the provenance as text, without trademark signs; "" for None."""
    return "" if value is None else re.sub(r"\((R|TM)\)", "", str(value))


def commit(run) -> str:
    """The commit of a run, shortened."""
    known = run.provenance["commit"]
    changed = " with changes" if run.provenance["dirty"] else ""
    return f"{known[:12]}{changed}" if known else "unknown"


@table(
    "The rungs of the ladder, from the original to fused steps on a device.",
    text("rung", "label"),
    text("what runs", "meaning", kind="long"),
    text("measured on", "machines", kind="long"),
)
def rungs(datasets):
    having: dict[str, dict] = {name: {} for name in paper.RUNGS}
    for run in quantities.of(datasets, {}):
        for name in run.frame["rung"].unique():
            having.setdefault(name, {})[paper.machine(run)] = None
    return pd.DataFrame(
        {
            "rung": name,
            "label": rung(name).label,
            "meaning": rung(name).meaning,
            "machines": ", ".join(machines) or paper.NOT_MEASURED,
        }
        for name, machines in having.items()
    )


# Sameness.


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


# Throughput.


def on_cpu(row, name: str, write: Callable[[float], str]) -> str:
    """A number that says nothing about a GPU."""
    return DASH if row["device"] == "cuda" or missing(row[name]) else write(row[name])


def label(row) -> str:
    return DASH if missing(row["rung"]) else rung(row["rung"]).label


SETTING = (
    number("B", "num_envs", count),
    Column("threads", lambda row: on_cpu(row, "threads", count), "number"),
    number("K", "fused_steps", count),
)
RATES = (
    number("rate, steps/s", "rate", si),
    interval("95 % interval", "rate_low", "rate_high", "rate"),
    Column("per CPU-second", lambda row: on_cpu(row, "cpu_rate", si), "number"),
)
RATIO = number(f"{TIMES} original", "ratio", times)


def in_ladder_order(run) -> pd.DataFrame:
    """The settings of a throughput run (quantities.rates), rung by rung."""
    rates = quantities.rates(run)
    keys = ["place", "threads", "fused_steps", "policy", "obs", "dtype", "num_envs"]
    order = rates.assign(place=rates["rung"].map(paper.rung_order)).sort_values(keys, kind="stable")
    return rates.loc[order.index]


@table(
    "The ladder at one batch size. Rates count live environment steps, resets and limits included; a "
    "ratio divides by the original of the same run on the same machine.",
    *RUN,
    Column("rung", label),
    *SETTING,
    *RATES,
    RATIO,
    Column("fastest of all sizes", lambda row: fastest(row), "number"),
)
def ladder(datasets):
    def one_each(run) -> list[dict]:
        rows = []
        for _, group in in_ladder_order(run).groupby(["rung", "threads"], sort=False):
            if (group["policy"] == "random").any():
                group = group[group["policy"] == "random"]
            # The batch size of the headline; what was not run there (a single original) at the nearest to it.
            distance = (group["num_envs"] - declared()["headline"]["num_envs"]).abs()
            at_size = group[distance == distance.min()]
            chosen, peak = at_size.loc[at_size["rate"].idxmax()], group.loc[group["rate"].idxmax()]
            rows.append({**chosen, "peak_rate": peak["rate"], "peak_num_envs": peak["num_envs"]})
        return rows

    return of_runs(datasets, "throughput", one_each)


def fastest(row) -> str:
    return DASH if missing(row["peak_rate"]) else f"{si(row['peak_rate'])} at {count(row['peak_num_envs'])}"


@table(
    "Throughput of every setting measured.",
    *RUN,
    Column("rung", label, merge=True),
    *SETTING,
    text("policy", "policy"),
    text("observations", "obs"),
    text("type", "dtype"),
    *RATES,
    RATIO,
    interval("5 to 95 % of blocks", "rate_p5", "rate_p95", "rate"),
    number("first call", "first_call_s", short_time),
    folded=True,
)
def throughput(datasets):
    return of_runs(datasets, "throughput", in_ladder_order)


@table(
    "Steps fused into one call, against one call per step with the same batch, threads and policy.",
    *RUN,
    Column("rung", label, merge=True),
    text("policy", "policy"),
    *SETTING,
    *RATES,
    number(f"{TIMES} call per step", "gain", times),
)
def fused_steps(datasets):
    def with_base(run) -> list[dict]:
        rates = in_ladder_order(run)
        rates = rates[(rates["num_envs"] == declared()["headline"]["num_envs"]) & (rates["obs"] != "view")]
        rows = []
        for row in rates.to_dict("records"):
            base, _, kind = row["rung"].rpartition("-")
            if kind not in ("fused", "trajectory"):
                continue
            same = quantities.matching(rates, {"rung": base, "policy": row["policy"], "threads": row["threads"]})
            below = same.iloc[0] if len(same) else {}
            of_base = {f"base_{name}": below.get(name, NAN) for name in ("rate", "rate_low", "rate_high")}
            rows.append(row | of_base | {"gain": row["rate"] / of_base["base_rate"]})
        return rows

    return of_runs(datasets, "throughput", with_base)


@table(
    "What was aimed at, and what each machine reached.",
    text("environment", "environment", section=True),
    text("target", "target", kind="long", section=True),
    text("aim", "aim", section=True),
    STATUS,
    text("reached", "shown", kind="number"),
    text("95 % interval", "interval", kind="number"),
    Column("met", lambda row: yes_no(row["met"]), "status"),
)
def targets(datasets):
    rows = [row for name in paper.environments() for row in throughput_targets(datasets, name)]
    for item in declared()["targets"]:
        least = "at_least" in item
        bound = item["at_least"] if least else item["at_most"]
        write = quantities.QUANTITIES[item["quantity"]][1]
        aim = f"{GREATER if least else LESS} {short(write(float(bound), NAN, NAN)[0])}"
        about = {"environment": "every environment", "target": item["target"], "aim": aim}
        found = quantities.find(datasets, item)
        for finding in found:
            met = finding.value >= bound if least else finding.value <= bound
            rows.append(about | finding._asdict() | {"met": bool(met)})
        rows += [] if found else [about | not_measured() | NO_FIGURE | {"met": None}]
    return pd.DataFrame(rows)


def throughput_targets(datasets: list, environment: str) -> list[dict]:
    """The targets of an environment's YAML on every machine that can tell; "not measured" if none can."""
    rows = []
    for target in config.parse(config.FOLDER / f"{environment}.yaml")["throughput"].get("targets", []):
        unit = {"second": "steps/s", "CPU-second": "steps/CPU-s"}[target["per"]]
        write = quantities.with_interval(times) if "denominator" in target else quantities.rate_words(unit)
        aim = f"{GREATER} {short(write(target['floor'], NAN, NAN)[0])}"
        about = {"environment": environment, "target": target["name"], "aim": aim}
        found = []
        for run in quantities.of(datasets, {"environment": environment}):
            reached = statistics.targets(run.frame, [target]).iloc[0]
            if reached["status"] != paper.NOT_MEASURED:
                figure = {name: float(reached[name]) for name in ("value", "low", "high")}
                words = dict(zip(("shown", "interval"), write(*figure.values()), strict=True))
                found.append(about | source(run) | figure | words | {"met": reached["status"] == "reached"})
        rows += found or [about | not_measured() | NO_FIGURE | {"met": None}]
    return rows


def short(written: str) -> str:
    """A number that was written down as such, without the zeros that measured ones carry."""
    return re.sub(r"\.0+\b", "", written)


# Bounds of the machine.


@table(
    "Share of the machine's own bounds. Traffic: bytes of all buffers that a step reads and writes, times "
    "the rate; copy: bandwidth measured on that machine for as many bytes as one call touches.",
    *RUN,
    Column("rung", label, merge=True),
    *SETTING,
    number("bytes per step", "bytes_per_step"),
    number("traffic, GB/s", "traffic", gigabytes),
    number("copy, GB/s", "copy_bandwidth", gigabytes),
    number("share reached", "share", percent),
    number("fp32 operations possible per step", "operations"),
)
def roofline(datasets):
    def bounded(run) -> list[dict]:
        rates = in_ladder_order(run)
        usual = rates["rung"].str.startswith("port") & (rates["policy"] != "fixed") & (rates["obs"] != "view")
        best = rates.loc[rates[usual].groupby(["rung", "num_envs", "threads"], sort=False)["rate"].idxmax()]
        # The batch of the headline, and the largest of each rung.
        largest = best["num_envs"] == best.groupby("rung")["num_envs"].transform("max")
        best = best[largest | (best["num_envs"] == declared()["headline"]["num_envs"])]
        rows = []
        for row in best.to_dict("records"):
            size = row["bytes_per_step"] * row["fused_steps"] * row["num_envs"]
            copy = quantities.copy_bandwidth(datasets, run, row["device"], size, row["threads"])
            fp32 = quantities.fp32_rate(datasets, run, row["device"], row["threads"])
            traffic = row["rate"] * row["bytes_per_step"]
            share = {"traffic": traffic, "copy_bandwidth": copy, "share": traffic / copy}
            rows += [] if missing(fp32) else [row | share | {"operations": fp32 / row["rate"]}]
        return rows or [{"rung": None}]

    return of_runs(datasets, "throughput", bounded)


@table(
    "Bounds measured on each machine: copying memory (bytes read and written), fp32 arithmetic, and where "
    "there is a GPU the cost of a launch and of a graph's node.",
    RUN[1],
    text("bound", "quantity", merge=True),
    text("device", "device", merge=True),
    Column("threads", lambda row: on_cpu(row, "threads", count), "number"),
    number("both buffers, B", "size_bytes", si),
    Column("median", lambda row: f"{si(row['rate'])}{unit(row)}/s", "number"),
    interval("95 % interval", "low", "high", "rate"),
    Column("time of each", lambda row: time_of_each(row), "number"),
    folded=True,
)
def ceilings(datasets):
    rows = []
    for run in quantities.of(datasets, {"experiment": "ceilings"}):
        keys = ["quantity", "device", "threads", "size_bytes", "unit"]
        for key, group in run.frame.groupby(keys, sort=False, dropna=False):
            found = statistics.summarise(group["amount"] / group["wall_s"])
            figures = {"rate": found.median, "low": found.low, "high": found.high}
            rows.append(source(run) | dict(zip(keys, key, strict=True)) | figures)
    return pd.DataFrame(rows, columns=None if rows else ["machine", "status"])


def unit(row) -> str:
    return "B" if row["unit"] == "byte" else f" {row['unit']}" if row["unit"] == "flop" else f" {row['unit']}s"


def time_of_each(row) -> str:
    return short_time(1 / row["rate"]) if row["unit"] in ("launch", "node") else DASH


# Claims.


@table(
    "Each claim of the note, what its benchmark measured, and what the question behind it gives when it "
    "is asked of the results at hand.",
    text("the note says", "claim", kind="long", section=True),
    text("what its benchmark measured", "measured", kind="long", section=True),
    text("asked properly", "label", kind="long", merge=True),
    text("our figure", "shown", kind="number"),
    text("95 % interval", "interval", kind="number"),
    STATUS,
)
def claims(datasets):
    rows = []
    for claim in declared()["claims"]:
        for answer in claim["answers"]:
            about = {"claim": claim["claim"], "measured": claim["measured"], "label": answer["label"]}
            found = [finding._asdict() for finding in quantities.find(datasets, answer)]
            rows += [about | finding for finding in found or [not_measured() | NO_FIGURE]]
    return pd.DataFrame(rows)


# Cost.


@table(
    "What each experiment took, from its provenance, and the sum for each machine and scale against the time "
    "allowed. The time that Snakemake itself takes, and that of making this page, is not in it.",
    text("machine", "machine", merge=True),
    text("environment", "environment", merge=True),
    text("experiment", "experiment"),
    text("scale", "scale"),
    number("wall time", "wall_s", seconds),
    number("CPU time", "cpu_s", seconds),
    number("time allowed", "allowed_s", seconds),
    Column("allowance", lambda row: DASH if missing(row["met"]) else "met" if row["met"] else "not met", "status"),
    text("status", "status", kind="status"),
)
def cost(datasets):
    rows, machines = [], {}
    for run in sorted(paper.in_order(datasets), key=lambda run: (run.origin != "here", run.machine)):
        machines.setdefault(paper.machine(run), []).append(run)
    for machine, runs in machines.items():
        for run in runs:
            about = {name: run.provenance[name] for name in ("experiment", "scale", "wall_s", "cpu_s")}
            rows.append(source(run) | about)
            rows[-1]["environment"] = rows[-1]["environment"] or OF_MACHINE
        rows += totals(machine, runs)
    columns = [
        "machine",
        "environment",
        "experiment",
        "scale",
        "wall_s",
        "cpu_s",
        "allowed_s",
        "met",
        "status",
        "date",
    ]
    return pd.DataFrame(rows, columns=columns)


def totals(machine: str, runs: list) -> list[dict]:
    """A sum for each scale that a machine ran at, with the verdict where that scale has a time allowed.

    What has no scale belongs to every one of them. A run that did not note its time leaves the sum open.
    """
    scales = dict.fromkeys(run.provenance["scale"] for run in runs if run.provenance["scale"])
    rows = []
    for scale in scales or [None]:
        of_scale = [run.provenance for run in runs if run.provenance["scale"] in (scale, None)]
        total = {
            name: NAN if any(missing(about[name]) for about in of_scale) else sum(about[name] for about in of_scale)
            for name in ("wall_s", "cpu_s")
        }
        allowed = declared()["budgets"].get(scale)
        met = None if allowed is None or missing(total["wall_s"]) else total["wall_s"] <= allowed
        about = {"machine": machine, "environment": "all", "experiment": "all", "scale": scale}
        rows.append(about | total | {"allowed_s": allowed, "met": met})
    return rows
