"""Motion of both boats against closed forms."""

import cmath
import math

import numpy as np
import pytest

from lockstep.envs.marine_navigation.vortices import Core, current
from tests.envs.marine_navigation.worlds import get_state, made, near, opened, params, play, put, scene, state, step

pytestmark = pytest.mark.usefixtures("form")


# ---- the thruster boat


@pytest.mark.parametrize("preset", ["corrected", "original"])
@pytest.mark.parametrize(
    ("thrust", "field", "expected"),
    [
        ((1000, 1000), "water_velocity", [10 / 3, 0.0]),  # 150 u² + 100 u = 2000
        ((-500, -500), "water_velocity", [-(math.sqrt(610_000) - 100) / 300, 0.0]),  # -2.2700832
        ((500, -500), "yaw_rate", [(math.sqrt(980**2 + 4 * 950 * 1250) - 980) / 1900]),  # 0.7419181
    ],
)
def test_thrust_settles_where_drag_balances_it(preset, thrust, field, expected):
    env = put(opened(scene(), preset), thrust=thrust)
    play(env, 400)
    assert state(env, field) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("preset", ["corrected", "original"])
def test_equal_thrusts_keep_a_boat_on_its_line(preset):
    env = opened(scene(), preset)
    for action in ([1.0, 1.0], [0.25, 0.25], [-1.0, -1.0]):
        play(env, 5, np.array(action))
        x, y, theta = state(env, "pose")
        assert x > 5.0 and (y, theta) == (5.0, 0.0)


@pytest.mark.parametrize(("twice", "rate"), [(True, -math.atan(0.5 * 0.05) / 0.05), (False, 0.0)])
def test_a_turning_boat_without_drag_keeps_its_course_unless_its_turn_counts_twice(twice, rate):
    drags = ("surge_drag", "sway_drag", "yaw_drag")
    none = {name: 0.0 for drag in drags for name in (drag, f"{drag}_square")} | {"added_surge": 0.0}
    env = put(opened(scene(), turn_counted_twice=twice, max_steps=10, **none), water_velocity=[1.0, 0.0], yaw_rate=0.5)
    play(env, 3)
    wx, wy = state(env, "water_velocity")
    assert rate in (0.0, pytest.approx(-0.499896, abs=5e-7))
    assert math.atan2(wy, wx) == pytest.approx(rate * 1.5, abs=1e-12)
    assert state(env, "yaw_rate") == [0.5]


def test_added_mass_alone_turns_the_corrected_boat():
    """u' = 20 r v_r/380, v' = 20 u_r r/400, r' = -20 u_r v_r/1430, of one substep without drag."""
    drags = ("surge_drag", "sway_drag", "yaw_drag")
    none = {name: 0.0 for drag in drags for name in (drag, f"{drag}_square")}
    env = put(opened(scene(), substeps=1, **none), water_velocity=[1.0, 2.0], yaw_rate=0.5)
    step(env)
    theta = 0.5 * 0.05
    body = (1.0 + 2.0j) * cmath.exp(-1j * theta)
    u, v = body.real, body.imag
    body += 0.05 * (20 * 0.5 * v / 380 + 1j * 20 * 0.5 * u / 400)
    w = body * cmath.exp(1j * theta)
    assert state(env, "water_velocity") == pytest.approx([w.real, w.imag], abs=1e-14)
    assert state(env, "yaw_rate") == pytest.approx([0.5 - 0.05 * 20 * u * v / 1430], abs=1e-15)


@pytest.mark.parametrize(
    ("action", "thrusts"),
    [([1, 1], [500, 1000, 1000]), ([-1, -1], [-500, -500, -500]), ([0.5, -0.25], [250, 500, 750])],
)
def test_thrust_is_added_once_per_control_step_and_clipped(action, thrusts):
    env = opened(scene())
    for thrust in thrusts:
        step(env, np.array(action, float))
        assert state(env, "thrust")[0] == thrust


