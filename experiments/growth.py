"""Growth with processes and nodes: the summary of weak_scaling.csv, a model of the sums, and jobs packed onto nodes.

An iteration of n processes is modelled as T(n) = compute + sums(n), each sum by a ring: 2 (n - 1) messages one after
the other, in which every process sends 2 (n - 1) / n of the bytes.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy

from lockstep.experiments.bench.statistics import summarise

TRAINING, LONE = "training", "sum"  # parts of weak_scaling.csv: whole iterations, sums by themselves
NAN = float("nan")


@dataclass(frozen=True)
class Ring:
    """The cost of sums by a ring: seconds that a message takes whatever its size, and seconds of each byte sent."""

    latency_s: float
    byte_s: float

    def seconds(self, ranks: int, calls: float, size: float) -> float:
        """Seconds of so many sums over the ranks, of `size` bytes together."""
        return 2 * (ranks - 1) * (calls * self.latency_s + size / ranks * self.byte_s)

    def through(self, gbit_per_s: float, latency_s: float) -> "Ring":
        """The same where every message also goes through a link, which adds its own time to that of the software."""
        return Ring(self.latency_s + latency_s, self.byte_s + 8e-9 / gbit_per_s)


def ring_of(ranks: int, sizes: Iterable[float], seconds: Iterable[float]) -> Ring:
    """The ring whose sums over the ranks come nearest to measured ones, by squares of relative errors.

    sizes: bytes of each sum, two different ones at least.
    """
    sizes, seconds = (np.asarray(list(values), dtype=float) for values in (sizes, seconds))
    cost = 2 * (ranks - 1) * np.stack([np.ones_like(sizes), sizes / ranks], axis=1)
    scale = cost.mean(axis=0)  # so that neither column is tiny
    found, _ = scipy.optimize.nnls(cost / scale / seconds[:, None], np.ones_like(seconds))
    return Ring(*(float(value) for value in found / scale))


@dataclass(frozen=True)
class Model:
    """The seconds of an iteration of any number of ranks, each with a core of its own and the same work.

    compute_s: of one rank, without sums. calls, size: sums of an iteration, and their bytes together.
    """

    compute_s: float
    calls: float
    size: float
    ring: Ring

    def iteration_s(self, ranks: int, link: Mapping | None = None) -> float:
        """Seconds of an iteration; link: gbit_per_s and latency_s between any two ranks, None through the loopback."""
        ring = self.ring if link is None else self.ring.through(**link)
        return self.compute_s + ring.seconds(ranks, self.calls, self.size)


def model_of(frame: pd.DataFrame) -> Model | None:
    """The model of a run; None where one rank, or sums over ranks that each had a core, are not among its rows."""
    alone = sums(frame)
    alone = alone[alone["ranks"] <= alone["cores"]]
    found = summary(frame).set_index("ranks")
    if alone.empty or 1 not in found.index or alone["ranks"].min() not in found.index:
        return None
    ranks = alone["ranks"].min()
    alone, several = alone[alone["ranks"] == ranks], found.loc[ranks]
    ring = ring_of(ranks, alone["size"], alone["seconds"])
    return Model(found.loc[1, "iteration_s"], several["calls"], several["bytes"], ring)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per number of ranks of weak_scaling.csv, fewest first; medians over blocks.

    rate, rate_low, rate_high: environment steps per second of all ranks, with the 95 % interval. Of an iteration:
    env_steps of all ranks, iteration_s; of a rank on average cpu_s and sum_s, the seconds spent in sums, waiting for
    others included; calls and bytes of its sums; lone_s, what as many take by themselves; NaN without sums. efficiency:
    iteration_s of one rank over iteration_s. cpu_efficiency: likewise of cpu_s, what remains with a core for every
    rank if none waits. crowded: there are more ranks than cores.
    """
    rows = []
    lone = sums(frame)
    for (ranks, cores), part in frame[frame["part"] == TRAINING].groupby(["ranks", "cores"]):
        whole = ["iterations", "env_steps", "wall_s", "calls", "bytes"]  # the same in every rank
        blocks = part.groupby("block")[[*whole, "cpu_s", "sum_s"]].mean()
        each = blocks.div(blocks["iterations"], axis=0).median()
        rate = summarise(blocks["env_steps"] / blocks["wall_s"])
        alone = lone[lone["ranks"] == ranks]
        lone_s = (alone["per_iteration"] * alone["seconds"]).sum() if len(alone) else NAN
        rows.append(
            {"ranks": ranks, "cores": cores, "crowded": ranks > cores, "num_envs": part["num_envs"].iloc[0]}
            | {"rate": rate.median, "rate_low": rate.low, "rate_high": rate.high}
            | {"iteration_s": each["wall_s"], "sum_s": each["sum_s"] if each["calls"] else NAN, "lone_s": lone_s}
            | {name: each[name] for name in ("env_steps", "calls", "bytes", "cpu_s")}
        )
    columns = ["ranks", "cores", "crowded", "num_envs", "rate", "rate_low", "rate_high", "iteration_s", "sum_s"]
    found = pd.DataFrame(rows, columns=[*columns, "lone_s", "env_steps", "calls", "bytes", "cpu_s"])
    one = found[found["ranks"] == 1]
    for name, of in (("efficiency", "iteration_s"), ("cpu_efficiency", "cpu_s")):
        found[name] = (one[of].iloc[0] if len(one) else NAN) / found[of]
    return found


def sums(frame: pd.DataFrame) -> pd.DataFrame:
    """Sums that were timed by themselves: ranks, cores, size in bytes, per_iteration, and seconds, a median."""
    lone = frame[frame["part"] == LONE]
    lone = lone.assign(size=lone["bytes"] / lone["calls"], seconds=lone["wall_s"] / lone["calls"])
    keys = ["ranks", "cores", "size", "per_iteration"]
    return lone.groupby(keys, as_index=False)["seconds"].median()


def packed_s(jobs: Iterable[float], nodes: int) -> float:
    """Seconds until all jobs are done where each node takes the longest that is left once it is free."""
    busy_until = [0.0] * nodes
    for seconds in sorted(jobs, reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + seconds)
    return max(busy_until)
