"""Angles of the rules of the road, by hand."""

import math

import pytest

from lockstep.envs.marine_navigation.original.colregs import colregs_angle, crossing, head_on, turn
from lockstep.envs.marine_navigation.original.perception import Seen
from tests.envs.marine_navigation.worlds import QUIET, opened, put, scene, step

R = math.sqrt(31.25) / 2


def other(x, y, vx, vy, radius=2.0):
    return Seen(math.hypot(x, y) - radius, x, y, vx, vy, radius)


@pytest.mark.parametrize(
    ("neighbours", "phi"),
    [
        ([other(10, 0, -1, 0)], 0.589719),
        ([other(6, 6, 0, -1)], 1.485352),
        ([other(10, 0, 1, 0)], 0.0),  # it sails ahead the same way
        ([other(10, 0, -0.499, 0)], 0.0),  # too slow to matter
        ([other(2.9, 0, -1, 0)], 0.0),  # within its disc and a metre
        ([other(6, -6, 0, 1)], 0.0),  # from the left it has to give way itself
        ([other(6, -6, 0, 1), other(10, 0, -1, 0)], 0.589719),  # the first that asks for a turn
        ([other(6, 6, 0, -1), other(10, 0, -1, 0)], 1.485352),
        ([], 0.0),
    ],
)
def test_angle_of_an_encounter(neighbours, phi):
    assert colregs_angle(1.0, 0.0, neighbours, R) == pytest.approx(phi, abs=5e-7)


def test_the_angle_is_from_the_own_course_to_the_tangent():
    """Tangent: angle(p) + asin(b/d) + atan2(R, sqrt(d² - b²)) at a distance d, b = r + 1."""
    assert turn(1.0, 0.0, other(10, 0, -1, 0), R) == pytest.approx(math.asin(0.3) + math.atan2(R, math.sqrt(91)))
    tilted = other(10 * math.cos(0.2), 10 * math.sin(0.2), -1, 0)
    assert turn(math.cos(0.1), math.sin(0.1), tilted, R) == pytest.approx(turn(1, 0, other(10, 0, -1, 0), R) + 0.1)


def test_a_slow_own_ship_has_no_encounter():
    neighbours = [other(10, 0, -1, 0)]
    assert colregs_angle(0.5, 0.0, neighbours, R) > 0 and colregs_angle(0.4999, 0.0, neighbours, R) == 0


def test_an_angle_that_is_not_positive_goes_on_to_the_next():
    """Already turned away by more than φ."""
    away = math.pi / 4 - 0.01
    u, v = math.cos(away), math.sin(away)
    assert turn(u, v, other(10, 0, -1, 0), R) < 0
    assert colregs_angle(u, v, [other(10, 0, -1, 0)], R) == 0
    assert colregs_angle(u, v, [other(10, 0, -1, 0), other(6, 6, 0.1, -1)], R) > 0


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


def test_a_reward_has_the_angle_s_share():
    """Two boats head on, 10 m apart, at 1 m/s through still water; the second turns no more than it must."""
    env = opened(scene(robots=[(20, 20, 50, 20, 0, 0), (30, 20, 5, 20, math.pi, 0)]), substeps=1, dt=1e-6, **QUIET)
    put(env, water_velocity=[[1, 0], [-1, 0]])
    reward = step(env)[1]
    phi = math.asin((R + 1) / 10) + math.atan2(R, math.sqrt(100 - (R + 1) ** 2))
    assert reward["robot_0"] == pytest.approx(-0.1 - 0.1 * phi, abs=1e-5)
    put(env, water_velocity=[[1, 0], [0, 0]])
    assert step(env)[1]["robot_0"] == pytest.approx(-0.1, abs=1e-5)
