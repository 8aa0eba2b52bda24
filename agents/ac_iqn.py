"""Deterministic policy gradient with a critic of quantiles, which never leaves the device (Dabney et al., 2018).

An iteration is that of `parts/continuous.py`; here are the networks and the update.

    python -m lockstep.agents.ac_iqn pendulum --seed 1 --output runs/pendulum
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from lockstep.agents.parts import quantiles
from lockstep.agents.parts.deterministic import Deterministic, DeterministicSettings
from lockstep.agents.parts.mlp import Network
from lockstep.agents.parts.quantiles import DRAWN, QuantileNetwork
from lockstep.agents.run import command_line, training
from lockstep.agents.run import config as configuration
from lockstep.agents.run.config import setting


@dataclass(frozen=True)
class Config(DeterministicSettings):
    """The settings of a run; with the environment's name it determines every number of it."""

    features: int = setting(256, "width of the first ReLU layers, of observations and of fractions", least=1)
    hidden: tuple[int, ...] = setting((128, 128), "widths of the ReLU layers after these", least=1)
    squash: str = setting("atan", "what brings actions into their bounds", choices=("tanh", "atan"))
    cvar: float = setting(
        1.0, "share of the worst returns whose mean the actor raises, the conditional value at risk", least=1e-6, most=1
    )


RECIPES = {"solve": Config()}


class ACIQN(Deterministic):
    """A run of AC-IQN; what it takes and raises `Continuous` says.

    The critic gives, for a fraction tau, that quantile of the return of an observation and an action. An update draws 8
    fractions tau for each row, whose R and discount are those of `NStep`, and 8 others tau'. With the target actor's
    action a'

        y_j = R + discount * the target critic's quantile of a' at tau'_j

    the critic goes down the quantile Huber loss of its 8 quantiles and these targets, the actor up the mean of the
    critic's quantiles at 8 fractions that are uniform in [0, cvar).
    """

    name = "ac_iqn"
    Config = Config
    RECIPES = RECIPES
    FIGURES = ("critic_loss", "q_value")
    COLUMNS = (*FIGURES, "grad_norm", "epsilon")
    SHAPES = ("hidden", "features", "encoding", "raw_obs", "norm_obs", "squash")

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.config.features, *self.config.hidden)

    def _networks(self, n: int, m: int) -> dict[str, Network]:
        features, hidden, seed = self.config.features, self.config.hidden, self.seed_of(1)
        critic = QuantileNetwork(
            n, 1, features, hidden, self.device, seed, actions=m, encoder=self.encoder(features, seed)
        )
        return {"actor": self.network(n, m, 0), "critic": critic}

    def _followed(self) -> tuple[str, ...]:
        return ("actor", "critic")

    def target(self, rows: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """y [k, DRAWN] of rows."""
        obs = rows["next_obs"]
        x = torch.cat([obs, self.squash(self.targets["actor"](obs))], dim=1)
        kept = self.targets["critic"].activations(x, quantiles.drawn(len(x), self.generator))
        return self.bootstrapped(rows, kept.quantiles.squeeze(2))

    def _learn(self, rows: Mapping[str, torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        critic, target = self.networks["critic"], self.target(rows)
        x = torch.cat([rows["obs"], rows["action"]], dim=1)
        tau = quantiles.drawn(len(x), self.generator)
        kept = critic.activations(x, tau)
        loss, slope = quantiles.huber(kept.quantiles.squeeze(2), tau, target)
        critic.backward(kept, slope.unsqueeze(2) / len(x))
        norms = [self.adams["critic"].step(self.config.lr), self.learn_actor(rows["obs"], "critic")]
        return [loss, kept.quantiles], norms

    def slope_of_actions(self, critic: str, x: torch.Tensor) -> torch.Tensor:
        """Derivatives [k, m] of minus the mean of quantiles at fractions that are drawn, by the actions in x."""
        network = self.networks[critic]
        kept = network.activations(x, self.config.cvar * quantiles.drawn(len(x), self.generator))
        return network.slope_of_actions(kept, torch.full_like(kept.quantiles, -1 / (DRAWN * len(x))))

    torch_threads = staticmethod(quantiles.torch_threads)


config_of = functools.partial(configuration.config_of, ACIQN)
train = functools.partial(training.train, ACIQN)
load = functools.partial(training.load, ACIQN)

if __name__ == "__main__":
    command_line.main("ac_iqn")
