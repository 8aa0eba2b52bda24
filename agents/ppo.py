"""Proximal policy optimisation that never leaves the device (Schulman et al., 2017; details as in CleanRL).

One iteration is roll-out (T steps of B environments), advantage estimation and update (epochs of minibatches). On CUDA
each is a captured graph, and between log points the host waits for nothing; on the CPU the same code runs eagerly,
with roll-out and gradient in C++ where a kernel carries the policy.

    python -m agents.ppo cartpole --recipe solve --seed 1 --output runs/cartpole
"""

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

import envs
from envs.spaces import AutoresetMode

from . import config as configuration
from . import contract, distributions, learner, recipes, training
from .autograd import Autograd
from .config import setting
from .experience import Experience, modules, wide
from .networks import PRECISIONS, Greedy, Networks
from .normaliser import Normaliser, ReturnScale
from .ranks import Ranks
from .rollout import Advantage, Order
from .team import Team
from .update import FIGURES

GUARDED = ("observation", "reward", "log_prob", "value", "loss", "gradient")  # must stay finite; in order of the data
AUTO = ("auto", "torch", "kernel")


@dataclass(frozen=True)
class Config:
    """What a run is; with the environment's name it determines every number of it."""

    num_envs: int = setting(4, "B, environments, over all processes", least=1)
    horizon: int = setting(128, "T, steps of each environment per iteration", least=1)
    total_steps: int = setting(500_000, "environment steps of the whole run, rounded down to whole iterations", least=1)
    epochs: int = setting(4, "passes over a batch", least=1)
    minibatches: int = setting(4, "equal parts of each pass", least=1)
    lr: float | tuple[float, ...] = setting(2.5e-4, "learning rate, one or one per member", least=0)
    anneal_lr: bool = setting(True, "let the learning rate fall linearly to 0")
    gamma: float | tuple[float, ...] = setting(0.99, "discount, one or one per member", least=0, most=1)
    gae_lambda: float = setting(0.95, "lambda of generalised advantage estimation", least=0, most=1)
    clip: float = setting(0.2, "limit of the probability ratio's distance from 1", least=0)
    ratio: str = setting(
        "action",
        "what has a ratio: a whole action, or each of its components, for actions of hundreds of numbers",
        choices=("action", "component"),
    )
    clip_value: bool = setting(True, "limit the value's change likewise")
    ent_coef: float | tuple[float, ...] = setting(0.01, "weight of the entropy, one or one per member", least=0)
    vf_coef: float = setting(0.5, "weight of the value loss", least=0)
    max_grad_norm: float = setting(0.5, "limit of the gradient's norm", least=0)
    norm_obs: bool = setting(False, "normalise observations by their running mean and variance")
    norm_reward: bool = setting(False, "divide rewards by the running deviation of the discounted return")
    norm_adv: bool = setting(True, "normalise advantages in each minibatch")
    hidden: tuple[int, ...] = setting((64, 64), "widths of the tanh layers", least=1)
    shared: bool = setting(False, "actor and critic share all layers but the last")
    target_kl: float | None = setting(None, "skip the rest of an iteration's updates above this KL divergence", least=0)
    log_std: float = setting(0.0, "first logarithm of a continuous action's standard deviation")
    reward_scale: float = setting(1.0, "factor on every reward")
    bootstrap: bool = setting(True, "value of the last observation where an episode was truncated (off: as CleanRL)")
    box: str = setting("clipped", "distribution of continuous actions", choices=("clipped", "squashed", "beta"))
    share: str = setting(
        "all",
        "one network for all agents, or one for each, or one for the team, whose action is all of theirs",
        choices=("all", "none", "team"),
    )
    groups: bool = setting(
        False, "a team's actions have numbers that whole groups of them share, as the environment's action_groups say"
    )
    group_log_std: float = setting(0.0, "first logarithm of the standard deviation of what groups share")
    agent_id: bool = setting(False, "append which agent it is, one-hot, to its observation")
    precision: str = setting("fp32", "of the networks' matrix products", choices=PRECISIONS)
    rollout: str = setting("auto", "policy in torch, or in the environment's kernel where it fits", choices=AUTO)
    gradient: str = setting(
        "auto", "automatic differentiation, or the C++ kernel", choices=("auto", "autograd", "kernel")
    )
    graph: str = setting("auto", "CUDA graphs", choices=("auto", "on", "off"))
    members: int = setting(1, "agents trained side by side, each with its part of the environments", least=1)
    shards: int | None = setting(None, "parts of the batch with gradients of their own; None: one per process", least=1)
    threads: int | None = setting(None, "of the CPU; None: as many as torch uses", least=1, most=1024)
    seed: int = setting(0, "of everything; member m has seed + m", least=0, most=2**63 - 1)
    eval_every: int = setting(8192, "environment steps between checks", least=1)
    save_every: int = setting(0, "environment steps between checkpoints; 0: only the last", least=0)

    def __post_init__(self):
        configuration.check(self)
        for name in ("lr", "gamma", "ent_coef"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.members:
                raise ValueError(f"{name} has {len(value)} values; members={self.members} needs one, or one for each")
        if self.groups and (self.share, self.box) != ("team", "clipped"):
            raise ValueError(f"groups=True needs share='team' and box='clipped', not {self.share!r} and {self.box!r}")
        if self.num_envs % self.members:
            raise ValueError(f"num_envs={self.num_envs} must be divisible by members={self.members}")
        if self.members > 1 and (self.shards or 1) > 1:
            raise ValueError(f"shards={self.shards} needs members=1, not {self.members}")
        if self.num_envs % (self.shards or 1):
            raise ValueError(f"num_envs={self.num_envs} must be divisible by shards={self.shards}")
        if self.total_steps < self.num_envs * self.horizon:
            raise ValueError(
                f"total_steps={self.total_steps} must be at least one iteration, "
                f"num_envs x horizon = {self.num_envs * self.horizon}"
            )


CLEANRL = Config()
RECIPES = {
    "cleanrl": CLEANRL,
    "continuous": dataclasses.replace(
        CLEANRL,
        num_envs=1,
        horizon=2048,
        total_steps=1_000_000,
        epochs=10,
        minibatches=32,
        lr=3e-4,
        ent_coef=0.0,
        norm_obs=True,
        norm_reward=True,
    ),
    "solve": dataclasses.replace(
        CLEANRL,
        num_envs=64,
        horizon=32,
        total_steps=131_072,
        epochs=10,
        minibatches=8,
        lr=1e-3,
        clip_value=False,
        ent_coef=0.0,
    ),
    "wide": dataclasses.replace(
        CLEANRL, num_envs=8192, horizon=32, total_steps=50_000_000, lr=2.5e-3, clip_value=False
    ),
}


def config_of(environment: str, recipe: str | None = None, **changes) -> Config:
    """A recipe's configuration with single fields replaced; without a recipe that of agents/recipes/<environment>.yaml.

    Raises:
        ValueError: an unknown recipe, environment or field, or a value that is not allowed.
    """
    chosen = {"recipe": recipe} if recipe is not None else dict(recipes.load(environment)["ppo"])
    name = chosen.pop("recipe", "cleanrl")
    if name not in RECIPES:
        raise ValueError(f"recipe={name!r} must be one of {', '.join(map(repr, RECIPES))}")
    return configuration.replaced(RECIPES[name], chosen | changes)


class PPO:
    """A run: `iterate` until `iteration == iterations`.

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

    def __init__(self, environment, config: Config = CLEANRL, device: torch.device | str = "cpu"):
        if not isinstance(config, Config):
            raise ValueError(f"config must be a ppo.Config, as ppo.config_of makes it, not a {type(config).__name__}")
        self.config, self.ranks = config, Ranks(device)
        self.device = self.ranks.device
        shards = config.shards or self.ranks.size
        self._check(shards)
        self.threads = config.threads or torch.get_num_threads()
        self.seeds = [config.seed + member for member in range(config.members)]
        self.env = self._environment(environment, config.num_envs // self.ranks.size)
        self.team = None
        if config.share == "team" and (getattr(self.env, "num_agents", None) or 1) > 1:
            self.env = self.team = Team(self.env, config.groups)
        self.agents = getattr(self.env, "num_agents", None) or 1
        sizes = getattr(self.env, "action_sizes", None)
        if self.team is None and sizes is not None and min(sizes) < math.prod(self.env.single_action_space.shape):
            raise ValueError(
                f"share={config.share!r}: agents use {' and '.join(map(str, sizes))} numbers of an action; only "
                "share='team' leaves the others out"
            )
        self.distribution = distributions.of(self.env.single_action_space, config.box)
        per_agent = config.share == "none" and self.agents > 1
        self.networks = self._networks(self.agents if per_agent else 1)
        self.normaliser = None
        if config.norm_obs:
            n = self.env.single_observation_space.shape[-1]
            self.normaliser = Normaliser(n, config.members, self.device, shards // self.ranks.size)
        port = isinstance(self.env, envs.BatchedEnv) and self.env.dtype == "float32"
        raw = not config.norm_obs and not config.agent_id
        self._portable = port and raw and self._plain()  # the environment's kernel knows the policy
        portable = self._portable and self.networks.learners == 1
        self.experience = Experience(
            self.env,
            self.networks,
            self.distribution,
            self.seeds,
            horizon=config.horizon,
            shards=shards // self.ranks.size,
            per_agent=per_agent,
            in_kernel=self._chosen("rollout", portable, "a port in float32, members=1, no norm_obs or agent_id"),
            normaliser=self.normaliser,
            by_component=config.ratio == "component",
            bootstrap=config.bootstrap,
            agent_id=config.agent_id,
            first_index=self.ranks.rank * self.env.num_envs,
            threads=self.threads,
        )
        self.steps_per_iteration = config.horizon * config.num_envs
        self.iterations = config.total_steps // self.steps_per_iteration
        self.iteration = 0
        self._count = torch.zeros(1, dtype=torch.int64, device=self.device)  # the same, for what runs on the device
        self._first_bad = torch.full((4,), -1, dtype=torch.int64, device=self.device)  # iterations, as GUARDED begins
        self._machinery()
        self._episodes()  # forgets those of a trial
        self.phases: dict[str, Callable[[], None]] = {
            "rollout": self._rollout,
            "advantage": self._advantage,
            "update": self._update,
        }
        restorable = config.graph == "on" or hasattr(self.env, "state")  # a capture must leave no trace
        if self.device.type == "cuda" and config.graph != "off" and self.ranks.size == 1 and restorable:
            self._capture()

    # ---- construction -----------------------------------------------------------------------------------------------

    def _check(self, shards: int):
        """What the configuration asks of device and processes."""
        config, size = self.config, self.ranks.size
        if shards % size:
            raise ValueError(f"shards={shards} must be divisible by the number of processes, {size}")
        if config.num_envs % shards:
            raise ValueError(f"num_envs={config.num_envs} must be divisible by shards={shards}, one per process")
        if config.members > 1 and size > 1:
            raise ValueError(f"members={config.members} train in one process, not in {size}")
        if config.precision == "tf32" and self.device.type != "cuda":
            raise ValueError("precision='tf32' needs device='cuda'; the cpu has 'fp32' and 'bf16'")
        if config.graph == "on" and (self.device.type != "cuda" or size > 1):
            raise ValueError("graph='on' needs device='cuda' and one process")

    def _environment(self, environment, num_envs: int):
        if isinstance(environment, str):
            options = {
                "seed": self.config.seed,
                "first_index": self.ranks.rank * num_envs,
                "threads": min(self.threads, -(-num_envs // 256)),  # at least a tile each
                "check_actions": False,  # they come from a distribution over the space
            }
            if self.config.members > 1:
                options |= {"seed": self.seeds, "groups": self.config.members}
            environment = envs.make(environment, num_envs, self.device, **options)
        if not isinstance(environment, envs.BatchedEnv):
            contract.require_attributes(environment)
        mode = AutoresetMode(getattr(environment, "autoreset_mode", AutoresetMode.SAME_STEP))
        if mode != AutoresetMode.SAME_STEP:
            raise ValueError(f"autoreset_mode={mode.value!r}: PPO needs 'SameStep'")
        if environment.num_envs != num_envs:
            raise ValueError(f"the environment has num_envs={environment.num_envs}; this run needs {num_envs}")
        if torch.device(environment.device).type != self.device.type:
            raise ValueError(f"the environment is on {environment.device}, the run on {self.device}")
        return environment

    def _networks(self, per_member: int) -> Networks:
        config = self.config
        inputs = self.env.single_observation_space.shape[-1] + (self.agents if config.agent_id else 0)
        return Networks(
            inputs,
            self.distribution.outputs,
            self.distribution.free,
            config.hidden,
            config.shared,
            config.members * per_member,
            [seed + (agent << 32) for seed in self.seeds for agent in range(per_member)],
            config.precision,
            self._log_std(),
            self.device,
        )

    def _log_std(self) -> float | list[float]:
        config = self.config
        if not config.groups:
            return config.log_std
        numbers = sum(self.team.sizes)
        return [config.log_std] * numbers + [config.group_log_std] * (self.distribution.free - numbers)

    def _plain(self) -> bool:
        """Whether networks and distribution are of the kind that kernels know."""
        config, hidden = self.config, self.config.hidden
        equal = len(hidden) == 2 and hidden[0] == hidden[1] and hidden[0] in envs.policies.HIDDEN
        known = type(self.distribution) in (distributions.Categorical, distributions.Gaussian)
        known = known and config.ratio == "action"
        return equal and known and not config.shared and config.precision == "fp32"

    def _chosen(self, name: str, fits: bool, needs: str) -> bool:
        asked = getattr(self.config, name)
        if asked == "kernel" and not fits:
            raise ValueError(
                f"{name}='kernel' does not fit this run: it needs {needs}, precision='fp32', box='clipped', actor and "
                f"critic apart with two equal layers of 16, 32 or 64 units; {name}='auto' takes torch where it must"
            )
        return fits and asked in ("auto", "kernel")

    def _machinery(self):
        """Minibatch order, advantage estimation, reward scale and the optimiser."""
        config, device, experience = self.config, self.device, self.experience
        L, shards, count = experience.of_batch.shape
        if count % config.minibatches:
            raise ValueError(
                f"minibatches={config.minibatches} must divide the {count} rows that a "
                f"{'shard' if shards * self.ranks.size > 1 else 'learner'} has of an iteration"
            )
        shape = (config.horizon, experience.N)
        self.order = Order(self.seeds, count, config.epochs, device, self.threads)
        self.estimate = Advantage(shape, config.gamma, config.gae_lambda, device, self.threads)
        self.scale = (
            ReturnScale(experience.N, config.gamma, config.members, device, shards) if config.norm_reward else None
        )

        def each(value: float | tuple[float, ...]) -> torch.Tensor:
            of_members = torch.tensor(value if isinstance(value, tuple) else [value] * config.members, device=device)
            return of_members.float().repeat_interleave(L // config.members)

        self.lr, self.rate, self.ent_coef = each(config.lr), each(config.lr), each(config.ent_coef)
        names = ("clip", "clip_value", "vf_coef", "norm_adv", "max_grad_norm", "target_kl")
        options = {name: getattr(config, name) for name in names}
        options |= {"shards": shards, "reduce": self.ranks.reduce}
        batch = experience.batch()
        batch |= {"advantage": self.estimate.advantage.flatten(), "target": self.estimate.target.flatten()}
        given = (self.networks, self.distribution, batch, self.rate, self.ent_coef)
        explicit = self.device.type == "cpu" and self._plain() and learner.fits(self.distribution)
        explicit = explicit and not {"mask", "valid"} & set(batch)
        if self._chosen("gradient", explicit, "device='cpu', all agents active, all actions allowed, at most 8"):
            rows = count // config.minibatches
            self.optimizer = learner.Learner(*given, rows=rows, threads=self.threads, **options)
        else:
            self.optimizer = Autograd(*given, **options)

    def _capture(self):
        """Replaces the phases by CUDA graphs of themselves, and leaves no other trace."""
        before = self.state()
        with torch.cuda.device(self.device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # compiles and allocates what a capture must not
                for phase in self.phases.values():
                    phase()
            torch.cuda.current_stream().wait_stream(stream)
            graphs = {name: torch.cuda.CUDAGraph() for name in self.phases}
            for name, phase in self.phases.items():
                with torch.cuda.graph(graphs[name], stream=stream):
                    phase()
        self._keep_alive, self.phases = graphs, {name: graph.replay for name, graph in graphs.items()}
        self.load_state(before)
        self._first_bad.fill_(-1)
        self.optimizer.first_bad.fill_(-1)
        self.optimizer.figures.zero_()
        self._episodes()

    # ---- one iteration ----------------------------------------------------------------------------------------------

    def iterate(self) -> None:
        """Roll-out, advantage, update; on CUDA the host waits for none of them."""
        for phase in self.phases.values():
            phase()
        self.iteration += 1

    @torch.no_grad()
    def _rollout(self):
        self.experience.collect()
        if self.config.reward_scale != 1:
            self.experience.rows["reward"].mul_(self.config.reward_scale)
        bad = ~self.experience.finite()
        self._first_bad.copy_(torch.where(bad & (self._first_bad < 0), self._count, self._first_bad))

    @torch.no_grad()
    def _advantage(self):
        rows, active = self.experience.rows, self.experience.active
        flags = rows["terminated"], rows["truncated"]
        if self.scale is not None:
            rows["reward"].copy_(self.scale(rows["reward"], *flags, active, self.ranks.reduce))
        self.estimate.compute(rows["reward"], rows["value"], rows["bootstrap"], *flags, active)

    def _update(self):
        config, of_batch = self.config, self.experience.of_batch
        if config.anneal_lr:
            self.rate.copy_(self.lr * (1 - self._count / self.iterations).clamp(min=0))
        self.optimizer.begin()
        for order in self.order.draw(self._count):  # [members, rows of a shard] in each epoch
            order = order.repeat_interleave(len(of_batch) // config.members, dim=0)
            self.optimizer.epoch(of_batch.gather(2, order.unsqueeze(1).expand_as(of_batch)), config.minibatches)
        if self.normaliser is not None:
            obs = self.experience.rows["obs"][: config.horizon]
            self.normaliser.update(obs, self.experience.active, self.ranks.reduce)
        self._count += 1

    # ---- what a run says of itself ----------------------------------------------------------------------------------

    @property
    def env_steps(self) -> int:
        """Steps of all environments so far, over all processes."""
        return self.iteration * self.steps_per_iteration

    def statistics(self) -> dict[str, float]:
        """Figures since the last call, in one copy from the device.

        Returns:
            episodes, episode_return, episode_length (NaN without an episode), policy_loss, value_loss, entropy,
            approx_kl, clip_fraction, grad_norm (means over minibatches and learners), explained_variance of the last
            iteration, lr of its updates.

        Raises:
            FloatingPointError: something was not finite; names iteration, minibatch and the first such quantity.
        """
        episodes = self._episodes()
        figures = self.optimizer.figures.sum(dim=0)
        told = torch.cat(
            [
                torch.stack([episodes[name] for name in ("episodes", "return_mean", "length_mean")]).double(),
                figures / figures[-1:],
                self._explained_variance().double().view(1),
                self.rate.mean().double().view(1),
                self._first_bad.double(),
                self.optimizer.first_bad.double(),
            ]
        ).tolist()
        self.optimizer.figures.zero_()
        names = ("episodes", "episode_return", "episode_length", *FIGURES[:-1], "", "explained_variance", "lr")
        self._require_finite([int(number) for number in told[len(names) :]])
        return {name: number for name, number in zip(names, told, strict=False) if name}

    def _episodes(self) -> dict[str, torch.Tensor]:
        return self.env.statistics() if hasattr(self.env, "statistics") else self.experience.statistics()

    def _explained_variance(self) -> torch.Tensor:
        target, error, active = self.estimate.target, self.estimate.advantage, self.experience.active
        if active is not None:
            target, error = target[active], error[active]
        return 1 - error.var() / target.var()  # an advantage is target - value

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

    # ---- the policy that was learnt ---------------------------------------------------------------------------------

    @torch.no_grad()
    def act(self, obs: torch.Tensor, greedy: bool = True, member: int = 0, mask: torch.Tensor | None = None):
        """Actions for an environment's `step` from its observations [B, n] or [B, A, n], any B.

        greedy: the likeliest action; otherwise a sample, by torch's generator. The normaliser is only read.
        """
        if self.team is not None:
            obs, mask = self.team.observe(obs), None if mask is None else self.team.mask(mask)
        per_member = self.networks.learners // self.config.members
        networks = self.networks.some(member * per_member, per_member)
        x = obs.to(self.device, torch.float32).reshape(-1, obs.shape[-1])
        x = x if self.normaliser is None else self.normaliser.of(member)(x)
        if self.config.agent_id:
            x = torch.cat([x, torch.eye(self.agents, device=self.device).repeat(len(x) // self.agents, 1)], dim=1)
        x = x.view(-1, per_member, x.shape[1]).transpose(0, 1)  # [1 or A, B (x A), n]
        out = networks.actor(x).transpose(0, 1).reshape(-1, self.distribution.outputs)
        free = networks.leaves.get("free")
        if free is not None:
            free = free.repeat(len(out) // len(free), 1)
        mask = None if mask is None else mask.reshape(len(out), -1)
        if greedy:
            action = self.distribution.mode(out, free, mask)
        else:
            words = torch.randint(0, 1 << 24, (len(out), 4 * self.distribution.blocks), device=self.device)
            action = self.distribution.sample(out, free, words.int(), mask)[0]
        action = wide(self.distribution.to_environment(action))
        return action.view(*obs.shape[:-1], *action.shape[1:]) if self.team is None else self.team.split(action)

    def policy(self, greedy: bool = True, member: int = 0) -> envs.MLP | None:
        """The policy as `env.rollout` takes it, sharing the numbers being trained; None where no kernel carries it."""
        return modules(self.networks, member, greedy) if self._portable else None

    def module(self, member: int = 0) -> Greedy:
        """The greedy policy by itself: a module of torch from observations [B, n] to actions, a copy as it is now.

        Raises:
            ValueError: actor and critic share layers, agents have numbers or networks of their own, or are a team.
        """
        if self.config.agent_id or self.networks.learners > self.config.members or self.team is not None:
            raise ValueError("agents have numbers or networks of their own, or are a team: use run.act")
        normaliser = self.normaliser and self.normaliser.of(member)
        bounds = () if normaliser is None else (normaliser.shift[0, 0], normaliser.scale[0, 0])
        return Greedy(copy.deepcopy(self.networks.sequential(member)[0]), self.distribution, *bounds)

    # ---- state ------------------------------------------------------------------------------------------------------

    def state(self) -> dict:
        """A copy of all that the future depends on: tensors, numbers and strings."""
        state = {"iteration": self.iteration, "count": self._count.clone()}
        state |= {"parameters": self.networks.parameters.clone(), "optimizer": self.optimizer.state()}
        state |= {name: part.state() for name, part in self._parts().items()}
        return state

    def load_state(self, state: Mapping) -> None:
        """Continues, bit for bit, from what `state` gave a run of the same configuration."""
        self.iteration = state["iteration"]
        self._count.copy_(state["count"])
        self.networks.parameters.copy_(state["parameters"])
        self.optimizer.load_state(state["optimizer"])
        for name, part in self._parts().items():
            part.load_state(state[name])

    def _parts(self) -> dict:
        parts = {"experience": self.experience, "normaliser": self.normaliser, "scale": self.scale}
        return {name: part for name, part in parts.items() if part is not None}


def train(environment, config: Config = CLEANRL, device: torch.device | str = "cpu", **options) -> PPO:
    """`training.train` with this algorithm."""
    return training.train(PPO, environment, config, device, **options)


def load(path, device: torch.device | str = "cpu", environment=None) -> PPO:
    """`training.load` with this algorithm: what a checkpoint holds, ready for `act`."""
    return training.load(PPO, Config, path, device, environment)


def main() -> None:
    training.command_line("ppo", PPO, Config, RECIPES, config_of)


if __name__ == "__main__":
    main()
