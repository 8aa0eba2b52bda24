"""Acrobot against Gymnasium's class and against facts that were worked out elsewhere."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep import envs
from tests.envs import draws, transitions
from tests.envs.batches import DEVICES, make, statistics

NAME = "acrobot"
BACK, FREE, FORTH = 0, 1, 2  # torque on the joint between the links: -1, 0, 1 N m
SPEEDS = (4 * math.pi, 9 * math.pi)  # rad/s, the largest
PUMP = envs.Linear([[0, 0, 0, 0, 1, 0], [0] * 6, [0, 0, 0, 0, -1, 0]], [0, 0, 0])  # against the first link's speed

one_step = functools.partial(transitions.one, NAME)


# ---- one step, by hand --------------------------------------------------------------------------


def test_hanging_at_rest_it_stays():
    assert one_step([0.0, 0.0, 0.0, 0.0], FREE) == (pytest.approx([0.0, 0.0, 0.0, 0.0], abs=1e-15), -1.0, False)


@pytest.mark.parametrize(("action", "torque"), [(BACK, -1.0), (FORTH, 1.0)])
def test_a_torque_at_rest_turns_the_links_as_worked_out_by_hand(action, torque):
    # hanging: d1 = 4.5, d2 = 1.75; the second link's acceleration is torque / (1.25 - d2^2 / d1) = 1.7560975609...
    second = torque / (1.25 - 1.75**2 / 4.5)
    first = -1.75 / 4.5 * second
    dt = 1e-3
    expected = [first * dt**2 / 2, second * dt**2 / 2, first * dt, second * dt]
    # the angles reached, 1e-6, change the accelerations by some 1e-5 of them
    assert one_step([0.0, 0.0, 0.0, 0.0], action, dt=dt)[0] == pytest.approx(expected, rel=2e-5)


def energy(state) -> float:
    """Kinetic and potential energy (J) of two links of 1 kg, 1 m and 1 kg m^2, centres of mass half way."""
    first, second, w1, w2 = state
    w2 += w1  # of the second link against the ground
    vx = w1 * math.cos(first) + 0.5 * w2 * math.cos(first + second)
    vy = w1 * math.sin(first) + 0.5 * w2 * math.sin(first + second)
    kinetic = 0.5 * (0.25 + 1) * w1**2 + 0.5 * (vx**2 + vy**2) + 0.5 * w2**2
    return kinetic - 9.8 * (0.5 * math.cos(first) + math.cos(first) + 0.5 * math.cos(first + second))


def test_without_torque_energy_is_kept_to_the_order_of_runge_and_kutta():
    start = [1.0, -0.7, 0.5, -0.8]
    errors = [abs(energy(one_step(start, FREE, dt=dt)[0]) - energy(start)) for dt in (0.2, 0.1)]
    assert errors[0] < 1e-3
    assert 20 < errors[0] / errors[1] < 50  # one step of order four is wrong by dt^5: 32 times less at half of it


@pytest.mark.parametrize(
    ("first", "second", "high"),
    # the tip is -cos(first) - cos(first + second) above the joint
    [(math.pi, 0.0, True), (2 * math.pi / 3, 0.0, False), (math.pi, math.pi, False), (2.2, 0.0, True)],
)
def test_an_episode_ends_with_reward_0_where_the_tip_is_more_than_a_link_above_the_joint(first, second, high):
    # in a thousandth of a second it hardly moves
    state, reward, terminated = one_step([first, second, 0.0, 0.0], FREE, dt=1e-3)
    assert state[:2] == pytest.approx([first, second], abs=1e-4)
    assert (reward, terminated) == ((0.0, True) if high else (-1.0, False))


def test_swinging_up_at_the_last_step_sets_both_flags():
    up = [3.0, 0.0, 0.0, 0.0]
    assert transitions.ends(NAME, up, FREE, elapsed=498) == (True, False)
    assert transitions.ends(NAME, up, FREE, elapsed=499) == (True, True)
    assert transitions.ends(NAME, [0.0, 0.0, 0.0, 0.0], FREE, elapsed=499) == (False, True)


@given(
    state=st.tuples(st.floats(-3, 3), st.floats(-3, 3), st.floats(-6, 6), st.floats(-12, 12)),
    action=st.sampled_from([BACK, FREE, FORTH]),
)
@settings(max_examples=25)
def test_a_mirrored_acrobot_moves_as_the_mirror_image(state, action):
    there, reward, terminated = one_step(state, action)
    back, *others = one_step([-value for value in state], 2 - action)
    turns = [(a + b + math.pi) % (2 * math.pi) - math.pi for a, b in zip(there[:2], back[:2], strict=True)]
    assert turns == pytest.approx([0, 0], abs=1e-9)
    assert there[2:] == pytest.approx([-value for value in back[2:]], abs=1e-9)
    assert others == [reward, terminated]


# ---- one step, by Gymnasium ---------------------------------------------------------------------


@functools.cache
def cases(share: float):
    """20,000 states with speeds up to a share of the largest (0: visited ones), actions, Gymnasium's next states."""
    random = np.random.default_rng(0)
    if share:
        high = np.array([math.pi, math.pi, share * SPEEDS[0], share * SPEEDS[1]])
        states, actions = random.uniform(-high, high, (20_000, 4)).astype(np.float32), random.integers(3, size=20_000)
    else:
        states, actions = transitions.visited(NAME, 10_000)
    return states, actions, transitions.original(NAME, states, actions)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("share", "dtype", "tolerance"),
    [
        (0, "float32", 2e-6),
        (0, "float64", 1e-12),
        (0.25, "float32", 5e-6),
        (0.25, "float64", 1e-12),
        (1, "float64", 1e-9),  # at full speed the Runge-Kutta step is stiff, and float32 says nothing
    ],
)
def test_one_step_equals_gymnasiums(share, dtype, tolerance, device):
    states, actions, expected = cases(share)
    found = transitions.port(NAME, states, actions, dtype, device=device)
    assert (transitions.differences(NAME, found, expected) <= tolerance).all()
    assert (np.abs(found.following[:, :2]) <= np.float32(math.pi)).all()
    np.testing.assert_allclose(found.observation, expected.observation, rtol=1e-6, atol=max(tolerance, 1e-6))
    # None of these states ends within 1e-6 of the threshold, where rounding would decide.
    np.testing.assert_array_equal(found.terminated, expected.terminated)
    np.testing.assert_array_equal(found.reward, expected.reward)
    if share:
        assert expected.terminated.sum() > 1000
    if share == 1:
        fastest = np.abs(expected.following[:, 2:]) == SPEEDS
        assert min(fastest.sum(axis=0)) > 500


