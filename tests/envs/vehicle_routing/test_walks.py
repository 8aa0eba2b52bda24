"""Walk rules: no dead end under the default mask, and what the published one does."""

from bisect import bisect_right

import numpy as np
import pytest

from lockstep.envs.vehicle_routing.oracles import make_oracle
from lockstep.envs.vehicle_routing.oracles.greedy import RULES
from lockstep.envs.vehicle_routing.oracles.walker import LookaheadWalker, Walker, walked
from lockstep.envs.vehicle_routing.params import Params
from lockstep.envs.vehicle_routing.scenario import city, draw
from tests.envs.vehicle_routing.worlds import checked, problem, random_problem, solved

FAR = 100 - 100 * np.eye(7, dtype=int)  # every zone 10 min from every other


def completed(walker, rng) -> bool:
    """True if a random walk comes to its end."""
    while not walker.over:
        allowed = walker.allowed()
        if not allowed:
            return False
        walker.select(allowed[rng.integers(len(allowed))])
    return True


# ---- the default mask


def test_the_mask_by_hand():
    """A rider due soon forbids what would make him late; the depot is allowed only to an empty vehicle."""
    rows = [[1, 0, 9000, 2, 0, 300], [3, 0, 9000, 4, 0, 9000], [5, 500, 9000, 6, 0, 9000]]
    walker = Walker(problem(rows, FAR, capacity=2))
    assert walker.allowed() == [1, 3, 5]
    walker.select(1)
    assert walker.allowed() == [2, 3]  # 5 would open too late for drop-off 2
    walker.select(3)
    assert walker.allowed() == [2] and walker.riders == [(300, 2), (9000, 4)]  # full, and 4 would make 2 late
    walker.select(2)
    assert walker.allowed() == [4, 5] and (walker.clock, walker.load) == (300, 1)
    walker.select(4)
    assert walker.allowed() == [0, 5]
    walker.select(0)
    assert (walker.at, walker.clock, walker.load) == (0, 0, 0) and walker.allowed() == [5]


def test_the_depot_must_be_reached_by_the_end_of_the_day():
    rows = [[1, 0, 9000, 2, 0, 9000], [3, 0, 9000, 4, 0, 9000]]
    walker = Walker(problem(rows, FAR, horizon=40.0))
    walker.select(1)
    assert walker.allowed() == [2]  # 1-3-2-4-0 returns at 500
    longer = Walker(problem(rows, FAR, horizon=50.0))
    longer.select(1)
    assert longer.allowed() == [2, 3]


def test_service_counts_between_arrivals():
    rows = [[1, 0, 100, 2, 0, 230], [3, 0, 300, 4, 0, 9000]]
    for stop, allowed in ((30, [2]), (31, [])):
        walker = Walker(problem(rows, FAR, service=[(stop, 0), (0, 0)]))
        assert walker.on_time(1) and walker.completes(1) == bool(allowed)
    served = Walker(problem([[1, 0, 100, 2, 0, 300]], FAR, service=[(30, 5)]))
    served.select(1)
    assert served.clock == 130
    served.select(2)
    assert served.clock == 235


def test_a_ride_is_no_longer_than_it_may_be():
    rows = [[1, 0, 9000, 2, 0, 9000], [3, 0, 9000, 4, 0, 9000]]
    walker = Walker(problem(rows, FAR, max_ride=19.9))
    walker.select(1)
    assert walker.allowed() == [2] and walker.due[2] == 100 + 199
    other = Walker(problem(rows, FAR, max_ride=20.0))
    other.select(1)
    assert other.allowed() == [2, 3]


def test_customers_are_allowed_while_they_fit_and_the_day_lasts():
    rows = [[1, 0, 100, 1, 0, 100], [2, 0, 900, 2, 0, 900], [3, 0, 199, 3, 0, 199]]
    given = problem(rows, FAR, demand=[2, 1, 1], mode="vrptw", capacity=2, horizon=30.0)
    walker = Walker(given)
    assert walker.allowed() == [1, 2, 3]
    walker.select(2)
    assert walker.allowed() == [0]  # 1 is too much and too late, 3 is too late
    walker.select(0)
    walker.select(3)
    assert walker.allowed() == [0]


def reachable(given):
    """Every state that can be reached, walks that differ only in their past taken together."""
    stack, seen, ends = [[]], set(), 0
    while stack:
        path = stack.pop()
        walker = Walker(given)
        for node in path:
            walker.select(node)
        key = (tuple(walker.visited), walker.at, walker.clock, walker.load, tuple(walker.riders))
        if key in seen:
            continue
        seen.add(key)
        if walker.over:
            ends += 1
            continue
        allowed = walker.allowed()
        assert allowed, path
        stack += [[*path, node] for node in allowed]
    return len(seen), ends


