"""At what rate training goes, where its time goes, and what changes it."""

import pandas as pd

from lockstep.experiments import curves
from lockstep.paper import families
from lockstep.paper.common import learning as sums
from lockstep.paper.common.tables.learning import (
    AGENT,
    ALGORITHM,
    BATCH,
    DEVICE,
    EMPTY,
    REMARK,
    RETURN,
    SEEDS,
    THREADS,
    UPDATES,
    between,
    of_parts,
    with_open,
)
from lockstep.paper.tables import RATES, RUN, table
from lockstep.paper.typeset import (
    DASH,
    Column,
    count,
    missing,
    number,
    percent,
    short_time,
    si,
    significant,
    text,
    times,
    with_interval,
)


@table(
    "Training rate: environment steps per second of rollout, advantages, update and log, as the median over blocks of "
    "whole iterations. Lockstep over it: at matched environments, horizon, epochs, minibatches and network on the "
    "same device, on the threads that suit Lockstep best.",
    *RUN,
    AGENT,
    ALGORITHM,
    text("recipe", "recipe"),
    DEVICE,
    THREADS,
    BATCH,
    UPDATES,
    text("hidden", "hidden"),
    *RATES,
    with_interval("Lockstep over it", "ratio", times),
    REMARK,
    empty=EMPTY,
)
def training_rates(datasets):
    return of_parts(datasets, "rates", lambda run: with_open(run, sums.rates(run), "rate"))


def share(phase: str) -> Column:
    """The share of a phase with its time."""

    def cell(row) -> str:
        if missing(row[phase]):
            return DASH
        seconds = "" if missing(row["iteration_s"]) else f" [{short_time(row[phase] * row['iteration_s'])}]"
        return percent(row[phase]) + seconds

    return Column(phase, cell, "number")


@table(
    "Where the time of one iteration goes: a rollout of B environments over T steps, advantages, and an update of all "
    "epochs and minibatches; shares are medians over blocks, with their times. First: making the trainer, with what it "
    "compiles and captures, and its first iteration.",
    *RUN,
    ALGORITHM,
    text("recipe", "recipe", merge=True),
    DEVICE,
    THREADS,
    BATCH,
    UPDATES,
    number("one iteration", "iteration_s", short_time),
    *(share(phase) for phase in (*curves.PHASES, "rest")),
    number("first", "first_call_s", short_time),
    number("GPU memory, MiB", "gpu_memory_mib"),
    REMARK,
    folded=True,
    empty=EMPTY,
)
def training_iteration(datasets):
    return of_parts(datasets, "rates", iteration)


def iteration(run) -> pd.DataFrame:
    """Our settings whose phases were timed, of the parts rate and scaling, with `rest`."""
    rows = pd.concat([sums.rates(run, part).astype(object) for part in ("rate", "scaling")])
    rows = rows[rows["agent"] == sums.OURS].dropna(subset=list(curves.PHASES), how="all")
    return rows.assign(rest=1 - rows[list(curves.PHASES)].sum(axis="columns"))


@table(
    "The number of environments varied: the training rate, and the return in the original after equally many steps "
    "and after equally long training. All other settings stay the same.",
    *RUN,
    ALGORITHM,
    DEVICE,
    THREADS,
    BATCH,
    *RATES,
    number("equal steps", "steps_env_steps", si),
    number("return", "steps_score"),
    Column("interval", lambda row: between(row, "steps_score_low", "steps_score_high", significant), "number"),
    number("equal time", "seconds_wall_s", short_time),
    number("return then", "seconds_score"),
    Column("interval then", lambda row: between(row, "seconds_score_low", "seconds_score_high", significant), "number"),
    SEEDS,
    REMARK,
    folded=True,
    empty=EMPTY,
)
def learning_scaling(datasets):
    return of_parts(datasets, "scaling", scaling)


def scaling(run) -> pd.DataFrame:
    """One row per algorithm, device and number of environments: rate, and scores at equal steps and equal seconds."""
    rows, by = sums.rates(run, "scaling"), ["algorithm", "device", "num_envs"]
    rows = rows.loc[rows.groupby(by, sort=False)["rate"].idxmax()]
    scores = sums.final(run, "scaling")
    for name in ("steps", "seconds"):
        found = scores[scores["variant"] == f"equal {name}"].set_index(by)
        figures = found[["score", "score_low", "score_high", "env_steps", "wall_s", "seeds"]].add_prefix(f"{name}_")
        rows = rows.merge(figures.reset_index(), "outer", by)
    rows["seeds"] = rows[["steps_seeds", "seconds_seeds"]].min(axis="columns")
    return rows.assign(agent=sums.OURS).sort_values(by, kind="stable")


@table(
    "One setting changed at a time: the training rate as a multiple of the recipe's, and the return in the original "
    "beside the recipe's.",
    *RUN,
    ALGORITHM,
    text("changed", "variant"),
    text("recipe", "recipe"),
    DEVICE,
    BATCH,
    number("agents at once", "members", count),
    RATES[0],
    with_interval("over the recipe", "ratio", times),
    SEEDS,
    *RETURN,
    number("the recipe's", "base"),
    REMARK,
    folded=True,
    empty=EMPTY,
)
def learning_ablations(datasets):
    def ablations(run) -> pd.DataFrame:
        finals, scored = sums.final(run), sums.final(run, "ablation")
        base = finals[finals["agent"] == sums.OURS].drop_duplicates("algorithm").set_index("algorithm")["score"]
        scored = scored.assign(base=scored["algorithm"].map(base))
        rows = pd.concat([part.astype(object) for part in (sums.rates(run, "ablation"), scored)])
        return with_open(run, rows, "ablation")

    return of_parts(datasets, "ablations", ablations)


@table(
    "Training rates that other projects report of themselves, quoted with their hardware. Machines, tasks and "
    "networks differ, so nothing here is divided by them.",
)
def published_training(datasets):
    return pd.DataFrame(families.read("common", "published.yaml")["published"])
