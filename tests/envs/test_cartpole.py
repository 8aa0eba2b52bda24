"""CartPole against Gymnasium's class and against facts that were worked out elsewhere."""

import functools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep import envs
from tests.envs import draws, transitions
from tests.envs.batches import DEVICES, make, statistics

NAME = "cartpole"
BALANCE = envs.Linear([[0, 0, 0, 0], [0, 0, 2, 1]], [0, 0])  # push to the right if 2 theta + theta_dot > 0

one_step = functools.partial(transitions.one, NAME)


# ---- one step, by hand --------------------------------------------------------------------------


def test_an_upright_pole_at_rest_is_pushed_as_worked_out_by_hand():
    # temp = 10/1.1; theta_acc = -temp / (0.5 (4/3 - 0.1/1.1)); x_acc = temp - 0.05 theta_acc / 1.1
    push = 10 / 1.1
    theta_acc = -push / (0.5 * (4 / 3 - 0.1 / 1.1))
    x_acc = push - 0.05 * theta_acc / 1.1
    state, reward, terminated = one_step([0.0, 0.0, 0.0, 0.0], 1)
    assert state == pytest.approx([0.0, 0.02 * x_acc, 0.0, 0.02 * theta_acc], abs=1e-15)
    assert (reward, terminated) == (1.0, False)
    mirrored, _, _ = one_step([0.0, 0.0, 0.0, 0.0], 0)
    assert mirrored == pytest.approx([-v for v in state], abs=1e-15)


def test_without_gravity_or_force_a_pole_at_rest_stays():
    state, _, _ = one_step([0.1, 0.5, 0.05, 0.0], 1, gravity=0.0, force_mag=0.0)
    assert state == pytest.approx([0.1 + 0.02 * 0.5, 0.5, 0.05, 0.0], abs=1e-15)


def test_semi_implicit_integration_moves_with_the_new_speeds():
    explicit, _, _ = one_step([0.0, 0.0, 0.0, 0.0], 1)
    implicit, _, _ = one_step([0.0, 0.0, 0.0, 0.0], 1, kinematics_integrator="semi_implicit_euler")
    expected = [0.02 * explicit[1], explicit[1], 0.02 * explicit[3], explicit[3]]
    assert implicit == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(("field", "threshold"), [(0, 2.4), (2, 12 * 2 * math.pi / 360)])
@pytest.mark.parametrize("side", [-1, 1])
def test_an_episode_ends_strictly_beyond_each_threshold(field, threshold, side):
    for offset, expected in ((-1e-9, False), (1e-9, True)):
        state = [0.0, 0.0, 0.0, 0.0]
        state[field] = side * (threshold + offset)  # at rest a field does not move in this step
        assert one_step(state, 1)[2] is expected


@given(
    state=st.tuples(st.floats(-3, 3), st.floats(-4, 4), st.floats(-0.4, 0.4), st.floats(-4, 4)),
    action=st.integers(0, 1),
)
@settings(max_examples=25)
def test_a_mirrored_pole_falls_as_the_mirror_image(state, action):
    there, reward, terminated = one_step(state, action)
    back, *others = one_step([-value for value in state], 1 - action)
    assert there == pytest.approx([-value for value in back], abs=1e-14)
    assert others == [reward, terminated]


@pytest.mark.parametrize(("beyond", "reward"), [(False, 0.0), (True, -1.0)])
def test_the_reward_of_sutton_and_barto_is_minus_one_at_the_end(beyond, reward):
    assert one_step([2.5 if beyond else 0.0, 0.0, 0.0, 0.0], 1, sutton_barto_reward=True)[1] == reward


def test_falling_at_the_last_step_sets_both_flags():
    fast = [2.39, 5.0, 0.0, 0.0]
    assert transitions.ends(NAME, fast, 1, elapsed=498) == (True, False)
    assert transitions.ends(NAME, fast, 1, elapsed=499) == (True, True)
    assert transitions.ends(NAME, [0.0, 0.0, 0.0, 0.0], 1, elapsed=499) == (False, True)


# ---- one step, by Gymnasium ---------------------------------------------------------------------


@functools.cache
def cases():
    """25,000 states on both sides of every threshold, actions, and what Gymnasium makes of them."""
    random = np.random.default_rng(0)
    states = random.uniform([-2.6, -3, -0.25, -4], [2.6, 3, 0.25, 4], (20_000, 4)).astype(np.float32)
    seen, pushed = transitions.visited(NAME, 5000)
    states, actions = np.concatenate([states, seen]), np.concatenate([random.integers(2, size=20_000), pushed])
    return states, actions, transitions.original(NAME, states, actions)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-12)])
def test_one_step_equals_gymnasiums(dtype, tolerance, device):
    states, actions, expected = cases()
    found = transitions.port(NAME, states, actions, dtype, device=device)
    assert (transitions.differences(NAME, found, expected) <= tolerance).all()
    np.testing.assert_allclose(found.observation, expected.observation, rtol=1e-6, atol=1e-6)
    # None of these states ends within 1e-6 of a threshold, where rounding would decide.
    np.testing.assert_array_equal(found.terminated, expected.terminated)
    np.testing.assert_array_equal(found.reward, expected.reward)
    assert 5000 < expected.terminated.sum() < 20_000


