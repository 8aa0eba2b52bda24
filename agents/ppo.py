"""Proximal policy optimisation that never leaves the device (Schulman et al., 2017; details as in CleanRL).

One iteration is roll-out (T steps of B environments), advantage estimation and update (epochs of minibatches). On CUDA
each is a captured graph, and between log points the host waits for nothing; on the CPU the same code runs eagerly,
with roll-out and gradient in C++ where a kernel carries the policy.

    python -m agents.ppo cartpole --recipe solve --seed 1 --output runs/cartpole
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

import envs
from envs.checks import require_memory
from envs.spaces import AutoresetMode

from . import config as configuration
from . import distributions, learner, recipes, training
from .autograd import FIGURES, Autograd
from .config import setting
from .networks import PRECISIONS, Networks
from .ranks import Ranks
from .rollout import Advantage, Noise, Normaliser, Order, ReturnScale

GUARDED = ("observation", "reward", "log_prob", "value", "loss", "gradient")  # must stay finite; in order of the data
AUTO = ("auto", "torch", "kernel")


@dataclass(frozen=True)
class Config:
    """What a run is; with the environment's name it determines every number of it."""

    num_envs: int = setting(4, "B, environments, over all processes", least=1)
    horizon: int = setting(128, "T, steps of each environment per iteration", least=1)
    total_steps: int = setting(
        500_000, "environment steps of the whole run; the last iteration begins below it", least=1
    )
    epochs: int = setting(4, "passes over a batch", least=1)
    minibatches: int = setting(4, "equal parts of each pass", least=1)
    lr: float | tuple[float, ...] = setting(2.5e-4, "learning rate, one or one per member", least=0)
    anneal_lr: bool = setting(True, "let the learning rate fall linearly to 0")
    gamma: float | tuple[float, ...] = setting(0.99, "discount, one or one per member", least=0, most=1)
    gae_lambda: float = setting(0.95, "lambda of generalised advantage estimation", least=0, most=1)
    clip: float = setting(0.2, "limit of the probability ratio's distance from 1", least=0)
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
    share: str = setting("all", "one network for all agents, or one for each", choices=("all", "none"))
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
    chosen = {"recipe": recipe} if recipe else dict(recipes.load(environment)["ppo"])
    name = chosen.pop("recipe", "cleanrl")
    if name not in RECIPES:
        raise ValueError(f"recipe={name!r} must be one of {', '.join(map(repr, RECIPES))}")
    return configuration.replaced(RECIPES[name], chosen | changes)


