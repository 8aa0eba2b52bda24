"""A routing problem, an oracle's answer, and the interface that all oracles share (README.md, 5)."""

import abc
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...checks import integer
from ..params import MOST, MOST_HORIZON, MOST_REQUESTS, TICKS, Params
from ..scenario.scenario import check_costs, check_times, whole


class Problem(NamedTuple):
    """Requests 0 .. n-1 in lists over nodes: 0 the depot, 2i+1 and 2i+2 pickup and drop-off, or i+1 where not paired.

    Times in ticks.
    """

    params: Params
    travel: list[list[int]]  # [Z][Z]
    zone: list[int]  # [N]
    earliest: list[int]  # a pickup's no earlier than max_ride before its drop-off's
    latest: list[int]  # of a drop-off without max_ride, which `due` minds
    demand: list[int]  # negative at a drop-off
    service: list[int]

    @property
    def nodes(self) -> int:
        return len(self.zone)

    @property
    def requests(self) -> int:
        return (self.nodes - 1) // 2 if self.params.paired else self.nodes - 1

    def leg(self, start: int, end: int) -> int:
        """Travel time between nodes."""
        return self.travel[self.zone[start]][self.zone[end]]

    def is_pickup(self, node: int) -> bool:
        """True of a pickup, and of every customer where requests have one node."""
        return not self.params.paired or node % 2 == 1

    def due(self, pickup: int, start: int) -> int:
        """Latest time of the drop-off of a ride that starts so."""
        ride = self.params.max_ride_ticks
        return min(self.latest[pickup + 1], start + ride) if ride else self.latest[pickup + 1]


class Answer(NamedTuple):
    """An oracle's answer."""

    cost: int  # ticks, the dear vehicles of a soft fleet included
    walk: list[int]  # nodes, from the depot to the depot
    vehicles: int
    ok: bool


def problem_of(params: Params, travel, depot: int, rows: Sequence, service: Sequence, demand: Sequence) -> Problem:
    """The problem of requests, in their order.

    Args:
        travel: [Z][Z] ticks, of lists.
        rows: (zone, e, l, zone', e', l') of each.
        service: (at pickup, at drop-off) of each, ticks.
        demand: of each.
    """
    zone, earliest, latest, change, stop = [depot], [0], [params.horizon_ticks], [0], [0]
    for (zone1, e1, l1, zone2, e2, l2), (stop1, stop2), q in zip(rows, service, demand, strict=True):
        if params.paired:
            zone += zone1, zone2
            earliest += e1, e2
            latest += l1, l2
            change += q, -q
            stop += stop1, stop2
        else:
            zone.append(zone1)
            earliest.append(e1)
            latest.append(l1)
            change.append(q)
            stop.append(stop1)
    return ready(params, travel, zone, earliest, latest, change, stop)


def ready(params: Params, travel, zone: list, earliest: list, latest: list, demand: list, service: list) -> Problem:
    """The problem of lists over nodes, whose pickups are made to open no sooner than `max_ride` allows."""
    ride = params.max_ride_ticks
    if ride and params.paired:
        for pickup in range(1, len(zone), 2):
            earliest[pickup] = max(earliest[pickup], earliest[pickup + 1] - ride)
    return Problem(params, travel, zone, earliest, latest, demand, service)


def answer(problem: Problem, routes: list[list[int]], complete: bool = True) -> Answer:
    """The answer of routes, which are lists of nodes without the depot.

    Args:
        complete: every node that has to be served is.
    """
    p, cost, walk = problem.params, 0, [0]
    for route in routes:
        for node in (*route, 0):
            cost += problem.leg(walk[-1], node)
            walk.append(node)
    extra = max(0, len(routes) - p.fleet_size)
    if p.fleet == "soft":
        cost += extra * p.extra_vehicle_ticks
    return Answer(cost, walk, len(routes), complete and not (p.fleet == "hard" and extra))


def routes_of(walk: Sequence[int]) -> list[list[int]]:
    """Routes of a walk."""
    routes: list[list[int]] = [[]]
    for node in walk:
        if node:
            routes[-1].append(node)
        elif routes[-1]:
            routes.append([])
    return routes[:-1]


