"""Settings, iteration, log and state of algorithms that learn from a replay.

One iteration is a few steps of B environments, which go into the replay, and the updates that are due for them. The
host does not wait for its device between two rows of the log. In one process on a GPU each of the two is a captured
graph.
"""

import dataclasses
import functools
import itertools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from lockstep.agents.run import contract, log, observation
from lockstep.agents.run.config import Settings, require_iteration, setting
from lockstep.agents.run.environment import of_run
from lockstep.agents.run.ranks import Ranks

from . import graphs, mlp, precision
from .adam import Adam
from .encoder import ENCODINGS, Encoder
from .normaliser import Normaliser
from .replay import Replay
from .transitions import Transitions

APART = 2_654_435_761  # between seeds of processes; torch's generator on the CPU heeds 32 bits of one
AT_ONCE = 64  # the most updates whose rows are drawn together


@dataclass(frozen=True)
class OffPolicySettings(Settings):
    """The settings that these algorithms share."""

    num_envs: int = setting(64, "B, environments", least=1)
    horizon: int = setting(1, "steps of each environment per iteration", least=1)
    total_steps: int = setting(32_768, "environment steps of the whole run, rounded down to iterations", least=1)
    capacity: int = setting(100_000, "transitions that the replay holds, over all processes", least=1)
    save_replay: bool = setting(True, "keep the replay in checkpoints (off: a run that goes on fills it anew)")
    limit_ends: bool = setting(False, "what a limit of time ends counts as terminated, as in some published code")
    learning_starts: int = setting(1_000, "environment steps before the first update", least=0)
    replay_ratio: float = setting(0.25, "updates per environment step; what is left over is carried on", least=0)
    batch_size: int = setting(256, "transitions of an update, over all processes", least=1)
    gamma: float = setting(0.99, "discount", least=0, most=1)
    n_step: int = setting(1, "steps whose rewards a target adds up, fewer at an episode's end", least=1)
    lr: float = setting(1e-3, "learning rate", least=0)
    max_grad_norm: float = setting(10.0, "limit of the norm of a network's gradient", least=0)
    hidden: tuple[int, ...] = setting((128, 128), "widths of the ReLU layers", least=1)
    encoding: str = setting(
        "flat",
        "the first layer: of all numbers of an observation, of each object of a part alike, or of each part",
        choices=ENCODINGS,
    )
    reward_scale: float = setting(1.0, "factor on every reward that is learnt from")
    raw_obs: bool = setting(
        False, "numbers that are encoded are not divided by their scales, as in some published code"
    )
    norm_obs: bool = setting(False, "normalise observations by their running mean and variance")
    epsilon_start: float = setting(1.0, "share of random actions at first", least=0, most=1)
    epsilon_end: float = setting(0.0, "share of random actions at last", least=0, most=1)
    epsilon_steps: int = setting(2_048, "environment steps over which it falls linearly", least=0)
    eval_every: int = setting(4096, "environment steps between checks, which --stop-at asks for", least=1)
    precision: str = setting("fp32", "of the networks' matrix products", choices=precision.PRECISIONS)
    graph: str = setting("auto", "CUDA graphs", choices=graphs.CHOICES)

    def __post_init__(self):
        super().__post_init__()
        require_iteration(self)
        if self.norm_obs and self.encoding != "flat":
            raise ValueError(
                f"norm_obs=True needs encoding='flat', not {self.encoding!r}: parts have scales of their own"
            )


def whole(number: float) -> float:
    """The nearest whole number, where rounding alone tells it from this one; otherwise the number itself."""
    return round(number) if math.isclose(number, round(number), rel_tol=1e-9) else number


def never(epsilon: float | torch.Tensor) -> bool:
    """Tells that a share of random actions is 0, as far as the host knows: of a graph it does not."""
    return not isinstance(epsilon, torch.Tensor) and epsilon == 0


