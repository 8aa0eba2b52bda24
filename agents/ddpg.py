"""Deep deterministic policy gradient that never leaves the device (Lillicrap et al., 2016).

An iteration is that of `parts/continuous.py`; here are the networks and the update.

    python -m lockstep.agents.ddpg pendulum --seed 1 --output runs/pendulum
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from lockstep.agents.parts.deterministic import Deterministic, DeterministicSettings
from lockstep.agents.parts.mlp import Network
from lockstep.agents.run import command_line, training
from lockstep.agents.run import config as configuration
from lockstep.agents.run.config import setting


@dataclass(frozen=True)
class Config(DeterministicSettings):
    """The settings of a run; with the environment's name it determines every number of it."""

    huber: bool = setting(False, "the critic's loss is smooth L1 (off: the squared error)")


RECIPES = {"solve": Config()}


class DDPG(Deterministic):
    """A run of DDPG; what it takes and raises `Continuous` says.

    Of a row of `NStep` y = R + discount * the target critic at the target actor's action; the critic goes down its
    distance from y, the actor up the critic's value.
    """

    name = "ddpg"
    Config = Config
    RECIPES = RECIPES
    FIGURES = ("critic_loss", "q_value")
    COLUMNS = (*FIGURES, "grad_norm", "epsilon")

    def _networks(self, n: int, m: int) -> dict[str, Network]:
        return {"actor": self.network(n, m, 0), "critic": self.network(n, 1, 1, actions=m)}

    def _followed(self) -> tuple[str, ...]:
        return ("actor", "critic")

    def target(self, rows: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """y [k, 1] of rows."""
        obs = rows["next_obs"]
        value = self.targets["critic"](torch.cat([obs, self.squash(self.targets["actor"](obs))], dim=1))
        return self.bootstrapped(rows, value)

    def _learn(self, rows: Mapping[str, torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        loss, value, norms = self.learn_values(rows, self.target(rows), self.config.huber)
        return [loss, value], [*norms, self.learn_actor(rows["obs"], "critic")]


config_of = functools.partial(configuration.config_of, DDPG)
train = functools.partial(training.train, DDPG)
load = functools.partial(training.load, DDPG)

if __name__ == "__main__":
    command_line.main("ddpg")
