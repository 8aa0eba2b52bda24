"""The array form against the port: the same noise, the same episodes."""

import numpy as np
import pytest
import torch

from lockstep import envs


def test_the_array_form_and_the_port_live_the_same_episodes():
    arrays, port = envs.make_arrays("cartpole", 500, seed=7), envs.make("cartpole", 500, seed=7)
    obs = port.reset()[0]
    np.testing.assert_array_equal(arrays.reset(), obs.numpy())
    for _ in range(100):
        # Rounding grows along an episode, the pole being unstable; so both start each step from the same state.
        arrays.state = port.state()["state"].numpy().T.copy()
        action = port.random_actions()[0]
        np.testing.assert_array_equal(arrays.random_actions(1)[0], action.numpy())
        found = arrays.step(action.numpy())
        obs, reward, terminated, truncated, _ = port.step(action)
        np.testing.assert_allclose(found[0], obs.numpy(), rtol=0, atol=2e-6)
        np.testing.assert_array_equal(found[1], reward.numpy())
        np.testing.assert_array_equal(found[2], terminated.numpy())
        np.testing.assert_array_equal(found[3], truncated.numpy())
    np.testing.assert_array_equal(arrays.episode, port.state()["episode"].to(torch.int64).numpy())
    assert arrays.episode.mean() > 3


def test_array_observations_are_not_overwritten():
    arrays = envs.make_arrays("cartpole", 10)
    first = arrays.step(arrays.random_actions(1)[0])[0]
    kept = first.copy()
    arrays.step(arrays.random_actions(1)[0])
    np.testing.assert_array_equal(first, kept)


def test_an_environment_without_an_array_form_says_so():
    with pytest.raises(ValueError, match="no environment 'cartpol'; did you mean 'cartpole'"):
        envs.make_arrays("cartpol", 1)
