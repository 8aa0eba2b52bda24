"""What originals do, one environment at a time in plain Python; the work is shared out over processes."""

import atexit
import functools
import multiprocessing
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from lockstep import envs
from lockstep.experiments.ledger import provenance

PARTS = 4  # of a task for each core, so that no core waits long for the last one


class Steps(NamedTuple):
    """What one step from each of n states leads to."""

    states: np.ndarray  # [n, k]
    observations: np.ndarray  # [n, m] float32
    rewards: np.ndarray  # [n]
    terminated: np.ndarray  # [n] bool
    truncated: np.ndarray  # [n] bool


@functools.cache
def workers():
    """A process for each core; they last as long as this one, since each takes seconds to import torch."""
    pool = multiprocessing.get_context("spawn").Pool(provenance.core_count())
    atexit.register(pool.terminate)
    return pool


def dismiss():
    """Ends the processes, whose CPU time counts from then on."""
    if workers.cache_info().currsize:
        workers().close()
        workers().join()
        workers.cache_clear()


def on_all_cores(task: Callable, *arrays: np.ndarray, **same) -> Callable[[], list[np.ndarray]]:
    """Starts task(*slices, **same) on slices of the arrays; what it returns waits for the joined results."""
    parts = min(PARTS * provenance.core_count(), len(arrays[0]))
    slices = zip(*(np.array_split(array, parts) for array in arrays), strict=True)
    started = workers().starmap_async(_call, [(task, part, same) for part in slices], chunksize=1)

    @functools.cache
    def joined() -> list[np.ndarray]:
        return [np.concatenate(parts) for parts in zip(*started.get(), strict=True)]

    return joined


def _call(task, arrays, same):
    return task(*arrays, **same)


def transitions(states, elapsed, actions, *, name: str, params: Mapping) -> tuple[np.ndarray, ...]:
    """One step of the original from each state.

    Args:
        states: float64 [n, k].
        elapsed: int [n], steps of the episode before this one.
        actions: [n], integers or float64.

    Returns:
        the fields of `Steps`, states and rewards in float64; then float64 [n], how far (in units of the state) beyond
        a termination threshold the next states lie, below zero where the episode goes on.
    """
    env, module = envs.make_original(name, **params), envs.original(name)
    env.reset(seed=0)
    rows = []
    for state, steps, action in zip(states, elapsed.tolist(), taken(env, actions), strict=True):
        module.set_state(env, state, steps)
        observation, reward, terminated, truncated, _ = env.step(action)
        rows.append((module.get_state(env)[0], observation, reward, terminated, truncated))
    found = [np.array(column) for column in zip(*rows, strict=True)]
    return *found, module.margin(env, found[0])


def taken(env, actions) -> list | np.ndarray:
    """Actions [n] as `env.step` takes them: integers, or arrays [1]."""
    return actions.tolist() if hasattr(env.action_space, "n") else actions[:, None]


def replays(starts, actions, *, name: str) -> tuple[np.ndarray, ...]:
    """Episodes of the original from given states under given actions.

    Args:
        starts: float64 [n, k].
        actions: [n, T], integers or float32; an episode that has not ended after T steps is cut there.

    Returns:
        lengths int [n], terminated bool [n], observations float32 [n, T, m], NaN after the end.
    """
    env, module = envs.make_original(name), envs.original(name)
    env.reset(seed=0)
    path = np.full((*actions.shape, *env.observation_space.shape), np.nan, dtype=np.float32)
    lengths, ends = [], []
    for i, (start, row) in enumerate(zip(starts, actions, strict=True)):
        module.set_state(env, start)
        for t, action in enumerate(taken(env, row)):
            path[i, t], _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                break
        lengths.append(t + 1)
        ends.append(terminated)
    return np.array(lengths), np.array(ends), path


def episodes(seeds, *, name: str, policy: envs.Linear | None) -> tuple[np.ndarray, ...]:
    """Whole episodes of the original on its own random numbers, one per seed.

    Args:
        seeds: int [n].
        policy: None draws actions at random.

    Returns:
        lengths int [n], returns float64 [n].
    """
    env = envs.make_original(name)
    horizon = envs.port(name).of("horizon")
    lengths, returns = [], []
    for seed in seeds.tolist():
        observation, _ = env.reset(seed=seed)
        choose = actor(policy, env.action_space) if policy else drawn(env.action_space, horizon, seed)
        total, length, ended = 0.0, 0, False
        while not ended:
            length += 1
            observation, reward, terminated, truncated, _ = env.step(choose(observation))
            total += reward
            ended = terminated or truncated
        lengths.append(length)
        returns.append(total)
    return np.array(lengths), np.array(returns)


def drawn(space, steps: int, seed: int) -> Callable:
    """A policy that hands out as many random actions, whatever it observes."""
    random = np.random.default_rng([seed, 1])  # not the stream that draws the first state
    if hasattr(space, "n"):
        actions = random.integers(space.n, size=steps).tolist()
    else:
        actions = random.uniform(space.low, space.high, (steps, *space.shape)).astype(space.dtype)
    following = iter(actions)
    return lambda observation: next(following)


def actor(policy: envs.Linear, space) -> Callable:
    """A linear policy as a function from an observation to an action of the space."""
    weights, bias = (np.asarray(numbers, dtype=np.float32) for numbers in (policy.weights, policy.bias))
    if hasattr(space, "n"):
        return lambda observation: int((weights.dot(observation) + bias).argmax())
    return lambda observation: np.minimum(np.maximum(weights.dot(observation) + bias, space.low), space.high)
