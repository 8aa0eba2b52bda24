"""Markets of blocks of another market's returns (README.md, 4.1)."""

import dataclasses

import numpy as np

from ...checks import integer
from .. import streams
from .market import BARS, Market, instance, require_market

BLOCK = 288  # bars


def bootstrap(market: Market, seed: int = 0, bars: int | None = None) -> Market:
    """A market whose bars are blocks of 288 of another's, drawn with replacement, the same of all assets.

    Block b begins at place (w M) >> 32 of all M bars that a block may begin at within a segment; w is word 0 of stream
    24 at step b. Prices keep their ratio to the close before, volumes and what is tradable are those of the drawn bars.
    Bars before all assets are listed are not drawn; the first bar is the other market's first after that. Its segments
    bound blocks and are not taken over, nor are its train bars and its signal.

    Args:
        seed: 0 .. 2^64-1.
        bars: T; None: as many as the other market has.

    Raises:
        ValueError: a price that is not positive, features, which would not be those of the new bars, or no segment of
            more than 288 bars; names it.
        MemoryError: the market does not fit.
    """
    T = instance("market", market, Market).bars if bars is None else integer("bars", bars, 1, 2**31 - 1)
    seed = integer("seed", seed, 0, 2**64 - 1)
    for name in BARS[:4]:
        market.refuse(getattr(market, name) <= 0, name, "market", "must be positive where returns are drawn")
    if market.features is not None:
        raise ValueError("features must be None where returns are drawn: they would not be those of the new bars")
    require_market(T, market.assets)
    start = min(int(market.listed.max()), market.bars - 1)
    spans = [(max(first, start) + 1, last - BLOCK + 1) for first, last in market.segments.tolist()]
    places = np.concatenate([np.arange(first, max(first, last)) for first, last in spans])
    if not len(places):
        raise ValueError(f"segments have at most {np.diff(market.segments).max()} bars, must have over {BLOCK}")
    words = streams.words(seed, streams.COMMON, np.arange(-(-(T - 1) // BLOCK)), streams.BOOTSTRAP)[0]
    begins = places[(words.astype(np.uint64) * np.uint64(len(places)) >> np.uint64(32)).astype(np.int64)]
    rows = (begins[:, None] + np.arange(BLOCK)).ravel()[: T - 1]
    before = market.close[rows - 1]
    levels = market.close[start] * np.cumprod(np.vstack([np.ones(market.assets), market.close[rows] / before]), axis=0)
    drawn = {name: getattr(market, name)[np.concatenate([[start], rows])] for name in ("volume", "tradable")}
    for name in BARS[:4]:
        array = getattr(market, name)
        drawn[name] = np.vstack([array[start : start + 1], levels[:-1] * (array[rows] / before)])
    drawn["close"] = levels
    drawn["high"] = np.maximum(drawn["high"], np.maximum(drawn["open"], levels))  # where rounding went below
    drawn["low"] = np.minimum(drawn["low"], np.minimum(drawn["open"], levels))
    plain = dict.fromkeys(("timestamp", "segments", "train", "signal", "features", "mean", "std"))
    return dataclasses.replace(
        market, **plain | drawn, visible=False, feature_names=(), source=f"blocks of: {market.source}", sha256=""
    ).check()
