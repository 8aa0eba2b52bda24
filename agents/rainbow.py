"""Rainbow that never leaves the device (Hessel et al., 2018): deep Q-learning of whole distributions of returns.

A distribution has a probability for each of some fixed returns, its atoms (Bellemare et al., 2017). With that come
double Q-learning (van Hasselt et al., 2016), the streams and the noise of `parts/duelling.py`, returns of several
steps, and a prioritised replay. An iteration is that of `parts/discrete.py`.

    python -m lockstep.agents.rainbow cartpole --seed 1 --output runs/cartpole

Axes: N or k rows, n components of an observation, m actions, z atoms.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from lockstep.agents.parts.discrete import Values, ValueSettings
from lockstep.agents.parts.duelling import NoisyDuelling
from lockstep.agents.parts.n_step import NStep, OneSequence
from lockstep.agents.parts.off_policy import never
from lockstep.agents.parts.prioritised import PrioritisedReplay
from lockstep.agents.run import command_line, contract, training
from lockstep.agents.run import config as configuration
from lockstep.agents.run.config import setting


@dataclass(frozen=True)
class Config(ValueSettings):
    """The settings of a run; with the environment's name it determines every number of it."""

    total_steps: int = setting(100_000, "environment steps of the whole run, rounded down to iterations", least=1)
    target_every: int = setting(512, "environment steps between changes of the target network", least=1)
    tau: float = setting(1.0, "share of the way that it then goes to the network", least=0, most=1)
    epsilon_end: float = setting(0.0, "share of random actions at last", least=0, most=1)
    epsilon_steps: int = setting(2_048, "environment steps over which it falls linearly", least=0)
    n_step: int = setting(3, "steps whose rewards a target adds up, fewer at an episode's end", least=1)
    alpha: float = setting(0.5, "exponent of a loss in the priority of its row", least=0, most=1)
    beta: float = setting(0.4, "exponent of importance weights at first", least=0, most=1)
    anneal_beta: bool = setting(True, "let that exponent rise linearly to 1")
    redraw: bool = setting(True, "draw the network's noise anew for every step and update (off: the same each time)")
    mixed_streams: bool = setting(
        False, "returns of several steps are of all agents in turn, as in some published code (off: of each by itself)"
    )
    encoder: int = setting(64, "width of the ReLU layer that both streams begin with", least=1)
    hidden: tuple[int, ...] = setting((64,), "widths of each stream's noisy ReLU layers", least=1)
    sigma: float = setting(0.05, "noise at first: its scale is this over the square root of a layer's inputs", least=0)
    atoms: int = setting(51, "returns that a distribution has probabilities of", least=2)
    v_min: float = setting(-100.0, "the least of them; what is less counts as this")
    v_max: float = setting(100.0, "the largest of them; what is more counts as this")

    def __post_init__(self):
        super().__post_init__()
        if self.v_min >= self.v_max:
            raise ValueError(f"v_min={self.v_min} must be less than v_max={self.v_max}")


RECIPES = {"solve": Config()}


def projected(
    probability: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor, v_min: float, v_max: float
) -> torch.Tensor:
    """Distributions [k, z] over the atoms, of reward + discount * a return that has distributions [k, z] over them.

    What lies between two atoms goes to both, the more the nearer, and what lies beyond all to the last. All pairs of
    atoms are looked at, so that sums have one order on every device.

    Args:
        reward, discount: [k]; where the discount is 0, probabilities may be anything.
    """
    z = probability.shape[1]
    width = (v_max - v_min) / (z - 1)
    atom = torch.arange(z, dtype=probability.dtype, device=probability.device)
    reward, discount = reward.unsqueeze(1), discount.unsqueeze(1)
    place = (reward + discount * (v_min + width * atom)).clamp(v_min, v_max).sub(v_min).div(width)  # counted in atoms
    share = (1 - (place.unsqueeze(1) - atom.unsqueeze(1)).abs()).clamp(min=0)  # [k, z, z], to an atom from another
    return torch.bmm(share, torch.where(discount > 0, probability, 1 / z).unsqueeze(2)).squeeze(2)


