"""Markets of blocks of another market's returns (README.md, 4.1)."""

import dataclasses

import numpy as np

from ...checks import integer
from .. import streams
from .market import BARS, Market

BLOCK = 288  # bars


def bootstrap(market: Market, seed: int = 0, bars: int | None = None) -> Market:
    """A market whose bars are blocks of 288 of another's, drawn with replacement, the same of all assets.

    Block b begins at place (w M) >> 32 of all M bars that a block may begin at within a segment; w is word 0 of stream
    24 at step b. Prices keep their ratio to the close before, volumes and what is tradable are those of the drawn bars.
    The first bar is the other market's.

    Args:
        seed: 0 .. 2^64-1.
        bars: T; None: as many as the other market has.

    Raises:
        ValueError: a price that is not positive, or no segment of more than 288 bars; names it.
    """
    T = market.bars if bars is None else integer("bars", bars, 1, 2**31 - 1)
    seed = integer("seed", seed, 0, 2**64 - 1)
    for name in BARS[:4]:
        market.refuse(getattr(market, name) <= 0, name, "market", "must be positive where returns are drawn")
    places = np.concatenate([np.arange(first + 1, last - BLOCK + 1) for first, last in market.segments.tolist()])
    if not len(places):
        raise ValueError(f"segments have at most {np.diff(market.segments).max()} bars, must have over {BLOCK}")
    words = streams.words(seed, streams.COMMON, np.arange(-(-(T - 1) // BLOCK)), streams.BOOTSTRAP)[0]
    begins = places[(words.astype(np.uint64) * np.uint64(len(places)) >> np.uint64(32)).astype(np.int64)]
    rows = (begins[:, None] + np.arange(BLOCK)).ravel()[: T - 1]
    before = market.close[rows - 1]
    levels = market.close[0] * np.cumprod(np.vstack([np.ones(market.assets), market.close[rows] / before]), axis=0)
    drawn = {name: getattr(market, name)[np.concatenate([[0], rows])] for name in ("volume", "tradable")}
    for name in BARS[:4]:
        array = getattr(market, name)
        drawn[name] = np.vstack([array[:1], levels[:-1] * (array[rows] / before)])
    drawn["close"] = levels
    plain = dict.fromkeys(("timestamp", "segments", "train", "signal", "features", "mean", "std"))
    return dataclasses.replace(
        market, **plain | drawn, visible=False, feature_names=(), source=f"blocks of: {market.source}", sha256=""
    )
