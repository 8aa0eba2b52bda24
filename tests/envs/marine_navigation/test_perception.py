"""Observations by hand: axes, order, ranges, noise, and who is seen."""

import math

import numpy as np
import pytest

from lockstep.envs.marine_navigation import streams
from tests.envs.marine_navigation.worlds import QUIET, near, opened, play, put, rounding, scene, state, step

pytestmark = pytest.mark.usefixtures("form")
R = math.sqrt(31.25) / 2
AWAY = (50.0, 50.0, 0.0, 0.0)


def seen(env, robot=0):
    return env.observe()[f"robot_{robot}"]


def slots(row):
    """[5, 5] numbers and [5] mask of a row of the thruster version."""
    return row[7:32].reshape(5, 5), row[32:]


# ---- the thruster version


def test_own_values_are_exact_and_in_body_axes():
    env = opened(scene(robots=[(20.0, 20.0, 30.0, 24.0, math.pi / 2, 0.0)]))
    put(env, ground_velocity=[0.5, 2.0], reported_yaw_rate=0.25, thrust=[-100.0, 300.0])
    assert seen(env)[:7] == near([4.0, -10.0, 2.0, -0.5, 0.25, -100.0, 300.0])


def test_neighbours_stand_in_slots_by_gap_with_a_mask():
    """A small obstacle at 8 m, a large one at 9 m whose edge is nearer, a robot that moves."""
    rocks = [(28.0, 20.0, 1.0), (20.0, 29.0, 4.0)]
    env = opened(scene(robots=[(20.0, 20.0, *AWAY), (10.0, 20.0, *AWAY)], obstacles=rocks), **QUIET)
    put(env, ground_velocity=[[0.0, 0.0], [1.0, -2.0]])
    rows, mask = slots(seen(env))
    expected = [[0.0, 9.0, 0.0, 0.0, 4.0], [8.0, 0.0, 0.0, 0.0, 1.0], [-10.0, 0.0, 1.0, -2.0, R]]
    np.testing.assert_allclose(rows, [*expected, [0.0] * 5, [0.0] * 5], rtol=rounding(), atol=1e-12)
    assert mask.tolist() == [1, 1, 1, 0, 0]


def test_only_the_five_nearest_have_a_slot_and_ties_go_by_number():
    rocks = [(20.0 + 6 * math.cos(a), 20.0 + 6 * math.sin(a), 1.0) for a in (0.0, math.pi / 2, math.pi)]
    rocks += [(28.0, 28.0, 1.0), (12.0, 12.0, 1.0), (27.0, 20.0, 1.0), (13.0, 20.0, 1.0)]
    env = opened(scene(robots=[(20.0, 20.0, *AWAY)], obstacles=rocks), **QUIET)
    put(env, obstacle=[(26.0, 20.0, 1.0), (20.0, 26.0, 1.0), (14.0, 20.0, 1.0), *rocks[3:]])
    rows, mask = slots(seen(env))
    np.testing.assert_allclose(rows[:, :2], [[6, 0], [0, 6], [-6, 0], [7, 0], [-7, 0]], atol=1e-12)
    assert mask.tolist() == [1] * 5


@pytest.mark.parametrize(("far", "visible"), [(22.0, True), (22.000001, False)])
def test_an_object_is_seen_from_twenty_metres_and_its_radius(far, visible):
    env = opened(scene(robots=[(0.0, 0.0, *AWAY)], obstacles=[(far, 0.0, 2.0)]), **QUIET)
    assert slots(seen(env))[1][0] == visible


