"""The port as an environment of one agent, of whose steps each is a client's turn (`turns.py`)."""

from collections.abc import Mapping

import numpy as np
import torch
from gymnasium.spaces import Box, MultiDiscrete

from .policies.views import namespace, on_stream, view_of_port
from .slot.tables import tables
from .turns import Turns, options


class TurnByTurn:
    """A port whose clients decide one after another, in the form of agents/README.md.

    A slot has as many steps as there are clients. It pays its reward and what the potential of the queues gains
    (`charges.py`), which is 0 before an episode and after it, so that an episode's sum is its return: with each turn
    what that brings at once, with the last one all the rest. After its last slot an episode is terminated, not
    truncated: the observation has the clock, and nothing comes after it that counts.

    Args:
        env: the port, preset `physical`.

    Raises:
        ValueError: the reward of a slot is not the physical one.
    """

    def __init__(self, env):
        self.env, self.num_envs, self.device, self.autoreset_mode = env, env.num_envs, env.device, env.autoreset_mode
        with on_stream(env.device):
            self._tables = tables(namespace(env), env.scenarios, dtype="float32")
        K, J = options(env.params), env.params.tasks
        self.single_action_space = MultiDiscrete([K] * (J + 1))
        self._never = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        self.single_observation_space = Box(-np.inf, np.inf, self.reset()[0].shape[1:], np.float32)

    def reset(self, seed: int | None = None) -> tuple[torch.Tensor, Mapping]:
        self.env.reset(seed=seed)
        self._begin()
        obs, mask = self._turns.observe()
        return obs, {"action_mask": mask}

    def step(self, action: torch.Tensor):
        reward, terminated = self._turns.choose(action), self._never
        self._paid += reward
        if self._turns.over:
            with on_stream(self.device):
                chosen = self._turns.action()
            _, whole, _, ended, _ = self.env.step(chosen)
            terminated = ended.view(self.num_envs, -1)[:, 0].clone()
            rest = whole[:, 0] - self._paid - self._turns.potential
            self._begin()
            reward = reward + rest + self._turns.potential
        obs, mask = self._turns.observe()
        return obs, reward, terminated, self._never, {"final_obs": obs, "action_mask": mask}

    def statistics(self) -> dict[str, torch.Tensor]:
        """Those of the port's episodes."""
        return self.env.statistics()

    def _begin(self) -> None:
        with on_stream(self.device):
            self._turns = Turns(view_of_port(self.env, self._tables), self.device)
        self._paid = torch.zeros(self.num_envs, device=self.device)
