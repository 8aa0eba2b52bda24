"""The rungs of the ladder: from the original's loop to fused steps on the GPU.

They count live steps only; one says that it does not: port-cuda-no-reset counts the steps of environments that have
ended, as the source document did. Random actions are drawn DRAWN_STEPS at a time or, where an action is many numbers,
as many as DRAWN_BYTES hold, so that no rung pays more calls for them than another. Options of the settings (preset,
sizes) are the same for original, arrays and port.
"""

import dataclasses
import importlib.util
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import gymnasium
import numpy as np
import torch

from lockstep import envs
from lockstep.envs.batch.port import TILES, bounds
from lockstep.experiments.bench.ladder import ON_CPU, ON_CUDA, SET_UP_S, Group, Loop, Rung, all_cores
from lockstep.experiments.bench.parameters import params_of
from lockstep.experiments.config import Settings

LARGE_BATCH = 1024  # from here on a group is checked against the memory first
DRAWN_STEPS = 128  # one Philox block holds the bits of 128 two-valued actions
DRAWN_BYTES = {"cpu": 2**24, "cuda": 2**28}  # of random actions, so that a call at 4 M environments takes no seconds
HIDDEN = 64  # units in both layers of the networks of the MLP rungs
SCENARIOS = 8  # that environments share
MOST_SCENARIOS = 4096  # that a rung with a scenario for each environment draws
DRAWING_S = 0.02  # allowance of a prediction for one scenario


# Each of these sets its loop up, yields it, and cleans up.


