"""Exploration and actor step of deterministic policy gradients (Silver et al., 2014)."""

from dataclasses import dataclass

import torch

from lockstep.agents.run.config import setting

from .continuous import Continuous, ContinuousSettings


@dataclass(frozen=True)
class DeterministicSettings(ContinuousSettings):
    """The settings that these algorithms share."""

    noise: float = setting(0.1, "standard deviation of exploring actions, where those lie in [-1, 1]", least=0)


class Deterministic(Continuous):
    """An actor whose outputs, squashed, are the action; it explores with normal noise."""

    def _drawn(self, out: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return (self.squash(out) + self.config.noise * noise).clamp_(-1.0, 1.0)

    def learn_actor(self, obs: torch.Tensor, critic: str) -> torch.Tensor:
        """One step up the value of the actor's actions at observations [k, n]; the norm of the actor's gradient []."""
        actor = self.networks["actor"]
        kept = actor.activations(obs)
        of_action = self.slope_of_actions(critic, torch.cat([obs, self.squash(kept[-1])], dim=1))
        actor.backward(kept, of_action * self.squash.slope(kept[-1]))
        return self.adams["actor"].step(self.config.lr)

    def slope_of_actions(self, critic: str, x: torch.Tensor) -> torch.Tensor:
        """Derivatives [k, m] of minus the mean value, by the actions in x [k, n + m]."""
        network = self.networks[critic]
        kept = network.activations(x)
        return network.slope_of_last(kept, torch.full_like(kept[-1], -1 / len(x)), self.squash.m)
