"""Steps of an environment as transitions that stand by themselves, for a replay."""

from collections.abc import Mapping

import torch

from lockstep import envs
from lockstep.agents.run import contract
from lockstep.agents.run.environment import seed_of


class Transitions:
    """Steps an environment, whatever its autoreset, flags and agents, and gives a row for each agent's step.

    An ended episode's next observation is its last, and not the first of the next episode. An agent that goes on and
    does not act any more has finished: its row is terminated. Nothing waits for the device.

    Axes: B environments, A agents, N = B x A rows, n observation components.

    Args:
        env: as `agents/README.md` describes one, without action masks.
        seed: of its reset.
        device: of the rows, the environment's.
        limit_ends: whether a truncated episode's last row is terminated too.
        reward_scale: factor on every reward, of rows alone: episodes are counted without it.
        first_index: how many environments the processes before this one have.

    Attributes:
        obs: float32 [N, n], what is to be acted on.
        active: bool [N], whose actions count; None: all.
        ended: bool [N], whose episode ended with the last step, or who finished with it.

    Raises:
        ValueError: the environment breaks its contract, here or at the first step.
    """

    def __init__(
        self,
        env,
        seed: int,
        device: torch.device,
        limit_ends: bool = False,
        reward_scale: float = 1.0,
        first_index: int = 0,
    ):
        self.env, self.device, self.limit_ends = env, device, limit_ends
        self.reward_scale = reward_scale
        agents = contract.agents_of(env)
        self.shape = (env.num_envs,) if agents is None else (env.num_envs, agents)  # of the environment's tensors
        self.N = env.num_envs * (agents or 1)
        answer = env.reset(seed=seed_of(env, seed, first_index))
        self._first = None  # names of the first infos, until a step was looked at
        if not isinstance(env, envs.BatchedEnv):
            contract.require_reset(env, answer, 0, device)
            self._first = frozenset(answer[1])
        obs, info = answer
        self.obs = obs.reshape(self.N, -1).to(torch.float32, copy=True)
        self.active = self._by_row(info["active"]).clone() if "active" in info else None
        self.ended = torch.zeros(self.N, dtype=torch.bool, device=device)
        self._ended = torch.zeros(3, dtype=torch.float64, device=device)  # number, return and length of episodes
        self._unfinished = torch.zeros(2, self.N, dtype=torch.float64, device=device)  # return and length
        if hasattr(env, "statistics"):
            env.statistics()  # forgets the episodes before the run

    def _by_row(self, flags: torch.Tensor) -> torch.Tensor:
        """Flags [B] or [B, A] as [N]."""
        return flags.view(len(flags), -1).expand(len(flags), self.N // len(flags)).reshape(-1)

    def step(self, action: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor | None]:
        """One step of all.

        Args:
            action: [N, ...].

        Returns:
            obs, next_obs float32 [N, n], action, reward float32 [N], terminated bool [N]; and bool [N], which rows
            count (the others may hold anything), or None for all. Valid until the next step.
        """
        given = contract.taken(self.env, action)
        answer = self.env.step(given.view(*self.shape, *given.shape[1:]))
        if self._first is not None:
            contract.require_step(self.env, answer, self._first, 0, self.device)
            self._first = None
        before, valid = self.obs.clone(), None if self.active is None else self.active.clone()
        obs, reward, terminated, truncated, info = answer
        self.obs.copy_(obs.reshape(self.N, -1))
        reward, terminated, truncated = reward.reshape(-1).float(), *map(self._by_row, (terminated, truncated))
        ended = terminated | truncated
        if self.limit_ends:
            terminated = ended
        if valid is not None:
            self.active.copy_(self._by_row(info["active"]))
            terminated = terminated | ~(self.active | ended)
        self.ended = ended | terminated
        if not hasattr(self.env, "statistics"):
            self._count(reward, ended, valid)
        if self.reward_scale != 1:
            reward = self.reward_scale * reward
        last = info["final_obs"].reshape(self.N, -1).float()
        next_obs = torch.where(ended.unsqueeze(1), last, self.obs)
        rows = {"obs": before, "action": action, "reward": reward, "next_obs": next_obs, "terminated": terminated}
        return rows, valid

    def _count(self, reward: torch.Tensor, ended: torch.Tensor, valid: torch.Tensor | None):
        """Takes a step into the episodes of an environment that does not count them itself."""
        step = torch.stack([reward, torch.ones_like(reward)])
        self._unfinished += step if valid is None else torch.where(valid, step, 0.0)
        episode = torch.cat([torch.ones_like(self._unfinished[:1]), self._unfinished])
        self._ended += torch.where(ended & (self._unfinished[1] > 0), episode, 0.0).sum(dim=1)
        self._unfinished.masked_fill_(ended, 0.0)

    def statistics(self) -> torch.Tensor:
        """float64 [3]: number, mean return and mean length of the episodes since the last call; NaN of none."""
        if hasattr(self.env, "statistics"):
            found = self.env.statistics()
            return torch.stack([found[name] for name in contract.STATISTICS]).double()
        found = torch.cat([self._ended[:1], self._ended[1:] / self._ended[:1]])
        self._ended.zero_()
        return found

    def state(self) -> dict[str, torch.Tensor]:
        """A copy of what the next step depends on besides the environment's own state."""
        return {"obs": self.obs.clone()} | ({} if self.active is None else {"active": self.active.clone()})

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Goes on from a `state()`; episodes that had begun count from here."""
        self.obs.copy_(state["obs"])
        self._unfinished.zero_()
        if self.active is not None:
            self.active.copy_(state["active"])
