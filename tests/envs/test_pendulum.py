"""Pendulum against Gymnasium's class and against facts that were worked out elsewhere."""

import functools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.envs import draws, transitions
from tests.envs.batches import DEVICES, make, statistics

NAME = "pendulum"
ANGLE, SPEED, TORQUE = st.floats(-3, 3), st.floats(-8, 8), st.floats(-2, 2)

one_step = functools.partial(transitions.one, NAME)


# ---- one step, by hand --------------------------------------------------------------------------


def test_upright_at_rest_it_stays_and_costs_nothing():
    assert one_step([0.0, 0.0], 0.0) == ([0.0, 0.0], 0.0, False)


def test_hanging_at_rest_it_stays_and_costs_pi_squared():
    state, reward, _ = one_step([-math.pi, 0.0], 0.0)
    assert state == pytest.approx([-math.pi, 0.0], abs=1e-15)
    assert reward == pytest.approx(-(math.pi**2), abs=1e-6)


def test_a_level_pendulum_falls_as_worked_out_by_hand():
    # speed: (1.5 * 10 * sin(pi / 2) + 3 * 1) * 0.05 = 0.9, and the angle moves with the new one
    state, reward, _ = one_step([math.pi / 2, 0.0], 1.0)
    assert state == pytest.approx([math.pi / 2 + 0.045, 0.9], abs=1e-15)
    # of the state before: (pi / 2)^2 + 0.1 * 0 + 0.001 * 1
    assert reward == pytest.approx(-(math.pi**2 / 4 + 0.001), abs=1e-6)


def test_the_reward_is_that_of_the_state_before():
    assert one_step([0.1, 2.0], -2.0)[1] == pytest.approx(-(0.01 + 0.4 + 0.004), abs=1e-7)


def test_the_highest_cost_is_the_published_one():
    assert one_step([math.pi, 8.0], 2.0)[1] == pytest.approx(-16.2736044, abs=2e-6)


def test_torque_is_limited_in_motion_and_cost():
    for beyond, limit in ((5.0, 2.0), (-5.0, -2.0), (np.nan, 0.0)):
        assert one_step([0.3, 0.1], beyond) == one_step([0.3, 0.1], limit)


def test_speed_is_limited():
    assert one_step([math.pi / 2, 7.9], 2.0)[0] == pytest.approx([math.pi / 2 + 0.4, 8.0], abs=1e-15)
    assert one_step([-math.pi / 2, -7.9], -2.0)[0] == pytest.approx([-math.pi / 2 - 0.4, -8.0], abs=1e-15)


def test_the_angle_goes_round_within_half_a_turn_to_both_sides():
    # at 3.1 rad a step at full speed covers 0.4 rad
    assert one_step([3.1, 8.0], 2.0)[0] == pytest.approx([3.5 - 2 * math.pi, 8.0], abs=1e-15)
    assert one_step([-3.1, -8.0], -2.0)[0] == pytest.approx([2 * math.pi - 3.5, -8.0], abs=1e-15)


def test_without_gravity_or_torque_it_turns_at_its_speed():
    state, reward, _ = one_step([1.0, 2.0], 0.0, g=0.0)
    assert state == pytest.approx([1.1, 2.0], abs=1e-15)
    assert reward == pytest.approx(-1.4, abs=1e-6)


@given(angle=ANGLE, speed=SPEED, torque=TORQUE)
@settings(max_examples=25)
def test_a_mirrored_pendulum_moves_as_the_mirror_image(angle, speed, torque):
    state, reward, _ = one_step([angle, speed], torque)
    mirrored, again, _ = one_step([-angle, -speed], -torque)
    turn = (mirrored[0] + state[0] + math.pi) % (2 * math.pi) - math.pi
    assert (turn, mirrored[1], again) == (
        pytest.approx(0, abs=1e-14),
        pytest.approx(-state[1], abs=1e-14),
        pytest.approx(reward),
    )


def test_it_swings_with_the_period_of_its_linear_equation():
    # w' = w - 15 h q, q' = q + h w' about hanging, with h = 0.05, turns by Omega = 2 asin(sqrt(15) h / 2) a step: from
    # rest w goes as -sin(Omega n) and changes its sign every pi / Omega = 16.19 steps.
    states = transitions.path(NAME, [math.pi - 0.01, 0.0], 0.0, 190)
    speeds = np.sign(states[1:, 1])
    changes = np.flatnonzero(speeds[1:] != speeds[:-1]) + 2
    half = math.pi / (2 * math.asin(math.sqrt(15) * 0.05 / 2))
    assert changes.tolist() == [math.ceil(m * half) for m in range(1, 12)]