def test_noise_is_added_in_world_axes_by_observer_object_and_step():
    given = scene(robots=[(20.0, 20.0, 50.0, 50.0, 1.0, 0.0), (30.0, 21.0, *AWAY)], obstacles=[(20.0, 14.0, 2.0)])
    env = opened(given)
    env.reset()  # the second episode of environment 0, seed 0
    for t in range(3):
        normals, xi = streams.perception(0, 0, 1, t, [0, 1], [0, 33])
        x, y, theta = state(env, "pose")
        rows, _ = slots(seen(env))
        objects = [([20.0, 14.0], [0.0, 0.0], 2.0), (state(env, "pose", 1)[:2], state(env, "ground_velocity", 1), R)]
        expected = []
        for (place, velocity, radius), noise, angle in zip(objects, normals[0], xi[0], strict=True):
            place = complex(*place) + 0.05 * complex(*noise[:2]) - complex(x, y)
            velocity = complex(*velocity) + 0.05 * complex(*noise[2:])
            radius = radius * (0.8 + 0.2 * angle / math.pi)
            place, velocity = (z * np.exp(-1j * theta) for z in (place, velocity))
            expected.append([place.real, place.imag, velocity.real, velocity.imag, radius])
        expected.sort(key=lambda row: math.hypot(*row[:2]) - row[4])
        np.testing.assert_allclose(rows[:2], expected, rtol=rounding(), atol=1e-12)
        step(env, np.array([1.0, 0.2]), np.array([0.3, 0.4]))


def test_seen_positions_and_velocities_spread_by_five_centimetres():
    env = opened(scene(robots=[(20.0, 20.0, *AWAY)], obstacles=[(25.0, 20.0, 1.0)]))
    rows = []
    for t in range(1000):
        put(env, elapsed=t)
        rows.append(slots(seen(env))[0][0])
    rows = np.array(rows)
    np.testing.assert_allclose(rows[:, :4].mean(axis=0), [5.0, 0.0, 0.0, 0.0], atol=4 * 0.05 / math.sqrt(1000))
    np.testing.assert_allclose(rows[:, :4].std(axis=0), 0.05, atol=4 * 0.05 / math.sqrt(2000))


@pytest.mark.parametrize("shared", [True, False])
def test_equal_ids_share_noise_on_request(shared):
    given = scene(robots=[(20.0, 20.0, *AWAY), (30.0, 20.0, *AWAY)], obstacles=[(25.0, 26.0, 1.0)])
    env = put(opened(given, shared_noise=shared), noise_id=[3, 3])
    radii = [slots(seen(env, i))[0][0, 4] for i in range(2)]
    assert (radii[0] == radii[1]) == shared
    assert radii != [slots(seen(put(env, noise_id=[4, 5]), i))[0][0, 4] for i in range(2)] or not shared


def test_who_has_ended_is_not_seen():
    env = opened(scene(robots=[(20.0, 20.0, *AWAY), (30.0, 20.0, *AWAY)]), **QUIET)
    assert slots(seen(env))[1].sum() == 1
    put(env, active=[True, False])
    assert slots(seen(env))[1].sum() == 0 and list(env.observe()) == ["robot_0"]


# ---- the kinematic version


def test_a_kinematic_row_is_goal_velocity_obstacles_and_robots():
    robots = [
        (20.0, 20.0, 20.0, 40.0, math.pi / 2, 1.0),
        (26.0, 26.0, 5.0, 5.0, 0.0, 2.0),
        (16.0, 20.0, 5.0, 5.0, 0, 0),
    ]
    env = opened(scene("kinematic", robots, obstacles=[(26.0, 20.0, 1.0), (20.0, 27.0, 3.0)]))
    row = seen(env)
    expected = [20.0, 0.0, 1.0, 0.0, 7.0, 0.0, 3.0, 0.0, -6.0, 1.0, *[0.0] * 9]
    expected += [0.0, 4.0, 0.0, 0.0, 6.0, -6.0, 0.0, -2.0, *[0.0] * 12]
    assert row == near(expected) and len(row) == 39


@pytest.mark.parametrize(
    ("what", "reach"), [("obstacle", 15 + 1.5), ("robot", 15 + math.sqrt(1.25) / 2)], ids=["obstacle", "robot"]
)
def test_kinematic_ranges(what, reach):
    for far, visible in ((reach, True), (reach + 1e-9, False)):
        robots, rocks = [(0.0, 0.0, *AWAY)], []
        if what == "robot":
            robots.append((far, 0.0, *AWAY))
        else:
            rocks.append((far, 0.0, 1.5))
        row = seen(opened(scene("kinematic", robots, obstacles=rocks)))
        assert (row[4:] != 0).any() == visible


