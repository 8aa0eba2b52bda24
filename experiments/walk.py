"""The walk over declared fields that compares a port with its original: transitions, episodes, distributions.

`original.py` gives make(seed, index, scenario, **options), get_state and set_state of all fields by name, and draws its
noise as the port does, so that each of a port's steps can be made again. A family whose cases, quantities, scales or
tolerances are others says so in a subclass of `Walk`. Axes: B environments, A agents, n cases, T steps.
"""

import functools
import importlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch

from lockstep import envs
from lockstep.experiments import config, originals
from lockstep.experiments.config import ConfigError, Settings
from lockstep.experiments.originals import OUTCOME, Game
from lockstep.experiments.verdicts import alike, equal, row, within
from lockstep.reading import nearest

DTYPES = {"float32": 1e-5, "float64": 1e-10}  # and tolerances where the YAML has none
ROUNDED = 1.2e-7  # least tolerance of what is float32 in every build,
SHOWN = ("observation", "reward")  # which are these
CLOCK = ("elapsed", "episode", "scenario", "active")  # beside the fields; the latter two where there are such
BATCH, APART = 16, 7  # environments that visit states, and steps between two visits; prime to most limits
DRIFT = [number * 10**power for power in range(6) for number in (1, 2, 5)]  # steps after which errors are told
DIGITS = 5  # of returns, of the largest: sums in float32 and in float64 then tie where they are of equal rewards


