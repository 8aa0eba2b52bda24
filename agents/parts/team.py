"""A team of agents as one: it sees what they see, and its action is all of theirs.

Axes: B environments, A agents, n components of an agent's observation, m of an agent's action.
"""

from collections.abc import Sequence

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from lockstep.agents.run import contract


class Team:
    """An environment of several agents in the form of one with a single agent (`agents/README.md`).

    Its observation is the agents' own side by side [B, A n], or the one that they share [B, n]; its action is what each
    agent uses of an action, agent by agent; its reward is the mean of theirs, and 0 that of who has finished. It has
    ended when all of them have, truncated if one of them was, and counts while one of them acts.

    With `grouped` an action has a number more for each group of the environment's `action_groups`, which is added to
    all of the group's before they are clipped. A policy that draws it explores together what matters only together:
    alone, one number of a thousand drowns in the noise of the others.

    Args:
        env: of A agents, whose contract is looked at with the first reset and step.
        grouped: of a Box.

    Attributes:
        sizes: numbers of an action that each agent uses [A]; they are the first ones.
        owners: the agent of each number of a team's action; of a group's, the one whose number is its first.

    Raises:
        ValueError: groups are asked for where there are none.
    """

    def __init__(self, env, grouped: bool = False):
        self.env, self.device, self.num_envs = env, torch.device(env.device), env.num_envs
        self.agents, self.num_agents = contract.agents_of(env), None
        self.joint = contract.is_joint(env)
        n = env.single_observation_space.shape[-1]
        self.single_observation_space = _unbounded(n if self.joint else self.agents * n)
        space = env.single_action_space
        self._discrete = isinstance(space, Discrete)
        self._width = 1 if self._discrete else space.shape[0]  # m
        self.sizes = tuple(getattr(env, "action_sizes", None) or [self._width] * self.agents)
        if self._discrete:
            self.single_action_space = MultiDiscrete([int(space.n)] * self.agents)
        elif isinstance(space, MultiDiscrete):
            self.single_action_space = MultiDiscrete(self._used(space.nvec))
        else:
            self.single_action_space = Box(self._used(space.low), self._used(space.high), dtype=space.dtype)
        self.owners = [agent for agent, size in enumerate(self.sizes) for _ in range(size)]
        self._groups = self._grouped(getattr(env, "action_groups", None)) if grouped else None  # [levels, numbers]
        self._masks = [sum(space.nvec[:size]) for size in self.sizes] if hasattr(space, "nvec") else []
        self._first: frozenset[str] | None = None  # names of the first infos; none before a reset
        self._looked = False
        self._acting: torch.Tensor | None = None  # [B, A], who takes part in the next step; None: all
        if hasattr(env, "state"):
            self.state, self.set_state = self._state, self._set_state

    def __getattr__(self, name):
        """Whatever else the environment has: state, set_state, statistics, autoreset_mode, ..."""
        if name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)

    def _grouped(self, labels) -> torch.Tensor:
        """The entry of an action that is the group's of each number, in each of the ways that they are grouped."""
        if labels is None or not isinstance(self.single_action_space, Box):
            raise ValueError(
                "groups=True needs an environment with action_groups and a Box of actions, "
                f"which {type(self.env).__name__} is not"
            )
        places, width = [], sum(self.sizes)
        self._low, self._high = (
            torch.from_numpy(bound).to(self.device)
            for bound in (self.single_action_space.low, self.single_action_space.high)
        )
        for level in np.asarray(labels):
            names, first, place = np.unique(level, return_index=True, return_inverse=True)
            places.append(torch.from_numpy(place).to(self.device) + width)
            width += len(names)
            self.owners += [self.owners[number] for number in first]
        self.single_action_space = _unbounded(width)
        return torch.stack(places)

    def _used(self, numbers: Sequence) -> np.ndarray:
        return np.concatenate([np.asarray(numbers)[:size] for size in self.sizes])

    def reset(self, seed=None):
        answer = self.env.reset(seed=seed)
        if self._first is None:
            contract.require_reset(self.env, answer, self._masks_of_an_agent(), self.device)
            self._first = frozenset(answer[1])
        obs, infos = answer
        self._keep(infos)
        return self.observe(obs, infos.get("active")), self._infos(infos)

    def step(self, action: torch.Tensor):
        answer = self.env.step(self.split(action))
        if not self._looked:
            contract.require_step(self.env, answer, self._first, self._masks_of_an_agent(), self.device)
            self._looked = True
        obs, reward, terminated, truncated, infos = answer
        flags, goes_on = self._ended(terminated, truncated), None  # [B, A], who would act if the episode went on
        if self._acting is not None:
            reward = torch.where(self._acting, reward, 0.0)
            goes_on = self._acting & ~terminated.view(len(terminated), -1)
        final = {"final_obs": self.observe(infos["final_obs"], goes_on)}
        self._keep(infos)
        return self.observe(obs, infos.get("active")), reward.mean(dim=1), *flags, self._infos(infos) | final

    def _keep(self, infos):
        """Notes who takes part in the next step, in a buffer that a CUDA graph finds again."""
        active = None if self.joint else infos.get("active")
        if active is None or active.dim() == 1:
            return
        if self._acting is None:
            self._acting = torch.empty_like(active)
        self._acting.copy_(active)

    def _ended(self, terminated: torch.Tensor, truncated: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The team's flags [B] of its agents' [B, A] or [B]: agents end one after the other, and only once."""
        terminated, truncated = (flag.unsqueeze(1) if flag.dim() == 1 else flag for flag in (terminated, truncated))
        acted = torch.ones_like(terminated[:, :1]) if self._acting is None else self._acting
        ended = (terminated | truncated | ~acted).all(dim=1) & acted.any(dim=1)
        return ended & (terminated | ~acted).all(dim=1), ended & (truncated & acted).any(dim=1)

    def _state(self) -> dict:
        state = self.env.state()
        return state if self._acting is None else dict(state) | {"acting": self._acting.clone()}

    def _set_state(self, state):
        if self._acting is not None:
            state = dict(state)
            self._acting.copy_(state.pop("acting"))
        self.env.set_state(state)

    def observe(self, obs: torch.Tensor, active: torch.Tensor | None = None) -> torch.Tensor:
        """The team's view [B, n or A n] of its agents' observations [B, A, n]; of who is not active, 0."""
        if self.joint:
            return obs[:, 0]
        if active is not None and active.dim() == 2:
            obs = torch.where(active.to(obs.device).unsqueeze(2), obs, 0.0)
        return obs.flatten(1)

    def split(self, action: torch.Tensor) -> torch.Tensor:
        """A team's actions [B, sum of sizes] as its agents' [B, A(, m)], 0 where an agent uses no number."""
        if self._discrete:
            return contract.taken(self.env, action)
        if self._groups is not None:
            numbers = sum((action[:, level] for level in self._groups), action[:, : len(self._low)])
            action = torch.clamp(numbers, self._low, self._high)
        apart = action.new_zeros(len(action), self.agents, self._width)
        at = 0
        for agent, size in enumerate(self.sizes):
            apart[:, agent, :size] = action[:, at : at + size]
            at += size
        return contract.taken(self.env, apart)

    def _infos(self, infos) -> dict[str, torch.Tensor]:
        found = {}
        if "active" in infos and not self.joint:
            active = infos["active"]
            found["active"] = active if active.dim() == 1 else active.any(dim=1)
        if "action_mask" in infos:
            found["action_mask"] = self.mask(infos["action_mask"])
        return found

    def mask(self, mask: torch.Tensor) -> torch.Tensor:
        """The team's action mask of its agents' [B, A, masks]."""
        widths = self._masks or [mask.shape[2]] * self.agents
        return torch.cat([mask[:, agent, :width] for agent, width in enumerate(widths)], dim=1)

    def _masks_of_an_agent(self) -> int:
        """Width of one agent's action mask."""
        space = self.env.single_action_space
        return int(space.n) if self._discrete else sum(space.nvec) if self._masks else 0


def _unbounded(width: int) -> Box:
    high = np.full(width, np.inf, np.float32)
    return Box(-high, high, dtype=np.float32)
