"""Advantage actor-critic that never leaves the device (Mnih et al., 2016), with all environments in step.

One iteration is T steps of B environments, their advantages, and one gradient step on all of them.

    python -m lockstep.agents.a2c cartpole --seed 1 --output runs/cartpole
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from lockstep import envs
from lockstep.agents.parts import distributions, graphs
from lockstep.agents.parts.actor_critic import ActorCritic
from lockstep.agents.parts.adam import Adam, within
from lockstep.agents.parts.gae import GAE
from lockstep.agents.parts.normaliser import Normaliser
from lockstep.agents.parts.on_policy import OnPolicy
from lockstep.agents.parts.rmsprop import RMSprop
from lockstep.agents.parts.rollout_buffer import RolloutBuffer, wide
from lockstep.agents.run import command_line, contract, log, training
from lockstep.agents.run import config as configuration
from lockstep.agents.run.config import Settings, require_iteration, setting
from lockstep.agents.run.environment import of_run
from lockstep.agents.run.ranks import Ranks

OPTIMIZERS = {"rmsprop": RMSprop, "adam": Adam}
EPSILON = 1e-5  # added to the root of a mean square


@dataclass(frozen=True)
class Config(Settings):
    """The settings of a run; with the environment's name it determines every number of it."""

    num_envs: int = setting(64, "B, environments", least=1)
    horizon: int = setting(16, "T, steps of each environment per iteration", least=1)
    lr: float = setting(1e-3, "learning rate", least=0)
    critic_lr: float | None = setting(None, "learning rate of the critic; None: the same", least=0)
    anneal_lr: bool = setting(True, "let learning rates fall linearly to 0")
    optimizer: str = setting("rmsprop", "what makes a step of a gradient", choices=tuple(OPTIMIZERS))
    gamma: float = setting(0.99, "discount", least=0, most=1)
    gae_lambda: float = setting(1.0, "lambda of advantages; 1: of returns of all steps to the last", least=0, most=1)
    norm_adv: bool = setting(False, "normalise the advantages of an iteration")
    ent_coef: float = setting(0.0, "weight of the entropy", least=0)
    vf_coef: float = setting(0.5, "weight of the value loss", least=0)
    max_grad_norm: float = setting(0.5, "limit of the gradient's norm", least=0)
    norm_obs: bool = setting(False, "normalise observations by their running mean and variance")
    reward_scale: float = setting(1.0, "factor on every reward")
    hidden: tuple[int, ...] = setting((64, 64), "widths of the tanh layers", least=1)
    log_std: float = setting(0.0, "first logarithm of a continuous action's standard deviation")
    squash: str = setting(
        "clip", "what brings the numbers of a Gaussian into the bounds of a Box", choices=distributions.SQUASHES
    )
    graph: str = setting("auto", "CUDA graphs", choices=graphs.CHOICES)

    def __post_init__(self):
        super().__post_init__()
        require_iteration(self)


RECIPES = {"solve": Config()}


