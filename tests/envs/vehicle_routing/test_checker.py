"""Checker of walks: each way in which one can be broken."""

import re

import pytest

from lockstep.envs.vehicle_routing.checker import check
from tests.envs.vehicle_routing.worlds import TRIANGLE

ZONES = [0, 1, 2, 1, 2]  # two requests from A to B
EARLY, LATE = [0, 6000, 6120, 6000, 6120], [14_400, 6300, 6420, 6300, 6420]
LOADS = [0, 1, -1, 1, -1]


def price(walk, capacity=8, horizon=14_400, early=EARLY, late=LATE, **more):
    return check(walk, TRIANGLE, ZONES, early, late, LOADS, capacity, horizon, **more)


def test_prices_of_the_triangle_are_those_by_hand():
    assert price([0, 1, 3, 2, 4, 0]) == (420, 1)
    assert price([0, 1, 2, 3, 4, 0], capacity=1) == (660, 1)
    assert price([0, 1, 2, 0, 3, 4, 0]) == (840, 2)
    assert price([0, 1, 3, 4, 2, 0, 0, 0, 0]) == (420, 1)


@pytest.mark.parametrize(
    ("walk", "options", "said"),
    [
        ([0, 1, 2, 3, 0], {}, "node 4 is never visited"),
        ([0], {}, "node 1 is never visited"),
        ([0, 1, 2, 1, 2, 3, 4, 0], {}, "node 1 is visited twice"),
        ([0, 2, 1, 3, 4, 0], {}, "drop-off 2 comes before its pickup 1"),
        ([0, 1, 3, 4, 0, 2, 0], {}, "drop-off 2 is in vehicle 1, its pickup in 0"),
        ([0, 1, 3, 2, 4, 0], {"capacity": 1}, "after node 3 the load is 2, more than 1"),
        ([0, 1, 2, 3, 4, 0], {"late": [0, 6300, 6420, 6239, 6420]}, "node 3 is reached at 6240, after 6239"),
        ([0, 1, 3, 2, 4, 0], {"late": [0, 99, 6420, 6300, 6420]}, "node 1 is reached at 100, after 99"),
        ([0, 1, 3, 2, 4, 0], {"horizon": 6319}, "vehicle 0 returns at 6320, after 6319"),
        ([0, 1, 3, 2, 4], {}, "ends at node 4, must return to the depot"),
        ([1, 3, 2, 4, 0], {}, "must begin at the depot"),
        ([0, 1, 2, 0, 0, 3, 4, 0], {}, "stands at the depot twice in a row"),
        ([0, 1, 3, 2, 4, 5, 0], {}, "node 5 is none of 0 .. 4"),
        ([0, 1, 2, 3, 4, 0], {"service": [0, 0, 70, 0, 0]}, "node 3 is reached at 6310, after 6300"),
        ([0, 1, 3, 2, 4, 0], {"max_ride": 119}, "the ride to 2 takes 120, more than 119"),
    ],
)
def test_a_broken_walk_is_refused(walk, options, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        price(walk, **options)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"zone": [0, 9, 2]}, "zone[1]=9 must be from 0 to 2"),
        ({"demand": [0, -9, 9]}, "demand[1]=-9 must be at least 1"),
        ({"demand": [0, 1, 1]}, "demand[2]=1 must be -1"),
    ],
)
def test_a_zone_or_demand_that_is_none_is_refused(change, said):
    ride = {"zone": [0, 1, 2], "earliest": [0] * 3, "latest": [9999] * 3, "demand": [0, 1, -1]}
    assert check([0, 1, 2, 0], TRIANGLE, **ride, capacity=8, horizon=9999) == (420, 1)
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        check([0, 1, 2, 0], TRIANGLE, **ride | change, capacity=8, horizon=9999)


def test_a_pickup_opens_no_earlier_than_a_ride_before_its_dropoff():
    """Ride of 13 min at most: without it the rider boards at 6000 and is on board until 6180."""
    early, late = [0, 6000, 6180, 6000, 6120], [0, 6300, 6420, 6300, 6420]
    assert price([0, 1, 3, 2, 4, 0], early=early, late=late, max_ride=130) == (420, 1)
    assert price([0, 1, 2, 0, 3, 4, 0], early=early, late=late, max_ride=120) == (840, 2)
    with pytest.raises(ValueError, match="the ride to 4 takes 180, more than 130"):
        price([0, 3, 1, 4, 2, 0], early=[0, 6060, 6180, 6000, 6120], late=late, max_ride=130)


def test_customers_have_one_node():
    assert check([0, 1, 2, 0], TRIANGLE, [0, 1, 2], [0] * 3, [500] * 3, [0, 3, 4], 7, 500, paired=False) == (420, 1)
    with pytest.raises(ValueError, match="the load is 7, more than 6"):
        check([0, 1, 2, 0], TRIANGLE, [0, 1, 2], [0] * 3, [500] * 3, [0, 3, 4], 6, 500, paired=False)
