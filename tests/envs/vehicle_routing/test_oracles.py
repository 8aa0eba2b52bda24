"""Oracles: cases by hand, exactness, and what they refuse."""

import builtins
import itertools
import re

import numpy as np
import pytest

from lockstep.envs.vehicle_routing.checker import check
from lockstep.envs.vehicle_routing.oracles import make_oracle
from lockstep.envs.vehicle_routing.oracles.problem import answer, routes_of
from lockstep.envs.vehicle_routing.params import Params
from lockstep.envs.vehicle_routing.scenario.scenario import closure
from tests.envs.vehicle_routing.worlds import RIDE, TRIANGLE, checked, problem, random_problem, random_rows, solved

EVERY = ("greedy:nearest", "greedy:soonest", "greedy:mixed", "insertion", "brute")
FAR = 100 - 100 * np.eye(9, dtype=int)


# ---- by hand


@pytest.mark.parametrize("oracle", EVERY)
def test_two_rides_along_one_street(oracle):
    """Together 42 min; one after the other 66; with windows of 10 min two vehicles are needed, 84."""
    short = [1, 6000, 6100, 2, 6120, 6220]
    for rows, capacity, cost, vehicles in (
        ([RIDE, RIDE], 8, 420, 1), ([RIDE, RIDE], 1, 660, 1), ([short, short], 1, 840, 2), ([short, short], 8, 420, 1),
    ):  # fmt: skip
        given = problem(rows, capacity=capacity)
        found = solved(given, oracle)
        assert (found.cost, found.vehicles, found.ok) == (cost, vehicles, True) and checked(given, found) == cost


@pytest.mark.parametrize("oracle", EVERY)
def test_one_request_costs_its_three_legs(oracle):
    rng = np.random.default_rng(0)
    for _ in range(20):
        given = random_problem(rng, 1)
        legs = given.leg(0, 1) + given.leg(1, 2) + given.leg(2, 0)
        assert solved(given, oracle) == (legs, [0, 1, 2, 0], 1, True)
    assert solved(problem([[0, 0, 9000, 0, 0, 9000]] * 3), oracle).cost == 0


@pytest.mark.parametrize("oracle", EVERY)
def test_costs_scale_with_travel_times_where_windows_are_open(oracle):
    rng = np.random.default_rng(1)
    for _ in range(10):
        given = random_problem(rng, 3, requests=4)
        wide = [[given.zone[i], 0, 14_000, given.zone[i + 1], 0, 14_000] for i in (1, 3, 5)]
        one, three = (problem(wide, np.array(given.travel) * c, requests=4) for c in (1, 3))
        assert solved(three, oracle).cost == 3 * solved(one, oracle).cost


def test_rules_of_the_greedy_oracle():
    """Node 3 is nearest, 1 soonest, and 5 the least of start + three times the way; twice would be 1, four times 3."""
    travel = FAR.copy()
    travel[0, [1, 3, 5]] = 26, 10, 18
    rows = [[1, 40, 900, 2, 0, 9000], [3, 90, 900, 4, 0, 9000], [5, 60, 900, 6, 0, 9000]]
    first = {rule: solved(problem(rows, travel), f"greedy:{rule}").walk[1] for rule in ("nearest", "soonest", "mixed")}
    assert first == {"nearest": 3, "soonest": 1, "mixed": 5}
    assert solved(problem(rows, travel), "greedy") == solved(problem(rows, travel), "greedy:mixed")


def test_ties_go_to_the_lowest_node_and_the_depot_comes_last():
    rows = [[1, 0, 9000, 2, 0, 9000], [3, 0, 9000, 4, 0, 9000]]
    found = solved(problem(rows, FAR), "greedy:nearest")
    assert found.walk == [0, 1, 2, 3, 4, 0]  # after 1, both 2 and 3 are 10 min away; after 2, 3 and the depot


def test_insertion_prefers_a_new_vehicle_then_the_first_place():
    """Zones all in one place but the depot: everything costs 200 more in a new vehicle, and 0 in the first."""
    travel = np.array([[0, 100], [100, 0]])
    row = [1, 0, 9000, 1, 0, 9000]
    assert solved(problem([row, row], travel), "insertion").walk == [0, 3, 4, 1, 2, 0]
    free = np.zeros((2, 2), int)
    assert solved(problem([row, row, row], free), "insertion").walk == [0, 1, 2, 0, 3, 4, 0, 5, 6, 0]
    p = {"fleet": "hard", "fleet_size": 2}
    assert solved(problem([row, row, row], free, **p), "insertion").walk == [0, 5, 6, 1, 2, 0, 3, 4, 0]


