"""The rollout buffer: T steps of all environments under the policy, by torch or inside the environment's kernel.

Axes: T steps, B environments, A agents, N = B x A rows of a step, L learners, S shards, n observation components.
"""

import math
from collections.abc import Mapping, Sequence

import torch

from lockstep import envs
from lockstep.agents.run import contract
from lockstep.agents.run.environment import seed_of
from lockstep.envs.checks import require_memory

from .actor_critic import ActorCritic
from .distributions import Distribution
from .noise import Noise
from .normaliser import Normaliser


def modules(networks: ActorCritic, learner: int = 0, greedy: bool = False) -> envs.MLP:
    """One learner's networks as `env.rollout` takes them; they share the numbers that are trained."""
    free = networks.parts(networks.parameters).get("free")
    return envs.MLP(*networks.sequential(learner), log_std=None if free is None else free[learner], greedy=greedy)


def wide(action: torch.Tensor) -> torch.Tensor:
    """Actions of eight bits, as they are kept, as int64: an environment may calculate with them."""
    return action.long() if action.dtype == torch.uint8 else action


def over(flags: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The flags [...] with as many axes more as the rows [..., *] have."""
    return flags.view(*flags.shape, *[1] * (rows.dim() - flags.dim()))


class RolloutBuffer:
    """The rows of an iteration, and `collect`, which fills them.

    Args:
        env: of B environments, SAME_STEP, as agents/README.md describes one.
        seeds: one per member.
        horizon: T.
        shards: S, parts of the batch that see the networks apart, as if in processes of their own.
        in_kernel: roll out inside the environment's kernel.
        normaliser: of observations, or None.
        by_component: keep log p of each component of an action, not of the whole.
        bootstrap: keep values of the last observations of truncated episodes; otherwise 0.
        first_index: noise index of environment 0: how many environments the processes before this one have.

    Attributes:
        rows: [T, N, ...] obs (raw), action, log_prob [T, N(, components)], reward, terminated, truncated, value
            [T + 1, N], bootstrap; also seen, what the networks saw, where that differs, and active and mask where the
            environment has them.
        of_batch: [L, S, rows], which of the T x N rows belong to which learner and shard.
    """

    def __init__(
        self,
        env,
        networks: ActorCritic,
        distribution: Distribution,
        seeds: Sequence[int],
        *,
        horizon: int,
        shards: int = 1,
        in_kernel: bool = False,
        normaliser: Normaliser | None = None,
        by_component: bool = False,
        bootstrap: bool = True,
        first_index: int = 0,
        threads: int = 1,
    ):
        self.env, self.networks, self.distribution, self.normaliser = env, networks, distribution, normaliser
        agents = contract.agents_of(env)
        self.T, self.B, self.A = horizon, env.num_envs, agents or 1
        self._rows = (self.B,) if agents is None else (self.B, agents)  # of the environment's tensors
        self.N, self.n = self.B * self.A, env.single_observation_space.shape[-1]
        self.seeds, self.shards, self.bootstrap, self.device = seeds, shards, bootstrap, networks.device
        self._by_component = by_component
        self._policy = modules(networks) if in_kernel else None
        self.clock = torch.zeros(1, dtype=torch.int64, device=self.device)  # steps of each environment so far
        self._episodes = None  # number and sums of return and length of those that ended, where nobody else counts
        if not hasattr(env, "statistics"):
            self._episodes = torch.zeros(3, dtype=torch.float64, device=self.device)
            self._unfinished = torch.zeros(2, self.N, dtype=torch.float64, device=self.device)  # return and length
        self._own = not isinstance(env, envs.BatchedEnv)  # which has to show that it keeps the contract
        answer = self._reset(first_index)
        if self._own:
            contract.require_reset(env, answer, distribution.masks, self.device)
        obs, first = answer
        self._first = frozenset(first) if self._own else None  # names of its infos, until the first step was looked at
        self._allocate(first)
        self._index()
        if in_kernel:
            trajectory = env.rollout_buffers(self.T, self._policy)
            self.rows |= trajectory | {"action": trajectory["action"].view(self.T, self.N, *distribution.stored_shape)}
        else:
            blocks = distribution.blocks
            self.noise = Noise(seeds, self.B, first_index, self.A, blocks, self.T, self.device, threads)
            self._keep(self.T, obs, first)

    def _reset(self, first_index: int):
        several = len(self.seeds) > 1
        return self.env.reset(seed=list(self.seeds) if several else seed_of(self.env, self.seeds[0], first_index))

    def _index(self):
        """The rows of a step, and of the batch, by learner and shard, of which at most one are several."""
        L = self.networks.learners
        self.of_step = torch.arange(self.N, device=self.device).view(L, self.shards, -1)
        batch = torch.arange(self.T * self.N, device=self.device).view(self.T, *self.of_step.shape)
        self.of_batch = batch.permute(1, 2, 0, 3).reshape(L, self.shards, -1)
        self._learner_of = torch.arange(L, device=self.device).repeat_interleave(self.N // L)  # [N]

    def _allocate(self, first: Mapping[str, torch.Tensor]):
        """The buffers that the environment's kernel does not have."""
        T, N, float32 = self.T, self.N, torch.float32
        layout = {}
        if self._policy is None:
            layout = {
                "obs": ((T + 1, N, self.n), float32),
                "action": ((T, N, *self.distribution.stored_shape), self.distribution.stored_dtype),
                "log_prob": ((T, N, *[self.distribution.components] * self._by_component), float32),
                "reward": ((T, N), float32),
                "terminated": ((T, N), torch.bool),
                "truncated": ((T, N), torch.bool),
                "final_obs": ((T, N, self.n), float32),
                "value": ((T + 1, N), float32),
                "bootstrap": ((T, N), float32),
            }
            if "active" in first and not contract.is_joint(self.env):  # else all are, always
                layout["active"] = ((T + 1, N), torch.bool)
            if "action_mask" in first:
                layout["mask"] = ((T + 1, N, self.distribution.masks), torch.bool)
        if self.normaliser is not None or "active" in layout:
            layout["seen"] = ((T, N, self.networks.inputs), float32)
        kernels = self.env.trajectory_layout(T, self._policy) if self._policy is not None else {}
        needed = sum(math.prod(shape) * dtype.itemsize for shape, dtype in [*layout.values(), *kernels.values()])
        needed += 4 * 8 * T * N  # which row is whose, orders, advantages and targets
        require_memory(needed, self.device, "num_envs x horizon", self.B * T)
        self.rows = {name: torch.zeros(shape, dtype=kind, device=self.device) for name, (shape, kind) in layout.items()}

    @property
    def active(self) -> torch.Tensor | None:
        """[T, N], which rows count; None: all."""
        return self.rows["active"][: self.T] if "active" in self.rows else None

    def batch(self) -> dict[str, torch.Tensor]:
        """Fields that an update reads of the rows: views [T x N, ...] that each `collect` fills anew."""
        rows = self.rows
        batch = {name: rows[name] for name in ("action", "log_prob")}
        batch |= {"obs": rows.get("seen", rows["obs"][: self.T]), "value": rows["value"][: self.T]}
        if "mask" in rows:
            batch["mask"] = rows["mask"][: self.T]
        if "active" in rows:
            batch["valid"] = rows["active"][: self.T]
        return {name: tensor.flatten(0, 1) for name, tensor in batch.items()}

    @torch.no_grad()
    def collect(self) -> None:
        """T steps of every environment; nothing waits for the device."""
        if self._policy is not None:
            rows = self.env.rollout(self.T, self._policy, "trajectory")
            if rows["reward"].data_ptr() != self.rows["reward"].data_ptr():
                raise RuntimeError(
                    "the environment keeps its roll-outs elsewhere since somebody else called its rollout(); "
                    "a run needs an environment of its own"
                )
            if not self.bootstrap:
                self.rows["bootstrap"].zero_()
        else:
            self._collect_in_torch()
        if self._episodes is not None:
            self._count_episodes()
        self.clock += self.T

    def _collect_in_torch(self):
        rows, T = self.rows, self.T
        variates = self.distribution.variates(self.noise.draw(self.clock).view(T, self.N, -1))
        free = self.networks.leaves.get("free")
        if free is not None:
            free = free[0] if self.networks.learners == 1 else free[self._learner_of]
        for name in ("obs", "active", "mask"):
            if name in rows:
                rows[name][0].copy_(rows[name][T])
        for t in range(T):
            x = self._seen(t)
            if "seen" in rows:
                rows["seen"][t] = x
            out, rows["value"][t] = self._forward(x)
            mask = rows["mask"][t] if "mask" in rows else None
            rows["action"][t], log_prob = self.distribution.sample(out, free, variates[t], mask)
            if self._by_component:
                log_prob, _ = self.distribution.of_components(out, free, rows["action"][t], mask)
            rows["log_prob"][t] = log_prob
            action = self.distribution.to_environment(rows["action"][t])
            action = wide(action) if self._own else contract.taken(self.env, action)
            action = action.view(*self._rows, *action.shape[1:])
            answer = self.env.step(action)
            if self._first is not None:
                contract.require_step(self.env, answer, self._first, self.distribution.masks, self.device)
                self._first = None
            obs, reward, terminated, truncated, info = answer
            rows["reward"][t] = reward.reshape(-1)  # may be a team's, expanded
            for name, flag in (("terminated", terminated), ("truncated", truncated)):
                rows[name][t].view(self.B, self.A).copy_(flag.view(self.B, -1))
            rows["final_obs"][t] = info["final_obs"].reshape(self.N, self.n)
            self._keep(t + 1, obs, info)
        rows["value"][T] = self._forward(self._seen(T))[1]
        if "active" in rows:
            rows["value"][T].mul_(rows["active"][T])  # who has finished has nothing to come
        if self.bootstrap:
            cut = rows["truncated"] & ~rows["terminated"]
            x = self._normalised(rows["final_obs"]).flatten(0, 1)
            values = x.new_empty(len(x))
            for s in range(self.shards):
                values[self.of_batch[:, s]] = self.networks.critic(x[self.of_batch[:, s]])
            rows["bootstrap"].copy_(torch.where(cut, values.view_as(cut), 0.0))

    def _keep(self, t: int, obs: torch.Tensor, info: Mapping[str, torch.Tensor]):
        """Takes an observation and its masks out of the environment's buffers."""
        self.rows["obs"][t] = obs.reshape(self.N, self.n)
        if "active" in self.rows:
            self.rows["active"][t].view(self.B, self.A).copy_(info["active"].view(self.B, -1))
        if "mask" in self.rows:
            mask = self.rows["mask"][t].copy_(info["action_mask"].reshape(self.N, -1))
            if self.device.type == "cpu":  # elsewhere a check would wait for the device
                of_inactive = ~self.rows["active"][t].unsqueeze(1) if "active" in self.rows else False
                self.distribution.check_mask(mask | of_inactive)

    def _seen(self, t: int) -> torch.Tensor:
        """Step t's observations as the networks see them; those of inactive rows, which may be anything, are 0."""
        x = self._normalised(self.rows["obs"][t])
        return torch.where(self.rows["active"][t].unsqueeze(1), x, 0.0) if "active" in self.rows else x

    def _normalised(self, obs: torch.Tensor) -> torch.Tensor:
        """Observations [..., N, n], normalised where that is asked for."""
        return obs if self.normaliser is None else self.normaliser(obs)

    def _forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs [N, m] and values [N] of a step's observations [N, n]."""
        if self.networks.learners == self.shards == 1:
            out, value = self.networks(x.unsqueeze(0))
            return out[0], value[0]
        out, value = x.new_empty(len(x), self.distribution.outputs), x.new_empty(len(x))
        for s in range(self.shards):
            out[self.of_step[:, s]], value[self.of_step[:, s]] = self.networks(x[self.of_step[:, s]])
        return out, value

    def _count_episodes(self):
        """Takes the episodes that ended, and what the others have so far, into the statistics."""
        ended = self.rows["terminated"] | self.rows["truncated"]
        lived = torch.ones_like(ended) if self.active is None else self.active
        steps = torch.stack([torch.where(lived, self.rows["reward"], 0.0), lived.float()]).double()  # [2, T, N]
        sums = steps.cumsum(1) + self._unfinished.unsqueeze(1)
        # The sums where the last episode before had ended, which are subtracted.
        place = torch.where(ended, torch.arange(1, self.T + 1, device=self.device).unsqueeze(1), 0).cummax(0).values
        base = torch.cat([torch.zeros_like(sums[:, :1]), sums], dim=1)
        earlier = torch.cat([torch.zeros_like(place[:1]), place[:-1]])
        totals = sums - base.gather(1, earlier.expand_as(sums))
        counted = ended & (totals[1] > 0)
        self._episodes += torch.stack([counted.double(), *torch.where(counted, totals, 0.0)]).sum(dim=(1, 2))
        self._unfinished.copy_(sums[:, -1] - base.gather(1, place[-1:].expand(2, 1, self.N))[:, 0])

    def statistics(self) -> dict[str, torch.Tensor]:
        """Episodes since the last call, of environments that keep no statistics themselves: their number, and means.

        Of several agents each has episodes of its own. A mean over none is NaN.
        """
        count, returns, lengths = self._episodes.clone()
        self._episodes.zero_()
        return {"episodes": count, "return_mean": returns / count, "length_mean": lengths / count}

    def finite(self) -> torch.Tensor:
        """[4] bool: whether observations, rewards, log p and values of all rows that count are finite."""
        active = self.active
        flags = []
        for name in ("obs", "reward", "log_prob", "value"):
            tensor = self.rows[name][: self.T]
            if active is not None:
                tensor = torch.where(over(active, tensor), tensor, 0.0)
            flags.append(tensor.sum().isfinite())
        return torch.stack(flags)

    def state(self) -> dict:
        """A copy of what the next `collect` depends on besides networks and environment."""
        state = {"clock": self.clock.clone()}
        if self._policy is None:
            state |= {name: self.rows[name][self.T].clone() for name in ("obs", "active", "mask") if name in self.rows}
        return state

    def load_state(self, state: Mapping) -> None:
        """Continues from what `state` gave; episodes that had begun count from here."""
        self.clock.copy_(state["clock"])
        if self._episodes is not None:
            self._unfinished.zero_()
        for name in ("obs", "active", "mask"):
            if name in state:
                self.rows[name][self.T].copy_(state[name])
