"""Instance of an episode: of each traveller a trip, pre-shifts, and the order of arrival (README.md, 4.2)."""

from typing import NamedTuple

import numpy as np

from .. import streams
from ..params import TICKS, Params
from ..windows import PRESHIFTS, preshifted
from .scenario import Scenario


class Instance(NamedTuple):
    """Draws of an episode, n each; trips and rows by traveller."""

    trip: list[int]
    offered: list[list[int]]  # rows (zone, e, l, zone', e', l'), ticks
    order: list[int]  # travellers as they arrive


def draw(scenario: Scenario, params: Params, seed: int, environment: int, episode: int) -> Instance:
    """The instance of an episode of an environment: the same for any batch, order and device."""
    n, item = scenario.requests, np.arange(scenario.requests)

    def words(stream):
        return streams.words(seed, environment, episode, item, stream)

    if scenario.fixed:
        trip, order = np.full(n, (environment + episode) % scenario.trip.shape[1]), item.tolist()
    else:
        trip = streams.mulhi(words(streams.TRIP), scenario.trip_count)
        order = streams.shuffled(words(streams.ORDER))
    rows, none = scenario.trip[item, trip], np.zeros(n, np.int64)
    earlier = later = none
    if params.preshift and not scenario.fixed:
        earlier, later = (
            np.array(PRESHIFTS)[streams.mulhi(words(stream), len(PRESHIFTS))] * TICKS
            for stream in (streams.PICKUP_PRESHIFT, streams.DROPOFF_PRESHIFT)
        )
    return Instance(trip.tolist(), preshifted(rows, earlier, later, params).tolist(), order)