def test_one_step_by_the_first_paper_equals_gymnasiums():
    states, actions = (rows[::10] for rows in cases(0.25)[:2])
    expected = transitions.original(NAME, states, actions, book_or_nips="nips")
    found = transitions.port(NAME, states, actions, book_or_nips="nips")
    assert (transitions.differences(NAME, found, expected) <= 1e-12).all()
    np.testing.assert_array_equal(found.terminated, expected.terminated)


# ---- first states -------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_first_states_are_made_of_four_numbers_in_order(device):
    draws.assert_made_of(NAME, lambda uniform: [uniform(j, -0.1, 0.1) for j in range(4)], device)


def test_first_states_are_uniform_and_uncorrelated():
    states = draws.first_states(make(NAME, 10_000, seed=3), 25)
    draws.assert_uniform(states, -0.1, 0.1)  # a million
    for field in range(4):
        draws.assert_uniform(states[..., field], -0.1, 0.1)
    draws.assert_uncorrelated(states)


# ---- whole episodes -----------------------------------------------------------------------------


def test_a_return_is_minus_one_for_every_step_but_the_one_that_ends_up():
    env, ended = make(NAME, seed=2), 0
    for actions in env.rollout(300, PUMP, store="trajectory")["action"].clone():
        _, _, terminated, _, info = env.step(actions)
        lengths, returns = info["episode_length"][terminated], info["episode_return"][terminated]
        assert (returns == 1 - lengths).all()
        ended += int(terminated.sum())
    assert ended > 0


def test_a_torque_against_the_first_links_speed_swings_it_up():
    # Gymnasium's class takes 85.4 steps on average (standard deviation 17.2) under the same policy.
    env, lengths = make(NAME, 5000, seed=2), np.zeros(5000)
    actor = env.actor(PUMP)
    obs = env.reset(seed=2)[0]
    while not lengths.all():
        obs, *_, info = env.step(actor(obs))
        ended = info["_final_obs"].numpy() & (lengths == 0)
        lengths[ended] = info["episode_length"].numpy()[ended]
    assert lengths.mean() == pytest.approx(85.4, abs=1.5)


def test_no_episode_is_shorter_than_declared():
    env = make(NAME, 20_000, seed=2)
    env.rollout(1000, PUMP)
    assert statistics(env)["length_min"] >= envs.port(NAME).shortest_episode
