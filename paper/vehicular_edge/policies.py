"""Policies of offloading in words and colours, and means over their episodes."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from lockstep import paper
from lockstep.experiments.bench.statistics import resampled
from lockstep.paper import quantities
from lockstep.paper.figures import Axes, Figure, grid, label_status

POLICIES = {  # in their order: label, colour, marker
    "local": ("local", "#8a8a8a", "s"),
    "nearest_edge": ("nearest edge", "#A6761D", "v"),
    "random": ("random", "#CC79A7", "x"),
    "rounding": ("randomised rounding", "#AA3377", "+"),
    "greedy": ("greedy", "#E69F00", "^"),
    "random_turns": ("random under PPO's masks", "#6A51A3", "1"),
    "drift_plus_penalty": ("drift plus penalty", "#0072B2", "o"),
    "backpressure": ("backpressure", "#009E73", "D"),
    "ppo": ("PPO", "#D55E00", "P"),
    "ppo_mean": ("PPO, likeliest action", "#AA4422", "p"),
    "mappo": ("MAPPO", "#56B4E9", "<"),
    "mappo_mean": ("MAPPO, likeliest action", "#3388BB", ">"),
}
TRAINED = {"one": "one scenario", "many": "many scenarios"}
SETTING = ["form", "device", "traffic", "policy", "trained_on", "penalty_weight"]
MEANS = ("return", "earlier_return", "cost", "success", "on_time", "energy_j", "jain")
DELAYS = ["delay_p50_s", "delay_p95_s"]
FEW = 5  # units, below which a mean has no interval
RESAMPLES = 10_000


def newest(datasets: list) -> list:
    """The one run to show, here or else recorded: what a policy reaches does not depend on the machine."""
    return quantities.of(datasets, {"experiment": "offloading"})[:1]


def order(name: str) -> int:
    """Place of a policy; unknown ones last."""
    return list(POLICIES).index(name) if name in POLICIES else len(POLICIES)


def look(name: str) -> tuple[str, str, str]:
    """Label, colour and marker of a policy; an unknown one in grey under its own name."""
    return POLICIES.get(name, (name.replace("_", " "), "#777777", "X"))


def named(policy: str, trained_on: object) -> str:
    """A policy in words, an agent with what it was trained on."""
    return look(policy)[0] + (f", trained on {TRAINED[trained_on]}" if trained_on in TRAINED else "")


def maps(frame: pd.DataFrame) -> list[str]:
    """The maps of a run, in the order in which they were played."""
    return list(dict.fromkeys(frame["traffic"]))


def of_policies(frame: pd.DataFrame, level: str, traffic: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """(policy, rows) of a level on a map: the original at the plain penalty weight, no agent of one scenario."""
    rows = frame[(frame["level"] == level) & (frame["traffic"] == traffic) & (frame["form"] == "original")]
    rows = rows[(rows["penalty_weight"] == 1.0) & (rows["trained_on"] != "one")]
    yield from sorted(rows.groupby("policy"), key=lambda item: order(item[0]))


@paper.once
def summary(run) -> pd.DataFrame:
    """One row per setting, map by map and policy by policy: means of MEANS over episodes with bootstrap intervals.

    Columns: the setting's, `seen` (an agent on scenarios it was trained on), episodes, and each mean with _low and
    _high. Episodes of one seed of an agent count as one unit; below FEW units there is no interval. Of DELAYS,
    of all admitted tasks, it is the median over episodes, since an episode's percentile may be infinite.
    """
    frame = run.frame
    of_all = frame[(frame["level"] == "route") & (frame["route"] == "all")]
    keys = [*SETTING, "seen", "seed", "scenario"]
    lacking = [name for name in MEANS if name not in frame]  # of an older run
    rows = frame[frame["level"] == "episode"].drop(columns=DELAYS).assign(**dict.fromkeys(lacking, np.nan))
    rows = rows.merge(of_all[[*keys, *DELAYS]].drop_duplicates(keys), on=keys, how="left")
    found = []
    for key, part in rows.groupby([*SETTING, "seen"], dropna=False, sort=False):
        row = dict(zip([*SETTING, "seen"], key, strict=True)) | {"episodes": len(part)}
        units = part.groupby("seed" if row["trained_on"] in TRAINED else part.index)
        for name in MEANS:
            row[name], row[f"{name}_low"], row[f"{name}_high"] = mean(units[name].mean().astype(float).to_numpy())
        for name in DELAYS:
            row[name] = part[name].astype(float).quantile(0.5, "lower")
        found.append(row)
    found = pd.DataFrame(found)
    places = {name: place for place, name in enumerate(maps(frame))}
    keys = found["traffic"].map(places) * 100 + found["policy"].map(order)
    return found.loc[keys.sort_values(kind="stable").index]


def mean(values: np.ndarray) -> tuple[float, float, float]:
    """The mean and its 95 % percentile bootstrap interval, NaN of fewer than FEW values."""
    if len(values) < FEW:
        return float(values.mean()), np.nan, np.nan
    return float(values.mean()), *resampled(np.mean, values, draws=RESAMPLES)


def by_map(datasets: list, height: float) -> tuple[Figure, list[tuple[Axes, object, str]]]:
    """A panel per map of the one run of offloading that is shown, each with the run and the map."""
    runs = newest(datasets)
    names = maps(runs[0].frame) if runs else []
    figure, axes = grid(names, height)
    for panel in axes:
        label_status(panel, runs[0])
    return figure, [(panel, runs[0], name) for panel, name in zip(axes, names, strict=True)]
