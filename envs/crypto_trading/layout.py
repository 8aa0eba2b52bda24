"""Layout of the state that all forms share (README.md, 6)."""

import numpy as np

from .params import Params


def state_shapes(params: Params, assets: int) -> dict[str, tuple[tuple[int, ...], type]]:
    """Shape and type of each field.

    `float32_holdings` stores holdings, ages and peaks in float32; ages are whole numbers either way.
    """
    N, real, whole = (assets,), np.float64, np.int32
    stored = np.float32 if params.float32_holdings else real
    return {
        "first": ((), whole),  # s, first bar of the window, of the market
        "last": ((), whole),  # e, the bar after the window
        "bar": ((), whole),  # t, of the window: L-1 after a reset
        "cash": ((), real),  # c, $
        "holdings": (N, stored),  # h, units
        "age": (N, whole),  # a, bars since the first buy, sale or trim
        "peak": (N, stored),  # $, highest fill price since bought; rule one: 0
        "average": (N, real),  # $, average buy price, without fees; 0 if flat; published rules: 0
        "value": ((), real),  # V, $, after the last step
        "benchmark": ((), real),  # E, $
        "benchmark_units": (N, real),  # w; of the fair holder 0 until its first fill
        "benchmark_cash": ((), real),  # $, of the fair holder: C until its first fill, then what it could not spend
        "running": ((), real),  # G; `clean`: 0
    }
