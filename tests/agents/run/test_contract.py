"""Environments that break the contract are refused with a sentence; those that keep it pass."""

import dataclasses
import re

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from lockstep.agents.ppo import PPO, Config
from tests.agents.worlds import BOX, World

CONFIG = Config(num_envs=8, horizon=4, total_steps=64, minibatches=2, epochs=1, threads=1)
ALL = torch.ones(8, dtype=torch.bool)


class Bent(World):
    """A world whose attributes, answer to a reset (2) or to a step (5) are bent."""

    def __init__(self, attributes=None, on_reset=None, on_step=None, **options):
        super().__init__(8, **options)
        self.__dict__ |= attributes or {}
        self.on_reset, self.on_step = on_reset or list, on_step or list

    def reset(self, seed=None):
        return self.on_reset(super().reset(seed))

    def step(self, action):
        return self.on_step(super().step(action))


def put(place, change, key=None):
    """Replaces one part of an answer by what a function makes of it; with a key, an entry of the infos at its end."""

    def bend(answer):
        answer = list(answer)
        answer[place] = change(answer[place]) if key is None else answer[place] | {key: change(answer[place])}
        return answer

    return bend


def without(key):
    return lambda answer: [*answer[:-1], {name: value for name, value in answer[-1].items() if name != key}]


def constant(value):
    return lambda _: value


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"attributes": {"num_envs": 8.0}}, "Bent.num_envs is 8.0; it must be an integer of at least 1"),
        ({"attributes": {"num_agents": 0}}, "Bent.num_agents is 0; it must be an integer of at least 1"),
        ({"attributes": {"device": "gpu"}}, "Bent.device is 'gpu'; it must be a torch.device"),
        ({"attributes": {"autoreset_mode": "never"}}, "Bent.autoreset_mode is 'never'; it must be one of 'NextStep'"),
        (
            {"attributes": {"single_observation_space": Box(0, 1, (4, 4, 3))}},
            "Bent.single_observation_space has the shape [4, 4, 3]; it must be one axis [n] (images are not supported)",
        ),
        ({"attributes": {"state": dict}}, "Bent has state() but not set_state(); it must have both or neither"),
        ({"attributes": {"set_state": dict}}, "Bent has set_state() but not state(); it must have both or neither"),
        ({"attributes": {"reset": lambda: None}}, "Bent.reset must take a seed"),
        ({"attributes": {"statistics": dict}}, "Bent.statistics: episodes must be a tensor [] on cpu, not None"),
        ({"on_reset": lambda answer: answer[0]}, "Bent.reset must return observations and infos, not float32 [8, 3]"),
        ({"on_reset": put(0, torch.Tensor.numpy)}, "observations must be a float tensor [8, 3] on cpu, not a ndarray"),
        (
            {"on_reset": put(0, torch.Tensor.long)},
            "observations must be a float tensor [8, 3] on cpu, not int64 [8, 3]",
        ),
        ({"on_reset": put(0, lambda obs: obs[:4])}, "Bent.reset: observations must be a float tensor [8, 3]"),
        ({"on_reset": put(0, lambda obs: obs.to("meta"))}, "tensor [8, 3] on cpu, not float32 [8, 3] on meta"),
        ({"on_reset": put(1, constant(None))}, "Bent.reset: infos must be a dict, not None"),
        ({"on_reset": put(1, constant(ALL.float()), "active")}, "active must be a bool tensor [8] on cpu"),
        ({"on_reset": put(1, constant(ALL), "active")}, "infos of reset have 'active' and those of step lack it"),
        ({"on_step": put(4, constant(ALL), "active")}, "infos of step have 'active' and those of reset lack it"),
        ({"mask": torch.ones(3) > 0}, "Bent.reset: action_mask must be a bool tensor [8, 2] on cpu, not bool [8, 3]"),
        ({"mask": torch.ones(2) > 0, "action_space": BOX}, "actions of a Box cannot be masked"),
        ({"on_step": lambda answer: answer[:4]}, "truncated, infos, not 4 things"),
        ({"on_step": put(0, torch.Tensor.int)}, "Bent.step: observations must be a float tensor"),
        ({"on_step": put(1, torch.Tensor.long)}, "Bent.step: reward must be a float tensor [8] on cpu, not int64 [8]"),
        (
            {"agents": 2, "on_step": put(1, lambda reward: reward[:, 0])},
            "reward must be a float tensor [8, 2] on cpu (a team's reward must be expanded to that), not float32 [8]",
        ),
        ({"on_step": put(2, torch.Tensor.float)}, "Bent.step: terminated must be a bool tensor [8] on cpu"),
        ({"on_step": put(3, lambda flag: flag[:3])}, "truncated must be a bool tensor [8] on cpu, not bool [3]"),
        ({"on_step": without("final_obs")}, "Bent.step: infos lack 'final_obs', which must be a float tensor [8, 3]"),
        ({"on_step": put(4, constant(ALL), "final_obs")}, "Bent.step: final_obs must be a float tensor [8, 3]"),
    ],
)
def test_what_breaks_the_contract_is_said(options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        PPO(Bent(**options), CONFIG).iterate()


@pytest.mark.parametrize("environment", [None, 3, World])
def test_what_is_no_environment_is_said(environment):
    with pytest.raises(ValueError, match="^environment=.* must be a name, or an object"):
        PPO(environment, CONFIG)


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match="^ndarray lacks num_envs, single_observation_space, single_action_space, "):
        PPO(np.zeros(8), CONFIG)


def test_a_team_may_expand_its_reward():
    world = Bent(agents=2, on_step=put(1, lambda reward: reward[:, :1].expand(8, 2)))
    run = PPO(world, dataclasses.replace(CONFIG, population=1))
    run.iterate()
    reward = run.rollout.rows["reward"].view(4, 8, 2)
    assert torch.equal(reward[..., 0], reward[..., 1])


def test_steps_are_looked_at_once():
    run = PPO(Bent(), CONFIG)
    run.iterate()
    run.env.on_step = put(1, torch.Tensor.long)
    run.iterate()