def test_a_soft_fleet_prices_vehicles_and_a_hard_one_fails():
    """Three rides at one time with one seat each; K = 2, the third vehicle costs 50 min more."""
    short = [1, 6000, 6100, 2, 6120, 6220]
    for oracle in EVERY:
        single = {"capacity": 1, "fleet_size": 2, "requests": 3}
        given = problem([short] * 3, **single)
        assert solved(given, oracle)[2:] == (3, True) and solved(given, oracle).cost == 3 * 420
        soft = solved(problem([short] * 3, fleet="soft", **single), oracle)
        assert (soft.cost, soft.vehicles, soft.ok) == (3 * 420 + 500, 3, True)
        assert not solved(problem([short] * 3, fleet="hard", **single), oracle).ok
        assert solved(problem([short] * 2, fleet="hard", **single), oracle).ok


@pytest.mark.parametrize("oracle", ["insertion", "brute"])
def test_a_dear_vehicle_is_left_out_where_a_detour_costs_less(oracle):
    """A vehicle of its own would cost 600, behind the first ride it costs 800."""
    travel = 400 - 400 * np.eye(5, dtype=int)
    travel[0], travel[:, 0] = 100, 100
    travel[0, 0] = 0
    rows = [[1, 0, 9000, 2, 0, 9000], [3, 0, 9000, 4, 0, 9000]]
    given = [problem(rows, travel, fleet=fleet, fleet_size=1) for fleet in ("unlimited", "soft")]
    assert [solved(one, oracle).cost for one in given] == [1200, 1400]


# ---- exactness


def naive_insertion(given) -> list[list[int]]:
    """Insertion that tries every pair of places anew, and asks the checker."""
    routes = []
    for first in range(1, given.nodes, 2):
        best = None
        alone = [[first, first + 1]]
        places = [(len(routes), alone[0])]
        for number, route in enumerate(routes):
            for a, b in itertools.combinations(range(len(route) + 2), 2):
                longer = list(route)
                longer.insert(a, first)
                longer.insert(b, first + 1)
                places.append((number, longer))
        for number, longer in places:
            tried = [*routes[:number], longer, *routes[number + 1 :]]
            found = answer(given, tried)
            nodes = [0, *sorted(node for route in tried for node in route)]
            renamed = [nodes.index(node) for node in found.walk]
            part = [
                [values[node] for node in nodes] for values in (given.zone, given.earliest, given.latest, given.demand)
            ]
            try:
                check(renamed, given.travel, *part, given.params.capacity, given.params.horizon_ticks)
            except ValueError:
                continue
            if best is None or found.cost < best[0]:
                best = found.cost, tried
        routes = best[1]
    return routes


def test_insertion_is_that_of_every_pair_of_places():
    rng = np.random.default_rng(2)
    for _ in range(60):
        given = random_problem(rng, int(rng.integers(1, 7)), tight=True)
        assert routes_of(solved(given, "insertion").walk) == naive_insertion(given)


def test_insertion_goes_on_from_kept_routes():
    rng = np.random.default_rng(3)
    for _ in range(20):
        given = random_problem(rng, 6, tight=True)
        oracle, kept = make_oracle("insertion", given.params, np.array(given.travel)), [0]
        for t in range(1, 7):
            part = given._replace(**{name: getattr(given, name)[: 2 * t + 1] for name in
                                     ("zone", "earliest", "latest", "demand", "service")})  # fmt: skip
            kept = oracle.route(part, kept).walk
        assert kept == oracle.route(given).walk


def test_no_oracle_is_cheaper_than_the_exact_one():
    rng, gaps = np.random.default_rng(4), dict.fromkeys(EVERY, 0)
    for _ in range(80):
        given = random_problem(rng, int(rng.integers(1, 4)), tight=True)
        best = solved(given, "brute")
        assert checked(given, best) == best.cost
        for oracle in EVERY:
            gaps[oracle] += solved(given, oracle).cost - best.cost
            assert solved(given, oracle).cost >= best.cost
    assert gaps["brute"] == 0 < min(gap for oracle, gap in gaps.items() if oracle != "brute")