def original(indexed: bool = False) -> Callable:
    """The original, one, in one process; `indexed` keeps lists where the other searches."""

    @contextmanager
    def rung(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
        run = original_stepper(name, group, settings, **{"indexed": True} if indexed else {})
        steps = horizon(name, settings)  # so that each call holds its share of resets
        yield Loop(lambda: run(steps), steps, "float64")

    return rung


def original_stepper(name: str, group: Group, settings: Settings, **options) -> Callable[[int], None]:
    env = envs.make_original(name, **options, **options_of(settings))
    if hasattr(env, "possible_agents"):
        return parallel_loop(env, settings.seed)
    return original_loop(env, group.policy, settings)


def horizon(name: str, settings: Settings) -> int:
    """Steps of an episode under the settings' options."""
    port = envs.port(name)
    return port.of("horizon", params_of(port, options_of(settings)))


def parallel_loop(env, seed: int) -> Callable[[int], None]:
    """A function that steps a PettingZoo environment so many times, resetting where an episode ends."""
    rng, agents = np.random.default_rng(seed), env.possible_agents
    env.reset(seed=seed)
    space = env.action_space(agents[0])
    drawn_steps = steps_per_call(4 * len(agents) * math.prod(space.shape))

    def run(steps: int) -> None:
        for start in range(0, steps, drawn_steps):
            for action in random_actions(rng, space, (min(drawn_steps, steps - start), len(agents))):
                acting = dict(zip(agents, action, strict=True))
                env.step(acting if len(env.agents) == len(agents) else {agent: acting[agent] for agent in env.agents})
                if not env.agents:
                    env.reset()

    return run


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
    """Actions of one environment, so many: [*shape] of a Discrete space, [*shape, n] of several choices or a Box."""
    if hasattr(space, "n"):
        return rng.integers(space.n, size=shape)
    if hasattr(space, "nvec"):
        return rng.integers(space.nvec, size=(*shape, *space.shape))
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
def gymnasium_vector(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
    """Gymnasium's own vectorised class; the steps its NEXT_STEP mode spends on resets are not counted."""
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
    env = envs.make_arrays(name, group.num_envs, xp, settings.seed, **pool_of(name, 1), **options_of(settings))
    # With an action of many numbers a step takes so long that drawing apart costs nothing.
    steps = steps_per_call(group.num_envs) if several_numbers(name, settings) is None else 1

    def run() -> None:
        for action in env.random_actions(steps):
            env.step(action)

    yield Loop(run, steps * group.num_envs, "float32")


def port(synchronised: bool = False, autoreset_mode: str = "SameStep") -> Callable:
    """The port, one step per call; on the GPU one launch per step, and a synchronisation where that is asked for."""

    @contextmanager
    def rung(name: str, group: Group, settings: Settings) -> Iterator[Loop]:
        env = made(name, group, settings, autoreset_mode)
        steps = steps_per_call(action_bytes(env), env.device.type)
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
    env = made(name, group, settings)
    env.reset(seed=settings.seed)
    steps, policy = steps_per_call(action_bytes(env), "cuda"), policy_of(env, group, settings)
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

        # The batch is read and written once per launch, a stored step once; what several lanes read is not counted.
        stored = stored_bytes(env, group.fused_steps, policy) if store == "trajectory" else 0
        traffic = env.bytes_per_step / group.fused_steps + stored if env.lanes == 1 else None
        yield Loop(run, group.fused_steps * group.num_envs, "float32", traffic)

    return rung


def made(name: str, group: Group, settings: Settings, autoreset_mode: str = "SameStep"):
    """The batch of a group; where environments have scenarios of their own, they take one each, as far as there are."""
    threads = None
    if group.device == "cpu":
        threads = group.threads
        torch.set_num_threads(threads)  # for a fixed policy's own operations
    options = {"obs": group.obs, "threads": threads, "autoreset_mode": autoreset_mode} | options_of(settings)
    options |= pool_of(name, scenarios_of(name, group))
    parameters = {field.name for field in dataclasses.fields(envs.port(name).params)}
    if own_scenarios(group) and "frozen_scenario" in parameters:
        options |= {"frozen_scenario": False}
    return envs.make(name, group.num_envs, device=group.device, seed=settings.seed, **options)


def options_of(settings: Settings) -> dict:
    """Parameters that original and port are both made with, where these are not the default."""
    return dict(settings.throughput.get("options", {}))


def own_scenarios(group: Group) -> bool:
    return group.rung.endswith("scenarios")


def scenarios_of(name: str, group: Group) -> int:
    """The number of scenarios that a group of the port draws."""
    if not pool_of(name, 1):
        return 0
    return min(group.num_envs, MOST_SCENARIOS) if own_scenarios(group) else SCENARIOS


def pool_of(name: str, count: int) -> dict[str, int]:
    """The option by which an environment draws so many scenarios, where its batches have a pool by default."""
    option = inspect.signature(envs.port(name).world).parameters.get("scenarios")
    return {} if option is None or option.default is None else {"scenarios": count}


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
    inputs, outputs = env.single_observation_space.shape[0], getattr(env.single_action_space, "n", 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return envs.MLP(network(inputs, outputs).to(env.device), network(inputs, 1).to(env.device))


def network(inputs: int, outputs: int) -> torch.nn.Sequential:
    """Two hidden layers of HIDDEN units, untrained."""
    layers = torch.nn
    hidden = [layers.Linear(inputs, HIDDEN), layers.Tanh(), layers.Linear(HIDDEN, HIDDEN), layers.Tanh()]
    return layers.Sequential(*hidden, layers.Linear(HIDDEN, outputs))


def stored_bytes(env, steps: int, policy) -> float:
    """Bytes that a trajectory of so many steps keeps of one step of one environment."""
    layout = env.trajectory_layout(steps, policy).values()
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in layout) / (steps * env.num_envs)


def set_up_s(name: str, group: Group) -> float:
    """Allowance in seconds for a group until it is timed, compilation apart."""
    return SET_UP_S + DRAWING_S * (scenarios_of(name, group) if group.rung.startswith("port") else 1)


def action_bytes(env) -> int:
    """Bytes of a step's random actions of the whole batch."""
    return env.random_actions(1)[0].nbytes


def steps_per_call(bytes_of_a_step: int, device: str = "cpu") -> int:
    return max(1, min(DRAWN_STEPS, DRAWN_BYTES[device] // bytes_of_a_step))


def memory_needed(name: str, group: Group, settings: Settings) -> dict[str, float]:
    """Bytes that a group of the port takes at most of its device and of the host.

    On the device its buffers, its drawn actions, its trajectories, its scenarios; on the host the scenarios as they
    were drawn, and those of the device once more, since they are built there.
    """
    few = TILES[group.device] if envs.port(name).of("lanes") == 1 else 1  # so that the kernel is the group's
    one = envs.make(name, few, device=group.device, obs=group.obs, **pool_of(name, 1), **options_of(settings))
    drawn = action_bytes(one) / few
    drawn *= steps_per_call(group.num_envs * drawn, group.device)
    stored = 0.0
    if group.rung.endswith(("trajectory", "mlp")):
        stored = group.fused_steps * stored_bytes(one, group.fused_steps, policy_of(one, group, settings))
    twice = 2 if group.rung.endswith(("graph", "scenarios")) else 1  # capturing keeps copies of both
    batch = group.num_envs * (twice * (one.bytes_per_env + drawn) + stored)
    count = scenarios_of(name, group)
    pool = count * one.bytes_per_scenario
    as_drawn = vars(one.scenarios[0]).values() if pool and hasattr(one, "scenarios") else ()
    host = pool + count * sum(value.nbytes for value in as_drawn if isinstance(value, np.ndarray))
    return {"cpu": batch + host} if group.device == "cpu" else {"cuda": batch + pool, "cpu": host}


def no_library(name: str, settings: Settings | None = None) -> str | None:
    """An original of several agents has PettingZoo's interface."""
    missing = envs.port(name).agents and importlib.util.find_spec("pettingzoo") is None
    return "PettingZoo is not installed" if missing else None


def no_indexed(name: str, settings: Settings) -> str | None:
    missing = no_library(name, settings)
    known = missing or "indexed" in inspect.signature(envs.original(name).make).parameters
    return missing or (None if known else "its original has one form only")


def no_gymnasium_vector(name: str, settings: Settings) -> str | None:
    known = envs.port(name).gymnasium_id
    vectorised = known and gymnasium.spec(known).vector_entry_point
    return None if vectorised else "Gymnasium has no vectorised class for it"


def no_arrays(name: str, settings: Settings) -> str | None:
    return None if envs.has_arrays(name) else "it has no array form"


def no_scenarios(name: str, settings: Settings) -> str | None:
    return None if pool_of(name, 1) else "it has no scenarios"


def several_lanes(name: str, settings: Settings) -> str | None:
    return None if envs.port(name).of("lanes") == 1 else "its roll-outs keep statistics alone"


def several_numbers(name: str, settings: Settings) -> str | None:
    return None if bounds(envs.port(name).of("action"))[0].size == 1 else "its actions are of several numbers"


def no_constant_action(name: str, settings: Settings) -> str | None:
    return (
        None if "constant_action" in settings.throughput else "no constant_action: its source document has no such loop"
    )


def no_network(name: str, settings: Settings) -> str | None:
    return several_lanes(name, settings) or several_numbers(name, settings)


TRAJECTORY = {"fused": True, "missing": several_lanes}
NETWORK = {"fused": True, "policies": ("mlp",), "missing": no_network}
OWN = {"policies": ("random",), "missing": no_scenarios}
AS_IN_THE_DOCUMENT = {"device": "cuda", "policies": ("constant",), "missing": no_constant_action}
RUNGS = {
    "original": Rung(original(), batched=False, missing=no_library),
    "original-indexed": Rung(original(indexed=True), batched=False, policies=("random",), missing=no_indexed),
    "original-all-cores": Rung(all_cores(original_stepper), batched=False, missing=no_library),
    "gymnasium-vector": Rung(gymnasium_vector, missing=no_gymnasium_vector),
    "arrays-numpy": Rung(arrays, policies=("random",), missing=no_arrays),
    "port-cpu": Rung(port(), **ON_CPU),
    "port-cpu-scenarios": Rung(port(), **ON_CPU, **OWN),
    "port-cpu-fused": Rung(port_fused("statistics"), **ON_CPU, fused=True),
    "port-cpu-trajectory": Rung(port_fused("trajectory"), **ON_CPU, **TRAJECTORY),
    "port-cpu-mlp": Rung(port_fused("trajectory"), **ON_CPU, **NETWORK),
    "arrays-cupy": Rung(arrays, **ON_CUDA, policies=("random",), missing=no_arrays),
    "port-cuda": Rung(port(), **ON_CUDA),
    "port-cuda-sync": Rung(port(synchronised=True), **ON_CUDA, policies=("random",)),
    "port-cuda-constant": Rung(port(synchronised=True), **AS_IN_THE_DOCUMENT),
    "port-cuda-no-reset": Rung(port(synchronised=True, autoreset_mode="Disabled"), **AS_IN_THE_DOCUMENT),
    "port-cuda-graph": Rung(port_graph, **ON_CUDA),
    "port-cuda-scenarios": Rung(port_graph, **ON_CUDA, **OWN),
    "port-cuda-fused": Rung(port_fused("statistics"), **ON_CUDA, fused=True),
    "port-cuda-trajectory": Rung(port_fused("trajectory"), **ON_CUDA, **TRAJECTORY),
    "port-cuda-mlp": Rung(port_fused("trajectory"), **ON_CUDA, **NETWORK),
}
