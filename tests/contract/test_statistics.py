"""Episodes that ended, counted by the kernels, against sums over steps."""

import numpy as np
import pytest
import torch

from tests.contract.batches import DEVICES, LIMIT, make, random_step, size, spread, statistics


@pytest.mark.parametrize("device", DEVICES)
def test_statistics_count_every_episode_since_the_last_call(name, device):
    env = make(name, 2 * size(name), device=device, groups=2)
    spread(env)
    B = env.num_envs
    sums, returns, lengths = np.zeros(B), [], []
    for step in range(3 * LIMIT):
        _, reward, *_, info = random_step(env)
        sums += reward.double().cpu().numpy().reshape(B, -1).mean(axis=1)  # of several agents the mean
        over = info["_final_obs"].cpu().numpy()
        found, length = (info[key].cpu().numpy()[over] for key in ("episode_return", "episode_length"))
        whole = length <= step  # other episodes began before the first step
        np.testing.assert_allclose(found[whole], sums[over][whole], rtol=1e-4, atol=1e-4)
        sums[over] = 0
        returns += found.tolist()
        lengths += length.tolist()
    counted = statistics(env)
    assert counted["episodes"] == len(lengths) >= 3 * B
    for key, values in (("return", returns), ("length", lengths)):
        assert counted[f"{key}_mean"] == pytest.approx(np.mean(values), rel=1e-6, abs=1e-6)
        assert (counted[f"{key}_min"], counted[f"{key}_max"]) == (min(values), max(values))
    again = statistics(env)
    assert again.pop("episodes") == 0
    assert all(np.isnan(value) for value in again.values())


def test_returns_too_large_to_be_summed_have_no_mean():
    env = make("mountain_car_continuous", check_actions=False)
    env.set_state({"elapsed": np.full(env.num_envs, LIMIT - 1)})
    *_, info = env.step(torch.full((env.num_envs,), 1e18))
    assert info["episode_return"].tolist() == pytest.approx([-1e35] * env.num_envs)
    counted = statistics(env)
    assert counted["episodes"] == env.num_envs
    assert np.isnan(counted["return_mean"])
    assert counted["return_min"] == pytest.approx(-1e35)
