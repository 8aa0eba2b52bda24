"""Time of each operation of a slot in every form: the original, its indexed form, array code, the port.

Every form plays the same few slots from the middle of an episode again and again, under the same random actions: once
as whole steps, once with a clock read between the operations. On a GPU both are synchronised before the clock is read;
array code is then clocked operation by operation on the inputs that it had in the whole step. Of the port, one kernel,
a profiling build counts the cycles of each stage, and their shares are taken of the whole step. Its walk over the tasks
admits them and sums what queues and cost need in one go, so that every form has a row of these three together.
"""

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

from lockstep import envs
from lockstep.experiments import experiment
from lockstep.experiments.bench import statistics, timing
from lockstep.experiments.config import Settings
from lockstep.experiments.experiment import Experiment, Plan, Request, by_label, each

COLUMNS = [
    *("environment", "vehicles", "operation", "form", "device", "num_envs", "threads", "dtype"),
    *("block", "steps", "wall_s", "cpu_s"),
]
OPERATIONS = ("offloading", "noma", "queue_update", "cost")
FUSED = "offloading_queues_cost"  # all but the rates, which the port's kernel does not keep apart
WHOLE = "step"
FORMS = {  # device of each
    "original": "cpu",
    "original-indexed": "cpu",
    "arrays-numpy": "cpu",
    "port-cpu": "cpu",
    "arrays-cupy": "cuda",
    "port-cuda": "cuda",
}
PROFILED = 200  # environments at least whose cycles are counted, playing again if there are fewer
METHOD = "whole steps and single operations in turn; operations of the port by its cycles"


@dataclass(frozen=True)
class Group(experiment.Group):
    """One measurement: a form at one size."""

    form: str
    vehicles: int
    num_envs: int

    @property
    def device(self) -> str:
        return FORMS[self.form]


@dataclass(frozen=True)
class Case:
    """The start and the actions of every form."""

    scenario: object
    t: int  # the first slot
    state: Mapping[str, np.ndarray]  # of one environment at its start
    actions: np.ndarray  # [slots, B, 2, A] float32


class Seconds(NamedTuple):
    """Wall and CPU seconds."""

    wall: float
    cpu: float


class Laps:
    """A clock that is read between the operations of a slot."""

    def __init__(self, synchronize: Callable[[], None] = timing.nothing):
        self._synchronize, self.spent = synchronize, {}

    def start(self) -> None:
        self._synchronize()
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def lap(self, name: str) -> None:
        """Adds what has passed since the last reading to the operation."""
        self._synchronize()
        wall, cpu = time.perf_counter(), time.process_time()
        before = self.spent.get(name, Seconds(0.0, 0.0))
        self.spent[name] = Seconds(before.wall + wall - self._wall, before.cpu + cpu - self._cpu)
        self._cpu, self._wall = time.process_time(), time.perf_counter()


@dataclass
class Form:
    """A form that plays the slots of a case."""

    whole: Callable[[Laps], None]  # starts the clock, plays whole steps, reads it as WHOLE
    parts: Callable[[Laps], None] | None  # the same slots, with the clock read after every operation
    dtype: str
    shares: Mapping[str, float] | None = None  # of the whole, where the clock cannot be read between operations


def groups(settings: Settings, present: list[str]) -> list[Group]:
    """The groups with the devices present, largest fleet first."""
    found = []
    for vehicles in sorted(settings.breakdown.vehicles, reverse=True):
        for form, device in FORMS.items():
            sizes = (1,) if form.startswith("original") else sorted(settings.breakdown.num_envs)
            if device in present:
                found += [Group(form, vehicles, num_envs) for num_envs in sizes]
    return found


@functools.cache
def drawn(name: str, preset: str, traffic: str, vehicles: int):
    """The first scenario of a map at a size."""
    return envs.make_original(name, preset=preset, traffic=traffic, vehicles=vehicles).scenarios[0]


