"""The rungs of environments that several lanes hold: from the original's loop to fused steps on the GPU.

A step is one of an environment, whatever the number of its agents. What is stepped (preset, sizes) stands in the
settings as `throughput.options`, the same for original, arrays and port. An action may be thousands of numbers, so that
as many steps are drawn at a time as DRAWN_BYTES hold.
"""

import dataclasses
import importlib.util
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from lockstep import envs
from lockstep.experiments.bench import rungs
from lockstep.experiments.bench.ladder import ON_CPU, ON_CUDA, SET_UP_S, Group, Loop, Rung, all_cores
from lockstep.experiments.config import Settings

LARGE_BATCH = 1024  # from here on a group is checked against the memory first
DRAWN_BYTES = 2**24  # of random actions
MOST_DRAWN_STEPS = 50
SCENARIOS = 8  # that environments share
MOST_SCENARIOS = 4096  # that a rung with a scenario for each environment draws
DRAWING_S = 0.02  # allowance of a prediction for one scenario


# Each of these sets its loop up, yields it, and cleans up.


def original(indexed: bool = False) -> Callable:
    """The original, one, in one process; `indexed` keeps lists where the other searches."""

    @contextmanager
    def rung(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
        run = original_stepper(name, group, settings, **{"indexed": True} if indexed else {})
        steps = horizon(name, settings)  # whole episodes, so that each call holds its share of resets
        yield Loop(lambda: run(steps), steps, "float64")

    return rung


def original_stepper(name: str, group: Group, settings: Settings, **options) -> Callable[[int], None]:
    env = envs.make_original(name, **options, **rungs.options_of(settings))
    if hasattr(env, "possible_agents"):
        return original_loop(env, settings.seed)
    return rungs.original_loop(env, "random", settings)


def original_loop(env, seed: int) -> Callable[[int], None]:
    """A function that steps a PettingZoo environment so many times, resetting where an episode ends."""
    rng, agents = np.random.default_rng(seed), env.possible_agents
    env.reset(seed=seed)
    space = env.action_space(agents[0])
    drawn_steps = steps_per_call(4 * len(agents) * math.prod(space.shape))

    def run(steps: int) -> None:
        for start in range(0, steps, drawn_steps):
            for action in rungs.random_actions(rng, space, (min(drawn_steps, steps - start), len(agents))):
                acting = dict(zip(agents, action, strict=True))
                env.step(acting if len(env.agents) == len(agents) else {agent: acting[agent] for agent in env.agents})
                if not env.agents:
                    env.reset()

    return run


def horizon(name: str, settings: Settings) -> int:
    """Steps of an episode under the settings' options."""
    port, options = envs.port(name), rungs.options_of(settings)
    parameters = {key: value for key, value in options.items() if key not in ("preset", *port.own_options)}
    return port.of("horizon", port.make_params(options.get("preset"), parameters))


@contextmanager
def arrays(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
    """The port as array code, on NumPy or CuPy."""
    if group.device == "cuda":
        import cupy as xp
    else:
        xp = np
    env = envs.make_arrays(name, group.num_envs, xp, settings.seed, **pool_of(name, 1), **rungs.options_of(settings))

    def run() -> None:
        for action in env.random_actions(1):  # a step of array code takes so long that drawing apart costs nothing
            env.step(action)

    yield Loop(run, group.num_envs, "float32")


def port(synchronised: bool = False, own_scenarios: bool = False) -> Callable:
    """The port, one step per call; on the GPU one launch per step, and a synchronisation where that is asked for."""

    @contextmanager
    def rung(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
        env = made(name, group, settings, own_scenarios)
        env.reset(seed=settings.seed)
        steps = steps_per_call(action_bytes(env))

        def step_and_wait(action: torch.Tensor) -> None:
            env.step(action)
            torch.cuda.synchronize()

        step = step_and_wait if synchronised else env.step

        def run() -> None:
            for action in env.random_actions(steps):
                step(action)

        yield Loop(run, steps * group.num_envs, "float32", env.bytes_per_step)

    return rung


def port_graph(own_scenarios: bool = False) -> Callable:
    """Actions and steps, many times, as one CUDA graph."""

    @contextmanager
    def rung(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
        env = made(name, group, settings, own_scenarios)
        env.reset(seed=settings.seed)
        steps = steps_per_call(action_bytes(env))
        graph = env.graph("random", steps)
        yield Loop(graph.replay, steps * group.num_envs, "float32", env.bytes_per_step)

    return rung


@contextmanager
def port_fused(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
    """K steps of random actions in one launch."""
    env = made(name, group, settings)
    env.reset(seed=settings.seed)
    # Scenario and statistics are read in every step, the batch is read and written once per launch.
    yield Loop(lambda: env.rollout(group.fused_steps), group.fused_steps * group.num_envs, "float32")


def made(name: str, group: Group, settings: Settings, own_scenarios: bool = False):
    """The batch of a group; with scenarios of their own, environments take one each, as far as there are."""
    options = rungs.options_of(settings) | pool_of(name, scenarios_of(group))
    if own_scenarios and "frozen_scenario" in {field.name for field in dataclasses.fields(envs.port(name).params)}:
        options |= {"frozen_scenario": False}
    threads = group.threads if group.device == "cpu" else None
    return envs.make(name, group.num_envs, device=group.device, seed=settings.seed, threads=threads, **options)


def pool_of(name: str, count: int) -> dict[str, int]:
    """The option by which an environment with scenarios draws so many."""
    return {"scenarios": count} if "scenarios" in envs.port(name).own_options else {}


def scenarios_of(group: Group) -> int:
    """The number of scenarios that a group of the port draws."""
    return min(group.num_envs, MOST_SCENARIOS) if group.rung.endswith("scenarios") else SCENARIOS


def set_up_s(group: Group) -> float:
    """Allowance in seconds for a group until it is timed, compilation apart."""
    return SET_UP_S + DRAWING_S * (scenarios_of(group) if group.rung.startswith("port") else 1)


def action_bytes(env) -> int:
    """Bytes of a step's actions of the whole batch."""
    return env.actions.stored_type.itemsize * math.prod(env.actions.shape)


def steps_per_call(bytes_of_a_step: int) -> int:
    return max(1, min(MOST_DRAWN_STEPS, DRAWN_BYTES // bytes_of_a_step))


def memory_needed(name: str, group: Group, settings: Settings) -> dict[str, float]:
    """Bytes that a group of the port takes at most of its device and of the host.

    On the device its buffers, its drawn actions, its scenarios; on the host the scenarios as they were drawn, and those
    of the device once more, since they are built there.
    """
    one = envs.make(name, 1, device=group.device, **pool_of(name, 1), **rungs.options_of(settings))
    drawn = action_bytes(one) * steps_per_call(group.num_envs * action_bytes(one))
    twice = 2 if group.rung.endswith(("graph", "scenarios")) else 1  # capturing keeps copies
    batch, pool = twice * group.num_envs * (one.bytes_per_env + drawn), scenarios_of(group) * one.bytes_per_scenario
    as_drawn = vars(one.scenarios[0]).values() if pool and hasattr(one, "scenarios") else ()
    host = pool + scenarios_of(group) * sum(value.nbytes for value in as_drawn if isinstance(value, np.ndarray))
    return {"cpu": batch + host} if group.device == "cpu" else {"cuda": batch + pool, "cpu": host}


def no_library(name: str, settings: Settings) -> str | None:
    """The library of the original is PettingZoo where an environment has agents, else Gymnasium."""
    library = "PettingZoo" if envs.port(name).agents else "Gymnasium"
    return None if importlib.util.find_spec(library.lower()) else f"{library} is not installed"


def no_indexed(name: str, settings: Settings) -> str | None:
    missing = no_library(name, settings)
    known = missing or "indexed" in inspect.signature(envs.original(name).make).parameters
    return missing or (None if known else "its original has one form only")


def no_arrays(name: str, settings: Settings) -> str | None:
    return no_library(name, settings) if envs.has_arrays(name) else "it has no arrays.py"


def no_scenarios(name: str, settings: Settings) -> str | None:
    return None if pool_of(name, 1) else "it has no scenarios"


ORIGINAL_CALL_STEPS = 10  # in each process: waiting for the slowest then costs little
RANDOM = {"policies": ("random",)}
ONE = RANDOM | {"batched": False, "missing": no_library}
OWN = RANDOM | {"missing": no_scenarios}
RUNGS = {
    "original": Rung(original(), **ONE),
    "original-indexed": Rung(original(indexed=True), **ONE | {"missing": no_indexed}),
    "original-all-cores": Rung(all_cores(original_stepper, ORIGINAL_CALL_STEPS), **ONE),
    "arrays-numpy": Rung(arrays, **RANDOM, missing=no_arrays),
    "port-cpu": Rung(port(), **ON_CPU, **RANDOM),
    "port-cpu-scenarios": Rung(port(own_scenarios=True), **ON_CPU, **OWN),
    "port-cpu-fused": Rung(port_fused, **ON_CPU, **RANDOM, fused=True),
    "arrays-cupy": Rung(arrays, **ON_CUDA, **RANDOM, missing=no_arrays),
    "port-cuda": Rung(port(), **ON_CUDA, **RANDOM),
    "port-cuda-sync": Rung(port(synchronised=True), **ON_CUDA, **RANDOM),
    "port-cuda-graph": Rung(port_graph(), **ON_CUDA, **RANDOM),
    "port-cuda-scenarios": Rung(port_graph(own_scenarios=True), **ON_CUDA, **OWN),
    "port-cuda-fused": Rung(port_fused, **ON_CUDA, **RANDOM, fused=True),
}