class Oracle(abc.ABC):
    """An oracle; a subclass has `name` and `route`.

    Args:
        travel: [Z, Z] ticks.
        argument: what stands after the colon of its word; None: nothing.

    Raises:
        ValueError: an argument or parameters that it does not serve, or travel times that are none.
    """

    name: str

    def __init__(self, params: Params, travel: np.ndarray, argument: str | None = None):
        times = whole(travel, f"oracle={self.name!r}: travel", 2)
        check_times(times, params.horizon_ticks, f"oracle={self.name!r}")
        self.params, self.travel = params, times.tolist()
        self.read(argument)

    def read(self, argument: str | None):
        """Takes the argument."""
        if argument is not None:
            raise ValueError(f"oracle='{self.name}:{argument}' must be {self.name!r}, which takes no argument")

    @abc.abstractmethod
    def route(self, problem: Problem, kept: Sequence[int] = ()) -> Answer:
        """The answer to a problem.

        Args:
            kept: the walk over earlier requests, which incremental oracles extend.
        """

    def solve(self, nodes, earliest, latest, demand, service=None, mask=None):
        """Answers to B problems, each by itself.

        Args:
            nodes: zones [B, N], of which the first is the depot's; then of each request pickup and drop-off, or one.
            earliest, latest: windows [B, N], ticks; the depot's are not read, nor its demand and service.
            demand: [B, N], of a drop-off that of its pickup, negative.
            service: [B, N] ticks; None: 0.
            mask: [B, N] bool, true of the depot and of requests that are there, one or more; None: all.

        Returns:
            cost [B] int32 ticks, walk [B, 3n+1] int16 (4n+2 with `lookahead_mask`), padded with 0, vehicles [B] int32,
            ok [B] bool.

        Raises:
            ValueError: shapes that do not fit, a mask that splits a request, or a number without meaning; names it.
        """
        nodes = whole(nodes, "nodes", 2)
        given = {"earliest": earliest, "latest": latest, "demand": demand}
        given["service"] = np.zeros_like(nodes) if service is None else service
        columns = {"nodes": nodes} | {name: whole(part, name, 2) for name, part in given.items()}
        mask = np.ones(nodes.shape, bool) if mask is None else np.asarray(mask)
        per = 2 if self.params.paired else 1
        n = (nodes.shape[1] - 1) // per
        for name, array in (*columns.items(), ("mask", mask)):
            if array.shape != nodes.shape or not len(nodes) or nodes.shape[1] != per * n + 1:
                must = f"must be [B, {per} n + 1], B above 0"
                raise ValueError(f"{name} has shape {array.shape}, nodes {nodes.shape}: {must}")
        integer("requests", n, 1, MOST_REQUESTS)
        check_costs(n, np.array(self.travel), self.params, f"oracle={self.name!r}")
        if mask.dtype != bool:
            raise ValueError(f"mask is {mask.dtype}, must be bool")
        there = mask[:, 1:].reshape(len(nodes), n, per)
        alike = (there.any(axis=2) == there.all(axis=2)).all()
        if not mask[:, 0].all() or not there.any(axis=(1, 2)).all() or not alike:
            raise ValueError("mask must be true of the depot and of a request, and alike for the nodes of a request")
        for name, of_depot in (("earliest", 0), ("latest", self.params.horizon_ticks), ("demand", 0), ("service", 0)):
            columns[name][:, 0] = of_depot
        self._check(mask, **columns)
        return self.answer_all(*columns.values(), mask)

    def _check(self, mask, nodes, earliest, latest, demand, service):
        """Raises ValueError that names the first number of arrays [B, N] which means nothing."""
        least, most = np.ones_like(demand), np.full_like(demand, MOST)
        least[:, 0] = most[:, 0] = 0
        if self.params.paired:
            least[:, 2::2] = most[:, 2::2] = -demand[:, 1::2]
        for name, array, low, high, where in (
            ("nodes", nodes, 0, len(self.travel) - 1, True), ("earliest", earliest, 0, MOST_HORIZON * TICKS, mask),
            ("latest", latest, earliest, 2**31 - 1, mask), ("demand", demand, least, most, mask),
            ("service", service, 0, MOST_HORIZON * TICKS, mask),
        ):  # fmt: skip
            wrong = ((array < low) | (array > high)) & where
            for b, node in np.argwhere(wrong)[:1].tolist():
                low, high = (np.broadcast_to(bound, array.shape)[b, node] for bound in (low, high))
                allowed = low if low == high else f"from {low} to {high}"
                raise ValueError(f"{name}[{b}, {node}] is {array[b, node]}, must be {allowed}")

    def answer_all(self, nodes, earliest, latest, demand, service, mask):
        """The answers that `solve` returns, of arrays [B, N] that fit."""
        columns = (earliest, latest, demand, service)
        B, n = len(nodes), (nodes.shape[1] - 1) // (2 if self.params.paired else 1)
        cost, vehicles, ok = np.zeros(B, np.int32), np.zeros(B, np.int32), np.zeros(B, bool)
        walk = np.zeros((B, self.params.places(n)), np.int16)
        for b in range(B):
            place = np.nonzero(mask[b])[0]
            given = (part[b, place].tolist() for part in (nodes, *columns))
            cost[b], found, vehicles[b], ok[b] = self.route(ready(self.params, self.travel, *given))
            walk[b, : len(found)] = place[found]
        return cost, walk, vehicles, ok
