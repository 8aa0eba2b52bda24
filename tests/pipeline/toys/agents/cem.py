"""The cross-entropy method (Rubinstein, 1999): of linear policies that were drawn the best say where to draw next.

An example of an algorithm that is unlike the others of this repository: no network, no gradient, no horizon of a
roll-out. Every environment plays one episode with a policy of its own.

    python -m lockstep.agents.cem cartpole
"""

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from gymnasium.spaces import Discrete
from torch import nn

from lockstep.agents.parts import distributions
from lockstep.agents.parts.module import Greedy, sequential
from lockstep.agents.run import checkpoint, command_line, contract, log, training
from lockstep.agents.run import config as configuration
from lockstep.agents.run.config import Settings, setting
from lockstep.agents.run.environment import of_run
from lockstep.agents.run.ranks import Ranks


@dataclass(frozen=True)
class Config(Settings):
    """The settings of a run."""

    num_envs: int = setting(32, "B, environments, each with a policy of its own", least=2)
    length: int = setting(500, "steps of an iteration, at most one episode of each environment", least=1)
    total_steps: int = setting(192_000, "environment steps of the whole run, rounded down to iterations", least=1)
    elite: int = setting(8, "policies that say where the next ones are drawn", least=1)
    spread: float = setting(1.0, "standard deviation of the first policies", least=0)
    noise: float = setting(0.1, "least standard deviation", least=0)


RECIPES = {"plain": Config()}


class CEM:
    """A run, as `run/algorithm.py` describes one, on an environment of `envs` with `Discrete` or `Box` actions.

    Several agents share the policy of their environment.
    """

    name = "cem"
    Config = Config
    RECIPES = RECIPES
    COLUMNS = ("elite_return", "deviation")
    SHAPES = ()

    def __init__(self, environment, config: Config = RECIPES["plain"], device: torch.device | str = "cpu"):
        self.config, self.ranks = config, Ranks(device)
        self.device = self.ranks.device
        if self.ranks.size > 1:
            raise ValueError(f"CEM trains in one process, not in {self.ranks.size}")
        options = {"threads": config.threads, "seed": config.seed, "named": config.options}
        self.env = of_run(environment, config.num_envs, self.device, **options)
        self.env.reset(seed=config.seed)
        self.space = self.env.single_action_space
        m = int(self.space.n) if isinstance(self.space, Discrete) else self.space.shape[0]
        self.mean = torch.zeros(self.env.single_observation_space.shape[-1] + 1, m, device=self.device)
        self.deviation = torch.full_like(self.mean, config.spread)
        self.elite_return = torch.zeros((), device=self.device)
        self.generator = torch.Generator(self.device).manual_seed(config.seed)
        self.iteration, self.iterations = 0, config.total_steps // (config.num_envs * config.length)
        self.phases = {"rollout": self._rollout, "update": self._update}

    def iterate(self) -> None:
        for phase in ("rollout", "update"):
            self.phases[phase]()
        self.iteration += 1

    @torch.no_grad()
    def _rollout(self):
        noise = torch.randn(self.config.num_envs, *self.mean.shape, device=self.device, generator=self.generator)
        self.drawn = self.mean + self.deviation * noise  # [B, n + 1, m]
        self.returns = torch.zeros(self.config.num_envs, device=self.device)
        plays = torch.ones_like(self.returns, dtype=torch.bool)
        obs, _ = self.env.reset()
        for _ in range(self.config.length):
            obs, reward, _, _, info = self.env.step(self._chosen(obs, self.drawn))
            self.returns += reward.reshape(len(plays), -1).mean(dim=1) * plays
            plays &= ~info["_final_obs"]

    def _chosen(self, obs: torch.Tensor, policy: torch.Tensor) -> torch.Tensor:
        """The actions for observations [B, (A,) n] of a policy [n + 1, m], or of one for each environment."""
        ones = torch.ones_like(obs[..., :1])
        policies = policy.expand(len(obs), *self.mean.shape)
        values = torch.einsum("b...n,bnm->b...m", torch.cat([obs, ones], dim=-1), policies)
        if isinstance(self.space, Discrete):
            return contract.taken(self.env, values.argmax(dim=-1))
        low, high = (torch.as_tensor(bound, device=self.device) for bound in (self.space.low, self.space.high))
        return values.clamp(low, high)

    def _update(self):
        best = self.returns.topk(min(self.config.elite, self.config.num_envs))
        self.elite_return = best.values.mean()
        self.mean = self.drawn[best.indices].mean(dim=0)
        self.deviation = self.drawn[best.indices].std(dim=0, correction=0).clamp(min=self.config.noise)

    @property
    def env_steps(self) -> int:
        return self.iteration * self.config.num_envs * self.config.length

    @property
    def learns(self) -> bool:
        return True

    @property
    def parameter_count(self) -> int:
        return self.mean.numel()

    def statistics(self) -> dict[str, float]:
        ended = self.env.statistics()
        told = (*(ended[name] for name in contract.STATISTICS), self.elite_return, self.deviation.mean())
        return dict(zip((*log.OF_EPISODES, *self.COLUMNS), map(float, told), strict=True))

    def act(self, obs: torch.Tensor, greedy: bool = True, active: torch.Tensor | None = None) -> torch.Tensor:
        policy = self.mean if greedy else self.mean + self.deviation * torch.randn_like(self.mean)
        action = self._chosen(contract.observed(self.env, obs).to(self.device, torch.float32), policy)
        return contract.of_active(action, active, obs)

    def policy(self, greedy: bool = True) -> None:
        """None: no kernel carries it."""

    def module(self) -> Greedy:
        return Greedy(sequential([(self.mean[:-1].t(), self.mean[-1])], nn.Identity), distributions.of(self.space))

    def weights(self) -> dict:
        return {"mean": self.mean.clone(), "deviation": self.deviation.clone()}

    def load_weights(self, state: Mapping) -> None:
        checkpoint.require_like(state, self.weights())
        checkpoint.require_finite(state, self.weights())
        self.mean, self.deviation = (state[name].to(self.device, copy=True) for name in ("mean", "deviation"))

    def state(self) -> dict:
        state = {"iteration": self.iteration, **self.weights(), "elite_return": self.elite_return.clone()}
        return state | {"generator": self.generator.get_state(), "environment": self.env.state()}

    def load_state(self, state: Mapping) -> None:
        self.load_weights(state)
        self.iteration, self.elite_return = state["iteration"], state["elite_return"].to(self.device)
        self.generator.set_state(state["generator"])
        self.env.set_state(state["environment"])

    @staticmethod
    def to_act(config: Config) -> Config:
        return dataclasses.replace(config, num_envs=2, length=1, threads=1)

    @staticmethod
    def torch_threads(config: Config) -> int:
        return 1


config_of = functools.partial(configuration.config_of, CEM)
train = functools.partial(training.train, CEM)
load = functools.partial(training.load, CEM)

if __name__ == "__main__":
    command_line.main("cem")
