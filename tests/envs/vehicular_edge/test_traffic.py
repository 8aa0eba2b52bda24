"""Synthetic traffic keeps its rules: gaps, signals, speeds, turns, the map."""

import numpy as np
import pytest

from lockstep.envs.vehicular_edge.params import Params
from lockstep.envs.vehicular_edge.scenario import Calibration, draw_each, traffic


def speeds(xy: np.ndarray) -> np.ndarray:
    """[..., T, N, 2] m at 1 Hz -> [..., T-1, N] m/s."""
    return np.linalg.norm(np.diff(xy, axis=-3), axis=-1)


def states(name: str, vehicles: int, slots: int, index=(0,)):
    """The simulation second by second."""
    run = traffic._Traffic(traffic.MAPS[name], vehicles, slots, 264, np.array(index))
    yield run
    for t in range(1, slots):
        run.drive(t)
        yield run


@pytest.mark.parametrize("name", traffic.TRAFFIC)
@pytest.mark.parametrize("vehicles", [2, 70, 1000])
def test_vehicles_stay_on_the_map(name, vehicles):
    xy = traffic.simulate(name, vehicles, 20)
    x0, y0, x1, y1 = traffic.box(name)
    assert xy.shape == (20, vehicles, 2)
    assert ((xy >= (x0, y0)) & (xy <= (x1, y1))).all()


def test_maps_have_the_stated_sizes():
    sizes = {name: traffic.box(name)[2:] for name in traffic.TRAFFIC}
    assert sizes == {"arterial": (500, 30), "city": (2000, 2000), "dense": (70, 70), "sparse": (2000, 2000)}
    assert traffic.MAPS["city"].block_m == (200, 200)
    inner = traffic.MAPS["arterial"].nodes[0] - 2  # the two outer nodes are ends, where nobody crosses
    assert inner == 4 and traffic.MAPS["arterial"].nodes[1] == 1


def test_city_drives_between_four_and_a_half_and_six_and_a_half_metres_per_second():
    mean = speeds(traffic.simulate("city", 70, 50, index=np.arange(32))).mean()
    assert 4.5 <= mean <= 6.5


@pytest.mark.parametrize("name", traffic.TRAFFIC)
def test_vehicles_keep_the_gap_to_their_leader(name):
    for run in states(name, 150, 50, (0, 1)):
        key = run._lane_key(run.node, run.heading)
        order = np.lexsort((run.along_m, key))
        same = key[order][1:] == key[order][:-1]
        gap = np.diff(run.along_m[order])[same]
        assert gap.min() >= traffic.GAP_M - 1e-9


@pytest.mark.parametrize("name", ["city", "sparse"])
def test_nobody_drives_faster_than_desired(name):
    before = None
    for run in states(name, 70, 50):
        along = run.along_m.copy()
        if before is not None:
            moved = along - before
            moved = np.where(moved < 0, moved + run.length_m[0], moved)  # into the next block
            assert (moved <= run.desired_mps + 1e-9).all()
        before = along
    assert run.desired_mps.min() >= 8 and run.desired_mps.max() <= 14


def test_nobody_passes_a_closed_stop_line():
    """Five metres before the middle of the crossing; who has passed it may leave the crossing."""
    before = None
    stopped = 0
    for t, run in enumerate(states("city", 200, 60)):
        if before is not None:
            node, heading, left = before
            phase = ((t + run.offset_s[node + run.next_node[heading]]) // 30) % 3
            closed = (phase != heading % 2) & (left >= 5 - 1e-6)  # 0 east-west, 1 north-south, 2 nobody
            now_left = run.length_m[run.heading] - run.along_m
            assert (run.node[closed] == node[closed]).all()
            assert (now_left[closed] >= 5 - 1e-9).all()
            stopped += (closed & (abs(now_left - 5) < 1e-9)).sum()
        before = run.node.copy(), run.heading.copy(), run.length_m[run.heading] - run.along_m
    assert stopped > 100


def test_roads_without_signals_flow_freely():
    xy = traffic.simulate("sparse", 2, 50, index=np.arange(32))
    assert speeds(xy).mean() == pytest.approx(11.0, abs=0.5)  # the mean desired speed


@pytest.mark.parametrize("same_range", [False, True])
def test_every_edge_of_the_dense_map_covers_everybody(same_range):
    params = Params(edge_range_is_v2v=same_range)
    for scenario in draw_each(params, "dense", 3, calibration=Calibration.ones(params)):
        assert scenario.covered.all()


def test_sparse_coverage_is_five_to_seven_percent():
    params = Params(edge_range_is_v2v=True, slots=10)
    drawn = draw_each(params, "sparse", 400, calibration=Calibration.ones(params))
    reached = [(scenario.access >= 0).mean() for scenario in drawn]
    assert 0.05 <= np.mean(reached) <= 0.07


def test_a_scenario_does_not_depend_on_its_neighbours():
    together = traffic.simulate("city", 70, 12, 5, np.array([3, 0, 9]))
    for row, index in enumerate((3, 0, 9)):
        np.testing.assert_array_equal(together[row], traffic.simulate("city", 70, 12, 5, index))


def test_other_seeds_and_indices_give_other_traffic():
    first = traffic.simulate("city", 70, 5, 1, 0)
    assert np.abs(first - traffic.simulate("city", 70, 5, 2, 0)).max() > 100
    assert np.abs(first - traffic.simulate("city", 70, 5, 1, 1)).max() > 100


def test_vehicles_turn_left_right_and_go_straight():
    turned = []
    before = None
    for run in states("city", 400, 60):
        if before is not None:
            turned += ((run.heading - before[1])[run.node != before[0]] % 4).tolist()
        before = run.node.copy(), run.heading.copy()
    share = np.bincount(turned, minlength=4) / len(turned)
    assert share[2] == 0  # the city has no dead end
    assert share[0] > 0.4 and share[1] > 0.15 and share[3] > 0.15


def test_dead_ends_turn_back():
    xy = traffic.simulate("arterial", 10, 200)
    north = xy[..., 1] > 15
    assert (north[1:] != north[:-1]).any()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "citty"}, "'citty'.*'city'"),
        ({"seed": [1]}, r"seed=\[1\] must be an integer from 0"),
        ({"index": np.array([0, -5])}, "index=-5 must be an integer from 0 to 4294967295"),
    ],
)
def test_no_map_seed_or_index_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        traffic.simulate(**{"name": "city", "vehicles": 2, "slots": 2} | given)
