"""The rungs of the ladder: the ways to step an environment, from Gymnasium's loop to fused steps on the GPU.

Every rung draws its actions inside the timed loop, on the device it steps on, and counts live steps only.
Random actions are drawn DRAWN_STEPS at a time, so that no rung pays more calls for them than another.
"""

import importlib.util
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

import envs
from experiments import timing
from experiments.config import Settings

DRAWN_STEPS = 128  # one Philox block holds the bits of 128 two-valued actions
MAX_CALL_STEPS = 2**26  # of all environments in one call, so that a call at 4 M environments takes no seconds
ORIGINAL_CALL_STEPS = 1024


@dataclass(frozen=True)
class Group:
    """One measurement: a rung at one size and setting."""

    rung: str
    device: str
    num_envs: int
    threads: int  # of the CPU; processes in original-all-cores
    fused_steps: int  # K steps in one call of the port, else 1
    policy: str  # random | fixed | constant (always action 1)
    obs: str  # copy | view


@dataclass
class Loop:
    """What a rung hands to the clock."""

    run: Callable[[], int | None]
    steps_per_call: int | None  # None: `run` returns its live steps
    dtype: str  # of the state
    bytes_per_step: float | None = None  # memory traffic of one step of one environment, where it is counted
    cpu_clock: Callable[[], float] = timing.cpu_seconds


# Each of these sets its loop up, yields it, and cleans up.


