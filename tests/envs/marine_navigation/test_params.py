"""Constants, presets and refusals of Params."""

import math
import re

import numpy as np
import pytest

from lockstep.envs.marine_navigation import original
from lockstep.envs.marine_navigation.params import PRESETS, SWITCHES, Params, make_params
from tests.envs.marine_navigation.worlds import make, opened, params, play, put, scene, state


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        ("thruster", (55, 0.05, 10, math.hypot(5, 2.5) / 2, 10, 3, 3, 1, 1, 20, -0.1, -5, 10, -0.1, 5, 0, 4, 37)),
        ("kinematic", (50, 0.05, 10, 0.8, 5, 5, 10, 1, 1, 15, -1, -50, 100, 0, 5, 6, 6, 39)),
        ("sonar", (50, 0.1, 10, 0.8, 10, 5, 10, 1, 3, 10, -1, -50, 100, 0, 1, 8, 10, 26)),
    ],
)
def test_constants_of_each_version(version, numbers):
    names = ("width", "dt", "substeps", "collision_radius", "clear", "edge_speed_low", "edge_speed_high",
             "obstacle_low", "obstacle_high", "perception_range", "step_reward", "collision_reward", "goal_reward",
             "colregs_weight", "robots", "cores", "obstacles", "observed")  # fmt: skip
    p = params(version)
    assert [getattr(p, name) for name in names] == pytest.approx(list(numbers), abs=1e-15)
    assert (p.min_goal_distance, p.max_steps, p.goal_radius, p.core_radius) == (40, 1000, 2, 0.5)
    assert p.hull_radius == pytest.approx({"thruster": 2.795085}.get(version, 0.559017), abs=5e-7)


def test_inertias_are_those_of_the_thruster_boat():
    assert (params().surge_inertia, params().mass, params().yaw_inertia) == (380, 400, 1430)


def test_original_sets_every_switch_but_shadowing():
    assert len(SWITCHES) == 10
    on = {name for name in SWITCHES if getattr(Params(**PRESETS["original"]), name)}
    assert on == set(SWITCHES) - {"vortex_shadowing"}
    assert make_params() == Params() and not any(getattr(Params(), name) for name in SWITCHES)
    assert make_params("kinematic", "original", velocity_lag=False).velocity_lag is False


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"version": "truster"}, "version='truster' "),
        ({"preset": "orignal"}, "preset='orignal' is unknown; "),
        ({"velocty_lag": True}, "no parameter or option 'velocty_lag'; did you mean 'velocity_lag'?"),
        ({"velocity_lag": 1}, "velocity_lag=1 must be True or False"),
        ({"robots": 0}, "robots=0 must be at least 1"),
        ({"robots": -3}, "robots=-3 must be at least 1"),
        ({"robots": 33}, "robots=33 must be at most 32"),
        ({"robots": 2.5}, "robots=2.5 must be an integer"),
        ({"cores": -1}, "cores=-1 must be at least 0"),
        ({"cores": 65}, "cores=65 must be at most 64"),
        ({"obstacles": 33}, "obstacles=33 must be at most 32"),
        ({"version": "sonar", "robots": 2}, "robots=2 must be 1 where version='sonar'"),
        ({"min_goal_distance": 72.2}, "min_goal_distance=72.2 must be less than 72.1249, the diagonal of the square"),
        ({"version": "kinematic", "min_goal_distance": 66.0}, "min_goal_distance=66.0 must be less than 65.0538"),
        ({"min_goal_distance": math.nan}, "min_goal_distance=nan must be a finite number"),
        ({"max_steps": 0}, "max_steps=0 must be at least 1"),
        ({"action_kind": "discret"}, "action_kind='discret' must be one of 'continuous', 'discrete'"),
        ({"version": "kinematic", "action_kind": "continuous"}, "must be 'discrete' where version='kinematic'"),
        ({"non_cooperative": 1}, "non_cooperative=1 must be 0 where version='thruster'"),
        ({"version": "kinematic", "non_cooperative": 6}, "non_cooperative=6 must be at most robots=5"),
        ({"width": 10.0}, "width=10.0 must be more than 10.0, the margins of obstacles"),
        ({"edge_speed_low": 4.0}, "edge_speed_low=4.0 must not exceed edge_speed_high=3.0"),
        ({"thrust_low": 5.0}, "thrust_low=5.0, thrust_high=1000.0 must have 0 between them"),
        ({"added_surge": 400.0}, "added_surge=400.0 must be less than the inertia that it is taken from"),
        ({"dt": 0.0}, "dt=0.0 must be positive"),
        ({"mass": "heavy"}, "mass='heavy' must be a number"),
        ({"beam_angle": 4.0}, "beam_angle=4.0 must be at most 3.14159"),
        ({"dt": 1e-320}, "dt=1e-320 must be at least 1.17549e-38"),
        ({"width": 1e308}, "width=1e+308 must be from -3.40282e+38 to 3.40282e+38"),
        ({"version": np.array(["a", "b"])}, "version=array(['a', 'b']"),
        ({"preset": np.array(["a", "b"])}, "preset=array(['a', 'b']"),
        ({"radius_spread": 0.8}, "radius_spread=0.8 must be less than radius_mean=0.8"),
        ({"dt": 10.0}, "dt=10.0 must be less than 0.6"),
        ({"mass": 20.0001}, "dt=0.05 must be less than"),
        ({"lever": 1e6}, "dt=0.05 must be less than"),
        ({"thrust_rate": 1e30, "thrust_high": 1e30}, "dt=0.05 must be less than"),
        ({"preset": "original", "mass": 21.0}, "dt=0.05 must be less than"),
        ({"yaw_drag": 0.0, "yaw_drag_square": 0.0, "lever": 1e3}, "dt=0.05 must be less than"),
        ({"version": "kinematic", "speed_drag": 40.0}, "dt=0.05 must be less than 0.05 s"),
    ],
)  # fmt: skip
def test_a_value_without_meaning_is_refused(options, said):
    with pytest.raises(ValueError, match="^.*" + re.escape(said)):
        make(**options)


