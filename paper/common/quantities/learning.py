"""Of learning: rates of training, returns, seeds solved."""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from lockstep.experiments import curves
from lockstep.experiments.bench import statistics
from lockstep.paper import typeset
from lockstep.paper.common import learning
from lockstep.paper.quantities import NAN, alone, extreme, matching, of, out_of, quantity, rate_words, with_interval


@quantity(rate_words("steps/s"))
def training_rate(datasets, select, against):
    """Environment steps per second of training, from end to end; of several settings the fastest."""
    return extreme(datasets, select, learning.rates, "rate")


@quantity(with_interval(typeset.times))
def training_ratio(datasets, select, against):
    """Our rate of training over that of another agent in the same work; of several settings the smallest."""
    return extreme(datasets, select, learning.rates, "ratio", "min")


@quantity(with_interval(typeset.times))
def training_gain(datasets, select, against):
    """Rate of training over that of another setting of the same run; of several settings the fastest of each."""
    for dataset in of(datasets, select):
        pair = [fastest(dataset, asked) for asked in (select, {**select, **against})]
        if all(speed is not None for speed in pair):
            yield dataset, *statistics.ratio(*pair)


def fastest(dataset, select: Mapping) -> np.ndarray | None:
    """Rates of the blocks of the setting of rates that trains fastest; None where none is selected."""
    found = learning.blocks(dataset, "rate")
    speeds = [speed for setting, speed in found if len(matching(pd.DataFrame([setting]), select))]
    return max(speeds, key=np.median, default=None)


@quantity(with_interval(typeset.significant))
def final_return(datasets, select, against):
    """Interquartile mean over seeds of the return in the original after training by the recipe; of several the lowest.

    Fewer than learning.FEW seeds are an illustration, and no answer.
    """
    return extreme(datasets, select, by_recipe, "score", "min")


def enough(run) -> pd.DataFrame:
    """Final scores of FEW seeds or more."""
    rows = learning.final(run)
    return rows[rows["seeds"] >= learning.FEW]


def by_recipe(run) -> pd.DataFrame:
    """Those of a recipe as it is."""
    rows = enough(run)
    return rows[rows["settings"].isna()]


@quantity(alone(typeset.percent))
def seeds_at_aim(datasets, select, against):
    """Share of the seeds whose return by the recipe is the accepted one or more; of several settings the smallest."""
    return extreme(datasets, select, by_recipe, "share", "min")


@quantity(alone(typeset.percent))
def seeds_at_aim_over_peer(datasets, select, against):
    """Such a share less that of another library's in the same work; of several settings the smallest."""

    def differences(run) -> pd.DataFrame:
        rows = enough(run)
        ours = rows[rows["agent"] == learning.OURS].to_dict("records")

        def difference(row) -> float:
            beside = [one for one in ours if learning.same(one, row, ["algorithm", "recipe", "settings"])]
            return beside[0]["share"] - row["share"] if beside else NAN

        return rows.assign(over=[difference(row) for row in rows.to_dict("records")])

    return extreme(datasets, select, differences, "over", "min")


@quantity(with_interval(typeset.significant))
def return_over_random(datasets, select, against):
    """Return at a training's end less that of a random policy in the same run."""
    for dataset, *figures in final_return(datasets, select, against):
        scores = learning.final(dataset)
        for score in scores.loc[scores["agent"] == learning.RANDOM, "score"]:
            yield dataset, *(figure - score for figure in figures)


def of_solves(datasets: list, select: Mapping, share: float) -> Iterator[tuple]:
    """(dataset, the seconds within which that share of the seeds was solved) of each setting with enough of them."""
    for dataset in of(datasets, select):
        for setting, rows in curves.runs(dataset.frame, "solve"):
            seconds = learning.within(rows, share)
            if len(matching(pd.DataFrame([setting]), select)) and not typeset.missing(seconds):
                yield dataset, seconds, NAN, NAN


@quantity(alone(typeset.short_time))
def nine_in_ten_solved(datasets, select, against):
    """Seconds within which nine in ten seeds were solved, of ten or more; infinite where fewer were at all."""
    yield from of_solves(datasets, select, 0.9)


@quantity(alone(typeset.short_time))
def nineteen_in_twenty_solved(datasets, select, against):
    """Seconds within which nineteen in twenty seeds were solved, of twenty or more; infinite where fewer were."""
    yield from of_solves(datasets, select, 0.95)


@quantity(out_of)
def seeds_solved(datasets, select, against):
    """Seeds that were solved; `high` is how many were trained."""
    for dataset in of(datasets, select):
        for row in matching(learning.solve(dataset), select).to_dict("records"):
            yield dataset, float(row["solved"]), NAN, float(row["seeds"])
