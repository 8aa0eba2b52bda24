"""Crypto trading as a port: a batch of accounts on one market, an environment to a thread."""

import dataclasses
import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from gymnasium.spaces import Box

from ..batch import Field, Port, World
from ..checks import choice
from . import kernel_tables
from .batch import Accounts
from .features import prepared
from .layout import state_shapes
from .original.environment import market_of
from .params import PRESETS, Params
from .scenario import Market
from .tables import check

METRICS = dict.fromkeys(("value", "benchmark", "fees", "turnover"), 1)  # $, $, $, share of V
WHOLE = ("age", "first", "last")
DOUBLES = ("cash", "value", "benchmark", "running")
REALS = ("holdings", "benchmark_units", "average", "peak")


@dataclasses.dataclass(frozen=True)
class Sized(Params):
    """Parameters, and what they are of a market: set by the batch."""

    assets: int = 10  # N
    columns: int = 70  # F
    bars: int = 2_000  # of the longest window
    rows: int = 2_000  # T, of the market
    indexed: bool = False  # observations end with the bar in place of its features


SIZES = ("assets", "columns", "bars", "rows", "indexed")


def state(params: Sized) -> tuple[Field, ...]:
    """Fields of the state, in the order of layout.cuh; those that no step reads are left out."""
    left_out = [] if params.stop else ["peak"]
    left_out += [] if params.terminal_sum else ["running"]
    left_out += ["average"] if params.published else []
    shapes = state_shapes(params, params.assets)
    kinds = dict.fromkeys(REALS, "real") | dict.fromkeys(DOUBLES, "float64") | dict.fromkeys(WHOLE, "int32")
    low = -np.inf if params.parallel_budget else -1e-6 * params.capital  # by the rounding of a purchase that takes all
    limits = {"running": (-np.inf, np.inf), "cash": (low, np.inf), "value": (low, np.inf)}
    limits |= {"first": (0, params.rows - 1), "last": (1, params.rows)}
    return tuple(
        Field(name, shapes[name][0], kind, *limits.get(name, (0, np.inf)))
        for name, kind in kinds.items()
        if name not in left_out
    )


def observation(params: Sized) -> Box:
    size = params.observed(params.assets, 0) + 1 if params.indexed else params.observed(params.assets, params.columns)
    return Box(-np.inf, np.inf, (size,), np.float32)


def horizon(params: Sized) -> int:
    """Steps of the longest episode; of published rules, whose last step terminates, one more: none is truncated."""
    return params.steps(params.bars) + params.published


def action(params: Sized) -> Box:
    return Box(-1.0, 1.0, (params.assets,), np.float32)


