"""Soft actor-critic that never leaves the device (Haarnoja et al., 2018), with twin critics and a learned temperature.

An iteration is that of `parts/continuous.py`; here are the networks, the draw of an action, and the update.

    python -m lockstep.agents.sac pendulum --seed 1 --output runs/pendulum
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from lockstep.agents.parts.continuous import CRITICS, Continuous, ContinuousSettings
from lockstep.agents.parts.mlp import Network
from lockstep.agents.run import checkpoint, command_line, training
from lockstep.agents.run import config as configuration
from lockstep.agents.run.config import setting

LOG_STD = -20.0, 2.0  # what the actor's second outputs are clipped to


@dataclass(frozen=True)
class Config(ContinuousSettings):
    """The settings of a run; with the environment's name it determines every number of it."""

    alpha: float = setting(1.0, "temperature, the weight of the entropy; where it is learned the first one", least=1e-8)
    learn_alpha: bool = setting(True, "let the temperature bring the entropy to minus the number of components")
    density_of_tanh: bool = setting(
        False, "densities as if tanh squashed actions, whatever does, as in some published code"
    )
    eval_samples: bool = setting(
        False, "greedy actions are drawn as well, as in some published code (off: they are the mean's)"
    )
    target_actor: bool = setting(False, "a target network of the actor chooses next actions (off: the actor itself)")


RECIPES = {"solve": Config()}


class SAC(Continuous):
    """A run of soft actor-critic; what it takes and raises `Continuous` says.

    The actor gives mean and log_std of z, and a = squash(z). Of a row of `NStep` with the next action a' and its log p

        y = R + discount * (min of both target critics at a' - alpha log p)

    each critic goes down (Q - y)^2, the actor down alpha log p - min Q of a new a, and ln alpha down
    -alpha (log p + target entropy). log p is that of a in [-1, 1], not of the environment's numbers.
    """

    name = "sac"
    Config = Config
    RECIPES = RECIPES
    FIGURES = ("critic_loss", "q_value", "entropy", "alpha")
    COLUMNS = (*FIGURES, "grad_norm", "epsilon")

    def ready(self) -> None:
        self.squash = dataclasses.replace(self.squash, as_tanh=self.config.density_of_tanh)
        self.log_alpha = torch.full((1,), math.log(self.config.alpha), dtype=torch.float32, device=self.device)
        self.log_alpha_gradient = torch.zeros_like(self.log_alpha)
        self.adam_alpha = self.optimizer(self.log_alpha, self.log_alpha_gradient)
        super().ready()

    def _networks(self, n: int, m: int) -> dict[str, Network]:
        return {"actor": self.network(n, 2 * m, 0), **self.twins(n, m)}

    def _followed(self) -> tuple[str, ...]:
        return (*CRITICS, "actor") if self.config.target_actor else CRITICS

    def _drawn(self, out: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        z, *_ = self._sampled(out, noise)
        return self.squash(z)

    def _greedy(self, out: torch.Tensor) -> torch.Tensor:
        if not self.config.eval_samples:
            return super()._greedy(out)
        return self._drawn(out, self.normal((len(out), self.squash.m), None))

    def _sampled(self, out: torch.Tensor, normal: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """z = mean + spread of standard normal numbers, log_std, and spread, all [N, m]."""
        mean, log_std = out.chunk(2, dim=-1)
        log_std = log_std.clamp(*LOG_STD)
        spread = log_std.exp().mul_(normal)
        return mean + spread, log_std, spread

    def _learn(self, rows: Mapping[str, torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        alpha = self.log_alpha.exp()
        loss, value, norms = self.learn_values(rows, self.target(rows))
        log_prob, norm = self._learn_actor(rows["obs"], alpha)
        entropy = -log_prob.mean()
        if self.config.learn_alpha:
            torch.mul(alpha, self.squash.m + entropy, out=self.log_alpha_gradient)  # target entropy -m
            norms = [*norms, self.adam_alpha.step(self.config.lr)]
        return [loss, value, entropy, alpha], [*norms, norm]

    def target(self, rows: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """y [k, 1] of rows."""
        actor = (self.targets if self.config.target_actor else self.networks)["actor"]
        normal = self.normal((len(rows["next_obs"]), self.squash.m), self.generator)
        z, log_std, _ = self._sampled(actor(rows["next_obs"]), normal)
        x = torch.cat([rows["next_obs"], self.squash(z)], dim=1)
        log_prob = self.squash.log_prob(z, normal, log_std).unsqueeze(1)
        soft = torch.addcmul(self.target_critics(x).amin(0), self.log_alpha.exp(), log_prob, value=-1)
        return self.bootstrapped(rows, soft)

    def _learn_actor(self, obs: torch.Tensor, alpha: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """log p [k] of new actions, and the norm of the actor's gradient."""
        actor, m = self.networks["actor"], self.squash.m
        kept = actor.activations(obs)
        normal = self.normal((len(obs), m), self.generator)
        z, log_std, spread = self._sampled(kept[-1], normal)
        values, kept_of = self.critics.activations(torch.cat([obs, self.squash(z)], dim=1))
        first = values[0] <= values[1]
        lesser = torch.stack([first, ~first]).to(values.dtype)
        of_action = self.critics.slope_of_last(kept_of, lesser * (-1 / len(obs)), m)
        share = alpha / len(obs)
        slope = torch.addcmul(of_action * self.squash.slope(z), share, self.squash.bend(z), value=-1)  # by z
        inside = kept[-1][:, m:] == log_std  # where it was not clipped
        actor.backward(kept, torch.cat([slope, (slope * spread - share) * inside], dim=1))
        return self.squash.log_prob(z, normal, log_std), self.adams["actor"].step(self.config.lr)

    def load_weights(self, state: Mapping) -> None:
        temperature = {"log_alpha": self.log_alpha} if self.config.learn_alpha and "log_alpha" in state else {}
        checkpoint.require_like(state, temperature)
        checkpoint.require_finite(state, temperature)
        super().load_weights(state)
        for name, part in temperature.items():
            part.copy_(state[name])

    def state(self, replay: bool | None = None) -> dict:
        alpha = {name: part.clone() for name, part in self.adam_alpha.state.items()}
        return super().state(replay) | {"log_alpha": self.log_alpha.clone(), "adam_alpha": alpha}

    def load_state(self, state: Mapping) -> None:
        super().load_state(state)
        self.log_alpha.copy_(state["log_alpha"])
        self.adam_alpha.load_state(state["adam_alpha"])


config_of = functools.partial(configuration.config_of, SAC)
train = functools.partial(training.train, SAC)
load = functools.partial(training.load, SAC)

if __name__ == "__main__":
    command_line.main("sac")