def test_no_state_that_can_be_reached_is_a_dead_end():
    rng = np.random.default_rng(0)
    found = [reachable(random_problem(rng, 2 + k % 2, tight=True)) for k in range(120)]
    assert all(ends == 1 for _, ends in found) and sum(states for states, _ in found) > 1500


@pytest.mark.slow
def test_no_state_of_four_requests_is_a_dead_end():
    rng = np.random.default_rng(1)
    found = [reachable(random_problem(rng, 4, tight=True)) for _ in range(1000)]
    assert all(ends == 1 for _, ends in found) and sum(states for states, _ in found) > 80_000


def every_walk_completes(rng, instances: int, most: int, **single):
    """Random and greedy walks end, within 3n selections, and the checker passes them."""
    for _ in range(instances):
        given = random_problem(rng, int(rng.integers(1, most + 1)), tight=True, **single)
        for oracle in (*(f"greedy:{rule}" for rule in RULES), "insertion"):
            found = solved(given, oracle)
            assert found.ok and checked(given, found) == found.cost
        found = walked(given, lambda walker, allowed: allowed[rng.integers(len(allowed))])
        assert found.ok and checked(given, found) == found.cost and len(found.walk) <= 3 * given.requests + 1


def test_every_walk_completes():
    every_walk_completes(np.random.default_rng(2), 300, 8)


@pytest.mark.slow
def test_every_walk_of_ten_thousand_instances_completes():
    every_walk_completes(np.random.default_rng(3), 10_000, 15)


def test_walks_of_city_days_complete():
    p = Params()
    c = city(params=p)
    for day in range(3):
        found = draw(c, p, 0, 0, day)
        given = problem(found.offered, c.travel, depot=c.depot)
        for oracle in ("greedy:nearest", "greedy:soonest", "greedy:mixed", "insertion"):
            assert checked(given, solved(given, oracle)) == solved(given, oracle).cost


class Broken(Walker):
    """Riders of equal latest time in the order of boarding, those who board next before them."""

    def board(self, dropoff):
        place = bisect_right(self.riders, self.due[dropoff], key=lambda rider: rider[0])
        self.riders.insert(place, (self.due[dropoff], dropoff))

    def completes(self, node):
        kept = self.riders
        self.riders = sorted(kept, key=lambda rider: (rider[0], -kept.index(rider)))
        found = super().completes(node)
        self.riders = kept
        return found


def test_ties_must_be_broken_alike():
    rng = np.random.default_rng(4)
    given = [random_problem(rng, 6, tight=True, capacity=4) for _ in range(300)]
    assert all(completed(Walker(one), rng) for one in given)
    assert not all(completed(Broken(one), rng) for one in given)


# ---- the published mask

PUBLISHED = {"lookahead_mask": True, "one_obligation": True, "early_end": True}
# Drop-off 2 is due at 60, 4 at 50, and 6 opens at 500 (tenths of minutes times ten).
STRANDED = [[1, 0, 9000, 2, 0, 600], [3, 0, 9000, 4, 0, 500], [5, 0, 9000, 6, 5000, 9000]]


def scripted(given, *script):
    """The answer of a walk of given nodes, then of the lowest that are allowed."""
    left = list(script)

    def choose(walker, allowed):
        node = left.pop(0) if left else allowed[0]
        assert node in allowed, (node, allowed)
        return node

    return walked(given, choose)


def test_one_obligation_strands_a_rider_whom_another_vehicle_delivers():
    """The list forgets rider 2 for rider 4, who is due sooner; so 6 may be waited for."""
    given = problem(STRANDED, FAR, capacity=2, **PUBLISHED)
    found = scripted(given, 1, 3, 4, 5, 6, 0, 2, 0)
    assert found.walk == [0, 1, 3, 4, 5, 6, 0, 2, 0] and found.ok and found.vehicles == 2
    with pytest.raises(ValueError, match="drop-off 2 is in vehicle 1, its pickup in 0"):
        checked(given, found)


def test_all_obligations_keep_him_on_the_way():
    walker = LookaheadWalker(problem(STRANDED, FAR, capacity=2, **PUBLISHED | {"one_obligation": False}))
    for node in (1, 3, 4, 5):
        walker.select(node)
    assert walker.riders == [(600, 2), (9000, 6)] and walker.allowed() == [2]
    short = LookaheadWalker(problem(STRANDED, FAR, capacity=2, **PUBLISHED))
    for node in (1, 3, 4, 5):
        short.select(node)
    assert short.riders == [(9000, 6)] and short.allowed() == [2, 6]


def test_without_early_end_a_rider_left_on_board_is_served_alone():
    given = problem(STRANDED, FAR, capacity=2, **PUBLISHED | {"early_end": False})
    found = scripted(given, 1, 3, 4, 5, 6, 0)
    assert found.walk == [0, 3, 4, 5, 6, 0, 1, 2, 0] and found.ok and found.vehicles == 2
    assert checked(given, found) == found.cost == 800


