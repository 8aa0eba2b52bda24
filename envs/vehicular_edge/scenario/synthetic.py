"""Scenarios on synthetic traffic as they are drawn, before their running scales are warmed up."""

from collections.abc import Iterator

import numpy as np
import torch

from ...checks import integer, require_memory
from ..params import Params
from .drawing import draw_arrays
from .scenario import Calibration, Scenario
from .traffic import box, simulate

TOGETHER = 64  # scenarios whose traffic is simulated at once
LINK_BYTES = 40  # that drawing takes for each link of each slot
PAIR_BYTES = 40  # and for each pair of slots, for the main components


def drawn_one(params: Params, traffic: str, index: int, seed: int, calibration: Calibration) -> Scenario:
    """Scenario `index` of a map; arguments as the checks below return them."""
    xy = simulate(traffic, params.vehicles, params.slots, seed, index)
    return _drawn(params, traffic, xy, index, seed, calibration)


def drawn_each(params: Params, traffic: str, count: int, seed: int, calibration: Calibration) -> Iterator[Scenario]:
    """Scenarios 0 .. count-1 of a map, one after the other."""
    for first in range(0, count, TOGETHER):
        indices = np.arange(first, min(first + TOGETHER, count))
        for index, xy in zip(indices, simulate(traffic, params.vehicles, params.slots, seed, indices), strict=True):
            yield _drawn(params, traffic, xy, int(index), seed, calibration)


def _drawn(params: Params, traffic: str, xy, index: int, seed: int, calibration: Calibration) -> Scenario:
    return Scenario(
        params=params,
        **draw_arrays(params, xy, np.ones(xy.shape[:2], dtype=bool), box(traffic), index, seed),
        calibration=calibration,
        name=f"{traffic}-{index}",
        source={"traffic": traffic},
        index=index,
        seed=seed,
    )


def checked_params(params: Params | None) -> Params:
    """Given or default parameters; MemoryError where so many links do not fit, which says how many would."""
    params = Params() if params is None else params
    if not isinstance(params, Params):
        raise ValueError(f"params={params!r:.60} must be a Params")
    links_ = params.slots * params.clients * (params.servers + params.edges)
    require_memory(links_ * LINK_BYTES, torch.device("cpu"), "links of all slots", links_)
    require_memory(params.slots**2 * PAIR_BYTES, torch.device("cpu"), "pairs of slots", params.slots**2)
    return params


def checked_index(index: int) -> int:
    return integer("index", index, 0, 2**32 - 1)  # a word of Philox's counter


def checked_seed(seed: int) -> int:
    return integer("seed", seed, 0, 2**64 - 1)  # Philox's key
