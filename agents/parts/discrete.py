"""Exploration, target network and state of algorithms that learn values of Discrete actions from a replay."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from gymnasium.spaces import Discrete
from torch import nn

from lockstep.agents.run.config import setting

from .distributions import Categorical
from .mlp import Network
from .module import Greedy
from .n_step import NStep
from .normaliser import applied, load_checked, with_statistics
from .off_policy import OffPolicy, OffPolicySettings, whole
from .replay import Replay


@dataclass(frozen=True)
class ValueSettings(OffPolicySettings):
    """The settings that these algorithms share."""

    total_steps: int = setting(150_000, "environment steps of the whole run, rounded down to iterations", least=1)
    batch_size: int = setting(64, "transitions of an update, over all processes", least=1)
    target_every: int = setting(64, "environment steps between changes of the target network", least=1)
    tau: float = setting(0.12, "share of the way that it then goes to the network", least=0, most=1)
    anneal_lr: bool = setting(True, "let the learning rate fall linearly to 0")
    epsilon_end: float = setting(0.04, "share of random actions at last", least=0, most=1)
    epsilon_steps: int = setting(15_000, "environment steps over which it falls linearly", least=0)


class Values(OffPolicy):
    """A run, as `run/algorithm.py` describes one, but for its network and its update, which a subclass gives.

    An environment is a name of `envs`, or an object as `agents/README.md` describes it, with `Discrete` actions. Of
    several agents each one's rows go into one replay, and one network acts for all.

    Axes: N rows, n components of an observation, m actions.

    Args:
        environment: a name, or an environment of num_envs environments.
        config: the run; None: the first recipe.
        device: "cpu", "cuda" or "cuda:<index>".

    Attributes:
        actions: m.
        online, target: the network that is trained, and the slow copy that follows it.

    Raises:
        ValueError: naming the field, its value and what is allowed.
        MemoryError: the run learns, and its replay does not fit.
    """

    RECIPES: ClassVar[Mapping[str, ValueSettings]]
    COLUMNS = ("loss", "q_value", "grad_norm", "epsilon")
    SHAPES = ("hidden", "encoding", "raw_obs", "norm_obs")

    @torch.inference_mode(False)  # whose tensors could not be trained
    def __init__(self, environment, config: ValueSettings | None = None, device: torch.device | str = "cpu"):
        self.begin(environment, next(iter(self.RECIPES.values())) if config is None else config, device)
        config = self.config
        space, n = self.env.single_action_space, self.env.single_observation_space.shape[-1]
        if not isinstance(space, Discrete) or space.start:
            raise ValueError(f"no values for action space {space}; it must be Discrete and count its actions from 0")
        self.actions = int(space.n)
        self.online = self._network(n)
        self.target = self.online.copy()
        for network in (self.online, self.target):
            network.multiply(config.precision)
        self.adam = self.optimizer(self.online.parameters, self.online.gradient)
        self.require_capacity(config.n_step)
        self.window = self._window(n)
        fields = {"obs": (n,), "next_obs": (n,), "reward": (), "discount": ()}
        fields = {name: (shape, torch.float32) for name, shape in fields.items()}
        self.replay = self._replay(fields | {"action": ((), torch.int64)})
        self.ready()

    # ---- what a subclass gives --------------------------------------------------------------------------------------

    @abstractmethod
    def _network(self, n: int) -> Network:
        """The network, whose first numbers depend on the seed."""

    @abstractmethod
    def _values(self, obs: torch.Tensor) -> torch.Tensor:
        """The value of each action, [N, m], the largest to be taken, by observations [N, n]."""

    @abstractmethod
    def _module(self) -> nn.Sequential:
        """The network as a module of torch; it may share the network's numbers."""

    def _window(self, n: int) -> NStep:
        """The window that makes returns of steps, of observations [N, n]."""
        return NStep(self.config.n_step, self.config.gamma, self.transitions.N, (n,), (), self.device)

    def _replay(self, fields: Mapping[str, tuple]) -> Replay:
        """The replay of these fields."""
        return Replay(self.capacity, fields, self.device)

    def _drawn(
        self, obs: torch.Tensor, epsilon: float | torch.Tensor, generator: torch.Generator | None
    ) -> torch.Tensor:
        """Actions [N] to explore with, by observations [N, n]."""
        return self._explored(self._values(obs).argmax(dim=1), epsilon, generator)

    # ---- one iteration ----------------------------------------------------------------------------------------------

    @property
    def every(self) -> int:
        """Environment steps between changes of the target network."""
        return self.config.target_every

    @property
    def at_once(self) -> int:
        """No more than there are between two changes, for the target network stands still meanwhile."""
        return min(super().at_once, max(1, math.floor(whole(self.every * self.config.replay_ratio))))

    def _counted(self, updates: int) -> tuple[int, int]:
        return self.env_steps, self.env_steps + self.config.num_envs * self.config.horizon

    def _followed_by(self) -> list[tuple[Network, Network]]:
        return [(self.online, self.target)]

    def scheduled(self) -> dict[str, list[float]]:
        """Epsilon of each step, and the learning rate of the next iteration's updates."""
        share = 1 - self.iteration / self.iterations if self.config.anneal_lr else 1.0
        return super().scheduled() | {"lr": [self.config.lr * max(0.0, share)]}

    @property
    def lr(self) -> float | torch.Tensor:
        """The learning rate of this iteration's updates."""
        rate = self.now["lr"][0]
        return rate.float() if isinstance(rate, torch.Tensor) else rate

    @torch.no_grad()
    def _rollout(self):
        for step in range(self.config.horizon):
            action = self._drawn(self.seen(self.transitions.obs), self.now["epsilon"][step], self.generator)
            rows, valid = self.step(action)
            rows, leaves = self.window(rows, self.transitions.ended, valid)
            self.replay.add(rows | {"action": rows["action"].long()}, leaves)

    def _explored(
        self, action: torch.Tensor, epsilon: float | torch.Tensor, generator: torch.Generator | None
    ) -> torch.Tensor:
        """The actions [N], each replaced by a uniform one with probability epsilon."""
        given = {"device": self.device, "generator": generator}
        explores = torch.rand(action.shape, dtype=torch.float32, **given) < epsilon
        return torch.where(explores, torch.randint(self.actions, action.shape, **given), action)

    # ---- what a run says of itself ----------------------------------------------------------------------------------

    @property
    def parameter_count(self) -> int:
        return self.online.parameters.numel()

    def _acted(self, rows: torch.Tensor, epsilon: float | None) -> torch.Tensor:
        return self._values(rows).argmax(dim=1) if epsilon is None else self._drawn(rows, epsilon, None)

    def module(self) -> Greedy:
        """The greedy policy by itself, as it is now: a module from observations [B, n] to actions, for torch.export."""
        return Greedy(self._module(), Categorical(self.actions), *applied(self.normaliser))

    # ---- state ------------------------------------------------------------------------------------------------------

    def weights(self) -> dict:
        return with_statistics({"parameters": self.online.parameters.clone()}, self.normaliser)

    def load_weights(self, state: Mapping) -> None:
        load_checked(state, self.weights(), self.normaliser)
        for network in (self.online, self.target):
            network.parameters.copy_(state["parameters"])

    def state(self, replay: bool | None = None) -> dict:
        """A copy of all that the future depends on: tensors, numbers and strings."""
        adam = {name: part.clone() for name, part in self.adam.state.items()}
        own = {"window": self.window.state(), "target": self.target.parameters.clone(), "adam": adam}
        return self.gathered(replay) | self.weights() | own

    def load_state(self, state: Mapping) -> None:
        """Continues, bit for bit, from what `state` gave a run of the same configuration.

        Raises:
            ValueError: the environment has no state, or refuses it.
        """
        self.load_gathered(state)
        self.window.load_state(state["window"])
        self.online.parameters.copy_(state["parameters"])
        self.target.parameters.copy_(state["target"])
        self.adam.load_state(state["adam"])