def case(name: str, group: Group, settings: Settings) -> Case:
    """Slots from the middle of an episode, reached with random actions."""
    scenario = drawn(name, settings.breakdown.preset, settings.breakdown.traffic, group.vehicles)
    params, form = scenario.params, envs.arrays_form(name)
    rng = np.random.default_rng(settings.seed)
    shape = (2, params.action_length)
    tables = form.tables(np, [scenario])
    state, t = form.initial(np, tables), params.slots // 2
    for slot in range(t):
        state, _ = form.step(np, tables, state, rng.random((1, *shape), dtype=np.float32), slot)
    actions = rng.random((settings.breakdown.slots, group.num_envs, *shape), dtype=np.float32)
    return Case(scenario, t, {field: values[0] for field, values in state.items()}, actions)


# Each of these makes a form ready for a case.


@contextmanager
def original(name: str, group: Group, start: Case) -> Iterator[Form]:
    """The original, or its indexed form; its methods are wrapped while the clock is read between them."""
    module = envs.original(name)
    env = envs.make_original(name, scenario=start.scenario, indexed=group.form.endswith("indexed"))
    env.reset(seed=0)
    actions = [dict(zip(env.possible_agents, action[0], strict=True)) for action in start.actions]

    def play(laps: Laps) -> None:
        module.set_state(env, start.state, start.t)
        laps.start()
        for action in actions:
            env.step(action)

    def whole(laps: Laps) -> None:
        play(laps)
        laps.lap(WHOLE)

    def parts(laps: Laps) -> None:
        for operation in OPERATIONS:
            setattr(env, operation, clocked(laps, operation, getattr(env, operation)))
        play(laps)
        for operation in OPERATIONS:
            delattr(env, operation)

    yield Form(whole, parts, "float64")


def clocked(laps: Laps, operation: str, method: Callable) -> Callable:
    """A method between two readings of the clock; what ran before it counts for no operation."""

    def run(*arguments):
        laps.start()
        result = method(*arguments)
        laps.lap(operation)
        return result

    return run


@contextmanager
def arrays(name: str, group: Group, start: Case) -> Iterator[Form]:
    """Array code in float32, on NumPy or CuPy."""
    if group.device == "cuda":
        import cupy as xp
    else:
        xp = np
    form, B = envs.arrays_form(name), group.num_envs
    tables = form.tables(xp, [start.scenario], np.zeros(B, dtype=int), "float32")
    first = {
        field: xp.asarray(np.broadcast_to(values, (B, *values.shape)).astype(np.float32))
        for field, values in start.state.items()
    }
    actions = xp.asarray(start.actions)
    states = [first]
    for number, action in enumerate(actions):
        states.append(form.step(xp, tables, states[-1], action, start.t + number)[0])

    def whole(laps: Laps) -> None:
        laps.start()
        state = first
        for number, action in enumerate(actions):
            state, _ = form.step(xp, tables, state, action, start.t + number)
        laps.lap(WHOLE)

    def parts(laps: Laps) -> None:
        for number, (state, action) in enumerate(zip(states, actions, strict=False)):
            when = (tables.index, xp.full(B, start.t + number))
            laps.start()
            decision = form.offloading(xp, tables, action, when)
            laps.lap("offloading")
            rate = form.noma(xp, tables, decision, when)
            laps.lap("noma")
            _, flows = form.queue_update(xp, tables, state, decision, rate, when)
            laps.lap("queue_update")
            form.cost(xp, tables, state, decision, flows, when)
            laps.lap("cost")

    yield Form(whole, parts, "float32")


@contextmanager
def port(name: str, group: Group, start: Case) -> Iterator[Form]:
    """The port in float32, one call per slot."""
    make = functools.partial(envs.make, name, group.num_envs, device=group.device, scenarios=start.scenario, threads=1)
    env = make()
    actions = torch.from_numpy(start.actions).to(env.device)

    def whole(laps: Laps) -> None:
        env.set_state({**start.state, "elapsed": start.t})
        laps.start()
        for action in actions:
            env.step(action)
        laps.lap(WHOLE)

    yield Form(whole, None, "float32", shares(make(profile=True), start))


