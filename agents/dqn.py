"""Deep Q-learning that never leaves the device (Mnih et al., 2015; double DQN: van Hasselt et al., 2016).

An iteration is that of `parts/discrete.py`; here are the network and the update.

    python -m lockstep.agents.dqn cartpole --seed 1 --output runs/cartpole
"""

import functools
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import smooth_l1_loss

from lockstep.agents.parts.discrete import Values, ValueSettings
from lockstep.agents.parts.encoder import Encoded, network_of
from lockstep.agents.parts.mlp import MLP
from lockstep.agents.run import command_line, training
from lockstep.agents.run import config as configuration
from lockstep.agents.run.config import setting


@dataclass(frozen=True)
class Config(ValueSettings):
    """The settings of a run; with the environment's name it determines every number of it."""

    double: bool = setting(True, "the network chooses the next action that the target network values")


RECIPES = {"solve": Config()}


class DQN(Values):
    """A run of DQN; what it takes and raises `Values` says."""

    name = "dqn"
    Config = Config
    RECIPES = RECIPES

    def _network(self, n: int) -> MLP | Encoded:
        hidden, seed = self.config.hidden, self.config.seed
        return network_of(self.encoder(hidden[0], seed), n, hidden, self.actions, self.device, seed)

    def _values(self, obs: torch.Tensor) -> torch.Tensor:
        return self.online(obs)

    def _module(self) -> nn.Sequential:
        return self.online.sequential()

    def _updates(self, count: int):
        """Gradient steps, each on transitions of its own; meanwhile the target network stands still."""
        config, k = self.config, self.batch_size
        rows = self.seen_in(self.replay.sample(count * k, self.generator))
        targets = self.bootstrapped(rows, self.target(rows["next_obs"]))  # [count * k, m], of each next action
        obs, action, targets = (x.unflatten(0, (count, k)) for x in (rows["obs"], rows["action"].unsqueeze(1), targets))
        if config.double:
            obs = torch.cat([obs, rows["next_obs"].view_as(obs)], dim=1)
        else:
            targets = targets.amax(dim=2, keepdim=True)
        values, errors, norms = [], [], []
        shares = (action == torch.arange(self.actions, device=self.device)).float() / k  # [count, k, m], in the loss
        for x, taken, share, target in zip(obs, action, shares, targets, strict=True):
            kept = self.online.activations(x)
            if config.double:
                target = target.gather(1, kept[-1][k:].argmax(dim=1, keepdim=True))
            value = kept[-1][:k].gather(1, taken)
            error = value - target
            self.online.backward(kept, error.clamp(-1.0, 1.0) * share)  # the derivative of the Huber loss
            values.append(value)
            errors.append(error)
            norms.append(self.adam.step(self.lr))
        errors = torch.stack(errors)
        loss = smooth_l1_loss(errors, torch.zeros_like(errors))
        self._tell([loss, torch.stack(values).mean()], torch.stack(norms))


config_of = functools.partial(configuration.config_of, DQN)
train = functools.partial(training.train, DQN)
load = functools.partial(training.load, DQN)

if __name__ == "__main__":
    command_line.main("dqn")
