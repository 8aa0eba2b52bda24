"""A run of PPO: roll-out (T steps of B environments), advantage estimation and update (epochs of minibatches).

On CUDA each of the three is a captured graph, and between log points the host waits for nothing; on the CPU the same
code runs eagerly, with roll-out and gradient in C++ where a kernel carries the policy.
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping

import torch

from lockstep import envs
from lockstep.agents.parts import distributions, graphs, precision
from lockstep.agents.parts.actor_critic import KNOWN, ActorCritic
from lockstep.agents.parts.gae import GAE
from lockstep.agents.parts.minibatches import MinibatchOrder
from lockstep.agents.parts.normaliser import Normaliser, ReturnScale
from lockstep.agents.parts.on_policy import OnPolicy
from lockstep.agents.parts.rollout_buffer import RolloutBuffer
from lockstep.agents.parts.team import Team
from lockstep.agents.run import contract, log
from lockstep.agents.run.environment import of_run
from lockstep.agents.run.ranks import Ranks

from . import compiled
from .autograd import Autograd
from .config import CLEANRL, RECIPES, Config
from .update import METRICS

GUARDED = ("observation", "reward", "log_prob", "value", "loss", "gradient")  # must stay finite; in order of the data


class PPO(OnPolicy):
    """A run, as `run/algorithm.py` describes one: `iterate` until `iteration == iterations`.

    An environment is a name of `envs`, or an object as `agents/README.md` describes it: SAME_STEP autoreset, tensors
    on one device. With an attribute `num_agents` = A its observations are [B, A, n], actions and rewards [B, A]; flags
    are [B] or [B, A]. Its infos may carry `active` [B, A], rows of finished agents (or, [B], inert environments) being
    left out of everything, and `action_mask` [B, (A,) masks].

    Args:
        environment: a name, or an environment of num_envs / (number of processes) environments.
        config: the run.
        device: "cpu", "cuda" or "cuda:<index>".

    Raises:
        ValueError: naming the field, its value and what is allowed.
        MemoryError: an iteration's rows do not fit.
    """

    name = "ppo"
    Config = Config
    RECIPES = RECIPES
    COLUMNS = (*METRICS[:-1], "explained_variance", "lr")
    SHAPES = ("hidden", "population", "joint", "groups", "actors", "squash")

    @torch.inference_mode(False)  # whose tensors could not be trained
    def __init__(self, environment, config: Config = CLEANRL, device: torch.device | str = "cpu"):
        if not isinstance(config, Config):
            raise ValueError(f"config must be a ppo.Config, as ppo.config_of makes it, not a {type(config).__name__}")
        self.config, self.ranks = config, Ranks(device)
        self.device = self.ranks.device
        shards = config.shards or self.ranks.size
        self._check(shards)
        self.threads = config.threads or torch.get_num_threads()
        self.seeds = [config.seed + member for member in range(config.population)]
        B = config.num_envs // self.ranks.size
        options = {"seed": config.seed} if config.population == 1 else {"seed": self.seeds, "groups": config.population}
        options |= {"first_index": self.ranks.rank * B, "threads": self.threads}
        options |= {"named": config.options, "whole": config.num_envs}
        self.env = of_run(environment, B, self.device, **options)
        self.team = None
        if config.joint and (contract.agents_of(self.env) or 1) > 1:
            self.env = self.team = Team(self.env, config.groups)
        sizes = getattr(self.env, "action_sizes", None)
        if self.team is None and sizes is not None and min(sizes) < math.prod(self.env.single_action_space.shape):
            raise ValueError(
                f"joint=False: agents use {' and '.join(map(str, sizes))} numbers of an action; only joint=True leaves "
                "the others out"
            )
        self.distribution = distributions.of(self.env.single_action_space, config.squash)
        self.networks = self._networks()
        self.normaliser = None
        if config.norm_obs:
            n = self.env.single_observation_space.shape[-1]
            self.normaliser = Normaliser(n, config.population, self.device, shards // self.ranks.size)
        known = self.distribution.in_kernels and self.networks.in_kernels
        self._plain = known and config.ratio == "action"  # all that kernels know
        port = isinstance(self.env, envs.BatchedEnv) and self.env.dtype == "float32"
        port = port and self.env.lanes == self.env.actions.numbers == 1
        port = port and not config.norm_obs and self._plain  # the environment's kernel knows the policy
        self._portable = port and self.env.carries(config.hidden[0])
        portable = self._portable and self.networks.learners == 1
        self.rollout = RolloutBuffer(
            self.env,
            self.networks,
            self.distribution,
            self.seeds,
            horizon=config.horizon,
            shards=shards // self.ranks.size,
            in_kernel=self._chosen(
                "rollout", portable, "a port of one lane in float32, population=1, squash='clip', no norm_obs"
            ),
            normaliser=self.normaliser,
            by_component=config.ratio == "component",
            bootstrap=config.bootstrap,
            first_index=self.ranks.rank * self.env.num_envs,
            threads=self.threads,
        )
        self.iterations = config.total_steps // (config.num_envs * config.horizon)
        self.iteration = 0
        self._count = torch.zeros(1, dtype=torch.int64, device=self.device)  # the same, for what runs on the device
        self._first_bad = torch.full((4,), -1, dtype=torch.int64, device=self.device)  # iterations, as GUARDED begins
        self._machinery()
        self._episodes()  # forgets those before the run
        self.phases: dict[str, Callable[[], None]] = {
            "rollout": self._rollout,
            "advantage": self._advantage,
            "update": self._update,
        }
        if graphs.wanted(config.graph, self.device, self.ranks.size, self.env):
            self._capture()

    # ---- construction -----------------------------------------------------------------------------------------------

    def _check(self, shards: int):
        """Refuses what the configuration asks of device and processes and cannot be."""
        config, size = self.config, self.ranks.size
        if shards % size:
            raise ValueError(f"shards={shards} must be divisible by the number of processes, {size}")
        if config.num_envs % shards:
            raise ValueError(f"num_envs={config.num_envs} must be divisible by shards={shards}, one per process")
        if config.population > 1 and size > 1:
            raise ValueError(f"population={config.population} train in one process, not in {size}")
        precision.require(config.precision, self.device)

    def _networks(self) -> ActorCritic:
        config = self.config
        return ActorCritic(
            self.env.single_observation_space.shape[-1],
            self.distribution.outputs,
            self.distribution.free,
            config.hidden,
            config.population,
            self.seeds,
            config.precision,
            self._log_std(),
            self.device,
            self._actors(),
        )

    def _actors(self) -> list[int] | None:
        """The actor of each of the distribution's outputs: the agent whose action it is of."""
        if self.config.actors == "one" or self.team is None:
            return None
        widths = self.distribution.sizes or [1] * len(self.team.owners)
        return [owner for owner, width in zip(self.team.owners, widths, strict=True) for _ in range(width)]

    def _log_std(self) -> float | list[float]:
        config = self.config
        if not config.groups:
            return config.log_std
        numbers = sum(self.team.sizes)
        return [config.log_std] * numbers + [config.group_log_std] * (self.distribution.free - numbers)

    def _chosen(self, name: str, fits: bool, needs: str) -> bool:
        asked = getattr(self.config, name)
        if asked == "kernel" and not fits:
            raise ValueError(
                f"{name}='kernel' does not fit this run: it needs {needs}, {KNOWN}; {name}='auto' takes "
                "torch where it must"
            )
        return fits and asked in ("auto", "kernel")

    def _machinery(self):
        """Minibatch order, advantage estimation, reward scale and the optimiser."""
        config, device, rollout = self.config, self.device, self.rollout
        _, shards, count = rollout.of_batch.shape
        if count % config.minibatches:
            raise ValueError(
                f"minibatches={config.minibatches} must divide the {count} rows that a "
                f"{'shard' if shards * self.ranks.size > 1 else 'learner'} has of an iteration"
            )
        shape = (config.horizon, rollout.N)
        self.order = MinibatchOrder(self.seeds, count, config.epochs, device, self.threads)
        self.gae = GAE(shape, config.gamma, config.gae_lambda, device, self.threads)
        self.scale = (
            ReturnScale(rollout.N, config.gamma, config.population, device, shards) if config.norm_reward else None
        )

        def each(value: float | tuple[float, ...]) -> torch.Tensor:
            of_members = value if isinstance(value, tuple) else [value] * config.population
            return torch.tensor(of_members, dtype=torch.float32, device=device)

        self.lr, self.rate, self.ent_coef = each(config.lr), each(config.lr), each(config.ent_coef)
        self.critic_rate = None if config.critic_lr is None else each(config.critic_lr)
        names = ("clip", "clip_value", "vf_coef", "norm_adv", "max_grad_norm", "target_kl")
        options = {name: getattr(config, name) for name in names}
        options |= {"shards": shards, "reduce": self.ranks.reduce}
        batch = rollout.batch()
        batch |= {"advantage": self.gae.advantage.flatten(), "target": self.gae.target.flatten()}
        given = (self.networks, self.distribution, batch, self.rate, self.ent_coef)
        explicit = self.device.type == "cpu" and self._plain and compiled.fits(self.distribution)
        explicit = explicit and not {"mask", "valid"} & set(batch) and config.critic_lr is None
        needs = "device='cpu', all agents active, all actions allowed, squash='clip', no critic_lr, at most 8"
        if self._chosen("gradient", explicit, needs):
            rows = count // config.minibatches
            self.optimizer = compiled.CompiledUpdate(*given, rows=rows, threads=self.threads, **options)
        else:
            self.optimizer = Autograd(*given, **options, critic_rate=self.critic_rate)
            self.torch_threads = operator.attrgetter("threads")  # torch finds the gradient, with gradient="auto" too

    def _capture(self) -> None:
        super()._capture()
        self._first_bad.fill_(-1)
        self.optimizer.first_bad.fill_(-1)
        self.optimizer.metrics.zero_()

    # ---- one iteration ----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _rollout(self):
        self.rollout.collect()
        if self.config.reward_scale != 1:
            self.rollout.rows["reward"].mul_(self.config.reward_scale)
        bad = ~self.rollout.finite()
        self._first_bad.copy_(torch.where(bad & (self._first_bad < 0), self._count, self._first_bad))

    @torch.no_grad()
    def _advantage(self):
        rows, active = self.rollout.rows, self.rollout.active
        flags = rows["terminated"], rows["truncated"]
        if self.scale is not None:
            rows["reward"].copy_(self.scale(rows["reward"], *flags, active, self.ranks.reduce))
        self.gae.compute(rows["reward"], rows["value"], rows["bootstrap"], *flags, active)

    def _update(self):
        config, of_batch = self.config, self.rollout.of_batch
        if config.anneal_lr:
            share = (1 - self._count.float() / self.iterations).clamp(min=0)
            self.rate.copy_(self.lr * share)
            if self.critic_rate is not None:
                self.critic_rate.copy_(config.critic_lr * share)
        self.optimizer.begin()
        for order in self.order.draw(self._count):  # [members, rows of a shard] in each epoch
            self.optimizer.epoch(of_batch.gather(2, order.unsqueeze(1).expand_as(of_batch)), config.minibatches)
        if self.normaliser is not None:
            obs = self.rollout.rows["obs"][: config.horizon]
            self.normaliser.update(obs, self.rollout.active, self.ranks.reduce)
        self._count += 1

    # ---- what a run says of itself ----------------------------------------------------------------------------------

    def statistics(self) -> dict[str, float]:
        """Metrics since the last call, in one copy from the device.

        Returns:
            of episodes number, mean return and length (NaN without one); means of `METRICS` over minibatches and
            learners; explained_variance of the last iteration, lr of its updates.

        Raises:
            FloatingPointError: something was not finite; names iteration, minibatch and the first such quantity.
        """
        episodes = self._episodes()
        metrics = self.optimizer.metrics.sum(dim=0)
        told = torch.cat(
            [
                torch.stack([episodes[name] for name in ("episodes", "return_mean", "length_mean")]).double(),
                metrics / metrics[-1:],
                self._explained_variance().double().view(1),
                self.rate.mean().double().view(1),
                self._first_bad.double(),
                self.optimizer.first_bad.double(),
            ]
        ).tolist()
        self.optimizer.metrics.zero_()
        names = (*log.OF_EPISODES, *METRICS[:-1], "", "explained_variance", "lr")
        self._require_finite([int(number) for number in told[len(names) :]])
        return {name: number for name, number in zip(names, told, strict=False) if name}

    def _require_finite(self, first_bad: list[int]) -> None:
        """Raises FloatingPointError for the earliest of GUARDED that was not finite; -1 says that it always was."""
        per_iteration = self.config.epochs * self.config.minibatches
        found = [(number, 0, place) for place, number in enumerate(first_bad[:4]) if number >= 0]
        found += [
            (*divmod(number, per_iteration), 4 + place) for place, number in enumerate(first_bad[4:]) if number >= 0
        ]
        if found:
            iteration, minibatch, place = min(found)
            raise FloatingPointError(
                f"iteration {iteration}, minibatch {minibatch}: {GUARDED[place]} is not finite; no step was made of it"
            )

    # ---- state ------------------------------------------------------------------------------------------------------

    def state(self) -> dict:
        """A copy of all that the future depends on: tensors, numbers and strings."""
        state = {"iteration": self.iteration, "count": self._count.clone(), **self.weights()}
        state |= {name: part.state() for name, part in self._parts().items()}
        return state | ({"environment": self.env.state()} if hasattr(self.env, "state") else {})

    def load_state(self, state: Mapping) -> None:
        """Continues, bit for bit, from what `state` gave a run of the same configuration.

        Raises:
            ValueError: the environment has no state, or refuses it.
        """
        if "environment" not in state:
            raise ValueError(
                f"{type(self.env).__name__} has no state() and set_state(), so a run on it cannot be continued"
            )
        self.iteration = state["iteration"]
        self._count.copy_(state["count"])
        self.networks.parameters.copy_(state["parameters"])
        for name, part in self._parts().items():
            part.load_state(state[name])
        self.env.set_state(state["environment"])

    def _parts(self) -> dict:
        """Parts with a state of their own, by their names in that of the run."""
        parts = {"optimizer": self.optimizer, "rollout": self.rollout, "normaliser": self.normaliser}
        return {name: part for name, part in (parts | {"scale": self.scale}).items() if part is not None}

    @staticmethod
    def to_act(config: Config) -> Config:
        """Settings of a run with the same weights, as small as can be, that is to act on the CPU and not to learn."""
        small = {"num_envs": config.population, "horizon": 1, "minibatches": 1, "epochs": 1, "shards": None}
        plain = {"precision": "fp32", "graph": "auto", "rollout": "torch", "gradient": "autograd", "threads": 1}
        return dataclasses.replace(config, **small, **plain)

    @staticmethod
    def torch_threads(config: Config) -> int:
        """All where torch finds the gradient or multiplies many networks at once; else there is no work for them."""
        return config.threads if config.gradient == "autograd" or config.population > 1 else 1
