"""A scenario: travel times of a city, and the trips of its travellers (README.md, 4)."""

import functools
import warnings
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ...checks import choice, integer
from ..params import MOST, MOST_HORIZON, MOST_REQUESTS, TICKS, Params
from ..streams import mulhi
from ..windows import LEGS, PRESHIFTS, SHIFTS, TYPES, acceptable, every_shift, lateness

FARTHEST = 1e9  # km, of a zone from the origin
CHUNK = 2048  # trips that are looked at in all their shifts at once, of which each takes 7 kB and more
WHOLE = {"travel": 2, "trip": 3, "type": 1, "trip_count": 1, "threshold": 3, "service": 3, "demand": 2}  # dimensions


@dataclass(frozen=True, eq=False)
class Scenario:
    """Times in ticks of 0.1 min, int32 unless another type stands beside them. Arrays are copies, and read-only.

    With `fixed` an episode plays one of the M trips, the same number of each traveller, in the travellers' order.
    """

    travel: np.ndarray  # [Z, Z]
    trip: np.ndarray  # [n, M, 6]: zone, e, l, zone', e', l'
    type: np.ndarray  # [n] of windows.TYPES
    trip_count: np.ndarray | None = None  # [n], of M; None: M
    threshold: np.ndarray | None = None  # [n, M, 2]: F_early, F_late; None: 0
    service: np.ndarray | None = None  # [n, M, 2], at pickup and drop-off; None: 0
    demand: np.ndarray | None = None  # [n, M]; None: 1
    zone_xy: np.ndarray | None = None  # [Z, 2] float64, km; None: scaled from travel
    depot: int = 0  # zone
    fixed: bool = False
    mode: Literal["darp", "vrptw"] = "darp"
    capacity: int = 8  # Q
    horizon: int = 14_400  # H
    fleet_size: int = 5  # K
    seed: int | None = None  # that a city was drawn with

    def __post_init__(self):
        choice("scenario: fixed", self.fixed, (False, True))
        choice("scenario: mode", self.mode, ("darp", "vrptw"))
        most = {"depot": 2**31 - 1, "capacity": MOST, "horizon": MOST_HORIZON * TICKS, "fleet_size": MOST}
        most |= {} if self.seed is None else {"seed": 2**64 - 1}
        for name, high in most.items():
            low = 0 if name in ("depot", "seed") else 1
            object.__setattr__(self, name, integer(f"scenario: {name}", getattr(self, name), low, high))
        n, M, _ = whole(self.trip, "scenario: trip", 3).shape
        empty = {"trip_count": np.full(n, M), "threshold": np.zeros((n, M, 2), int)}
        empty |= {"service": np.zeros((n, M, 2), int), "demand": np.ones((n, M), int)}
        for name, dimensions in WHOLE.items():
            given = getattr(self, name)
            array = whole(empty.get(name) if given is None else given, f"scenario: {name}", dimensions)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        given = self.zone_xy
        xy = scaled(self.travel) if given is None else _numbers(given, "scenario: zone_xy", 2).astype(np.float64)
        xy.setflags(write=False)
        object.__setattr__(self, "zone_xy", xy)

    @property
    def requests(self) -> int:
        return len(self.trip)

    @functools.cached_property
    def unit_xy(self) -> np.ndarray:
        """Zones in the smallest square box round them, [Z, 2] in 0..1."""
        return box(self.zone_xy)

    def options(self) -> dict:
        """Fields of `Params` that a scenario brings."""
        return {
            "requests": self.requests, "mode": self.mode, "capacity": self.capacity, "fleet_size": self.fleet_size,
            "horizon": self.horizon / TICKS,
        }  # fmt: skip

    def closed(self) -> "Scenario":
        """The scenario with travel times of shortest paths."""
        return replace(self, travel=closure(self.travel))

    # ---- checks

    def check(self, params: Params, where: str = "scenario") -> "Scenario":
        """The scenario itself; warns where the triangle inequality is violated.

        Raises:
            ValueError: sizes that do not fit, a value out of range, or a trip that cannot be served; names the array,
                or traveller and trip, the value and what is allowed.
        """
        p, n, M, Z = params, *np.shape(self.trip)[:2], len(self.travel)
        integer(f"{where}: requests", n, 1, MOST_REQUESTS)
        if n != p.requests:
            raise ValueError(f"requests={p.requests} must be {n}, the travellers of the {where}")
        if self.mode != p.mode and self.fixed:
            raise ValueError(f"mode={p.mode!r} must be {self.mode!r}, as the {where} has it")
        self._check_travel(p, where)
        check_costs(n, self.travel, p, where)
        integer(f"{where}: depot", self.depot, 0, Z - 1)
        shapes = {"trip": (n, M, 6), "trip_count": (n,), "threshold": (n, M, 2), "service": (n, M, 2)}
        shapes |= {"demand": (n, M), "type": (n,), "zone_xy": (Z, 2)}
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{where}: {name} has shape {getattr(self, name).shape}, must have {shape}")
        if not (np.abs(self.zone_xy) <= FARTHEST).all():
            raise ValueError(f"{where}: zone_xy must be finite, from {-FARTHEST:g} to {FARTHEST:g} km")
        for i, kind in enumerate(self.type.tolist()):
            integer(f"{where}: type of traveller {i}", kind, 0, len(TYPES) - 1)
        for i, count in enumerate(self.trip_count.tolist()):
            integer(f"{where}: trips of traveller {i}", count, 1, max(M, 1))
        if self.fixed and (self.trip_count != M).any():
            raise ValueError(f"{where}: trip_count must be {M} of each traveller where instances are fixed")
        self._check_trips(p, where)
        self._check_rides(p, where)
        return self

    def _check_travel(self, p: Params, where: str):
        check_times(self.travel, p.horizon_ticks, where)
        count, worst, saved = triangles(self.travel)
        if count:
            i, k, j = worst
            warnings.warn(
                f"{where}: {count} of travel's triangles are violated, worst {i} -> {k} -> {j}, which is {saved} ticks "
                "shorter than the direct way; closure=True of a reader, or closed(), repairs them",
                stacklevel=4,
            )

    def _trips(self):
        """Traveller, trip number of each trip that there is."""
        return np.nonzero(np.arange(self.trip.shape[1]) < self.trip_count[:, None])

    def _check_trips(self, p: Params, where: str):
        H, Q, Z = p.horizon_ticks, p.capacity, len(self.travel)
        traveller, number = self._trips()
        rows, service = self.trip[traveller, number], self.service[traveller, number]
        zone, e1, l1, zone2, e2, l2 = rows.T
        for values, low, high, what in (
            (zone, 0, Z - 1, "zone"), (e1, 0, H, "e"), (l1, e1, H, "l"),
            (zone2, 0, Z - 1, "zone'"), (e2, 0, H, "e'"), (l2, e2, H, "l'"),
            (self.demand[traveller, number], 1, Q, "demand"),
            (service[:, 0], 0, H, "service"), (service[:, 1], 0, H, "service'"),
            (self.threshold[traveller, number, 0], 0, H, "F_early"),
            (self.threshold[traveller, number, 1], 0, H, "F_late"),
        ):  # fmt: skip
            low, high = np.broadcast_to(low, values.shape), np.broadcast_to(high, values.shape)
            for k in np.nonzero((values < low) | (values > high))[0][:1]:
                raise ValueError(
                    f"{where}: {what}={values[k]} of trip {number[k]} of traveller {traveller[k]} must be from "
                    f"{low[k]} to {high[k]}"
                )

    def _check_rides(self, p: Params, where: str):
        """Every trip alone, under every pre-shift and every shift that its traveller accepts."""
        traveller, number = self._trips()
        rows, service = self.trip[traveller, number].astype(np.int64), self.service[traveller, number]
        preshift = p.preshift and not self.fixed
        if p.max_ride and p.paired:
            least = smallest_max_ride(rows, service, self.travel, preshift)
            if p.max_ride_ticks < least:
                raise ValueError(f"max_ride={p.max_ride} must be at least {least / TICKS}, or 0 for none")
        accepted = acceptable(p, self.type[traveller], self.threshold[traveller, number])
        for first in range(0, len(rows), CHUNK):
            few = slice(first, first + CHUNK)
            shifts, stops = every_shift(rows[few], p, preshift), service[few, None, None]
            late = np.where(accepted[few, None, :, None], lateness(shifts, stops, self.travel, self.depot, p), 0)
            for k, pre, action, leg in np.argwhere(late > 0)[:1].tolist():
                shift = f"shift {tuple(SHIFTS[action].tolist())} min"
                if preshift:
                    shift = f"pre-shift ({PRESHIFTS[pre // 3]}, {PRESHIFTS[pre % 3]}) min and {shift}"
                raise ValueError(
                    f"{where}: trip {number[first + k]} of traveller {traveller[first + k]} under {shift}: "
                    f"{LEGS[p.paired][leg]} is {late[k, pre, action, leg] / TICKS} min late, even alone"
                )


