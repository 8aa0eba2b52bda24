"""Results of training, and the time to solve a task."""

from collections.abc import Callable

import pandas as pd

from lockstep.experiments import curves
from lockstep.paper import NOT_MEASURED
from lockstep.paper.common import learning as sums
from lockstep.paper.common.tables.transfer import DEVICES
from lockstep.paper.tables import RUN, of_asked, on_cpu, table
from lockstep.paper.typeset import (
    DASH,
    GREATER,
    SPACE,
    TIMES,
    Column,
    count,
    missing,
    number,
    percent,
    short_time,
    si,
    significant,
    text,
    yes_no,
)

EMPTY = "No environment asks for it, and nothing was measured."


def of_parts(datasets: list, asked: str, rows_of: Callable) -> pd.DataFrame:
    """of_asked of learning; an environment that does not ask for such a part is left out unless measured.

    A run without the part has one row that says so.
    """

    def without_source(run) -> pd.DataFrame:
        rows = rows_of(run)
        if rows.empty and sums.asked(run.provenance["environment"], asked):
            rows = pd.DataFrame([{"open": True}])
        return rows.drop(columns="environment", errors="ignore")

    return of_asked(datasets, "learning", without_source, lambda name: sums.asked(name, asked))


def with_open(run, rows: pd.DataFrame, part: str) -> pd.DataFrame:
    """Rows with version and reason, agents in order, and with what the run could not measure of the part (`open`)."""
    known = [sums.about(run, part, row) for row in rows.to_dict("records")]
    rows = rows.assign(**{name: [row[name] for row in known] for name in ("version", "reason")}, open=False)
    return sums.in_order(pd.concat([rows.astype(object), sums.open_rows(run, part).assign(open=True).astype(object)]))


# Columns.


def named(row) -> str:
    """An agent, if it is another library's with its version."""
    if missing(row["agent"]):
        return DASH
    bare = row["agent"] == sums.OURS or missing(row["version"])
    return sums.agent(row["agent"]) + ("" if bare else f" {row['version']}")


def learner(row) -> str:
    """An algorithm with the settings that have no columns of their own."""
    settings = "" if missing(row["settings"]) else f" ({row['settings']})"
    return sums.algorithm(row["algorithm"]) + settings or DASH


def pair(row, one: str, other: str) -> str:
    """Two whole numbers, "256 x 32"; the first alone where an algorithm knows no other."""
    known = [count(row[name]) for name in (one, other) if not missing(row[name])]
    return f"{SPACE}{TIMES}{SPACE}".join(known) or DASH


def between(row, low: str, high: str, write: Callable[[float], str]) -> str:
    """An interval; a dash where it is unknown, or of a single seed."""
    if missing(row[low]) or missing(row["seeds"]) or row["seeds"] == 1:
        return DASH
    return f"[{write(float(row[low]))}, {write(float(row[high]))}]"


def remark(row) -> str:
    """A note on too few seeds; and how it was run, or the reason why it was not."""
    if row["open"] is True:
        return NOT_MEASURED + ("" if missing(row["reason"]) else f": {row['reason']}")
    few = "" if missing(row["seeds"]) else sums.stamp(row["agent"], row["seeds"])
    return "; ".join(filter(None, [few, "" if missing(row["reason"]) else str(row["reason"])])) or DASH


def lasting(value: float) -> str:
    """Seconds, or "never"."""
    return "never" if value == float("inf") else short_time(value)


def steps(value: float) -> str:
    return "never" if value == float("inf") else si(value)


def seeds_at_aim(row) -> str:
    """The number of seeds whose own return is accepted, another library's too."""
    known = not missing(row["reached"]) and not missing(row["seeds"])
    return f"{count(row['reached'])} of {count(row['seeds'])}" if known else DASH


AGENT = Column("agent", named, merge=True)
ALGORITHM = Column("algorithm", learner)
DEVICE = Column("device", lambda row: DEVICES.get(row["device"], DASH))
BATCH = Column(f"B {TIMES} T", lambda row: pair(row, "num_envs", "horizon"), "number")
UPDATES = Column(f"epochs {TIMES} minibatches", lambda row: pair(row, "epochs", "minibatches"), "number")
SEEDS = number("seeds", "seeds", count)
THREADS = Column("threads", lambda row: on_cpu(row, "threads", count), "number")
RETURN = (
    number("return", "score"),
    Column("95 % interval", lambda row: between(row, "score_low", "score_high", significant), "number"),
)
REMARK = Column("remark", remark, "long", merge=True)


