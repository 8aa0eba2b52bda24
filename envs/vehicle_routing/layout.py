"""Layout of the state that all forms share (README.md, 6)."""

import numpy as np

from .params import Params


def state_shapes(params: Params) -> dict[str, tuple[tuple[int, ...], type]]:
    """Shape and type of each field; times in ticks. Rows of requests that have not arrived are 0, or -1 where said."""
    n, walk, whole = params.requests, (params.walk_length,), np.int32
    return {
        "t": ((), whole),  # decisions made
        "answered": ((), whole),  # requests that an oracle has priced; t but after failures
        "failed": ((), whole),  # 0 or 1: the last decision failed
        "trip": ((n,), whole),  # by traveller
        "offered": ((n, 6), whole),  # by traveller: rows after the pre-shift
        "order": ((n,), whole),  # travellers as they arrive
        "traveller": ((n,), whole),  # by decision, -1, as the next three
        "kept": ((n, 6), whole),  # rows as they are routed
        "action": ((n,), whole),  # -1
        "accepted": ((n,), whole),  # 0 or 1
        "cost": ((), whole),  # C
        "twin_cost": ((), whole),  # C', without shifts
        "walk": (walk, whole),
        "twin_walk": (walk, whole),
        "returns": ((), np.float64),  # sum of rewards, min
    }
