"""Rewards, ends and statistics of control steps, by hand."""

import math

import numpy as np
import pytest

from tests.envs.marine_navigation.worlds import QUIET, get_state, near, opened, play, put, scene, state, step

pytestmark = pytest.mark.usefixtures("form")
AWAY = (45.0, 45.0, 0.0, 0.0)
R = math.sqrt(31.25) / 2
# A boat at (10, 10) that sails 0.995 m east in a step, and reaches a goal 2.9 m away in the first, 3.9 m in the second.
FIRST = (10.0, 10.0, 12.9, 10.0, 0.0, 2.0)
SECOND = (10.0, 10.0, 13.9, 10.0, 0.0, 2.0)


# ---- collisions and goals


def test_touching_at_exactly_the_sum_of_radii_is_a_collision():
    env = put(opened(scene("kinematic", [(0, 0, *AWAY)], obstacles=[(5, 0, 1)])), obstacle=[(1.8, 0, 1)])
    assert step(env)[2] == {"robot_0": True} and state(env, "hit_obstacle") == [1]
    beyond = math.nextafter(1.8, 2)
    env = put(opened(scene("kinematic", [(0, 0, *AWAY)], obstacles=[(5, 0, 1)])), obstacle=[(beyond, 0, 1)])
    assert step(env)[2] == {"robot_0": False} and state(env, "hit_obstacle") == [0]


def test_the_own_radius_counts_in_a_collision():
    env = opened(scene(robots=[(20, 20, *AWAY)], obstacles=[(20 + R + 1.01, 20, 1)]))
    assert not step(env)[2]["robot_0"]
    assert step(put(env, pose=[20.02, 20, 0]))[2]["robot_0"]  # 3.785 m from a centre, far from its disc


def test_two_robots_that_touch_both_collide():
    env = opened(scene("kinematic", [(0, 0, *AWAY), (5, 0, *AWAY), (9, 0, *AWAY)]))
    put(env, pose=[(0, 0, 0), (1.6, 0, 0), (9, 0, 0)])
    _, reward, terminated, *_ = step(env)
    assert list(terminated.values()) == [True, True, False]
    assert reward["robot_0"] == reward["robot_1"] == -51.0 and reward["robot_2"] == -1.0
    assert get_state(env)["hit_robot"].tolist() == [1, 1, 0] and env.agents == ["robot_2"]


def test_a_robot_that_does_not_cooperate_is_hit_by_others_alone_and_hits_obstacles():
    env = opened(scene("kinematic", [(0, 0, *AWAY), (5, 0, *AWAY)], obstacles=[(20, 20, 1)]), non_cooperative=1)
    assert list(step(put(env, pose=[(0, 0, 0), (1.5, 0, 0)]))[2].values()) == [True, False]
    assert list(step(put(env, pose=[(0, 0, 0), (18.5, 20, 0)]))[2].values()) == [True]


@pytest.mark.parametrize("version", ["thruster", "kinematic"])
def test_a_goal_is_reached_at_exactly_two_metres(version):
    for far, there in ((2.0, True), (math.nextafter(2.0, 3), False)):
        env = put(opened(scene(version)), pose=[0, 0, 0], goal=[far, 0])
        _, reward, terminated, _, _ = step(env)
        bonus = (
            {"thruster": 9.9, "kinematic": 99.0}[version] if there else {"thruster": -0.1, "kinematic": -1.0}[version]
        )
        assert terminated["robot_0"] == there and reward["robot_0"] == near(bonus)


@pytest.mark.parametrize(("version", "total"), [("thruster", -5.1), ("kinematic", -51.0)])
def test_a_collision_at_the_goal_is_a_collision(version, total):
    env = opened(scene(version, [(20, 20, 21, 20, 0, 0)], obstacles=[(27, 20, 1)]))
    put(env, obstacle=[(21.5, 20, 1)])
    _, reward, terminated, _, infos = step(env)
    assert terminated["robot_0"] and reward["robot_0"] == near(total)
    assert infos["robot_0"]["reached"] and infos["robot_0"]["hit_obstacle"] and not infos["robot_0"]["success"]


def test_nothing_is_tested_at_reset():
    env = opened(scene("kinematic", [(10, 10, 11, 10, 0, 2.0)]), top_speed=10)
    assert env.agents and not state(env, "reached")[0]
    assert not step(put(env, speed=10.0, goal=[10.0, 10.0]), 7)[2]["robot_0"]  # it has left before the first test


def test_progress_is_rewarded_metre_by_metre():
    env = opened(scene("kinematic", [(10.0, 10.0, 40.0, 50.0, 0.3, 1.0)]))
    before = math.dist((10, 10), (40, 50))
    reward = step(env, 8)[1]["robot_0"]
    x, y, _ = state(env, "pose")
    assert reward == near(-1 + before - math.dist((x, y), (40, 50)))


def test_an_episode_s_first_progress_is_its_own():
    """Not measured from where the last episode ended."""
    env = opened(scene("kinematic", [(10.0, 10.0, 40.0, 10.0, 0.0, 2.0)]), max_steps=3)
    first = [step(env, 7)[1]["robot_0"] for _ in range(3)]
    assert env.agents == []
    env.reset()
    assert step(env, 7)[1]["robot_0"] == first[0] == near(0.0)


# ---- ends


