"""The city, and what an episode draws from it."""

import itertools

import numpy as np
import pytest

from lockstep.envs.noise import philox
from lockstep.envs.vehicle_routing import policies, streams
from lockstep.envs.vehicle_routing.params import Params
from lockstep.envs.vehicle_routing.scenario import Scenario, city, draw
from lockstep.envs.vehicle_routing.scenario.city import _city, pick
from lockstep.envs.vehicle_routing.scenario.scenario import closure, scaled, triangles
from lockstep.envs.vehicle_routing.windows import PRESHIFTS
from tests.envs.vehicle_routing.worlds import TRIANGLE

P = Params()


def word(seed, *counter):
    return int(philox(counter, seed)[0])


# ---- episodes


@pytest.mark.parametrize("place", [(0, 0, 0), (7, 3, 5), (2**64 - 1, 2**32 - 1, 9)])
def test_an_instance_is_what_its_words_say(place):
    """Word by word, by Python's integers."""
    seed, environment, episode = place
    c, found = city(params=P), draw(city(params=P), P, *place)
    order = list(range(30))
    for i in range(29, 0, -1):
        j = word(seed, environment, episode, i, 3) * (i + 1) >> 32
        order[i], order[j] = order[j], order[i]
    assert found.order == order
    for i in range(30):
        trip = word(seed, environment, episode, i, 0) * 52 >> 32
        earlier, later = ((10, 20, 30)[word(seed, environment, episode, i, stream) * 3 >> 32] * 10 for stream in (1, 2))
        zone, e1, l1, zone2, e2, l2 = c.trip[i, trip].tolist()
        assert found.trip[i] == trip
        assert found.offered[i] == [zone, e1 - earlier, l1 - earlier, zone2, e2 + later, l2 + later]


def test_without_preshift_windows_are_the_trips():
    p, c = Params(preshift=False), city(params=P)
    found = draw(c, p, 5, 0, 1)
    assert found.offered == [c.trip[i, trip].tolist() for i, trip in enumerate(found.trip)]
    assert found.trip == draw(c, P, 5, 0, 1).trip and found.order == draw(c, P, 5, 0, 1).order


def test_fixed_instances_come_in_turn_and_as_they_are():
    rows = np.array([[[1, 0, 9, 2, 500, 600], [2, 0, 9, 1, 500, 600]]] * 3)
    given = Scenario(travel=TRIANGLE, trip=rows, type=[0, 1, 2], fixed=True)
    for environment, episode in itertools.product(range(3), range(3)):
        found = draw(given, P, 1, environment, episode)
        assert found.order == [0, 1, 2] and found.trip == [(environment + episode) % 2] * 3
        assert found.offered == rows[:, (environment + episode) % 2].tolist()