class OffPolicy(ABC):
    """Parts of a run, as `run/algorithm.py` describes one, that its settings and the iteration decide."""

    name: ClassVar[str]
    Config: ClassVar[type[OffPolicySettings]]
    COLUMNS: ClassVar[tuple[str, ...]]  # the last is epsilon
    config: OffPolicySettings  # and `tau`, the share of the way that target networks go
    iteration: int
    transitions: Transitions
    normaliser: Normaliser | None
    replay: Replay
    generator: torch.Generator
    every: float  # between changes of the target networks, of what `_counted` counts
    now: Mapping[str, Sequence[float] | torch.Tensor]  # `scheduled`; tensors where phases are captured

    def begin(self, environment, config: OffPolicySettings, device: torch.device | str) -> None:
        """Takes settings and device, and makes the environment or takes it as it was given.

        Raises:
            ValueError: naming the field, its value and what is allowed.
        """
        if not isinstance(config, self.Config):
            raise ValueError(
                f"config must be a {self.name}.Config, as {self.name}.config_of makes it, not a {type(config).__name__}"
            )
        self.config, self.ranks = config, Ranks(device)
        self.device, size, rank = self.ranks.device, self.ranks.size, self.ranks.rank
        for field in ("num_envs", "batch_size"):
            if getattr(config, field) % size:
                raise ValueError(
                    f"{field}={getattr(config, field)} must be divisible by the number of processes, {size}"
                )
        precision.require(config.precision, self.device)
        self.batch_size, self.capacity = config.batch_size // size, config.capacity // size
        options = {"threads": config.threads, "seed": config.seed, "first_index": rank * (config.num_envs // size)}
        options |= {"named": config.options, "whole": config.num_envs}
        self.env = of_run(environment, config.num_envs // size, self.device, **options)
        contract.require_all_used(self.env)
        shaped = config.limit_ends, config.reward_scale, options["first_index"]
        self.transitions = Transitions(self.env, config.seed, self.device, *shaped)
        n = self.env.single_observation_space.shape[-1]
        self.normaliser = Normaliser(n, device=self.device) if config.norm_obs else None
        self.generator = torch.Generator(self.device).manual_seed((config.seed + APART * rank) % 2**63)

    def encoder(self, width: int, seed: int) -> Encoder | None:
        """The first layer that `encoding` asks for, of so many features; None: one of all numbers alike.

        seed: of the network whose first layer it is.

        Raises:
            ValueError: the environment does not say what its observations are made of, or the width does not fit.
        """
        encoding = self.config.encoding
        if encoding == "flat":
            return None
        parts = observation.parts_of(self.env)
        if not parts:
            raise ValueError(
                f"encoding={encoding!r} needs an environment that says what its observations are made of "
                f"(agents/README.md); {type(self.env).__name__} does not, so it must be 'flat'"
            )
        return Encoder(parts, width, encoding == "objects", self.config.raw_obs, self.device, mlp.seeds(seed, 1)[0])

    def require_capacity(self, n_step: int) -> None:
        """Raises ValueError where a replay of several steps' rows would lose them before they are used."""
        least = 2 * n_step * self.transitions.N
        if self.capacity < least:
            raise ValueError(f"capacity={self.capacity} must be at least 2 x n_step x rows of a step = {least}")

    def ready(self) -> None:
        """Sets sums and counts to zero, and the phases of an iteration, which it captures on a GPU.

        It comes last: a subclass makes before what its phases need.

        Raises:
            ValueError: phases cannot be captured, and have to.
            MemoryError: a run that learns has no room for its replay.
        """
        config = self.config
        if config.replay_ratio:
            self.replay.require_memory()
        self.iterations = config.total_steps // (config.num_envs * config.horizon)
        self.iteration = 0
        self.now = self.scheduled()
        self._empty_at = 0  # environment steps when the replay was empty
        self._owed = 0.0  # updates that are due and no whole one yet
        # Over updates: COLUMNS but for epsilon, their number, and that of gradients that are not finite.
        self._sums = torch.zeros(len(self.COLUMNS) + 1, dtype=torch.float64, device=self.device)
        self.phases: dict[str, Callable[[], None]] = {"rollout": self._rollout, "update": self._update}
        self._captured = graphs.wanted(config.graph, self.device, self.ranks.size, self.env)
        if self._captured and self.uneven:
            if config.graph == "on":
                raise ValueError(f"graph='on': {self.uneven}")
            warnings.warn(f"graph='auto' makes no CUDA graphs: {self.uneven}", stacklevel=2)
            self._captured = False
        if self._captured:
            self._capture()

    def _capture(self) -> None:
        """Replaces the phases by CUDA graphs of themselves, and leaves no other trace."""
        before = self.state(replay=False)
        given = {"dtype": torch.float64, "device": self.device}
        self.now = {name: torch.tensor(numbers, **given) for name, numbers in self.scheduled().items()}
        phases = self.phases if self.due else {"rollout": self._rollout}
        self.phases = self.phases | graphs.captured(phases, self.device, [self.generator])
        self.load_state(before)
        self._sums.zero_()
        self.transitions.statistics()  # forgets the episodes of the capture

    @functools.cached_property
    def due(self) -> float:
        """Updates per iteration, on average."""
        return whole(self.config.replay_ratio * self.config.num_envs * self.config.horizon)

    @functools.cached_property
    def chunk(self) -> int:
        """Updates whose rows are drawn together, a divisor of those of every iteration."""
        if self.due % 1:
            return 1
        return next((count for count in range(min(self.at_once, self.due), 0, -1) if self.due % count == 0), 0)

    @property
    def at_once(self) -> int:
        """The most updates whose rows are drawn together."""
        return AT_ONCE

    @property
    def uneven(self) -> str:
        """The reason for which chunks of updates differ, so that no graph does for all; empty where all are alike."""
        return ""

    def scheduled(self) -> dict[str, list[float]]:
        """Numbers of the next iteration that are not those of every iteration: epsilon, of each step."""
        steps = range(self.env_steps, self.env_steps + self.config.num_envs * self.config.horizon, self.config.num_envs)
        return {"epsilon": [self.epsilon(number) for number in steps]}

    @abstractmethod
    def state(self, replay: bool | None = None) -> dict:
        """As `run/algorithm.py` says; replay: as `gathered` takes it."""

    @abstractmethod
    def _rollout(self) -> None:
        """Steps of all environments into the replay."""

    @abstractmethod
    def _acted(self, rows: torch.Tensor, epsilon: float | None) -> torch.Tensor:
        """The environment's actions [N, ...] by rows [N, n] as networks see them.

        epsilon: share of random ones among those drawn, by torch's generator; None: greedy.
        """

    @abstractmethod
    def _updates(self, count: int) -> None:
        """Gradient steps, each on rows of its own, and their sums."""

    @abstractmethod
    def _counted(self, updates: int) -> tuple[int, int]:
        """The count that `every` is in, before and after so many updates, which are all of this iteration."""

    @abstractmethod
    def _followed_by(self) -> Iterable[tuple[mlp.Network, mlp.Network]]:
        """Networks that target networks follow, each with its own."""

    def iterate(self) -> None:
        """Steps of all environments, then the updates due for them; on CUDA the host waits for none of them."""
        self._schedule()
        self.phases["rollout"]()
        updates = 0
        if self._learns_at(self.env_steps + self.config.num_envs * self.config.horizon):
            self._owed = whole(self._owed + self.due)
            updates = math.floor(self._owed)
            self._owed -= updates
        self._learn_all(updates)
        self.iteration += 1

    @torch.no_grad()
    def _learn_all(self, updates: int) -> None:
        """So many updates, chunk by chunk, and the changes of target networks that are due after each chunk."""
        chunks = updates // max(self.chunk, 1)
        first, last = self._counted(updates)
        places = [first + (last - first) * number / max(chunks, 1) for number in range(max(chunks, 1) + 1)]
        for before, now in itertools.pairwise(places):
            if chunks:
                self._learn_chunk()
            if self._moves_between:
                self._move_targets(self._moves(before, now))

    def _moves(self, before: float, now: float) -> int:
        """Changes of target networks that are due between two numbers of what `every` counts."""
        return int(now // self.every - before // self.every)

    @property
    def _moves_between(self) -> bool:
        """True where target networks change after a chunk of updates, not within it."""
        return True

    def _move_targets(self, times: int) -> None:
        """Has target networks follow so many times."""
        if times:
            share = self.config.tau if times == 1 else 1 - (1 - self.config.tau) ** times
            for network, target in self._followed_by():
                target.parameters.lerp_(network.parameters, share)

    def _learns_at(self, env_steps: int) -> bool:
        """Tells whether there are updates after so many steps: earlier than n_step steps no row has its return."""
        config = self.config
        return env_steps - self._empty_at >= max(config.learning_starts, config.n_step * config.num_envs)

    def _learn_chunk(self) -> None:
        """The updates of a chunk."""
        self.phases["update"]()

    def seen(self, obs: torch.Tensor) -> torch.Tensor:
        """Observations [N, n] as networks take them."""
        return obs if self.normaliser is None else self.normaliser(obs)

    def seen_in(self, rows: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Rows of the replay with their observations as networks take them, next ones being 0 where the discount is."""
        over = rows["discount"].unsqueeze(1) == 0  # after which an observation may be anything
        return {**rows, "obs": self.seen(rows["obs"]), "next_obs": self.seen(rows["next_obs"]).masked_fill(over, 0.0)}

    def step(self, action: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor | None]:
        """One step of all environments, as `Transitions.step` says; the normaliser takes its observations in."""
        rows, valid = self.transitions.step(action)
        if self.normaliser is not None:
            self.normaliser.update(rows["obs"], valid, self.ranks.reduce)
        return rows, valid

    def _schedule(self) -> None:
        """Puts numbers of this iteration where its phases read them."""
        numbers = self.scheduled()
        if not self._captured:
            self.now = numbers
            return
        for name, places in self.now.items():
            for place, number in zip(places, numbers[name], strict=True):
                place.fill_(number)

    @torch.no_grad()
    def _update(self):
        self._updates(self.chunk)

    def bootstrapped(self, rows: Mapping[str, torch.Tensor], value: torch.Tensor) -> torch.Tensor:
        """Targets [k, *]: reward + discount * value [k, *] of next_obs."""
        return torch.addcmul(rows["reward"].unsqueeze(1), rows["discount"].unsqueeze(1), value)

    def _tell(self, means: Sequence[torch.Tensor], norms: torch.Tensor) -> None:
        """Takes updates into the sums: means [] of the COLUMNS before the norm, and norms of gradients [count]."""
        bad = (norms < math.inf).logical_not().float().mean()
        told = torch.stack([*means, norms.mean(), torch.ones_like(bad), bad])
        self._sums.add_(told, alpha=len(norms))

    def statistics(self) -> dict[str, float]:
        """Episodes and COLUMNS since the last call, means over updates; waits for the device.

        Raises:
            FloatingPointError: a gradient was not finite.
        """
        means = self._sums[:-2] / self._sums[-2]
        *told, updates, bad = torch.cat([self.transitions.statistics(), means, self._sums[-2:]]).tolist()
        self._sums.zero_()
        log.require_finite(self.iteration - 1, updates, bad)
        return dict(zip((*log.OF_EPISODES, *self.COLUMNS), (*told, self.epsilon(self.env_steps)), strict=True))

    @torch.no_grad()
    def act(
        self,
        obs: torch.Tensor,
        greedy: bool = True,
        active: torch.Tensor | None = None,
        epsilon: float | None = None,
    ) -> torch.Tensor:
        """Actions for an environment's `step` from its observations [B, n] or [B, A, n], any B.

        Args:
            greedy: what is best, without noise; otherwise as the run explores in the end, by torch's generator.
            active: bool [B] or [B, A], who acts; the others' actions are 0. None: all.
            epsilon: share of random actions where they are not greedy; None: epsilon_end.

        Raises:
            ValueError: observations, or flags, of another shape; epsilon is no share, or actions are greedy.
        """
        obs = contract.observed(self.env, obs).to(self.device, torch.float32)
        if epsilon is not None:
            share = isinstance(epsilon, int | float) and not isinstance(epsilon, bool) and 0 <= epsilon <= 1
            if greedy or not share:
                raise ValueError(f"epsilon={epsilon!r:.60} must lie in [0, 1], with greedy=False")
        elif not greedy:
            epsilon = self.config.epsilon_end
        action = contract.taken(self.env, self._acted(self.seen(obs.reshape(-1, obs.shape[-1])), epsilon))
        return contract.of_active(action.view(*obs.shape[:-1], *action.shape[1:]), active, obs)

    def epsilon(self, env_steps: int) -> float:
        """The share of random actions after so many steps of all environments."""
        start, end, steps = self.config.epsilon_start, self.config.epsilon_end, self.config.epsilon_steps
        return end if env_steps >= steps else start + (end - start) * env_steps / steps

    @property
    def env_steps(self) -> int:
        return self.iteration * self.config.num_envs * self.config.horizon

    @property
    def learns(self) -> bool:
        return self._learns_at(self.env_steps)

    def optimizer(self, parameters: torch.Tensor, gradient: torch.Tensor) -> Adam:
        """Adam along gradients that are means over all processes."""
        return Adam(parameters, gradient, self.config.max_grad_norm, average=self.ranks.average)

    def policy(self, greedy: bool = True) -> None:
        """None: no kernel carries it."""
        return None

    def gathered(self, replay: bool | None) -> dict:
        """A copy of where the run stands and of what it has gathered: a part of `state()`.

        replay: whether the replay is in it; None: as the config says.
        """
        state = {"iteration": self.iteration, "generator": self.generator.get_state(), "empty_at": self._empty_at}
        state |= {"device": self.device.type}  # which decides what a generator's state is
        state |= {"transitions": self.transitions.state()} | ({"owed": float(self._owed)} if self.due % 1 else {})
        state |= {"replay": self.replay.state()} if (self.config.save_replay if replay is None else replay) else {}
        return state | ({"environment": self.env.state()} if hasattr(self.env, "state") else {})

    def load_gathered(self, state: Mapping) -> None:
        """Goes on from a `gathered()`; where that has no replay, from an empty one.

        The generator of a run on another kind of device has no meaning here: this run's own, of its seed, stays.

        Raises:
            ValueError: the environment has no state, or refuses it.
        """
        if "environment" not in state:
            raise ValueError(f"{type(self.env).__name__} has no state() and set_state(), so a run cannot be continued")
        self.env.set_state(state["environment"])
        self.transitions.load_state(state["transitions"])
        drawn, kind = state["generator"], state.get("device")
        if kind == self.device.type or (kind is None and drawn.shape == self.generator.get_state().shape):  # older ones
            self.generator.set_state(drawn)
        if self.normaliser is not None:
            self.normaliser.load_state(state["normaliser"])
        self.iteration, self._empty_at, self._owed = state["iteration"], state["empty_at"], state.get("owed", 0.0)
        if "replay" in state:
            self.replay.load_state(state["replay"])
        else:
            self.replay.clear()
            self._empty_at = self.env_steps

    @staticmethod
    def to_act(config: OffPolicySettings) -> OffPolicySettings:
        """Settings of a run with the same weights, as small as can be, that is to act on the CPU and not to learn."""
        small = {"num_envs": 1, "horizon": 1, "replay_ratio": 0.0, "batch_size": 1, "threads": 1}
        small |= {"graph": "off", "precision": "fp32"}
        return dataclasses.replace(config, **small)

    @staticmethod
    def torch_threads(config: OffPolicySettings) -> int:
        """All where an update multiplies large matrices; else there is no work for them."""
        return 1 if mlp.small(config.batch_size, config.hidden) else config.threads
