"""The exact oracle: depth-first over all walks, with a bound."""

import math
from collections.abc import Sequence

import numpy as np

from ..params import Params
from .problem import Answer, Oracle, Problem, answer

MOST = 4  # requests


class Brute(Oracle):
    """The cheapest of all walks, of up to four requests."""

    name = "brute"

    def __init__(self, params: Params, travel: np.ndarray, argument: str | None = None):
        if params.requests > MOST:
            raise ValueError(f"requests={params.requests} must be at most {MOST} where oracle='brute'")
        super().__init__(params, travel, argument)

    def route(self, problem: Problem, kept: Sequence[int] = ()) -> Answer:
        if problem.requests > MOST:
            raise ValueError(f"requests={problem.requests} must be at most {MOST} where oracle='brute'")
        search = Search(problem)
        search.go(0, 0, 0, 0, [], [], {})
        return answer(problem, search.routes, search.cost < math.inf)


class Search:
    """The cheapest routes found so far."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.cost, self.routes = math.inf, []

    def go(self, at: int, clock: int, load: int, cost: int, routes: list, route: list, due: dict[int, int]):
        """Tries everything that follows.

        Args:
            routes, route: that are over; of this vehicle.
            due: latest time of each drop-off on board.
        """
        problem, p = self.problem, self.problem.params
        if cost >= self.cost:
            return
        served = {node for one in (*routes, route) for node in one}
        if at == 0 and len(served) == problem.nodes - 1:
            self.cost, self.routes = cost, routes
            return
        if at and not due and clock + problem.leg(at, 0) <= p.horizon_ticks:
            self.go(0, 0, 0, cost + problem.leg(at, 0), [*routes, route], [], {})
        if at == 0 and len(routes) >= p.fleet_size:
            if p.fleet == "hard":
                return
            cost += p.extra_vehicle_ticks if p.fleet == "soft" else 0
        for node in range(1, problem.nodes):
            arrival = clock + problem.leg(at, node)
            if problem.is_pickup(node):
                if at == 0 and routes and node < routes[-1][0]:  # vehicles in the order of their first pickups
                    continue
                if node in served or load + problem.demand[node] > p.capacity or arrival > problem.latest[node]:
                    continue
                start = max(arrival, problem.earliest[node])
                after = due | {node + 1: problem.due(node, start)} if p.paired else due
            else:
                if node not in due or arrival > due[node]:
                    continue
                start = max(arrival, problem.earliest[node])
                after = {other: latest for other, latest in due.items() if other != node}
            self.go(
                node, start + problem.service[node], load + problem.demand[node],
                cost + problem.leg(at, node), routes, [*route, node], after,
            )  # fmt: skip
