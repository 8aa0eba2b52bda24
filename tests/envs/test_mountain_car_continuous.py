"""MountainCarContinuous against Gymnasium's class and against facts that were worked out elsewhere."""

import functools

import numpy as np
import pytest
import torch

from lockstep import envs
from tests.envs import draws, transitions
from tests.envs.batches import DEVICES, B, make, statistics

NAME = "mountain_car_continuous"
BANG_BANG = envs.Linear([[0, 1e9]], [1])  # full force the way it moves, to the right at rest

one_step = functools.partial(transitions.one, NAME)


# ---- one step, by hand --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "velocity"),
    # 0.0015 a - 0.0025 cos(-1.5), of which the second part is 0.000176843004169
    [(-1.0, -0.001676843004169257), (0.0, -0.000176843004169257), (0.5, 0.000573156995830743)],
)
def test_a_car_at_rest_is_pushed_as_worked_out_by_hand(action, velocity):
    state, reward, terminated = one_step([-0.5, 0.0], action)
    assert state == pytest.approx([-0.5 + velocity, velocity], abs=1e-16)
    assert (reward, terminated) == (pytest.approx(-0.1 * action**2, abs=1e-8), False)


@pytest.mark.parametrize("action", [-3.0, 3.0])
def test_an_action_beyond_one_pushes_no_more_but_costs_its_own_square(action):
    state, reward, _ = one_step([-0.5, 0.0], action)
    assert state == one_step([-0.5, 0.0], np.sign(action))[0]
    assert reward == pytest.approx(-0.9, abs=1e-7)


def test_not_a_number_acts_as_no_action():
    assert one_step([-0.5, 0.0], np.nan) == one_step([-0.5, 0.0], 0.0)


def test_the_goal_gives_a_hundred_less_the_cost_of_the_action():
    assert one_step([0.44, 0.05], 1.0)[1:] == (pytest.approx(99.9, abs=1e-5), True)
    assert one_step([0.44, 0.05], 0.0)[1:] == (100.0, True)
    assert one_step([0.47, -0.05], 0.0)[1:] == (0.0, False)


def test_the_goal_lies_at_forty_five_centimetres():
    for offset, expected in ((-1e-9, False), (1e-9, True)):
        velocity = 0.45 - 1.25 / 3 + 0.0025 * np.cos(1.25) + offset
        assert one_step([1.25 / 3, velocity], 0.0)[2] is expected


def test_a_goal_velocity_must_be_reached_too():
    for velocity, expected in ((0.03, False), (0.05, True)):
        assert one_step([0.5, velocity], 1.0, goal_velocity=0.04)[2] is expected


def test_the_wall_on_the_left_stops_the_car_and_the_end_on_the_right_its_position():
    assert one_step([-1.19, -0.05], -1.0)[0] == [-1.2, 0.0]
    # 0.06 + 0.0015 - 0.0025 cos(1.77), which is -0.197888814609109
    assert one_step([0.59, 0.06], 1.0)[0] == pytest.approx([0.6, 0.061994722036523], abs=1e-15)


def test_no_car_is_faster_than_seven_hundredths():
    assert one_step([-np.pi / 3, 0.0699], 1.0)[0] == [-np.pi / 3 + 0.07, 0.07]
    assert one_step([0.0, -0.0699], -1.0)[0] == [-0.07, -0.07]


def test_the_goal_at_the_last_step_sets_both_flags():
    near = [0.44, 0.05]
    assert transitions.ends(NAME, near, 1.0, elapsed=997) == (True, False)
    assert transitions.ends(NAME, near, 1.0, elapsed=998) == (True, True)
    assert transitions.ends(NAME, [-0.5, 0.0], 1.0, elapsed=998) == (False, True)


# ---- one step, by Gymnasium ---------------------------------------------------------------------


@functools.cache
def cases():
    """25,000 states on both sides of the wall, the goal and the largest speeds, and actions beyond their range.

    With them what Gymnasium makes of them, its next states being rounded to float32.
    """
    random = np.random.default_rng(0)
    states = random.uniform([-1.2, -0.07], [0.6, 0.07], (20_000, 2)).astype(np.float32)
    wide = random.uniform(-2, 2, 20_000).astype(np.float32)
    seen, pushed = transitions.visited(NAME, 5000)
    states, actions = np.concatenate([states, seen]), np.concatenate([wide, pushed])
    return states, actions, transitions.original(NAME, states, actions)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", (2e-7, 2e-8)), ("float64", (1e-7, 1e-8))])
def test_one_step_equals_gymnasiums(dtype, tolerance, device):
    states, actions, expected = cases()
    found = transitions.port(NAME, states, actions, dtype, device=device)
    assert (transitions.differences(NAME, found, expected) <= tolerance).all()
    np.testing.assert_allclose(found.observation, expected.observation, rtol=0, atol=2e-7)
    # None of these states ends within 1e-6 of a threshold, where rounding would decide.
    np.testing.assert_array_equal(found.terminated, expected.terminated)
    np.testing.assert_allclose(found.reward, expected.reward, rtol=0, atol=1e-5)
    at_wall, at_end = (expected.following[:, 0] == np.float32(end) for end in (-1.2, 0.6))
    fastest = np.abs(expected.following[:, 1]) == np.float32(0.07)
    assert min(at_wall.sum(), at_end.sum(), fastest.sum(), expected.terminated.sum()) > 100


# ---- first states -------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_first_states_are_made_of_one_number(device):
    draws.assert_made_of(NAME, lambda uniform: [uniform(0, -0.6, -0.4), 0.0], device)


def test_first_positions_are_uniform_and_uncorrelated():
    states = draws.first_states(make(NAME, 10_000, seed=3), 100)
    draws.assert_uniform(states[..., 0], -0.6, -0.4)  # a million
    draws.assert_uncorrelated(states[..., :1])


# ---- whole episodes -----------------------------------------------------------------------------


def test_full_force_the_way_it_moves_takes_106_steps_and_never_more_than_111():
    env = make(NAME, 5000, seed=2)
    env.rollout(111, BANG_BANG)
    found = statistics(env)
    assert (found["episodes"], found["length_max"]) == (5000, 111)
    assert found["length_mean"] == pytest.approx(106.5, abs=0.2)
    assert found["return_mean"] == pytest.approx(100 - 0.1 * found["length_mean"], abs=1e-4)


def test_without_force_an_episode_lasts_999_steps_and_returns_nothing():
    env = make(NAME)
    for _ in range(998):
        *_, terminated, truncated, info = env.step(torch.zeros(B))
        assert not (terminated | truncated).any()
    *_, terminated, truncated, info = env.step(torch.zeros(B))
    assert truncated.all() and not terminated.any()
    assert (info["episode_return"] == 0).all()
