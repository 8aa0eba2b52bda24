"""Small environments in torch with the contract that `PPO` asks for; what happens in them is known beforehand."""

from collections.abc import Callable

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

PERIOD = 16  # steps after which a world's observations repeat


class World:
    """Observations come from a table and heed no action; a rule gives the rewards; episodes end at a limit.

    Args:
        num_envs: B.
        action_space: of one agent.
        reward: a function of observation and action, [B(, A), n] and [B(, A), ...], to [B(, A)].
        agents: A; None: no such axis.
        limit: steps of an episode.
        ends: which flags its last step has.
        active: a function of the episode's step to bool [B] or [B, A]; None: always all, and no such info.
        mask: bool [masks], actions allowed at even environments (at odd ones all are); None: no such info.
        rubbish: what stands in rows that are not active.
        table: observations [PERIOD, B(, A), n]; None: standard normal, n = 3.
    """

    def __init__(
        self,
        num_envs: int = 8,
        action_space=None,
        reward: Callable | None = None,
        *,
        agents: int | None = None,
        limit: int = 5,
        ends: tuple[str, ...] = ("truncated",),
        active: Callable[[int], torch.Tensor] | None = None,
        mask: torch.Tensor | None = None,
        rubbish: float = float("nan"),
        table: torch.Tensor | None = None,
        device: str = "cpu",
    ):
        self.num_envs, self.device, self.autoreset_mode = num_envs, torch.device(device), "SameStep"
        self.rows = (num_envs,) if agents is None else (num_envs, agents)
        if agents is not None:
            self.num_agents = agents
        self.single_action_space = Discrete(2) if action_space is None else action_space
        self.table = normal(PERIOD, *self.rows, 3) if table is None else table
        n = self.table.shape[-1]
        self.single_observation_space = Box(-np.inf, np.inf, (*self.rows[1:], n))
        self.reward, self.limit, self.ends, self.active, self.mask = reward or first_is_right, limit, ends, active, mask
        self.rubbish = rubbish
        self.time = 0

    def reset(self, seed=None):
        self.time = 0
        return self._observe(0), self._info(0)

    def step(self, action: torch.Tensor):
        before, elapsed = self.table[self.time % PERIOD], self.time % self.limit + 1
        reward = self._spoil(self.reward(before, action), self.time)
        ended = elapsed == self.limit
        final_obs = self._spoil(self.table[(self.time + 1) % PERIOD], self.time)
        flags = [torch.full((self.num_envs,), ended and name in self.ends) for name in ("terminated", "truncated")]
        self.time += 1
        return self._observe(self.time), reward, *flags, self._info(self.time) | {"final_obs": final_obs}

    def _observe(self, time: int) -> torch.Tensor:
        return self._spoil(self.table[time % PERIOD], time)

    def _spoil(self, rows: torch.Tensor, time: int) -> torch.Tensor:
        if self.active is None:
            return rows.clone()
        active = self.active(time % self.limit)
        return torch.where(active.view(*active.shape, *[1] * (rows.dim() - active.dim())), rows, self.rubbish)

    def _info(self, time: int) -> dict[str, torch.Tensor]:
        info = {}
        if self.active is not None:
            info["active"] = self.active(time % self.limit)
        if self.mask is not None:
            odd = (torch.arange(self.num_envs) % 2 == 1).view(-1, *[1] * len(self.rows))
            info["action_mask"] = (odd | self.mask).expand(*self.rows, -1)
        return info


class Clock:
    """Observation = step of the episode, reward 1; every episode ends at the limit, with these flags.

    Environment i begins at step i, so that all steps are seen in every step of the batch.
    """

    def __init__(self, num_envs: int, limit: int = 5, ends: tuple[str, ...] = ("truncated",)):
        self.num_envs, self.limit, self.ends = num_envs, limit, ends
        self.device, self.autoreset_mode = torch.device("cpu"), "SameStep"
        self.single_observation_space, self.single_action_space = Box(0, limit, (1,)), Discrete(2)

    def reset(self, seed=None):
        self.elapsed = torch.arange(self.num_envs) % self.limit
        return self._observe(), {}

    def step(self, action: torch.Tensor):
        self.elapsed += 1
        final_obs, ended = self._observe(), self.elapsed == self.limit
        self.elapsed[ended] = 0
        flags = [ended & (name in self.ends) for name in ("terminated", "truncated")]
        return self._observe(), torch.ones(self.num_envs), *flags, {"final_obs": final_obs}

    def _observe(self) -> torch.Tensor:
        return self.elapsed.float().unsqueeze(1)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def first_is_right(obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """1 where a Discrete action says whether the first component is positive, otherwise 0."""
    return (action.long() == (obs[..., 0] > 0)).float()


def near_first(obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Minus the squared distance of a Box's components from the first components of the observation, within [-1, 1]."""
    return -(action - obs[..., : action.shape[-1]].clamp(-1, 1)).square().sum(dim=-1)


def each_is_right(obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Share of a MultiDiscrete's components that say whether the observation's component is positive."""
    return (action == (obs[..., : action.shape[-1]] > 0)).float().mean(dim=-1)


class Crew(World):
    """Two agents with one view, of which agent 0 uses the first `sizes[0]` numbers of an action, agent 1 the first
    `sizes[1]`. The best numbers are the first component of what they see, and its negative.

    Args:
        grouped: whether the environment says that each agent's numbers belong together.
        spread: only the mean of an agent's numbers counts, not each of them.
    """

    def __init__(self, num_envs: int = 8, sizes: tuple[int, int] = (2, 5), grouped: bool = False, spread: bool = False):
        self.action_sizes, self.joint, self.spread = sizes, True, spread
        self.beyond: list[float] = []  # largest number that was given and is not used, step by step
        if grouped:
            self.action_groups = np.repeat([0, 1], sizes)[None]
        table = normal(PERIOD, num_envs, 1, 3).expand(-1, -1, 2, -1)
        super().__init__(num_envs, Box(-1.0, 1.0, (max(sizes),)), self.distance, agents=2, table=table)

    def distance(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        best, total = 0.5 * obs[:, 0, :1].clamp(-1, 1), 0.0
        for agent, size in enumerate(self.action_sizes):
            used = action[:, agent, :size].mean(dim=1, keepdim=True) if self.spread else action[:, agent, :size]
            total = total - (used - best * (1 - 2 * agent)).square().mean(dim=1)
        unused = [action[:, agent, size:].flatten() for agent, size in enumerate(self.action_sizes)]
        self.beyond.append(float(torch.cat(unused).abs().sum()))
        return total.unsqueeze(1).expand(-1, 2)


BOX = Box(-2.0, 2.0, (2,))
THREE_TWO = MultiDiscrete([3, 2])