def test_the_exact_cost_is_the_least_of_all_walks():
    """All walks of two requests, by permutations of their nodes and the depot."""
    rng = np.random.default_rng(5)
    for _ in range(25):
        given, costs = random_problem(rng, 2, tight=True), []
        for middle in itertools.permutations([0, 1, 2, 3, 4]):
            for walk in ([0, *middle, 0], [0, *(node for node in middle if node), 0]):
                found = answer(given, routes_of(walk))
                if found.walk == walk:
                    try:
                        costs.append(checked(given, found))
                    except ValueError:
                        continue
        assert solved(given, "brute").cost == min(costs)


def test_the_exact_cost_never_falls_when_a_request_is_added():
    rng = np.random.default_rng(6)
    for _ in range(40):
        given = random_problem(rng, 3, tight=True)
        fewer = given._replace(**{name: getattr(given, name)[:5] for name in
                                  ("zone", "earliest", "latest", "demand", "service")})  # fmt: skip
        assert solved(fewer, "brute").cost <= solved(given, "brute").cost


@pytest.mark.parametrize("oracle", [oracle for oracle in EVERY if oracle != "insertion"])
def test_the_order_of_requests_does_not_matter_without_ties(oracle):
    """Every node in a zone of its own; insertion goes by the order."""
    rng = np.random.default_rng(11)
    for _ in range(8):
        travel = closure(rng.integers(50, 400, (9, 9)) * (1 - np.eye(9, dtype=int)))
        rows = [
            [2 * i + 1, e, e + 200, 2 * i + 2, e + 400, e + 700]
            for i, e in enumerate(rng.integers(400, 900, 4).tolist())
        ]
        costs = {
            solved(problem([rows[i] for i in order], travel), oracle).cost for order in itertools.permutations(range(4))
        }
        assert len(costs) == 1


@pytest.mark.parametrize("oracle", ["greedy:nearest", "insertion", "brute"])
def test_customers_with_one_node(oracle):
    """Q = 2 of unit demands: two and one; the window of the third closes first."""
    rows = [[1, 0, 9000, 1, 0, 9000], [2, 0, 9000, 2, 0, 9000], [3, 0, 100, 3, 0, 100]]
    given = problem(rows, FAR, mode="vrptw", capacity=2)
    found = solved(given, oracle)
    assert found.cost == 500 and found.vehicles == 2 and checked(given, found) == 500


@pytest.mark.parametrize("oracle", ["greedy:nearest", "greedy:soonest", "greedy:mixed", "brute"])
def test_rides_are_limited_where_an_oracle_can_mind_it(oracle):
    rng = np.random.default_rng(7)
    longest = 0
    for _ in range(40):
        given = random_problem(rng, 3, tight=True, max_ride=50.0)
        found = solved(given, oracle)
        assert found.ok and checked(given, found) == found.cost
        open_ended = given._replace(params=Params(requests=3, capacity=given.params.capacity))
        longest += solved(open_ended, oracle).walk != found.walk
    assert longest > 0


# ---- many at once


def batch(rng, count: int, requests: int):
    travel = np.array(random_problem(rng, 1).travel)
    rows = np.array([random_rows(rng, requests, travel) for _ in range(count)])
    fields = [
        np.insert(rows[:, :, [k, k + 3]].reshape(count, -1), 0, depot, axis=1) for k, depot in ((0, 0), (1, 0), (2, 0))
    ]
    demand = np.insert(np.tile([1, -1], (count, requests)), 0, 0, axis=1)
    return travel, rows, (*fields, demand)


@pytest.mark.parametrize("oracle", ["greedy", "insertion", "brute"])
def test_a_batch_is_solved_as_each_by_itself(oracle):
    travel, rows, arrays = batch(np.random.default_rng(8), 6, 4)
    cost, walk, vehicles, ok = make_oracle(oracle, Params(requests=4), travel).solve(*arrays)
    assert [array.dtype for array in (cost, walk, vehicles, ok)] == [np.int32, np.int16, np.int32, bool]
    assert walk.shape == (6, 13)
    for b in range(6):
        found = solved(problem(rows[b].tolist(), travel, requests=4), oracle)
        assert (cost[b], vehicles[b], ok[b]) == (found.cost, found.vehicles, found.ok)
        assert walk[b].tolist() == found.walk + [0] * (13 - len(found.walk))


