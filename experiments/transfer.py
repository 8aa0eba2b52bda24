"""Cost of copies between host and device: the source document's three timings, a real loop, a resident one.

note      an environment's step on the CPU, a copy of its observations to the GPU and one back, each timed apart
real      observations up, policy, actions down, step, again and again; the parts are those of one whole
rows      the same for one original after the other, and in it for one agent, as a loop that knows no batch does it
resident  the port where the policy is: nothing to copy

Without a GPU nothing goes up or down: the loops then run with the policy on the CPU, and a copy within the host's
memory is measured under its own name.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
import torch

from lockstep import envs
from lockstep.agents.run import evaluation
from lockstep.agents.run.host import OnHost
from lockstep.experiments import shares
from lockstep.experiments.bench import rungs, timing
from lockstep.experiments.config import Settings
from lockstep.experiments.experiment import Experiment, Group, Plan, Request, by_label, each
from lockstep.experiments.shares import CLOSURE, NEEDS_GPU, PARTS

COLUMNS = [
    *("environment", "loop", "source", "device", "memory", "num_envs", "threads", "part", "clock"),
    *("block", "calls", "wall_s", "bytes", "copies"),
]
MIN_BLOCK_S = 0.05  # shorter than the ladder's: every loop is run twice, as it is and in parts
DRAWN_STEPS = 32  # whose actions the document's step is given in turn
COUNTED_STEPS = 100
COPIES = ("Memcpy HtoD", "Memcpy DtoH")  # how the profiler's names of copies between host and device begin


@dataclass(frozen=True)
class Loop(Group):
    """One measurement: a loop, or a part of the document's procedure, at one size; or the copies in a loop."""

    loop: str  # note (the source document's) | real | rows | resident
    source: str  # what is stepped, named as a rung of the ladder; "copy" for the document's copies
    device: str  # where the policy is; of the document's copies the far end, of its step the CPU
    memory: str  # of the host's end of a copy: pageable | pinned; none where nothing is copied
    num_envs: int
    counted: bool = False  # count the copies between host and device instead of timing


def groups(name: str, settings: Settings, present: list[str]) -> list[Loop]:
    """The groups with the policy on each device present, smallest batch first."""
    sources = [source for source in SOURCES if not rungs.RUNGS[source].missing(name, settings)]
    memories = ("pageable", "pinned")
    timed, counted = [], []
    for num_envs in sorted(settings.transfer.num_envs):
        timed += [Loop("note", source, "cpu", "none", num_envs) for source in sources]
        timed.append(Loop("note", "copy", "cpu", "pageable", num_envs))
        if "cpu" in present:
            timed += [Loop("real", source, "cpu", "none", num_envs) for source in sources if source != "port-cpu"]
            timed.append(Loop("resident", "port-cpu", "cpu", "none", num_envs))
        if "cuda" in present:
            timed += [Loop("note", "copy", "cuda", memory, num_envs) for memory in memories]
            loops = [Loop("real", source, "cuda", memory, num_envs) for source in sources for memory in memories]
            loops.append(Loop("resident", "port-cuda-graph", "cuda", "none", num_envs))
            timed += loops
            counted += [Loop(**{**asdict(loop), "counted": True}) for loop in loops]
    for number in sorted(settings.transfer.get("originals", [])):
        timed += of_originals(number, present)
    return timed + counted  # counting last: a profiler may slow down what runs after it


def of_originals(number: int, present: list[str]) -> list[Loop]:
    """The groups of so many originals: row by row, and all of them with one call of the policy."""
    found = []
    for device, memories in (("cpu", ["none"]), ("cuda", ["pageable", "pinned"])):
        if device in present:
            found.append(Loop("rows", "original", device, memories[0], number))
            found += [Loop("real", "original", device, memory, number) for memory in memories]
    return found


# The batch that is stepped, and the policy.


@dataclass
class Source:
    """A batch of environments on the CPU."""

    observation: torch.Tensor  # [B, n] float32, the present one
    step: Callable[[torch.Tensor], None]  # takes actions [B] on the CPU, renews `observation`
    actions: list[torch.Tensor]  # random ones, drawn beforehand
    threads: int


@contextmanager
def gymnasium_vector(name: str, num_envs: int, seed: int) -> Iterator[Source]:
    """Gymnasium's own vectorised class; it resets what has ended."""
    import gymnasium

    env = gymnasium.make_vec(envs.port(name).gymnasium_id, num_envs=num_envs, vectorization_mode="vector_entry_point")
    env.action_space.seed(seed)
    actions = [torch.from_numpy(env.action_space.sample()) for _ in range(DRAWN_STEPS)]

    def step(action: torch.Tensor) -> None:
        source.observation = torch.from_numpy(env.step(action.numpy())[0])

    source = Source(torch.from_numpy(env.reset(seed=seed)[0]), step, actions, threads=1)
    yield source
    env.close()