def shares(env, start: Case) -> dict[str, float]:
    """Share of each stage in the cycles of a step that a profiling build counts; medians over slots and environments.

    A mean would hold the time that other processes took.
    """
    counted: dict[str, list[torch.Tensor]] = {}
    actions = torch.from_numpy(start.actions).to(env.device)
    for _ in range(max(1, PROFILED // env.num_envs)):
        env.set_state({**start.state, "elapsed": start.t})
        for action in actions:
            env.step(action)
            for stage, cycles in env.cycles().items():
                counted.setdefault(stage, []).append(cycles.clone())
    spent = {stage: float(torch.cat(cycles).double().median()) for stage, cycles in counted.items()}
    total = sum(spent.values())
    return {"noma": spent["noma"] / total, FUSED: (spent["decide"] + spent["queues"]) / total}


MAKE = {
    "original": original,
    "original-indexed": original,
    "arrays-numpy": arrays,
    "arrays-cupy": arrays,
    "port-cpu": port,
    "port-cuda": port,
}


def measure(name: str, group: Group, settings: Settings) -> list[dict]:
    """The rows of one group: of every block one for the whole step and one for each operation."""
    torch.set_num_threads(1)
    synchronize = torch.cuda.synchronize if group.device == "cuda" else timing.nothing
    start, scale = case(name, group, settings), settings.breakdown
    slots = len(start.actions)
    with MAKE[group.form](name, group, start) as form:

        def whole() -> Seconds:
            laps = Laps(synchronize)
            form.whole(laps)
            return laps.spent[WHOLE]

        rounds = timing.calls_per_block(whole, synchronize, scale.block_s)
        timing.warm_up(lambda: 1 / sum(whole().wall for _ in range(rounds)))
        block = functools.partial(clock_block, form, rounds, synchronize)
        blocks, had = timing.undisturbed(lambda: timing.unslowed(block, scale.blocks, group.device))
    same = {"environment": name, **asdict(group), "device": group.device, "threads": 1, "dtype": form.dtype}
    return [
        {**same, "operation": operation, "block": number, "steps": rounds * slots * group.num_envs}
        | {"wall_s": seconds.wall, "cpu_s": seconds.cpu, "had": had}
        for number, spent in enumerate(blocks)
        for operation, seconds in spent.items()
    ]


def clock_block(form: Form, rounds: int, synchronize: Callable[[], None]) -> dict[str, Seconds]:
    """Seconds of the whole steps and of every operation, over so many rounds of the same slots."""
    laps = Laps(synchronize)
    for _ in range(rounds):
        form.whole(laps)
        if form.parts:
            form.parts(laps)
    whole, spent = laps.spent[WHOLE], laps.spent
    for operation, share in (form.shares or {}).items():
        spent[operation] = Seconds(share * whole.wall, share * whole.cpu)
    if form.parts:
        fused = [spent[operation] for operation in OPERATIONS if operation != "noma"]
        spent[FUSED] = Seconds(sum(part.wall for part in fused), sum(part.cpu for part in fused))
    return spent


def report(frame: pd.DataFrame, *_) -> str:
    """Microseconds of every operation per slot of one environment, and how many times faster than the original."""
    lines = ["microseconds per slot of one environment, and times faster than the original"]
    seconds = frame["wall_s"] / frame["steps"]
    groups = dict(list(seconds.groupby([frame[key] for key in ("vehicles", "form", "num_envs", "operation")])))
    for (vehicles, form, num_envs), part in frame.groupby(["vehicles", "form", "num_envs"], sort=False):
        words = []
        for operation in part["operation"].unique():
            spent = groups[vehicles, form, num_envs, operation]
            base = groups.get((vehicles, "original", 1, operation))
            times = "" if base is None or form == "original" else f" {statistics.ratio(base, spent).ratio:.1f}x"
            words.append(f"{operation} {1e6 * spent.median():.1f}{times}")
        lines.append(f"  {Group(form, vehicles, num_envs).label:40} {', '.join(words)}")
    return "\n".join(lines)


def plan(request: Request) -> Plan:
    name, settings = request.environment, request.settings
    scale = settings.breakdown
    return Plan(
        by_label(groups(settings, request.devices)),
        each(lambda group: measure(name, group, settings)),
        config=request.asked(),
        method=timing.method(scale.blocks) | {"min_block_s": scale.block_s, "operations": METHOD},
    )


EXPERIMENT = Experiment(COLUMNS, plan, report, in_pieces=True, choices=("num_envs", "vehicles"))
