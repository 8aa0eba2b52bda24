"""Synthetic traffic (README.md, 4.4): four seeded maps of straight roads, so that everything runs without a trace.

Every second a vehicle drives v = min(desired speed, gap - 7 m to its leader, what is left to a closed stop line). All
vehicles of all scenarios move at once; the numbers come from Philox with the key `seed` and the counter (scenario
index, element // 4, t, TRAFFIC_STREAM), so a scenario does not depend on which others are simulated beside it.
"""

from dataclasses import dataclass

import numpy as np

from ...checks import choice, integer
from ...noise import philox

TRAFFIC_STREAM = 8
GAP_M = 7.0  # from a vehicle to its leader, lengths included
DESIRED_MPS = (8.0, 14.0)
PHASE_S = 30
TURNED = np.array([[0, 1, 3, 2], [1, 3, 0, 2], [3, 1, 0, 2]])  # quarter turns left: first choice straight, left, right
STRAIGHT, LEFT = 0.5, 0.75  # a number below it turns so, above both right
HEADING = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])  # east, north, west, south: quarter turns left
JAM = 0.5  # so many parallel lanes that vehicles start in at most this share of the places
WIDTH_M = 3.0  # of a lane
PLACE_M = 8.0  # between places where vehicles can start
STOP_M = 5.0  # from a stop line to the middle of the crossing


@dataclass(frozen=True)
class Roads:
    """A grid of two-way roads."""

    size_m: tuple[float, float]  # of the map
    nodes: tuple[int, int]  # crossings along x and y
    margin_m: tuple[float, float]  # from the map's edge to the outer roads
    phases: int = 0  # of the signals: east-west, north-south, pedestrians; 0: no signals

    @property
    def block_m(self) -> tuple[float, float]:
        return tuple(
            (size - 2 * margin) / max(n - 1, 1)
            for size, n, margin in zip(self.size_m, self.nodes, self.margin_m, strict=True)
        )


MAPS = {
    "arterial": Roads((500.0, 30.0), (6, 1), (0.0, 15.0), phases=2),
    "city": Roads((2000.0, 2000.0), (10, 10), (100.0, 100.0), phases=3),
    "dense": Roads((70.0, 70.0), (3, 3), (10.0, 10.0), phases=2),
    "sparse": Roads((2000.0, 2000.0), (6, 6), (50.0, 50.0)),
}
TRAFFIC = tuple(MAPS)


def box(name: str) -> tuple[float, float, float, float]:
    """The map's x0, y0, x1, y1 in metres."""
    choice("traffic", name, TRAFFIC)
    return (0.0, 0.0, *MAPS[name].size_m)


def simulate(name: str, vehicles: int, slots: int, seed: int = 264, index=0) -> np.ndarray:
    """Positions of the vehicles at 1 Hz.

    Args:
        name: one of `TRAFFIC`.
        index: of the scenario, or an array [B] of them.

    Returns:
        [T, N, 2] m, for an array of indices [B, T, N, 2].
    """
    choice("traffic", name, TRAFFIC)
    integer("vehicles", vehicles, 1, 2**31 - 1)
    integer("slots", slots, 1, 2**31 - 1)
    integer("seed", seed, 0, 2**64 - 1)
    for one in np.unique(index).tolist():
        integer("index", one, 0, 2**32 - 1)
    traffic = _Traffic(MAPS[name], vehicles, slots, seed, np.atleast_1d(np.asarray(index)))
    xy = np.stack([traffic.xy() if t == 0 else traffic.drive(t) for t in range(slots)], axis=1)
    return xy if np.ndim(index) else xy[0]


