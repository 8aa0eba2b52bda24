"""Ports as Gymnasium sees them: ids, make_vec, and autoreset as SyncVectorEnv does it."""

import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import envs

ROOT = Path(__file__).parents[2]


def test_make_vec_gives_the_port_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make_vec("lockstep/CartPole-v1", num_envs=8, device="cpu", seed=3)
    assert isinstance(env, envs.BatchedEnv)
    assert (env.num_envs, env.max_episode_steps, env.spec.id) == (8, 500, "lockstep/CartPole-v1")
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert torch.equal(env.reset()[0], envs.make("cartpole", 8, seed=3).reset()[0])


def test_make_vec_passes_options_and_limits_on():
    env = gymnasium.make_vec(
        "envs:lockstep/CartPole-v1", 4, autoreset_mode=AutoresetMode.NEXT_STEP, max_episode_steps=7, gravity=1.0
    )
    assert (env.max_episode_steps, env.params.gravity) == (7, 1.0)
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    with pytest.raises(gymnasium.error.Error, match="vector_kwargs"):
        gymnasium.make_vec("lockstep/CartPole-v1", 4, vector_kwargs={"a": 1})


def test_make_gives_the_original():
    env = gymnasium.make("lockstep/CartPole-v1")
    assert type(env.unwrapped).__module__ == "gymnasium.envs.classic_control.cartpole"
    assert (env.spec.max_episode_steps, env.spec.reward_threshold) == (500, 475)


def test_batched_spaces_are_gymnasiums():
    env = envs.make("cartpole", 5)
    assert env.observation_space.shape == (5, 4)
    assert env.action_space.nvec.tolist() == [2] * 5
    env.reset()
    env.step(env.action_space.sample())


def test_a_numpy_port_passes_through_gymnasiums_vector_wrappers():
    env = gymnasium.make_vec("lockstep/CartPole-v1", 6, arrays="numpy", autoreset_mode="NextStep")
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(env)
    env = gymnasium.wrappers.vector.NormalizeObservation(env)
    env.reset(seed=1)
    lengths = []
    for _ in range(100):
        obs, *_, info = env.step(env.action_space.sample())
        lengths += list(info["episode"]["l"][info["_episode"]]) if "episode" in info else []
    assert np.isfinite(obs).all()
    assert len(lengths) > 5
    assert min(lengths) >= 8


def scripted(mode, num_envs=6, steps=150):
    """A port and Gymnasium's SyncVectorEnv through the same states and actions; compared after each step."""
    port = envs.make("cartpole", num_envs, dtype="float64", autoreset_mode=mode, max_episode_steps=25, arrays="numpy")
    sync = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1", max_episode_steps=25)] * num_envs, autoreset_mode=mode)
    module, random = envs.original("cartpole"), np.random.default_rng(0)
    port.reset(seed=0)
    sync.reset(seed=0)
    states = port.state()

    def align(rows):
        """Episodes that begin draw different numbers in both: put the port's first state into the original."""
        for i in rows:
            module.set_state(sync.envs[i], port.state()["state"][i].numpy(), 0)

    align(range(num_envs))
    for _ in range(steps):
        action = random.integers(2, size=num_envs)
        pending = port.state()["terminated"] | port.state()["truncated"]
        if mode == AutoresetMode.DISABLED and pending.any():
            mask = pending.numpy()
            port.reset(options={"reset_mask": mask})
            sync.reset(options={"reset_mask": mask.copy()})
            align(np.flatnonzero(mask))
        yield port, sync, action, align
    del states


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_autoreset_is_that_of_sync_vector_env(mode):
    episodes = 0
    for port, sync, action, align in scripted(mode):
        was = (port.state()["terminated"] | port.state()["truncated"]).numpy()
        obs, reward, terminated, truncated, info = (
            {k: v.copy() for k, v in part.items()} if isinstance(part, dict) else part.copy()
            for part in port.step(action)
        )
        theirs = sync.step(action)
        np.testing.assert_array_equal(terminated, theirs[2])
        np.testing.assert_array_equal(truncated, theirs[3])
        np.testing.assert_array_equal(reward, theirs[1])
        ended = terminated | truncated
        episodes += int(ended.sum())
        if mode == AutoresetMode.SAME_STEP:
            assert ("final_obs" in theirs[4]) == ended.any()
            for i in np.flatnonzero(ended):
                np.testing.assert_allclose(info["final_obs"][i], theirs[4]["final_obs"][i], atol=1e-6)
            np.testing.assert_array_equal(info["_final_obs"], theirs[4].get("_final_obs", np.zeros(6, dtype=bool)))
            new = ended
        else:
            new = was if mode == AutoresetMode.NEXT_STEP else np.zeros(6, dtype=bool)
            np.testing.assert_allclose(info["final_obs"][ended], theirs[0][ended], atol=1e-6)
        np.testing.assert_allclose(obs[~new], theirs[0][~new], atol=1e-6)  # first observations are drawn apart
        assert (np.abs(obs[new]) <= 0.05).all()
        assert (np.abs(theirs[0][new]) <= 0.05).all()
        align(np.flatnonzero(new))
    assert episodes > 20


WITHOUT_GYMNASIUM = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("gymnasium", "pettingzoo", "snakemake"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
import envs
env = envs.make("cartpole", 16, seed=3, autoreset_mode="NextStep")
env.reset()
for _ in range(30):
    env.step(env.random_actions()[0])
print(float(env.state()["state"].double().sum()))
try:
    envs.make_original("cartpole")
except ImportError as error:
    print(error)
"""


def test_ports_work_on_a_machine_without_gymnasium():
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_GYMNASIUM], capture_output=True, text=True, cwd=ROOT, check=True
    )
    total, message = result.stdout.splitlines()
    env = envs.make("cartpole", 16, seed=3, autoreset_mode="NextStep")
    env.reset()
    for _ in range(30):
        env.step(env.random_actions()[0])
    assert float(total) == float(env.state()["state"].double().sum())
    assert message == "the original of 'cartpole' needs gymnasium: pip install gymnasium"
