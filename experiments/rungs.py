"""The rungs of the ladder: the ways to step an environment, from Gymnasium's loop to fused steps on the GPU.

Every rung draws its actions inside the timed loop, on the device it steps on, and counts live steps only; one
says that it does not: port-cuda-no-reset counts the steps of environments that have ended, as the note did.
Random actions are drawn DRAWN_STEPS at a time, so that no rung pays more calls for them than another.
"""

import importlib.util
import itertools
import math
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

import envs
from experiments import timing
from experiments.config import Settings

DRAWN_STEPS = 128  # one Philox block holds the bits of 128 two-valued actions
MAX_CALL_STEPS = 2**24  # of all environments in one call, so that a call at 4 M environments takes no seconds
ORIGINAL_CALL_STEPS = 1024
HIDDEN = 64  # units in both layers of the networks of the MLP rungs


@dataclass(frozen=True)
class Group:
    """One measurement: a rung at one size and setting."""

    rung: str
    device: str
    num_envs: int
    threads: int  # of the CPU; processes in original-all-cores
    fused_steps: int  # K steps in one call of the port, else 1
    policy: str  # random | fixed | constant (always the same action) | mlp
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
    space = env.action_space
    discrete = hasattr(space, "n")  # such an environment takes a plain int, and is faster with it

    def random_steps(steps: int) -> None:
        for start in range(0, steps, DRAWN_STEPS):
            actions = random_actions(rng, space, (min(DRAWN_STEPS, steps - start),))
            for action in actions.tolist() if discrete else actions:
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()

    if policy == "random":
        return random_steps
    choose = fixed_policy(space, settings)

    def fixed_steps(steps: int) -> None:
        nonlocal observation
        for _ in range(steps):
            action = choose(observation)
            observation, _, terminated, truncated, _ = env.step(int(action) if discrete else action)
            if terminated or truncated:
                observation, _ = env.reset()

    return fixed_steps


def random_actions(rng: np.random.Generator, space, shape: tuple[int, ...]) -> np.ndarray:
    """Actions of one environment, so many: [*shape] of a Discrete space, [*shape, n] of a Box."""
    if hasattr(space, "n"):
        return rng.integers(space.n, size=shape)
    return rng.uniform(space.low, space.high, (*shape, *space.shape)).astype(space.dtype)


def fixed_policy(space, settings: Settings) -> Callable[[np.ndarray], np.ndarray]:
    """The fixed policy in NumPy, from observations [..., n] to actions [...] of a Discrete space, [..., 1] of a Box."""
    weights, bias = linear(settings)
    if hasattr(space, "n"):
        return lambda observation: (observation @ weights.T + bias).argmax(axis=-1)
    return lambda observation: np.clip(observation @ weights.T + bias, space.low, space.high)


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
    space, steps = env.single_action_space, steps_per_call(group.num_envs)
    choose = fixed_policy(space, settings) if group.policy == "fixed" else None

    def actions() -> Iterator[np.ndarray]:
        if choose is None:
            yield from random_actions(rng, space, (steps, group.num_envs))
        else:
            yield from (choose(observation) for _ in range(steps))

    def run() -> int:
        nonlocal observation, ended
        live = 0
        for action in actions():
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