def test_thrust_jumps_in_the_first_substep():
    """500 N a side from rest for ten substeps; a ramp would begin with 50 N."""
    env, u = opened(scene()), 0.0
    step(env, np.array([1.0, 1.0]))
    for _ in range(10):
        u += 0.05 * (1000 - (100 + 150 * u) * u) / 380
    assert state(env, "water_velocity") == pytest.approx([u, 0.0], abs=1e-14)


def test_discrete_actions_are_pairs_of_rates():
    rates = (0, -500, -1000, 500, 1000)
    for index in range(25):
        env = opened(scene(), action_kind="discrete")
        put(env, thrust=[200.0, 300.0])
        step(env, index)
        expected = [200 + 0.5 * rates[index // 5], 300 + 0.5 * rates[index % 5]]
        assert state(env, "thrust") == np.clip(expected, -500, 1000).tolist()


@pytest.mark.parametrize("version", ["thruster", "kinematic"])
@pytest.mark.parametrize("preset", ["corrected", "original"])
def test_a_boat_at_rest_drifts_with_the_water(version, preset):
    cores = [(20.0, 22.0, True, 3.0), (24.0, 20.0, False, 3.0)]
    env = opened(scene(version, [(21.0, 20.0, 50.0, 50.0, 0.3, 0.0)], cores), preset)
    step(env)
    x, y = 21.0, 20.0
    for _ in range(10):
        u, v = current(x, y, [Core(20.0, 22.0, 1, 1.5), Core(24.0, 20.0, -1, 1.5)], 0.5, False)
        x, y = x + 0.05 * u, y + 0.05 * v
    assert state(env, "pose") == pytest.approx([x, y, 0.3], abs=1e-13)


# ---- the kinematic boat


def test_a_kinematic_boat_speeds_up_towards_two_metres_a_second():
    env = opened(scene("kinematic"))
    for n in range(1, 6):
        step(env, 7)
        assert state(env, "speed") == pytest.approx([2 * (1 - 0.99 ** (10 * n))], abs=1e-14)


def test_a_kinematic_boat_turns_on_a_polygon():
    env = opened(scene("kinematic", [(5.0, 5.0, 50.0, 50.0, 0.0, 2.0)]))
    play(env, 4, 8)
    track = sum(0.1 * cmath.exp(1j * k * math.pi / 120) for k in range(40))
    assert state(env, "pose") == pytest.approx([5 + track.real, 5 + track.imag, 40 * math.pi / 120], abs=1e-12)


@pytest.mark.parametrize("rate", [40.0, 60.0])
def test_a_kinematic_boat_may_turn_far_in_a_substep(rate):
    """2 and 3 rad, for which a short polynomial is no sine."""
    env = opened(scene("kinematic", [(5.0, 5.0, 50.0, 50.0, 0.0, 2.0)]), turn_rate=rate)
    step(env, 8)
    track = sum(0.1 * cmath.exp(1j * k * rate * 0.05) for k in range(10))
    assert state(env, "pose")[:2] == pytest.approx([5 + track.real, 5 + track.imag], abs=1e-12)
    assert state(env, "pose")[2] == pytest.approx(10 * rate * 0.05 % math.tau, abs=1e-12)


def test_a_thruster_boat_without_drag_may_turn_far_in_a_substep():
    """3 rad, through which its way through the water is the same in the world."""
    none = {"added_surge": 0.0} | {f"{way}_drag{of}": 0.0 for way in ("surge", "sway", "yaw") for of in ("", "_square")}
    env = put(opened(scene(), max_steps=50, **none), water_velocity=[1.0, 0.5], yaw_rate=60.0)
    step(env)
    assert state(env, "water_velocity") == pytest.approx([1.0, 0.5], abs=1e-12)
    assert state(env, "pose")[:2] == pytest.approx([5.5, 5.25], abs=1e-12)


def test_the_nine_actions_are_accelerations_and_turn_rates():
    for index in range(9):
        env = opened(scene("kinematic", [(25.0, 25.0, 45.0, 45.0, 3.0, 1.0)]), substeps=1)
        step(env, index)
        a, w = (-0.4, 0.0, 0.4)[index // 3], (-math.pi / 6, 0.0, math.pi / 6)[index % 3]
        assert state(env, "speed") == pytest.approx([1 + (a - 0.2) * 0.05], abs=1e-15)
        assert state(env, "pose")[2] == pytest.approx(3.0 + w * 0.05, abs=1e-15)


def test_speed_stays_between_zero_and_two():
    env = opened(scene("kinematic", [(5.0, 5.0, 50.0, 50.0, 0.0, 0.1)]))
    play(env, 2, 1)
    assert state(env, "speed") == [0.0]
    env = opened(scene("kinematic"), top_speed=0.5)
    play(env, 4, 7)  # 0.66 m/s without a limit
    assert state(env, "speed") == [0.5]


def test_headings_stay_within_one_turn():
    env = opened(scene("kinematic", [(25.0, 25.0, 45.0, 45.0, 0.0, 0.0)]))
    step(env, 3)
    assert state(env, "pose")[2] == pytest.approx(2 * math.pi - math.pi / 12, abs=1e-12)
    put(env, pose=[25.0, 25.0, 6.2])
    step(env, 5)
    assert state(env, "pose")[2] == pytest.approx(6.2 + math.pi / 12 - 2 * math.pi, abs=1e-12)


def test_a_sonars_substeps_are_twice_as_long():
    env = opened(scene("sonar"))
    step(env, 7)
    assert state(env, "speed") == pytest.approx([2 * (1 - 0.98**10)], abs=1e-14)
    assert params("sonar").period == 1.0 and params("kinematic").period == 0.5


# ---- what is reported


@pytest.mark.parametrize("lag", [True, False])
def test_reported_velocity_is_of_the_last_substep_or_of_now(lag):
    env = opened(scene("kinematic"), velocity_lag=lag)
    seen = step(env, 7)[0]["robot_0"]
    assert seen[2:4] == near([2 * (1 - 0.99 ** (9 if lag else 10)), 0.0], abs=1e-14)
    env = put(opened(scene(), velocity_lag=lag), yaw_rate=0.5, thrust=[500.0, -500.0])
    seen, r = step(env)[0]["robot_0"], [0.5]
    for _ in range(10):
        r.append(r[-1] + 0.05 * (1250 - (980 + 950 * r[-1]) * r[-1]) / 1430)
    assert seen[4] == near(r[9 if lag else 10], abs=1e-14)
    assert state(env, "yaw_rate") == pytest.approx([r[10]], abs=1e-14)


@pytest.mark.parametrize("lag", [True, False])
def test_the_current_of_a_reported_velocity_is_that_of_its_place(lag):
    env = opened(scene("kinematic", [(21.0, 20.0, 50.0, 50.0, 0.0, 0.0)], [(20.0, 20.0, True, 8.0)]), velocity_lag=lag)
    step(env)
    x, y, _ = state(env, "pose")
    now = current(x, y, [Core(20.0, 20.0, 1, 4.0)], 0.5, False)
    assert (state(env, "ground_velocity") == pytest.approx(now, abs=1e-12)) != lag


@pytest.mark.parametrize("version", ["thruster", "kinematic", "sonar"])
@pytest.mark.parametrize("without", [True, False])
def test_the_first_velocity_of_a_drawn_episode_lacks_the_current_on_request(version, without):
    """Of the sonar's never."""
    env = made(version=version, start_without_current=without, cores=8)
    cores = [Core(*row) for row in get_state(env)["core"].tolist()]
    for i in range(len(env.agents)):
        x, y, theta = state(env, "pose", i)
        speed = 0.0 if version == "thruster" else state(env, "speed", i)[0]
        u, v = (0.0, 0.0) if without and version != "sonar" else current(x, y, cores, 0.5, False)
        assert abs(u) + abs(v) > 0.01 or (without and version != "sonar")
        expected = [speed * math.cos(theta) + u, speed * math.sin(theta) + v]
        assert state(env, "ground_velocity", i) == pytest.approx(expected, abs=1e-12)
