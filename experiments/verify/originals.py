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
    agents: np.ndarray  # [m, 4, A], as in subjects.Step


@dataclass(frozen=True)
class Played:
    """Episodes under random actions, and what was done in them, one step after the other."""

    lengths: np.ndarray  # [episodes]
    returns: np.ndarray
    states: np.ndarray | None  # [m, k] before each step; None where they were not read
    actions: np.ndarray  # [m, ...]
    playing: np.ndarray | None  # [m, A] of several agents those that acted; None of one
    limit: int | None  # after which the environment itself truncated some episodes, and none was longer


class Team(gymnasium.Env):
    """A parallel environment of PettingZoo as one, in which all agents [A] act and see at once.

    An agent that plays no longer sees and is given 0. Infos have `agents` [4, A], as in `subjects.Step`.
    """

    def __init__(self, env, name: str):
        self.env, self.agents = env, tuple(env.possible_agents)
        self.action_space = together([env.action_space(agent) for agent in self.agents], name)
        shapes = {env.observation_space(agent).shape for agent in self.agents}
        if len(shapes) != 1 or None in shapes:
            raise UserError(f"--original {name!r}: agents must see equally many numbers each")
        self.shape = (len(self.agents), *shapes.pop())
        self.observation_space = Box(-np.inf, np.inf, self.shape)

    @property
    def unwrapped(self):
        return self.env.unwrapped

    @property
    def playing(self) -> np.ndarray:
        return np.array([agent in self.env.agents for agent in self.agents])

    def reset(self, *, seed=None, options=None):
        return self._seen(self.env.reset(seed=seed)[0]), {}

    def step(self, action: np.ndarray):
        acted, chosen = self.playing, zip(self.agents, action, strict=True)
        given = {agent: one if one.ndim else one.item() for agent, one in chosen if agent in self.env.agents}
        observation, *parts, _ = self.env.step(given)
        rows = [[float(part.get(agent, 0)) for agent in self.agents] for part in parts]
        agents = np.where(acted, np.array([*rows, acted], dtype=float), 0.0)
        reward, terminated, truncated = (one[0] for one in subjects.of_episode(agents[None]))
        return self._seen(observation, acted), reward, terminated, truncated, {"agents": agents}

    def _seen(self, observation: dict, acted: np.ndarray | None = None) -> np.ndarray:
        rows = np.zeros(self.shape)
        for i, agent in enumerate(self.agents):
            if agent in observation and (acted is None or acted[i]):
                rows[i] = observation[agent]
        return rows


class Original:
    """An original by its Gymnasium id, or by package.module:function, which returns one.

    Its time limit is told apart (`limit`, None without one): Gymnasium's outermost wrappers are taken off. A state is
    put and read by `set_state(state)` and `get_state()` of the environment within all wrappers where it has these, else
    by its attribute `state`. A parallel environment of PettingZoo has `agents`, their names; () otherwise.

    Raises:
        UserError: there is none such, its actions or observations are of a kind that is not compared.
    """

    def __init__(self, name: str):
        self.name, self.limit, self.over = name, None, True
        env = subjects.function("--original", name)() if ":" in name else made(name)
        if ("pettingzoo", "ParallelEnv") in subjects.bases(env):
            env = Team(env, name)
        if not isinstance(env, gymnasium.Env):
            kinds = "a gymnasium.Env or a ParallelEnv of PettingZoo"
            raise UserError(f"--original {name!r} must make {kinds}, it makes a {type(env).__qualname__}")
        while isinstance(env, TimeLimit | OrderEnforcing | PassiveEnvChecker):
            if isinstance(env, TimeLimit):
                self.limit = env._max_episode_steps
            env = env.env
        self.env, self.space, self.agents = env, env.action_space, env.agents if isinstance(env, Team) else ()
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
        if hasattr(inside, "set_state") and hasattr(inside, "get_state"):
            return True
        return hasattr(inside, "state") and not callable(inside.state)  # which PettingZoo's is

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
        state = inside.get_state() if hasattr(inside, "get_state") else inside.state
        try:
            return np.array(state, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise UserError(f"--original {self.name!r}: its state must be numbers [k]: {error}") from error

    def step(self, action: np.ndarray) -> tuple:
        observation, reward, terminated, truncated, info = self.env.step(action if action.ndim else action.item())
        self.over, one = bool(terminated or truncated), (float(reward), bool(terminated), bool(truncated))
        return flat(observation), *one, info["agents"] if self.agents else np.array([*one, True], dtype=float)[:, None]

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
        lengths, returns, states, actions, playing, cut = [], [], [], [], [], []
        random, longest = np.random.default_rng([seed, 2]), self.limit or HORIZON
        for number in range(episodes):
            self.reset(seed if number == 0 else None)
            total, begun = 0.0, len(actions)
            for action in drawn(self.space, random, longest):
                states += [self.read()] if read else []
                playing += [self.env.playing] if self.agents else []
                actions.append(action)
                _, reward, _, truncated, _ = self.step(action)
                total += reward
                if self.over:
                    break
            lengths.append(len(actions) - begun)
            cut += [lengths[-1]] if truncated else []
            returns.append(total)
        known = np.array(states) if read else None
        limit = cut[0] if len(cut) > 1 and {*cut} == {max(lengths)} else None
        acted = np.array(playing) if self.agents else None
        return Played(np.array(lengths), np.array(returns), known, np.array(actions), acted, limit)


def made(identity: str) -> gymnasium.Env:
    try:
        return gymnasium.make(identity, disable_env_checker=True)
    except gymnasium.error.Error as error:
        raise UserError(f"--original {identity!r}: {' '.join(str(error).split())}") from error


def together(spaces: list, name: str):
    """The space of actions [A, ...] of agents that have these."""
    first, number = spaces[0], len(spaces)
    if all(isinstance(one, Box) and (one.shape, one.dtype) == (first.shape, first.dtype) for one in spaces):
        bounds = (np.stack([getattr(one, end) for one in spaces]) for end in ("low", "high"))
        return Box(*bounds, dtype=first.dtype)
    if all(one == first for one in spaces):
        if isinstance(first, Discrete):
            return MultiDiscrete(np.full(number, first.n), start=np.full(number, first.start))
        if isinstance(first, MultiDiscrete):
            return MultiDiscrete(np.stack([first.nvec] * number), start=np.stack([first.start] * number))
        if isinstance(first, MultiBinary):
            return MultiBinary((number, *first.shape))
    raise UserError(f"--original {name!r}: agents must have equal actions, of numbers, but for their bounds")


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
    return space.start + random.integers(0, space.nvec, (number, *space.shape))


@drawn.register
def _(space: MultiBinary, random: np.random.Generator, number: int) -> np.ndarray:
    return random.integers(0, 2, (number, *space.shape))


@drawn.register
def _(space: Box, random: np.random.Generator, number: int) -> np.ndarray:
    shape = (number, *space.shape)
    if np.isfinite(space.low).all() and np.isfinite(space.high).all():
        return random.uniform(space.low, space.high, shape).astype(space.dtype)
    return np.clip(random.standard_normal(shape), space.low, space.high).astype(space.dtype)
