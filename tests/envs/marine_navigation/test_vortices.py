"""Currents of cores, by hand."""

import math

import pytest

from lockstep.envs.marine_navigation.vortices import Core, current, unshadowed
from tests.envs.marine_navigation.worlds import opened, scene, state

pytestmark = pytest.mark.usefixtures("form")
CORE = Core(10.0, 20.0, 1, 1.5)  # clockwise, 3 m/s at its edge of 0.5 m


def at(x, y, *cores, **switches):
    """The velocity of the water, with which a boat at rest begins."""
    rows = [(core.x, core.y, core.sign > 0, 2 * core.strength) for core in cores]
    env = opened(scene(robots=[(x, y, 45.0, 45.0, 0.0, 0.0)], cores=rows), **switches)
    return pytest.approx(tuple(state(env, "ground_velocity")), abs=1e-12)


@pytest.mark.parametrize(("east", "speed"), [(0.25, 1.5), (0.5, 3.0), (1.0, 1.5)])
def test_water_east_of_a_clockwise_core_moves_south(east, speed):
    assert at(10.0 + east, 20.0, CORE) == (0.0, -speed)
    assert at(10.0 + east, 20.0, CORE._replace(sign=-1)) == (0.0, speed)
    assert at(10.0, 20.0 + east, CORE) == (speed, 0.0)


def test_water_stands_still_at_a_core_s_centre():
    assert at(10.0, 20.0, CORE) == (0.0, 0.0)


def test_all_of_twelve_cores_count():
    ring = [Core(10 + 3 * math.cos(k * math.pi / 6), 20 + 3 * math.sin(k * math.pi / 6), 1, 1.5) for k in range(12)]
    each = [current(11.0, 20.5, [core], 0.5, False) for core in ring]
    assert at(11.0, 20.5, *ring) == (sum(u for u, _ in each), sum(v for _, v in each))
    four = sorted(ring, key=lambda core: math.hypot(11 - core.x, 20.5 - core.y))[:4]
    assert at(11.0, 20.5, *four) != current(11.0, 20.5, ring, 0.5, False)


def test_a_core_in_the_shadow_of_a_nearer_one_is_left_out_on_request():
    near, behind, across = Core(1.0, 0.0, 1, 1.5), Core(3.0, 1.0, 1, 1.5), Core(-2.0, 0.0, 1, 1.5)
    assert unshadowed(0.0, 0.0, [behind, across, near]) == [near, across]
    assert at(0.0, 0.0, near, behind, across, vortex_shadowing=True) == current(0.0, 0.0, [near, across], 0.5, False)
    assert at(0.0, 0.0, near, behind, across) != current(0.0, 0.0, [near, across], 0.5, False)
    assert unshadowed(0.0, 0.0, [near, Core(0.0, 4.0, 1, 1.5)]) == [near, Core(0.0, 4.0, 1, 1.5)]  # at a right angle
