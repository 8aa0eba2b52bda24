"""What originals do, one environment at a time in plain Python; the work is shared out over processes."""

import multiprocessing
from collections.abc import Callable, Mapping

import numpy as np

import envs
from experiments import provenance


def on_all_cores(task: Callable, *arrays: np.ndarray, **same) -> list[np.ndarray]:
    """Calls task(*slices, **same) on equal slices of the arrays, one process per core, and joins what comes back."""
    cores = provenance.core_count()
    slices = list(zip(*(np.array_split(array, cores) for array in arrays), strict=True))
    if cores == 1:
        results = [_call(task, slices[0], same)]
    else:
        with multiprocessing.get_context("spawn").Pool(cores) as pool:
            results = pool.starmap(_call, [(task, part, same) for part in slices])
    return [np.concatenate(parts) for parts in zip(*results, strict=True)]


def _call(task, arrays, same):
    return task(*arrays, **same)


def transitions(states, elapsed, actions, *, name: str, params: Mapping) -> tuple[np.ndarray, ...]:
    """One step of the original from each state.

    Args:
        states: float64 [n, k].
        elapsed: int [n], steps of the episode before this one.
        actions: int [n].

    Returns:
        next states float64 [n, k], observations float32 [n, m], rewards float64 [n], terminated, truncated bool [n].
    """
    env, module = envs.make_original(name, **params), envs.original(name)
    env.reset(seed=0)
    following, observations, rewards, terminated, truncated = [], [], [], [], []
    for state, steps, action in zip(states, elapsed.tolist(), actions.tolist(), strict=True):
        module.set_state(env, state, steps)
        observation, reward, fell, late, _ = env.step(action)
        following.append(module.get_state(env)[0])
        observations.append(observation)
        rewards.append(reward)
        terminated.append(fell)
        truncated.append(late)
    return tuple(np.array(rows) for rows in (following, observations, rewards, terminated, truncated))


def replays(starts, actions, *, name: str) -> tuple[np.ndarray, ...]:
    """Episodes of the original from given states under given actions.

    Args:
        starts: float64 [n, k].
        actions: int [n, T]; an episode that has not ended after T steps is cut there.

    Returns:
        lengths int [n], terminated bool [n], states float64 [n, T, k], NaN after the end.
    """
    env, module = envs.make_original(name), envs.original(name)
    env.reset(seed=0)
    lengths, ends, paths = [], [], np.full((*actions.shape, starts.shape[1]), np.nan)
    for i, (start, row) in enumerate(zip(starts, actions.tolist(), strict=True)):
        module.set_state(env, start)
        for t, action in enumerate(row):
            _, _, terminated, truncated, _ = env.step(action)
            paths[i, t] = module.get_state(env)[0]
            if terminated or truncated:
                break
        lengths.append(t + 1)
        ends.append(terminated)
    return np.array(lengths), np.array(ends), paths


def episodes(seeds, *, name: str, policy: envs.Linear | None) -> tuple[np.ndarray, ...]:
    """Whole episodes of the original on its own random numbers, one per seed.

    Args:
        seeds: int [n].
        policy: None draws actions at random.

    Returns:
        lengths int [n], returns float64 [n].
    """
    env = envs.make_original(name)
    weights, bias = (np.asarray(policy.weights), np.asarray(policy.bias)) if policy else (None, None)
    lengths, returns = [], []
    for seed in seeds.tolist():
        observation, _ = env.reset(seed=seed)
        random = np.random.default_rng([seed, 1])  # not the stream that draws the first state
        total, length, ended = 0.0, 0, False
        while not ended:
            length += 1
            if policy is None:
                action = int(random.integers(env.action_space.n))
            else:
                action = int(np.argmax(weights @ observation + bias))
            observation, reward, terminated, truncated, _ = env.step(action)
            total += reward
            ended = terminated or truncated
        lengths.append(length)
        returns.append(total)
    return np.array(lengths), np.array(returns)


def field_tolerance(tolerances: Mapping, field: str) -> float:
    """The tolerance of a state field: its own, else the default."""
    return tolerances.get(field, tolerances.get("default"))
