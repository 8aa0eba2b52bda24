"""Marine navigation's port compared with its original: every boat under every preset, from played and made-up states.

Half of the states are visited under the random policy. In the other half robots, cores and obstacles crowd about a
place, and goals about robots, so that few steps reach every branch. All hold float32 numbers, so that every build
starts from the same. Where a number that decides something is within the tolerance of where it decides otherwise, the
case is counted and not compared; so it is in float32 where a vortex, or a beam that grazes an obstacle, multiplies a
rounding, which no float32 code escapes. Symbols: n cases, A robots, C cores, O obstacles.
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from lockstep.envs.marine_navigation import arrays
from lockstep.envs.marine_navigation.params import Params, make_params
from lockstep.experiments import config, originals, walk
from lockstep.experiments.config import Settings
from lockstep.experiments.originals import OUTCOME, Game
from lockstep.experiments.verdicts import equal

OUT_OF_REACH = {"sonar": {"hit robot"}}  # of a version with one robot
STAGES = ("robots", "cores", "obstacles")  # of a reset, in the order of counts
NEAR, MULTIPLYING = 10, 20  # one case in so many may be too near to a threshold, one may multiply a rounding
ROUNDING = 2.0**-19  # m, of float32 at the far side of the map
SHAKEN = 4  # the part of a tolerance that one rounding may take up: of x, of y, of the heading, of what is seen


def walks(name: str, settings: Settings) -> list["Voyages"]:
    """Every boat under the presets that the YAML asks for."""
    pairs = settings.correctness.presets.items()
    return [Voyages(name, settings, boat, preset) for boat, presets in pairs for preset in presets]


class Voyage(Game):
    """An original that is put into a state without drawing an episode before."""

    def restart(self, seed: int | None = None):
        self.agents = tuple(self.original.possible_agents)
        return super().restart(seed)

    def put(self, index: int, state: Mapping):
        if index not in self.made:
            self.begin(index)
            self.made[index] = self.original
        self.original, self.over = self.made[index], False
        self.module.set_state(self.original, state)

    def live(self, action: np.ndarray) -> dict:
        found = super().live(action)
        return found | {"active": found["active"] & (not self.over)}  # nobody plays on where the episode is over


class Voyages(walk.Walk):
    """A boat under a preset."""

    def __init__(self, name: str, settings: Settings, boat: str, preset: str):
        self.boat, self.preset, self.label = boat, preset, f"{boat}, {preset}"
        super().__init__(name, settings)

    def check(self):
        self.known("presets", [self.boat], self.asked.boats, "boat")
        self.known(f"presets.{self.boat}", [self.preset], self.port.presets, "preset")
        self.options = {"preset": self.preset, **self.asked.boats[self.boat]}
        config.check_options(f"{self.where}.boats.{self.boat}", self.options, self.port)

    def comparisons(self, devices: list[str]) -> Iterator[tuple]:
        yield None, walk.coverage
        for device, dtype in itertools.product(devices, walk.DTYPES):
            yield self.start, walk.transition, device, dtype, ()
            yield None, walk.episode, device, dtype, "random"
        for device in devices:
            yield self.start, walk.arrays, device, "float64"
            yield functools.partial(self.own_episodes, "random"), walk.distribution, device, "random"
        for dtype in walk.DTYPES if "cuda" in devices else ():
            yield None, walk.devices_agree, dtype

    # ---- where steps start --------------------------------------------------------------------------------------

    @functools.cached_property
    def params(self) -> Params:
        return make_params(**self.options)

    @functools.cached_property
    def index(self) -> np.ndarray:  # [n] of environments
        return np.arange(-(-self.asked.states // walk.BATCH) * walk.BATCH) % walk.BATCH

    @functools.cached_property
    def before(self) -> dict[str, np.ndarray]:
        """States [n, ...]: visited ones, and every other crowded."""
        env, found = arrays.ArraysEnv(walk.BATCH, seed=self.seed, dtype="float64", **self.options), []
        for _ in range(len(self.index) // walk.BATCH):
            for action in env.random_actions(walk.APART):
                env.step(action)
            found.append(env.state)
        states = {name: np.concatenate([state[name] for state in found]) for name in found[0]}
        made_up = crowded(states, self.params, np.random.default_rng(self.seed))
        for name, rows in states.items():
            rows[1::2] = made_up[name][1::2]
            states[name] = rows.astype(np.float32) if rows.dtype.kind == "f" else rows
        return states

    @functools.cached_property
    def actions(self) -> np.ndarray:
        """Numbers [n, A, 2] of which some are the outermost, or indices [n, A]."""
        random, shape = np.random.default_rng(self.seed + 1), (len(self.index), self.params.robots)
        if self.params.action_kind == "discrete":
            return random.integers(self.params.choices, size=shape, dtype=np.int32)
        return np.clip(random.uniform(-1.2, 1.2, (*shape, 2)), -1, 1).astype(np.float32)

    @functools.cached_property
    def probe(self) -> arrays.Probe:
        """Notes of all steps, as the array form makes them."""
        probe = arrays.Probe(len(self.index))
        self.after(self.before, probe)
        return probe

    def after(self, before: Mapping, probe: arrays.Probe | None = None) -> dict:
        """States that the array form's steps lead to, and observations."""
        model, index = arrays.Model(np, self.params, "float64", probe), self.index.astype(np.uint64)
        state, outcome = arrays.step(model, double(before), self.actions, self.seed, index)
        return state | {"observation": outcome.observation}

    @functools.cached_property
    def shaken(self) -> np.ndarray:
        """Changes [n] of what steps lead to where all boats start beside their places by a rounding of float32."""
        one, changes = self.after(self.before), []
        for aside in ([ROUNDING, 0.0, 0.0], [0.0, ROUNDING, 0.0]):
            other = self.after({**self.before, "pose": self.before["pose"].astype(float) + np.array(aside)})
            changes += [self.errors(name, one, other) for name in ("pose", "ground_velocity", "observation")]
        return np.concatenate(changes, axis=1).max(axis=1)

    # ---- the forms ----------------------------------------------------------------------------------------------

    @functools.cached_property
    def game(self) -> Voyage:
        return Voyage(self.name, self.seed, **self.options)

    @functools.cache  # noqa: B019 - one object lives as long as the run
    def start(self) -> Callable:
        """Has the original make its steps, on all cores, and does not wait."""
        return originals.on_all_cores(originals.steps, self.index, self.actions, self.before, game=self.game)

    def cases(self, device: str, dtype: str, part: tuple) -> tuple[dict, np.ndarray, dict]:
        return self.before, self.actions, self.start()() | {"apart": self.probe.nearest, "shaken": self.shaken}

    def steps(self, before: Mapping, *arguments) -> dict:
        """Of what the port knows: a lone robot is active as long as its episode goes on."""
        return super().steps({name: rows for name, rows in before.items() if name in self.names}, *arguments)

    def steps_of_arrays(self, xp, before: Mapping, actions: np.ndarray, theirs: Mapping) -> dict:
        model = arrays.Model(xp, self.params, "float64")
        state = {name: xp.asarray(rows) for name, rows in double(before).items()}
        state, outcome = arrays.step(model, state, xp.asarray(actions), self.seed, xp.asarray(self.index, xp.uint64))
        found = state | dict(zip(OUTCOME, outcome, strict=True))
        found["active"] = found["active"] & ~outcome.over[:, None]
        return {name: rows if xp is np else rows.get() for name, rows in found.items()}

    # ---- how far they may be apart ------------------------------------------------------------------------------

    def judged(self, dtype: str, part: tuple) -> Iterator[tuple[list[str], slice, Callable]]:
        yield [], slice(None), functools.partial(self.tolerance, dtype)

    def compared(self, place: tuple, ours: Mapping, theirs: Mapping, groups: Iterable) -> Iterator[dict]:
        if "apart" in theirs:
            near = theirs["apart"] <= self.tolerance(place[-1], "default")
            yield equal(place, self.titled("cases within the tolerance of a threshold"), near, len(near) // NEAR)
            if place[-1] == "float32":
                shaken = theirs["shaken"] > self.tolerance(place[-1], "default") / SHAKEN
                title = self.titled("cases that multiply a rounding")
                yield equal(place, title, shaken, len(shaken) // MULTIPLYING)
                near = near | shaken
            ours, theirs = ({name: rows[~near] for name, rows in form.items()} for form in (ours, theirs))
        yield from super().compared(place, ours, theirs, groups)

    def errors(self, name: str, ours: Mapping, theirs: Mapping, level: str = "transition") -> np.ndarray:
        """As of all fields, but that headings which differ by whole turns are one."""
        if name == "pose":
            pose = ours["pose"].astype(float)
            pose[..., 2] -= 2 * np.pi * np.round((pose[..., 2] - theirs["pose"][..., 2]) / (2 * np.pi))
            ours = {**ours, "pose": pose}
        return super().errors(name, ours, theirs, level)

    # ---- what the steps reach -----------------------------------------------------------------------------------

    def reached(self) -> tuple[int, dict[str, int]]:
        """n, and how many steps, and resets before an episode, have what a careless port would get wrong."""
        version, episodes = self.params.version, self.number("episode", "random")
        found = {name: met for name, met in self.probe.met.items() if name not in OUT_OF_REACH.get(version, ())}
        counts = {f"steps with {name}": int(met.sum()) for name, met in sorted(found.items())}
        model, index = arrays.Model(np, self.params, "float64"), np.arange(episodes, dtype=np.uint64)
        drawn = arrays.first(model, self.seed, index, np.zeros(episodes, dtype=np.int64))
        asked = self.params.setting
        for stage, number, wanted in zip(STAGES, drawn["counts"].T, asked, strict=False):
            counts[f"resets with all {stage}"] = int((number == wanted).sum())
            counts[f"resets that find no place for all {stage}"] = int((number < wanted).sum())
        if version == "sonar":  # which keeps the farthest pair
            del counts["resets that find no place for all robots"]
            far = np.linalg.norm(drawn["goal"] - drawn["pose"][..., :2], axis=-1)
            counts["resets that find no goal far enough"] = int((far < asked.min_goal_distance).sum())
        return len(self.index), counts


def double(state: Mapping) -> dict[str, np.ndarray]:
    return {name: rows.astype(np.float64) if rows.dtype.kind == "f" else rows for name, rows in state.items()}


def crowded(states: Mapping, p: Params, random: np.random.Generator) -> dict[str, np.ndarray]:
    """States [n, ...] with all that they hold near one place, at any speed and stage of an episode."""
    made, n = {name: rows.copy() for name, rows in states.items()}, len(states["elapsed"])
    robots = np.arange(p.robots) < made["counts"][:, :1]

    def about(centre: np.ndarray, far: float, count: int) -> np.ndarray:
        return centre + random.uniform(-far, far, (n, count, 2))

    place, far = random.uniform(5.0, p.width - 5.0, (n, 1, 2)), p.perception_range / 2
    made["pose"][..., :2] = about(place, far, p.robots)
    made["pose"][..., 2] = random.uniform(0.0, 2 * np.pi, robots.shape)
    made["goal"] = about(made["pose"][..., :2], 2 * p.goal_radius, p.robots)
    rocks, cores = made["obstacle"], made["core"]
    rocks[..., :2] = np.where(rocks[..., 2:] > 0, about(place, far, p.obstacles), 0.0)
    beside = about(made["pose"][:, :1, :2], 2.0, p.cores)  # every eighth scene has its first core at a robot
    here = (np.arange(n)[:, None, None] % 8 == 1) & (np.arange(p.cores)[:, None] == 0)
    beside = np.where(here, beside, about(place, 3 * far, p.cores))
    cores[..., :2] = np.where(cores[..., 3:] > 0, beside, 0.0)
    made["ground_velocity"] = random.uniform(-3.0, 3.0, (*robots.shape, 2))
    if p.version == "thruster":
        made["water_velocity"] = random.uniform(-3.0, 3.0, (*robots.shape, 2))
        made["yaw_rate"] = random.uniform(-1.0, 1.0, robots.shape)
        made["thrust"] = np.clip(random.uniform(-800.0, 1300.0, (*robots.shape, 2)), p.thrust_low, p.thrust_high)
    else:
        made["speed"] = random.uniform(0.0, p.top_speed, robots.shape)
    made["active"] = random.random(robots.shape) < 0.85
    made["active"][:, 0] |= ~(made["active"] & robots).any(axis=1)
    made["elapsed"] = random.choice([0, p.limit // 2, p.limit - 2, p.limit - 1], n)
    for name in ("pose", "goal", "ground_velocity", "water_velocity", "yaw_rate", "thrust", "speed", "active"):
        if name in made:
            made[name] *= robots.reshape(robots.shape + (1,) * (made[name].ndim - 2))
    return made