def test_robots_that_do_not_cooperate_see_no_robot_but_are_seen():
    env = opened(scene("kinematic", [(20.0, 20.0, *AWAY), (24.0, 20.0, *AWAY)]), non_cooperative=1)
    assert seen(env, 0)[19] == 4.0 and not seen(env, 1)[19:].any()
    env = opened(scene("kinematic", [(20.0, 20.0, *AWAY), (24.0, 20.0, *AWAY)], blind=1))
    assert not seen(env, 1)[19:].any()
    env = opened(scene("kinematic", [(20.0, 20.0, *AWAY), (24.0, 20.0, *AWAY)], asked=3), non_cooperative=1)
    assert seen(env, 1)[19:].any()  # the last of three would be, who found no place


# ---- the sonar


def beams(row):
    return row[4:].reshape(11, 2)


def test_a_sonar_row_is_velocity_goal_and_hit_points():
    env = opened(scene("sonar", [(20.0, 20.0, 20.0, 40.0, math.pi / 2, 1.0)], obstacles=[(20.0, 26.0, 2.0)]))
    row = seen(env)
    assert row[:4] == near([1.0, 0.0, 20.0, 0.0]) and len(row) == 26
    points = beams(row)
    assert points[5] == near([4.0, 0.0])
    for beam in (4, 6):  # 12° off: 6 cos 12° - sqrt(4 - 36 sin² 12°)
        a = math.radians(12 * (beam - 5))
        far = 6 * math.cos(a) - math.sqrt(4 - 36 * math.sin(a) ** 2)
        assert points[beam] == near([far * math.cos(a), far * math.sin(a)])
    assert not points[[0, 1, 2, 3, 7, 8, 9, 10]].any()  # 24° off it passes: 6 sin 24° > 2


def test_beams_reach_ten_metres_over_sixty_degrees_to_each_side():
    def first(far, angle):
        rock = (20 + far * math.cos(math.radians(angle)), 20 + far * math.sin(math.radians(angle)), 1.0)
        return beams(seen(opened(scene("sonar", [(20.0, 20.0, 20.0, 40.0, 0.0, 0.0)], obstacles=[rock]))))

    assert first(10.99, 60)[10].any() and not first(11.01, 60)[10].any()
    assert not first(8.0, 70).any() and not first(8.0, 180).any()


ROCKS = [(28.0, 20.0, 1.0), (25.0, 21.5, 1.0), (25.0, 20.0, 1.0), (22.0, 23.0, 1.0)]


def sonar(obstacles, **switches):
    return beams(seen(opened(scene("sonar", [(20.0, 20.0, 20.0, 40.0, 0.0, 0.0)], obstacles=obstacles), **switches)))


def test_a_beam_ends_at_the_nearest_obstacle_in_any_order():
    assert sonar(ROCKS)[5].tolist() == sonar(ROCKS[::-1])[5].tolist() == [4.0, 0.0]


def test_a_farther_hit_ends_the_search_on_request():
    order = [(28.0, 20.0, 1.0), (29.0, 20.0, 1.0), (25.0, 20.0, 1.0)]
    assert sonar(order)[5].tolist() == [4.0, 0.0]
    assert sonar(order, beam_break=True)[5].tolist() == [7.0, 0.0]


def test_only_the_nearest_centre_is_tested_on_request():
    """A large obstacle stands nearer, a small one has the nearer centre."""
    rocks = [(26.0, 20.0, 3.0), (20.0, 25.0, 1.0)]
    assert sonar(rocks)[5].tolist() == [3.0, 0.0]
    assert not sonar(rocks, nearest_centre_only=True).any()


def test_a_beam_from_within_an_obstacle_hits_its_far_side():
    env = put(opened(scene("sonar", obstacles=[(20.0, 20.0, 3.0)])), pose=[19.0, 20.0, 0.0])
    assert beams(seen(env))[5] == near([4.0, 0.0])


def test_drifting_through_the_scene_changes_what_is_seen_by_that_much():
    """The same obstacle one second later, 2 m nearer."""
    env = opened(scene("kinematic", [(20.0, 20.0, *AWAY[:2], 0.0, 2.0)], obstacles=[(30.0, 20.0, 1.0)]))
    assert seen(env)[4] == 10.0
    play(env, 2, 7)
    assert seen(env)[4] == near(8.0)
