"""The synthetic city and its travellers (README.md, 4.1)."""

import dataclasses
import functools

import numpy as np

from ...checks import choice, integer
from ...noise import philox
from .. import streams
from ..params import STEP_THRESHOLD, THRESHOLDS, TICKS, Params
from ..streams import mulhi, unit
from ..windows import TYPES, every_shift, lateness
from .scenario import CHUNK, Scenario, closure

SIDE, APART = 12.0, 0.8  # km
START_MIN, SPEED_KMH = 3.0, 23.0
CENTRE_KM = 3.0  # over which the weight of a zone falls by e
CENSUS = (8, 13, 6, 3)  # travellers by type, of 30
WITHIN, BETWEEN = 0.08, 0.46  # probabilities of trips within a zone, between the anchors
FIRST_OPENING, OPENINGS, STEP, WIDTH = 390, 151, 5, 30  # min: 06:30 .. 19:00
FIRST_END = FIRST_OPENING + 2 + WIDTH  # of the drop-off's window, after the shortest ride
ATTEMPTS = 1000


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
    p = Params() if params is None else params
    if not isinstance(p, Params):
        raise ValueError(f"params={params!r:.60} must be Params, or None")
    choice("types", types, ("census", "uniform"))
    if p.horizon < FIRST_END:
        raise ValueError(f"horizon={p.horizon} must be at least {FIRST_END} min, when a city's first windows end")
    numbers = (integer("seed", seed, 0, 2**64 - 1), integer("zones", zones, 2, 1000), integer("trips", trips, 1, 1000))
    return _city(p, types, *numbers)


@functools.lru_cache(maxsize=8)
def _city(p: Params, types: str, seed: int, Z: int, M: int) -> Scenario:
    n, xy = p.requests, points(seed, Z)
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
    one, two = unit(philox((0, 0, np.arange(n), streams.ANCHORS), seed)[:2])
    home = pick(weight, one)
    anchors = np.stack([home, pick(weight, two, but=home)], axis=1)
    trip, threshold = np.zeros((n * M, 6), np.int64), np.zeros((n * M, 2), np.int64)
    for first in range(0, n * M, CHUNK):
        pending = np.arange(first, min(first + CHUNK, n * M))
        for attempt in range(ATTEMPTS):
            place = pending // M, pending % M, attempt
            trip[pending], threshold[pending] = _drawn(seed, place, travel, weight, anchors[pending // M])
            pending = pending[~_feasible(trip[pending], p, travel, depot)]
            if not len(pending):
                break
        else:
            raise ValueError(f"horizon={p.horizon} leaves no feasible trip in {ATTEMPTS} attempts: choose a longer one")
    return trip.reshape(n, M, 6), threshold.reshape(n, M, 2)


def _drawn(seed: int, place: tuple, travel, weight, anchors) -> tuple[np.ndarray, np.ndarray]:
    """Rows [k, 6] and thresholds [k, 2] of trips, feasible or not.

    Args:
        place: travellers [k], numbers of their trips [k], and the attempt.
        anchors: [k, 2] zones.
    """
    which, where, other, turn = philox((*place, streams.ZONES), seed)
    opening, early, late, anchor = philox((*place, streams.TIMES), seed)
    which, (one, two) = unit(which), anchors.T
    at = np.where(mulhi(anchor, 2) == 0, one, two)
    within, kinds = pick(weight, unit(where)), [which < WITHIN, which < WITHIN + BETWEEN]
    zone = np.select(kinds, [within, one], at)
    zone2 = np.select(kinds, [within, two], pick(weight, unit(other), but=at))
    zone, zone2 = np.where(mulhi(turn, 2) == 0, (zone, zone2), (zone2, zone))
    e1 = (FIRST_OPENING + STEP * mulhi(opening, OPENINGS)) * TICKS
    ride = np.maximum(2, (travel[zone, zone2] + TICKS // 2) // TICKS) * TICKS
    rows = np.stack([zone, e1, e1 + WIDTH * TICKS, zone2, e1 + ride, e1 + ride + WIDTH * TICKS], axis=1)
    return rows, np.stack([mulhi(early, THRESHOLDS), mulhi(late, THRESHOLDS)], axis=1) * STEP_THRESHOLD * TICKS


def _feasible(rows, p: Params, travel, depot: int) -> np.ndarray:
    """True of rows [k, 6] that can be served alone, in [0, H], under everything that may shift them."""
    found = rows[:, 5] <= p.horizon_ticks
    late = lateness(every_shift(rows[found], p, p.preshift), np.zeros((1, 1, 1, 2), int), travel, depot, p)
    found[found] = (late <= 0).all(axis=(1, 2, 3))
    return found