class A2C(OnPolicy):
    """A run, as `run/algorithm.py` describes one: `iterate` until `iteration == iterations`.

    Of each row with the advantage A and the target A + V(obs), neither of which has a gradient, the loss is

        -A log p(action) + vf_coef / 2 (V(obs) - target)^2 - ent_coef * entropy

    An environment is a name of `envs`, or an object as `agents/README.md` describes it. Of several agents one policy
    acts for each.

    Args:
        environment: a name, or an environment of num_envs environments.
        config: the run.
        device: "cpu", "cuda" or "cuda:<index>".

    Raises:
        ValueError: naming the field, its value and what is allowed.
        MemoryError: an iteration's rows do not fit.
    """

    name = "a2c"
    Config = Config
    RECIPES = RECIPES
    FIGURES = ("policy_loss", "value_loss", "entropy", "grad_norm")
    COLUMNS = (*FIGURES, "explained_variance", "lr")
    SHAPES = ("hidden", "squash")

    @torch.inference_mode(False)  # whose tensors could not be trained
    def __init__(self, environment, config: Config = RECIPES["solve"], device: torch.device | str = "cpu"):
        if not isinstance(config, Config):
            raise ValueError(f"config must be an a2c.Config, as a2c.config_of makes it, not a {type(config).__name__}")
        self.config, self.ranks = config, Ranks(device)
        self.device = self.ranks.device
        if self.ranks.size > 1:
            raise ValueError(f"A2C trains in one process, not in {self.ranks.size}")
        threads = config.threads or torch.get_num_threads()
        options = {"threads": threads, "seed": config.seed, "named": config.options}
        self.env = of_run(environment, config.num_envs, self.device, **options)
        space, n = self.env.single_action_space, self.env.single_observation_space.shape[-1]
        contract.require_all_used(self.env)
        self.distribution = distributions.of(space, config.squash)
        shape = self.distribution.outputs, self.distribution.free, config.hidden
        self.networks = ActorCritic(n, *shape, seeds=(config.seed,), log_std=config.log_std, device=self.device)
        self.normaliser = Normaliser(n, device=self.device) if config.norm_obs else None
        port = isinstance(self.env, envs.BatchedEnv) and self.env.dtype == "float32"
        port = port and self.env.lanes == self.env.actions.numbers == 1 and self.normaliser is None
        port = port and self.distribution.in_kernels and self.networks.in_kernels
        self._portable = port and self.env.carries(config.hidden[0])
        self.rollout = RolloutBuffer(
            self.env,
            self.networks,
            self.distribution,
            (config.seed,),
            horizon=config.horizon,
            in_kernel=self._portable,
            normaliser=self.normaliser,
            threads=threads,
        )
        self.gae = GAE((config.horizon, self.rollout.N), config.gamma, config.gae_lambda, self.device, threads)
        (parameters,) = self.networks.parameters
        self.gradient = torch.zeros_like(parameters)
        make = OPTIMIZERS[config.optimizer]
        self.optimizers = {"optimizer": make(parameters, self.gradient, config.max_grad_norm, EPSILON)}
        if config.critic_lr is not None:
            at = self.networks.critic_at  # `_step` limits the norm of both together
            self.optimizers = {
                "optimizer": make(parameters[:at], self.gradient[:at], math.inf, EPSILON),
                "critic_optimizer": make(parameters[at:], self.gradient[at:], math.inf, EPSILON),
            }
        weights = [1.0, config.vf_coef, -config.ent_coef]
        self._weights = torch.tensor(weights, dtype=torch.float32, device=self.device)  # of `losses`
        # Over updates: FIGURES, their number, and that of gradients that are not finite.
        self._sums = torch.zeros(len(self.FIGURES) + 2, dtype=torch.float64, device=self.device)
        self.iterations = config.total_steps // (config.num_envs * config.horizon)
        self.iteration = 0
        self._episodes()  # forgets those before the run
        self.phases = {"rollout": self._rollout, "advantage": self._advantage, "update": self._update}
        self._rates: torch.Tensor | None = None  # where a captured update reads `rates`
        if graphs.wanted(config.graph, self.device, self.ranks.size, self.env):
            self._rates = torch.zeros(len(self.optimizers), dtype=torch.float32, device=self.device)
            self._capture()

    # ---- one iteration ----------------------------------------------------------------------------------------------

    def _capture(self) -> None:
        super()._capture()
        self._sums.zero_()

    def iterate(self) -> None:
        if self._rates is not None:
            for place, rate in zip(self._rates, self.rates, strict=True):
                place.fill_(rate)
        super().iterate()

    @property
    def rates(self) -> list[float]:
        """The learning rate of this iteration's update, and the critic's where it has one of its own."""
        share = 1 - self.iteration / self.iterations if self.config.anneal_lr else 1.0
        return [rate * max(0.0, share) for rate in (self.config.lr, self.config.critic_lr) if rate is not None]

    @torch.no_grad()
    def _rollout(self):
        self.rollout.collect()
        if self.config.reward_scale != 1:
            self.rollout.rows["reward"].mul_(self.config.reward_scale)

    @torch.no_grad()
    def _advantage(self):
        rows = self.rollout.rows
        flags = rows["terminated"], rows["truncated"]
        self.gae.compute(rows["reward"], rows["value"], rows["bootstrap"], *flags, self.rollout.active)

    def _update(self):
        losses = self.losses(self.rollout.batch(), self.gae.advantage.flatten(), self.gae.target.flatten())
        found = torch.autograd.grad(losses @ self._weights, list(self.networks.leaves.values()))
        parts = dict(zip(self.networks.leaves, found, strict=True))
        with torch.no_grad():
            self.gradient.copy_(self.networks.flat(parts)[0])
            norm = self._step(self.rates if self._rates is None else self._rates.unbind())
            bad = (norm < math.inf).logical_not().float()
            self._sums += torch.cat([losses, torch.stack([norm, torch.ones_like(norm), bad])])
            if self.normaliser is not None:
                self.normaliser.update(self.rollout.rows["obs"][: self.config.horizon], self.rollout.active)

    def _step(self, rates: Sequence[float | torch.Tensor]) -> torch.Tensor:
        """One step of the optimisers with their learning rates; the norm of the whole gradient []."""
        if len(rates) == 1:
            return self.optimizers["optimizer"].step(rates[0])
        norm = torch.linalg.vector_norm(self.gradient)
        share = within(norm, self.config.max_grad_norm)
        self.gradient.mul_(torch.where(norm < math.inf, share, math.nan))  # if one has no step, neither has the other
        for optimizer, rate in zip(self.optimizers.values(), rates, strict=True):
            optimizer.step(rate)
        return norm

    def losses(self, batch: Mapping[str, torch.Tensor], advantage: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Means over rows of the policy's loss, of half the squared error of the value, and of the entropy: [3].

        Args:
            batch: obs [N, n], action [N, ...], and there may be mask [N, masks] of allowed actions and valid [N], rows
                that count.
            advantage, target: [N], 0 in rows that do not count.
        """
        counted = batch.get("valid", torch.ones_like(advantage, dtype=torch.bool))
        count = counted.sum().clamp(min=1)
        if self.config.norm_adv:
            apart = torch.where(counted, advantage - advantage.sum() / count, 0.0)
            advantage = apart / ((apart.square().sum() / (count - 1).clamp(min=1)).sqrt() + 1e-8)
        out, value = (found[0] for found in self.networks(batch["obs"].unsqueeze(0)))
        action, free = wide(batch["action"]), self.networks.leaves.get("free")
        log_prob, entropy = self.distribution.log_prob_entropy(out, free, action, batch.get("mask"))
        terms = torch.stack([-advantage * log_prob, 0.5 * (value - target).square(), entropy])
        return torch.where(counted, terms, 0.0).sum(dim=1) / count

    # ---- what a run says of itself ----------------------------------------------------------------------------------

    def statistics(self) -> dict[str, float]:
        """Episodes and COLUMNS since the last call, FIGURES as means over iterations; waits for the device.

        Raises:
            FloatingPointError: a gradient was not finite.
        """
        episodes = self._episodes()
        told = [episodes[name].double().view(1) for name in contract.STATISTICS]
        told += [self._sums[:-2] / self._sums[-2], self._explained_variance().double().view(1), self._sums[-2:]]
        *told, updates, bad = torch.cat(told).tolist()
        self._sums.zero_()
        log.require_finite(self.iteration - 1, updates, bad)
        return dict(zip((*log.OF_EPISODES, *self.COLUMNS), (*told, self.rates[0]), strict=True))

    # ---- state ------------------------------------------------------------------------------------------------------

    def state(self) -> dict:
        """A copy of all that the future depends on: tensors, numbers and strings."""
        state = {
            key: {name: part.clone() for name, part in optimizer.state.items()}
            for key, optimizer in self.optimizers.items()
        }
        state |= {"iteration": self.iteration, "rollout": self.rollout.state()} | self.weights()
        return state | ({"environment": self.env.state()} if hasattr(self.env, "state") else {})

    def load_state(self, state: Mapping) -> None:
        """Continues, bit for bit, from what `state` gave a run of the same configuration.

        Raises:
            ValueError: the environment has no state, or refuses it.
        """
        if "environment" not in state:
            raise ValueError(f"{type(self.env).__name__} has no state() and set_state(), so a run cannot be continued")
        self.env.set_state(state["environment"])
        self.load_weights(state)
        for key, optimizer in self.optimizers.items():
            optimizer.load_state(state[key])
        self.rollout.load_state(state["rollout"])
        self.iteration = state["iteration"]

    @staticmethod
    def to_act(config: Config) -> Config:
        """Settings of a run with the same weights, as small as can be, that is to act on the CPU and not to learn."""
        return dataclasses.replace(config, num_envs=1, horizon=1, threads=1, graph="off")

    @staticmethod
    def torch_threads(config: Config) -> int | None:
        """All: torch finds the gradient."""
        return config.threads


config_of = functools.partial(configuration.config_of, A2C)
train = functools.partial(training.train, A2C)
load = functools.partial(training.load, A2C)

if __name__ == "__main__":
    command_line.main("a2c")