def test_a_mask_leaves_requests_out():
    travel, rows, arrays = batch(np.random.default_rng(9), 3, 4)
    mask = np.ones((3, 9), bool)
    mask[0, 3:5] = mask[1, 5:] = False
    cost, walk, _, ok = make_oracle("insertion", Params(), travel).solve(*arrays, mask=mask)
    for b, left in enumerate(([0, 2, 3], [0, 1], [0, 1, 2, 3])):
        found = solved(problem(rows[b, left].tolist(), travel), "insertion")
        nodes = [0, *(node for i in left for node in (2 * i + 1, 2 * i + 2))]
        assert ok[b] and cost[b] == found.cost
        assert walk[b][: len(found.walk)].tolist() == [nodes[node] for node in found.walk]
    mask[2, 8] = False
    with pytest.raises(ValueError, match="alike for the nodes of a request"):
        make_oracle("insertion", Params(), travel).solve(*arrays, mask=mask)
    with pytest.raises(ValueError, match=re.escape("service has shape (3, 2), nodes (3, 9): must be [B, 2 n + 1]")):
        make_oracle("insertion", Params(), travel).solve(*arrays, service=np.zeros((3, 2)))


def test_a_batch_minds_service_and_rides():
    """Rider 1 is fetched no sooner than a ride before 6180; both fit into one vehicle, unless pickups take time."""
    nodes, demand = np.array([[0, 1, 2, 1, 2]]), np.array([[0, 1, -1, 1, -1]])
    windows = np.array([[0, 6000, 6180, 6000, 6120]]), np.array([[0, 6300, 6420, 6300, 6420]])
    tight = make_oracle("brute", Params(requests=2, max_ride=12.0), TRIANGLE)
    cost, walk, _, ok = tight.solve(nodes, *windows, demand)
    assert ok[0] and cost[0] == 420 and walk[0].tolist() == [0, 1, 3, 2, 4, 0, 0]
    longer = make_oracle("brute", Params(requests=2, max_ride=19.0), TRIANGLE)
    stop = np.array([[0, 60, 0, 60, 0]])
    assert longer.solve(nodes, *windows, demand)[0][0] == 420 < longer.solve(nodes, *windows, demand, stop)[0][0]


def test_answers_of_neighbours_do_not_matter():
    travel, _, arrays = batch(np.random.default_rng(10), 5, 3)
    oracle = make_oracle("greedy", Params(), travel)
    whole = oracle.solve(*arrays)
    turned = oracle.solve(*(array[::-1] for array in arrays))
    assert all(np.array_equal(a, b[::-1]) for a, b in zip(whole, turned, strict=True))


# ---- refusals


