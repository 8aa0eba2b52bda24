"""MountainCar against Gymnasium's class and against facts that were worked out elsewhere."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep import envs
from tests.envs import draws, transitions
from tests.envs.batches import DEVICES, make, statistics

NAME = "mountain_car"
LEFT, COAST, RIGHT = 0, 1, 2
BANG_BANG = envs.Linear([[0, -1], [0, 0], [0, 1]], [0, 0, 1e-9])  # push the way it moves, to the right at rest

one_step = functools.partial(transitions.one, NAME)


# ---- one step, by hand --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "velocity"),
    # cos(3 * -0.5) = 0.070737201667703, times 0.0025 = 0.000176843004169
    [(LEFT, -0.001176843004169257), (COAST, -0.000176843004169257), (RIGHT, 0.000823156995830743)],
)
def test_a_car_at_rest_is_pushed_as_worked_out_by_hand(action, velocity):
    state, reward, terminated = one_step([-0.5, 0.0], action)
    assert state == pytest.approx([-0.5 + velocity, velocity], abs=1e-16)
    assert (reward, terminated) == (-1.0, False)


def test_at_the_bottom_of_the_valley_a_car_stays_at_rest():
    bottom = -math.pi / 6  # there the slope cos(3 p) is 0
    assert one_step([bottom, 0.0], COAST)[0] == pytest.approx([bottom, 0.0], abs=1e-17)


def test_the_wall_on_the_left_stops_the_car():
    assert one_step([-1.19, -0.05], LEFT) == ([-1.2, 0.0], -1.0, False)
    # away from the wall nothing stops it: cos(-3.6) = -0.896758416334147
    state, _, _ = one_step([-1.2, 0.01], COAST)
    assert state == pytest.approx([-1.2 + 0.012241896040835, 0.012241896040835], abs=1e-15)


def test_the_end_on_the_right_stops_the_position_alone():
    # cos(1.77) = -0.197888814609109, times -0.0025, plus one push
    state, _, terminated = one_step([0.59, 0.06], RIGHT)
    assert state == pytest.approx([0.6, 0.06 + 0.001 + 0.000494722036523], abs=1e-15)
    assert terminated


@pytest.mark.parametrize(("position", "velocity", "action"), [(-math.pi / 3, 0.0699, RIGHT), (0.0, -0.0699, LEFT)])
def test_no_car_is_faster_than_seven_hundredths(position, velocity, action):
    limit = math.copysign(0.07, velocity)
    assert one_step([position, velocity], action)[0] == [position + limit, limit]


@given(position=st.floats(-1.2, 0.6), velocity=st.floats(-0.07, 0.07), action=st.sampled_from([LEFT, COAST, RIGHT]))
@settings(max_examples=25)
def test_no_step_leaves_the_valley_or_the_speeds(position, velocity, action):
    (after, speed), _, _ = one_step([position, velocity], action)
    assert -1.2 <= after <= 0.6 and abs(speed) <= 0.07
    assert abs(after - position) <= 0.07 + 1e-15
    assert not (after == -1.2 and speed < 0)


def test_an_episode_ends_from_half_a_metre_on_with_reward_minus_one():
    # velocity after the step: v - 0.0025 cos(1.4) = v - 0.000424917857
    for offset, expected in ((-1e-9, False), (1e-9, True)):
        velocity = 0.5 - 1.4 / 3 + 0.0025 * math.cos(1.4) + offset
        assert one_step([1.4 / 3, velocity], COAST)[1:] == (-1.0, expected)


def test_reaching_the_goal_exactly_is_enough():
    # the position is held at the goal itself
    assert one_step([0.59, 0.06], RIGHT, goal_position=0.6)[2] is True
    assert one_step([0.59, 0.0], COAST, goal_position=0.6)[2] is False


def test_a_goal_velocity_must_be_reached_too():
    for velocity, expected in ((0.0, True), (-0.01, False)):
        assert one_step([0.55, velocity], RIGHT)[2] is expected
    for velocity, expected in ((0.03, False), (0.05, True)):
        assert one_step([0.55, velocity], RIGHT, goal_velocity=0.04)[2] is expected


def test_the_goal_at_the_last_step_sets_both_flags():
    near = [0.49, 0.05]
    assert transitions.ends(NAME, near, RIGHT, elapsed=198) == (True, False)
    assert transitions.ends(NAME, near, RIGHT, elapsed=199) == (True, True)
    assert transitions.ends(NAME, [-0.5, 0.0], RIGHT, elapsed=199) == (False, True)


def test_a_car_swings_through_the_valley_with_the_period_of_its_linear_equation():
    # v' = v - 0.0075 q, q' = q + v' about the bottom turns by Omega = 2 asin(sqrt(0.0075) / 2) a step: from rest v goes
    # as -sin(Omega n) and changes its sign every pi / Omega = 36.26 steps.
    states = transitions.path(NAME, [-math.pi / 6 + 1e-3, 0.0], COAST, 190)
    velocities = np.sign(states[1:, 1])
    changes = np.flatnonzero(velocities[1:] != velocities[:-1]) + 2
    half = math.pi / (2 * math.asin(math.sqrt(0.0075) / 2))
    assert changes.tolist() == [math.ceil(m * half) for m in range(1, 6)]


# ---- one step, by Gymnasium ---------------------------------------------------------------------


@functools.cache
def cases():
    """25,000 states on both sides of the wall, the goal and the largest speeds, and what Gymnasium makes of them."""
    random = np.random.default_rng(0)
    states = random.uniform([-1.2, -0.07], [0.6, 0.07], (20_000, 2)).astype(np.float32)
    seen, pushed = transitions.visited(NAME, 5000)
    states, actions = np.concatenate([states, seen]), np.concatenate([random.integers(3, size=20_000), pushed])
    return states, actions, transitions.original(NAME, states, actions)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", (2e-7, 2e-8)), ("float64", (1e-12, 1e-12))])
def test_one_step_equals_gymnasiums(dtype, tolerance, device):
    states, actions, expected = cases()
    found = transitions.port(NAME, states, actions, dtype, device=device)
    assert (transitions.differences(NAME, found, expected) <= tolerance).all()
    np.testing.assert_allclose(found.observation, expected.observation, rtol=0, atol=2e-7)
    # None of these states ends within 1e-6 of a threshold, where rounding would decide.
    np.testing.assert_array_equal(found.terminated, expected.terminated)
    np.testing.assert_array_equal(found.reward, expected.reward)
    at_wall, at_end = expected.following[:, 0] == -1.2, expected.following[:, 0] == 0.6
    fastest = np.abs(expected.following[:, 1]) == 0.07
    assert min(at_wall.sum(), at_end.sum(), fastest.sum(), expected.terminated.sum()) > 100


def test_one_step_to_a_goal_velocity_equals_gymnasiums():
    states, actions = (rows[::10] for rows in cases()[:2])
    expected = transitions.original(NAME, states, actions, goal_velocity=0.04)
    found = transitions.port(NAME, states, actions, goal_velocity=0.04)
    assert (transitions.differences(NAME, found, expected) <= 1e-12).all()
    np.testing.assert_array_equal(found.terminated, expected.terminated)


# ---- first states -------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_first_states_are_made_of_one_number(device):
    draws.assert_made_of(NAME, lambda uniform: [uniform(0, -0.6, -0.4), 0.0], device)


def test_first_positions_are_uniform_and_uncorrelated():
    states = draws.first_states(make(NAME, 10_000, seed=3), 100)
    draws.assert_uniform(states[..., 0], -0.6, -0.4)  # a million
    draws.assert_uncorrelated(states[..., :1])


def test_bounds_are_those_of_the_position():
    obs, _ = make(NAME, reset=False).reset(options={"low": -0.9, "high": -0.8})
    assert ((obs[:, 0] >= -0.9) & (obs[:, 0] <= -0.8) & (obs[:, 1] == 0)).all()


# ---- whole episodes -----------------------------------------------------------------------------


def test_pushing_the_way_it_moves_takes_119_steps_and_never_more_than_125():
    env = make(NAME, 5000, seed=2)
    env.rollout(125, BANG_BANG)
    found = statistics(env)
    assert (found["episodes"], found["length_max"]) == (5000, 125)
    assert found["length_mean"] == pytest.approx(119.4, abs=0.2)
    assert found["return_mean"] == -found["length_mean"]


def test_at_random_no_car_reaches_the_goal():
    env = make(NAME, 1000, seed=2)
    env.rollout(400)
    found = statistics(env)
    assert [found[key] for key in ("episodes", "length_min", "return_min", "return_max")] == [2000, 200, -200, -200]
