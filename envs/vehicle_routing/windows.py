"""Actions, what travellers accept, and what a shift does to windows (README.md, 2.3 and 2.4).

A request's row is (zone, e, l, zone', e', l'): pickup and drop-off, times in ticks.
"""

import numpy as np

from .params import TICKS, Params

TYPES = ("late", "early", "none", "both")
EARLIER, LATER = (-30, -20, -10, 0), (0, 10, 20, 30)  # min
ACTIONS = len(EARLIER) * len(LATER)
NO_SHIFT = 12
SHIFTS = np.array([(p, d) for p in EARLIER for d in LATER])  # [16, 2] min, of pickup and drop-off
SHIFTS.setflags(write=False)
ALLOWED = np.array([  # [4, 16], by type
    [(p == 0 or kind in ("early", "both")) and (d == 0 or kind in ("late", "both")) for p in EARLIER for d in LATER]
    for kind in TYPES
])  # fmt: skip
ALLOWED.setflags(write=False)
PRESHIFTS = (10, 20, 30)  # min


def acceptable(params: Params, kind, threshold) -> np.ndarray:
    """Actions that a traveller accepts, [..., 16].

    Args:
        kind: types [...].
        threshold: F_early and F_late of the trip [..., 2], ticks.
    """
    if params.threshold_acceptance:
        early, late = np.moveaxis(np.asarray(threshold)[..., None, :], -1, 0)
        return (-SHIFTS[:, 0] * TICKS <= early) & (SHIFTS[:, 1] * TICKS <= late)
    return ALLOWED[kind]


def moved(early, late, shift, horizon: int):
    """A window moved by ticks, less far where it would leave [0, horizon]; its width stays."""
    shift = np.minimum(np.maximum(shift, -early), horizon - late)
    return early + shift, late + shift


def preshifted(rows, earlier, later, params: Params) -> np.ndarray:
    """Rows [..., 6] with the pickup earlier and the drop-off later by ticks [...]."""
    zone, e1, l1, zone2, e2, l2 = _columns(rows)
    pickup, dropoff = moved(e1, l1, -earlier, params.horizon_ticks), moved(e2, l2, later, params.horizon_ticks)
    return _rows(zone, *pickup, zone2, *dropoff, params)


def shifted(rows, shift, params: Params) -> np.ndarray:
    """Rows [..., 6] under accepted shifts [..., 2] in min: a move, where mode="vrptw" a widening."""
    zone, e1, l1, zone2, e2, l2 = _columns(rows)
    p, d = np.moveaxis(np.asarray(shift) * TICKS, -1, 0)
    H = params.horizon_ticks
    if not params.paired:
        e1, l1 = np.maximum(e1 + p, 0), l1 + d if params.shrinking_windows else np.minimum(l1 + d, H)
    elif params.shrinking_windows:
        e1, l1, e2, l2 = (np.maximum(end, 0) for end in (e1 + p, l1 + p, e2 + d, l2 + d))
    else:
        (e1, l1), (e2, l2) = moved(e1, l1, p, H), moved(e2, l2, d, H)
    return _rows(zone, e1, l1, zone2, e2, l2, params)


def latest_end(params: Params) -> float:
    """Latest end of a window under any shift, min."""
    return params.horizon + (max(LATER) if params.shrinking_windows else 0)


def every_shift(rows, params: Params, preshift: bool) -> np.ndarray:
    """Rows [k, 6] under every pre-shift (9, or none) and every action, [k, 9 or 1, 16, 6]."""
    earlier, later = np.array([(a, b) for a in PRESHIFTS for b in PRESHIFTS] if preshift else [(0, 0)]).T * TICKS
    return shifted(preshifted(rows[:, None], earlier, later, params)[:, :, None], SHIFTS, params)


LEGS = {True: ("depot to pickup", "pickup to drop-off", "drop-off to depot"), False: ("depot to node", "node to depot")}


def lateness(rows, service, travel, depot: int, params: Params) -> np.ndarray:
    """Ticks that a vehicle which serves one request alone is late by, of each leg [..., 3], or [..., 2] for "vrptw".

    Args:
        rows: [..., 6].
        service: [..., 2] ticks, at pickup and drop-off.
        travel: [Z, Z] ticks.
    """
    zone, e1, l1, zone2, e2, l2 = _columns(rows)
    service, service2 = np.moveaxis(np.asarray(service), -1, 0)
    ride, H = params.max_ride_ticks, params.horizon_ticks
    if not params.paired:
        start = np.maximum(e1, travel[depot, zone])
        return np.stack([start - l1, start + service + travel[zone, depot] - H], axis=-1)
    start = np.maximum(e1 if not ride else np.maximum(e1, e2 - ride), travel[depot, zone])
    arrival = start + service + travel[zone, zone2]
    latest = l2 if not ride else np.minimum(l2, start + ride)
    back = np.maximum(arrival, e2) + service2 + travel[zone2, depot]
    return np.stack([start - l1, arrival - latest, back - H], axis=-1)


def _columns(rows):
    return np.moveaxis(np.asarray(rows, dtype=np.int64), -1, 0)


def _rows(zone, e1, l1, zone2, e2, l2, params: Params) -> np.ndarray:
    if not params.paired:
        zone2, e2, l2 = zone, e1, l1
    return np.stack(np.broadcast_arrays(zone, e1, l1, zone2, e2, l2), axis=-1)
