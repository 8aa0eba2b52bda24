"""Ports compared with Gymnasium's own classes: states by region, tolerances of each, variants of the parameters.

Errors are absolute, but of an observation relative above 1: one rounding comes on top there, of values up to the
largest speed. Symbols: n cases, k numbers of a state.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from lockstep import envs
from lockstep.experiments import originals, walk
from lockstep.experiments.config import ConfigError, Settings, check_policy
from lockstep.experiments.originals import Game
from lockstep.experiments.verdicts import equal, row

POLICIES = ("random", "fixed")
VISITING = 2000  # environments of the port that visit states
PARTED = 1e-4  # difference of an observation at which a replayed episode counts as having left the original
DEVICES_APART = 1e-12  # most, of a state in float64, whose sine and cosine are each device's own
DIGITS = 3  # after the point of a return: sums in float32 and in float64 then tie where they are of equal rewards
SHOWN = {"observation": "observation, relative above 1"}


def walks(name: str, settings: Settings) -> list[walk.Walk]:
    return [Tasks(name, settings)]


class Task(Game):
    """One object for all cases, since no step draws a number; a state is an array [k]."""

    def begin(self, index: int):
        self.original = self.original or envs.make_original(self.name, **self.options)
        return self.restart(seed=index)

    def put(self, index: int, state: Mapping):
        if self.original is None:
            self.begin(index)
        self.module.set_state(self.original, state["state"], int(state["elapsed"]))

    def read(self) -> dict:
        return {"state": self.module.get_state(self.original)[0]}


class Tasks(walk.Walk):
    """Parts are variants of the parameters, (name, value)... each, on a tenth of the cases; () are the defaults."""

    draws = False
    living = (4096, 1000)

    def check(self):
        check_policy(self.name, self.settings, *self.port.policy_shape)
        named = {"tolerances": self.asked.tolerances}
        for name, region in self.asked.regions.items():
            inside = f"regions.{name}"
            self.known(f"{inside}.bands", region.get("bands", ()), self.declared)
            self.known(f"{inside}.box", region.get("box", ()), self.declared)
            for field in self.declared if "box" in region else ():
                if field not in region.box:
                    raise ConfigError(f"{self.where}.{inside}.box: the field {field!r} is missing")
                low, high = region.box[field]
                if low >= high:
                    raise ConfigError(f"{self.where}.{inside}.box.{field}: {low} must be below {high}")
            named |= {f"{inside}.tolerances": region.tolerances} if "tolerances" in region else {}
        for section, (dtype, tolerances) in ((s, pair) for s, given in named.items() for pair in given.items()):
            self.known(f"{section}.{dtype}", tolerances, [*self.declared, "default", "reward"])
            for field in self.declared:
                if field not in tolerances and "default" not in tolerances:
                    raise ConfigError(f"{self.where}.{section}.{dtype}: neither {field!r} nor 'default' is there")
        for variant in self.asked.get("variants", ()):
            try:
                self.port.make_params(None, variant)
            except ValueError as error:
                raise ConfigError(f"{self.where}.variants: {error}") from error

    @functools.cached_property
    def declared(self) -> Mapping:
        return self.port.fields()

    def comparisons(self, devices: list[str]) -> Iterator[tuple]:
        variants = [(), *(tuple(sorted(variant.items())) for variant in self.asked.get("variants", ()))]
        for device, dtype, variant in itertools.product(devices, walk.DTYPES, variants):
            yield functools.partial(self.start, variant), walk.transition, device, dtype, variant
        for device in devices:
            if envs.has_arrays(self.name):
                yield self.start, walk.arrays, device, "float32"
                yield None, first_states, device
            for policy in POLICIES:
                yield functools.partial(self.own_episodes, policy), walk.distribution, device, policy
            for dtype, policy in itertools.product(walk.DTYPES, POLICIES):
                yield None, walk.episode, device, dtype, policy
        if "cuda" in devices:
            yield None, walk.devices_agree, "float32"
            yield None, trajectories_agree
            yield None, walk.devices_agree, "float64"

    # ---- where steps start --------------------------------------------------------------------------------------

    @functools.cached_property
    def states(self) -> np.ndarray:  # [n, k] float32, so that every form starts from the same numbers
        random = np.random.default_rng(self.seed)
        parts = [self.states_of(region, random) for region in self.asked.regions.values()]
        return np.concatenate(parts).astype(np.float32)

    @functools.cached_property
    def region(self) -> np.ndarray:  # [n] number of the region that a state is of
        counts = [region.states for region in self.asked.regions.values()]
        return np.repeat(np.arange(len(counts)), counts)

    def states_of(self, region: Settings, random) -> np.ndarray:  # [region.states, k]
        n, fields = region.states, list(self.declared)
        if "box" not in region:
            policies = region.get("policies", POLICIES)
            counts = [len(part) for part in np.array_split(np.arange(n), len(policies))]
            return np.concatenate([self.visited(*pair) for pair in zip(counts, policies, strict=True)])
        low, high = zip(*(region.box[field] for field in fields), strict=True)
        states = random.uniform(low, high, (n, len(fields)))
        bands = [(field, at, band.width) for field, band in region.get("bands", {}).items() for at in band.at]
        for part, (field, at, width) in zip(np.array_split(np.arange(n), max(len(bands), 1)), bands, strict=False):
            column, declared = random.uniform(at - width, at + width, len(part)), self.declared[field]
            column[::10] = at
            states[part, fields.index(field)] = np.clip(column, declared.low, declared.high)
        return states

    def visited(self, n: int, policy: str) -> np.ndarray:  # [n, k]
        """States of running episodes of the port under the random or the fixed policy."""
        env, rows = envs.make(self.name, VISITING, seed=self.seed), []
        env.reset()
        env.rollout(600)  # so that the episodes of the batch are at all stages
        for _ in range(-(-n // VISITING)):
            rows.append(env.state()["state"].numpy())
            env.rollout(walk.APART, self.fixed_policy if policy == "fixed" else "random")
        return np.concatenate(rows)[:n]

    @functools.cached_property
    def actions(self) -> np.ndarray:
        """Actions [n]: integers, or float64; of every eight of a Box four lie in it and one at each end.

        The other two lie up to its width beyond.
        """
        n, space, random = len(self.states), self.port.of("action"), np.random.default_rng(self.seed + 1)
        if hasattr(space, "n"):
            return random.integers(space.n, size=n)
        low, high = float(space.low[0]), float(space.high[0])
        wide, inside = random.uniform(2 * low - high, 2 * high - low, n), random.uniform(low, high, n)
        kind = random.integers(8, size=n)
        return np.select([kind < 4, kind == 4, kind == 5], [inside, low, high], wide).astype(np.float32).astype(float)

    @functools.cached_property
    def elapsed(self) -> np.ndarray:  # [n] steps before this one: at the start, and around the limit
        limit = self.port.of("horizon")
        return np.random.default_rng(self.seed + 2).choice([0, limit - 2, limit - 1], len(self.states))

    def given(self, variant: tuple) -> tuple[dict, np.ndarray]:
        """States and actions of a variant."""
        share = slice(None, None, 10) if variant else slice(None)
        return {"state": self.states[share], "elapsed": self.elapsed[share]}, self.actions[share]

    # ---- steps and episodes from there --------------------------------------------------------------------------

    @functools.cached_property
    def game(self) -> Task:
        return Task(self.name, self.seed)

    @functools.cache  # noqa: B019 - one object lives as long as the run
    def start(self, variant: tuple = ()) -> Callable:
        """Has the original make its steps, on all cores, and does not wait."""
        (before, actions), game = self.given(variant), Task(self.name, self.seed, **dict(variant))
        return originals.on_all_cores(originals.steps, np.arange(len(actions)), actions, before, game=game)

    def cases(self, device: str, dtype: str, variant: tuple) -> tuple[dict, np.ndarray, dict]:
        original, found = envs.make_original(self.name, **dict(variant)), dict(self.start(variant)())
        margin = envs.original(self.name).margin(original, found["state"])
        found |= dict(zip(self.declared, found["state"].T, strict=True))
        found["near"] = np.abs(margin) < self.asked.threshold_band
        found["reward"] = found["reward"].astype(np.float32)  # as every build's
        return *self.given(variant), found

    def start_of(self, env) -> dict[str, np.ndarray]:
        whole = env.state()
        return {name: walk.on_host(whole[name]) for name in ("state", "elapsed")}

    def stepping(self, n: int, device: str, dtype: str, variant: tuple):
        return self.batch(n, device, dtype, **dict(variant))

    def given_to(self, env, actions: np.ndarray):
        """Actions of a Box in the port's own type."""
        return super().given_to(env, actions if actions.dtype.kind == "i" else actions.astype(env.dtype))

    def steps_of_arrays(self, xp, before: Mapping, actions: np.ndarray, theirs: Mapping) -> dict:
        found = envs.arrays_form(self.name).step(xp, xp.asarray(before["state"].T.copy()), xp.asarray(actions))
        state, reward, terminated = found if xp is np else map(xp.asnumpy, found)
        return dict(zip(self.declared, state, strict=True)) | {"terminated": terminated, "reward": reward}

    def number(self, level: str, policy: str) -> int:
        return self.asked.episodes["replayed" if level == "episode" else "played"][policy]

    # ---- how far a form may be from another ---------------------------------------------------------------------

    @property
    def quantities(self) -> list[str]:
        return [*self.declared, "observation", "terminated", "truncated", "reward"]

    def titled(self, name: str, *words: str) -> str:
        return super().titled(SHOWN.get(name, name), *words)

    def scale(self, name: str, larger: np.ndarray, theirs: Mapping, level: str) -> np.ndarray | float:
        if level == "drift":
            return super().scale(name, larger, theirs, level)
        return np.maximum(np.abs(theirs[name]), 1) if (name, level) == ("observation", "transition") else 1.0

    def judged(self, dtype: str, variant: tuple) -> Iterator[tuple[list[str], np.ndarray, Callable]]:
        """Regions with equal tolerances; those with the common ones are not named."""
        common, found = self.asked.tolerances[dtype], []
        for number, region in enumerate(self.asked.regions.values()):
            tolerances = region.get("tolerances", self.asked.tolerances).get(dtype)
            same = [numbers for known, numbers in found if known == tolerances]
            if same:
                same[0].append(number)
            elif tolerances is not None:
                found.append((tolerances, [number]))
        names, region = list(self.asked.regions), self.region[:: 10 if variant else 1]
        for tolerances, numbers in found:
            words = [] if tolerances == common else [", ".join(names[number] for number in numbers)]
            words = [*(f"{name}={value}" for name, value in variant), *words]
            yield words, np.isin(region, numbers), functools.partial(self.tolerance_in, tolerances, dtype)

    def tolerance_in(self, tolerances: Mapping, dtype: str, name: str) -> float | None:
        """Of the observation that of the field which may differ most in float32; the reward has one or is exact."""
        if name == "observation":
            single = tolerances if dtype == "float32" else self.asked.tolerances.float32
            return max(self.tolerance_in(single, "float32", field) for field in self.declared)
        return tolerances.get(name, None if name == "reward" else tolerances.get("default"))

    def drifting(self, dtype: str) -> list[str]:
        """The fields, since every build shows observations in float32."""
        return list(self.declared)

    def lived(self, *arguments) -> tuple[dict, np.ndarray]:
        """Actions of a Box in float64, in whose type the original computes."""
        found, actions = super().lived(*arguments)
        return found, actions.astype(float) if actions.dtype.kind == "f" else actions

    def replayed(self, *arguments) -> tuple[dict, dict]:
        ours, theirs = super().replayed(*arguments)
        return ours, theirs | dict(zip(self.declared, np.moveaxis(theirs["state"], 2, 0), strict=True))

    def on_devices(self, dtype: str, name: str) -> tuple[float | None, int]:
        """In float32 every bit; what is rounded to float32 at last may be tipped over by the last bit of a float64."""
        if dtype == "float32" or name not in (*self.declared, "observation", "reward"):
            return None, 0
        tipped = name == "observation" or "reward" in self.asked.tolerances.float64
        few = self.living[0] * self.living[1] // 1_000_000
        return (DEVICES_APART, 0) if name in self.declared else (None, few if tipped else 0)

    def in_episodes(self, dtype: str) -> dict[str, float]:
        return {"observation": PARTED}

    def parting(self, place: tuple, policy: str, ours: Mapping, theirs: Mapping, first, largest) -> Iterator[dict]:
        """An episode that is apart already may end differently; rounding alone does that to a balanced pole."""
        n, (length, of_original) = len(first), (step["episode over"].argmax(axis=1) for step in (ours, theirs))
        ended, fallen = ours["terminated"][range(n), length], theirs["terminated"][range(n), of_original]
        differing, parted = (length != of_original) | (ended != fallen), np.isfinite(first)
        title = f"end of an episode, {policy} policy, if not apart before"
        yield equal(place, title, differing & ~parted, n // 20_000)
        where = f"more than {PARTED:g} apart in a replay of the {policy} policy"
        yield row(place, f"episodes that come {where}", n, None, value=float(parted.sum()))
        if parted.sum() > n / 2:  # of a few that go astray the step would say little
            yield self.first_step(place, where, first[parted])

    def comparable(self, *samples: np.ndarray) -> list[np.ndarray]:
        return [np.round(values, DIGITS) for values in samples]


def first_states(tasks: Tasks, device: str) -> Iterator[dict]:
    """The first states of 1,000 episodes of the array form and of the port."""
    xp, form = walk.array_library(device), envs.arrays_form(tasks.name)
    env = envs.make(tasks.name, 100, device=device, seed=tasks.seed)
    index, different = xp.arange(100, dtype=xp.uint64), []
    for number in range(1000):
        env.reset()
        first = form.reset(xp, tasks.seed, index, xp.full(100, number, dtype=xp.uint64))
        first = first if xp is np else xp.asnumpy(first)
        different.append((env.state()["state"].cpu().numpy() != first.T).any(axis=1))
    place = ("transition", "arrays-port", device, "float32")
    yield equal(place, "first state of an episode, bits", np.concatenate(different))


def trajectories_agree(tasks: Tasks, devices: tuple[str, str] = ("cpu", "cuda")) -> Iterator[dict]:
    """Fused steps from equal states on two devices: every buffer of their trajectories, bit for bit."""
    here, there = (tasks.batch(tasks.living[0], device, mode="SameStep") for device in devices)
    here.reset()
    here.rollout(tasks.living[1])
    for policy in POLICIES:
        there.set_state(here.state())
        chosen = "random" if policy == "random" else tasks.fixed_policy
        rows = [env.rollout(100, chosen, "trajectory") for env in (here, there)]
        for name, ours in rows[0].items():
            different = (ours != rows[1][name].cpu()).reshape(-1).numpy()
            place = ("episode", "cpu-cuda", devices[1], "float32")
            yield equal(place, f"{name} of fused steps, {policy} policy", different)