class Walk:
    """An environment under one setting, in all its forms."""

    label = ""  # of the setting, beside every quantity
    draws = True  # the original draws its first states and the noise of its steps as the port does
    told = ("float32",)  # types in which episodes that come apart are told and not judged, for rounding alone may do it
    living = (BATCH, 100)  # environments and steps that two devices live through

    def __init__(self, name: str, settings: Settings):
        self.name, self.settings, self.seed = name, settings, settings.seed
        self.asked, self.port = settings.correctness, envs.port(name)
        self.options = dict(self.asked.get("options", {}))
        self.where = f"{config.shown(config.file_of(name))}: correctness"
        self.check()

    def check(self):
        """ConfigError where the YAML does not fit the environment."""
        config.check_options(f"{self.where}.options", self.options, self.port)
        for dtype, tolerances in self.asked.get("tolerances", {}).items():
            self.known(f"tolerances.{dtype}", tolerances, [*self.declared, *SHOWN, "default"])

    def known(self, where: str, names: Iterable[str], known: Iterable[str], what: str = "field"):
        for name in (name for name in names if name not in known):
            raise ConfigError(f"{self.where}.{where}: unknown {what} {name!r}{nearest(name, list(known))}")

    def comparisons(self, devices: Sequence[str]) -> Iterator[tuple]:
        """A function that begins the original's part, or None; one that compares; its arguments beside the walk."""
        for device, dtype in itertools.product(devices, DTYPES):
            for visitor in ("port", "original"):
                yield None, transition, device, dtype, visitor
            yield None, episode, device, dtype, "random"
        for device in devices:
            yield functools.partial(self.own_episodes, "random"), distribution, device, "random"
        for dtype in DTYPES if "cuda" in devices else ():
            yield None, devices_agree, dtype

    # ---- how far two forms may be apart -------------------------------------------------------------------------

    @property
    def quantities(self) -> Sequence[str]:
        """The outcome of a step, in the order of the rows."""
        return [*self.names, *OUTCOME]

    def titled(self, name: str, *words: str) -> str:
        notes = "; ".join(filter(None, [*words, self.label]))
        return f"{name} ({notes})" if notes else name

    def tolerance(self, dtype: str, name: str) -> float | None:
        """Largest error of a quantity of floats; None: not a bit may differ."""
        given = self.asked.get("tolerances", {}).get(dtype, {})
        default = given.get("default", DTYPES[dtype])
        return given.get(name, max(default, ROUNDED) if name in SHOWN else default)

    def judged(self, dtype: str, part: object) -> Iterator[tuple[Sequence[str], object, Callable]]:
        """Groups of a part's cases with tolerances of their own: words, which cases [n], tolerance of a name."""
        yield [f"states of the {part}"], slice(None), functools.partial(self.tolerance, dtype)

    def in_episodes(self, dtype: str) -> dict[str, float | None]:
        """The quantities by which an episode is judged, and their tolerances."""
        return {name: self.tolerance(dtype, name) for name in self.quantities}

    def drifting(self, dtype: str) -> list[str]:
        """The quantities of floats of which the largest error over the steps of an episode is told."""
        return [name for name, most in self.in_episodes(dtype).items() if most is not None]

    def on_devices(self, dtype: str, name: str) -> tuple[float | None, int]:
        """The tolerance between two devices; where it is None, how many numbers may differ."""
        return self.tolerance(dtype, name), 0

    def scale(self, name: str, larger: np.ndarray, theirs: Mapping, level: str) -> np.ndarray | float:
        """The divisor of differences [n, m]. larger: of the two numbers. theirs: all quantities."""
        return 1.0 if self.angle(name) else np.maximum(larger, 1)

    def angle(self, name: str) -> bool:
        return name in self.declared and self.declared[name].angle

    def errors(self, name: str, ours: Mapping, theirs: Mapping, level: str = "transition") -> np.ndarray:
        """Errors [n, m], of what is no float 0 or infinity; of angles the shorter way round the circle.

        Equal infinities are no error, NaN is one.
        """
        exact, n = ours[name].dtype.kind != "f", len(ours[name])
        a, b = (step[name].astype(float).reshape(n, -1) for step in (ours, theirs))
        with np.errstate(invalid="ignore", divide="ignore"):
            apart = np.abs(a - b)
            if self.angle(name):
                apart = np.abs(apart - 2 * np.pi * np.round(apart / (2 * np.pi)))
            larger = np.maximum(np.abs(a), np.abs(b))
            return np.where(a == b, 0.0, np.inf if exact else apart / self.scale(name, larger, theirs, level))

    def compared(self, place: tuple, ours: Mapping, theirs: Mapping, groups: Iterable) -> Iterator[dict]:
        """Rows for everything that a step leads to, [n, ...] each.

        Where "near" a threshold of the original rounding may decide a flag, but of few; where a flag differs, the
        reward of the other branch is right.
        """
        names = [name for name in self.quantities if name in ours]
        errors = {name: self.errors(name, ours, theirs).max(axis=1, initial=0.0) for name in names}
        near = theirs.get("near", np.zeros(len(ours[names[0]]), dtype=bool))
        if "near" in theirs:
            errors["reward"] = np.where(errors["terminated"] == 0, errors["reward"], 0.0)
        for words, among, tolerance in groups:
            for name in names:
                found, title = errors[name][among], self.titled(name, *words)
                most = tolerance(name) if ours[name].dtype.kind == "f" else None
                if most is not None:
                    yield within(place, title, found, most)
                    continue
                excused = (found != 0) & near[among] & (name == "terminated")
                yield equal(place, title, (found != 0) & ~excused)
                if name == "terminated" and "near" in theirs:  # uniform states meet fewer than ten in a million
                    band = self.titled(f"{name}, within the band of a threshold", *words)
                    yield equal(place, band, excused, max(1, len(found) // 100_000))

    def parting(self, place: tuple, policy: str, ours: Mapping, theirs: Mapping, first, largest) -> Iterator[dict]:
        """Rows on episodes.

        Args:
            first: step [n] at which each is first more than the tolerance apart, infinity where it is not.
            largest: error of each quantity.
        """
        parted = first[np.isfinite(first)]
        passed = None if place[-1] in self.told else not len(parted)
        yield row(place, self.titled("episodes that come apart"), len(first), passed, differing=len(parted), allowed=0)
        if len(parted):
            yield self.first_step(place, "more than the tolerance apart", parted)

    def first_step(self, place: tuple, words: str, parted: np.ndarray) -> dict:
        median, low, high = np.percentile(parted, [50, 5, 95])
        title = self.titled(f"first step {words}: median, 5th and 95th percentile")
        return row(place, title, len(parted), None, value=median, low=low, high=high)

    def comparable(self, *samples: np.ndarray) -> list[np.ndarray]:
        """Samples of the port and of the original, rounded."""
        unit = max(np.abs(values).max() for values in samples) / 10**DIGITS or 1.0
        return [np.round(values / unit) * unit for values in samples]

    # ---- the original -------------------------------------------------------------------------------------------

    @functools.cached_property
    def game(self) -> Game:
        """Options as the original takes them: preset, parameters, and the pool that options of the port's own made."""
        found = {name: value for name, value in self.options.items() if name not in self.port.own_options}
        if "scenario" in self.names:
            found["scenario"] = list(getattr(self.one, "scenarios", range(self.one._world.scenarios)))
        return Game(self.name, self.seed, **found)

    def cases(self, device: str, dtype: str, part: str) -> tuple[dict, np.ndarray, dict]:
        """States [n, ...] that the port or the original visits, actions there, and the original's steps."""
        B = min(self.asked.states, BATCH)
        rounds, index = -(-self.asked.states // B), np.arange(B)
        visiting, found, actions = self.batch(B, device, dtype), [], []  # what steps from each state is compiled for
        visiting.reset()
        for _ in range(rounds):
            for _ in range(APART):
                over = visiting.step(visiting.random_actions()[0])[-1]["_final_obs"]
                if over.any():
                    visiting.reset(options={"reset_mask": over.clone()})
            found.append(self.state(visiting))
            actions.append(on_host(visiting.random_actions()[0]))
        before = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
        actions = np.concatenate(actions)
        if part == "original":
            visited = originals.on_all_cores(originals.visits, index, game=self.game, rounds=rounds, apart=APART)()
            flat = {name: visited[name].swapaxes(0, 1).reshape(value.shape) for name, value in before.items()}
            # As a batch of that type holds them, so that both forms start from the same numbers.
            before = {name: value.astype(before[name].dtype) for name, value in flat.items()}
        index = np.tile(index, rounds)
        return before, actions, originals.on_all_cores(originals.steps, index, actions, before, game=self.game)()

    def number(self, level: str, policy: str) -> int:
        """The number of episodes that are played on that level."""
        return self.asked.episodes

    @functools.cache  # noqa: B019 - one object lives as long as the run
    def own_episodes(self, policy: str) -> Callable:
        """Has the original play its episodes, on all cores, and does not wait."""
        index, fixed = np.arange(self.number("distribution", policy)), self.settings if policy == "fixed" else None
        return originals.on_all_cores(originals.episodes, index, game=self.game, fixed=fixed)

    # ---- the port -----------------------------------------------------------------------------------------------

    @functools.cached_property
    def one(self):
        env = self.batch(1, "cpu")
        env.reset()
        return env

    @functools.cached_property
    def declared(self) -> Mapping:
        return self.port.fields(self.one.params)

    @functools.cached_property
    def names(self) -> list[str]:
        """Of the fields and the clock."""
        return list(self.state(self.one))

    def batch(self, num_envs: int, device: str, dtype: str = "float32", mode: str = "Disabled", seed: int = 0, **more):
        given = {"dtype": dtype, "autoreset_mode": mode, "seed": self.seed + seed, "check_actions": False}
        return envs.make(self.name, num_envs, device=device, **given, **self.options, **more)

    def stepping(self, n: int, device: str, dtype: str, part: object):
        """A batch for one step of each of n cases, with the noise of the environments that the cases are of."""
        return self.batch(n, device, dtype, groups=-(-n // BATCH))

    def given_to(self, env, actions: np.ndarray):
        """Actions of cases as a batch takes them."""
        return torch.from_numpy(actions).to(env.device)

    def state(self, env) -> dict[str, np.ndarray]:
        """Fields and clock of a batch, [B, ...]."""
        whole = env.state()
        rows = env.fields() | {key: whole[key] for key in CLOCK if key in whole}
        return {name: on_host(value) for name, value in rows.items()}

    def step(self, env, action) -> dict[str, np.ndarray]:
        """The state that a step leads to, and its OUTCOME, [B, ...]."""
        *outputs, info = env.step(action)
        shown = zip(OUTCOME, map(on_host, (*outputs, info["_final_obs"])), strict=True)
        return self.state(env) | dict(shown)

    def steps(self, before: Mapping, actions: np.ndarray, device: str, dtype: str, part: object) -> dict:
        """One step from each state."""
        env = self.stepping(len(actions), device, dtype, part)
        env.set_state(before)
        return self.step(env, self.given_to(env, actions))

    @property
    def fixed_policy(self) -> envs.Linear:
        fixed = self.settings.throughput.fixed_policy
        return envs.Linear(fixed.weights, fixed.bias)

    def actor(self, env, policy: str) -> Callable:
        """A policy as a function from observations to actions."""
        return env.actor(self.fixed_policy) if policy == "fixed" else lambda _: env.random_actions()[0]

    def lived(self, env, act: Callable, observation: torch.Tensor | None, dtype: str) -> tuple[dict, np.ndarray]:
        """Episodes of a batch up to their ends: what each step leads to, and the actions, [n, T, ...]."""
        names = {*self.in_episodes(dtype), *self.drifting(dtype), "terminated", "episode over"}
        rows, actions, over = [], [], False
        while not np.all(over):
            action = act(observation)
            found = self.step(env, action)
            observation, over = torch.from_numpy(found["observation"]).to(env.device), found["episode over"]
            actions.append(on_host(action))
            rows.append({name: found[name] for name in names})
        return {name: np.stack([row[name] for row in rows], axis=1) for name in names}, np.stack(actions, axis=1)

    def replayed(self, device: str, dtype: str, policy: str) -> tuple[dict, dict]:
        """Episodes of the port, and of the original under the same actions."""
        env = self.batch(self.number("episode", policy), device, dtype)
        observation, _ = env.reset()
        start, index = self.start_of(env), np.arange(env.num_envs)
        ours, actions = self.lived(env, self.actor(env, policy), observation, dtype)
        return ours, originals.on_all_cores(originals.lives, index, actions, start, game=self.game)()

    def start_of(self, env) -> dict[str, np.ndarray]:
        """First states that the original is put into; empty where it draws the same."""
        return {}

    def begin(self, env) -> torch.Tensor:
        """The first observations of episodes on random numbers of the port's own."""
        return env.reset()[0]


def on_host(value: torch.Tensor) -> np.ndarray:
    return value.cpu().numpy().copy()


# ---- the comparisons ---------------------------------------------------------------------------------------------


def coverage(walk: Walk) -> Iterator[dict]:
    """The cases reach what a careless port would get wrong."""
    n, counts = walk.reached()
    for what, count in counts.items():
        yield row(("transition", "original-port", None, None), walk.titled(what), n, count > 0, value=float(count))


def transition(walk: Walk, device: str, dtype: str, part: object) -> Iterator[dict]:
    """One step of the port against one of the original from the same states."""
    before, actions, theirs = walk.cases(device, dtype, part)
    ours, groups = walk.steps(before, actions, device, dtype, part), list(walk.judged(dtype, part))
    place = ("transition", "original-port", device, dtype)
    yield from walk.compared(place, ours, theirs, groups)
    if "episode over" in walk.quantities:
        over, title = theirs["episode over"], walk.titled("steps that end an episode", *groups[0][0])
        yield row(place, title, len(over), None, value=float(over.sum()))


def arrays(walk: Walk, device: str, dtype: str) -> Iterator[dict]:
    """One step of the array form on NumPy or CuPy against one of the port."""
    before, actions, of_original = walk.cases(device, dtype, ())
    theirs = of_original | walk.steps(before, actions, device, dtype, ())
    ours = walk.steps_of_arrays(array_library(device), before, actions, of_original)
    yield from walk.compared(("transition", "arrays-port", device, dtype), ours, theirs, walk.judged(dtype, ()))


def array_library(device: str):
    return np if device == "cpu" else importlib.import_module("cupy")


def episode(walk: Walk, device: str, dtype: str, policy: str) -> Iterator[dict]:
    """Episodes from equal first states under equal actions: do they come apart, and when?"""
    place = ("episode", "original-port", device, dtype)
    if walk.draws:
        env = walk.batch(walk.number("episode", policy), device, dtype)
        env.reset()
        index = np.arange(env.num_envs)
        first = originals.on_all_cores(originals.visits, index, game=walk.game, rounds=1, apart=0)()
        theirs, group = {name: value[:, 0] for name, value in first.items()}, (["after a reset"], slice(None))
        yield from walk.compared(place, walk.state(env), theirs, [(*group, functools.partial(walk.tolerance, dtype))])
    ours, theirs = walk.replayed(device, dtype, policy)
    over = ours["episode over"] | theirs["episode over"]  # [n, T]
    going, apart, largest = np.cumsum(over, axis=1) == over, np.zeros_like(over), {}
    flat = [{name: value.reshape(-1, *value.shape[2:]) for name, value in step.items()} for step in (ours, theirs)]
    for name, most in walk.in_episodes(dtype).items():
        errors = walk.errors(name, *flat, "episode").max(axis=1, initial=0.0).reshape(over.shape)
        largest[name] = float(errors[going].max())
        apart |= going & ~(errors <= (most if most is not None and ours[name].dtype.kind == "f" else 0))
    first = np.where(apart.any(axis=1), apart.argmax(axis=1) + 1, np.inf)
    yield from walk.parting(place, policy, ours, theirs, first, largest)
    yield from drift(walk, place, policy, ours, theirs, going)


def drift(walk: Walk, place: tuple, policy: str, ours: Mapping, theirs: Mapping, going: np.ndarray) -> Iterator[dict]:
    """Rows on the errors after some steps (`value`) of episodes still going [n, T]: the largest, and `low` the median.

    A level of its own, of which nothing is judged.
    """
    names = [name for name in walk.drifting(place[-1]) if ours[name].dtype.kind == "f"]
    for step in DRIFT[: np.searchsorted(DRIFT, going.shape[1], "right")]:
        left, title = going[:, step - 1], walk.titled(f"largest difference after {step} steps", f"{policy} actions")
        if not names or not left.any():
            return
        one, other = ({name: value[left, step - 1] for name, value in form.items()} for form in (ours, theirs))
        errors = np.max([walk.errors(name, one, other, "drift").max(axis=1, initial=0.0) for name in names], axis=0)
        told = {"error": float(errors.max()), "value": float(step), "low": float(np.median(errors))}
        yield row(("drift", *place[1:]), title, len(errors), None, **told)


def distribution(walk: Walk, device: str, policy: str) -> Iterator[dict]:
    """Lengths and returns of as many episodes of the port and of the original, each on its own random numbers."""
    env = walk.batch(walk.number("distribution", policy), device, seed=1)
    act, observation = walk.actor(env, policy), walk.begin(env)
    for _ in range(env.max_episode_steps):
        observation, *_, info = env.step(act(observation))
        if info["_final_obs"].all():
            break
    fixed = walk.port.shortest_episode == env.max_episode_steps
    for name, theirs in walk.own_episodes(policy)().items():
        ours = on_host(info[f"episode_{name}"]).astype(float)
        title = walk.titled(f"{name} of an episode, {policy} policy")
        yield alike(("distribution", "original-port", device, "float32"), title, *walk.comparable(ours, theirs), fixed)


def devices_agree(walk: Walk, dtype: str, devices: tuple[str, str] = ("cpu", "cuda")) -> Iterator[dict]:
    """Steps of the port on one device against those on another, from one seed, each step from equal fields."""
    num_envs, steps = walk.living
    here, there = (walk.batch(num_envs, device, dtype, "SameStep") for device in devices)
    largest: dict[str, float] = {}
    different: dict[str, int] = {}
    for env in (here, there):
        env.reset()
    for _ in range(steps):
        actions = [env.random_actions()[0] for env in (here, there)]
        found = [walk.step(env, action) for env, action in zip((here, there), actions, strict=True)]
        theirs, ours = ({"random action": on_host(a)} | one for a, one in zip(actions, found, strict=True))
        for name in ("random action", *(name for name in walk.quantities if name in ours)):
            errors = walk.errors(name, ours, theirs, "episode")
            largest[name] = float(np.maximum(largest.get(name, 0.0), errors.max()))
            different[name] = different.get(name, 0) + int((errors != 0).sum())
        there.set_state(here.fields())
    place, met = ("episode", "cpu-cuda", devices[1], dtype), num_envs * steps
    for name, count in different.items():
        most, allowed = walk.on_devices(dtype, name)
        if name == "random action" or most is None or ours[name].dtype.kind != "f":
            yield row(place, walk.titled(name), met, count <= allowed, differing=count, allowed=allowed)
        else:
            yield row(place, walk.titled(name), met, largest[name] <= most, error=largest[name], tolerance=most)