def world(
    port: Port,
    preset: str | None,
    params: Mapping,
    scenario: Market | Sequence[Market] | str | Path | None = None,
    window: Sequence | np.ndarray | None = None,
    per_lane: Mapping[str, np.ndarray] | None = None,
    observe: str = "whole",
    market: str = "given",
    scenario_seed: int = 0,
    rule: str | Sequence[str] = "none",
    replay: np.ndarray | None = None,
    horizon: int = 0,
) -> World:
    """The market that a batch trades on.

    Args:
        preset: "clean" (default), "finrl-crypto" or "cappuccino".
        params: single parameters.
        scenario: a `Market`, or a list of one; None for the generated set "small"; or the path of a table of bars.
            Features are computed where it has none.
        window: [s, e) in bars of the market, that every episode plays in place of its segments, or [B, 2], one for each
            environment.
        per_lane: numbers [B] of each environment in place of parameters, by name: fee_buy, fee_sell, slippage,
            spending, order_share; with rules="clean".
        observe: "whole", or "index" for the account and the bar in place of its features.
        market: "given", or "bootstrap" for one of as many bars in blocks of its returns (`scenario.bootstrap`).
        scenario_seed: of these blocks.
        rule: one of `ruled.NAMES`, or one for each environment; its orders stand for the actions. "none" has none.
        replay: actions [K, N], or [B, K, N] of each environment, in place of those that a step is given; every episode
            begins with the first. K is at least an episode's steps.
        horizon: steps of an agent's iteration, for whose rows num_envs="auto" leaves memory (`batch.fitting`).

    Raises:
        ValueError: naming the argument, its value and what is allowed.
    """
    choice("observe", observe, ("whole", "index"))
    for name in SIZES:
        if name in params:
            raise ValueError(f"{name}={params[name]!r} must be left out: it follows from scenario and observe")
    asked = port.make_params(preset, params)
    if asked.write_back:
        raise ValueError("write_back=True must be False here: a batch does not write to the actions it is given")
    found = prepared(market_of(scenario, market, scenario_seed), asked)
    lanes = kernel_tables.lanes_of(asked, found, per_lane)
    rules = kernel_tables.rules_of(found, rule)
    windows = None if window is None else kernel_tables.windows_of(asked, found, window)
    words = check(asked, found) if windows is None else ""
    longest = np.diff(found.segments if windows is None else windows).max()
    bars = asked.episode_window if asked.starts == "random" else int(longest)
    replayed = kernel_tables.replay_of(asked, found, bars, replay)
    if replayed is not None and rules.any():
        raise ValueError("replay must be None where a rule orders: either stands for the actions")
    sizes = {"assets": found.assets, "columns": found.features.shape[1], "rows": found.bars}
    sizes |= {"indexed": observe == "index", "bars": bars}
    chosen = dataclasses.replace(asked, **sizes)
    if words:
        warnings.warn(words, stacklevel=2)
    return World(
        chosen,
        tables=lambda dtype, num_envs: kernel_tables.tables(chosen, found, windows, lanes, rules, replayed, num_envs),
        defines=defines(chosen, found, windows is None, lanes, rules, replayed),
        metrics=METRICS,
        shown={"market": found},
    )


def defines(
    params: Sized,
    market: Market,
    in_turn: bool,
    lanes: Mapping[str, np.ndarray],
    rules: np.ndarray,
    replay: np.ndarray | None,
) -> dict[str, object]:
    """Compile-time choices besides the parameters, and those that count in double in every batch."""
    exact = {
        spec.name.upper(): repr(getattr(params, spec.name)) for spec in dataclasses.fields(params) if spec.type is float
    }
    return exact | {
        "PUBLISHED": int(params.published),
        "FLOAT32": int(params.float32_holdings),
        "INDEXED": int(params.indexed),
        "TAIL": 0 if params.indexed else params.lookback * params.columns,
        "WINDOW": params.episode_window,
        "SEGMENTS": len(market.segments),
        "WINDOWS_IN_TURN": int(in_turn),
        "PER_LANE": int(bool(lanes)),
        "RULED": int(rules.any()),
        "REPLAYED": 0 if replay is None else replay.shape[1],
        "REPLAYED_EACH": int(replay is not None and len(replay) > 1),
        "LOTS": int(not params.published and bool((market.qty_step > 0).any())),
        "SLIPS": int(params.slippage > 0 or params.impact > 0 or bool(lanes.get("slippage", np.zeros(1)).any())),
    }


def builds(port: Port) -> Iterator[tuple[str, str, str, World, bool]]:
    """Units to compile for a check: mode, dtype, preset or another word, world, and whether a trace is kept."""

    def one(preset: str, **options) -> World:
        return port.world(port, preset, {}, **options)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for preset, dtype in itertools.product(PRESETS, ("float32", "float64")):
            yield "SameStep", dtype, preset, one(preset), False
        for preset in ("clean", "cappuccino"):
            yield "SameStep", "float64", f"{preset} ruled", one(preset, rule="equal_weight"), False
    for mode in ("NextStep", "Disabled"):
        yield mode, "float32", "clean", one("clean"), False


PORT = Port(
    title="Crypto trading",
    params=Sized,
    presets=PRESETS,
    default_preset="clean",
    state=state,
    observation=observation,
    action=action,
    horizon=horizon,
    world=world,
    metrics=METRICS,
    batched=Accounts,
    builds=builds,
)