@contextmanager
def port_cpu(name: str, num_envs: int, seed: int) -> Iterator[Source]:
    """The port on the CPU, a call per step; each overwrites the observation."""
    env = envs.make(name, num_envs, seed=seed)
    observation, _ = env.reset(seed=seed)
    yield Source(observation, env.step, list(env.random_actions(DRAWN_STEPS)), env.threads)


@contextmanager
def plain_originals(name: str, num_envs: int, seed: int) -> Iterator[Source]:
    """Originals, one after the other; what has ended begins anew."""
    with evaluation.games(name, num_envs) as games:
        yield of_games(games, itertools.count(seed))


def of_games(games: list, seeds: Iterator[int]) -> Source:
    """The batch of some games, whose episodes take the next of the seeds."""
    observation = torch.from_numpy(np.array([game.reset(next(seeds)) for game in games], dtype=np.float32))

    def step(action: torch.Tensor) -> None:
        given = evaluation.taken(action.numpy(), games[0].space)
        for game, row, one in zip(games, observation.numpy(), given, strict=True):
            seen, _, ended = game.step(one)
            row[:] = game.reset(next(seeds)) if ended else seen

    return Source(observation, step, [], threads=1)


SOURCES = {"gymnasium-vector": gymnasium_vector, "port-cpu": port_cpu}
OPENED = SOURCES | {"original": plain_originals}


