"""The original: one environment at a time, put into states and stepped from them, or playing episodes of its own.

Axes: m cases, n numbers of an observation, k numbers of a state.
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from lockstep.experiments import UserError
from lockstep.experiments.verify import subjects

HORIZON = 1000  # steps after which an episode is left that has no limit
LOOKED_AT = 100  # states, to see whether steps are random


class Outcome(NamedTuple):
    """The outcome of steps. observation: [m, n] float64; terminated and truncated without the time limit."""

    observation: np.ndarray
    reward: np.ndarray  # [m]
    terminated: np.ndarray  # [m] bool
    truncated: np.ndarray


@dataclass(frozen=True)
class Played:
    """Episodes under random actions, and what was done in them, one step after the other."""

    lengths: np.ndarray  # [episodes]
    returns: np.ndarray
    states: np.ndarray | None  # [m, k] before each step; None where they were not read
    actions: np.ndarray  # [m, ...]


class Original:
    """An original by its Gymnasium id, or by package.module:function, which returns one.

    Its time limit is told apart (`limit`, None without one): Gymnasium's outermost wrappers are taken off. A state is
    put and read by `set_state(state)` and `get_state()` of the environment within all wrappers where it has these, else
    by its attribute `state`.

    Raises:
        UserError: there is none such, its actions or observations are of a kind that is not compared.
    """

    def __init__(self, name: str):
        self.name, self.limit, self.over = name, None, True
        env = subjects.function("--original", name)() if ":" in name else made(name)
        if not isinstance(env, gymnasium.Env):
            raise UserError(f"--original {name!r} must make a gymnasium.Env, it makes a {type(env).__qualname__}")
        while isinstance(env, TimeLimit | OrderEnforcing | PassiveEnvChecker):
            if isinstance(env, TimeLimit):
                self.limit = env._max_episode_steps
            env = env.env
        self.env, self.space = env, env.action_space
        if not isinstance(self.space, Discrete | MultiDiscrete | MultiBinary | Box):
            raise UserError(f"--original {name!r}: actions must be numbers, not {type(self.space).__name__}")
        if not isinstance(env.observation_space, Box | Discrete | MultiDiscrete | MultiBinary):
            seen = type(env.observation_space).__name__
            raise UserError(f"--original {name!r}: observations must be numbers, not {seen}")

    @property
    def keeps_state(self) -> bool:
        """True where its state can be put and read; some have none before the first reset."""
        if self.over:
            self.reset()
        inside = self.env.unwrapped
        return (hasattr(inside, "set_state") and hasattr(inside, "get_state")) or hasattr(inside, "state")

    def actions(self, steps: int, num_envs: int, seed: int) -> np.ndarray:
        """Random ones [steps, num_envs, ...]; those of an environment are the same in any batch."""
        rows = [drawn(self.space, np.random.default_rng([seed, 1, i]), steps) for i in range(num_envs)]
        return np.stack(rows, axis=1)

    def reset(self, seed: int | None = None) -> np.ndarray:
        """A first observation [n]."""
        self.over = False
        return flat(self.env.reset(seed=seed)[0])

    def put(self, state: np.ndarray) -> None:
        if self.over:  # an environment may remember that its episode has ended
            self.reset()
        inside = self.env.unwrapped
        if hasattr(inside, "set_state"):
            inside.set_state(state.copy())
        else:
            inside.state = state.copy()

    def read(self) -> np.ndarray:
        inside = self.env.unwrapped
        return np.array(inside.get_state() if hasattr(inside, "get_state") else inside.state, dtype=np.float64)

    def step(self, action: np.ndarray) -> tuple:
        observation, reward, terminated, truncated, _ = self.env.step(action if action.ndim else action.item())
        self.over = bool(terminated or truncated)
        return flat(observation), float(reward), bool(terminated), bool(truncated)

    def steps(self, states: np.ndarray, actions: np.ndarray) -> Outcome:
        """One step from each state [m, k]."""
        rows = []
        for state, action in zip(states, actions, strict=True):
            self.put(state)
            rows.append(self.step(np.asarray(action)))
        return outcome(rows)

    def repeats(self, states: np.ndarray, actions: np.ndarray) -> bool:
        """Tells of a few states that a step from one leads to the same again."""
        once, again = (self.steps(states[:LOOKED_AT], actions[:LOOKED_AT]) for _ in range(2))
        return all(np.array_equal(one, other, equal_nan=True) for one, other in zip(once, again, strict=True))

    def firsts(self, number: int, seed: int) -> np.ndarray:
        """First observations [number, n]."""
        return np.array([self.reset(seed if i == 0 else None) for i in range(number)])

    def play(self, episodes: int, seed: int, read: bool = False) -> Played:
        """Whole episodes under random actions, without a time limit up to HORIZON steps. read: states as well."""
        lengths, returns, states, actions = [], [], [], []
        random, longest = np.random.default_rng([seed, 2]), self.limit or HORIZON
        for number in range(episodes):
            self.reset(seed if number == 0 else None)
            total, begun = 0.0, len(actions)
            for action in drawn(self.space, random, longest):
                states += [self.read()] if read else []
                actions.append(action)
                total += self.step(action)[1]
                if self.over:
                    break
            lengths.append(len(actions) - begun)
            returns.append(total)
        known = np.array(states) if read else None
        return Played(np.array(lengths), np.array(returns), known, np.array(actions))


def made(identity: str) -> gymnasium.Env:
    try:
        return gymnasium.make(identity, disable_env_checker=True)
    except gymnasium.error.Error as error:
        raise UserError(f"--original {identity!r}: {' '.join(str(error).split())}") from error


def flat(observation: np.ndarray) -> np.ndarray:
    """A copy, since some originals return their own state."""
    return np.array(observation, dtype=np.float64).reshape(-1)


def outcome(rows: list[tuple]) -> Outcome:
    return Outcome(*map(np.array, zip(*rows, strict=True)))


@functools.singledispatch
def drawn(space, random: np.random.Generator, number: int) -> np.ndarray:
    """Random actions [number, ...] of a space; of a Box without bounds normal ones."""
    raise TypeError(type(space))


@drawn.register
def _(space: Discrete, random: np.random.Generator, number: int) -> np.ndarray:
    return random.integers(space.start, space.start + space.n, number)


@drawn.register
def _(space: MultiDiscrete, random: np.random.Generator, number: int) -> np.ndarray:
    return random.integers(0, space.nvec, (number, *space.shape))


@drawn.register
def _(space: MultiBinary, random: np.random.Generator, number: int) -> np.ndarray:
    return random.integers(0, 2, (number, *space.shape))


@drawn.register
def _(space: Box, random: np.random.Generator, number: int) -> np.ndarray:
    shape = (number, *space.shape)
    if np.isfinite(space.low).all() and np.isfinite(space.high).all():
        return random.uniform(space.low, space.high, shape).astype(space.dtype)
    return np.clip(random.standard_normal(shape), space.low, space.high).astype(space.dtype)
