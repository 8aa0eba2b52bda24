"""A port compared with its original by nothing but the fields that it declares: transitions, episodes, distributions.

`original.py` gives make(seed, index, scenario, **options), get_state and set_state of all fields by name, and draws its
noise as the port does, so that each of a port's steps can be made again. An error is abs(a - b) / max(1, abs a, abs b),
of an angle the shorter way round the circle. Axes: B environments, A agents, n cases.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch

from lockstep import envs
from lockstep.experiments import config, originals
from lockstep.experiments.bench.rungs import random_actions
from lockstep.experiments.config import ConfigError, Settings, nearest
from lockstep.experiments.verdicts import Comparison, alike, equal, row, within

DTYPES = {"float32": 1e-5, "float64": 1e-10}  # and tolerances where the YAML has none
ROUNDED = 1.2e-7  # least tolerance of what is float32 in every build,
SHOWN = ("observation", "reward")  # which are these
FLAGS = ("terminated", "truncated")
OUTCOME = (*SHOWN, *FLAGS, "episode over")
CLOCK = ("elapsed", "episode", "scenario", "active")  # beside the fields; the latter two where there are such
BATCH, APART = 16, 7  # environments that visit states, and steps between two visits; prime to most limits
DIGITS = 5  # of returns, of the largest: sums in float32 and in float64 then tie where they are of equal rewards


def plan(name: str, settings: Settings, devices: list[str]) -> dict[str, Comparison]:
    """Every comparison that can be made here, by name."""
    walk, found = Walk(name, settings), {}

    def add(compare: Callable, *arguments: str, start: Callable | None = None):
        label = " ".join([compare.__name__.replace("_", " "), *arguments])
        found[label] = Comparison(functools.partial(compare, walk, *arguments), start)

    for device, dtype in itertools.product(devices, DTYPES):
        for visitor in ("port", "original"):
            add(transition, device, dtype, visitor)
        add(episode, device, dtype)
    for device in devices:
        add(distribution, device, start=lambda: walk.own_episodes)
    for dtype in DTYPES if "cuda" in devices else ():
        add(devices_agree, dtype)
    return found


class Walk:
    """An environment as the settings ask for it, in all its forms."""

    def __init__(self, name: str, settings: Settings):
        self.name, self.seed, self.asked = name, settings.seed, settings.correctness
        self.port, self.module = envs.port(name), envs.original(name)
        self.options = dict(self.asked.get("options", {}))
        where = f"{config.shown(config.file_of(name))}: correctness"
        config.check_options(f"{where}.options", self.options, self.port)
        self.one = envs.make(name, 1, seed=self.seed, **self.options)
        self.one.reset()
        self.declared = self.port.fields(self.one.params)
        known = [*self.declared, *SHOWN, "default"]
        for dtype, tolerances in self.asked.get("tolerances", {}).items():
            for field in tolerances:
                if field not in known:
                    raise ConfigError(f"{where}.tolerances.{dtype}: unknown field {field!r}{nearest(field, known)}")

    def tolerance(self, dtype: str, field: str) -> float:
        given = self.asked.get("tolerances", {}).get(dtype, {})
        default = given.get("default", DTYPES[dtype])
        return given.get(field, max(default, ROUNDED) if field in SHOWN else default)

    def batch(self, num_envs: int, device: str, dtype: str = "float32", mode: str = "Disabled", seed: int = 0):
        given = {"dtype": dtype, "autoreset_mode": mode, "seed": self.seed + seed, "check_actions": False}
        env = envs.make(self.name, num_envs, device=device, **given, **self.options)
        env.reset()
        return env

    def games(self, num_envs: int) -> list["Game"]:
        """Originals of the indices 0, 1, ..., at the start of episode 0."""
        return [
            Game(envs.make_original(self.name, seed=self.seed, index=i, **self.given), self.port.agents, self.seed)
            for i in range(num_envs)
        ]

    @functools.cached_property
    def given(self) -> dict:
        """Options as the original takes them: preset, parameters, and the pool that options of the port's own made."""
        found = {name: value for name, value in self.options.items() if name not in self.port.own_options}
        if "scenario" in self.one.state():
            found["scenario"] = list(getattr(self.one, "scenarios", range(self.one._world.scenarios)))
        return found

    @functools.cached_property
    def own_episodes(self) -> Callable:
        """Has the original play its episodes, on all cores, and does not wait."""
        same = {"name": self.name, "seed": self.seed, "options": self.given}
        return originals.on_all_cores(episodes, np.arange(self.asked.episodes), **same)

    # ---- states, and steps from them ----------------------------------------------------------------------------

    def of_port(self, env) -> dict[str, np.ndarray]:
        """Fields and clock of a batch, [B, ...]."""
        whole = env.state()
        rows = env.fields() | {key: whole[key] for key in CLOCK if key in whole}
        return {name: on_host(value) for name, value in rows.items()}

    def of_originals(self, games: Sequence["Game"]) -> dict[str, np.ndarray]:
        states = [self.module.get_state(game.original) for game in games]
        return {name: np.stack([np.asarray(state[name]) for state in states]) for name in self.names}

    @functools.cached_property
    def names(self) -> list[str]:
        return list(self.of_port(self.one))

    def step_port(self, env, action: np.ndarray, before: Mapping | None = None) -> dict[str, np.ndarray]:
        """The outcome of a step, from where the batch is or from given states that have not ended."""
        if before is not None:
            flags = {key: torch.zeros_like(value) for key, value in env.state().items() if key in (*FLAGS, "ended")}
            env.set_state(dict(before) | flags)
        *outputs, info = env.step(torch.from_numpy(action).to(env.device))
        shown = dict(zip(OUTCOME, map(on_host, (*outputs, info["_final_obs"])), strict=True))
        return self.of_port(env) | shown

    def step_originals(self, games: Sequence["Game"], action: np.ndarray, before: Mapping | None = None) -> dict:
        """The same of originals."""
        rows = []
        for i, game in enumerate(games):
            if before is not None:
                game.restart()
                self.module.set_state(game.original, {name: value[i] for name, value in before.items()})
            rows.append(game.step(action[i]))
        columns = (np.stack(column) for column in zip(*rows, strict=True))
        return self.of_originals(games) | dict(zip(OUTCOME, columns, strict=True))

    def kept(self, states: Mapping, dtype: str) -> dict[str, np.ndarray]:
        """States as a batch of that type holds them, so that every form starts from the same numbers."""
        real = {name for name, field in self.declared.items() if field.dtype == "real"}
        return {name: value.astype(dtype) if name in real else value for name, value in states.items()}

    # ---- how far two forms are apart ----------------------------------------------------------------------------

    def errors(self, name: str, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """Largest error of each case [n], of what is no float 0 or infinity; equal infinities are no error, NaN is."""
        exact = ours.dtype.kind != "f"
        ours, theirs = (value.astype(float).reshape(len(ours), -1) for value in (ours, theirs))
        with np.errstate(invalid="ignore"):
            apart = np.abs(ours - theirs)
            if name in self.declared and self.declared[name].angle:
                found = np.abs(apart - 2 * np.pi * np.round(apart / (2 * np.pi)))
            else:
                found = apart / np.maximum(np.maximum(np.abs(ours), np.abs(theirs)), 1)
        found = np.where(ours == theirs, 0.0, np.inf if exact else found)
        return found.max(axis=1, initial=0.0)

    def compared(self, place: tuple, label: str, ours: Mapping, theirs: Mapping) -> Iterator[dict]:
        """Rows for everything that a step leads to, [n, ...] each."""
        for name, value in ours.items():
            found = self.errors(name, value, theirs[name])
            if value.dtype.kind == "f":
                yield within(place, f"{name} ({label})", found, self.tolerance(place[-1], name))
            else:
                yield equal(place, f"{name} ({label})", found > 0)


class Game:
    """An original of one agent or of several, which is stepped alike; who has finished sees and gets nothing."""

    def __init__(self, original, agents: Sequence[str], seed: int):
        self.original, self.agents, self.over = original, agents, False
        original.reset(seed=seed)
        self.space = original.action_space(agents[0]) if agents else original.action_space

    def step(self, action: np.ndarray) -> tuple:
        """Observation, reward, terminated, truncated, of agents [A, ...] each, and whether the episode is over."""
        if not self.agents:
            observation, reward, *flags, _ = self.original.step(action if action.shape else action.item())
            self.over = bool(any(flags))
            return np.asarray(observation), float(reward), *map(bool, flags), self.over
        given = {agent: one if one.shape else one.item() for agent, one in zip(self.agents, action, strict=True)}
        found = self.original.step({agent: given[agent] for agent in self.original.agents})
        self.over = not self.original.agents
        nothing = (np.zeros(self.original.observation_space(self.agents[0]).shape), 0.0, False, False)
        columns = zip(found[:4], nothing, strict=True)
        return *(np.stack([part.get(agent, none) for agent in self.agents]) for part, none in columns), self.over

    def restart(self):
        """The next episode, where this one is over."""
        if self.over:
            self.original.reset()
        self.over = False


def on_host(value: torch.Tensor) -> np.ndarray:
    return value.cpu().numpy().copy()


def joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


# ---- the comparisons ---------------------------------------------------------------------------------------------


def transition(walk: Walk, device: str, dtype: str, visitor: str) -> Iterator[dict]:
    """One step of both forms from the states that one of them visits under the random policy."""
    B = min(walk.asked.states, BATCH)
    env, visiting = walk.batch(B, device, dtype), walk.batch(B, device, dtype, "SameStep")
    games, ours, theirs = walk.games(B), [], []
    for _ in range(-(-walk.asked.states // B)):
        for actions in map(on_host, visiting.random_actions(APART) if visitor == "original" else ()):
            for game, action in zip(games, actions, strict=True):
                game.restart()
                game.step(action)
        visiting.rollout(APART)  # with it the clock that the actions follow
        for game in games:
            game.restart()
        before = walk.of_port(visiting) if visitor == "port" else walk.kept(walk.of_originals(games), dtype)
        action = on_host(visiting.random_actions()[0])
        ours.append(walk.step_port(env, action, before))
        theirs.append(walk.step_originals(games, action, before))
    place, label = ("transition", "original-port", device, dtype), f"states of the {visitor}"
    yield from walk.compared(place, label, joined(ours), joined(theirs))
    over = joined(theirs)["episode over"]
    yield row(place, f"steps that end an episode ({label})", len(over), None, value=float(over.sum()))


def episode(walk: Walk, device: str, dtype: str) -> Iterator[dict]:
    """Episodes of one seed from reset to end, of which the original repeats the port's actions: do they come apart?

    In float32 that is told and not judged, for rounding alone may decide what ends an episode.
    """
    place, n = ("episode", "original-port", device, dtype), walk.asked.episodes
    env, games = walk.batch(n, device, dtype), walk.games(n)
    yield from walk.compared(place, "after a reset", walk.of_port(env), walk.of_originals(games))
    first, running, t = np.full(n, np.inf), np.arange(n), 0
    while len(running):
        t += 1
        action = on_host(env.random_actions()[0])
        ours = {name: value[running] for name, value in walk.step_port(env, action).items()}
        theirs = walk.step_originals([games[i] for i in running], action[running])
        for name, value in ours.items():
            apart = ~(walk.errors(name, value, theirs[name]) <= walk.tolerance(dtype, name))
            first[running[apart]] = np.minimum(first[running[apart]], t)
        running = running[~(ours["episode over"] | theirs["episode over"])]
    parted = first[np.isfinite(first)]
    passed = None if dtype == "float32" else not len(parted)
    yield row(place, "episodes that come apart", n, passed, differing=len(parted), allowed=0)
    if len(parted):
        median, low, high = np.percentile(parted, [50, 5, 95])
        quantity = "first step more than the tolerance apart: median, 5th and 95th percentile"
        yield row(place, quantity, len(parted), None, value=median, low=low, high=high)


def distribution(walk: Walk, device: str) -> Iterator[dict]:
    """Lengths and returns of as many episodes of the port and of the original, each on its own random numbers."""
    env = walk.batch(walk.asked.episodes, device, seed=1)
    for _ in range(env.max_episode_steps):
        if env.step(env.random_actions()[0])[-1]["_final_obs"].all():
            break
    theirs = dict(zip(("length", "return"), walk.own_episodes(), strict=True))
    for name, original in theirs.items():
        ours = on_host(env.state()[f"episode_{name}"]).astype(float)
        unit = max(np.abs(ours).max(), np.abs(original).max()) / 10**DIGITS or 1.0
        rounded = [np.round(values / unit) * unit for values in (ours, original)]
        place = ("distribution", "original-port", device, "float32")
        yield alike(place, f"{name} of an episode, random policy", *rounded)


def episodes(indices: np.ndarray, *, name: str, seed: int, options: Mapping) -> tuple[np.ndarray, np.ndarray]:
    """Lengths and returns, the mean of the agents', of an episode of each index under actions drawn at random."""
    lengths, returns, agents = [], [], envs.port(name).agents
    for index in indices.tolist():
        game = Game(envs.make_original(name, seed=seed, index=index, **options), agents, seed)
        rng, length, total = np.random.default_rng([seed, index]), 0, 0.0
        while not game.over:
            _, reward, *_ = game.step(random_actions(rng, game.space, (len(agents),) if agents else ()))
            length, total = length + 1, total + float(np.mean(reward))
        lengths.append(length)
        returns.append(total)
    return np.array(lengths, dtype=float), np.array(returns)


def devices_agree(walk: Walk, dtype: str, devices: tuple[str, str] = ("cpu", "cuda")) -> Iterator[dict]:
    """One step of the port on two devices from the states that it visits on the first."""
    B = min(walk.asked.states, BATCH)
    here, there = (walk.batch(B, device, dtype) for device in devices)
    visiting, ours, theirs = walk.batch(B, devices[0], dtype, "SameStep"), [], []
    for _ in range(-(-walk.asked.states // B)):
        visiting.rollout(APART)
        before, action = walk.of_port(visiting), on_host(visiting.random_actions()[0])
        ours.append(walk.step_port(there, action, before))
        theirs.append(walk.step_port(here, action, before))
    yield from walk.compared(
        ("transition", "cpu-cuda", devices[1], dtype), "equal states", joined(ours), joined(theirs)
    )
