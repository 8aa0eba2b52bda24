"""Summary of learning.csv: curves, time to solve, final scores and rates, each with its interval over seeds.

Scores are summarised by the interquartile mean with a stratified bootstrap interval (Agarwal et al., Deep
Reinforcement Learning at the Edge of the Statistical Precipice, 2021), shares by Wilson's score interval (1927).
Needs no torch, so that the paper reads results without it.
"""

from collections.abc import Mapping, Sequence
from math import inf
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy  # whose stats are imported when they are first used

from lockstep.experiments.bench.statistics import resampled, summarise
from lockstep.experiments.experiment import MEASURED, MISSING

DRAWS = 2000
PUBLISHED = "published"
RUN = ["environment", "algorithm", "agent", "variant", "recipe", "settings", "device", "threads", "num_envs", "horizon"]
RUN += ["epochs", "minibatches", "hidden", "members"]
PHASES = ("rollout", "advantage", "update")


class Interval(NamedTuple):
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float


class Quartiles(NamedTuple):
    lower: float
    median: float
    upper: float


def interquartile_mean(scores: np.ndarray, axis: int = -1) -> np.ndarray:
    """The mean of what is left without the lowest and the highest quarter, each rounded down to whole scores."""
    return scipy.stats.trim_mean(scores, 0.25, axis=axis)


def stratified_interval(strata: Sequence[Sequence[float]], draws: int = DRAWS, seed: int = 0) -> Interval:
    """Interquartile mean of all scores together, and its percentile bootstrap interval.

    Args:
        strata: one list of scores, a score per seed, for each task; seeds are drawn within their task, so that
            every draw holds each task as often as the scores do.
    """
    strata = [np.asarray(scores, dtype=float) for scores in strata]
    if not strata or any(scores.size == 0 or not np.isfinite(scores).all() for scores in strata):
        raise ValueError("every task needs finite scores, at least one")

    def together(*tasks: np.ndarray, axis: int = -1) -> np.ndarray:
        return interquartile_mean(np.concatenate(tasks, axis=axis), axis)

    return Interval(float(together(*strata)), *resampled(together, *strata, draws=draws, seed=seed))


def wilson(successes: int, trials: int) -> Interval:
    """The share of successes and Wilson's score interval; ValueError where it is no share."""
    found = scipy.stats.binomtest(successes, trials)
    return Interval(found.statistic, *found.proportion_ci(method="wilson"))


def quartiles(values: Sequence[float]) -> Quartiles:
    """Lower quartile, median and upper quartile, linear between values; a value may be infinite (never solved)."""
    values = np.sort(np.asarray(values, dtype=float))
    if values.size == 0 or np.isnan(values).any():
        raise ValueError(f"quartiles need numbers, at least one, got {values.tolist()}")
    return Quartiles(*(between(values, share * (values.size - 1)) for share in (0.25, 0.5, 0.75)))


def between(values: np.ndarray, place: float) -> float:
    """The value at a place between two ranks, counted from 0."""
    below = int(place)
    if place == below or values[below] == values[below + 1]:
        return float(values[below])
    return float(values[below] + (place - below) * (values[below + 1] - values[below]))


