"""Synthetic markets (README.md, 4.1): regimes, stochastic volatility, a common factor, jumps; float64, on the host."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...checks import choice, integer
from .. import streams
from ..params import MINIMUMS
from .market import Market, require_market

BARS_PER_YEAR = 105_120  # Y, of five minutes
DAY = 288  # bars
PRICES = (170.0, 82.0, 42_000.0, 11.0, 14.0, 2_900.0, 105.0, 1.4, 9.4, 95.0)  # P0 by i mod 10, $
TURNOVER = 5e5  # $, of an average bar
CALM, NORMAL, CRASH = range(3)
TRANSITIONS = np.array([(0.9990, 0.0010, 0.0), (0.0008, 0.9988, 0.0004), (0.0, 0.0050, 0.9950)])
DRIFT, SCALE = np.array([0.6, 0.0, -6.0]), np.array([0.6, 1.0, 2.5])  # μ per year, K
SHARED, OWN = 0.55, 0.45  # shares of a return's variance
MEMORY, SHOCK = np.array([0.985, 0.95]), np.array([0.12, 0.10])  # of k and of w_i
FLIP = 1 / 500  # of a planted signal, per bar
STRENGTH = 0.1  # of a planted signal, of an average bar's deviation


class Jump(NamedTuple):
    """Jumps of the logarithm of a price."""

    rate: float  # per bar
    mean: float
    std: float

    @property
    def compensation(self) -> float:
        """rate (E[e^size] - 1)."""
        return self.rate * (math.exp(self.mean + self.std**2 / 2) - 1)


COMMON_JUMP, OWN_JUMP = Jump(2 / 2016, -0.004, 0.012), Jump(3 / 2016, 0.0, 0.010)


class Size(NamedTuple):
    """A set's size; what follows the train and validation bars is traded once."""

    bars: int  # T
    assets: int  # N
    train: int | None = None  # bars; None: all
    validation: int = 0


SETS = {
    "tiny": Size(400, 3),
    "small": Size(2_000, 10),
    "paper": Size(41_704, 10, 20_000, 5_000),
    "large": Size(525_600, 10),
    "wide": Size(25_000, 100),
}


class Path(NamedTuple):
    """Hidden numbers that bars are made of."""

    regime: np.ndarray  # [T] CALM, NORMAL or CRASH
    signal: np.ndarray | None  # [T] g
    sigma: np.ndarray  # [T, N] deviation of a bar's log return
    log_return: np.ndarray  # [T, N] r


def generate(
    name: str = "small",
    seed: int = 0,
    bars: int | None = None,
    assets: int | None = None,
    drift: str = "regimes",
    signal: str = "none",
    visible: bool = False,
    gaps: Iterable = (),
    unlisted: Iterable = (),
    frozen: Iterable = (),
    zero: Iterable = (),
) -> Market:
    """A market of five-minute bars.

    Args:
        name: of a set in `SETS`; `bars` and `assets` replace its size. More of either never change earlier values.
        seed: 0 .. 2^64-1.
        drift: "regimes", or "none" for prices without drift.
        signal: "none", or "momentum" for a planted sign that returns follow; `visible` makes it the last feature.
        gaps, unlisted, frozen, zero: lists of (asset, first bar, bars). Without trading the close is carried (P0 where
            there was none), with volume 0; frozen ones repeat it with volume; zero is a close of 0, not tradable.

    Raises:
        ValueError: names the argument, its value and what is allowed.
        MemoryError: the market does not fit.
    """
    size = SETS[choice("name", name, tuple(SETS))]
    T = size.bars if bars is None else integer("bars", bars, 1, 2**31 - 1)
    N = size.assets if assets is None else integer("assets", assets, 1, 2**31 - 2)
    seed = integer("seed", seed, 0, 2**64 - 1)
    choice("drift", drift, ("regimes", "none"))
    choice("signal", signal, ("none", "momentum"))
    choice("visible", visible, (False, True))
    if signal != "none" and drift == "none":
        raise ValueError(f"signal={signal!r} must be 'none' where drift='none'")
    if visible and signal == "none":
        raise ValueError("visible=True must be False where signal='none'")
    require_market(T, N)
    path = drawn_path(seed, T, N, drift, signal)
    columns = _columns(seed, path)
    columns["tradable"] = np.ones((T, N), bool)
    for kind, spans in (("unlisted", unlisted), ("gaps", gaps), ("frozen", frozen), ("zero", zero)):
        if not isinstance(spans, Iterable):
            raise ValueError(f"{kind}={spans!r} must be a list of (asset, first bar, bars)")
        for k, span in enumerate(spans):
            _interrupt(columns, kind, _span(f"{kind}[{k}]", span, T, N))
    places = np.arange(N) % len(PRICES)
    train = [[0, size.train]] if size.train is not None and size.train < T else None
    return Market(
        symbols=tuple(f"SYN{i:02d}" for i in range(N)),
        min_qty=np.array(list(MINIMUMS["one"].values()))[places], tick=10.0 ** -_decimals(np.array(PRICES)[places]),
        signal=path.signal, visible=visible, train=train, source=f"generated: {name}, seed {seed}",
        licence="none needed", **columns,
    )  # fmt: skip


