"""The insertion oracle: a new request enters the kept routes where it adds the least."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ..params import Params
from .problem import Answer, Oracle, Problem, answer, routes_of


class Insertion(Oracle):
    """Ties go to a new vehicle, then to the lowest route, place of the pickup, place of the drop-off."""

    name = "insertion"

    def __init__(self, params: Params, travel: np.ndarray, argument: str | None = None):
        refuse_max_ride(self.name, params)
        super().__init__(params, travel, argument)

    def route(self, problem: Problem, kept: Sequence[int] = ()) -> Answer:
        """The answer; `kept` may lack any requests, which enter in their order."""
        routes = routes_of(kept)
        served = {node for route in routes for node in route}
        for first in range(1, problem.nodes, 2 if problem.params.paired else 1):
            if first not in served and not insert(problem, routes, first):
                return answer(problem, routes, False)
        return answer(problem, routes)


def refuse_max_ride(oracle: str, params: Params):
    if params.max_ride:
        raise ValueError(f"max_ride={params.max_ride} must be 0 where oracle={oracle!r}, which cannot mind it")


def insert(problem: Problem, routes: list[list[int]], first: int) -> bool:
    """Puts the request of node `first` into the routes; False where there is no place."""
    p, nodes = problem.params, [first, first + 1] if problem.params.paired else [first]
    best, where = math.inf, None
    if feasible(problem, nodes) and not (p.fleet == "hard" and len(routes) >= p.fleet_size):
        best, where = sum(map(problem.leg, [0, *nodes], [*nodes, 0])), (len(routes), nodes)
        if p.fleet == "soft" and len(routes) >= p.fleet_size:
            best += p.extra_vehicle_ticks
    for number, route in enumerate(routes):
        found = cheapest(problem, route, nodes, best)
        if found:
            best, where = found[0], (number, found[1])
    if where is None:
        return False
    number, route = where
    routes[number : number + 1] = [route]
    return True


def cheapest(problem: Problem, route: list[int], nodes: list[int], best: float) -> tuple[int, list[int]] | None:
    """The least that nodes add to a route, if less than `best`, and the route with them."""
    leg, stops, found = problem.leg, [0, *route, 0], None
    first, last = nodes[0], nodes[-1]
    direct = [leg(a, b) for a, b in itertools.pairwise(stops)]
    before = [leg(a, first) for a in stops[:-1]]
    detour = [leg(a, last) + leg(last, b) - d for (a, b), d in zip(itertools.pairwise(stops), direct, strict=True)]
    for a in range(len(direct)):
        if len(nodes) == 1:
            added = {a: detour[a]}
        else:
            apart = before[a] + leg(first, stops[a + 1]) - direct[a]
            added = {b: apart + detour[b] for b in range(a + 1, len(direct))}
            added = {a: before[a] + leg(first, last) + leg(last, stops[a + 1]) - direct[a]} | added
        for b, more in added.items():
            if more < best:
                longer = [*route[:a], *nodes[:-1], *route[a:b], last, *route[b:]]
                if feasible(problem, longer):
                    best, found = more, (more, longer)
    return found


def feasible(problem: Problem, route: list[int]) -> bool:
    """True if a vehicle can serve the route."""
    zone, travel, capacity = problem.zone, problem.travel, problem.params.capacity
    earliest, latest, demand, service = problem.earliest, problem.latest, problem.demand, problem.service
    at = clock = load = 0
    for node in route:
        clock += travel[zone[at]][zone[node]]
        load += demand[node]
        if clock > latest[node] or load > capacity:
            return False
        if clock < earliest[node]:
            clock = earliest[node]
        clock += service[node]
        at = node
    return clock + travel[zone[at]][zone[0]] <= problem.params.horizon_ticks