class Rainbow(Values):
    """A run of Rainbow; what it takes and raises `Values` says.

    There is new noise for every step of all environments and for every update; greedy actions are without. The rows of
    a `chunk` of updates are drawn together, and get their new priorities together.
    """

    name = "rainbow"
    Config = Config
    RECIPES = RECIPES
    SHAPES = ("encoder", "hidden", "encoding", "raw_obs", "norm_obs", "atoms", "v_min", "v_max")

    def ready(self) -> None:
        config = self.config
        numbers = {"dtype": torch.float32, "device": self.device}
        self.support = torch.linspace(config.v_min, config.v_max, config.atoms, **numbers)
        self._always = self.online.normal(torch.Generator(self.device).manual_seed(config.seed))
        super().ready()

    def _network(self, n: int) -> NoisyDuelling:
        config = self.config
        encoder = self.encoder(config.encoder, config.seed) or config.encoder
        sizes = n, self.actions, config.atoms, encoder, config.hidden
        return NoisyDuelling(*sizes, config.sigma, self.device, config.seed)

    def _values(self, obs: torch.Tensor) -> torch.Tensor:
        self.online.remove_noise()
        return self._means(self.online(obs))

    def _means(self, logits: torch.Tensor) -> torch.Tensor:
        """Expected returns [...] of distributions with logits [..., z]."""
        return logits.softmax(dim=-1) @ self.support

    def _module(self) -> nn.Sequential:
        self.online.remove_noise()
        return self.online.sequential(self.support)

    # ---- one iteration ----------------------------------------------------------------------------------------------

    def scheduled(self) -> dict[str, list[float]]:
        """Numbers of `Values`, and the exponent beta of importance weights."""
        risen = self.iteration / self.iterations if self.config.anneal_beta else 0.0
        return super().scheduled() | {"beta": [self.config.beta + (1 - self.config.beta) * risen]}

    def _window(self, n: int) -> NStep:
        if not self.config.mixed_streams:
            return super()._window(n)
        agents = contract.agents_of(self.env) or 1
        return OneSequence(self.config.n_step, self.config.gamma, self.env.num_envs, agents, (n,), (), self.device)

    def _replay(self, fields: Mapping[str, tuple]) -> PrioritisedReplay:
        return PrioritisedReplay(self.capacity, fields, self.device, self.config.alpha)

    def _drawn(
        self, obs: torch.Tensor, epsilon: float | torch.Tensor, generator: torch.Generator | None
    ) -> torch.Tensor:
        self._draw(generator)
        action = self._means(self.online(obs)).argmax(dim=1)
        return action if never(epsilon) else self._explored(action, epsilon, generator)

    def _draw(self, generator: torch.Generator | None) -> None:
        """Takes noise of the network into use, new or that of its seed."""
        self.online.set_noise(self.online.normal(generator) if self.config.redraw else self._always)

    def _updates(self, count: int):
        """Gradient steps, each on rows of its own; meanwhile the target network stands still."""
        size = self.batch_size
        drawn, places, weights = self.replay.draw(count, size, self.now["beta"][0], self.generator)
        parts = {name: row.split(size) for name, row in self.seen_in(drawn).items()}
        found = (
            self._learn({name: rows[number] for name, rows in parts.items()}, weight)
            for number, weight in enumerate(weights)
        )
        losses, values, norms = map(torch.stack, zip(*found, strict=True))
        self.replay.update_priorities(places, losses.flatten())
        self._tell([(weights * losses).mean(), values.mean()], norms)

    def _learn(self, rows: Mapping[str, torch.Tensor], weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """One update on rows with weights [k]: cross entropies [k], mean value and norm of the gradient []."""
        k = len(weight)
        self._draw(self.generator)
        kept = self.online.activations(torch.cat([rows["obs"], rows["next_obs"]]))
        logits, following = self.online.combined(kept).split(k)
        target = self._target(rows, self._means(following).argmax(dim=1))
        log_p = self._of(logits, rows["action"]).log_softmax(dim=1)
        p = log_p.exp()
        slope = (p - target) * (weight / k).unsqueeze(1)  # of the weighted mean, by the logits of actions taken
        taken = rows["action"].unsqueeze(1) == torch.arange(self.actions, dtype=torch.int64, device=self.device)
        self.online.backward(kept, taken.unsqueeze(2) * slope.unsqueeze(1))
        return -(target * log_p).sum(dim=1), (p @ self.support).mean(), self.adam.step(self.lr)

    def _target(self, rows: Mapping[str, torch.Tensor], action: torch.Tensor) -> torch.Tensor:
        """Distributions [k, z] that rows are to get: of next actions [k], by new noise of the target network."""
        self.target.sample_noise(self.generator)
        following = self._of(self.target(rows["next_obs"]), action).softmax(dim=1)
        return projected(following, rows["reward"], rows["discount"], self.config.v_min, self.config.v_max)

    def _of(self, logits: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """The logits [k, z] of actions [k] among those of all [k, m, z]."""
        return logits.gather(1, action.view(-1, 1, 1).expand(-1, 1, self.config.atoms)).squeeze(1)


config_of = functools.partial(configuration.config_of, Rainbow)
train = functools.partial(training.train, Rainbow)
load = functools.partial(training.load, Rainbow)

if __name__ == "__main__":
    command_line.main("rainbow")
