"""Twin delayed deterministic policy gradient that never leaves the device (Fujimoto et al., 2018).

An iteration is that of `parts/continuous.py`; here are the networks and the update.

    python -m lockstep.agents.td3 pendulum --seed 1 --output runs/pendulum
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from lockstep.agents.parts.continuous import CRITICS
from lockstep.agents.parts.deterministic import Deterministic, DeterministicSettings
from lockstep.agents.parts.mlp import Network
from lockstep.agents.run import command_line, training
from lockstep.agents.run import config as configuration
from lockstep.agents.run.config import setting


@dataclass(frozen=True)
class Config(DeterministicSettings):
    """The settings of a run; with the environment's name it determines every number of it."""

    target_noise: float = setting(0.2, "standard deviation of the noise on next actions", least=0)
    target_noise_limit: float = setting(0.5, "limit of that noise", least=0)
    policy_delay: int = setting(2, "updates of the critics for one of the actor", least=1)
    target_every: int = setting(
        8, "environment steps between changes of the target networks, one after each update at most", least=1
    )


RECIPES = {"solve": Config()}


class TD3(Deterministic):
    """A run of TD3; what it takes and raises `Continuous` says.

    Of a row of `NStep` with the target actor's action a' and noise e

        y = R + discount * min of both target critics at clip(a' + clip(e, +-target_noise_limit), -1, 1)

    each critic goes down (Q - y)^2, and every `policy_delay` updates the actor up the first critic's value.
    """

    name = "td3"
    Config = Config
    RECIPES = RECIPES
    FIGURES = ("critic_loss", "q_value")
    COLUMNS = (*FIGURES, "grad_norm", "epsilon")

    def _networks(self, n: int, m: int) -> dict[str, Network]:
        return {"actor": self.network(n, m, 0), **self.twins(n, m)}

    @property
    def uneven(self) -> str:
        delay, chunk = self.config.policy_delay, self.chunk
        of_delay = f"policy_delay={delay} must divide the {chunk} updates that are made together"
        return super().uneven or of_delay * (chunk % delay > 0)

    def _followed(self) -> tuple[str, ...]:
        return ("actor", *CRITICS)

    def target(self, rows: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """y [k, 1] of rows."""
        obs, limit = rows["next_obs"], self.config.target_noise_limit
        action = self.squash(self.targets["actor"](obs))
        noise = (self.config.target_noise * self.normal(action.shape, self.generator)).clamp_(-limit, limit)
        x = torch.cat([obs, (action + noise).clamp_(-1.0, 1.0)], dim=1)
        return self.bootstrapped(rows, self.target_critics(x).amin(0))

    def _learn(self, rows: Mapping[str, torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        loss, value, norms = self.learn_values(rows, self.target(rows))
        if self.updates % self.config.policy_delay == 0:
            norms = [*norms, self.learn_actor(rows["obs"], CRITICS[0])]
        return [loss, value], norms


config_of = functools.partial(configuration.config_of, TD3)
train = functools.partial(training.train, TD3)
load = functools.partial(training.load, TD3)

if __name__ == "__main__":
    command_line.main("td3")