class PPO:
    """A run: `iterate` until `iteration == iterations`.

    An environment is a name of `envs`, or an object with the contract of `envs/README.md`: SAME_STEP autoreset, tensors
    on one device. With an attribute `num_agents` = A its observations are [B, A, n], actions and rewards [B, A]; flags
    are [B] or [B, A]. Its infos may carry `active` [B, A], rows of finished agents (or, [B], inert environments) being
    left out of everything, and `action_mask` [B, (A,) masks].

    Args:
        environment: a name, or an environment of num_envs / (number of processes) environments.
        config: the run.
        device: "cpu", "cuda" or "cuda:<index>".

    Raises:
        ValueError: naming the field, its value and what is allowed.
    """

    def __init__(self, environment, config: Config = CLEANRL, device: torch.device | str = "cpu"):
        self.config, self.ranks = config, Ranks(device)
        self.device = self.ranks.device
        shards = config.shards or self.ranks.size
        if shards % self.ranks.size:
            raise ValueError(f"shards={shards} must be divisible by the number of processes, {self.ranks.size}")
        if config.num_envs % shards:
            raise ValueError(f"num_envs={config.num_envs} must be divisible by shards={shards}")
        if config.members > 1 and self.ranks.size > 1:
            raise ValueError(f"members={config.members} train in one process, not in {self.ranks.size}")
        if config.precision == "tf32" and self.device.type != "cuda":
            raise ValueError("precision='tf32' needs device='cuda'; the cpu has 'fp32' and 'bf16'")
        if config.graph == "on" and (self.device.type != "cuda" or self.ranks.size > 1):
            raise ValueError("graph='on' needs device='cuda' and one process")
        self.threads = config.threads or torch.get_num_threads()
        self.B, self.T = config.num_envs // self.ranks.size, config.horizon
        self.first_index = self.ranks.rank * self.B
        self.seeds = [config.seed + member for member in range(config.members)]
        self.env = self._environment(environment)
        self.A = getattr(self.env, "num_agents", None) or 1
        self.shards = shards // self.ranks.size  # of this process
        self.per_agent = config.share == "none" and self.A > 1
        self.L = config.members * (self.A if self.per_agent else 1)
        self.distribution = distributions.of(self.env.single_action_space, config.box)
        self.steps_per_iteration = self.T * config.num_envs
        self.iterations = config.total_steps // self.steps_per_iteration
        self.iteration = 0
        self._networks()
        self._allocate()
        self.phases: dict[str, Callable[[], None]] = {
            "rollout": self._rollout,
            "advantage": self._advantage,
            "update": self._update,
        }
        self._start()
        if self.device.type == "cuda" and config.graph != "off" and self.ranks.size == 1:
            self._capture()

    # ---- construction -----------------------------------------------------------------------------------------------

    def _environment(self, environment):
        config = self.config
        if isinstance(environment, str):
            seeds = self.seeds if config.members > 1 else config.seed
            options = {"seed": seeds, "groups": config.members, "first_index": self.first_index}
            threads = min(self.threads, -(-self.B // 256))  # a tile each
            environment = envs.make(environment, self.B, self.device, threads=threads, **options)
        mode = AutoresetMode(getattr(environment, "autoreset_mode", AutoresetMode.SAME_STEP))
        if mode != AutoresetMode.SAME_STEP:
            raise ValueError(f"autoreset_mode={mode.value!r}: PPO needs 'SameStep'")
        if environment.num_envs != self.B:
            raise ValueError(f"the environment has num_envs={environment.num_envs}; this run needs {self.B}")
        if torch.device(environment.device).type != self.device.type:
            raise ValueError(f"the environment is on {environment.device}, the run on {self.device}")
        return environment

    def _networks(self):
        config = self.config
        self.n = self.env.single_observation_space.shape[-1]
        seeds = [seed for seed in self.seeds for _ in range(self.L // config.members)]
        self.networks = Networks(
            self.n + (self.A if config.agent_id else 0),
            self.distribution.outputs,
            self.distribution.free,
            config.hidden,
            config.shared,
            self.L,
            seeds,
            config.precision,
            config.log_std,
            self.device,
        )
        plain = len(config.hidden) == 2 and config.hidden[0] == config.hidden[1] and config.hidden[0] in (16, 32, 64)
        plain = plain and not config.shared and config.precision == "fp32" and config.box == "clipped" and self.A == 1
        self._plain = plain and isinstance(self.env, envs.BatchedEnv) and self.env.dtype == "float32"
        in_kernel = self._plain and self.L == 1 and not config.norm_obs
        self._in_kernel = self._choose("rollout", "kernel", "torch", in_kernel)
        fits = plain and self.device.type == "cpu" and learner.fits(self.distribution)
        self._explicit = self._choose("gradient", "kernel", "autograd", fits)

    def _choose(self, name: str, kernel: str, other: str, fits: bool) -> bool:
        asked = getattr(self.config, name)
        if asked == kernel and not fits:
            raise ValueError(
                f"{name}={asked!r} does not fit this run: it needs one network of two equal tanh layers (16, 32 or 64), "
                "float32, no norm_obs"
                + (" and device='cpu'" if name == "gradient" else " and members=1")
                + f"; {name}='auto' or {other!r} does it in torch"
            )
        return fits and asked in ("auto", kernel)

    def _allocate(self):
        """Rows of one iteration, [T, N, ...] with N = B x A, and what works on them."""
        config, N = self.config, self.B * self.A
        obs, first = self.env.reset(seed=self.seeds if config.members > 1 else config.seed)
        self._width = self.networks.inputs
        layout = {
            "advantage": ((self.T, N), torch.float32),
            "target": ((self.T, N), torch.float32),
        }
        if not self._in_kernel:
            layout |= {
                "raw": ((self.T + 1, N, self.n), torch.float32),
                "action": ((self.T, N, *self.distribution.stored_shape), self.distribution.stored_dtype),
                "log_prob": ((self.T, N), torch.float32),
                "reward": ((self.T, N), torch.float32),
                "terminated": ((self.T, N), torch.bool),
                "truncated": ((self.T, N), torch.bool),
                "final": ((self.T, N, self.n), torch.float32),
                "value": ((self.T + 1, N), torch.float32),
                "bootstrap": ((self.T, N), torch.float32),
            }
            if "active" in first:
                layout["active"] = ((self.T + 1, N), torch.bool)
            if "action_mask" in first:
                layout["mask"] = ((self.T + 1, N, self.distribution.masks), torch.bool)
        if config.norm_obs or config.agent_id:
            layout["seen"] = ((self.T, N, self._width), torch.float32)
        needed = sum(math.prod(shape) * dtype.itemsize for shape, dtype in layout.values())
        require_memory(needed, self.device, "num_envs x horizon", self.B * self.T)
        self.rows = {
            name: torch.zeros(shape, dtype=dtype, device=self.device) for name, (shape, dtype) in layout.items()
        }
        if self._in_kernel:
            self._mlp = self._modules()
            self.rows |= self.env.rollout(self.T, self._mlp, "trajectory")  # its buffers, filled anew each time
            self.rows["raw"] = self.rows["obs"]
        if config.agent_id:
            self.rows["seen"][..., self.n :] = torch.eye(self.A, device=self.device).repeat(self.B, 1)
        self._index()
        self._machinery()

    def _modules(self, member: int = 0, greedy: bool = False) -> envs.MLP:
        free = self.networks.parts(self.networks.parameters).get("free")
        log_std = None if free is None else free[member]
        return envs.MLP(*self.networks.sequential(member), log_std=log_std, greedy=greedy)

    def _index(self):
        """Which rows of a step, and of the whole batch, belong to which learner and shard."""
        M, S, A = self.config.members, self.shards, self.A
        step = torch.arange(self.B * A, device=self.device).view(M, S, -1, A)  # M or S is 1
        batch = torch.arange(self.T * self.B * A, device=self.device).view(self.T, M, S, -1, A)
        if self.per_agent:
            self.of_step = step.permute(0, 3, 1, 2).reshape(self.L, S, -1)  # [L, S, rows of a step]
            self.of_batch = batch.permute(1, 4, 2, 0, 3).reshape(self.L, S, -1)  # [L, S, rows of a batch]
        else:
            self.of_step = step.reshape(self.L, S, -1)
            self.of_batch = batch.permute(1, 2, 0, 3, 4).reshape(self.L, S, -1)
        self.learner_of = torch.empty(self.B * A, dtype=torch.int64, device=self.device)
        self.learner_of[self.of_step.flatten(1)] = torch.arange(self.L, device=self.device).unsqueeze(1)
        count = self.of_batch.shape[2]
        if count % self.config.minibatches:
            raise ValueError(
                f"minibatches={self.config.minibatches} must divide the {count} rows that a "
                f"{'learner' if S == 1 else 'shard'} has of an iteration"
            )

    def _machinery(self):
        config, device = self.config, self.device
        seeds = {"seeds": self.seeds, "device": device, "threads": self.threads}
        if not self._in_kernel:
            blocks = self.distribution.blocks
            self.noise = Noise(
                num_envs=self.B, first_index=self.first_index, agents=self.A, blocks=blocks, steps=self.T, **seeds
            )
        self.order = Order(rows=self.of_batch.shape[2], epochs=config.epochs, **seeds)
        self.estimate = Advantage(
            (self.T, self.B * self.A), config.gamma, config.gae_lambda, device=device, threads=self.threads
        )
        self.normaliser = Normaliser(self.n, device=device) if config.norm_obs else None
        self.scale = ReturnScale(self.B * self.A, config.gamma, device=device) if config.norm_reward else None
        flat = {name: tensor.flatten(0, 1) for name, tensor in self._batch().items()}

        def each(value):
            numbers = value if isinstance(value, tuple) else (value,) * config.members
            numbers = [number for number in numbers for _ in range(self.L // config.members)]
            return torch.tensor(numbers, dtype=torch.float32, device=device)

        self.lr, self.rate, self.ent_coef = each(config.lr), each(config.lr), each(config.ent_coef)
        shared = {
            name: getattr(config, name) for name in ("clip", "clip_value", "vf_coef", "norm_adv", "max_grad_norm")
        }
        shared |= {"target_kl": config.target_kl, "shards": self.shards, "reduce": self.ranks.reduce}
        if self._explicit:
            size = self.of_batch.shape[2] // config.minibatches
            self.optimizer = learner.Learner(
                self.networks,
                self.distribution,
                flat,
                self.rate,
                self.ent_coef,
                rows=size,
                threads=self.threads,
                **shared,
            )
        else:
            self.optimizer = Autograd(self.networks, self.distribution, flat, self.rate, self.ent_coef, **shared)

    def _batch(self) -> dict[str, torch.Tensor]:
        """What the update reads, [T, N, ...]."""
        rows = self.rows
        batch = {name: rows[name] for name in ("log_prob", "advantage", "target")}
        batch |= {"obs": rows.get("seen", rows["raw"][: self.T]), "value": rows["value"][: self.T]}
        batch["action"] = rows["action"].view(*rows["action"].shape[:2], *self.distribution.stored_shape)
        for name, other in (("mask", "mask"), ("active", "valid")):
            if name in rows:
                batch[other] = rows[name][: self.T]
        return batch

    def _start(self):
        """The state before the first iteration."""
        obs, first = self.env.reset(seed=self.seeds if self.config.members > 1 else self.config.seed)
        self._episodes()  # forgets those of the trial roll-out
        self.iteration = 0
        self.clock = torch.zeros(1, dtype=torch.int64, device=self.device)  # steps of each environment
        self.count = torch.zeros(1, dtype=torch.int64, device=self.device)  # iterations, for what runs on the device
        self.first_bad = torch.full((4,), -1, dtype=torch.int64, device=self.device)  # iterations, as GUARDED begins
        if not self._in_kernel:
            self._keep(self.T, obs, first)

    # ---- one iteration ----------------------------------------------------------------------------------------------

    def iterate(self) -> None:
        """Roll-out, advantage, update; on CUDA the host waits for none of them."""
        for phase in self.phases.values():
            phase()
        self.iteration += 1

    @torch.no_grad()
    def _rollout(self):
        if self._in_kernel:
            self.env.rollout(self.T, self._mlp, "trajectory")
        else:
            self._rollout_in_torch()
        rows = self.rows
        if self.config.reward_scale != 1:
            rows["reward"].mul_(self.config.reward_scale)
        watched = (rows["raw"], rows["reward"], rows["log_prob"], rows["value"])
        active = rows.get("active")
        bad = torch.stack([~self._sum_of_valid(tensor, active).isfinite() for tensor in watched])
        self.first_bad.copy_(torch.where(bad & (self.first_bad < 0), self.count, self.first_bad))
        self.clock += self.T

    @staticmethod
    def _sum_of_valid(tensor: torch.Tensor, active: torch.Tensor | None) -> torch.Tensor:
        """A sum that is finite where all valid numbers are."""
        if active is not None:
            active = active[: len(tensor)]
            tensor = torch.where(active.view(*active.shape, *[1] * (tensor.dim() - 2)), tensor, 0.0)
        return tensor.sum()

    def _rollout_in_torch(self):
        rows, T = self.rows, self.T
        variates = self.distribution.variates(self.noise.draw(self.clock).view(T, self.B * self.A, -1))
        free = self.networks.leaves.get("free")
        if free is not None:
            free = free[0] if self.L == 1 else free[self.learner_of]
        for name in ("raw", "active", "mask"):
            if name in rows:
                rows[name][0].copy_(rows[name][T])
        for t in range(T):
            out, value = self._forward(self._see(rows["raw"][t], t))
            mask = rows["mask"][t] if "mask" in rows else None
            action, log_prob = self.distribution.sample(out, free, variates[t], mask)
            rows["action"][t] = action
            rows["log_prob"][t] = log_prob
            rows["value"][t] = value
            action = self.distribution.to_environment(action)
            obs, reward, terminated, truncated, info = self.env.step(
                action if self.A == 1 else action.view(self.B, self.A, *action.shape[1:])
            )
            rows["reward"][t] = reward.view(-1)
            for name, flag in (("terminated", terminated), ("truncated", truncated)):
                rows[name][t].view(self.B, self.A).copy_(flag.view(self.B, -1))
            rows["final"][t] = info["final_obs"].view(-1, self.n)
            self._keep(t + 1, obs, info)
        rows["value"][T] = self._forward(self._see(rows["raw"][T]))[1]
        if self.config.bootstrap:
            cut = rows["truncated"] & ~rows["terminated"]
            final = self._see(rows["final"].flatten(0, 1)).view(T * self.B * self.A, -1)
            values = torch.empty_like(rows["bootstrap"]).flatten()
            for s in range(self.shards):
                values[self.of_batch[:, s]] = self.networks.critic(final[self.of_batch[:, s]])
            rows["bootstrap"].copy_(torch.where(cut, values.view_as(cut), 0.0))

    def _keep(self, t: int, obs: torch.Tensor, info: Mapping[str, torch.Tensor]):
        """Takes an observation and its masks out of the environment's buffers."""
        self.rows["raw"][t] = obs.reshape(-1, self.n)
        if "active" in self.rows:
            self.rows["active"][t].view(self.B, self.A).copy_(info["active"].view(self.B, -1))
        if "mask" in self.rows:
            self.rows["mask"][t] = info["action_mask"].reshape(-1, self.distribution.masks)

    def _see(self, raw: torch.Tensor, t: int | None = None) -> torch.Tensor:
        """Observations [N, n] as the networks see them; kept as step t's if the batch keeps them apart from the raw ones."""
        if "seen" not in self.rows:
            return raw
        x = raw if self.normaliser is None else self.normaliser(raw)
        if self.config.agent_id:
            ids = self.rows["seen"][0, :, self.n :]
            x = torch.cat([x, ids.repeat(len(x) // len(ids), 1)], dim=1)
        if t is not None:
            self.rows["seen"][t] = x
        return x

    def _forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs [N, m] and values [N] of a step's observations [N, n]; shards go apart, as in processes of their own."""
        if self.L == self.shards == 1:
            out, value = self.networks(x.unsqueeze(0))
            return out[0], value[0]
        out, value = x.new_empty(len(x), self.distribution.outputs), x.new_empty(len(x))
        for s in range(self.shards):
            of_shard = self.of_step[:, s]
            out[of_shard], value[of_shard] = self.networks(x[of_shard])
        return out, value

    @torch.no_grad()
    def _advantage(self):
        rows, valid = self.rows, self.rows.get("active")
        valid = None if valid is None else valid[: self.T]
        if self.scale is not None:
            rows["reward"].copy_(
                self.scale(rows["reward"], rows["terminated"], rows["truncated"], valid, self.ranks.reduce)
            )
        bootstrap = rows["bootstrap"] if self.config.bootstrap else torch.zeros_like(rows["bootstrap"])
        self.estimate.compute(
            rows["reward"],
            rows["value"],
            bootstrap,
            rows["terminated"],
            rows["truncated"],
            valid,
            out=(rows["advantage"], rows["target"]),
        )

    def _update(self):
        config = self.config
        if config.anneal_lr:
            self.rate.copy_(self.lr * (1 - self.count / self.iterations))
        orders = self.order.draw(self.count)  # [epochs, members, rows of a shard]
        self.optimizer.begin()
        for order in orders:
            order = order.repeat_interleave(self.L // config.members, 0) if self.per_agent else order
            rows = self.of_batch.gather(2, order.unsqueeze(1).expand_as(self.of_batch))
            for minibatch in rows.chunk(config.minibatches, dim=2):
                self.optimizer.update(minibatch)
        if self.normaliser is not None:
            raw, valid = self.rows["raw"][: self.T], self.rows.get("active")
            self.normaliser.update(raw, None if valid is None else valid[: self.T], self.ranks.reduce)
        self.count += 1

    def _capture(self):
        """Replaces the phases by CUDA graphs of themselves, and leaves no other trace."""
        before = self.state()
        with torch.cuda.device(self.device):
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):  # compiles and allocates what a capture must not
                for _ in range(2):
                    for phase in self.phases.values():
                        phase()
            torch.cuda.current_stream().wait_stream(stream)
            self.graphs = {name: torch.cuda.CUDAGraph() for name in self.phases}
            for name, phase in self.phases.items():
                with torch.cuda.graph(self.graphs[name], stream=stream):
                    phase()
        self.phases = {name: graph.replay for name, graph in self.graphs.items()}
        self.load_state(before)
        self.optimizer.figures.zero_()
        self._episodes()

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
                self.first_bad.double(),
                self.optimizer.first_bad.double(),
            ]
        ).tolist()
        self.optimizer.figures.zero_()
        names = ("episodes", "episode_return", "episode_length", *FIGURES[:-1], "", "explained_variance", "lr")
        self._require_finite([int(number) for number in told[len(names) :]])
        return {name: number for name, number in zip(names, told, strict=False) if name}

    def _episodes(self) -> dict[str, torch.Tensor]:
        if hasattr(self.env, "statistics"):
            return self.env.statistics()
        unknown = torch.tensor(math.nan, device=self.device)
        return {"episodes": unknown, "return_mean": unknown, "length_mean": unknown}

    def _explained_variance(self) -> torch.Tensor:
        target, error = self.rows["target"], self.rows["advantage"]  # advantage = target - value
        if "active" in self.rows:
            active = self.rows["active"][: self.T]
            target, error = target[active], error[active]
        return 1 - error.var() / target.var()

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
                f"iteration {iteration}, minibatch {minibatch}: {GUARDED[place]} is not finite; no update was made of it"
            )

    # ---- the policy that was learnt ---------------------------------------------------------------------------------

    @torch.no_grad()
    def act(self, obs: torch.Tensor, greedy: bool = True, member: int = 0, mask: torch.Tensor | None = None):
        """Actions for an environment's `step` from its observations [B, n] or [B, A, n], any B.

        greedy: the likeliest action; otherwise a sample, by torch's generator. The normaliser is only read.
        """
        per_member = self.L // self.config.members
        networks = self.networks.some(member * per_member, per_member)
        x = obs.to(self.device, torch.float32).reshape(-1, self.n)
        x = x if self.normaliser is None else self.normaliser(x)
        if self.config.agent_id:
            x = torch.cat([x, torch.eye(self.A, device=self.device).repeat(len(x) // self.A, 1)], dim=1)
        x = x.view(-1, per_member, x.shape[1]).transpose(0, 1)  # [1 or A, B (x A), n]
        out = networks.actor(x).transpose(0, 1).reshape(-1, self.distribution.outputs)
        free = networks.leaves.get("free")
        if free is not None:
            free = free.repeat(len(out) // len(free), 1)
        mask = None if mask is None else mask.reshape(len(out), -1)
        if greedy:
            action = self.distribution.mode(out, free, mask)
        else:
            words = torch.randint(0, 1 << 24, (len(out), 4 * self.distribution.blocks), device=self.device).int()
            action = self.distribution.sample(out, free, words, mask)[0]
        action = self.distribution.to_environment(action)
        return action.view(*obs.shape[:-1], *action.shape[1:])

    def policy(self, greedy: bool = True, member: int = 0) -> envs.MLP | None:
        """The policy as `env.rollout` takes it; it shares the numbers being trained. None where no kernel carries it."""
        fits = self._plain and self.normaliser is None
        return self._modules(member, greedy) if fits else None

    # ---- state ------------------------------------------------------------------------------------------------------

    def state(self) -> dict:
        """A copy of all that the future depends on: tensors, numbers and strings."""
        state = {
            "iteration": self.iteration,
            "parameters": self.networks.parameters.clone(),
            "optimizer": self.optimizer.state(),
            "clock": self.clock.clone(),
            "count": self.count.clone(),
        }
        for name in ("normaliser", "scale"):
            if getattr(self, name) is not None:
                state[name] = getattr(self, name).state()
        if hasattr(self.env, "state"):
            state["environment"] = self.env.state()
        if not self._in_kernel:
            state |= {name: self.rows[name][self.T].clone() for name in ("raw", "active", "mask") if name in self.rows}
        return state

    def load_state(self, state: Mapping) -> None:
        """Continues, bit for bit, from what `state` gave a run of the same configuration."""
        self.iteration = state["iteration"]
        self.networks.parameters.copy_(state["parameters"])
        self.optimizer.load_state(state["optimizer"])
        self.clock.copy_(state["clock"])
        self.count.copy_(state["count"])
        for name in ("normaliser", "scale"):
            if getattr(self, name) is not None:
                getattr(self, name).load(state[name])
        if "environment" in state:
            self.env.set_state(state["environment"])
        for name in ("raw", "active", "mask"):
            if name in state:
                self.rows[name][self.T].copy_(state[name])


def train(environment, config: Config = CLEANRL, device: torch.device | str = "cpu", **options) -> PPO:
    """`training.train` with this algorithm."""
    return training.train(PPO, environment, config, device, **options)


def main() -> None:
    training.command_line("ppo", PPO, Config, RECIPES, config_of)


if __name__ == "__main__":
    main()
