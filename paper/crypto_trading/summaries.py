"""Rules of baselines.csv in words and colours, and means over their episodes."""

import numpy as np
import pandas as pd

from lockstep import paper
from lockstep.experiments.bench.statistics import resampled
from lockstep.paper import quantities
from lockstep.paper.typeset import signed

RULES = {  # label, colour, line and its width, in the order of drawing; what lies on one line is seen all the same
    "hold": ("hold", "#56B4E9", "-", 2.6),
    "equal_weight": ("equal weight, rebalanced", "#009E73", "--", 1.2),
    "random": ("random", "#CC79A7", "-", 1.1),
    "cash": ("cash", "#8a8a8a", "-", 1.1),
    "reference": ("reference, sees the planted sign", "#D55E00", "-", 1.1),
}
SETTING = ["set", "market", "hold_limit", "rule"]
MEANS = ["growth", "sharpe", "holder_sharpe", "drawdown", "turnover", "fees", "invested"]
FEW = 5  # seeds, below which a mean has no interval
RESAMPLES = 10_000


def newest(datasets: list) -> list:
    """The one run to show, here or else recorded: what a rule reaches does not depend on the machine."""
    return quantities.of(datasets, {"experiment": "baselines"})[:1]


def look(rule: str) -> tuple[str, str, str, float]:
    """Label, colour, line and width of a rule; an unknown one in grey under its own name."""
    return RULES.get(rule, (rule.replace("_", " "), "#777777", "-", 1.1))


def order(rule: str) -> int:
    """Place of a rule; unknown ones last."""
    return list(RULES).index(rule) if rule in RULES else len(RULES)


def logarithm(value: float) -> str:
    """A gain, three decimals."""
    return signed(value, 3, plus="")


@paper.once
def played(run) -> pd.DataFrame:
    """One row per setting, in the order of playing: means over seeds, `seeds`, and `gain` with a bootstrap interval."""
    rows = []
    episodes = run.frame[run.frame["level"] == "episode"]
    for key, part in episodes.groupby(SETTING, sort=False):
        gains = part["gain"].to_numpy(dtype=float)
        interval = resampled(np.mean, gains, draws=RESAMPLES) if len(gains) >= FEW else (np.nan, np.nan)
        row = dict(zip(SETTING, key, strict=True)) | {"seeds": len(part)} | part[MEANS].astype(float).mean().to_dict()
        rows.append(row | dict(zip(("gain", "gain_low", "gain_high"), (gains.mean(), *interval), strict=True)))
    found = pd.DataFrame(rows, columns=[*SETTING, "seeds", "gain", "gain_low", "gain_high", *MEANS])
    return found.assign(environment=run.provenance["environment"])
