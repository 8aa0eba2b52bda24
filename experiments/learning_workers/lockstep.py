"""Our own agents: learning curves, time to solve, rates with their phases."""

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator

import torch

from lockstep import agents
from lockstep.agents.run import config as configuration
from lockstep.agents.run import evaluation, training
from lockstep.agents.run.algorithm import Algorithm
from lockstep.agents.run.config import Settings
from lockstep.experiments.bench import timing
from lockstep.experiments.learning_workers import CHECKS, Job, serve
from lockstep.experiments.scoring import policy_of

TITLE = "lockstep"
PACKAGE = "torch"


class Clock:
    """Seconds between `start` and `stop`, added up, with the device's work done."""

    def __init__(self, device: str):
        self.synchronize = torch.cuda.synchronize if torch.device(device).type == "cuda" else timing.nothing
        self.wall_s, self.spent = 0.0, timing.Spent(0.0, 0.0)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self.synchronize()
        before, start = timing.spent(), time.perf_counter()
        yield
        self.synchronize()
        self.wall_s += time.perf_counter() - start
        now = timing.spent()
        more = now.cpu_s - before.cpu_s, now.waited_s - before.waited_s
        self.spent = timing.Spent(self.spent.cpu_s + more[0], self.spent.waited_s + more[1])

    def seconds(self) -> dict:
        """The seconds so far, and the share of the time in which threads could run that they had a core."""
        had = self.spent.had_since(timing.Spent(0.0, 0.0))
        return {"wall_s": self.wall_s, "cpu_s": self.spent.cpu_s, "had": had}


def curve(
    algorithm: type[Algorithm], environment: str | object, config: Settings, device: str, points: int
) -> tuple[list[dict], list[dict], Algorithm]:
    """Trains once. A row and a policy at each of so many points, equally spaced in iterations, the last at the end.

    The clock runs from before construction and stands still while a policy is copied.
    """
    clock, rows, policies = Clock(device), [], []
    with clock.running():
        run = algorithm(environment, config, device)
    for point in range(1, min(points, run.iterations) + 1):
        with clock.running():
            while run.iteration < round(run.iterations * point / min(points, run.iterations)):
                run.iterate()
            run.statistics()  # raises where something is not finite
        rows.append({"env_steps": run.env_steps} | clock.seconds())
        policies.append(policy_of(run))
    return rows, policies, run


def for_seconds(
    algorithm: type[Algorithm], environment: str, config: Settings, device: str, seconds: float
) -> tuple[dict, dict]:
    """Trains until the clock, construction included, has run so long, at least one iteration; a row and the policy."""
    clock = Clock(device)
    with clock.running():
        run = algorithm(environment, config, device)
    while run.iteration == 0 or (clock.wall_s < seconds and run.iteration < run.iterations):
        with clock.running():
            run.iterate()
    run.statistics()
    return {"env_steps": run.env_steps} | clock.seconds(), policy_of(run)


def solve(
    algorithm: type[Algorithm],
    environment: str,
    config: Settings,
    device: str,
    solved: float,
    started: float | None = None,
) -> tuple[dict, dict, Algorithm]:
    """Trains until two checks in succession reach `solved`, checks included; a row, in which `solved` says whether they
    did, and the policy. started: `time.monotonic()` where the clock began; None: now.
    """
    started, before = time.monotonic() if started is None else started, timing.spent()
    check = training.Checks(environment, solved, device)
    run = training.train(algorithm, environment, config, device, check=check)
    Clock(device).synchronize()
    times = {"wall_s": time.monotonic() - started, "had": timing.spent().had_since(before)}
    reached = len(check.scores) >= CHECKS and all(score >= solved for _, score in check.scores[-CHECKS:])
    return {"env_steps": run.env_steps, "solved": int(reached)} | times, policy_of(run), run