def smallest_max_ride(rows, service, travel, preshift: bool) -> int:
    """Ticks: below, shifts may part the windows of a trip farther than a ride may last."""
    zone, _, l1, zone2, e2, _ = rows.T
    apart = e2 - l1 + (120 if preshift else 60) * TICKS
    return int(np.maximum(apart, service[:, 0] + travel[zone, zone2]).max())


def check_times(travel: np.ndarray, horizon: int, where: str):
    """Raises ValueError that names the first travel time [Z, Z] which cannot be one."""
    if travel.shape != (len(travel), len(travel)) or not len(travel):
        raise ValueError(f"{where}: travel has shape {travel.shape}, must be square")
    for wrong, rule in (
        (travel < 0, "must not be negative"),
        (np.diag(np.diag(travel) != 0), "must be 0, from a zone to itself"),
        (travel > horizon, f"must be at most {horizon}, the horizon"),
    ):
        if wrong.any():
            i, j = np.argwhere(wrong)[0].tolist()
            raise ValueError(f"{where}: travel[{i}, {j}] is {travel[i, j]}, {rule}")


def check_costs(requests: int, travel: np.ndarray, params: Params, where: str):
    """Raises ValueError where a walk over so many requests may cost more ticks than int32 holds."""
    most = params.places(requests) * int(travel.max()) + requests * params.extra_vehicle_ticks
    if most > 2**31 - 1:
        raise ValueError(
            f"{where}: walks over {requests} requests may cost {most} ticks, must be at most {2**31 - 1}: "
            "take longer ticks, or fewer requests"
        )


