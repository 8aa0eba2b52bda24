"""Host tables that every form reads: minimums, fees, order scale, features as observed, windows (README.md, 2)."""

import math

import numpy as np

from ..checks import integer
from . import streams
from .params import MINIMUMS, Params
from .scenario.market import Market

CLIP = 10.0  # of standardised features
QUOTES = ("FDUSD", "BUSD", "TUSD", "USDT", "USDC", "USD", "EUR", "BTC")  # longer ones first


def base_asset(symbol: str) -> str:
    """The asset that a symbol trades: BTC of "BTC/USD", "BTC-USD", "BTCUSDT" and "BTC"."""
    head, separator, _ = symbol.upper().replace("-", "/").partition("/")
    if separator:
        return head
    return next((head.removesuffix(quote) for quote in QUOTES if head.endswith(quote) and head != quote), head)


def minimums(params: Params, market: Market) -> np.ndarray:
    """q' [N], units that an order has to exceed, float64: `min_margin` times the table of a published rule set by base
    asset, else the market's `min_qty`."""
    table = MINIMUMS.get(params.rules, {})
    q = [table.get(base_asset(symbol), q) for symbol, q in zip(market.symbols, market.min_qty.tolist(), strict=True)]
    return params.min_margin * np.array(q)


def fees(params: Params, market: Market) -> tuple[np.ndarray, np.ndarray]:
    """f_b and f_s [N], shares: in `clean` a market's own where it has any, else those of the parameters."""
    found = []
    for name in ("fee_buy", "fee_sell"):
        own, general = getattr(market, name), getattr(params, name)
        found.append(np.full(market.assets, general) if params.published else np.where(np.isnan(own), general, own))
    return found[0], found[1]


def scaled(params: Params) -> bool:
    """True where orders are an action times `order_scale`."""
    return params.published or params.orders == "units"


def order_scale(params: Params, price: np.ndarray) -> np.ndarray:
    """s, units per action unit, of windows that begin with these prices ($, any shape).

    Float64; rule two with `float32_holdings` rounds to float32 and is returned so. Where no price is, NaN.
    """
    price = np.asarray(price, np.float64)
    if params.rules == "two":
        with np.errstate(divide="ignore"):
            scale = np.where(price > 0, params.capital / (price * params.norm_action), np.nan)
        return scale.astype(np.float32) if params.float32_holdings else scale
    exponent = _quotient if params.log_quotient else _decade
    powers = [10.0 ** exponent(p) if p > 0 else math.nan for p in price.ravel().tolist()]
    return 1.0 / np.array(powers).reshape(price.shape) * params.norm_action


def _quotient(price: float) -> int:
    return math.floor(math.log(price) / math.log(10))


def _decade(price: float) -> int:
    """Floor of log10, exactly: the exponent of 18 decimal digits, more than a float64 can come near a power of ten."""
    return int(f"{price:.17e}".partition("e")[2])


def observed(params: Params, market: Market) -> np.ndarray:
    """Features as an observation has them [T, F] float32; 0 where not defined.

    Published rules: X norm_tech. `clean`: Z = clip((X - mean) / std, -10, 10), computed in float64.
    """
    X = market.features.astype(np.float64)
    if not params.published:
        X = np.clip((X - market.mean) / market.std, -CLIP, CLIP)
    else:
        X *= params.norm_tech
    return np.nan_to_num(X, nan=0.0).astype(np.float32)


def admissible(params: Params, market: Market) -> np.ndarray:
    """First places of episodes by segment [S]: max(0, bars of the segment - bars of a window + 1)."""
    lengths = np.diff(market.segments, axis=1)[:, 0]
    return np.maximum(0, lengths - params.episode_window + 1)


def window(params: Params, market: Market, seed: int, index: int, episode: int) -> tuple[int, int]:
    """The window [s, e) of an episode of an environment, in bars of the market.

    `full`: segment (index + episode) mod S. `random`: place (r M) >> 32 of all M admissible ones, segment by segment.
    """
    if params.starts == "full":
        first, last = market.segments[(index + episode) % len(market.segments)].tolist()
        return first, last
    counts = admissible(params, market)
    place = streams.start_place(seed, index, episode, int(counts.sum()))
    segment = int(np.searchsorted(np.cumsum(counts), place, side="right"))
    first = int(market.segments[segment, 0]) + place - int(counts[:segment].sum())
    return first, first + params.episode_window


def check(params: Params, market: Market, fixed: tuple[int, int] | None = None, where: str = "market") -> str:
    """Checks that episodes can be played on a market; a warning where `reachable` is "warn", else "".

    Args:
        fixed: a window [s, e) that takes the place of the segments.

    Raises:
        ValueError: a window that is too short, several where `carry_over` needs one, no place for a random start, a
            first price that is not positive, an asset that is listed later where its first price sets an order scale,
            or one of which no action can order enough; names value and rule.
    """
    least, segments = params.least_bars, market.segments.tolist()
    if fixed is not None:
        if params.starts == "random":
            raise ValueError("window must be None where starts='random', which draws them")
        array = isinstance(fixed, np.ndarray) and fixed.ndim == 1
        if not (array or isinstance(fixed, tuple | list)) or len(fixed) != 2:
            raise ValueError(f"window={fixed!r} must be two bars, the first and the one after the last")
        first = integer("window: first bar", fixed[0], 0, market.bars - 1)
        segments = [[first, integer("window: end", fixed[1], first + 1, market.bars)]]
    if params.carry_over and len(segments) > 1:
        raise ValueError(f"{where}: has {len(segments)} segments, must have 1 where carry_over=True")
    if params.starts == "random" and not admissible(params, market).sum():
        raise ValueError(
            f"episode_bars={params.episode_bars} needs a segment of {params.episode_window} bars, the longest of "
            f"{where} has {np.diff(market.segments).max()}"
        )
    words = ""
    for first, last in segments:
        if last - first < least:
            raise ValueError(f"{where}: window [{first}, {last}) has {last - first} bars, must have at least {least}")
        if scaled(params) and (params.starts == "full" or last - first >= params.episode_window):
            _refuse_unlisted(market, first, where)
        words = words or _unreachable(params, market, market.close[first], where)
    if words and params.reachable == "error":
        raise ValueError(words)
    if scaled(params) and params.starts == "random" and (market.close <= 0).any():
        t, i = np.argwhere(market.close <= 0)[0].tolist()
        raise ValueError(f"{where}: close[{t}, {i}] is 0, must be positive where random starts set an order scale")
    return words


def _refuse_unlisted(market: Market, first: int, where: str):
    listed = market.listed
    if (listed > first).any():
        i = int(listed.argmax())
        raise ValueError(
            f"{where}: {market.symbols[i]} trades from bar {listed[i]} on, must do so from bar {first}, the first of a "
            "window, where first prices set an order scale"
        )


def _unreachable(params: Params, market: Market, price: np.ndarray, where: str) -> str:
    """A sentence on the first asset of which an action of 1 orders no more than q', by C and first-row prices."""
    if (price <= 0).any():
        i = int((price <= 0).argmax())
        raise ValueError(f"{where}: the first price of {market.symbols[i]} is {price[i]}, must be positive")
    if scaled(params):
        most = order_scale(params, price).astype(np.float64)
    else:
        most = params.capital * (params.order_share if params.orders == "notional" else 1.0) / price
    q = minimums(params, market)
    if (most > q).all():
        return ""
    i = int((most <= q).argmax())
    return (
        f"{where}: an action of 1 orders {most[i]:.6g} of {market.symbols[i]}, must be more than its minimum "
        f"{q[i]:.6g}; change capital, norm_action, order_share or min_qty"
    )