@pytest.mark.parametrize(
    ("word", "single", "said"),
    [
        ("gredy", {}, "oracle='gredy' is unknown; did you mean 'greedy'?"),
        (None, {}, "oracle=None is unknown"),
        ("greedy:nearst", {}, "rule 'nearst' is unknown; did you mean 'nearest'?"),
        ("greedy:", {}, "rule '' is unknown"),
        ("insertion:3", {}, "oracle='insertion:3' must be 'insertion', which takes no argument"),
        ("brute", {"requests": 5}, "requests=5 must be at most 4 where oracle='brute'"),
        ("insertion", {"max_ride": 90.0}, "max_ride=90.0 must be 0 where oracle='insertion'"),
        ("pyvrp", {"max_ride": 90.0}, "max_ride=90.0 must be 0 where oracle='pyvrp'"),
        ("ortools", {"max_ride": 90.0}, "max_ride=90.0 must be 0 where oracle='ortools'"),
        ("ortools:nan", {}, "oracle='ortools:nan' must have a positive number of seconds"),
        ("pyvrp:0", {}, "oracle='pyvrp:0' must have a positive number of seconds"),
        ("pyvrp:fast", {}, "oracle='pyvrp:fast' must have a positive number of seconds"),
    ],
)
def test_what_an_oracle_cannot_do_is_refused(word, single, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        make_oracle(word, Params(**single), TRIANGLE)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes": [0, 1, 2, 1, 2]}, "nodes is int64 (5,), must hold numbers in 2 axes"),
        ({"nodes": [[0, 1, 2, 1, 2], [0]]}, "nodes has rows of different lengths, must hold numbers in 2 axes"),
        ({"nodes": [[0, 1, 2, 1]]}, "nodes has shape (1, 4), nodes (1, 4): must be [B, 2 n + 1], B above 0"),
        ({"nodes": np.zeros((0, 5))}, "nodes has shape (0, 5), nodes (0, 5): must be [B, 2 n + 1], B above 0"),
        ({"latest": [[0]]}, "latest has shape (1, 1), nodes (1, 5): must be [B, 2 n + 1]"),
        ({"nodes": [[0, 1, 3, 1, 2]]}, "nodes[0, 2] is 3, must be from 0 to 2"),
        ({"nodes": [[0, 1, -1, 1, 2]]}, "nodes[0, 2] is -1, must be from 0 to 2"),
        ({"earliest": [[0, 6000, np.nan, 6000, 6120]]}, "earliest[0, 2] is nan, must be a whole number of int32"),
        ({"earliest": [[0, -10, 6120, 6000, 6120]]}, "earliest[0, 1] is -10, must be from 0 to 10000000"),
        ({"latest": [[0, 6300, 6420, 5999, 6420]]}, "latest[0, 3] is 5999, must be from 6000 to 2147483647"),
        ({"latest": [["a"] * 5]}, "latest is <U1 (1, 5), must hold numbers in 2 axes"),
        ({"demand": [[0, 1, -1, 1, 1]]}, "demand[0, 4] is 1, must be -1"),
        ({"demand": [[0, 0, 0, 1, -1]]}, "demand[0, 1] is 0, must be from 1 to 1000000"),
        ({"service": [[0, 0, 0, -1, 0]]}, "service[0, 3] is -1, must be from 0 to 10000000"),
        ({"mask": np.ones((1, 5))}, "mask is float64, must be bool"),
        ({"mask": np.arange(5)[None] < 1}, "mask must be true of the depot and of a request"),
    ],
)  # fmt: skip
def test_a_batch_without_meaning_is_refused(change, said):
    given = {
        "nodes": [[0, 1, 2, 1, 2]], "earliest": [[0, 6000, 6120, 6000, 6120]],
        "latest": [[0, 6300, 6420, 6300, 6420]], "demand": [[0, 1, -1, 1, -1]],
    }  # fmt: skip
    asked = make_oracle("insertion", Params(requests=2), TRIANGLE)
    assert asked.solve(**given)[0] == [420]
    with pytest.raises(ValueError, match=re.escape(said)):
        asked.solve(**given | change)


def test_more_requests_than_there_may_be_are_refused():
    nodes = np.zeros((1, 2003), int)
    with pytest.raises(ValueError, match="requests=1001 must be an integer from 1 to 1000"):
        make_oracle("insertion", Params(), TRIANGLE).solve(nodes, nodes, nodes, nodes)
    far = make_oracle("insertion", Params(horizon=1e6), [[0, 9_000_000], [9_000_000, 0]])
    with pytest.raises(ValueError, match="oracle='insertion': walks over 100 requests may cost 2709050000 ticks"):
        far.solve(*[nodes[:, :201]] * 4)


@pytest.mark.parametrize(
    ("travel", "said"),
    [
        ([[0, 1, 2], [1, 0, 2]], "oracle='greedy': travel has shape (2, 3), must be square"),
        ([[0, -1], [1, 0]], "oracle='greedy': travel[0, 1] is -1, must not be negative"),
        ([[0, 1], [1, 1]], "oracle='greedy': travel[1, 1] is 1, must be 0, from a zone to itself"),
        ([[0, np.nan], [1, 0]], "oracle='greedy': travel[0, 1] is nan, must be a whole number of int32"),
        ([[0, 1], [14_401, 0]], "oracle='greedy': travel[1, 0] is 14401, must be at most 14400, the horizon"),
    ],
)
def test_travel_times_that_are_none_are_refused(travel, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        make_oracle("greedy", Params(), travel)


def test_brute_refuses_a_fifth_request():
    oracle = make_oracle("brute", Params(requests=4), TRIANGLE)
    with pytest.raises(ValueError, match="requests=5 must be at most 4 where oracle='brute'"):
        oracle.route(problem([RIDE] * 5))


@pytest.mark.parametrize("solver", ["pyvrp", "ortools"])
def test_a_missing_solver_is_named_with_its_extra(solver, monkeypatch):
    found = builtins.__import__

    def without(name, *arguments, **more):
        if name.partition(".")[0] == solver:
            raise ModuleNotFoundError(f"No module named {solver!r}", name=solver)
        return found(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        ImportError, match=re.escape(f"oracle={solver!r} needs {solver}: pip install 'lockstep[routing]'")
    ):
        make_oracle(solver, Params(), TRIANGLE)