def test_draws_are_uniform():
    """Chi-square over 300 episodes: 52 trips, nine pairs of pre-shifts, 30 places; bounds at 1e-6."""
    c, trips, pairs, places = city(params=P), np.zeros(52), np.zeros((3, 3)), np.zeros((30, 30))
    for episode in range(300):
        found = draw(c, P, 11, 0, episode)
        np.add.at(trips, found.trip, 1)
        for i in range(30):
            row, plain = found.offered[i], c.trip[i, found.trip[i]]
            pairs[PRESHIFTS.index((plain[1] - row[1]) // 10), PRESHIFTS.index((row[4] - plain[4]) // 10)] += 1
        places[found.order, np.arange(30)] += 1
    for counts, bound in ((trips, 111), (pairs, 45), (places, 1057)):
        expected = counts.sum() / counts.size
        assert ((counts - expected) ** 2 / expected).sum() < bound


def test_multiply_high_is_exact():
    assert streams.mulhi([0, 2**32 - 1, 2**31], 52).tolist() == [0, 51, 26]
    assert streams.shuffled(np.array([0, 0, 0], np.uint32)) == [1, 2, 0]
    assert streams.shuffled(np.array([2**32 - 1] * 4, np.uint32)) == [0, 1, 2, 3]


def test_policies_choose_as_they_say():
    assert policies.keep(np.ones(16, bool), None) == 12
    assert policies.largest(np.ones(16, bool), None) == 3
    assert policies.largest(np.arange(16) >= 12, None) == 15
    drawn = [policies.random(None, policies.Noise(3, 1, 2, t)) for t in range(200)]
    assert drawn == [word(3, 1, 2, t, 4) * 16 >> 32 for t in range(200)] and set(drawn) == set(range(16))


# ---- the city


def test_the_city_has_the_sizes_and_distances_of_the_specification():
    c = city(params=P)
    assert c.trip.shape == (30, 52, 6) and c.travel.shape == (31, 31) and c.check(P) is c
    apart = np.hypot(*np.moveaxis(c.zone_xy[:, None] - c.zone_xy, -1, 0))
    assert apart[~np.eye(31, dtype=bool)].min() >= 0.8 and c.zone_xy.min() >= 0 and c.zone_xy.max() <= 12
    assert c.depot == np.hypot(*(c.zone_xy - 6).T).argmin()
    minutes = 3 + 60 * apart / 23
    assert (c.travel <= np.ceil(11 * minutes)).all() and triangles(c.travel)[0] == 0 and not np.diag(c.travel).any()
    assert (c.travel != c.travel.T).mean() > 0.9
    straight = c.travel[~np.eye(31, dtype=bool)] / (10 * minutes[~np.eye(31, dtype=bool)])
    assert straight.min() > 0.89 and straight.max() < 1.11 and straight.mean() == pytest.approx(1, abs=0.01)


def test_trips_of_the_city_have_the_windows_of_the_specification():
    zone, e1, l1, zone2, e2, l2 = np.moveaxis(city(params=P).trip, -1, 0)
    assert e1.min() >= 390 * 10 and e1.max() <= 1140 * 10 and (e1 % 50 == 0).all()
    assert (l1 - e1 == 300).all() and (l2 - e2 == 300).all()
    ride = city(params=P).travel[zone, zone2]
    assert (e2 - e1 == np.maximum(20, (ride + 5) // 10 * 10)).all()
    within = (zone == zone2).mean()
    assert within == pytest.approx(0.08, abs=4 * (0.08 * 0.92 / 1560) ** 0.5)


def test_trips_go_between_two_anchors_as_often_as_to_others():
    """Of a traveller's trips, 46 % are between one pair of zones, in either direction as often as the other."""
    c = city(params=P, trips=300)
    shares, forward = [], []
    for zones in c.trip[:, :, [0, 3]]:
        pairs, counts = np.unique(np.sort(zones[zones[:, 0] != zones[:, 1]], axis=1), axis=0, return_counts=True)
        a, b = pairs[counts.argmax()]
        shares.append(counts.max() / 300)
        between = (np.sort(zones, axis=1) == (a, b)).all(axis=1)
        forward.append((zones[between, 0] == a).mean())
    assert 0.46 < np.mean(shares) < 0.56 and np.mean(forward) == pytest.approx(0.5, abs=0.03)
    assert set(np.unique(c.threshold)) == set(range(0, 301, 50))


def test_types_are_the_census_or_uniform():
    assert np.bincount(city(params=P).type).tolist() == [8, 13, 6, 3]
    assert np.bincount(city(params=Params(requests=15)).type).tolist() == [4, 7, 3, 1]
    many = np.bincount(city(params=Params(requests=400), trips=1, types="uniform").type)
    assert many.sum() == 400 and many.min() > 60
    assert city(params=P).type.tolist() != city(2, P).type.tolist()


def test_a_seed_fixes_the_city_and_another_gives_another():
    fields = ("travel", "trip", "type", "threshold", "zone_xy")
    first, other = city(1, P), city(2, P)
    again = _city.__wrapped__(P, "census", 1, 31, 52)
    assert all(np.array_equal(getattr(first, name), getattr(again, name)) for name in fields)
    assert not any(np.array_equal(getattr(first, name), getattr(other, name)) for name in fields)


def test_a_large_city_stands_closer():
    c = city(params=P, zones=207, trips=4)
    apart = np.hypot(*np.moveaxis(c.zone_xy[:, None] - c.zone_xy, -1, 0))[~np.eye(207, dtype=bool)].min()
    assert c.check(P) is c and 6 / 207**0.5 <= apart < 0.8


def test_weights_pick_in_proportion():
    u = (np.arange(1000) + 0.5) / 1000
    assert np.bincount(pick(np.array([1.0, 2.0, 7.0]), u)).tolist() == [100, 200, 700]
    assert np.bincount(pick(np.array([1.0, 3.0, 6.0]), u, but=np.full(1000, 2))).tolist() == [250, 750]


def test_trips_that_a_day_has_no_room_for_are_drawn_again():
    p = Params(horizon=720.0)
    c = city(params=p, trips=8)
    assert 6000 < c.trip[:, :, 5].max() <= 7200 and c.check(p) is c
    with pytest.raises(ValueError, match="horizon=425.0 leaves no feasible trip in 1000 attempts"):
        city(params=Params(horizon=425.0, requests=1), trips=20)


# ---- travel times


def test_closure_gives_shortest_paths():
    long = np.array([[0, 100, 300], [100, 0, 120], [200, 120, 0]])
    assert triangles(long) == (1, (0, 1, 2), 80)
    assert closure(long).tolist() == [[0, 100, 220], [100, 0, 120], [200, 120, 0]]
    assert triangles(TRIANGLE) == (0, (0, 0, 0), 0)


def test_classical_scaling_finds_places_up_to_a_turn():
    xy = np.array([[0.0, 0], [30, 0], [30, 40], [5, 5]])
    travel = np.hypot(*np.moveaxis(xy[:, None] - xy, -1, 0))
    found = scaled(travel)
    assert np.hypot(*np.moveaxis(found[:, None] - found, -1, 0)) == pytest.approx(travel, abs=1e-9)
    assert scaled(np.zeros((1, 1))).tolist() == [[0, 0]]
