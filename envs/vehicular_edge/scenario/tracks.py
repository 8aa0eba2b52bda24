"""Tracks of the vehicles of a recording: a position in every slot, where it has one and where it leaves one out."""

import numpy as np

from ..params import Params
from .records import Records


def fill(records: Records, params: Params) -> tuple[np.ndarray, np.ndarray, tuple[float, float, float, float]]:
    """Positions of N vehicles in every slot.

    The N vehicles with most records are taken (ties: lower id), in the order of ids. Slot 0 is the earliest record;
    only whole seconds after it count.

    Returns:
        Positions [T, N, 2] m; active [T, N] bool; map box x0, y0, x1, y1 in m, the extremes of all
        records of the taken vehicles, between whole seconds as well.

    Raises:
        ValueError: fewer than N vehicles.
    """
    if not isinstance(records, Records):
        raise ValueError(f"records must be of traces.Records, not {type(records).__name__}")
    where = records.source.get("file", "records")
    taken, second, xy, box = _densest(records, params.vehicles, where)
    track = _published_track if params.jumping_tracks else _linear_track  # Q15
    filled = np.empty((params.slots, params.vehicles, 2))
    active = np.empty((params.slots, params.vehicles), dtype=bool)
    for position in range(params.vehicles):
        mine = taken == position
        filled[:, position], active[:, position] = track(second[mine], xy[mine], params.slots)
    return filled, active, box


def _densest(records: Records, vehicles: int, where: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple]:
    """Records of the taken vehicles: position of the vehicle in the order of ids, whole second, [R, 2] m; the box."""
    if len(records.utc_s) == 0:
        raise ValueError(f"{where}: has no record in the window, needs vehicles={vehicles}")
    # Times of milliseconds: whole seconds after the earliest are found in integers.
    milliseconds = np.rint(records.utc_s * 1000.0).astype(np.int64)
    milliseconds -= milliseconds.min()
    whole = milliseconds % 1000 == 0
    ids, number, counts = np.unique(records.vehicle, return_inverse=True, return_counts=True)
    seen = np.zeros(len(ids), dtype=bool)
    seen[number[whole]] = True
    counts = np.where(seen, counts, 0)  # one seen between whole seconds alone has no position
    if seen.sum() < vehicles:
        raise ValueError(f"{where}: has {seen.sum()} vehicles in the window, needs vehicles={vehicles}")
    most = np.sort(np.argsort(-counts, kind="stable")[:vehicles])
    rank = np.full(len(ids), -1)
    rank[most] = np.arange(vehicles)
    theirs = rank[number] >= 0
    x, y = records.x[theirs], records.y[theirs]
    keep = whole & theirs
    taken, second = rank[number[keep]], milliseconds[keep] // 1000
    xy = np.stack([records.x[keep], records.y[keep]], axis=1)
    order = np.lexsort((second, taken))
    taken, second, xy = taken[order], second[order], xy[order]
    first = np.ones(len(taken), dtype=bool)  # of several records of a second the first counts
    first[1:] = (taken[1:] != taken[:-1]) | (second[1:] != second[:-1])
    return taken[first], second[first], xy[first], (x.min(), y.min(), x.max(), y.max())


def _linear_track(second: np.ndarray, xy: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Linear in gaps; inactive, with the position held, outside the records."""
    t = np.arange(slots)
    track = np.stack([np.interp(t, second, xy[:, axis]) for axis in (0, 1)], axis=1)
    return track, (t >= second[0]) & (t <= second[-1])


def _published_track(second: np.ndarray, xy: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Gaps arrive a second early, the last velocity goes on, who comes late jumps back; all active (README.md, 4.5)."""
    first, last = int(second[0]), int(second[-1])
    track = np.empty((slots, 2))
    for s, gap, here, there in zip(second[:-1], np.diff(second), xy[:-1], xy[1:], strict=True):
        if s < slots:
            share = np.arange(min(gap, slots - s)) / max(gap - 1, 1)
            track[s : s + gap] = here + (there - here) * share[:, None]
    if last < slots:
        track[last] = xy[-1]
        velocity = track[last] - track[last - 1] if len(second) > 1 else np.zeros(2)
        after = np.arange(1, slots - last)
        track[last + 1 :] = xy[-1] + after[:, None] * velocity
    if first > 0:
        velocity = (xy[1] - xy[0]) / (second[1] - second[0]) if len(second) > 1 else np.zeros(2)
        before = np.arange(min(first, slots))
        steps = np.where(before == 0, 1, before + 2)
        track[:first] = xy[0] + steps[:, None] * velocity
    return track, np.ones(slots, dtype=bool)
