"""Ports as Gymnasium sees them: ids, make_vec, spaces, vector wrappers, and a machine without Gymnasium."""

import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from lockstep import envs
from tests.envs.batches import NAMES, B, make

ROOT = Path(__file__).parents[2]


def identifier(name: str) -> str:
    return f"lockstep/{envs.port(name).gymnasium_id}"


@pytest.mark.parametrize("name", NAMES)
def test_make_vec_gives_the_port_without_a_warning(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make_vec(identifier(name), num_envs=B, device="cpu", seed=3)
    assert isinstance(env, envs.BatchedEnv)
    limit = gymnasium.spec(envs.port(name).gymnasium_id).max_episode_steps
    assert (env.num_envs, env.max_episode_steps, env.spec.id) == (B, limit, identifier(name))
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert torch.equal(env.reset()[0], make(name, reset=False, seed=3).reset()[0])


def test_make_vec_passes_options_and_limits_on():
    env = gymnasium.make_vec(
        "envs:lockstep/CartPole-v1", 4, autoreset_mode=AutoresetMode.NEXT_STEP, max_episode_steps=7, gravity=1.0
    )
    assert (env.max_episode_steps, env.params.gravity) == (7, 1.0)
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    with pytest.raises(gymnasium.error.Error, match="vector_kwargs"):
        gymnasium.make_vec("lockstep/CartPole-v1", 4, vector_kwargs={"a": 1})


@pytest.mark.parametrize("name", NAMES)
def test_make_gives_the_original(name):
    env, theirs = gymnasium.make(identifier(name)), gymnasium.make(envs.port(name).gymnasium_id)
    assert type(env.unwrapped) is type(theirs.unwrapped)
    assert env.spec.max_episode_steps == theirs.spec.max_episode_steps
    assert env.spec.reward_threshold == theirs.spec.reward_threshold


@pytest.mark.parametrize("name", NAMES)
def test_batched_spaces_are_gymnasiums(name):
    env, theirs = make(name), gymnasium.make(envs.port(name).gymnasium_id)
    assert env.observation_space == gymnasium.vector.utils.batch_space(theirs.observation_space, B)
    assert env.action_space == gymnasium.vector.utils.batch_space(theirs.action_space, B)
    env.step(env.action_space.sample())
    assert env.observation_space.contains(env.reset()[0].numpy())


@pytest.mark.parametrize("name", NAMES)
def test_a_numpy_port_passes_through_gymnasiums_vector_wrappers(name):
    port = gymnasium.make_vec(identifier(name), B, arrays="numpy", autoreset_mode="NextStep")
    env = gymnasium.wrappers.vector.NormalizeObservation(gymnasium.wrappers.vector.RecordEpisodeStatistics(port))
    env.reset(seed=1)
    env.action_space.seed(1)
    episodes = 0
    for _ in range(port.max_episode_steps + 10):
        obs, *_, info = env.step(env.action_space.sample())
        if "episode" in info:
            ended = info["_episode"]
            np.testing.assert_array_equal(info["episode"]["l"][ended], info["episode_length"][ended])
            np.testing.assert_allclose(info["episode"]["r"][ended], info["episode_return"][ended], rtol=1e-5)
            episodes += ended.sum()
    assert np.isfinite(obs).all()
    assert episodes >= B


WITHOUT_GYMNASIUM = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("gymnasium", "pettingzoo", "snakemake"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
from lockstep import envs
for name in envs.names("thread"):
    env = envs.make(name, 200, seed=3, autoreset_mode="NextStep")
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
    *totals, message = result.stdout.splitlines()
    for name, total in zip(NAMES, totals, strict=True):
        env = make(name, seed=3, autoreset_mode="NextStep")
        for _ in range(30):
            env.step(env.random_actions()[0])
        assert float(total) == float(env.state()["state"].double().sum())
    assert message == "the original of 'cartpole' needs gymnasium: pip install gymnasium"