def _uniform(seed: int, index, elements: int, t) -> np.ndarray:
    """Numbers in (0, 1), [B, len(t), elements]."""
    t = np.atleast_1d(t)
    blocks = np.arange(-(-elements // 4))
    words = philox((index[:, None, None], blocks, t[:, None], TRAFFIC_STREAM), seed)
    return ((np.moveaxis(words, 0, -1).reshape(len(index), len(t), -1)[..., :elements]) + 0.5) * 2.0**-32


class _Traffic:
    """Vehicles of B scenarios in one flat order, [V] with V = B*N.

    A vehicle is `along_m` metres into a lane: one of the parallel lanes that leave `node` with `heading`.
    """

    def __init__(self, roads: Roads, vehicles: int, slots: int, seed: int, index: np.ndarray):
        self.roads = roads
        self.batch, self.vehicles = len(index), vehicles
        columns, rows = roads.nodes
        x, y = np.divmod(np.arange(columns * rows), rows)
        self.leaves = np.stack([x < columns - 1, y < rows - 1, x > 0, y > 0], axis=-1)  # [nodes, 4] a road goes there
        self.next_node = np.array([rows, 1, -rows, -1])  # to add, by heading
        self.node_xy = np.stack([x, y], axis=-1) * roads.block_m + roads.margin_m
        self.length_m = np.array(roads.block_m * 2)  # [4] of a lane, by heading
        places = (self.leaves * (self.length_m // PLACE_M)).sum()
        self.lanes = max(1, int(np.ceil(vehicles / (JAM * places))))
        self.width_m = min(WIDTH_M, min(m for m in roads.margin_m if m > 0) / self.lanes)

        start = _uniform(seed, index, 5 * vehicles + len(x), 0)[:, 0]
        self.offset_s = start[:, 5 * vehicles :].reshape(-1) * PHASE_S * roads.phases  # [B * nodes]
        of_vehicle = start[:, : 5 * vehicles].reshape(self.batch, 5, vehicles)
        self.scenario = np.repeat(np.arange(self.batch), vehicles)
        self._place(of_vehicle[:, :3])
        slow, fast = DESIRED_MPS
        self.desired_mps = (slow + (fast - slow) * of_vehicle[:, 3]).reshape(-1)
        self.next_heading = self._turn(self.node, self.heading, of_vehicle[:, 4].reshape(-1))
        self.turns = _uniform(seed, index, vehicles, np.arange(1, slots)).reshape(self.batch, slots - 1, vehicles)

    def _place(self, drawn: np.ndarray):
        """Vehicles over places at least a gap apart, no two in one: one from each of N equal parts, parts permuted."""
        node, heading = np.nonzero(self.leaves)
        in_lane = (self.length_m[heading] // PLACE_M).astype(int)
        ends = np.cumsum(in_lane * self.lanes)
        part = np.argsort(np.argsort(drawn[:, 0], axis=1, kind="stable"), axis=1).reshape(-1)
        low, high = (np.floor(ends[-1] * (part + k) / self.vehicles) for k in (0, 1))
        place = (low + np.floor(drawn[:, 1].reshape(-1) * (high - low))).astype(int)
        road = np.searchsorted(ends, place, side="right")
        self.node, self.heading = node[road], heading[road]
        self.lane, place = np.divmod(place - (ends - in_lane * self.lanes)[road], in_lane[road])
        self.along_m = place * PLACE_M + (PLACE_M - GAP_M) * drawn[:, 2].reshape(-1)

    def _turn(self, node, heading, drawn) -> np.ndarray:
        """Heading of a vehicle after its lane: straight on, left or right; where no road goes there, the next of
        straight, left, right, back that exists."""
        ahead = self.leaves[node + self.next_node[heading]]  # [V, 4]
        wanted = np.where(drawn < STRAIGHT, 0, np.where(drawn < LEFT, 1, 2))
        turned = TURNED[wanted] + heading[:, None] & 3  # [V, 4] headings, best first
        possible = np.take_along_axis(ahead, turned, axis=1)
        return turned[np.arange(len(turned)), possible.argmax(axis=1)]

    def xy(self) -> np.ndarray:
        """[B, N, 2] m; traffic keeps to the right of the road's middle."""
        right = HEADING[self.heading - 1 & 3]
        across_m = (self.lane + 0.5) * self.width_m
        here = self.node_xy[self.node] + HEADING[self.heading] * self.along_m[:, None] + right * across_m[:, None]
        return here.reshape(self.batch, self.vehicles, 2)

    def _lane_key(self, node, heading) -> np.ndarray:
        """A number of its own for every lane of every scenario."""
        return ((self.scenario * len(self.leaves) + node) * 4 + heading) * self.lanes + self.lane

    def drive(self, t: int) -> np.ndarray:
        """One second; positions after it, [B, N, 2] m."""
        length = self.length_m[self.heading]
        end = self.node + self.next_node[self.heading]
        key, next_key = self._lane_key(self.node, self.heading), self._lane_key(end, self.next_heading)
        gap, leads = self._gap(key, next_key, length)
        v = np.minimum(self.desired_mps, np.maximum(gap - GAP_M, 0.0))
        # A vehicle over the stop line leaves the crossing; of those that would enter a lane at once only one does.
        left = length - self.along_m
        free = self._open(end, t) | (left < STOP_M - 1e-6)  # rounding passes no line
        goes = np.zeros_like(leads)
        entering = np.flatnonzero(leads & free & (v > left))
        goes[entering[np.unique(next_key[entering], return_index=True)[1]]] = True
        v = np.where(leads & ~free, np.minimum(v, left - STOP_M), v)
        v = np.where(goes, v, np.minimum(v, left))
        self.along_m = self.along_m + v - np.where(goes, length, 0.0)
        self.node = np.where(goes, end, self.node)
        self.heading = np.where(goes, self.next_heading, self.heading)
        entered = np.flatnonzero(goes)
        drawn = self.turns[:, t - 1].reshape(-1)[entered]
        self.next_heading[entered] = self._turn(self.node[entered], self.heading[entered], drawn)
        return self.xy()

    def _gap(self, key, next_key, length) -> tuple[np.ndarray, np.ndarray]:
        """Metres to the next vehicle in the lane, or to the last one in the lane after it; whether none is before."""
        order = np.lexsort((self.along_m, key))
        in_lane, along_m = key[order], self.along_m[order]
        foremost = np.append(in_lane[1:] != in_lane[:-1], True)
        hindmost = np.minimum(np.searchsorted(in_lane, next_key[order]), len(order) - 1)
        beyond = np.where(in_lane[hindmost] == next_key[order], along_m[hindmost], np.inf)
        ahead = np.where(foremost, length[order] + beyond, np.append(along_m[1:], np.inf))
        gap, leads = np.empty_like(ahead), np.empty_like(foremost)
        gap[order], leads[order] = ahead - along_m, foremost
        return gap, leads

    def _open(self, node, t: int) -> np.ndarray:
        """True where the signal at the lane's end lets a vehicle go: phase 0 east-west, 1 north-south, 2 nobody."""
        if self.roads.phases == 0:
            return np.ones(len(node), dtype=bool)
        clock = t + self.offset_s[self.scenario * len(self.leaves) + node]
        return (clock // PHASE_S) % self.roads.phases == self.heading % 2