def complete(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with the columns `algorithm` and `settings`, which older recordings lack.

    What has a recipe there is PPO.
    """
    if "algorithm" not in frame:
        frame = frame.assign(algorithm=frame["recipe"].notna().map({True: "ppo", False: None}))
    return frame if "settings" in frame else frame.assign(settings=None)


def runs(frame: pd.DataFrame, part: str, *more: str) -> list[tuple[dict, pd.DataFrame]]:
    """The measured or published rows of a part, by run: columns (RUN, and `more`) and rows, in the frame's order."""
    frame = complete(frame)
    chosen = frame[(frame["part"] == part) & frame["status"].isin([MEASURED, PUBLISHED])]
    by = [*RUN, *more]
    return [(dict(zip(by, key, strict=True)), rows) for key, rows in chosen.groupby(by, sort=False, dropna=False)]


def curve_summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per run and point of its curve: RUN's columns, env_steps, wall_s (median), score, low, high, seeds.

    The score is the interquartile mean over seeds; every seed is scored at the same numbers of steps.
    """
    found = []
    for run, rows in runs(frame, "curve", "env_steps"):
        if (scores := rows["score"].dropna()).empty:
            continue
        interval = stratified_interval([scores])
        row = {"wall_s": rows["wall_s"].median(), "score": interval.value, "low": interval.low, "high": interval.high}
        found.append(run | row | {"seeds": rows["seed"].nunique()})
    return pd.DataFrame(found, columns=[*RUN, "env_steps", "wall_s", "score", "low", "high", "seeds"])


def final_summary(frame: pd.DataFrame, part: str = "final") -> pd.DataFrame:
    """One row per run: score and score_sampled (interquartile means over seeds, with _low and _high), seeds,
    env_steps and wall_s (medians). part: final, or scaling or ablation, of which the scored rows count."""
    found = []
    for run, rows in runs(frame, part):
        rows = rows.dropna(subset=["score"])
        if rows.empty:
            continue
        row = run | {"seeds": len(rows)} | {name: rows[name].median() for name in ("env_steps", "wall_s")}
        for name in ("score", "score_sampled"):
            if not (scores := rows[name].dropna()).empty:
                interval = stratified_interval([scores])
                row |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
        found.append(row)
    scores = [f"{name}{end}" for name in ("score", "score_sampled") for end in ("", "_low", "_high")]
    return pd.DataFrame(found, columns=[*RUN, "seeds", "env_steps", "wall_s", *scores])


def solve_summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per run: seeds, solved, share with share_low and share_high; quartiles of steps and of seconds.

    Columns of the quartiles: env_steps_lower, env_steps_median, env_steps_upper, and the same for wall_s. A seed
    that was not solved counts as infinite, so that failing cannot make a median shorter.
    """
    found = []
    for run, rows in runs(frame, "solve"):
        rows = rows.dropna(subset=["solved"])
        if rows.empty:
            continue
        solved = rows["solved"] == 1
        share = wilson(int(solved.sum()), len(rows))
        row = run | {"seeds": len(rows), "solved": int(solved.sum())}
        row |= {"share": share.value, "share_low": share.low, "share_high": share.high}
        for name in ("env_steps", "wall_s"):
            places = quartiles(rows[name].where(solved, inf))
            row |= {f"{name}_{place}": value for place, value in places._asdict().items()}
        found.append(row)
    places = [f"{name}_{place}" for name in ("env_steps", "wall_s") for place in Quartiles._fields]
    return pd.DataFrame(found, columns=[*RUN, "seeds", "solved", "share", "share_low", "share_high", *places])


def rate_summary(frame: pd.DataFrame, part: str = "rate") -> pd.DataFrame:
    """One row per run: rate (steps/s, median over blocks), rate_low, rate_high, cpu_rate, blocks, and the shares of
    the phases in the time (rollout, advantage, update). part: rate, or scaling or ablation, of which the blocks count.
    """
    found = []
    for run, rows in runs(frame, part):
        rows = rows.dropna(subset=["block"])
        if rows.empty:
            continue
        rate = summarise(rows["env_steps"] / rows["wall_s"])
        row = {"rate": rate.median, "rate_low": rate.low, "rate_high": rate.high, "blocks": len(rows)}
        row["cpu_rate"] = (rows["env_steps"] / rows["cpu_s"]).median()
        row |= {phase: (rows[f"{phase}_s"] / rows["wall_s"]).median() for phase in PHASES}
        found.append(run | row | {"parameters": rows["parameters"].iloc[0]})
    numbers = ["rate", "rate_low", "rate_high", "cpu_rate", "blocks", *PHASES, "parameters"]
    return pd.DataFrame(found, columns=[*RUN, *numbers])


def missing(frame: pd.DataFrame) -> list[Mapping]:
    """Part, algorithm, agent, variant, device and reason of what was not measured."""
    rows = complete(frame)[~frame["status"].isin([MEASURED, PUBLISHED])]
    return rows[["part", "algorithm", "agent", "variant", "device", "reason"]].drop_duplicates().to_dict("records")


def report(frame: pd.DataFrame) -> str:
    """Final scores, time to solve and rates as lines to print."""

    def name(row) -> str:
        return f"{row.agent} {row.algorithm}" if isinstance(row.algorithm, str) else row.agent

    lines = ["interquartile mean of the return in the original [95 % interval]"]
    for row in final_summary(frame).itertuples():
        interval = f" [{row.score_low:.2f}, {row.score_high:.2f}]" if row.seeds > 1 else ""
        trained = row.env_steps == row.env_steps
        seeds = f"{row.seeds} seed{'s' * (row.seeds > 1)}"
        steps = f", {seeds}, {row.env_steps:,.0f} steps, {row.wall_s:.2f} s" if trained else ""
        lines.append(f"  {name(row):16} {row.score:9.2f}{interval}{steps}")
    for row in solve_summary(frame).itertuples():
        of = f"{row.solved} of {row.seeds} [{row.share_low:.0%}, {row.share_high:.0%}]"
        times = f"median {row.env_steps_median:,.0f} steps, {row.wall_s_median:.3f} s"
        lines.append(f"  {name(row):16} solved {of}, {row.variant} on {row.device}: {times}")
    for part in ("rate", "scaling", "ablation"):
        for row in rate_summary(frame, part).itertuples():
            pairs = ((row.num_envs, row.horizon), (row.epochs, row.minibatches))
            known = ([f"{number:.0f}" for number in pair if number == number] for pair in pairs)
            shape = ", ".join(" x ".join(numbers) for numbers in known if numbers)
            named = f"  {name(row):16} {row.variant if isinstance(row.variant, str) else part} {row.device} {shape}"
            interval = f" [{row.rate_low:,.0f}, {row.rate_high:,.0f}]" if row.rate_low == row.rate_low else ""
            lines.append(f"{named}: {row.rate:,.0f} steps/s{interval}")
    for row in (SimpleNamespace(**row) for row in missing(frame)):
        lines.append(f"  {name(row):16} {row.part} on {row.device}: {MISSING}: {row.reason}")
    return "\n".join(lines)
