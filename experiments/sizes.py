"""Summary of scaling.csv: rates, memory, resets and ratios, one row per cell; it needs no torch."""

import pandas as pd

from lockstep.experiments.bench.statistics import summarise, with_rates
from lockstep.experiments.config import Settings
from lockstep.experiments.experiment import MEASURED

HORIZON = "horizon"  # the column of what a port declares under this name: steps of an episode, at most
MEMORY = ["bytes_per_env", "bytes_per_scenario", "memory_mib"]
COLUMNS = [  # of every environment; its own follow the device
    *("environment", "rung", "device", "num_envs", "threads", "dtype", *MEMORY),
    *("block", "steps", "wall_s", "cpu_s", "first_call_s", "status", "reason"),
]


def of_port(scaling: Settings) -> set[str]:
    """The options that no original has."""
    return {option for sweep in scaling.sweeps for own in sweep.get("port_options", ()) for option in own}


def summary(frame: pd.DataFrame, scaling: Settings) -> pd.DataFrame:
    """One row per cell, in the order of the rows; scaling: the section of the settings.

    Columns: rung, device, the environment's own, num_envs, threads; bytes_per_env, bytes_per_scenario, memory_mib,
    reason. Of what was measured besides: rate, rate_low, rate_high (median steps per second and its 95 % interval),
    cpu_rate (per CPU-second), step_s (seconds of a step of one environment), counted_rate (rate times what sizes grow
    by), ratio to the original of the same size, and reset_s: of a horizon of 1, where each step contains a reset, its
    step_s less that of the same cell with whole episodes.
    """
    own = [column for column in frame if column not in COLUMNS]
    keys = ["rung", "device", *own, "num_envs", "threads"]
    rows = []
    for key, part in with_rates(frame).groupby(keys, sort=False, dropna=False):
        row = dict(zip(keys, key, strict=True)) | part.iloc[0][[*MEMORY, "reason"]].to_dict()
        if (part["status"] == MEASURED).all():
            rate = summarise(part["rate"])
            row |= {"rate": rate.median, "rate_low": rate.low, "rate_high": rate.high, "step_s": 1 / rate.median}
            row |= {"cpu_rate": part["cpu_rate"].median(), "counted_rate": rate.median * row[scaling.over]}
        rows.append(row)
    measured = ["rate", "rate_low", "rate_high", "cpu_rate", "step_s", "counted_rate"]
    found = pd.DataFrame(rows, columns=[*keys, *MEMORY, "reason", *measured]).astype(dict.fromkeys(MEMORY, float))
    size = [column for column in own if column not in of_port(scaling)]
    found["ratio"] = found["rate"] / beside(found, found[found["rung"] == "original"], size, "rate")
    whole = found[found[HORIZON] > 1] if HORIZON in own else found[:0]
    same = [key for key in keys if key != HORIZON]
    found["reset_s"] = found["step_s"] - beside(found, whole, same, "step_s")
    found.loc[found.get(HORIZON, pd.Series(0, found.index)) != 1, "reset_s"] = float("nan")
    return found


def beside(found: pd.DataFrame, others: pd.DataFrame, keys: list[str], name: str) -> pd.Series:
    """For each row the figure of the first of the others that has the same keys, else NaN."""
    known = others.drop_duplicates(keys)[[*keys, name]]
    return found[keys].merge(known, "left", keys)[name].set_axis(found.index).astype(float)