@contextmanager
def original(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
    """Gymnasium's own environment, one, in one process."""
    env = envs.make_original(name)
    run = original_loop(env, group.policy, settings)
    yield Loop(lambda: run(ORIGINAL_CALL_STEPS), ORIGINAL_CALL_STEPS, "float64")
    env.close()


def original_loop(env, policy: str, settings: Settings) -> Callable[[int], None]:
    """A function that steps a Gymnasium environment so many times, resetting where an episode ends."""
    rng = np.random.default_rng(settings.seed)
    observation, _ = env.reset(seed=settings.seed)

    def random_steps(steps: int) -> None:
        for start in range(0, steps, DRAWN_STEPS):
            for action in random_actions(rng, env.action_space, min(DRAWN_STEPS, steps - start)):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()

    if policy == "random":
        return random_steps
    weights, bias = linear(settings)

    def fixed_steps(steps: int) -> None:
        nonlocal observation
        for _ in range(steps):
            observation, _, terminated, truncated, _ = env.step(int(np.argmax(weights @ observation + bias)))
            if terminated or truncated:
                observation, _ = env.reset()

    return fixed_steps


def random_actions(rng: np.random.Generator, space, steps: int) -> list | np.ndarray:
    """Actions of one environment: ints of a Discrete space, [steps, n] of a Box."""
    if hasattr(space, "n"):
        return rng.integers(space.n, size=steps).tolist()
    return rng.uniform(space.low, space.high, (steps, *space.shape)).astype(space.dtype)


def linear(settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Weights [m, n] and bias [m] of the fixed policy."""
    policy = settings.throughput.fixed_policy
    return np.array(policy.weights, dtype=np.float32), np.array(policy.bias, dtype=np.float32)


@contextmanager
def original_all_cores(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
    """One process per core, each stepping one original; pipes carry step counts, no observations."""
    context = multiprocessing.get_context("spawn")
    pipes, workers = [], []
    for number in range(group.threads):
        pipe, theirs = context.Pipe()
        arguments = (theirs, name, group.policy, {**settings.plain(), "seed": settings.seed + number})
        workers.append(context.Process(target=step_on_demand, args=arguments, daemon=True))
        workers[-1].start()
        pipes.append(pipe)
        theirs.close()
    spent = [0.0] * len(pipes)  # CPU seconds of each worker when it last answered
    steps = 4 * ORIGINAL_CALL_STEPS  # about 20 ms: waiting for the slowest then costs little

    def run() -> None:
        for pipe in pipes:
            pipe.send(steps)
        for number, pipe in enumerate(pipes):
            spent[number] = pipe.recv()

    try:
        yield Loop(run, steps * len(pipes), "float64", cpu_clock=lambda: time.process_time() + sum(spent))
    finally:
        for pipe in pipes:
            pipe.close()
        for worker in workers:
            worker.join()


def step_on_demand(pipe, name: str, policy: str, settings: dict) -> None:
    """A worker of original-all-cores: steps as often as it is told, answers with its CPU seconds so far."""
    run = original_loop(envs.make_original(name), policy, Settings(settings))
    try:
        while True:
            run(pipe.recv())
            pipe.send(time.process_time())
    except EOFError:  # the other end is closed: the measurement is over
        pass


@contextmanager
def gymnasium_vector(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
    """Gymnasium's own vectorised class; the steps its NEXT_STEP mode spends on resets are not counted."""
    import gymnasium

    env = gymnasium.make_vec(
        envs.port(name).gymnasium_id, num_envs=group.num_envs, vectorization_mode="vector_entry_point"
    )
    rng = np.random.default_rng(settings.seed)
    observation, _ = env.reset(seed=settings.seed)
    ended = np.zeros(group.num_envs, bool)
    space = env.single_action_space
    steps = steps_per_call(group.num_envs)

    def drawn() -> Iterator[np.ndarray]:
        if hasattr(space, "n"):
            yield from rng.integers(space.n, size=(steps, group.num_envs))
        else:
            shape = (steps, group.num_envs, *space.shape)
            yield from rng.uniform(space.low, space.high, shape).astype(space.dtype)

    def chosen() -> Iterator[np.ndarray]:
        weights, bias = linear(settings)
        for _ in range(steps):
            yield (observation @ weights.T + bias).argmax(axis=1)

    def run() -> int:
        nonlocal observation, ended
        live = 0
        for action in drawn() if group.policy == "random" else chosen():
            live += group.num_envs - np.count_nonzero(ended)
            observation, _, terminated, truncated, _ = env.step(action)
            ended = terminated | truncated
        return live

    yield Loop(run, None, "float64")
    env.close()


@contextmanager
def arrays(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
    """The port as array code, on NumPy or CuPy."""
    if group.device == "cuda":
        import cupy as xp
    else:
        xp = np
    env = envs.make_arrays(name, group.num_envs, xp=xp, seed=settings.seed)
    steps = steps_per_call(group.num_envs)

    def run() -> None:
        for action in env.random_actions(steps):
            env.step(action)

    yield Loop(run, steps * group.num_envs, "float32")


@contextmanager
def port(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
    """The port, one step per call; on the GPU one launch per step, synchronised by the clock alone."""
    env, steps = made(name, group, settings), steps_per_call(group.num_envs)
    observation, _ = env.reset(seed=settings.seed)

    def random_steps() -> None:
        for action in env.random_actions(steps):
            env.step(action)

    def fixed_steps() -> None:
        for _ in range(steps):
            env.step(choose(observation))  # which each step overwrites

    if group.policy == "fixed":
        choose = on_tensors(group, settings)
    run = random_steps if group.policy == "random" else fixed_steps
    yield Loop(run, steps * group.num_envs, "float32", env.bytes_per_step)


@contextmanager
def port_synchronised(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
    """One launch and one synchronisation per step; actions random or, as in the note, always 1."""
    env, steps = made(name, group, settings), steps_per_call(group.num_envs)
    env.reset(seed=settings.seed)
    ones = torch.ones(group.num_envs, dtype=torch.uint8, device=group.device)

    def random_steps() -> None:
        for action in env.random_actions(steps):
            env.step(action)
            torch.cuda.synchronize()

    def constant_steps() -> None:
        for _ in range(steps):
            env.step(ones)
            torch.cuda.synchronize()

    run = random_steps if group.policy == "random" else constant_steps
    yield Loop(run, steps * group.num_envs, "float32", env.bytes_per_step)


@contextmanager
def port_graph(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
    """Policy and step, many times, as one CUDA graph."""
    env, steps = made(name, group, settings), steps_per_call(group.num_envs)
    env.reset(seed=settings.seed)
    graph = env.graph("random" if group.policy == "random" else on_tensors(group, settings), steps)
    yield Loop(graph.replay, steps * group.num_envs, "float32", env.bytes_per_step)


def port_fused(store: str) -> Callable:
    """K steps in one launch, keeping episode statistics or whole trajectories."""

    @contextmanager
    def rung(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
        env = made(name, group, settings)
        policy = "random" if group.policy == "random" else envs.Linear(*linear(settings))
        env.reset(seed=settings.seed)

        def run() -> None:
            env.rollout(group.fused_steps, policy=policy, store=store)

        # The batch is read and written once per launch, a stored step once.
        traffic = env.bytes_per_step / group.fused_steps + (stored_bytes(env) if store == "trajectory" else 0)
        yield Loop(run, group.fused_steps * group.num_envs, "float32", traffic)

    return rung


def made(name: str, group: Group, settings: Settings):
    threads = None
    if group.device == "cpu":
        threads = group.threads
        torch.set_num_threads(threads)  # for a fixed policy's own operations
    return envs.make(name, group.num_envs, device=group.device, seed=settings.seed, obs=group.obs, threads=threads)


def on_tensors(group: Group, settings: Settings) -> Callable[[torch.Tensor], torch.Tensor]:
    """The fixed policy in torch: observations [B, n] to actions [B]."""
    weights, bias = (torch.from_numpy(part).to(group.device) for part in linear(settings))
    return lambda observation: torch.argmax(observation @ weights.T + bias, dim=1)


def stored_bytes(env) -> int:
    """Bytes that a trajectory keeps of one step: observation, action, reward, two flags."""
    return 4 * env.single_observation_space.shape[0] + 1 + 4 + 2


def steps_per_call(num_envs: int) -> int:
    return max(1, min(DRAWN_STEPS, MAX_CALL_STEPS // num_envs))


@dataclass(frozen=True)
class Rung:
    """A way to step an environment, and what about it may vary."""

    loop: Callable
    device: str = "cpu"
    batched: bool = True  # num_envs varies
    threaded: bool = False  # threads vary
    fused: bool = False  # fused_steps vary
    policies: tuple[str, ...] = ("random", "fixed")
    missing: Callable[[str], str | None] = lambda name: None  # why it cannot run for this environment here


def no_gymnasium(name: str) -> str | None:
    return None if importlib.util.find_spec("gymnasium") else "Gymnasium is not installed"


def no_gymnasium_vector(name: str) -> str | None:
    if reason := no_gymnasium(name):
        return reason
    import gymnasium

    found = gymnasium.spec(envs.port(name).gymnasium_id).vector_entry_point
    return None if found else "Gymnasium has no vectorised class for it"


def no_arrays(name: str) -> str | None:
    return None if envs.has_arrays(name) else "it has no arrays.py"


ON_CPU = {"threaded": True}
ON_CUDA = {"device": "cuda"}
RUNGS = {
    "original": Rung(original, batched=False, missing=no_gymnasium),
    "original-all-cores": Rung(original_all_cores, batched=False, missing=no_gymnasium),
    "gymnasium-vector": Rung(gymnasium_vector, missing=no_gymnasium_vector),
    "arrays-numpy": Rung(arrays, policies=("random",), missing=no_arrays),
    "port-cpu": Rung(port, **ON_CPU),
    "port-cpu-fused": Rung(port_fused("statistics"), **ON_CPU, fused=True),
    "port-cpu-trajectory": Rung(port_fused("trajectory"), **ON_CPU, fused=True),
    "arrays-cupy": Rung(arrays, **ON_CUDA, policies=("random",), missing=no_arrays),
    "port-cuda": Rung(port, **ON_CUDA),
    "port-cuda-sync": Rung(port_synchronised, **ON_CUDA, policies=("random",)),
    "port-cuda-constant": Rung(port_synchronised, **ON_CUDA, policies=("constant",)),
    "port-cuda-graph": Rung(port_graph, **ON_CUDA),
    "port-cuda-fused": Rung(port_fused("statistics"), **ON_CUDA, fused=True),
    "port-cuda-trajectory": Rung(port_fused("trajectory"), **ON_CUDA, fused=True),
}
