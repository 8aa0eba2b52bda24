"""Ports in PettingZoo: one environment as a `ParallelEnv`, or a batch in dictionaries by the agents' names.

from lockstep.envs.adapters import pettingzoo

env = pettingzoo.make("vehicular_edge")  # as its original: dictionaries of arrays [n]
batch = pettingzoo.make_vec("vehicular_edge", 256, device="cuda")  # dictionaries of tensors [256, n]
"""

import copy
from collections.abc import Mapping

import numpy as np
import torch
from gymnasium import Space, logger
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from lockstep import envs
from lockstep.envs.batch.actions import saturated
from lockstep.extras import extra

with extra("pettingzoo", of="lockstep.envs.adapters.pettingzoo"):
    from pettingzoo import ParallelEnv


def make(name: str, device="cpu", **options) -> "ParallelPort":
    """One environment of a port; `envs.BatchedEnv` lists the options.

    With `seed` and `first_index=i` it is environment i of a batch of that seed.
    """
    return ParallelPort(envs.make(name, 1, device, **{"autoreset_mode": AutoresetMode.DISABLED} | options))


def make_vec(name: str, num_envs: int, device="cpu", **options) -> "VectorPort":
    """A batch of `num_envs` environments by its agents' names; `envs.BatchedEnv` lists the options."""
    return VectorPort(envs.make(name, num_envs, device, **options))


class ByAgent:
    """A batch by its agents' names.

    Raises:
        ValueError: a batch of one agent.
    """

    def __init__(self, batch: envs.BatchedEnv):
        if not batch.agents:
            raise ValueError(f"{batch.name} has one agent, and Gymnasium's interface; PettingZoo's is for several")
        self.batch, self.possible_agents = batch, list(batch.agents)
        modes = batch.metadata["render_modes"]
        self.metadata = {"name": batch.name, "render_modes": modes, "is_parallelizable": True}
        self.render_mode = batch.render_mode
        self._actions = torch.zeros(batch.actions.shape, dtype=batch.actions.types[-1], device=batch.device)

    def _spaces(self, space: Space) -> dict[str, Space]:
        """A copy for each agent, since each is seeded by itself."""
        return {agent: copy.deepcopy(space) for agent in self.possible_agents}

    def _check(self, actions: Mapping, agents: list[str]):
        """Raises ValueError where `actions` are not of just these agents."""
        if not isinstance(actions, Mapping):
            raise ValueError(f"actions must be a mapping by agent, not {type(actions).__name__}")
        wrong = [f"{agent!r} does not play" for agent in actions if agent not in agents]
        wrong += [f"no action of agent {agent!r}" for agent in agents if agent not in actions]
        if wrong:
            raise ValueError(f"{', '.join(wrong)}: give an action of {' and '.join(map(repr, agents))}")

    def observation_space(self, agent: str) -> Space:
        """Space of what an agent sees, one object at every call; KeyError without such an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space:
        """Space of an agent's actions, one object at every call; KeyError without such an agent."""
        return self.action_spaces[agent]

    def _draws(self) -> bool | None:
        """Warns, and returns None, without a render_mode."""
        if self.render_mode is None:
            return logger.warn("render() draws nothing: no render_mode was given, such as render_mode='rgb_array'")
        return True

    def close(self):
        """Closes the batch."""
        self.batch.close()


class ParallelPort(ByAgent, ParallelEnv):
    """One environment of a port as PettingZoo's `ParallelEnv`, in float32 NumPy arrays.

    It steps as the original does, with the port's arithmetic; a batch of one is for tools and tests, not for speed.
    An info holds the port's metrics and flags of the step.

    Args:
        batch: of one environment, with autoreset mode DISABLED.

    Raises:
        ValueError: another batch, or one of one agent.
    """

    def __init__(self, batch: envs.BatchedEnv):
        super().__init__(batch)
        if batch.num_envs != 1 or batch.autoreset_mode != AutoresetMode.DISABLED:
            found = f"num_envs={batch.num_envs}, autoreset_mode={batch.autoreset_mode.value!r}"
            raise ValueError(f"a ParallelEnv needs a batch of num_envs=1, autoreset_mode='Disabled', not {found}")
        self.agents: list[str] = []
        self.observation_spaces = self._spaces(batch.single_observation_space)
        self.action_spaces = self._spaces(batch.single_action_space)

    def reset(self, seed: int | None = None, options: Mapping | None = None) -> tuple[dict, dict]:
        """Opens an episode: with a seed episode 0, else the next one.

        Args:
            seed: 0 .. 2^64-1.
            options: the port's reset bounds; others are ignored, as PettingZoo's interface has it.

        Returns:
            Observations [n] float32 and empty infos by agent that the episode has.
        """
        if not isinstance(options, Mapping | None):
            raise ValueError(f"options must be a mapping, not {type(options).__name__}")
        known = {name: value for name, value in (options or {}).items() if name in self.batch.port.reset_options}
        obs, info = self.batch.reset(seed=seed, options=known)
        present = torch.as_tensor(info["active"], device=self.batch.device)[0].tolist()
        self.agents = [agent for agent, plays in zip(self.possible_agents, present, strict=True) if plays]
        return self._rows(obs), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping) -> tuple[dict, dict, dict, dict, dict]:
        """One step; `actions` holds one of each agent that plays.

        Returns:
            Observations [n] float32, rewards, terminated, truncated and infos of these agents.

        Raises:
            ResetNeeded: no episode is open.
            ValueError: an agent is missing or does not play, or an action is not in its space.
        """
        if not self.agents:
            raise ResetNeeded("no episode is open: call reset() first")
        self._check(actions, self.agents)
        inside = {agent: self._inside(agent, actions[agent]) for agent in self.agents}
        self._actions.zero_()
        for agent, action in inside.items():
            self._actions[0, self.possible_agents.index(agent)] = torch.from_numpy(action)
        obs, *outcome, info = self.batch.step(self._actions)
        facts = {
            name: torch.as_tensor(info[name], device=self.batch.device)[0].tolist()
            for name in (*self.batch.metrics, *self.batch.flags, *self.batch.amounts)
        }
        obs, infos = self._rows(obs), {agent: self._own(facts, agent) for agent in self.agents}
        reward, terminated, truncated = (
            {agent: row.item() for agent, row in self._rows(rows).items()} for rows in outcome
        )
        self.agents = [agent for agent in self.agents if not (terminated[agent] or truncated[agent])]
        return obs, reward, terminated, truncated, infos

    def _own(self, facts: Mapping, agent: str) -> dict:
        """Facts of a step as an agent is told them: of those that each agent has one of, its own."""
        place, team = self.possible_agents.index(agent), (self.batch.num_agents,)
        shapes = {**self.batch.metrics, **self.batch.flags, **self.batch.amounts}
        return {name: value[place] if shapes[name] == team else value for name, value in facts.items()}

    def _inside(self, agent: str, action) -> np.ndarray:
        """The action in its space's type."""
        space = self.action_spaces[agent]
        try:
            found = np.asarray(action).astype(space.dtype, casting="same_kind")
        except (TypeError, ValueError):
            found = None
        if found is None or not space.contains(found):
            raise ValueError(f"action of agent {agent!r} is not in {space!r:.80}: {action!r:.80}")
        return found

    def _rows(self, rows) -> dict[str, np.ndarray]:
        """Copies of rows [1, A, ...] by agent that plays."""
        whole = torch.as_tensor(rows, device=self.batch.device)[0].cpu().numpy()
        return {agent: whole[self.possible_agents.index(agent)].copy() for agent in self.agents}

    def render(self) -> np.ndarray | None:
        """A picture [H, W, 3] uint8 with render_mode="rgb_array", as the port draws it; without a mode a warning."""
        return self._draws() and self.batch.render(0)[0]