def test_substeps_may_be_as_long_as_they_do_not_grow():
    """u* = 10/3 and, of 1875 N m, r* = 0.9808: 2 · 380/(100 + 300 u* + 20 r*) s. Just below thrust settles as ever."""
    r = (math.sqrt(980**2 + 4 * 950 * 1875) - 980) / 1900
    longest = 2 * 380 / (100 + 300 * 10 / 3 + 20 * r)
    with pytest.raises(ValueError, match=f"dt=.* must be less than {longest:.6g} s, .* of the surge grow at top speed"):
        Params(dt=longest * 1.001)
    env = put(opened(scene(), dt=longest * 0.99), thrust=(1000, 1000))
    play(env, 300)
    assert state(env, "water_velocity") == pytest.approx([10 / 3, 0.0], abs=1e-9)


def test_the_nearest_version_and_preset_are_named():
    for options, said in (({"version": "truster"}, "thruster"), ({"preset": "orignal"}, "original")):
        with pytest.raises(ValueError, match=f" is unknown; did you mean '{said}'?"):
            original.make(**options)


def test_numbers_of_numpy_become_those_of_python():
    found = Params(robots=np.int64(3), dt=np.float32(0.5), velocity_lag=np.True_)
    assert [type(value) for value in (found.robots, found.dt, found.velocity_lag)] == [int, float, bool]


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("of", [{"scenario": scene("kinematic")}, {"curriculum": [((2, 0, 0, 10.0), 1.0)]}])
def test_no_more_robots_are_blind_than_an_episode_has(of):
    with pytest.raises(ValueError, match="non_cooperative=5 must be at most robots="):
        make(version="kinematic", non_cooperative=5, **of)


@pytest.mark.usefixtures("form")
def test_a_substep_turns_by_less_than_a_turn():
    with pytest.raises(ValueError, match="turn_rate=126.0 must be less than 125.664, a turn in dt"):
        make(version="kinematic", turn_rate=126.0)


@pytest.mark.usefixtures("form")
def test_numbers_that_scenarios_and_curricula_replace_are_not_judged():
    """A map of 30 m, in which no goal is 40 m away, and as many blind robots as the curriculum's stages have."""
    assert make(scenario=scene(), width=30.0).params.robots == 1
    assert make(version="kinematic", curriculum=[((2, 0, 0, 10.0), 1.0)], robots=1, width=30.0, non_cooperative=2)