def together(algorithm: type[Algorithm], environment: str, config: Settings, device: str, solved: float) -> list[dict]:
    """Trains a population at once, to the end; a row per member, whose seconds are those of all.

    Its score is of episodes in the port, for thousands of agents take hours to play in the original.
    """
    algorithm(environment, config, device).iterate()  # compiles
    clock = Clock(device)
    with clock.running():
        run = algorithm(environment, config, device)
        while run.iteration < run.iterations:
            run.iterate()
        run.statistics()
    episodes = evaluation.PortEpisodes(environment, device=device)
    same = {"env_steps": run.env_steps // config.population} | clock.seconds()
    same |= {"parameters": run.parameter_count // config.population, "reason": "scored in the port"}
    rows = []
    for member in range(config.population):
        play = run.policy(member=member) or functools.partial(run.act, member=member)
        score = float(episodes.play(play).returns.mean())
        rows.append(same | {"seed": config.seed + member, "score": score, "solved": int(score >= solved)})
    return rows


def rates(
    algorithm: type[Algorithm], environment: str, config: Settings, device: str, blocks: int
) -> tuple[list[dict], Algorithm]:
    """A row per block of whole iterations, metrics for the log included, and the seconds of the phases in it.

    first_call_s is the construction, compilation and capture included, and the first iteration.
    """
    start = Clock(device)
    with start.running():
        run = algorithm(environment, config, device)  # compiles and captures
        run.iterate()
    while not run.learns:
        run.iterate()
    phases = Phases(run, device)

    calls = timing.calls_per_block(run.iterate, Clock(device).synchronize, timing.MIN_BLOCK_S)

    def block() -> dict:
        phases.clear()
        clock, before, more = Clock(device), run.env_steps, calls
        while clock.wall_s < timing.MIN_BLOCK_S:
            with clock.running():
                for _ in range(more):
                    run.iterate()
                run.statistics()  # as for a row of the log
            more = math.ceil(calls / 16)  # a block that came out short goes on in small pieces
        return {"env_steps": run.env_steps - before} | clock.seconds() | phases.seconds()

    def speed() -> float:
        row = block()
        return row["env_steps"] / row["wall_s"]

    timing.warm_up(speed)
    memory = {"gpu_memory_mib": torch.cuda.max_memory_allocated() / 2**20} if device.startswith("cuda") else {}
    same = {"first_call_s": start.wall_s} | memory
    measured, _ = timing.undisturbed(lambda: timing.unslowed(block, blocks, device))
    return [same | {"block": number} | row for number, row in enumerate(measured)], run


class Phases:
    """The seconds of each phase of a run's iterations: by the host's clock on the CPU, by the device's on CUDA."""

    def __init__(self, run: Algorithm, device: str):
        self.on_cuda = torch.device(device).type == "cuda"
        self.marks: dict[str, list[tuple]] = {}
        run.phases = {name: self._watched(name, phase) for name, phase in run.phases.items()}

    def _watched(self, name: str, phase: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            before = self._mark()
            phase()
            self.marks.setdefault(name, []).append((before, self._mark()))

        return call

    def _mark(self) -> "float | torch.cuda.Event":
        if not self.on_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def clear(self) -> None:
        self.marks.clear()

    def seconds(self) -> dict[str, float]:
        """<phase>_s since `clear`, of each phase; to be asked for when the device is done."""
        spent = {}
        for name, marks in self.marks.items():
            pairs = ((end - start) if not self.on_cuda else start.elapsed_time(end) / 1e3 for start, end in marks)
            spent[f"{name}_s"] = sum(pairs)
        return spent


def measure(job: Job) -> list[dict]:
    """Time to solve of one seed in a process of its own: the clock began before it was started."""
    algorithm = agents.algorithm(job.algorithm)
    config = configuration.replaced(algorithm.Config(), job.settings | {"seed": job.seeds[0]})
    torch.set_num_threads(algorithm.torch_threads(config))
    row, _, run = solve(algorithm, job.environment, config, job.device, job.solved, job.started)
    score = float(evaluation.in_original(job.environment, run.act).returns.mean())
    return [row | {"score": score, "solved": int(row["solved"] and score >= job.solved)}]


if __name__ == "__main__":
    serve(measure)
