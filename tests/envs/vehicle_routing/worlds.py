"""Small scenarios by hand, and random routing problems."""

import functools

import numpy as np

from lockstep import envs
from lockstep.envs.vehicle_routing import original
from lockstep.envs.vehicle_routing.checker import check
from lockstep.envs.vehicle_routing.oracles import Answer, Problem, make_oracle, problem_of
from lockstep.envs.vehicle_routing.original import VehicleRouting
from lockstep.envs.vehicle_routing.params import Params, make_params
from lockstep.envs.vehicle_routing.scenario import Scenario
from lockstep.envs.vehicle_routing.scenario.scenario import closure

# Depot 0, A 1, B 2: 0-A 10, 0-B 20, A-B 12 min, both ways.
TRIANGLE = np.array([[0, 100, 200], [100, 0, 120], [200, 120, 0]])
RIDE = [1, 6000, 6300, 2, 6120, 6420]  # A to B, [600, 630] and [612, 642] min

make = functools.partial(original.make, oracle="insertion")
batch = functools.partial(envs.make, "vehicle_routing", oracle="insertion")


def scene(trips=(RIDE, RIDE), kinds=None, travel=TRIANGLE, **more) -> Scenario:
    """One instance of a trip (zone, e, l, zone', e', l'; ticks) of each traveller, by default of type "both"."""
    kinds = [3] * len(trips) if kinds is None else kinds
    return Scenario(travel=travel, trip=np.array(trips)[:, None], type=kinds, fixed=True, **more)


def opened(given: Scenario | None = None, preset=None, oracle="insertion", **single) -> VehicleRouting:
    """An environment in the first episode of a scene."""
    given = scene() if given is None else given
    env = VehicleRouting(make_params(preset, **given.options() | single), given, oracle)
    env.reset()
    return env


def problem(rows, travel=TRIANGLE, service=None, demand=None, depot=0, **single) -> Problem:
    """The routing problem of rows (zone, e, l, zone', e', l')."""
    params = Params(**{"requests": len(rows)} | single)
    service, demand = service or [(0, 0)] * len(rows), demand or [1] * len(rows)
    return problem_of(params, np.asarray(travel).tolist(), depot, rows, service, demand)


def solved(given: Problem, oracle: str) -> Answer:
    return make_oracle(oracle, given.params, np.array(given.travel)).route(given)


def checked(given: Problem, found: Answer) -> int:
    """Ticks travelled by an answer's walk, which the checker has passed."""
    p = given.params
    windows = given.earliest, given.latest
    travelled, vehicles = check(
        found.walk, given.travel, given.zone, *windows, given.demand, p.capacity, p.horizon_ticks, given.service,
        p.max_ride_ticks, p.paired,
    )  # fmt: skip
    assert vehicles == found.vehicles
    return travelled


def random_rows(rng, requests: int, travel, step: int = 50, tight: bool = False) -> list[list[int]]:
    """Requests that a vehicle can serve alone, all times on a grid of `step` ticks, so that many are equal."""
    rows, Z = [], len(travel)
    while len(rows) < requests:
        zone, zone2 = rng.integers(0, Z, 2).tolist()
        e1 = int(rng.integers(8, 20 if tight else 60)) * step
        ride = -(-int(travel[zone, zone2]) // step) * step
        width, width2 = (int(rng.integers(1, 7)) * step for _ in range(2))
        e2 = e1 + ride + int(rng.integers(0, 4)) * step
        rows.append([zone, e1, e1 + width, zone2, e2, e2 + width2])
    return rows


def random_travel(rng, zones: int = 6, step: int = 50) -> np.ndarray:
    """Asymmetric times [Z, Z] on a grid, without violated triangles; no zone is over 8 steps from another."""
    travel = rng.integers(1, 9, (zones, zones)) * step
    np.fill_diagonal(travel, 0)
    return closure(travel)


def random_problem(rng, count: int, tight: bool = False, **single) -> Problem:
    """A problem with many ties; each request can be served alone."""
    travel = random_travel(rng)
    single = {"capacity": int(rng.integers(1, 5))} | single
    return problem(random_rows(rng, count, travel, tight=tight), travel, **single)
