"""The settings of PPO, and its recipes by name."""

import dataclasses
from dataclasses import dataclass

from lockstep.agents.parts import distributions, graphs
from lockstep.agents.parts.precision import PRECISIONS
from lockstep.agents.run.config import Settings, require_iteration, setting

AUTO = ("auto", "torch", "kernel")


@dataclass(frozen=True)
class Config(Settings):
    """The settings of a run; with the environment's name it determines every number of it."""

    seed: int = setting(0, "of everything; member m has seed + m", least=0, most=2**63 - 1)
    horizon: int = setting(128, "T, steps of each environment per iteration", least=1)
    epochs: int = setting(4, "passes over a batch", least=1)
    minibatches: int = setting(4, "equal parts of each pass", least=1)
    lr: float | tuple[float, ...] = setting(2.5e-4, "learning rate, one or one per member", least=0)
    critic_lr: float | None = setting(None, "learning rate of the critic; None: the same", least=0)
    anneal_lr: bool = setting(True, "let learning rates fall linearly to 0")
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
    target_kl: float | None = setting(None, "skip the rest of an iteration's updates above this KL divergence", least=0)
    log_std: float = setting(0.0, "first logarithm of a continuous action's standard deviation")
    squash: str = setting(
        "clip", "what brings the numbers of a Gaussian into the bounds of a Box", choices=distributions.SQUASHES
    )
    reward_scale: float = setting(1.0, "factor on every reward")
    bootstrap: bool = setting(True, "value of the last observation where an episode was truncated (off: as CleanRL)")
    joint: bool = setting(False, "one policy of all agents together, whose action is all of theirs (off: of each)")
    groups: bool = setting(
        False, "a joint action has numbers that whole groups of it share, as the environment's action_groups say"
    )
    group_log_std: float = setting(0.0, "first logarithm of the standard deviation of what groups share")
    actors: str = setting(
        "one",
        "of a joint policy: one network for all agents, or one for each, beside one critic, as in MAPPO",
        choices=("one", "each"),
    )
    precision: str = setting("fp32", "of the networks' matrix products", choices=PRECISIONS)
    rollout: str = setting("auto", "policy in torch, or in the environment's kernel where it fits", choices=AUTO)
    gradient: str = setting(
        "auto", "automatic differentiation, or the C++ kernel", choices=("auto", "autograd", "kernel")
    )
    graph: str = setting("auto", "CUDA graphs", choices=graphs.CHOICES)
    population: int = setting(1, "members trained side by side, each with its part of the environments", least=1)
    shards: int | None = setting(None, "parts of the batch with gradients of their own; None: one per process", least=1)

    def __post_init__(self):
        super().__post_init__()
        for name in ("lr", "gamma", "ent_coef"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.population:
                raise ValueError(
                    f"{name} has {len(value)} values; population={self.population} needs one, or one for each"
                )
        if self.groups and not self.joint:
            raise ValueError("groups=True needs joint=True")
        if self.actors == "each" and not self.joint:
            raise ValueError("actors='each' needs joint=True: without it agents share one network")
        if self.num_envs % self.population:
            raise ValueError(f"num_envs={self.num_envs} must be divisible by population={self.population}")
        if self.population > 1 and (self.shards or 1) > 1:
            raise ValueError(f"shards={self.shards} needs population=1, not {self.population}")
        if self.num_envs % (self.shards or 1):
            raise ValueError(f"num_envs={self.num_envs} must be divisible by shards={self.shards}")
        require_iteration(self)


CLEANRL = Config()
WIDE = dataclasses.replace(CLEANRL, num_envs=8192, horizon=32, total_steps=50_000_000, lr=2.5e-3, clip_value=False)
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
    "wide": WIDE,
    "single": dataclasses.replace(WIDE, hidden=(64,), epochs=1),
}