@pytest.mark.parametrize("params", [{"sutton_barto_reward": True}, {"kinematics_integrator": "semi_implicit_euler"}])
def test_one_step_of_a_variant_equals_gymnasiums(params):
    states, actions = (rows[::10] for rows in cases()[:2])
    expected = transitions.original(NAME, states, actions, **params)
    found = transitions.port(NAME, states, actions, **params)
    assert (transitions.differences(NAME, found, expected) <= 1e-12).all()
    np.testing.assert_array_equal(found.terminated, expected.terminated)
    np.testing.assert_array_equal(found.reward, expected.reward)


def test_sine_and_cosine_are_right_to_less_than_an_ulp_and_a_half():
    # With gravity alone and no speed: theta_dot' = tau g sin(theta) / (l (4/3 - m cos^2 / M)); both functions enter.
    angles = np.linspace(-0.4188, 0.4188, 200_001).astype(np.float32)
    states = np.zeros((len(angles), 4), dtype=np.float32)
    states[:, 2] = angles
    found = transitions.port(NAME, states, np.zeros(len(angles), dtype=np.uint8), "float32", force_mag=0.0)
    x = angles.astype(np.float64)
    exact = 0.02 * 9.8 * np.sin(x) / (0.5 * (4 / 3 - 0.1 * np.cos(x) ** 2 / 1.1))
    relative = np.abs(found.following[:, 3] - exact) / np.maximum(np.abs(exact), 1e-30)
    assert np.max(relative[exact != 0]) < 4 * 2.0**-23  # sine, product, quotient and sum each round once


# ---- first states -------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_first_states_are_made_of_four_numbers_in_order(device):
    draws.assert_made_of(NAME, lambda uniform: [uniform(j, -0.05, 0.05) for j in range(4)], device)


def test_first_states_are_uniform_and_uncorrelated():
    states = draws.first_states(make(NAME, 10_000, seed=3), 25)
    draws.assert_uniform(states, -0.05, 0.05)  # a million
    for field in range(4):
        draws.assert_uniform(states[..., field], -0.05, 0.05)
    draws.assert_uncorrelated(states)


def test_bounds_hold_through_autoresets_until_the_next_full_reset():
    env = make(NAME, 500, reset=False)
    env.reset(options={"low": 0.1, "high": 0.2})
    for _ in range(60):
        obs, *_, info = env.step(env.random_actions()[0])
        first = obs[info["_final_obs"]]
        assert ((first >= 0.1) & (first <= 0.2)).all()
    assert (env.state()["episode"].numpy() > 0).any()
    assert (env.reset()[0].abs() <= 0.05).all()


# ---- whole episodes -----------------------------------------------------------------------------


def test_the_return_of_sutton_and_barto_is_minus_one_or_zero():
    env = make(NAME, 300, sutton_barto_reward=True, max_episode_steps=20)
    env.rollout(500)
    env.rollout(100, store="trajectory")
    for _ in range(30):
        *_, terminated, truncated, info = env.step(env.random_actions()[0])
        assert torch.equal(info["episode_return"][terminated], torch.full((int(terminated.sum()),), -1.0))
        only_truncated = truncated & ~terminated
        assert (info["episode_return"][only_truncated] == 0).all()
    found = statistics(env)
    assert (found["return_min"], found["return_max"]) == (-1.0, 0.0)


def test_a_random_policy_lasts_22_steps_on_average_and_never_less_than_8():
    env, lengths = make(NAME, 20_000, seed=2), np.zeros(20_000)
    for _ in range(250):
        info = env.step(env.random_actions()[0])[4]
        ended = info["_final_obs"].numpy() & (lengths == 0)  # the first episode of each, so that no length is favoured
        lengths[ended] = info["episode_length"].numpy()[ended]
    assert lengths.min() == 8
    assert lengths.mean() == pytest.approx(22.26, abs=4 * 11.9 / np.sqrt(20_000))
    assert lengths.std() == pytest.approx(11.9, rel=0.03)


def test_the_balancing_policy_always_reaches_the_limit():
    env = make(NAME, 1000, seed=2)
    env.rollout(1500, BALANCE)
    found = statistics(env)
    assert [found[key] for key in ("episodes", "length_min", "length_max")] == [3000, 500, 500]


def corners(bound):
    """The 16 corners of the reset box."""
    return np.array(np.meshgrid(*[[-bound, bound]] * 4)).reshape(4, -1).T


def test_no_action_sequence_ends_an_episode_within_seven_steps():
    states = np.repeat(corners(0.05), 2**7, axis=0)
    actions = np.tile((np.arange(2**7)[:, None] >> np.arange(7)) & 1, (16, 1))
    env = envs.make(NAME, len(states), dtype="float64", autoreset_mode="Disabled")
    env.set_state({"state": states, "elapsed": np.zeros(len(states), dtype=int)})
    for t in range(7):
        _, _, terminated, _, _ = env.step(torch.from_numpy(actions[:, t].copy()))
        assert not terminated.any()
