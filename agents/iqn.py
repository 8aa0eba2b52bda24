"""Implicit quantile networks that never leave the device (Dabney et al., 2018).

An iteration is that of `parts/discrete.py`; here are the network, the update, and how much risk an action takes.

    python -m lockstep.agents.iqn cartpole --seed 1 --output runs/cartpole
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from lockstep.agents.parts import quantiles
from lockstep.agents.parts.discrete import Values, ValueSettings
from lockstep.agents.parts.encoder import ENCODINGS
from lockstep.agents.parts.quantiles import DRAWN, Batches, QuantileNetwork
from lockstep.agents.run import command_line, observation, training
from lockstep.agents.run import config as configuration
from lockstep.agents.run.config import setting
from lockstep.agents.run.observation import Part


@dataclass(frozen=True)
class Config(ValueSettings):
    """The settings of a run; with the environment's name it determines every number of it."""

    features: int = setting(256, "width of the first ReLU layer, of observations and of fractions", least=1)
    hidden: tuple[int, ...] = setting((128, 128), "widths of the ReLU layers after these two", least=1)
    encoding: str = setting(
        "flat",
        "the first layer: of all numbers of an observation, of each object of a part alike, of each part, or of each "
        "part without ReLU",
        choices=(*ENCODINGS, "linear"),
    )
    cvar: float = setting(
        1.0, "share of the worst returns whose mean chooses actions, the conditional value at risk", least=1e-6, most=1
    )
    cvar_gap: float = setting(
        0.0,
        "gap to the nearest object from which on cvar is 1; it falls with the gap, to 0.01 (0: it is fixed)",
        least=0,
    )
    max_per_quantile: bool = setting(
        False, "a target is the largest of all actions' quantiles (off: the quantiles of the action with the best mean)"
    )


RECIPES = {"solve": Config()}


class Cautious(nn.Module):
    """Fractions [k, q] of observations [k, n], those of a share of the worst returns, the smaller the nearer an object.

    Args:
        parts: what an observation is made of.
        gap: from which on the share is 1; it falls with the gap, to 0.01.
        fractions: [q], of the share 1.
    """

    LEAST = 0.01

    def __init__(self, parts: Sequence[Part], gap: float, fractions: torch.Tensor):
        super().__init__()
        self.parts, self.gap = parts, gap
        self.register_buffer("fractions", fractions)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        share = (observation.gap(self.parts, obs) / self.gap).clamp(self.LEAST, 1.0)
        return share.unsqueeze(1) * self.fractions


class IQN(Values):
    """A run of IQN; what it takes and raises `Values` says.

    Its network gives, for a fraction tau, that quantile of each action's return. An update draws 8 fractions tau for
    each row, whose R and discount are those of `NStep`, and 8 others tau'. With a' the action whose quantiles at tau'
    have the largest mean

        y_j = R + discount * the target network's quantile of a' at tau'_j

    the network goes down the quantile Huber loss of its 8 quantiles and these targets. An action is chosen by the mean
    of 32 quantiles, at the midpoints of equal parts of (0, cvar) instead of at random, so that equal observations have
    equal actions. cvar and cvar_gap count for that alone: they can be others in a run that takes the weights.
    """

    name = "iqn"
    Config = Config
    RECIPES = RECIPES
    SHAPES = ("hidden", "features", "encoding", "raw_obs", "norm_obs")

    def ready(self) -> None:
        cvar, gap = self.config.cvar, self.config.cvar_gap
        self._fractions = quantiles.fractions(cvar, self.device)
        if gap:
            parts = observation.parts_of(self.env)
            if cvar != 1 or all(part.apart is None for part in parts):
                raise ValueError(
                    f"cvar_gap={gap} needs cvar=1, not {cvar}, and an environment that says how far objects are "
                    "(agents/README.md)"
                )
            if self.normaliser is not None:
                raise ValueError(f"cvar_gap={gap} needs norm_obs=False: gaps are told by observations as they are")
            self._fractions = Cautious(parts, gap, self._fractions)
        self._of_online = self._of_target = None
        if self.adam.average is None and self.online.compiled(self.batch_size):
            self._of_online, self._of_target = (Batches(own, self.batch_size) for own in (self.online, self.target))
        super().ready()

    def _network(self, n: int) -> QuantileNetwork:
        config = self.config
        sizes = n, self.actions, config.features, config.hidden
        encoder, rectified = self.encoder(config.features, config.seed), config.encoding != "linear"
        return QuantileNetwork(*sizes, self.device, config.seed, encoder=encoder, rectified=rectified)

    def _values(self, obs: torch.Tensor) -> torch.Tensor:
        return self.online(obs, self._fractions(obs) if self.config.cvar_gap else self._fractions)

    def _module(self) -> nn.Sequential:
        return self.online.sequential(self._fractions)

    def _updates(self, count: int):
        """Gradient steps, each on transitions of its own; meanwhile the target network stands still."""
        k = self.batch_size
        rows = self.seen_in(self.replay.sample(count * k, self.generator))
        targets, tau = self._targets(rows), quantiles.drawn(count * k, self.generator)
        given = rows["obs"], rows["action"], tau, targets
        if self._of_online:
            losses, values, norms = self._of_online.descend(self.adam, self.lr, *given)
        else:
            losses, values, norms = self._descend(*given)
        self._tell([losses.mean(), values.mean()], norms)

    def _descend(self, obs: torch.Tensor, action: torch.Tensor, tau: torch.Tensor, target: torch.Tensor):
        """`Batches.descend` layer by layer."""
        k, taken = self.batch_size, action.view(-1, 1, 1)
        chosen = (taken == torch.arange(self.actions, device=self.device)).float() / k  # [N, 1, m], in the loss
        parts, told = (obs, taken.expand(-1, DRAWN, -1), chosen, tau, target), []
        for rows, which, share, fractions, wanted in zip(*(part.split(k) for part in parts), strict=True):
            kept = self.online.activations(rows, fractions)
            predicted = kept.quantiles.gather(2, which).squeeze(2)
            loss, slope = quantiles.huber(predicted, fractions, wanted)
            self.online.backward(kept, slope.unsqueeze(2) * share)
            told.append(torch.stack([loss.mean(), predicted.mean(), self.adam.step(self.lr)]))
        return torch.stack(told, dim=1)

    def _targets(self, rows: dict[str, torch.Tensor]) -> torch.Tensor:
        """y [N, DRAWN] of rows of the replay."""
        tau = quantiles.drawn(len(rows["reward"]), self.generator)
        obs = rows["next_obs"]  # quantiles are [N, DRAWN, m]
        found = self._of_target.quantiles(obs, tau) if self._of_target else self.target.activations(obs, tau).quantiles
        if self.config.max_per_quantile:
            best = found.amax(dim=2)
        else:
            action = found.mean(dim=1, keepdim=True).argmax(dim=2, keepdim=True)
            best = found.gather(2, action.expand(-1, DRAWN, -1)).squeeze(2)
        return self.bootstrapped(rows, best)

    torch_threads = staticmethod(quantiles.torch_threads)


config_of = functools.partial(configuration.config_of, IQN)
train = functools.partial(training.train, IQN)
load = functools.partial(training.load, IQN)

if __name__ == "__main__":
    command_line.main("iqn")
