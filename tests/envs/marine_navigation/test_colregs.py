"""Angles of the rules of the road, by hand."""

import math

import pytest

from lockstep.envs.marine_navigation.original.colregs import crossing, head_on
from tests.envs.marine_navigation.worlds import QUIET, opened, put, scene, step

both = pytest.mark.usefixtures("form")
R = math.sqrt(31.25) / 2
# Others of 2 m, in a step that takes no time.
LENGTHS = QUIET | {
    "radius_mean": 2.0 / R,
    "substeps": 1,
    "dt": 1e-30,
    "collision_reward": 0.0,
}


def met(u, v, *others):
    """φ, by the reward, of a robot of velocity (u, v) that meets others at (x, y) of velocity (vx, vy) in its axes."""
    env = opened(scene(robots=[(20.0 * i, 0.0, 0.0, 40.0, 0.0, 0.0) for i in range(1 + len(others))]), **LENGTHS)
    put(env, pose=[(64, 64, 0), *((64 + x, 64 + y, 0) for x, y, _, _ in others)],
        water_velocity=[(u, v), *(other[2:] for other in others)])  # fmt: skip
    return pytest.approx((step(env)[1]["robot_0"] + 0.1) / -0.1, abs=5e-7)


@both
@pytest.mark.parametrize(
    ("neighbours", "phi"),
    [
        ([(10, 0, -1, 0)], 0.589719),
        ([(6, 6, 0, -1)], 1.485352),
        ([(10, 0, 1, 0)], 0.0),  # it sails ahead the same way
        ([(10, 0, -0.5, 0)], 0.589719),
        ([(10, 0, -0.499, 0)], 0.0),  # too slow to matter
        ([(2.9, 0, -1, 0)], 0.0),  # within its disc and a metre
        ([(6, -6, 0, 1)], 0.0),  # from the left it has to give way itself
        ([(6, -6, 0, 1), (10, 0, -1, 0)], 0.589719),  # the first that asks for a turn
        ([(10, 0, -1, 0), (6, 6, 0, -1)], 1.485352),  # nearest first
        ([], 0.0),
    ],
)
def test_angle_of_an_encounter(neighbours, phi):
    assert met(1, 0, *neighbours) == phi


@both
def test_the_angle_is_from_the_own_course_to_the_tangent():
    """Tangent: angle(p) + asin(b/d) + atan2(R, sqrt(d² - b²)) at a distance d, b = r + 1."""
    tangent = math.asin(0.3) + math.atan2(R, math.sqrt(91))
    assert met(1, 0, (10, 0, -1, 0)) == tangent
    c, s = math.cos(0.1), math.sin(0.1)
    assert met(c, s, (10 * math.cos(0.2), 10 * math.sin(0.2), -1, 0)) == tangent + 0.1


@both
def test_a_slow_own_ship_has_no_encounter():
    assert met(0.5, 0, (10, 0, -1, 0)) == 0.589719 and met(0.4999, 0, (10, 0, -1, 0)) == 0


@both
def test_an_angle_that_is_not_positive_goes_on_to_the_next():
    """Already turned away by more than φ of the nearer one."""
    u, v, near = math.cos(0.7), math.sin(0.7), (8, -4.4, -1, 0)
    assert met(u, v, near) == 0 and met(u, v, near, (10, 6, 0.1, -1)) == met(u, v, (10, 6, 0.1, -1)).expected != 0


@both
@pytest.mark.parametrize(
    ("u", "v", "other", "inside"),
    [
        *((1, 0, (*place, -1, 0), True) for place in ((17, 4.5), (17, -4.5), (0, 4.5))),  # head-on box
        *((1, 0, (*place, -1, 0), False) for place in ((17.001, 0), (8, 4.501), (8, -4.501), (-0.001, 4.5))),
        *((0.8, -0.6, (-y, x, 0, -1), True)  # crossing box, of x and y in the other's axes
          for x, y in ((0, -17), (12, -7), (12, -17), (-9, -17), (-9, -5), (-5, 0), (6, -3.5))),
        *((0.8, -0.6, (-y, x, 0, -1), False)
          for x, y in ((0, -17.001), (12, -6.99), (12.001, -17), (-9.001, -17), (-9.001, -5), (-5, 0.001), (6, -3.49))),
        (1, -0.999, (10, 4.5, -1, 0), True), (1, -1, (10, 4.5, -1, 0), False),  # courses of a head-on encounter
        (1, 0.999, (10, 4.5, -1, 0), True), (1, 1, (10, 4.5, -1, 0), False),
        (1, 1, (6, 6, 0, -1), True), (1, 1.001, (6, 6, 0, -1), False),  # and of a crossing
        (1, -1, (6, 6, 0, -1), True), (1, -1.001, (6, 6, 0, -1), False),
    ],
)  # fmt: skip
def test_an_encounter_is_one_up_to_its_edges(u, v, other, inside):
    assert (met(u, v, other) != 0) == inside


@pytest.mark.parametrize(
    ("x", "y", "inside"),
    [(0, 0, 1), (17, 4.5, 1), (17, -4.5, 1), (17.001, 0, 0), (-0.001, 0, 0), (8, 4.501, 0), (8, -4.501, 0)],
)
def test_edges_of_the_head_on_box(x, y, inside):
    assert head_on(x, y, -1.0, 0.0) == inside


@pytest.mark.parametrize(
    ("x", "y", "inside"),
    [
        (-9, 0, 1), (-9.001, 0, 0), (0, 0, 1), (0, -17, 1), (0, -17.001, 0), (0, 0.001, 0),
        (12, -7, 1), (12, -6.99, 0), (12.001, -17, 0), (-9, -17, 1), (6, -3.5, 1), (6, -3.49, 0),
    ],
)  # fmt: skip
def test_edges_of_the_crossing_box(x, y, inside):
    assert crossing(x, y, 0.0, 1.0) == inside


@pytest.mark.parametrize(
    ("degrees", "ahead", "across"),
    [(180, True, False), (-136, True, False), (136, True, False), (135.001, True, False), (134.999, False, True),
     (90, False, True), (45.001, False, True), (44.999, False, False), (0, False, False), (-90, False, False)],
)  # fmt: skip
def test_edges_of_the_angle_between_courses(degrees, ahead, across):
    u, v = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    assert (head_on(5.0, 0.0, u, v), crossing(-5.0, -5.0, u, v)) == (ahead, across)
    assert crossing(0.0, -5.0, 1.0, 1.0) and crossing(0.0, -5.0, -1.0, 1.0) and not head_on(5.0, 0.0, -1.0, 1.0)


@both
def test_a_reward_has_the_angle_s_share():
    """Two boats head on, 10 m apart, at 1 m/s through still water; the second turns no more than it must."""
    env = opened(scene(robots=[(20, 20, 50, 20, 0, 0), (30, 20, 5, 20, math.pi, 0)]), substeps=1, dt=1e-6, **QUIET)
    put(env, water_velocity=[[1, 0], [-1, 0]])
    reward = step(env)[1]
    phi = math.asin((R + 1) / 10) + math.atan2(R, math.sqrt(100 - (R + 1) ** 2))
    assert reward["robot_0"] == pytest.approx(-0.1 - 0.1 * phi, abs=1e-5)
    put(env, water_velocity=[[1, 0], [0, 0]])
    assert step(env)[1]["robot_0"] == pytest.approx(-0.1, abs=1e-5)
