"""The synthetic city and its travellers (README.md, 4.1)."""

import dataclasses
import functools

import numpy as np

from ...checks import choice, integer
from ...noise import philox
from .. import streams
from ..params import MOST_REQUESTS, STEP_THRESHOLD, THRESHOLDS, TICKS, Params
from ..streams import mulhi, unit
from ..windows import TYPES, every_shift, lateness
from .scenario import Scenario, closure

SIDE, APART = 12.0, 0.8  # km
START_MIN, SPEED_KMH = 3.0, 23.0
CENTRE_KM = 3.0  # over which the weight of a zone falls by e
CENSUS = (8, 13, 6, 3)  # travellers by type, of 30
WITHIN, BETWEEN = 0.08, 0.46  # probabilities of trips within a zone, between the anchors
FIRST_OPENING, OPENINGS, STEP, WIDTH = 390, 151, 5, 30  # min: 06:30 .. 19:00
ATTEMPTS = 1000


@functools.lru_cache(maxsize=8)
def city(
    seed: int = 1, params: Params | None = None, zones: int = 31, trips: int = 52, types: str = "census"
) -> Scenario:
    """A city whose trips are feasible under every pre-shift and shift.

    Args:
        params: n and what feasibility depends on.
        zones, trips: Z, 2 .. 1000, and M, 1 .. 1000.
        types: "census", or "uniform" for types that are drawn by themselves.

    Raises:
        ValueError: a value out of range, or a horizon that no trip fits; names it.
    """
    seed, Z = integer("seed", seed, 0, 2**64 - 1), integer("zones", zones, 2, 1000)
    M, p = integer("trips", trips, 1, 1000), params or Params()
    choice("types", types, ("census", "uniform"))
    n = integer("requests", p.requests, 1, MOST_REQUESTS)
    xy = points(seed, Z)
    depot = int(((xy - SIDE / 2) ** 2).sum(axis=1).argmin())
    travel = times(seed, xy)
    weight = np.exp(-np.hypot(*(xy - xy[depot]).T) / CENTRE_KM)
    words = philox((0, 0, np.arange(n), streams.KINDS), seed)[0]
    kind = mulhi(words, len(TYPES))
    if types == "census":
        kind = np.repeat(np.arange(len(TYPES)), CENSUS)[np.arange(n) * sum(CENSUS) // n][streams.shuffled(words)]
    unlimited = dataclasses.replace(p, max_ride=0.0)  # which `Scenario.check` compares with what the trips allow
    trip, threshold = _trips(seed, unlimited, travel, depot, weight, n, M)
    return Scenario(
        travel=travel, trip=trip, type=kind, threshold=threshold, zone_xy=xy, depot=depot, mode=p.mode,
        capacity=p.capacity, horizon=p.horizon_ticks, fleet_size=p.fleet_size, seed=seed,
    )  # fmt: skip


def points(seed: int, zones: int) -> np.ndarray:
    """Zones [Z, 2] km, uniform by rejection; more than 56 stand nearer to one another, as there is no room else."""
    apart, found, first, block = min(APART, 6 / zones**0.5), [], 0, 4096
    while len(found) < zones:
        words = philox((0, 0, np.arange(first, first + block), streams.POINTS), seed)
        for place in (unit(words[:2]) * SIDE).T:
            if len(found) < zones and all(np.hypot(*(place - other)) >= apart for other in found):
                found.append(place)
        first += block
    return np.array(found)


def times(seed: int, xy: np.ndarray) -> np.ndarray:
    """Travel times [Z, Z] ticks, each direction with a factor U(0.9, 1.1), closed by shortest paths."""
    Z = len(xy)
    words = philox((0, 0, np.arange(Z * Z).reshape(Z, Z), streams.FACTORS), seed)[0]
    minutes = START_MIN + 60 * np.hypot(*np.moveaxis(xy[:, None] - xy, -1, 0)) / SPEED_KMH
    travel = np.floor(minutes * (0.9 + 0.2 * unit(words)) * TICKS + 0.5).astype(np.int64)
    np.fill_diagonal(travel, 0)
    return closure(travel)


def pick(weight: np.ndarray, u: np.ndarray, but: np.ndarray | None = None) -> np.ndarray:
    """Zones [k] by weight [Z] for numbers u [k] of U[0, 1), other than those of `but` [k]."""
    weights = np.broadcast_to(weight, (len(u), len(weight))).copy()
    if but is not None:
        weights[np.arange(len(u)), but] = 0.0
    below = weights.cumsum(axis=1)
    return (below <= (u * below[:, -1])[:, None]).sum(axis=1)


def _trips(seed: int, p: Params, travel, depot: int, weight, n: int, M: int):
    """Trips [n, M, 6] and thresholds [n, M, 2]; those that are not feasible alone are drawn again."""
    first, second = unit(philox((0, 0, np.arange(n), streams.ANCHORS), seed)[:2])
    home = pick(weight, first)
    anchors = np.stack([home, pick(weight, second, but=home)], axis=1)
    trip, threshold = np.zeros((n * M, 6), np.int64), np.zeros((n * M, 2), np.int64)
    pending = np.arange(n * M)
    for attempt in range(ATTEMPTS):
        traveller, number = pending // M, pending % M
        which, where, other, turn = philox((traveller, number, attempt, streams.ZONES), seed)
        opening, early, late, anchor = philox((traveller, number, attempt, streams.TIMES), seed)
        which, (one, two) = unit(which), anchors[traveller].T
        at = np.where(mulhi(anchor, 2) == 0, one, two)
        within = pick(weight, unit(where))
        zone = np.select([which < WITHIN, which < WITHIN + BETWEEN], [within, one], at)
        zone2 = np.select([which < WITHIN, which < WITHIN + BETWEEN], [within, two], pick(weight, unit(other), but=at))
        zone, zone2 = np.where(mulhi(turn, 2) == 0, (zone, zone2), (zone2, zone))
        e1 = (FIRST_OPENING + STEP * mulhi(opening, OPENINGS)) * TICKS
        ride = np.maximum(2, (travel[zone, zone2] + TICKS // 2) // TICKS) * TICKS
        trip[pending] = np.stack([zone, e1, e1 + WIDTH * TICKS, zone2, e1 + ride, e1 + ride + WIDTH * TICKS], axis=1)
        threshold[pending] = (
            np.stack([mulhi(early, THRESHOLDS), mulhi(late, THRESHOLDS)], axis=1) * STEP_THRESHOLD * TICKS
        )
        pending = pending[~_feasible(trip[pending], p, travel, depot)]
        if not len(pending):
            return trip.reshape(n, M, 6), threshold.reshape(n, M, 2)
    raise ValueError(f"horizon={p.horizon} leaves no feasible trip in {ATTEMPTS} attempts: choose a longer one")


def _feasible(rows, p: Params, travel, depot: int) -> np.ndarray:
    """True of rows [k, 6] that can be served alone, in [0, H], under everything that may shift them."""
    late = lateness(every_shift(rows, p, p.preshift), np.zeros((1, 1, 1, 2), int), travel, depot, p)
    return (late <= 0).all(axis=(1, 2, 3)) & (rows[:, 5] <= p.horizon_ticks)
