"""Defaults that a user gave torch for tensors of their own change nothing here."""

import numpy as np
import pytest
import torch

from lockstep import agents, envs
from lockstep.agents.run import training
from lockstep.agents.run.config import config_of
from lockstep.agents.run.evaluation import in_original

SMALL = {"ppo": {"horizon": 32}, "dqn": {"learning_starts": 512}}
OF_NUMBERS = "sac", "td3", "ddpg", "ac_iqn"
SMALL |= {name: {"learning_starts": 1792, "batch_size": 32, "hidden": (16,)} for name in OF_NUMBERS}
SMALL |= {name: {"learning_starts": 1792, "hidden": (16,)} for name in ("iqn", "rainbow")} | {"a2c": {}}


@pytest.fixture(params=["float64", "meta"])
def defaults(request):
    """Sets a default that breaks what does not say type and device, when it is called."""
    before = torch.get_default_dtype()

    def given():
        if request.param == "meta":
            torch.set_default_device("meta")
        else:
            torch.set_default_dtype(torch.float64)

    yield given
    torch.set_default_device(None)
    torch.set_default_dtype(before)


def lived(name: str) -> list:
    """Everything that some steps, roll-outs and restarts of an environment show."""
    env = envs.make(name, 8, seed=1)
    shown = [env.reset()[0].clone()]
    for action in env.random_actions(3):
        *outputs, info = env.step(action)
        shown += [one.clone() for one in (*outputs, info["final_obs"])]
    env.rollout(5)
    kept = env.state()
    env.set_state(kept)
    env.reset(options={"reset_mask": np.arange(8) % 2 == 0})
    return [
        *shown,
        *(value for value in env.state().values() if isinstance(value, torch.Tensor)),
        *env.statistics().values(),
    ]


def equal(a: list, b: list) -> bool:
    """Bit by bit, NaN (of no episodes) as itself."""
    pairs = [(np.asarray(one), np.asarray(other)) for one, other in zip(a, b, strict=True)]
    return all(one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True) for one, other in pairs)


@pytest.mark.parametrize("name", envs.names())
def test_environments_live_the_same_life(name, defaults):
    expected = lived(name)
    defaults()
    assert equal(lived(name), expected)


def test_an_agent_trained_in_inference_mode_serves_outside(tmp_path):
    agent = agents.algorithm("ppo")
    config = config_of(agent, "cartpole", total_steps=2048, num_envs=32, horizon=32)
    expected = training.train(agent, "cartpole", config).state()
    with torch.inference_mode():
        run = training.train(agent, "cartpole", config, output=tmp_path)
        loaded = training.load(agent, tmp_path)
    for one in (run, loaded):
        assert torch.equal(one.state()["parameters"], expected["parameters"])
        one.load_state(one.state())
        one.iterate()


@pytest.mark.parametrize(
    ("algorithm", "environment"),
    [
        *(("ppo", name) for name in ("cartpole", "pendulum", "vehicular_edge")),
        *((name, "cartpole") for name in ("a2c", "dqn", "iqn", "rainbow")),
        *((name, "pendulum") for name in OF_NUMBERS),
    ],
)
def test_agents_learn_save_and_act_the_same(algorithm, environment, tmp_path, defaults):
    agent = agents.algorithm(algorithm)
    config = config_of(agent, environment, total_steps=2048, num_envs=32, **SMALL[algorithm])

    def learned(folder) -> list:
        training.train(agent, environment, config, output=folder, quiet=True)
        run = training.load(agent, folder)
        numbers = [value for value in run.weights().values() if isinstance(value, torch.Tensor)]
        return numbers if environment == "vehicular_edge" else [*numbers, in_original(environment, run.act, 2).returns]

    expected = learned(tmp_path / "one")
    defaults()
    assert equal(learned(tmp_path / "other"), expected)