def test_early_end_leaves_nodes_out_and_costs_less():
    """A request that cannot be reached in time is forgotten, or else makes the call fail."""
    rows = [[1, 0, 9000, 2, 0, 9000], [3, 0, 99, 4, 0, 9000]]
    found = solved(problem(rows, FAR, **PUBLISHED), "greedy:nearest")
    assert found.walk == [0, 1, 2, 0] and found.ok and found.cost == 300
    for single in (PUBLISHED | {"early_end": False}, {}):
        assert not solved(problem(rows, FAR, **single), "greedy:nearest").ok
    assert not solved(problem(rows, FAR), "insertion").ok
    nothing = solved(problem(rows[1:], FAR, **PUBLISHED), "greedy:nearest")
    assert nothing.walk == [0] and nothing.cost == 0 and nothing.vehicles == 0 and nothing.ok


def test_the_published_mask_looks_one_dropoff_ahead():
    rows = [[1, 0, 9000, 2, 0, 300], [3, 0, 9000, 4, 0, 9000], [5, 0, 9000, 6, 0, 310]]
    walker = LookaheadWalker(problem(rows, FAR, **PUBLISHED | {"one_obligation": False}))
    assert walker.allowed() == [1, 3, 5]
    walker.select(1)
    assert walker.allowed() == [2, 3, 5]  # each 10 min from 1 and from drop-off 2
    walker.select(5)
    # 2 is first, 6 second: from 2 the second is reached at 400, from 3 and 6 the first is.
    assert walker.riders == [(300, 2), (310, 6)] and walker.allowed() == [0]
    day = LookaheadWalker(problem(rows, FAR, horizon=19.9, **PUBLISHED))
    assert day.allowed() == [0]  # the depot again at 200


def test_equal_obligations_keep_their_order_and_the_earlier_one_place():
    rows = [[1, 0, 9000, 2, 0, 9000]] * 3
    walker = LookaheadWalker(problem(rows, FAR, **PUBLISHED))
    for node in (3, 1, 5):
        walker.select(node)
    assert walker.riders == [(9000, 4)]
    longer = LookaheadWalker(problem(rows, FAR, capacity=3, **PUBLISHED | {"one_obligation": False}))
    for node in (3, 1, 5):
        longer.select(node)
    assert [node for _, node in longer.riders] == [4, 2, 6]


def test_the_list_has_as_many_places_as_a_vehicle_has_seats():
    """A rider left on board keeps his place in the list of the next vehicle."""
    rows = [[1, 0, 9000, 2, 0, 8000], [3, 0, 9000, 4, 0, 9000]]
    for capacity, listed in ((2, [(8000, 2), (9000, 4)]), (1, [(8000, 2)])):
        walker = LookaheadWalker(problem(rows, FAR, capacity=capacity, **PUBLISHED | {"one_obligation": False}))
        for node in (1, 0, 3):
            walker.select(node)
        assert walker.riders == listed


def test_a_return_keeps_the_list_only_with_early_end():
    rows = [[1, 0, 9000, 2, 5000, 9000], [3, 0, 9000, 4, 0, 9000]]
    for early_end, left in ((True, [(9000, 2)]), (False, [])):
        walker = LookaheadWalker(problem(rows, FAR, **PUBLISHED | {"early_end": early_end}))
        walker.select(1)
        walker.select(0)
        assert walker.riders == left and (walker.clock, walker.load, walker.at) == (0, 0, 0)
        assert walker.allowed() == ([2, 3] if early_end else [3])


@pytest.mark.parametrize("one_obligation", [True, False])
def test_without_early_end_every_published_walk_is_valid(one_obligation):
    rng = np.random.default_rng(5)
    for _ in range(150):
        single = {"lookahead_mask": True, "one_obligation": one_obligation}
        given = random_problem(rng, int(rng.integers(1, 8)), tight=True, **single)
        found = walked(given, lambda walker, allowed: allowed[rng.integers(len(allowed))])
        assert found.ok and checked(given, found) == found.cost and len(found.walk) <= given.params.walk_length


def test_one_obligation_hands_riders_over_on_most_days_all_on_fewer_and_none_without_early_end():
    """Greedy walks of pre-shifted days: with one obligation more than two in three hand somebody over."""
    p, handed = Params(), {}
    c = city(params=p)
    all_of_them, until_the_end = PUBLISHED | {"one_obligation": False}, PUBLISHED | {"early_end": False}
    for name, single in (("one", PUBLISHED), ("all", all_of_them), ("neither", until_the_end)):
        params = Params(**single)
        oracle, count = make_oracle("greedy:nearest", params, c.travel), 0
        for day in range(40):
            given = problem(draw(c, params, 0, 0, day).offered, c.travel, depot=c.depot, **single)
            try:
                checked(given, oracle.route(given))
            except ValueError:
                count += 1
        handed[name] = count
    assert handed["one"] > 2 / 3 * 40 and 0 < handed["all"] < handed["one"] and handed["neither"] == 0
