"""The traits of an environment, as its `port.py` declares them; general code asks these and knows no environment."""

import dataclasses
import functools
import inspect
import itertools
import math
import numbers
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from lockstep.reading import nearest

from ..checks import choice, integer
from ..kernels import compile
from ..policies import HIDDEN

MODES = {"NextStep": 0, "SameStep": 1, "Disabled": 2}  # of autoreset, as batch.cuh numbers them
TILES = {"cpu": 256, "cuda": 64}  # environments of a vector loop on the CPU, of a block of threads on a GPU
BLOCK = 256  # threads of a GPU's block at most, as in tile_cuda.cuh
DECLARED_BYTES = 48 * 1024  # of shared memory at most that the kernels of one lane have in a block
# Names in a state and in info that are every batch's.
RESERVED = {"state", "doubles", "integers", "elapsed", "episode", "scenario", "terminated", "truncated", "active"}
RESERVED |= {"ended", "final_obs", "_final_obs", "episode_return", "episode_length", "running_return", "is_reset"}
RESERVED |= {"bounds", "clock", "seed", "params", "pool", "autoreset_mode"}
TYPES = ("real", "float64", "int32")  # of state fields: the batch's dtype, and two that are the same in every batch
Space = Box | Discrete | MultiDiscrete


@dataclass(frozen=True)
class Field:
    """One field of a state, in the order of its type in the kernel."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = "real"  # one of TYPES
    low: float = -math.inf  # that the kernel is written for
    high: float = math.inf
    finite: bool = True  # or infinity means something
    angle: bool = False  # lives on the circle: two values that differ by whole turns are one

    def __post_init__(self):
        choice("dtype", self.dtype, TYPES)
        if not isinstance(self.shape, tuple) or not all(isinstance(n, int) and n > 0 for n in self.shape):
            raise ValueError(f"field {self.name!r}: shape={self.shape!r} must be a tuple of whole numbers above 0")
        if not self.low <= self.high:
            raise ValueError(f"field {self.name!r}: low={self.low} must not exceed high={self.high}")


@dataclass(frozen=True)
class World:
    """The parameters and scenarios of a batch: all that it is made of besides its size."""

    params: Any
    scenarios: int = 0  # of the pool; every episode plays one
    frozen: bool = False  # every episode plays the first
    in_turn: bool = False  # episode e of environment i plays number (i + e) mod N, instead of a drawn one
    tables: Callable[[str, int], Mapping[str, np.ndarray]] | None = None  # of dtype and B: fields of `struct Tables`
    inexact: bool = False  # the last bits of tables that are no integers are a machine's
    written: tuple[str, ...] = ()  # tables that a batch writes, which tell no pool from another
    defines: Mapping[str, object] = field(default_factory=dict)  # compile-time choices of the environment's own
    action: Space | None = None  # in place of the port's
    phases: tuple[str | Callable, ...] | None = None  # in place of the port's
    waits: str = ""  # the option, "name=value", by which a phase waits for the host, as no CUDA graph can
    metrics: Mapping[str, int | tuple[int, ...]] | None = None  # in place of the port's
    flags: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of each step, shown in info: shapes by name
    amounts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # likewise whole numbers, int32
    shown: Mapping[str, Any] = field(default_factory=dict)  # attributes of the batch

    def __post_init__(self):
        integer("scenarios", self.scenarios, 0, 2**31 - 1)
        if self.phases is not None and tuple(self.phases)[-1:] != ("step",):
            raise ValueError(f"world.phases={self.phases!r} must end with 'step'")


def plain(port: "Port", preset: str | None, params: Mapping) -> World:
    """A world of parameters alone."""
    return World(port.make_params(preset, params))


@dataclass(frozen=True)
class Port:
    """One environment's parameters, spaces, state and launch; its dynamics are `kernel.cuh` beside it.

    State, observation, action, horizon, longest episode, lanes and record are given as they are, or as functions of the
    parameters.
    """

    title: str  # as printed: "CartPole-v1"
    params: type  # frozen dataclass of compile-time constants
    state: tuple[Field, ...] | Callable[[Any], tuple[Field, ...]]
    observation: Box | Callable[[Any], Box]  # of one agent
    action: Space | Callable[[Any], Space]  # of one agent
    horizon: int | Callable[[Any], int]  # steps after which an episode is truncated
    presets: Mapping[str, Mapping] = field(default_factory=lambda: {"original": {}})
    default_preset: str = "original"
    lanes: int | Callable[[Any], int] = 1  # threads of a GPU that hold an environment: 1 to 16, 32, 64, ..
    agents: tuple[str, ...] = ()  # names; one agent has none
    team: Callable[[Any], tuple[str, ...]] | None = None  # agents by parameters; `agents` are those of the default ones
    joint: bool = False  # several agents share one observation, reward and end
    absent: bool = False  # an episode may be without some of its agents, or without any
    world: Callable[..., World] = plain  # of port, preset, parameters and options of its own
    metrics: Mapping[str, int | tuple[int, ...]] = field(default_factory=dict)  # likewise: how many numbers, or shapes
    record: int | Callable[[Any], int] = 0  # numbers of each step that trace=True keeps
    decode: Callable[[Any, Mapping], Mapping] | None = None  # an action in a form of its own, of batch and mapping
    phases: tuple[str | Callable, ...] = ("step",)  # kernels by name and functions of the batch; the step comes last
    batched: type | None = None  # a subclass of BatchedEnv with methods of its own
    builds: Callable[["Port"], Iterable[tuple[str, str, str, World, bool]]] | None = None  # see `units`
    render: Callable | None = None  # of batch and indices: pictures
    reset_bounds: Callable[[Mapping], tuple[float, ...]] = lambda options: ()  # from options of reset
    reset_options: tuple[str, ...] = ()  # that reset_bounds reads, in the order of the bounds
    shortest_episode: int = 0  # steps; with default parameters and bounds no episode is shorter
    longest_episode: int | Callable[[Any], int] | None = None  # steps, where all terminate before the horizon
    observes_state: bool = False  # an observation is the state itself, so that it can be a view of it
    # True: in float32 operations round correctly, so that all devices agree bit for bit. A mapping: with these options.
    exact: bool | Mapping = True
    running_return: bool = True  # or the return follows from length and terminal flag
    gymnasium_id: str | None = None  # of the original, where Gymnasium has it
    reward_threshold: float | None = None

    def __post_init__(self):
        firsts, options = self.reset_bounds({}), self.reset_options
        self._require(tuple(self.phases)[-1:] == ("step",), f"phases={self.phases!r} must end with 'step'")
        self._require(self.default_preset in self.presets, f"no preset is the default one, {self.default_preset!r}")
        self._require(len(set(self.agents)) == len(self.agents), f"agents={self.agents!r} must differ in their names")
        self._require(len(firsts) == len(options), f"{len(firsts)} reset bounds need as many names, not {options!r}")

    def _require(self, right: bool, sentence: str):
        if not right:
            raise ValueError(f"{self.title}: {sentence}")

    # ---- what an environment of given parameters is -----------------------------------------------------------------

    @functools.cached_property
    def own_options(self) -> list[str]:
        """Names of the options that `world` takes."""
        return list(inspect.signature(self.world).parameters)[3:]

    @property
    def rows(self) -> int:
        """Agents with rows of their own in observations, rewards and flags, with default parameters."""
        return self.rows_of(self.agents)

    def rows_of(self, agents: tuple[str, ...]) -> int:
        return 1 if self.joint else max(len(agents), 1)

    def apart(self, agents: tuple[str, ...]) -> bool:
        """Tells that agents end, or are absent, by themselves, so that a batch knows who is active."""
        return not self.joint and (len(agents) > 1 or self.absent)

    def agents_of(self, params) -> tuple[str, ...]:
        """Names of the agents of an environment of these parameters."""
        return self.team(params) if self.team else self.agents

    def make_params(self, preset: str | None, overrides: Mapping):
        """The parameters of a preset with single ones replaced.

        Raises:
            ValueError: an unknown preset or parameter (the nearest known name is given), or a value of the wrong kind.
        """
        if preset is not None and not (isinstance(preset, str) and preset in self.presets):
            raise ValueError(f"preset={preset!r} is unknown; {self.title} has {', '.join(map(repr, self.presets))}")
        chosen = {**self.presets[preset or self.default_preset], **overrides}
        known = {f.name: f for f in dataclasses.fields(self.params)}
        for name, value in chosen.items():
            if name not in known:
                raise ValueError(f"{self.title} has no parameter or option {name!r}{nearest(name, known)}")
            chosen[name] = checked_constant(name, value, known[name])
        return self.params(**chosen)

    def of(self, trait: str, params=None):
        """A trait of an environment of these parameters, or of the default ones."""
        value = getattr(self, trait)
        return value(self.make_params(None, {}) if params is None else params) if callable(value) else value

    def check(self, world: World):
        """Raises ValueError where kernels cannot be what the port declares for these parameters."""
        require = self._require
        require(isinstance(world, World), f"world must return a World, not {type(world).__name__}")
        params = world.params
        lanes, own, counts = self.of("lanes", params), self.metrics_of(world), self.counts(params)
        own = {**own, **world.flags, **world.amounts}
        names = [one.name for one in self.of("state", params)]
        shape, high, kind = self.of("observation", params).shape, *bounds(self.action_of(world))[1:]
        require(
            lanes in (*range(1, 17), *range(32, 1025, 32)),
            f"lanes={lanes!r} must be from 1 to 16, or a multiple of 32 up to 1024",
        )
        for name in (*names, *own):  # a metric may have the name of a field
            require(name not in RESERVED and names.count(name) <= 1, f"the name {name!r} is taken; choose another")
        kinds = {"a metric": self.metrics_of(world), "a flag": world.flags, "an amount": world.amounts}
        for (one, names_of_one), (other, names_of_other) in itertools.combinations(kinds.items(), 2):
            taken = sorted(names_of_one.keys() & names_of_other.keys())
            require(not taken, f"{', '.join(taken)} is both {one} and {other}")
        require(counts["real"] > 0, "the state needs a field of dtype 'real'")
        require(len(shape) == 1 and shape[0] > 0, f"observations have the shape {shape}; kernels write one axis")
        require(not (self.absent and self.joint), "absent=True needs agents that share nothing, joint=False")
        if lanes > 1:
            require(not self.observes_state, "observes_state=True needs one lane")
            require(self.running_return, "running_return=False needs one lane")
            return
        several = (
            len(self.agents_of(params)) > 1
            or len(self.phases_of(world)) > 1
            or world.flags
            or world.amounts
            or self.of("record", params)
            or self.decode
        )
        require(not several, "several agents, phases, flags, a record or an own form of actions need several lanes")
        require(not (self.absent or world.in_turn), "absent agents and scenarios in turn need several lanes")
        require(kind == "f" or high.max() <= 255, "more than 256 choices need several lanes")
        seen = not self.observes_state or shape[0] == counts["real"] == sum(counts.values())
        require(seen, f"observes_state=True needs observations that are the state, not {shape[0]} numbers of it")

    def fields(self, params=None) -> dict[str, Field]:
        """The fields of the state by name, in order, of default parameters or of others."""
        return {one.name: one for one in self.of("state", params)}

    def action_of(self, world: World) -> Space:
        return world.action or self.of("action", world.params)

    def phases_of(self, world: World) -> tuple[str | Callable, ...]:
        return self.phases if world.phases is None else world.phases

    def metrics_of(self, world: World) -> Mapping[str, tuple[int, ...]]:
        """Shapes of the metrics of one environment, by name."""
        metrics = self.metrics if world.metrics is None else world.metrics
        return {name: n if isinstance(n, tuple) else (n,) if n > 1 else () for name, n in metrics.items()}

    def counts(self, params) -> dict[str, int]:
        """Numbers of the state by type."""
        counts = dict.fromkeys(TYPES, 0)
        for one in self.of("state", params):
            counts[one.dtype] += math.prod(one.shape)
        return counts

    @property
    def continuous(self) -> bool:
        """True where actions are of a Box."""
        return bounds(self.of("action"))[2] == "f"

    @property
    def policy_shape(self) -> tuple[int, int]:
        """Outputs and inputs of a policy: choices (of a Box numbers) of an action, and observation components."""
        return shape_of_policy(self.of("action"), self.of("observation"))

    # ---- its translation unit ---------------------------------------------------------------------------------------

    def unit(
        self,
        folder: Path,
        world: World,
        *,
        mode: str,
        dtype: str,
        limit: int,
        tile: int,
        view: bool = False,
        hidden: int = 0,
        trace: bool = False,
        lanes: int | None = None,
    ) -> str:
        """The translation unit in one combination of compile-time choices.

        Args:
            folder: of the environment.
            mode: of autoreset.
            limit: steps after which an episode is truncated.
            tile: environments per vector loop or block of threads, where one thread holds one.
            view: observations are the state.
            hidden: width of an MLP policy, whose rollouts the unit then has in place of steps, or 0.
            trace: keep the record of a step.
            lanes: in place of the port's.
        """
        params = world.params
        counts, lanes, agents = self.counts(params), lanes or self.of("lanes", params), self.agents_of(params)
        low, high, kind = bounds(self.action_of(world))
        defines = {
            "ELAPSED": "u16" if limit <= 65535 else "int",
            "AUTORESET": MODES[mode],
            "LIMIT": limit,
            "LANES": lanes,
            "SEVERAL_LANES": int(lanes > 1),
            "TILE": tile if lanes == 1 else 1,
            "AGENTS": max(len(agents), 1),
            "JOINT": int(not self.apart(agents)),
            "ABSENT": int(self.absent),
            "REALS": counts["real"],
            "DOUBLES": counts["float64"],
            "INTEGERS": counts["int32"],
            "OBS": self.of("observation", params).shape[0],
            "CONTINUOUS": int(kind == "f"),
            "NUMBERS": low.size,
            "ACTION_LOW": listed(low),
            "ACTION_HIGH": listed(high),
            "CHOICES": int(high.flat[0]) + 1 if kind == "i" else 0,
            "SCENARIOS": int(world.scenarios > 0),
            "FROZEN": int(world.frozen),
            "IN_TURN": int(world.in_turn),
            "OWN_FORM": int(self.decode is not None),
            "METRICS": sum(map(math.prod, self.metrics_of(world).values())),
            "FLAGS": sum(map(math.prod, world.flags.values())),
            "AMOUNTS": sum(map(math.prod, world.amounts.values())),
            "RECORD": self.of("record", params) if trace else 0,
            "TRACE": int(trace),
            "RUNNING_RETURN": int(self.running_return),
            "VIEW": int(view),
            "HIDDEN": hidden,
        }
        taken = sorted(defines.keys() & world.defines)
        self._require(not taken, f"world.defines: {', '.join(taken)} is defined for every kernel")
        missing = [name for name, used in (("Tables", world.tables), ("Given", self.decode)) if used is None]
        declarations = "".join(f"struct {name} {{\n    i64 none;\n}};\n" for name in missing)
        before, around = ("lanes.cuh", "block.cuh") if lanes > 1 else ("state.cuh", "tile.cuh")
        sources = compile.KERNELS / before, folder / "kernel.cuh", compile.KERNELS / around
        text = compile.unit(dtype, defines | dict(world.defines), params, *sources, declarations=declarations)
        for name, trait in (("Tables", "world.tables"), ("Given", "decode")):
            needed = f"{trait} is None, so kernel.cuh must not" if name in missing else f"kernel.cuh must, for {trait},"
            self._require(text.count(f"\nstruct {name} {{\n") == 1, f"{needed} declare struct {name}")
        return text

    def units(self, folder: Path) -> dict[tuple[str, str, str], str]:
        """All translation units with default parameters, as `envs.units` describes them."""
        types = ("float32", "float64")
        unit = functools.partial(self.unit, folder, tile=TILES["cuda"])
        if self.builds:
            return {
                (mode, dtype, word): unit(
                    world, mode=mode, dtype=dtype, limit=self.of("horizon", world.params), trace=trace
                )
                for mode, dtype, word, world, trace in self.builds(self)
            }
        world = self.world(self, None, {})
        unit = functools.partial(unit, world, limit=self.of("horizon", world.params))
        found = {(mode, dtype, "copy"): unit(mode=mode, dtype=dtype) for mode, dtype in itertools.product(MODES, types)}
        for mode in MODES if self.observes_state else ():
            found[mode, "float32", "view"] = unit(mode=mode, dtype="float32", view=True)
        outputs, inputs = self.policy_shape
        carried = self.of("lanes", world.params) == bounds(self.of("action", world.params))[0].size == 1
        if carried and inputs <= most_observed(max(HIDDEN), outputs, inputs, found["SameStep", "float32", "copy"]):
            for dtype in types:
                found["SameStep", dtype, "mlp"] = unit(mode="SameStep", dtype=dtype, hidden=max(HIDDEN))
        return found


def bounds(space: Space) -> tuple[np.ndarray, np.ndarray, str]:
    """Lowest and highest of each number of an action [n], and "f" for those of a box or "i" for choices.

    Raises:
        ValueError: a space that kernels have no form for; says which they have.
    """
    box = isinstance(space, Box)
    integers = box and not np.issubdtype(space.dtype, np.floating)
    if not isinstance(space, Space) or len(space.shape) > 1 or 0 in space.shape or integers:
        raise ValueError(
            f"{space!r:.80} is no action space of a kernel: a Box of floats or MultiDiscrete, of one axis, or Discrete"
        )
    if np.any(np.asarray(getattr(space, "start", 0)) != 0):
        raise ValueError(f"{space!r:.80}: choices must start at 0")
    if box and not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ValueError(f"{space!r:.80}: a box of actions needs finite bounds, which the random policy draws between")
    if box:
        return np.ravel(space.low), np.ravel(space.high), "f"
    choices = np.ravel(space.n if isinstance(space, Discrete) else space.nvec)
    return np.zeros_like(choices), choices - 1, "i"


def shape_of_policy(action: Space, observation: Box) -> tuple[int, int]:
    """Outputs and inputs of a policy over these spaces."""
    low, high, kind = bounds(action)
    return int(high[0]) + 1 if kind == "i" and low.size == 1 else low.size, observation.shape[0]


def most_observed(hidden: int, outputs: int, inputs: int, text: str) -> int:
    """Numbers of an observation up to which a block of a GPU has room for an MLP of this width and its critic.

    Args:
        outputs, inputs: of the policy.
        text: a unit of the environment.
    """
    tail = int(re.search(r"^#define TAIL (\d+)$", text, re.MULTILINE)[1])
    rows = BLOCK * (4 * ((inputs - tail) | 1) + 8) if tail else 0  # bytes in `write_rows` of tile_cuda.cuh
    rest = sum(-(-(hidden * (hidden + 2) + n * (hidden + 1)) // 4) * 4 for n in (outputs, 1)) + 4  # as in mlp.cuh
    return max((DECLARED_BYTES - rows) // 4 - rest, 0) // (2 * hidden)


def listed(values: np.ndarray) -> str:
    """Numbers as C has them, one where all are equal."""
    some = values[:1] if (values == values[0]).all() else values
    return ", ".join(f"{float(value)!r}f" for value in some)


def checked_constant(name: str, value, spec):
    """The value of a parameter as the constant a kernel gets: one of the choices, a bool, an int of 32 bits, or a float
    that float32 can hold.

    Args:
        spec: the parameter's `dataclasses.Field`; where it has bounds of its own, "least" and "most", an int may be
            outside of 32 bits there, for whoever looks at these.

    Raises:
        ValueError: names the parameter, the value and what is allowed.
    """
    choices = get_args(spec.type)
    if choices:
        return choice(name, value, choices)
    if spec.type is bool:
        if not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name}={value!r} must be True or False")
        return bool(value)
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name}={value!r} must be a number")
    least, most = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
    if not abs(value) <= most:
        allowed = f"from {-most:g} to {most:g}" if math.inf > abs(value) else "a finite number"
        raise ValueError(f"{name}={value!r:.60} must be {allowed}")
    if spec.type is int:
        if value != int(value):
            raise ValueError(f"{name}={value!r} must be an integer")
        value, allowed = int(value), spec.metadata
        held = ("least" in allowed or value >= -(2**31)) and ("most" in allowed or value < 2**31)
        return value if held else integer(name, value, -(2**31), 2**31 - 1)
    if spec.metadata.get("positive") and not value >= least:
        raise ValueError(f"{name}={value!r} must be {f'at least {least:g}' if value > 0 else 'positive'}")
    return float(value)