def port(synchronised: bool = False, autoreset_mode: str = "SameStep") -> Callable:
    """The port, one step per call; on the GPU one launch per step, and a synchronisation where that is asked for."""

    @contextmanager
    def rung(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
        env, steps = made(name, group, settings, autoreset_mode), steps_per_call(group.num_envs)
        actions = actions_of(env, group, settings, steps)

        def step_and_wait(action: torch.Tensor) -> None:
            env.step(action)
            torch.cuda.synchronize()

        step = step_and_wait if synchronised else env.step

        def run() -> None:
            for action in actions():
                step(action)

        yield Loop(run, steps * group.num_envs, "float32", env.bytes_per_step)

    return rung


@contextmanager
def port_graph(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
    """Policy and step, many times, as one CUDA graph."""
    env, steps = made(name, group, settings), steps_per_call(group.num_envs)
    env.reset(seed=settings.seed)
    policy = policy_of(env, group, settings)
    graph = env.graph(policy if group.policy == "random" else env.actor(policy), steps)
    yield Loop(graph.replay, steps * group.num_envs, "float32", env.bytes_per_step)


def port_fused(store: str) -> Callable:
    """K steps in one launch, keeping episode statistics or whole trajectories."""

    @contextmanager
    def rung(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
        env = made(name, group, settings)
        policy = policy_of(env, group, settings)
        env.reset(seed=settings.seed)

        def run() -> None:
            env.rollout(group.fused_steps, policy=policy, store=store)

        # The batch is read and written once per launch, a stored step once.
        stored = stored_bytes(env, group.fused_steps, policy) if store == "trajectory" else 0
        traffic = env.bytes_per_step / group.fused_steps + stored
        yield Loop(run, group.fused_steps * group.num_envs, "float32", traffic)

    return rung


def made(name: str, group: Group, settings: Settings, autoreset_mode: str = "SameStep"):
    """The batch of a group."""
    threads = None
    if group.device == "cpu":
        threads = group.threads
        torch.set_num_threads(threads)  # for a fixed policy's own operations
    options = {"obs": group.obs, "threads": threads, "autoreset_mode": autoreset_mode}
    return envs.make(name, group.num_envs, device=group.device, seed=settings.seed, **options)


def actions_of(env, group: Group, settings: Settings, steps: int) -> Callable[[], Iterable[torch.Tensor]]:
    """Resets the batch; a function that gives the next `steps` actions [B], each when it is asked for."""
    observation, _ = env.reset(seed=settings.seed)  # a buffer that each step overwrites
    if group.policy == "random":
        return lambda: env.random_actions(steps)
    if group.policy == "constant":
        same = torch.full((group.num_envs,), settings.throughput.constant_action, dtype=torch.uint8, device=env.device)
        return lambda: itertools.repeat(same, steps)
    choose = env.actor(policy_of(env, group, settings))
    return lambda: (choose(observation) for _ in range(steps))


def policy_of(env, group: Group, settings: Settings):
    """A group's policy as the environment takes it."""
    if group.policy == "fixed":
        return envs.Linear(*linear(settings))
    return networks(env, settings.seed) if group.policy == "mlp" else group.policy


def networks(env, seed: int) -> envs.MLP:
    """Actor and critic as they start a training, with the same weights in every run."""

    def network(outputs: int) -> torch.nn.Sequential:
        layers = torch.nn
        inputs = env.single_observation_space.shape[0]
        hidden = [layers.Linear(inputs, HIDDEN), layers.Tanh(), layers.Linear(HIDDEN, HIDDEN), layers.Tanh()]
        return layers.Sequential(*hidden, layers.Linear(HIDDEN, outputs)).to(env.device)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return envs.MLP(network(getattr(env.single_action_space, "n", 1)), network(1))


def stored_bytes(env, steps: int, policy) -> float:
    """Bytes that a trajectory of so many steps keeps of one step of one environment."""
    layout = env.trajectory_layout(steps, policy).values()
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in layout) / (steps * env.num_envs)


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
    missing: Callable[[str, Settings], str | None] = lambda name, settings: None  # why it cannot run for a name here


def no_gymnasium(name: str, settings: Settings) -> str | None:
    return None if importlib.util.find_spec("gymnasium") else "Gymnasium is not installed"


def no_gymnasium_vector(name: str, settings: Settings) -> str | None:
    if reason := no_gymnasium(name, settings):
        return reason
    import gymnasium

    found = gymnasium.spec(envs.port(name).gymnasium_id).vector_entry_point
    return None if found else "Gymnasium has no vectorised class for it"


def no_arrays(name: str, settings: Settings) -> str | None:
    return None if envs.has_arrays(name) else "it has no arrays.py"


def no_constant_action(name: str, settings: Settings) -> str | None:
    return None if "constant_action" in settings.throughput else "the note has no loop of it (no constant_action)"


ON_CPU = {"threaded": True}
ON_CUDA = {"device": "cuda"}
AS_IN_THE_NOTE = {"device": "cuda", "policies": ("constant",), "missing": no_constant_action}
RUNGS = {
    "original": Rung(original, batched=False, missing=no_gymnasium),
    "original-all-cores": Rung(original_all_cores, batched=False, missing=no_gymnasium),
    "gymnasium-vector": Rung(gymnasium_vector, missing=no_gymnasium_vector),
    "arrays-numpy": Rung(arrays, policies=("random",), missing=no_arrays),
    "port-cpu": Rung(port(), **ON_CPU),
    "port-cpu-fused": Rung(port_fused("statistics"), **ON_CPU, fused=True),
    "port-cpu-trajectory": Rung(port_fused("trajectory"), **ON_CPU, fused=True),
    "port-cpu-mlp": Rung(port_fused("trajectory"), **ON_CPU, fused=True, policies=("mlp",)),
    "arrays-cupy": Rung(arrays, **ON_CUDA, policies=("random",), missing=no_arrays),
    "port-cuda": Rung(port(), **ON_CUDA),
    "port-cuda-sync": Rung(port(synchronised=True), **ON_CUDA, policies=("random",)),
    "port-cuda-constant": Rung(port(synchronised=True), **AS_IN_THE_NOTE),
    "port-cuda-no-reset": Rung(port(synchronised=True, autoreset_mode="Disabled"), **AS_IN_THE_NOTE),
    "port-cuda-graph": Rung(port_graph, **ON_CUDA),
    "port-cuda-fused": Rung(port_fused("statistics"), **ON_CUDA, fused=True),
    "port-cuda-trajectory": Rung(port_fused("trajectory"), **ON_CUDA, fused=True),
    "port-cuda-mlp": Rung(port_fused("trajectory"), **ON_CUDA, fused=True, policies=("mlp",)),
}