def policy(name: str, device: str, seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Two hidden layers of 64, untrained: observations [..., n] to actions [...], of a Box [..., m] within bounds."""
    (outputs, inputs), space = envs.port(name).policy_shape, envs.port(name).of("action")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = rungs.network(inputs, outputs)
    network.requires_grad_(False).to(device)
    if hasattr(space, "n"):
        return lambda observation: network(observation).argmax(dim=-1)
    low, high = (torch.from_numpy(limit).to(device) for limit in (space.low, space.high))
    return lambda observation: network(observation).clamp(low, high)


# The loops.


@dataclass
class Round:
    """One round of a loop: `run` does it as it is, `parts` does the same under clocks and returns the seconds."""

    run: Callable[[], None]
    parts: Callable[[], dict[str, float]]
    threads: int
    bytes: dict[str, int]  # that each copy moves


@contextmanager
def loop(name: str, group: Loop, settings: Settings) -> Iterator[Round]:
    """A real loop, one row by row, or the resident one of the CPU."""
    choose = policy(name, group.device, settings.seed)

    def over(source: Source) -> Round:
        return (
            one_memory(source, of_rows(choose, group)) if group.device == "cpu" else two_memories(source, choose, group)
        )

    if group.loop == "rows":
        with evaluation.games(name, group.num_envs) as games:
            seeds = itertools.count(settings.seed)
            yield in_turn([over(of_games([game], seeds)) for game in games])
    else:
        with OPENED[group.source](name, group.num_envs, settings.seed) as source:
            yield over(source)


def of_rows(answer: Callable[[torch.Tensor], torch.Tensor], group: Loop) -> Callable[[torch.Tensor], torch.Tensor]:
    """The answer to observations [..., n]; row by row those to one row after the other, together."""

    def asked(observation: torch.Tensor) -> torch.Tensor:
        rows = observation.reshape(-1, 1, observation.shape[-1])
        if len(rows) == 1:
            return answer(observation)
        found = torch.cat([answer(row).clone() for row in rows])  # an answer is valid until the next one
        return found.view(*observation.shape[:-1], *found.shape[1:])

    return asked if group.loop == "rows" else answer


def in_turn(rounds: list[Round]) -> Round:
    """Rounds one after the other as one."""

    def run() -> None:
        for one in rounds:
            one.run()

    def parts() -> dict[str, float]:
        found = [one.parts() for one in rounds]
        return {part: sum(one[part] for one in found) for part in found[0]}

    moved = {part: size * len(rounds) for part, size in rounds[0].bytes.items()}
    return Round(run, parts, rounds[0].threads, moved)


def one_memory(source: Source, choose: Callable) -> Round:
    """Policy and environment on the CPU: the one reads what the other wrote."""

    def run() -> None:
        source.step(choose(source.observation))

    def parts() -> dict[str, float]:
        start = time.perf_counter()
        action = choose(source.observation)
        chosen = time.perf_counter()
        source.step(action)
        return {"policy": chosen - start, "step": time.perf_counter() - chosen}

    return Round(run, parts, source.threads, {})


def two_memories(source: Source, choose: Callable, group: Loop) -> Round:
    """The environment on the CPU, the policy on the GPU.

    The device's own clock ends `up` and `policy`; the host's ends `down`, when the actions have arrived, and `step`.
    No clock makes the host wait for the device where the loop does not, so the launches of the policy overlap with
    the copy as they do without clocks. `down` has what the host spends on handing over and on waking up.
    """
    hosted = OnHost(choose, group.device, group.memory == "pinned")
    stream = torch.cuda.current_stream()
    begun, uploaded, chosen = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    moved = {"up": source.observation.nbytes, "down": hosted(source.observation).nbytes}

    def run() -> None:
        source.step(of_rows(hosted, group)(source.observation))

    def parts() -> dict[str, float]:
        spent = {"up": 0.0, "policy": 0.0}

        def clocked(observation: torch.Tensor) -> torch.Tensor:
            begun.record(stream)
            observations = hosted.up(observation)
            uploaded.record(stream)
            action = choose(observations)
            chosen.record(stream)
            arrived = hosted.down(action)
            spent["up"] += begun.elapsed_time(uploaded) / 1e3
            spent["policy"] += uploaded.elapsed_time(chosen) / 1e3
            return arrived

        start = time.perf_counter()
        action = of_rows(clocked, group)(source.observation)
        back = time.perf_counter()
        source.step(action)
        stepped = time.perf_counter()
        return spent | {"down": back - start - spent["up"] - spent["policy"], "step": stepped - back}

    return Round(run, parts, source.threads, moved)


@contextmanager
def graph(name: str, group: Loop, settings: Settings) -> Iterator[tuple[Callable[[], None], int]]:
    """The resident loop of the GPU: a call that replays policy and step so many times, and how many times."""
    env, steps = (
        envs.make(name, group.num_envs, device="cuda", seed=settings.seed),
        rungs.steps_per_call(group.num_envs, "cuda"),
    )
    env.reset(seed=settings.seed)
    yield env.graph(policy(name, "cuda", settings.seed), steps).replay, steps


# Timing and counting: each returns rows without the columns of their group.


def timed(part: str, run: Callable, blocks: int, steps: int = 1, **about) -> list[dict]:
    """Rows of what is timed by itself: each call of `run` does the part `steps` times."""
    run()  # loads and compiles what the first call does
    device = "cuda" if torch.cuda.is_available() else "cpu"
    synchronize = torch.cuda.synchronize if device == "cuda" else timing.nothing
    measured = timing.measure(
        run, steps_per_call=steps, synchronize=synchronize, blocks=blocks, min_block_s=MIN_BLOCK_S, device=device
    )
    return [
        row(part, number, block.steps, wall_s=block.wall_s, had=block.had, clock="host", **about)
        for number, block in enumerate(measured)
    ]


def taken_apart(found: Round, blocks: int) -> list[dict]:
    """Rows of a loop and of its parts, block by block in turn: so the parts can be held against the loop."""
    found.run()
    found.parts()
    calls = timing.calls_per_block(found.run, timing.nothing, MIN_BLOCK_S)

    def whole() -> float:
        start = time.perf_counter()
        for _ in range(calls):
            found.run()
        return time.perf_counter() - start

    def parts() -> dict[str, float]:
        spent: dict[str, float] = {}
        for _ in range(calls):
            for part, seconds in found.parts().items():
                spent[part] = spent.get(part, 0.0) + seconds
        return spent

    timing.warm_up(lambda: calls / whole())
    parts()
    measured, had = timing.undisturbed(lambda: timing.unslowed(lambda: (whole(), parts()), blocks))
    rows = []
    for block, (wall_s, spent) in enumerate(measured):
        same = {"threads": found.threads, "had": had}
        rows.append(row("loop", block, calls, wall_s=wall_s, clock="host", **same))
        for part in [part for part in PARTS if part in spent]:
            clock = "events" if part in ("up", "policy") and "up" in spent else "host"
            rows.append(row(part, block, calls, wall_s=spent[part], clock=clock, bytes=found.bytes.get(part), **same))
    return rows


def row(part: str, block: int, calls: int, **found) -> dict:
    """A row; what was not found is an empty cell."""
    empty = dict.fromkeys(["threads", "clock", "wall_s", "bytes", "copies"])
    return {**empty, "part": part, "block": block, "calls": calls, **found}


def note_step(name: str, group: Loop, settings: Settings) -> list[dict]:
    """The environment's step alone, its actions random and drawn beforehand."""
    with SOURCES[group.source](name, group.num_envs, settings.seed) as source:
        actions = itertools.cycle(source.actions)
        return timed("step", lambda: source.step(next(actions)), settings.transfer.blocks, threads=source.threads)


def note_copies(name: str, group: Loop, settings: Settings) -> list[dict]:
    """A copy of the observations to the GPU and one back, each followed by a synchronisation, as in the document.

    On the CPU one copy to another place in its memory, which is neither.
    """
    port = envs.port(name)
    pinned = group.memory == "pinned"
    shape = group.num_envs, *port.of("observation").shape
    near = torch.zeros(shape, dtype=torch.float32, device="cpu", pin_memory=pinned)
    far = torch.zeros_like(near, device=group.device, pin_memory=False)

    def copy(destination: torch.Tensor, source: torch.Tensor) -> Callable[[], None]:
        def run() -> None:
            destination.copy_(source, non_blocking=pinned)
            if group.device == "cuda":
                torch.cuda.synchronize()

        return run

    parts = (
        {"up": copy(far, near), "down": copy(near, far)} if group.device == "cuda" else {"host-copy": copy(far, near)}
    )
    blocks = settings.transfer.blocks
    return [line for part, run in parts.items() for line in timed(part, run, blocks, bytes=near.nbytes)]


def count(name: str, group: Loop, settings: Settings) -> list[dict]:
    """One row: how often a loop copied between host and device."""
    if group.loop == "resident":
        with graph(name, group, settings) as (replay, steps):
            return [row("copies", 0, steps, copies=copies_in(replay), clock="profiler")]
    with loop(name, group, settings) as found:

        def run() -> None:
            for _ in range(COUNTED_STEPS):
                found.run()

        about = {"threads": found.threads, "clock": "profiler"}
        return [row("copies", 0, COUNTED_STEPS, copies=copies_in(run), **about)]


def copies_in(run: Callable[[], None]) -> int | None:
    """Copies between host and device while `run` runs, from CUPTI through torch's profiler.

    None where it shows no work of the device at all: then it cannot tell.
    """
    run()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        run()
        torch.cuda.synchronize()
    names = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return sum(name.startswith(COPIES) for name in names) if names else None


def measure(name: str, group: Loop, settings: Settings) -> list[dict]:
    """The rows of one group, one per part and block."""
    torch.set_num_threads(1)  # its waiting threads spin, which a machine that does anything else pays for dearly
    blocks = settings.transfer.blocks
    if group.counted:
        rows = count(name, group, settings)
    elif group.loop == "note":
        rows = (note_copies if group.source == "copy" else note_step)(name, group, settings)
    elif group.source == "port-cuda-graph":
        with graph(name, group, settings) as (replay, steps):
            rows = timed("loop", replay, blocks, steps)
    else:
        with loop(name, group, settings) as found:
            rows = taken_apart(found, blocks)
    same = {"environment": name, **{key: value for key, value in asdict(group).items() if key != "counted"}}
    return [same | line for line in rows]


def report(frame: pd.DataFrame, *_) -> str:
    """Every loop with its parts, and what this machine cannot tell, as lines to print."""
    lines = ["microseconds per batched step; share of up and down in it"]
    summary = shares.transfer_summary(frame)
    for line in summary.to_dict("records"):
        memory = "" if line["memory"] == "none" else f" {line['memory']}"
        named = f"{line['loop']} {line['source']} {line['device']}{memory} B={line['num_envs']}"
        parts = [(part, line[part]) for part in (*PARTS, "host_copy")] + [("loop", line["whole"])]
        words = [f"{part.replace('_', ' ')} {1e6 * value:.1f}" for part, value in parts if value == value]
        words += [f"share {line['share']:.1%}"] if line["share"] == line["share"] else []
        words += (
            [f"over step {line['over_step']:.1%}"] if line["loop"] == "note" and line["share"] == line["share"] else []
        )
        words += [f"parts sum to {line['closure']:.1%}"] if line["closure"] == line["closure"] else []
        words += [f"{line['copies']:g} copies"] if line["copies"] == line["copies"] else []
        lines.append(f"  {named:44} {', '.join(words)}")
    if not (summary["device"] == "cuda").any():
        lines.append(f"  up, down, and the loops with the policy on a GPU: {NEEDS_GPU}")
    verdict = "sum" if shares.closes(summary) else "do NOT sum"
    lines.append(f"the parts of the loops {verdict} to the whole within {CLOSURE:.0%}")
    return "\n".join(lines)


def plan(request: Request) -> Plan:
    name, settings = request.environment, request.settings
    return Plan(
        by_label(groups(name, settings, request.devices)),
        each(lambda group: measure(name, group, settings)),
        config=request.asked(),
        method=timing.method(settings.transfer.blocks) | {"min_block_s": MIN_BLOCK_S},
    )


def closes(frame: pd.DataFrame) -> bool:
    return shares.closes(shares.transfer_summary(frame))


EXPERIMENT = Experiment(COLUMNS, plan, report, verdict=closes, choices=("num_envs",))
