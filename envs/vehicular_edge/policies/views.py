"""Views of a batch for a policy: the slot's tables and the backlogs, and the random numbers that are its own.

Arrays have a leading batch axis B and live where the environment does (NumPy or CuPy); they are for reading only.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from types import ModuleType

import numpy as np
import torch

from ... import noise
from ...kernels import compile
from ..params import BITS, Params
from ..slot.numbering import Array
from ..slot.tables import Tables, tables

STREAM = 9  # of the policies' own random numbers
Action = Mapping[str, Array]  # the integer form: {"target": int32 [B, Nc, J], "share": float32 [B, A1]}


@dataclass(frozen=True)
class View:
    """A batch at the beginning of a slot; environment b plays scenario index[b] of the tables."""

    xp: ModuleType
    tables: Tables
    index: Array  # [B]
    t: Array  # [B] slot of the episode
    queues: Mapping[str, Array]  # [B, ...] Mbit, the fields of params.state_shapes

    @property
    def params(self) -> Params:
        return self.tables.params

    @property
    def device(self) -> torch.device:
        """The device of the arrays."""
        return torch.device("cpu") if self.xp is np else torch.device("cuda", self.index.device.id)

    @property
    def size(self) -> int:
        """B."""
        return len(self.index)

    def now(self, name: str) -> Array:
        """A table [P, T, ...] of the scenarios, at the slot of each environment [B, ...]."""
        return getattr(self.tables, name)[self.index, self.xp.minimum(self.t, self.params.slots - 1)]

    def always(self, name: str) -> Array:
        """A table [P, ...] of the scenarios, of each environment [B, ...]."""
        return getattr(self.tables, name)[self.index]

    @cached_property
    def tasks(self) -> Array:
        """[B, Nc] tasks in the task slots."""
        return self.xp.minimum(self.now("count"), self.params.tasks)

    @cached_property
    def exists(self) -> Array:
        """[B, Nc, J] whether there is a task."""
        return self.xp.arange(self.params.tasks) < self.tasks[..., None]

    @cached_property
    def work(self) -> Array:
        """[B, Nc, J] cycles of each task."""
        return self.now("size") * BITS * self.now("cycles")

    def reported(self, family: str) -> Array:
        """A family's backlogs [B, n] in Mbit as observed: of V2I per access edge, of I2I per target."""
        queue = self.queues[family]
        if self.params.slot_tandem or family not in ("v2i", "i2i", "i2c"):
            return queue
        return queue.sum(axis=1 if family == "i2i" else -1).reshape(self.size, -1)

    def scaled(self, family: str) -> Array:
        """A family's backlogs [B, n] over the scale of the observation."""
        queue = self.reported(family)
        if not self.params.running_scales:
            return queue / self.tables.backlog_scale[family][self.index][:, None]
        largest = self.queues[f"max_{family}"]
        without = 1.0 if self.params.zero_max_is_one else 0.0
        return self.xp.where(largest > 0, queue / self.xp.where(largest > 0, largest, 1.0), without)

    @cached_property
    def first_client(self) -> Array:
        """[B] the client whose tasks are admitted first."""
        params = self.params
        return self.t * 0 if params.fixed_priority else self.t * params.clients // params.slots


@dataclass(frozen=True)
class Noise:
    """A policy's random numbers, equal for any batch size, order and form of the environment."""

    seed: int
    environment: Array  # [B] index of each environment
    clock: Array  # [B] steps since the environment was seeded

    def uniform(self, xp: ModuleType, count: int, stream: int = STREAM) -> Array:
        """U[0, 1) of the elements 0 .. count-1, float32 [B, count]."""
        environment, clock = (xp.asarray(numbers)[:, None] for numbers in (self.environment, self.clock))
        words = noise.philox((environment, xp.arange(-(-count // 4)), clock, stream), self.seed, xp)
        return noise.uniform(xp.moveaxis(words, 0, -1).reshape(len(environment), -1)[:, :count], 0.0, 1.0)


def view_of_original(env, packed: Tables | None = None) -> View:
    """The view, with B = 1, of the original; `packed`: tables of its scenarios, which the next slots can use again."""
    from ..original import get_state

    packed = packed or tables(np, env.scenarios)
    index = next(number for number, scenario in enumerate(env.scenarios) if scenario is env.episode.scenario)
    queues = {name: np.asarray(field)[None] for name, field in get_state(env).items()}
    return View(np, packed, np.array([index]), np.array([env.t]), queues)


def view_of_port(env, packed: Tables | None = None) -> View:
    """The view of the port, without copies of its backlogs; `packed`: tables of its scenarios on its device.

    On a GPU it is made, and policies choose, on torch's current stream of that device; what else CuPy does with a view
    belongs into `on_stream(view.device)`.
    """
    with on_stream(env.device):
        xp = namespace(env)
        packed = packed or tables(xp, env.scenarios)
        state = env.state()
        queues = {name: xp.asarray(field) for name, field in env.fields().items()}
        return View(xp, packed, xp.asarray(state["scenario"]), xp.asarray(state["elapsed"]), queues)


@contextlib.contextmanager
def on_stream(device: torch.device) -> Iterator[None]:
    """CuPy works in here on a GPU and on torch's current stream of it; on the CPU nothing changes."""
    if device.type != "cuda":
        yield
        return
    cuda = compile.cupy().cuda
    with cuda.Device(device.index), cuda.Stream.from_external(torch.cuda.current_stream(device)):
        yield


def where_its_view_is(policy: Callable[[View, Noise], Action]) -> Callable[[View, Noise], Action]:
    """The policy, run `on_stream` of its view's device."""

    @wraps(policy)
    def choose(view: View, noise: Noise) -> Action:
        with on_stream(view.device):
            return policy(view, noise)

    return choose


def namespace(env) -> ModuleType:
    """NumPy or CuPy, where the port's tensors are."""
    return compile.cupy() if env.device.type == "cuda" else np
