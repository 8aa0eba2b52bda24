"""Single steps of originals and ports from the same states."""

import functools
from dataclasses import dataclass

import numpy as np
import torch

from lockstep import envs
from tests.envs.batches import B


@dataclass(frozen=True)
class Steps:
    """One step from each of n states."""

    following: np.ndarray  # [n, k] the next states
    observation: np.ndarray  # [n, m] float32
    reward: np.ndarray  # [n]
    terminated: np.ndarray  # [n] bool


def original(name: str, states, actions, **params) -> Steps:
    """Steps of the original from states [n, k] under actions [n]; those of a Box are passed in float64."""
    env, module = envs.make_original(name, **params), envs.original(name)
    box = actions.dtype.kind == "f"
    env.reset(seed=0)
    rows = []
    for state, action in zip(states.astype(np.float64), actions, strict=True):
        module.set_state(env, state)
        observation, reward, terminated, *_ = env.step(np.array([action], np.float64) if box else int(action))
        rows.append((module.get_state(env)[0], np.array(observation), float(reward), terminated))
    return Steps(*(np.array(column) for column in zip(*rows, strict=True)))


def port(name: str, states, actions, dtype: str = "float64", **options) -> Steps:
    """Steps of the port; a Box's actions have the type of the build, and those outside the space are let through."""
    options = {"dtype": dtype, "autoreset_mode": "Disabled", "check_actions": False} | options
    env = envs.make(name, len(states), **options)
    env.set_state({"state": states, "elapsed": np.zeros(len(states), dtype=int)})
    action = torch.from_numpy(actions.astype(dtype) if actions.dtype.kind == "f" else actions).to(env.device)
    obs, reward, terminated, *_ = env.step(action)
    return Steps(*(tensor.cpu().numpy().copy() for tensor in (env.state()["state"], obs, reward, terminated)))


def one(name: str, state, action, **options) -> tuple[list[float], float, bool]:
    """The port's step in float64 from one state: the next one, the reward, and whether the episode terminated.

    A whole batch makes it, every environment the same.
    """
    steps = port(name, np.tile(np.array(state, dtype=np.float64), (B, 1)), np.repeat(action, B), **options)
    for rows in (steps.following, steps.reward, steps.terminated):
        assert (rows == rows[0]).all()
    return steps.following[0].tolist(), float(steps.reward[0]), bool(steps.terminated[0])


def path(name: str, state, action, steps: int) -> np.ndarray:
    """States [steps + 1, k] of the port in float64 from one state under a constant action, without an end."""
    env = envs.make(name, B, dtype="float64", autoreset_mode="Disabled")
    env.set_state({"state": np.tile(np.array(state, dtype=np.float64), (B, 1)), "elapsed": np.zeros(B, dtype=int)})
    actions, rows = torch.from_numpy(np.repeat(action, B)), [env.state()["state"][0].numpy()]
    for _ in range(steps):
        *_, terminated, truncated, _ = env.step(actions)
        assert not (terminated | truncated).any()
        rows.append(env.state()["state"][0].numpy())
    return np.array(rows)


def ends(name: str, state, action, elapsed: int) -> tuple[bool, bool]:
    """terminated and truncated after one step from one state, `elapsed` steps into an episode."""
    env = envs.make(name, B, dtype="float64", autoreset_mode="Disabled")
    env.set_state({"state": np.tile(np.array(state, dtype=np.float64), (B, 1)), "elapsed": np.full(B, elapsed)})
    *_, terminated, truncated, info = env.step(torch.from_numpy(np.repeat(action, B)))
    if terminated[0] or truncated[0]:
        assert (info["episode_length"] == elapsed + 1).all()
    return bool(terminated[0]), bool(truncated[0])


@functools.cache
def visited(name: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """States float32 [n, k] of the original's episodes under random actions, and those actions [n]."""
    env, module = envs.make_original(name), envs.original(name)
    space, states, actions = env.action_space, [], []
    space.seed(0)
    env.reset(seed=0)
    while len(states) < n:
        action = space.sample()
        states.append(module.get_state(env)[0])
        actions.append(np.ravel(action)[0])
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    return np.array(states, dtype=np.float32), np.array(actions)


def apart(name: str, states: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Absolute differences of two sets of states [n, k], of angles on the circle."""
    distances = np.abs(states - others)
    for column, field in enumerate(envs.port(name).fields().values()):
        if field.angle:
            turn = distances[:, column] % (2 * np.pi)
            distances[:, column] = np.minimum(turn, 2 * np.pi - turn)
    return distances


def differences(name: str, found: Steps, expected: Steps) -> np.ndarray:
    """Largest difference of each state field [k]."""
    return apart(name, found.following, expected.following).max(axis=0)