def test_without_torque_energy_is_kept_to_the_order_of_the_integrator():
    # The equation w' = 15 sin(q) keeps w^2 / 2 + 15 cos(q). A symplectic Euler step of h keeps that plus
    # h / 2 * 15 w sin(q), up to terms in h^2, and without a drift.
    angle, speed = transitions.path(NAME, [2.0, 0.0], 0.0, 199).T
    energy = speed**2 / 2 + 15 * np.cos(angle)
    shifted = energy + 15 * 0.05 / 2 * speed * np.sin(angle)
    assert np.ptp(energy) > 1.0
    assert np.ptp(shifted) < 0.03
    assert abs(shifted[100:].mean() - shifted[:100].mean()) < 0.003


# ---- one step, by Gymnasium ---------------------------------------------------------------------


@functools.cache
def cases():
    """25,000 states on both sides of the largest speeds and of the end of the angle, and torques beyond their range.

    With them what Gymnasium makes of them.
    """
    random = np.random.default_rng(0)
    states = random.uniform([-np.pi, -8], [np.pi, 8], (20_000, 2)).astype(np.float32)
    wide = random.uniform(-3, 3, 20_000).astype(np.float32)
    seen, torques = transitions.visited(NAME, 5000)
    states, actions = np.concatenate([states, seen]), np.concatenate([wide, torques])
    return states, actions, transitions.original(NAME, states, actions)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-12)])
def test_one_step_equals_gymnasiums(dtype, tolerance, device):
    states, actions, expected = cases()
    found = transitions.port(NAME, states, actions, dtype, device=device)
    assert (transitions.differences(NAME, found, expected) <= tolerance).all()
    assert ((found.following[:, 0] >= -np.pi) & (found.following[:, 0] < np.pi)).all()
    np.testing.assert_allclose(found.observation, expected.observation, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.reward, expected.reward, rtol=0, atol=1e-5)
    assert not found.terminated.any()
    fastest, round_about = np.abs(expected.following[:, 1]) == 8, np.abs(expected.following[:, 0]) > np.pi
    assert min(fastest.sum(), round_about.sum()) > 500


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-12)])
def test_an_angle_put_in_may_have_gone_round_many_times(dtype, tolerance):
    random = np.random.default_rng(0)
    states = random.uniform([-100, -8], [100, 8], (2000, 2)).astype(np.float32)
    actions = random.uniform(-2, 2, 2000).astype(np.float32)
    expected = transitions.original(NAME, states, actions)
    found = transitions.port(NAME, states, actions, dtype)
    assert (transitions.differences(NAME, found, expected) <= tolerance).all()


def test_another_gravity_equals_gymnasiums():
    states, actions = (rows[::10] for rows in cases()[:2])
    expected = transitions.original(NAME, states, actions, g=9.81)
    found = transitions.port(NAME, states, actions, g=9.81)
    assert (transitions.differences(NAME, found, expected) <= 1e-12).all()
    np.testing.assert_allclose(found.reward, expected.reward, rtol=0, atol=1e-5)


# ---- first states -------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_first_states_are_made_of_two_numbers_in_order(device):
    draws.assert_made_of(NAME, lambda uniform: [uniform(0, -np.pi, np.pi), uniform(1, -1, 1)], device)


def test_first_states_are_uniform_and_uncorrelated():
    states = draws.first_states(make(NAME, 10_000, seed=3), 100)
    draws.assert_uniform(states[..., 0], -np.pi, np.pi)  # a million
    draws.assert_uniform(states[..., 1], -1, 1)
    draws.assert_uncorrelated(states)


def test_bounds_are_those_of_angle_and_speed():
    env = make(NAME, reset=False)
    env.reset(options={"x_init": 0.1, "y_init": 0.2})
    states = env.state()["state"].abs()
    assert ((states <= torch.tensor([0.1, 0.2])) & (states.amax(dim=0) > torch.tensor([0.08, 0.16]))).all()


# ---- whole episodes -----------------------------------------------------------------------------


def test_no_episode_terminates_and_all_last_200_steps():
    env = make(NAME, 500, seed=2)
    rows = env.rollout(600, store="trajectory")
    assert not rows["terminated"].any()
    assert rows["truncated"].any(dim=1).nonzero().flatten().tolist() == [199, 399, 599]
    found = statistics(env)
    assert [found[key] for key in ("episodes", "length_min", "length_max")] == [1500, 200, 200]
    returns = rows["reward"].double().reshape(3, 200, 500).sum(dim=1)
    assert found["return_mean"] == pytest.approx(float(returns.mean()), rel=1e-6)
    assert found["return_min"] == pytest.approx(float(returns.min()), rel=1e-5)
    assert found["return_max"] == pytest.approx(float(returns.max()), rel=1e-5)