def test_a_robot_that_has_ended_is_out_of_the_game():
    """Robot 0 reaches its goal in the first step; robot 1 sails through it."""
    robots = [FIRST, (14.0, 10.0, 2.0, 10.0, math.pi, 2.0), (10.0, 30.0, 40.0, 30.0, 0.0, 2.0)]
    env = opened(scene("kinematic", robots))
    seen, reward, terminated, truncated, infos = step(env, 7, 4, 7)
    assert list(terminated.values()) == [True, False, False] and not any(truncated.values())
    assert seen["robot_0"].any() and infos["robot_0"]["reached"] and env.agents == ["robot_1", "robot_2"]
    frozen = {name: rows[0].tolist() for name, rows in get_state(env).items() if np.ndim(rows) and len(rows) == 3}
    total = state(env, "returns")
    assert seen["robot_1"][19:23].any() and reward["robot_0"] > 90  # seen in the step that ended it
    met = []
    for _ in range(4):
        seen, reward, terminated, *_ = env.step({"robot_0": 8, "robot_1": 7, "robot_2": 7})  # the first is not read
        assert set(seen) == set(reward) == {"robot_1", "robot_2"} and not any(terminated.values())
        assert not seen["robot_1"][19:23].any()
        met.append(math.dist(state(env, "pose")[:2], state(env, "pose", 1)[:2]))
    assert min(met) < 1.6 and state(env, "returns") == total
    after = {name: rows[0].tolist() for name, rows in get_state(env).items() if name in frozen and name != "counts"}
    assert after == {name: value for name, value in frozen.items() if name != "counts"}


@pytest.mark.parametrize(("extra", "steps"), [(False, 3), (True, 4)])
def test_the_limit_truncates_after_its_steps(extra, steps):
    env = opened(scene("kinematic"), max_steps=3, limit_extra_step=extra)
    for n in range(1, steps + 1):
        *_, terminated, truncated, _ = step(env)
        assert terminated == {"robot_0": False} and truncated == {"robot_0": n == steps}
    assert env.agents == []


@pytest.mark.parametrize("first", [True, False])
def test_at_the_limit_ends_count_unless_it_beats_them(first):
    robots = [FIRST, (30, 30, 45, 45, 0, 0), (10, 20, 45, 45, 0, 0)]
    env = opened(scene("kinematic", robots, obstacles=[(33, 30, 1)]), max_steps=1, limit_beats_end=first)
    put(env, obstacle=[(31, 30, 1)])
    _, reward, terminated, truncated, infos = step(env, 7, 4, 4)
    assert list(terminated.values()) == [not first, not first, False]
    assert list(truncated.values()) == [first, first, True] and env.agents == []
    assert list(reward.values()) == pytest.approx([0.0 if first else 100.0, -1.0 if first else -51.0, -1.0], abs=0.01)
    assert infos["robot_0"]["reached"] and infos["robot_1"]["hit_obstacle"]


def test_success_holds_where_the_limit_beats_the_goal():
    env = opened(scene("kinematic", [FIRST]), max_steps=1, limit_beats_end=True)
    assert step(env, 7)[4]["robot_0"]["success"]


def test_the_colregs_share_stays_where_the_limit_beats_the_end():
    env = opened(scene(robots=[(20, 20, 50, 20, 0, 0), (30, 20, 5, 20, math.pi, 0)]), max_steps=1, substeps=1, dt=1e-6,
                 limit_beats_end=True, **QUIET)  # fmt: skip
    put(env, water_velocity=[[1, 0], [-1, 0]])
    assert step(env)[1]["robot_0"] < -0.14


def test_the_first_collision_stops_all_on_request():
    robots = [(0, 0, *AWAY), (5, 0, *AWAY), (20, 0, *AWAY)]
    for stop in (True, False):
        env = put(opened(scene("kinematic", robots), stop_at_collision=stop), pose=[(0, 0, 0), (1.6, 0, 0), (20, 0, 0)])
        *_, terminated, truncated, _ = step(env)
        assert list(terminated.values()) == [True, True, False] and list(truncated.values()) == [False, False, stop]
        assert env.agents == ([] if stop else ["robot_2"])


def test_an_episode_is_over_when_nobody_is_active():
    env = opened(scene("kinematic", [FIRST, (10.0, 30.0, 13.9, 30.0, 0.0, 2.0)]))
    assert step(env, 7, 7)[4]["robot_1"]["success"] is False and env.agents == ["robot_1"]
    assert step(env, 7)[4]["robot_1"]["success"] is True and env.agents == []


# ---- statistics


def test_statistics_count_active_steps():
    env = opened(scene("kinematic", [FIRST, (10.0, 30.0, 40.0, 30.0, 0.0, 2.0)]))
    first, rewards = step(env, 7, 6), []
    rewards.append(first[1]["robot_1"])
    for _ in range(2):
        last = env.step({"robot_1": 4})
        rewards.append(last[1]["robot_1"])
    one, other = first[4]["robot_0"], last[4]["robot_1"]
    assert (one["time"], one["energy"]) == (0.5, 1.0) and (other["time"], other["energy"]) == (1.5, 2.0)
    assert other["return"] == pytest.approx(sum(rewards)) and other["episode_length"] == 3
    assert get_state(env)["steps"].tolist() == [1, 3] and get_state(env)["energy"].tolist() == [1.0, 2.0]


def test_energy_of_a_thruster_boat_is_its_thrust_after_the_update():
    env = opened(scene())
    assert step(env, np.array([1.0, -0.5]))[4]["robot_0"]["energy"] == (500 + 250) * 0.5
    assert step(env, np.array([1.0, -1.0]))[4]["robot_0"]["energy"] == (500 + 250 + 1000 + 500) * 0.5


def test_a_second_episode_counts_from_zero():
    env = opened(scene("kinematic"), max_steps=2)
    play(env, 2, 8)
    env.reset()
    found = get_state(env)
    assert not any(found[name].any() for name in ("returns", "steps", "energy", "reached", "hit_robot", "elapsed"))