def whole(values, what: str, dimensions: int) -> np.ndarray:
    """An int32 copy of numbers.

    Raises:
        ValueError: no numbers, in other dimensions, or none of int32; says what they are, and names the first.
    """
    array = _numbers(values, what, dimensions)
    wrong = ~np.isfinite(array) | (np.abs(array) > 2**31 - 1)
    wrong[~wrong] = array[~wrong] != np.floor(array[~wrong])
    if wrong.any():
        index = np.argwhere(wrong)[0].tolist()
        raise ValueError(f"{what}{index} is {array[tuple(index)]}, must be a whole number of int32")
    return array.astype(np.int32)


def _numbers(values, what: str, dimensions: int) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"{what} has rows of different lengths, must hold numbers in {dimensions} axes") from None
    if array.dtype.kind not in "biuf" or array.ndim != dimensions:
        raise ValueError(f"{what} is {array.dtype} {array.shape}, must hold numbers in {dimensions} axes")
    return array


def closure(travel: np.ndarray) -> np.ndarray:
    """Times of shortest paths, [Z, Z]."""
    travel = np.array(travel)
    for k in range(len(travel)):
        np.minimum(travel, travel[:, k, None] + travel[k], out=travel)
    return travel


def triangles(travel: np.ndarray) -> tuple[int, tuple[int, int, int], int]:
    """Number of triangles i -> k -> j shorter than i -> j, the worst one, and the ticks that it saves."""
    count, worst, most = 0, (0, 0, 0), 0
    for k in range(len(travel)):
        saved = travel - (travel[:, k, None] + travel[k])
        count += int((saved > 0).sum())
        if saved.max() > most:
            i, j = np.unravel_index(saved.argmax(), saved.shape)
            worst, most = (int(i), k, int(j)), int(saved.max())
    return count, worst, most


def scaled(travel: np.ndarray) -> np.ndarray:
    """Places [Z, 2] float64 whose distances are near (travel + its transpose)/2, by classical scaling."""
    if travel.ndim != 2 or travel.shape[0] != travel.shape[1]:
        return np.zeros((len(travel), 2))
    Z = len(travel)
    centred = np.eye(Z) - 1 / max(Z, 1)
    values, vectors = np.linalg.eigh(-centred @ (((travel + travel.T) / 2.0) ** 2) @ centred / 2)
    xy = np.zeros((Z, 2))
    two = vectors[:, ::-1][:, :2] * np.sqrt(np.maximum(values[::-1][:2], 0))
    xy[:, : two.shape[1]] = two
    return xy


def box(xy: np.ndarray) -> np.ndarray:
    """Places [Z, 2] in the smallest square round them, 0..1."""
    low = xy.min(axis=0)
    return (xy - low) / ((xy - low).max() or 1.0)


def typed(types, requests: int, words) -> np.ndarray:
    """Types [n] of "uniform", drawn by `words`, or of what was given.

    Raises:
        ValueError: another word, an unknown type, or not n of them.
    """
    if isinstance(types, str):
        choice("types", types, ("uniform", *TYPES))
        return mulhi(words, len(TYPES)) if types == "uniform" else np.full(requests, TYPES.index(types))
    if np.shape(types) != (requests,):
        raise ValueError(f"types={types!r:.60} must be 'uniform', one of {', '.join(TYPES)}, or {requests} numbers")
    return np.asarray(types)