@table(
    "Return after the whole run in the original environment: the interquartile mean over seeds of the mean of a "
    f"hundred greedy episodes, with its bootstrap interval; below {sums.FEW} seeds an illustration. Sampled: with "
    "actions drawn from the policy.",
    *RUN,
    AGENT,
    ALGORITHM,
    DEVICE,
    BATCH,
    SEEDS,
    number("steps", "env_steps", si),
    number("time", "wall_s", short_time),
    *RETURN,
    number("sampled", "score_sampled"),
    number("accepted", "aim", lambda aim: f"{GREATER} {aim:g}".replace("-", "\N{MINUS SIGN}")),
    Column("met", lambda row: yes_no(row["met"]), "status"),
    Column("seeds that meet it", seeds_at_aim, "number"),
    REMARK,
    empty=EMPTY,
)
def learning_final(datasets):
    def final(run) -> pd.DataFrame:
        rows = sums.final(run)
        ours, aim = rows["agent"] == sums.OURS, sums.wanted(run.provenance["environment"]).get("aim")
        enough = rows["seeds"] >= sums.FEW
        met = (rows["score"] >= aim).astype(object).where(enough, None) if aim is not None else None
        rows = rows.assign(aim=aim, met=met).astype(dict.fromkeys(["aim", "met", "seeds"], object))
        rows.loc[~ours | rows["settings"].notna(), ["aim", "met"]] = None  # an aim is of the recipe
        rows.loc[rows["agent"].isin(sums.UNTRAINED), "seeds"] = None
        return with_open(run, rows, "final")

    return of_parts(datasets, "curves", final)


@table(
    "Time to solve, with Wilson's interval of the share of seeds, quartiles of steps and time, and \N{INFINITY} for "
    "unsolved seeds. Warm: in a process that has trained before; cold: from the start of a process, with kernels "
    "compiled before; first: nothing compiled yet.",
    *RUN,
    AGENT,
    ALGORITHM,
    text("start", "variant"),
    DEVICE,
    BATCH,
    number("agents at once", "members", count),
    Column("solved", lambda row: seeds_solved(row), "number"),
    Column("steps", lambda row: median(row, "env_steps", steps), "number"),
    Column("time", lambda row: median(row, "wall_s", lasting), "number"),
    number("nine in ten within", "nine_in_ten", lasting),
    number("return afterwards", "score"),
    REMARK,
    empty=EMPTY,
)
def time_to_solve(datasets):
    def summary(run) -> pd.DataFrame:
        rows, scores = sums.solve(run), sums.final(run, "solve").to_dict("records")
        seeds = [(setting, part.dropna(subset=["solved"])) for setting, part in curves.runs(run.frame, "solve")]
        seeds = [part for _, part in seeds if len(part)]
        rows["nine_in_ten"] = [sums.within(part, 0.9) for part in seeds]
        rows["score"] = [
            next((score["score"] for score in scores if sums.same(score, row, curves.RUN)), None)
            for row in rows.to_dict("records")
        ]
        return with_open(run, rows, "solve")

    return of_parts(datasets, "solve", summary)


@table(
    "Time to solve a task in a process that has trained before: seeds solved, and median time with its quartiles, "
    "\N{INFINITY} for unsolved seeds. Nine in ten within: a dash where fewer than ten seeds were run; the supplement "
    "has cold starts, settings and the differences of libraries.",
    *RUN,
    AGENT,
    ALGORITHM,
    DEVICE,
    Column("seeds solved", lambda row: f"{count(row['solved'])} of {count(row['seeds'])}", "number"),
    Column("steps", lambda row: median(row, "env_steps", steps), "number"),
    Column("time", lambda row: median(row, "wall_s", lasting), "number"),
    number("nine in ten within", "nine_in_ten", lasting),
    empty=EMPTY,
)
def solved(datasets):
    found = time_to_solve(datasets)
    return found[(found["variant"] == "warm") & found["solved"].notna()] if "solved" in found else found.iloc[:0]


def seeds_solved(row) -> str:
    if missing(row["solved"]):
        return DASH
    share = f"[{percent(row['share_low'])}, {percent(row['share_high'])}]"
    return f"{count(row['solved'])} of {count(row['seeds'])} {share}"


def median(row, name: str, write: Callable[[float], str]) -> str:
    """A median with its quartiles; of a single seed the figure alone."""
    if missing(row[f"{name}_median"]):
        return DASH
    quartiles = f" [{write(row[f'{name}_lower'])}, {write(row[f'{name}_upper'])}]" if row["seeds"] > 1 else ""
    return write(row[f"{name}_median"]) + quartiles


@table(
    "Every point of the learning curves: the interquartile mean over seeds of the mean greedy return in the original.",
    *RUN,
    AGENT,
    ALGORITHM,
    DEVICE,
    number("steps", "env_steps", si),
    number("time", "wall_s", short_time),
    SEEDS,
    *RETURN,
    REMARK,
    folded=True,
    empty=EMPTY,
)
def learning_curves(datasets):
    def points(run) -> pd.DataFrame:
        rows = sums.curve(run).rename(columns={"low": "score_low", "high": "score_high"})
        return with_open(run, rows, "curve")

    return of_parts(datasets, "curves", points)
