"""Networks, exploration, updates and state of algorithms that learn a Box of actions from a replay."""

import functools
import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn.functional import smooth_l1_loss

from lockstep.agents.run.config import setting

from .critics import Critics
from .distributions import squashed
from .encoder import Encoded, network_of
from .mlp import MLP, Network, seeds
from .module import Greedy
from .n_step import NStep
from .normaliser import applied, load_checked, with_statistics
from .off_policy import OffPolicy, OffPolicySettings, never, whole
from .replay import Replay

CRITICS = ("critic_1", "critic_2")  # of those that take the lesser value of two


@dataclass(frozen=True)
class ContinuousSettings(OffPolicySettings):
    """The settings that these algorithms share."""

    target_every: int = setting(
        1, "environment steps between changes of the target networks, one after each update at most", least=1
    )
    tau: float = setting(0.01, "share of the way that they then go to the networks", least=0, most=1)
    squash: str = setting("tanh", "what brings actions into their bounds", choices=("tanh", "atan"))
    noise_correlation: float = setting(
        0.0, "correlation of the exploring noise from one step to the next (0: white)", least=0, most=0.999
    )


class Continuous(OffPolicy):
    """A run, as `run/algorithm.py` describes one, but for its networks and its update, which a subclass gives.

    An environment is a name of `envs`, or an object as `agents/README.md` describes it, with a `Box` of actions that
    has bounds. Of several agents each one's rows go into one replay, and one network acts for all. Networks know
    actions in [-1, 1].

    Axes: N rows, n components of an observation, m of an action.

    Args:
        environment: a name, or an environment of num_envs environments.
        config: the run; None: the first recipe.
        device: "cpu", "cuda" or "cuda:<index>".

    Attributes:
        networks: what is trained, by name; "actor" is one of them, whose first m outputs are the greedy action before
            it is squashed.
        targets: those of them that a slow copy follows, likewise.
        updates: how many there were.

    Raises:
        ValueError: naming the field, its value and what is allowed.
        MemoryError: the run learns, and its replay does not fit.
    """

    RECIPES: ClassVar[Mapping[str, ContinuousSettings]]
    FIGURES: ClassVar[tuple[str, ...]]  # of an update, as `_learn` gives them
    SHAPES = ("hidden", "encoding", "raw_obs", "norm_obs", "squash")

    @torch.inference_mode(False)  # whose tensors could not be trained
    def __init__(self, environment, config: ContinuousSettings | None = None, device: torch.device | str = "cpu"):
        self.begin(environment, next(iter(self.RECIPES.values())) if config is None else config, device)
        config = self.config
        self.squash = squashed.of(self.env.single_action_space, config.squash)
        n, m, N = self.env.single_observation_space.shape[-1], self.squash.m, self.transitions.N
        self.require_capacity(config.n_step)
        self.window = NStep(config.n_step, config.gamma, N, (n,), (m,), self.device)
        shapes = {"obs": (n,), "next_obs": (n,), "action": (m,), "reward": (), "discount": ()}
        fields = {name: (shape, torch.float32) for name, shape in shapes.items()}
        self.replay = Replay(self.capacity, fields, self.device)
        self.networks = self._networks(n, m)
        self.targets = {name: self.networks[name].copy() for name in self._followed()}
        for network in (*self.networks.values(), *self.targets.values()):
            network.multiply(config.precision)
        self.adams = {
            name: self.optimizer(network.parameters, network.gradient) for name, network in self.networks.items()
        }
        if config.noise_correlation:  # what explores, of the step before the first one
            self._noise = self.normal((N, m), self.generator)
        self.updates = 0
        self.ready()

    # ---- what a subclass gives --------------------------------------------------------------------------------------

    @abstractmethod
    def _networks(self, n: int, m: int) -> dict[str, Network]:
        """The networks that are trained, by name; the actor is one of `network`."""

    @abstractmethod
    def _followed(self) -> tuple[str, ...]:
        """The names of those with a target network."""

    @abstractmethod
    def _drawn(self, out: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Actions in [-1, 1] [N, m] to explore with, of the actor's outputs and standard normal noise [N, m]."""

    @abstractmethod
    def _learn(self, rows: Mapping[str, torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """One update on rows of the replay: tensors whose means are FIGURES, and norms [] of the gradients."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of the ReLU layers of a `network`."""
        return self.config.hidden

    def network(self, inputs: int, outputs: int, number: int, actions: int = 0) -> MLP | Encoded:
        """A network of observations, or of these and actions, whose first numbers depend on seed and number."""
        seed = self.seed_of(number)
        encoder = self.encoder(self.widths[0], seed)
        return network_of(encoder, inputs, self.widths, outputs, self.device, seed, actions)

    def twins(self, n: int, m: int) -> dict[str, MLP | Encoded]:
        """The CRITICS of n components of an observation and m of an action, by name."""
        return {name: self.network(n, 1, number, actions=m) for number, name in enumerate(CRITICS, start=1)}

    @functools.cached_property
    def critics(self) -> Critics:
        """The networks but the actor, where each gives one value."""
        return Critics(self.networks, [name for name in self.networks if name != "actor"])

    @functools.cached_property
    def target_critics(self) -> Critics:
        """The target networks of `critics`."""
        return Critics(self.targets, self.critics.names)

    def seed_of(self, number: int) -> int:
        """The seed of a network's first numbers."""
        return seeds(self.config.seed, number + 1)[number]

    # ---- one iteration ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _rollout(self):
        for step in range(self.config.horizon):
            out, epsilon = self.networks["actor"](self.seen(self.transitions.obs)), self.now["epsilon"][step]
            action = self._explored(out, epsilon, self.generator)
            rows, valid = self.step(self.squash.to_environment(action))
            self.replay.add(*self.window(rows | {"action": action}, self.transitions.ended, valid))

    def _explored(
        self, out: torch.Tensor, epsilon: float | torch.Tensor, generator: torch.Generator | None
    ) -> torch.Tensor:
        """Drawn actions [N, m], each replaced by a uniform one with probability epsilon."""
        action = self._drawn(out, self._exploring(len(out), generator))
        if never(epsilon):
            return action
        given = {"device": self.device, "dtype": torch.float32, "generator": generator}
        explores = torch.rand(len(action), 1, **given) < epsilon
        return torch.where(explores, 2 * torch.rand(action.shape, **given) - 1, action)

    def _exploring(self, rows: int, generator: torch.Generator | None) -> torch.Tensor:
        """Standard normal noise [rows, m]: without a generator, for whom nothing is remembered, of this step alone."""
        noise, correlation = self.normal((rows, self.squash.m), generator), self.config.noise_correlation
        if correlation == 0 or generator is None:
            return noise
        return self._noise.mul_(correlation).add_(noise, alpha=math.sqrt(1 - correlation**2))

    def normal(self, shape: torch.Size, generator: torch.Generator | None) -> torch.Tensor:
        """Standard normal numbers of the generator, or of torch's own."""
        return torch.randn(shape, device=self.device, dtype=torch.float32, generator=generator)

    def _updates(self, count: int):
        """Gradient steps, each on rows of its own."""
        size = self.batch_size
        drawn = self.seen_in(self.replay.sample(count * size, self.generator))
        parts = {name: row.split(size) for name, row in drawn.items()}
        told, norms = [], []
        for number in range(count):
            self.updates += 1
            figures, found = self._learn({name: rows[number] for name, rows in parts.items()})
            if not self._moves_between:
                self._move_targets(self._moves(self.updates - 1, self.updates))
            told.append(figures)
            norms.append(found)
        most = max(map(len, norms))  # of updates with fewer the first one counts again
        even = [norm for found in norms for norm in (*found, *found[:1] * (most - len(found)))]
        largest = torch.stack(even).view(count, most).amax(dim=1)  # NaN if one is
        self._tell([torch.stack(figures).mean() for figures in zip(*told, strict=True)], largest)

    def _followed_by(self) -> list[tuple[Network, Network]]:
        return [(self.networks[name], target) for name, target in self.targets.items()]

    @functools.cached_property
    def every(self) -> float:
        """Updates between changes of the target networks, on average."""
        return max(1, whole(self.config.target_every * self.config.replay_ratio))

    def _counted(self, updates: int) -> tuple[int, int]:
        return self.updates, self.updates + updates

    @property
    def _moves_between(self) -> bool:
        return self.every >= self.chunk

    def _learn_chunk(self) -> None:
        before = self.updates
        super()._learn_chunk()
        self.updates = before + self.chunk  # which no graph counts

    @property
    def uneven(self) -> str:
        if self._moves_between or self.chunk % self.every == 0:
            return ""
        asked = f"target_every={self.config.target_every}, which is {self.every:g} updates,"
        return f"{asked} must divide the {self.chunk} updates that are made together, or be as many or more"

    def learn_values(
        self, rows: Mapping[str, torch.Tensor], target: torch.Tensor, huber: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
        """One step of `critics` towards their targets.

        Args:
            rows: obs [k, n], action [k, m].
            target: [k, 1].
            huber: the smooth L1 loss; otherwise the squared error.

        Returns:
            Losses and values [C, k, 1] of all critics, and norms [] of their gradients.
        """
        values, kept = self.critics.activations(torch.cat([rows["obs"], rows["action"]], dim=1))
        error = values - target
        self.critics.backward(kept, (error.clamp(-1.0, 1.0) if huber else error) * ((1 if huber else 2) / len(target)))
        norms = [self.adams[name].step(self.config.lr) for name in self.critics.names]
        loss = smooth_l1_loss(error, torch.zeros_like(error), reduction="none") if huber else error.square()
        return loss, values, norms

    # ---- what a run says of itself ----------------------------------------------------------------------------------

    @property
    def parameter_count(self) -> int:
        return sum(network.parameters.numel() for network in self.networks.values())

    def _acted(self, rows: torch.Tensor, epsilon: float | None) -> torch.Tensor:
        out = self.networks["actor"](rows)
        action = self._greedy(out) if epsilon is None else self._explored(out, epsilon, None)
        return self.squash.to_environment(action)

    def _greedy(self, out: torch.Tensor) -> torch.Tensor:
        """Actions in [-1, 1] [N, m] without noise, of the actor's outputs."""
        return self.squash.mode(out)

    def module(self) -> Greedy:
        """The greedy policy by itself, as it is now: a module from observations [B, n] to actions, for torch.export."""
        return Greedy(self.networks["actor"].sequential(), self.squash, *applied(self.normaliser))

    # ---- state ------------------------------------------------------------------------------------------------------

    def weights(self) -> dict:
        numbers = {name: network.parameters.clone() for name, network in self.networks.items()}
        return with_statistics(numbers, self.normaliser)

    def load_weights(self, state: Mapping) -> None:
        load_checked(state, self.weights(), self.normaliser)
        for name, network in (*self.networks.items(), *self.targets.items()):
            network.parameters.copy_(state[name])

    def state(self, replay: bool | None = None) -> dict:
        """A copy of all that the future depends on: tensors, numbers and strings."""
        targets = {name: target.parameters.clone() for name, target in self.targets.items()}
        adams = {name: {key: part.clone() for key, part in adam.state.items()} for name, adam in self.adams.items()}
        own = {"updates": self.updates, "window": self.window.state(), "targets": targets, "adams": adams}
        own |= {"noise": self._noise.clone()} if self.config.noise_correlation else {}
        return self.gathered(replay) | self.weights() | own

    def load_state(self, state: Mapping) -> None:
        """Continues, bit for bit, from what `state` gave a run of the same configuration.

        Raises:
            ValueError: the environment has no state, or refuses it.
        """
        self.load_gathered(state)
        self.updates = state["updates"]
        self.window.load_state(state["window"])
        for name, network in self.networks.items():
            network.parameters.copy_(state[name])
            self.adams[name].load_state(state["adams"][name])
        for name, target in self.targets.items():
            target.parameters.copy_(state["targets"][name])
        if self.config.noise_correlation:
            self._noise.copy_(state["noise"])
