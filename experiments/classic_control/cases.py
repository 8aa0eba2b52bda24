"""The states and actions that one-step comparisons start from, and what the original makes of them."""

import functools
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from lockstep import envs
from lockstep.experiments import config, originals
from lockstep.experiments.config import Settings, nearest

BATCH = 2000  # environments of the port that visit states
APART = 7  # steps between two states visited; prime to every limit, so that states of all stages come up


class Cases:
    """Starting states by region, as the settings declare them, with an action and a number of elapsed steps each.

    States and actions are float32 numbers, so that every form starts from the same ones.
    """

    def __init__(self, name: str, settings: Settings):
        self.name, self.settings, self.port = name, settings, envs.port(name)
        self.fields, self.asked = tuple(self.port.fields()), settings.correctness
        self._check()

    def _check(self):
        """ConfigError where the YAML does not fit the environment: fields, intervals, tolerances, parameters."""
        config.check_policy(self.name, self.settings, *self.port.policy_shape)
        where = f"{config.shown(config.file_of(self.name))}: correctness"
        named = {"tolerances": self.asked.tolerances}
        for name, region in self.asked.regions.items():
            inside = f"regions.{name}"
            if "box" in region:
                self._check_box(f"{where}.{inside}.box", region.box)
                self._check_fields(f"{where}.{inside}.bands", region.get("bands", ()))
            if "tolerances" in region:
                named[f"{inside}.tolerances"] = region.tolerances
        for section, tolerances in named.items():
            for dtype, fields in tolerances.items():
                self._check_fields(f"{where}.{section}.{dtype}", set(fields) - {"default", "reward"})
                for field in self.fields:
                    if tolerance(fields, field) is None:
                        message = f"{where}.{section}.{dtype}: neither {field!r} nor 'default' is there"
                        raise config.ConfigError(message)
        for variant in self.asked.get("variants", ()):
            try:
                self.port.make_params(None, variant)
            except ValueError as error:
                raise config.ConfigError(f"{where}.variants: {error}") from error

    def _check_fields(self, where: str, fields):
        for field in fields:
            if field not in self.fields:
                raise config.ConfigError(f"{where}: unknown field {field!r}{nearest(field, self.fields)}")

    def _check_box(self, where: str, box: Mapping):
        self._check_fields(where, box)
        for field in self.fields:
            if field not in box:
                raise config.ConfigError(f"{where}: the field {field!r} is missing")
            low, high = box[field]
            if low >= high:
                raise config.ConfigError(f"{where}.{field}: {low} must be below {high}")

    # ---- where steps start --------------------------------------------------------------------------------------

    @functools.cached_property
    def states(self) -> np.ndarray:  # [n, k] float32
        random = np.random.default_rng(self.settings.seed)
        parts = [self._states(region, random) for region in self.asked.regions.values()]
        return np.concatenate(parts).astype(np.float32)

    @functools.cached_property
    def region(self) -> np.ndarray:  # [n] number of the region that a state is of
        counts = [region.states for region in self.asked.regions.values()]
        return np.repeat(np.arange(len(counts)), counts)

    def _states(self, region: Settings, random) -> np.ndarray:  # [region.states, k]
        n = region.states
        if "box" not in region:
            policies = region.get("policies", ("random", "fixed"))
            counts = [len(part) for part in np.array_split(np.arange(n), len(policies))]
            return np.concatenate([self.visited(*pair) for pair in zip(counts, policies, strict=True)])
        low, high = zip(*(region.box[field] for field in self.fields), strict=True)
        states = random.uniform(low, high, (n, len(self.fields)))
        bands = [(field, at, band.width) for field, band in region.get("bands", {}).items() for at in band.at]
        for part, (field, at, width) in zip(np.array_split(np.arange(n), max(len(bands), 1)), bands, strict=False):
            j = self.fields.index(field)
            column = random.uniform(at - width, at + width, len(part))
            column[::10] = at
            declared = self.port.fields()[field]
            states[part, j] = np.clip(column, declared.low, declared.high)
        return states

    def visited(self, n: int, policy: str) -> np.ndarray:  # [n, k]
        """States of running episodes of the port under the random or the fixed policy."""
        env = envs.make(self.name, BATCH, seed=self.settings.seed)
        env.reset()
        env.rollout(600)  # so that the episodes of the batch are at all stages
        rows = []
        for _ in range(-(-n // BATCH)):
            rows.append(env.state()["state"].numpy())
            env.rollout(APART, self.policy if policy == "fixed" else "random")
        return np.concatenate(rows)[:n]

    @property
    def policy(self) -> envs.Linear:
        fixed = self.settings.throughput.fixed_policy
        return envs.Linear(fixed.weights, fixed.bias)

    @functools.cached_property
    def actions(self) -> np.ndarray:
        """Actions [n]: integers, or float64; of every eight of a Box four lie in it and one at each end.

        The other two lie up to its width beyond.
        """
        n, space, random = len(self.states), self.port.of("action"), np.random.default_rng(self.settings.seed + 1)
        if hasattr(space, "n"):
            return random.integers(space.n, size=n)
        low, high = float(space.low[0]), float(space.high[0])
        wide = random.uniform(2 * low - high, 2 * high - low, n)
        inside = random.uniform(low, high, n)
        kind = random.integers(8, size=n)
        return np.select([kind < 4, kind == 4, kind == 5], [inside, low, high], wide).astype(np.float32).astype(float)

    @functools.cached_property
    def elapsed(self) -> np.ndarray:  # [n] steps before this one: at the start, and around the limit
        limit = self.port.of("horizon")
        return np.random.default_rng(self.settings.seed + 2).choice([0, limit - 2, limit - 1], len(self.states))

    # ---- what the original makes of them ------------------------------------------------------------------------

    @functools.cache  # noqa: B019 - one object lives as long as the run
    def start(self, variant: tuple = ()) -> Callable:
        """Has the original make its steps, on all cores, and does not wait; its actions are float64.

        A variant of the parameters is compared on a tenth of the cases.
        """
        share = self.share(variant)
        return originals.on_all_cores(
            originals.transitions,
            self.states[share].astype(np.float64),
            self.elapsed[share],
            self.actions[share],
            name=self.name,
            params=dict(variant),
        )

    @staticmethod
    def share(variant: tuple) -> slice:
        return slice(None, None, 10) if variant else slice(None)

    def reference(self, variant: tuple = ()) -> originals.Steps:
        return originals.Steps(*self.start(variant)()[:-1])

    def near_threshold(self, variant: tuple = ()) -> np.ndarray:
        """Whether the original's next states [n] lie so close to a threshold that rounding may decide a flag."""
        return np.abs(self.start(variant)()[-1]) < self.asked.threshold_band

    # ---- how far a form may be from it --------------------------------------------------------------------------

    def differences(self, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        """Absolute differences of states [n, k]; of angles the way round the circle that is shorter."""
        found = np.asarray(ours, dtype=np.float64) - theirs
        for j, field in enumerate(self.port.fields().values()):
            if field.angle:
                found[:, j] -= 2 * np.pi * np.round(found[:, j] / (2 * np.pi))
        return np.abs(found)

    def judged(self, dtype: str, variant: tuple = ()) -> Iterator[tuple[str, np.ndarray, Mapping]]:
        """Regions with equal tolerances: their names (empty: the common tolerances), which cases [n], tolerances."""
        common = self.asked.tolerances[dtype]
        found: list[tuple[Mapping, list[int]]] = []
        for number, region in enumerate(self.asked.regions.values()):
            tolerances = region.get("tolerances", self.asked.tolerances).get(dtype)
            same = [numbers for known, numbers in found if known == tolerances]
            if same:
                same[0].append(number)
            elif tolerances is not None:
                found.append((tolerances, [number]))
        names = list(self.asked.regions)
        for tolerances, numbers in found:
            label = "" if tolerances == common else ", ".join(names[number] for number in numbers)
            yield label, np.isin(self.region[self.share(variant)], numbers), tolerances


def tolerance(tolerances: Mapping, field: str) -> float | None:
    """The tolerance of a state field: its own, else the default."""
    return tolerances.get(field, tolerances.get("default"))