class VectorPort(ByAgent):
    """A batch of B environments in dictionaries by agent, as vectors of PettingZoo's environments are elsewhere.

    All agents are in `agents` all the time, since environments that end begin anew (`BatchedEnv` has the modes);
    an info's "active" [B] tells who plays on. Its other entries are the batch's. All tensors are copies.
    """

    def __init__(self, batch: envs.BatchedEnv):
        super().__init__(batch)
        self.num_envs, self.agents, self.num_agents = batch.num_envs, list(batch.agents), len(batch.agents)
        self._single = self._spaces(batch.single_observation_space), self._spaces(batch.single_action_space)
        self.observation_spaces, self.action_spaces = (
            {agent: batch_space(space, batch.num_envs) for agent, space in spaces.items()} for spaces in self._single
        )

    def single_observation_space(self, agent: str) -> Space:
        """Of one environment."""
        return self._single[0][agent]

    def single_action_space(self, agent: str) -> Space:
        """Of one environment."""
        return self._single[1][agent]

    def reset(self, seed: int | None = None, options: Mapping | None = None) -> tuple[dict, dict]:
        """Observations [B, n] and infos by agent; arguments as `BatchedEnv.reset` takes them."""
        obs, info = self.batch.reset(seed=seed, options=options)
        return self._columns(obs), self._infos(info)

    def step(self, actions: Mapping) -> tuple[dict, dict, dict, dict, dict]:
        """One step of every environment; `actions` holds [B, ...] of each agent, tensors or NumPy arrays.

        Returns:
            Observations [B, n], rewards [B], terminated [B], truncated [B] and infos by agent.

        Raises:
            ValueError: an agent is missing or unknown, or what `BatchedEnv.step` refuses.
        """
        self._check(actions, self.agents)
        for place, agent in enumerate(self.agents):
            column = self._actions[:, place]
            try:
                action = torch.as_tensor(actions[agent], device=self.batch.device)
            except (TypeError, ValueError, RuntimeError):
                raise ValueError(f"action of agent {agent!r} is no tensor or array: {actions[agent]!r:.80}") from None
            if action.shape != column.shape or not torch.can_cast(action.dtype, column.dtype):
                wanted = f"{column.dtype} {tuple(column.shape)}"
                raise ValueError(f"action of agent {agent!r} is {action.dtype} {tuple(action.shape)}, not {wanted}")
            column.copy_(saturated(action, column.dtype))
        obs, reward, terminated, truncated, info = self.batch.step(self._actions)
        return *map(self._columns, (obs, reward, terminated, truncated)), self._infos(info)

    def _columns(self, rows) -> dict[str, torch.Tensor]:
        """Copies of rows [B, A, ...] by agent."""
        return {
            agent: torch.as_tensor(rows, device=self.batch.device)[:, place].clone()
            for place, agent in enumerate(self.agents)
        }

    def _infos(self, info: Mapping) -> dict[str, dict]:
        """The entries of an info by agent."""
        parted = {name: self._columns(info[name]) for name in ("final_obs", "active") if name in info}
        whole = {
            name: torch.as_tensor(rows, device=self.batch.device).clone()
            for name, rows in info.items()
            if name not in parted
        }
        return {agent: whole | {name: rows[agent] for name, rows in parted.items()} for agent in self.agents}

    def render(self) -> list[np.ndarray] | None:
        """A picture [H, W, 3] uint8 of each environment with render_mode="rgb_array"; without a mode a warning."""
        return self._draws() and self.batch.render()