def drawn_path(seed: int, bars: int, assets: int, drift: str = "regimes", signal: str = "none") -> Path:
    """Regimes, deviations and returns of `generate`'s market."""
    t = np.arange(bars)
    regime = _regimes(streams.unit(streams.words(seed, streams.COMMON, t, streams.REGIME)[0]))
    level, variance = _volatility(seed, t, assets)
    mean = _mean_deviation(assets)
    exponent = 0.8 * (level[:, :1] + level[:, 1:]) - 0.64 * variance.sum()
    day = 1 + 0.25 * np.sin(2 * np.pi * (t % DAY) / DAY - 1.2)
    sigma = mean * np.exp(exponent) * (SCALE[regime] * day)[:, None]
    common, jump = _returns(seed, streams.COMMON, t, COMMON_JUMP)
    r = np.empty((bars, assets))
    for i in range(assets):
        own, own_jump = _returns(seed, i + 1, t, OWN_JUMP)
        r[:, i] = sigma[:, i] * (math.sqrt(SHARED) * common + math.sqrt(OWN) * own) + jump + own_jump
    r -= sigma**2 / 2 + (COMMON_JUMP.compensation + OWN_JUMP.compensation)
    if drift == "regimes":
        r += (DRIFT[regime] / BARS_PER_YEAR)[:, None]
    sign = None
    if signal == "momentum":
        flips = streams.unit(streams.words(seed, streams.COMMON, t, streams.SIGNAL)[2]) < FLIP
        flips[0] = False
        sign = np.where(np.cumsum(flips) % 2, -1, 1).astype(np.int8)
        r += STRENGTH * mean * sign[:, None]
    r[0] = 0.0
    return Path(regime, sign, sigma, r)


def _regimes(u: np.ndarray) -> np.ndarray:
    """States [T] of a chain that begins normal; at t >= 1 u[t] picks from the row of t-1."""
    rows, found = np.cumsum(TRANSITIONS, axis=1).tolist(), np.empty(len(u), np.int64)
    state = NORMAL
    for t, draw in enumerate(u.tolist()):
        if t:
            state = next((k for k, most in enumerate(rows[state]) if most > draw), CRASH)
        found[t] = state
    return found


def _volatility(seed: int, t: np.ndarray, assets: int) -> tuple[np.ndarray, np.ndarray]:
    """Levels [T, 1 + N] of k and of w_i, stationary from the start, and the variances of k and of w."""
    blocks = [streams.words(seed, index, t, streams.VOL) for index in range(assets + 1)]
    shocks = np.stack([streams.normals(block)[0] for block in blocks], axis=1)
    which = np.minimum(np.arange(assets + 1), 1)
    memory, shock, variance = MEMORY[which], SHOCK[which], SHOCK**2 / (1 - MEMORY**2)
    level = np.sqrt(variance)[which] * shocks[0]
    found = np.empty_like(shocks)
    found[0] = level
    for step in range(1, len(t)):
        level = memory * level + shock * shocks[step]
        found[step] = level
    return found, variance


def _returns(seed: int, index: int, t: np.ndarray, jump: Jump) -> tuple[np.ndarray, np.ndarray]:
    """Normals and jumps [T] of an index."""
    normal = streams.normals(streams.words(seed, index, t, streams.RETURN))[0]
    block = streams.words(seed, index, t, streams.JUMP)
    size = jump.mean + jump.std * streams.normals(block)[0]
    return normal, np.where(streams.unit(block[2]) < jump.rate, size, 0.0)


def _mean_deviation(assets: int) -> np.ndarray:
    """Deviation of an average bar [N]."""
    return (0.55 + 0.55 * (np.arange(assets) % 10) / 9) / math.sqrt(BARS_PER_YEAR)


def _decimals(price: np.ndarray) -> np.ndarray:
    """Decimals that prices near this one are rounded to: six digits."""
    return 5 - np.floor(np.log10(price))


def _columns(seed: int, path: Path) -> dict[str, np.ndarray]:
    """Bars [T, N] of a path, rounded to ticks."""
    sigma, r = path.sigma, path.log_return
    T, N = r.shape
    t, first = np.arange(T), np.array(PRICES)[np.arange(N) % len(PRICES)]
    close = first * np.exp(np.cumsum(r, axis=0))
    opened = np.vstack([first, close[:-1]])
    spread = np.empty((2, T, N))
    volume = (TURNOVER / first) * np.sqrt(sigma / _mean_deviation(N)) * (1 + 0.5 * np.abs(r) / sigma)
    for i in range(N):
        ends = streams.normals(streams.words(seed, i + 1, t, streams.RANGE))
        spread[:, :, i] = np.exp(0.6 * sigma[:, i] * np.abs(ends))
        volume[:, i] *= np.exp(0.6 * streams.normals(streams.words(seed, i + 1, t, streams.VOLUME))[0] - 0.18)
    prices = {
        "open": opened,
        "high": np.maximum(opened, close) * spread[0],
        "low": np.minimum(opened, close) / spread[1],
        "close": close,
    }
    ticks, parts = 10.0 ** _decimals(first), 10.0 ** (6 - np.floor(np.log10(TURNOVER / first)))
    found = {name: np.maximum(np.rint(price * ticks), 1) / ticks for name, price in prices.items()}
    return found | {"volume": np.rint(volume * parts) / parts}


def _span(name: str, span, bars: int, assets: int) -> tuple[int, int, int]:
    """Asset, first bar and the bar after the last of a span."""
    try:
        asset, first, count = span
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}={span!r} must be (asset, first bar, bars)") from error
    first = integer(f"{name}: first bar", first, 0, bars - 1)
    return (
        integer(f"{name}: asset", asset, 0, assets - 1),
        first,
        first + integer(f"{name}: bars", count, 1, bars - first),
    )


def _interrupt(columns: dict[str, np.ndarray], kind: str, span: tuple[int, int, int]):
    i, first, last = span
    if kind == "zero":
        for name in ("low", "close"):
            columns[name][first:last, i] = 0.0
    else:
        carried = columns["close"][first - 1, i] if first else PRICES[i % len(PRICES)]
        for name in ("open", "high", "low", "close"):
            columns[name][first:last, i] = carried
        if kind != "frozen":
            columns["volume"][first:last, i] = 0.0
    if kind != "frozen":
        columns["tradable"][first:last, i] = False
