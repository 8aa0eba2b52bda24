"""Rules without learning: log gain over the fair holder, Sharpe ratio, drawdown, turnover, fees; and equity curves.

Roll-outs of the port play all rules on all markets at once, from the first bar after those that a set keeps for
training and validation to the last. Axes: T steps of an episode, R rules, S seeds, N assets.
"""

import copy
import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from lockstep import envs
from lockstep.envs.crypto_trading.scenario import SETS, Market, generate
from lockstep.envs.crypto_trading.scenario.market import BARS
from lockstep.envs.kernels import compile
from lockstep.experiments import experiment, originals
from lockstep.experiments.config import Settings
from lockstep.experiments.crypto_trading.measures import BAND, drawdown, sharpe
from lockstep.experiments.experiment import Experiment, Plan, Request, by_label, each

COLUMNS = [
    *("environment", "level", "set", "market", "hold_limit", "rule", "seed", "bars", "gain", "growth"),
    *("sharpe", "holder_sharpe", "drawdown", "turnover", "fees", "invested"),
    *("bar", "value", "benchmark", "over_low", "over", "over_high"),
]
# Rows of a level fill its own columns. episode: one each; growth: ln(V_T/C), gain: that less the fair holder's; Sharpe
# ratios a year; turnover: traded money over the mean value, a year; fees: share of C; invested: share of bars with more
# than INVESTED of the value in assets. curve: at a bar, value and benchmark ($) with the first seed, and V/E with all
# seeds: median and BAND.
INVESTED = 0.01
MANY = 8  # seeds from which it is worth it to start processes
PIECE = 500  # steps of a roll-out, which keeps more of each than is needed of it
TILE = 64  # environments: kernels are compiled for a number of them, which then all kinds of markets share


@dataclass(frozen=True)
class Group(experiment.Group):
    """Rows that are measured and journalled in one piece: all rules and seeds."""

    market: str
    hold_limit: int  # bars; 0: no forced trim


class Job(NamedTuple):
    """A market of one seed."""

    set: str
    options: dict  # of `generate`
    seed: int


class Episode(NamedTuple):
    """An account bar by bar, [1 + T], the first before the first step; [T] of steps."""

    value: np.ndarray  # $
    benchmark: np.ndarray  # $, of the fair holder
    idle: np.ndarray  # share of cash; without the last bar of an account that fell below the floor
    fees: np.ndarray  # [T] $
    notional: np.ndarray  # [T] $, bought and sold


def groups(settings: Settings) -> list[Group]:
    asked = settings.baselines
    return [Group(market, limit) for market in asked.markets for limit in asked.hold_limits]


def measure(name: str, group: Group, settings: Settings) -> list[dict]:
    """The rows of a group."""
    asked = settings.baselines
    markets = drawn(asked.set, asked.seeds, tuple(asked.markets[group.market].plain().items()))
    rules = [rule for rule in asked.rules if rule != "reference" or markets[0].signal is not None]
    same = dict.fromkeys(COLUMNS) | {"environment": name, "set": asked.set, **vars(group)}
    rows = []
    for rule, every in play(name, markets, rules, group.hold_limit).items():
        for seed, episode in enumerate(every):
            place = {"level": "episode", "rule": rule, "seed": seed}
            rows.append(same | place | told(episode, markets[seed].bars_per_year))
        if group.hold_limit == asked.hold_limits[0]:
            rows += [same | {"level": "curve", "rule": rule} | point for point in curve(every, asked.points)]
    return rows


@functools.lru_cache(maxsize=1)  # groups that differ in the hold limit alone follow one another
def drawn(name: str, seeds: int, options: tuple) -> list[Market]:
    """A market of a set for each seed; options: of `generate`, by name."""
    jobs = [Job(name, dict(options), seed) for seed in range(seeds)]
    parallel = len(jobs) >= MANY and originals.cores() > 1
    return list(originals.workers().imap(of_seed, jobs) if parallel else map(of_seed, jobs))


def of_seed(job: Job) -> Market:
    """The bars that a job's market keeps for neither training nor validation."""
    size, market = SETS[job.set], generate(job.set, job.seed, **job.options)
    return copy.deepcopy(market.rows((size.train or 0) + size.validation, market.bars))  # no view that keeps all bars


def joined(markets: Sequence[Market]) -> Market:
    """One market with the bars of several, a segment each, and without features, which no rule reads."""
    names = [*BARS, "tradable", *(["signal"] if markets[0].signal is not None else [])]
    bars = {name: np.concatenate([getattr(market, name) for market in markets]) for name in names}
    ends = np.cumsum([market.bars for market in markets])
    none = {"features": np.zeros((ends[-1], 1)), "feature_names": ("none",), "mean": [0.0], "std": [1.0]}
    segments = np.column_stack([np.append(0, ends[:-1]), ends])
    return dataclasses.replace(markets[0], **bars, **none, segments=segments, train=None, timestamp=None, visible=False)


