"""Solvers as oracles, and PyVRP as a judge of all others."""

import numpy as np
import pytest

from lockstep.envs.vehicle_routing.oracles import make_oracle
from lockstep.envs.vehicle_routing.oracles.greedy import RULES
from lockstep.envs.vehicle_routing.oracles.problem import routes_of
from lockstep.envs.vehicle_routing.params import Params
from lockstep.envs.vehicle_routing.scenario import city, draw
from tests.envs.vehicle_routing.worlds import RIDE, checked, problem, random_problem, solved

pyvrp = pytest.importorskip("pyvrp", reason="the extra routing is not installed")
pytest.importorskip("ortools", reason="the extra routing is not installed")
WORDS = ("pyvrp:0.03", "ortools:0.2")
SOLVERS = pytest.mark.parametrize("word", WORDS)


def judged(given, walk) -> tuple[bool, int]:
    """True if PyVRP finds every route feasible, and the distance of all."""
    data = make_oracle("pyvrp", given.params, np.array(given.travel)).data(given)
    feasible, distance = True, 0
    for route in routes_of(walk):
        kinds = ["UL"[node % 2] + str((node - 1) // 2) for node in route] if given.params.paired else [
            f"C{node - 1}" for node in route
        ]  # fmt: skip
        found = pyvrp.Route(data, [pyvrp.Activity(kind) for kind in kinds], 0)
        feasible, distance = feasible and found.is_feasible(), distance + found.distance()
    return feasible, distance


def same_as_brute(rng, word: str, instances: int):
    for k in range(instances):
        given = random_problem(rng, int(rng.integers(1, 5)), tight=k % 2 == 0)
        found = solved(given, word)
        assert found.ok and checked(given, found) == found.cost == solved(given, "brute").cost
        assert judged(given, found.walk) == (True, found.cost)


@pytest.mark.parametrize(("word", "instances"), [*zip(WORDS, (25, 8), strict=True)])
def test_small_problems_are_solved_exactly(word, instances):
    same_as_brute(np.random.default_rng(0), word, instances)


@pytest.mark.long
@pytest.mark.parametrize(("word", "instances"), [*zip(WORDS, (1000, 100), strict=True)])
def test_many_small_problems_are_solved_exactly(word, instances):
    same_as_brute(np.random.default_rng(1), word, instances)


def test_pyvrp_finds_every_walk_feasible_and_of_the_same_distance():
    rng = np.random.default_rng(2)
    for k in range(60):
        given = random_problem(rng, int(rng.integers(1, 9)), tight=True)
        for oracle in (*(f"greedy:{rule}" for rule in RULES), "insertion"):
            found = solved(given, oracle)
            assert judged(given, found.walk) == (True, found.cost)
        rows = [[i, 0, int(rng.integers(100, 500)), i, 0, 0] for i in range(1, 7)]
        rows = [[*row[:3], *row[:3]] for row in rows]
        travel = 100 - 100 * np.eye(7, dtype=int)
        given = problem(rows, travel, mode="vrptw", capacity=3, demand=[1, 2, 1, 3, 1, 1])
        for oracle in ("greedy:nearest", "insertion", "pyvrp:0.01", *["ortools:0.2"] * (k < 5)):
            found = solved(given, oracle)
            assert found.ok and judged(given, found.walk) == (True, found.cost) and checked(given, found) == found.cost


def test_pyvrp_finds_learned_walks_feasible_and_of_the_same_distance():
    p = Params()
    c = city(params=p)
    for day in range(3):
        given = problem(draw(c, p, 0, 0, day).offered, c.travel, depot=c.depot)
        for word in ("am", "am-sample:4", "am-pomo:4"):
            found = solved(given, word)
            assert found.ok and judged(given, found.walk) == (True, found.cost)


def test_pyvrp_refuses_broken_walks():
    given = problem([RIDE, RIDE])
    assert judged(given, [0, 1, 3, 2, 4, 0]) == (True, 420)
    assert judged(problem([RIDE, RIDE], capacity=1), [0, 1, 3, 2, 4, 0])[0] is False
    assert judged(problem([RIDE, [1, 6000, 6100, 2, 6120, 6220]]), [0, 1, 2, 3, 4, 0])[0] is False
    for broken in ([0, 2, 1, 0], [0, 1, 0, 2, 0]):
        with pytest.raises(ValueError, match=r"\S"):
            judged(given, broken)


@SOLVERS
def test_fleets_are_priced_alike(word):
    """As by hand in test_oracles.py."""
    short = [1, 6000, 6100, 2, 6120, 6220]
    single = {"capacity": 1, "fleet_size": 2, "requests": 3}
    soft = solved(problem([short] * 3, fleet="soft", **single), word)
    assert (soft.cost, soft.vehicles, soft.ok) == (3 * 420 + 500, 3, True)
    assert not solved(problem([short] * 3, fleet="hard", **single), word).ok
    assert solved(problem([short] * 2, fleet="hard", **single), word).ok


@pytest.mark.parametrize("word", ["pyvrp:0.5", "ortools:1.5"])
def test_a_day_costs_less_than_by_any_rule(word):
    p = Params()
    c = city(params=p)
    given = problem(draw(c, p, 0, 0, 0).offered, c.travel, depot=c.depot)
    found = solved(given, word)
    assert found.ok and checked(given, found) == found.cost and judged(given, found.walk) == (True, found.cost)
    assert all(
        solved(given, oracle).cost > found.cost for oracle in (*(f"greedy:{rule}" for rule in RULES), "insertion")
    )
