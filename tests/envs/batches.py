"""Batches of environments for the tests: made, copied and compared."""

import numpy as np
import pytest
import torch

from lockstep import envs

NAMES = [name for name in envs.names() if envs.port(name).gymnasium_id]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
MODES = ["SameStep", "NextStep", "Disabled"]
B = 200  # environments; from 129 on every batch is compiled for the same tile, so that few variants are compiled
INFO = ("final_obs", "episode_return", "episode_length")


def make(name: str = "cartpole", num_envs: int = B, *, reset: bool = True, **options):
    """A batch at its first states, on the device `device` of the options."""
    env = envs.make(name, num_envs, **options)
    if reset:
        env.reset()
    return env


def spread(env) -> None:
    """Puts environment i at step i/B of the horizon, so that some episode ends soon, whatever the environment."""
    env.set_state({"elapsed": np.arange(env.num_envs) * env.max_episode_steps // env.num_envs})


def random_step(env):
    """One step under the documented random policy."""
    return env.step(env.random_actions()[0])


def copies(outputs) -> tuple:
    """What a step returned, copied: the next step overwrites it."""
    *tensors, info = outputs
    return *(tensor.clone() for tensor in tensors), {key: tensor.clone() for key, tensor in info.items()}


def same(a: dict, b: dict, but: tuple = ()) -> bool:
    """Whether two states of batches are equal bit for bit, the keys `but` left out."""
    keys = [key for key in a if key not in but]
    return all(torch.equal(a[k], b[k]) if isinstance(a[k], torch.Tensor) else a[k] == b[k] for k in keys)


def statistics(env) -> dict[str, float]:
    return {name: float(value) for name, value in env.statistics().items()}


def linear(name: str, seed: int = 0) -> envs.Linear:
    """A linear policy of normal weights, which uses every action."""
    space, n = envs.port(name).action, make(name, reset=False).single_observation_space.shape[0]
    actions = int(getattr(space, "n", 1))
    random = np.random.default_rng(seed)
    return envs.Linear(random.normal(size=(actions, n)).tolist(), (0.1 * random.normal(size=actions)).tolist())
