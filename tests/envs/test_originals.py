"""Gymnasium's classes as originals: states go in and out unchanged; test_by_hand.py has their steps."""

import math

import numpy as np
import pytest

from lockstep import envs
from tests.contract.batches import KNOWN


@pytest.mark.parametrize("name", KNOWN)
def test_a_state_put_in_is_read_back_to_the_last_bit(name):
    original, module = envs.make_original(name), envs.original(name)
    original.reset(seed=0)
    for state in np.random.default_rng(0).normal(size=(20, len(envs.port(name).state))):
        given = state.copy()
        module.set_state(original, given, 7)
        given[:] = 0  # the original keeps a copy
        found, elapsed = module.get_state(original)
        assert found.dtype == np.float64 and elapsed == 7
        np.testing.assert_array_equal(found, state)


@pytest.mark.parametrize("name", KNOWN)
def test_an_episode_goes_on_from_a_state_read_and_put_back(name):
    module = envs.original(name)
    first, second = envs.make_original(name), envs.make_original(name)
    first.reset(seed=1)
    second.reset(seed=2)
    first.action_space.seed(3)
    action = first.action_space.sample()
    module.set_state(second, *module.get_state(first))
    np.testing.assert_array_equal(second.step(action)[0], first.step(action)[0])
    assert module.get_state(second)[1] == 1
    np.testing.assert_array_equal(module.get_state(second)[0], module.get_state(first)[0])


@pytest.mark.parametrize("name", KNOWN)
def test_the_margin_says_whether_an_episode_ended(name):
    original, module = envs.make_original(name), envs.original(name)
    original.reset(seed=1)
    original.action_space.seed(2)
    scale = {"cartpole": [2, 1, 0.2, 1], "pendulum": [3, 8], "acrobot": [3, 3, 1, 1]}.get(name, [0.7, 0.03])
    ended = []
    for state in np.random.default_rng(0).normal(size=(500, len(scale))) * scale:
        module.set_state(original, state)
        ended.append(original.step(original.action_space.sample())[2])
        assert (module.margin(original, module.get_state(original)[0][None]) > 0).tolist() == ended[-1:]
    assert any(ended) == (name != "pendulum") and not all(ended)


def test_the_continuous_mountain_cars_state_is_rounded_to_float32():
    original, module = envs.make_original("mountain_car_continuous"), envs.original("mountain_car_continuous")
    original.reset(seed=0)
    module.set_state(original, [-0.5, 0.01])
    observation = original.step(np.array([0.3]))[0]
    velocity = 0.01 + 0.0015 * 0.3 - 0.0025 * math.cos(-1.5)
    expected = np.array([-0.5 + velocity, velocity], dtype=np.float32)
    np.testing.assert_array_equal(observation, expected)
    np.testing.assert_array_equal(module.get_state(original)[0], expected.astype(np.float64))


@pytest.mark.parametrize(
    ("name", "params", "low", "high"),
    [
        ("cartpole", {"x_threshold": 3.0}, [-6, -np.inf, -math.pi / 7.5, -np.inf], [6, np.inf, math.pi / 7.5, np.inf]),
        ("mountain_car", {"min_position": -2.0, "max_speed": 0.5}, [-2.0, -0.5], [0.6, 0.5]),
        ("mountain_car_continuous", {"max_position": 0.8}, [-1.2, -0.07], [0.8, 0.07]),
        ("pendulum", {"max_speed": 3.0}, [-1, -1, -3], [1, 1, 3]),
        ("acrobot", {"MAX_VEL_2": 5.0}, [-1] * 4 + [-4 * math.pi, -5], [1] * 4 + [4 * math.pi, 5]),
    ],
)
def test_the_observation_space_follows_the_parameters(name, params, low, high):
    space = envs.make_original(name, **params).observation_space
    np.testing.assert_array_equal(space.low, np.array(low, dtype=np.float32))
    np.testing.assert_array_equal(space.high, np.array(high, dtype=np.float32))


def test_an_unknown_parameter_of_an_original_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="Pendulum-v1 has no parameter or option 'max_sped'; did you mean 'max_speed'"):
        envs.make_original("pendulum", max_sped=3.0)