def play(name: str, markets: Sequence[Market], rules: Sequence[str], hold_limit: int) -> dict[str, list[Episode]]:
    """Episodes [S] of each rule on markets of as many bars.

    A reward is ln(V'/V) - ln(E'/E), so that an account in cash, which is played beside the rules, is rewarded with what
    the holder loses. Observations have the shares of cash and assets; what the prices' moves of these leave of V' - V
    are fees.
    """
    lanes = ["cash", *(rule for rule in rules if rule != "cash")]
    shape = len(lanes), len(markets)
    ordered = ["none" if rule == "random" else rule for rule in lanes for _ in markets]  # a roll-out's own actions
    filled = ordered + ["cash"] * (-len(ordered) % TILE)
    options = {"hold_limit": hold_limit, "observe": "index", "dtype": "float64"}
    pieces = []
    with compile.sooner():
        env = envs.make(name, len(filled), scenario=joined(markets), rule=filled, **options)
        env.reset(seed=0)
        T, N, params = env.max_episode_steps, env.market.assets, env.params
        close = np.stack([market.close for market in markets], axis=1)  # [1 + T, S, N]
        for first in range(0, T, PIECE):
            rows = env.rollout(min(PIECE, T - first), store="trajectory")
            seen, gain, *over = (
                rows[key][:, : len(ordered)].numpy() for key in ("obs", "reward", "terminated", "truncated")
            )
            seen, price = seen.reshape(-1, *shape, seen.shape[-1]), close[first : first + len(seen) + 1]
            moved = np.einsum("krsn,ksn->krs", seen[..., 1 : 1 + N], price[1:] / price[:-1] - 1)
            piece = seen[..., 0], gain.reshape(-1, *shape), moved, (over[0] | over[1]).reshape(-1, *shape)
            pieces.append([part.astype(float) for part in piece])
    idle, gain, moved, over = (np.concatenate(parts) for parts in zip(*pieces, strict=True))  # [T, R, S]
    idle = np.concatenate([idle, env.state()["final_obs"][: len(ordered), 0].numpy().reshape(1, *shape)])

    def episode(r: int, s: int) -> Episode:
        steps = 1 + int(over[:, r, s].argmax())
        holder = -gain[:steps, 0, s]
        value, benchmark = (
            params.capital * np.exp(np.append(0.0, np.cumsum(growth)))
            for growth in (gain[:steps, r, s] + holder, holder)
        )
        fees = value[:-1] * moved[:steps, r, s] - np.diff(value)
        known = steps + (steps == T)
        return Episode(value, benchmark, idle[:known, r, s], fees, fees / params.fee_buy)  # a sale costs the same

    return {rule: [episode(lanes.index(rule), s) for s in range(len(markets))] for rule in rules}


def told(episode: Episode, bars_per_year: float) -> dict[str, float]:
    """Columns of an episode."""
    value, benchmark = episode.value, episode.benchmark
    growth, steps = math.log(value[-1] / value[0]), len(value) - 1
    return {
        "bars": steps,
        "growth": growth,
        "gain": growth - math.log(benchmark[-1] / benchmark[0]),
        "sharpe": sharpe(value, bars_per_year),
        "holder_sharpe": sharpe(benchmark, bars_per_year),
        "drawdown": drawdown(value),
        "turnover": float(episode.notional.sum() / value.mean() * bars_per_year / steps),
        "fees": float(episode.fees.sum() / value[0]),
        "invested": float((episode.idle[1:] < 1 - INVESTED).mean()),
    }


def curve(every: Sequence[Episode], points: int) -> Iterator[dict[str, float]]:
    """Rows of a rule's episodes with all seeds at so many bars of the shortest, from the first to the last."""
    T = min(len(episode.value) for episode in every) - 1
    bars = np.unique(np.linspace(0, T, min(points, T + 1)).round().astype(int))
    over = np.stack([episode.value[bars] / episode.benchmark[bars] for episode in every])  # [S, points]
    money = np.round([every[0].value[bars], every[0].benchmark[bars]], 2)
    shares = np.round(np.quantile(over, BAND, axis=0), 6)
    for bar, *numbers in zip(bars.tolist(), *money.tolist(), *shares.tolist(), strict=True):
        yield {"bar": bar} | dict(zip(COLUMNS[-5:], numbers, strict=True))


def report(frame: pd.DataFrame, *_) -> str:
    """Means over seeds, as lines to print."""
    shown = ["gain", "growth", "sharpe", "drawdown", "turnover", "fees"]
    lines = [f"{'':40}" + "".join(f"{name:>10}" for name in shown)]
    episodes = frame[frame["level"] == "episode"]
    for (market, limit, rule), rows in episodes.groupby(["market", "hold_limit", "rule"], sort=False):
        means = rows[shown].astype(float).mean()
        lines.append(f"{f'{market} hold_limit={limit} {rule}':40}" + "".join(f"{mean:10.3f}" for mean in means))
    return "\n".join(lines)


def plan(request: Request) -> Plan:
    name, settings = request.environment, request.settings
    originals.allot(request.options.cores)
    todo = by_label(groups(settings))
    return Plan(todo, each(lambda group: measure(name, group, settings)), config=request.asked())


EXPERIMENT = Experiment(COLUMNS, plan, report, timed=False, gpu=False)
