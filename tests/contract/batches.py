"""Batches of every environment, shipped or made for the tests, in sizes that step quickly."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

from lockstep import envs

PORTS = Path(__file__).parent / "ports"
SYNTHETIC = {"counters": ("counters", "PORT"), "readers": ("readers", "PORT")}
SYNTHETIC |= {"walkers": ("walkers", "PORT"), "walker": ("walkers", "ALONE")}
NAMES = [*envs.names(), *SYNTHETIC]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
MODES = ["SameStep", "NextStep", "Disabled"]
INFO = ("final_obs", "episode_return", "episode_length")
# Keys of a state that are not of single environments.
WHOLE = ("bounds", "clock", "seed", "params", "pool", "autoreset_mode")
LIMIT = 20  # steps of an episode


def port(name: str) -> envs.Port:
    """The traits of an environment."""
    if name not in SYNTHETIC:
        return envs.port(name)
    folder, constant = SYNTHETIC[name]
    return getattr(importlib.import_module(f"tests.contract.ports.{folder}.port"), constant)


def folder(name: str) -> Path:
    """The folder of its kernel."""
    return PORTS / SYNTHETIC[name][0] if name in SYNTHETIC else envs.folder(name)


def having(trait) -> list[str]:
    """Environments of which a function of the port is true."""
    return [name for name in NAMES if trait(port(name))]


def one_lane(declared: envs.Port) -> bool:
    return declared.of("lanes") == 1


CARRIED = [name for name in having(one_lane) if port(name).of("action").shape in ((), (1,))]  # policies in kernels
KNOWN = having(lambda declared: declared.gymnasium_id)  # that Gymnasium has
APART = having(lambda declared: declared.rows > 1)  # agents whose episodes end apart
# Each further limit and mode of an environment is one more unit to compile: one has all, the others where all is run.
NAMES_AND_MODES = [
    pytest.param(name, mode, marks=[pytest.mark.slow] * (name != "cartpole" and mode != "SameStep"))
    for name in NAMES
    for mode in MODES
]
DRAWN = having(lambda declared: "scenarios" in declared.own_options)


def size(name: str) -> int:
    """B: where one thread has an environment, of the tile that any other number from 129 to 256 gets as well."""
    return 200 if one_lane(port(name)) else 12


def make(name: str, num_envs: int | None = None, *, reset: bool = True, **options) -> envs.BatchedEnv:
    """A batch at its first states, of short episodes and two scenarios unless told otherwise."""
    own = {"scenarios": 2} if name in DRAWN else {}
    options = {"max_episode_steps": LIMIT, **own, **options}
    declared = port(name)
    num_envs = size(name) if num_envs is None else num_envs
    env = (declared.batched or envs.BatchedEnv)(declared, folder(name), num_envs, **options)
    if reset:
        env.reset()
    return env


def played(name: str, num_envs: int | None = None, steps: int = 7, **options) -> envs.BatchedEnv:
    """A batch some steps into episodes of which one ends with each step, whatever the environment."""
    env = make(name, num_envs, **options)
    spread(env)
    for _ in range(steps):
        random_step(env)
    return env


def spread(env):
    """Puts environments at steps 0, 1, 2, .. of their episodes."""
    env.set_state({"elapsed": np.arange(env.num_envs) % env.max_episode_steps})


def random_step(env):
    """One step under the documented random policy."""
    return env.step(env.random_actions()[0])


def copies(outputs) -> tuple:
    """The outputs of a step, copied: the next step overwrites them."""
    *tensors, info = outputs
    return *(tensor.clone() for tensor in tensors), {key: tensor.clone() for key, tensor in info.items()}


def as_bytes(rows: torch.Tensor) -> torch.Tensor:
    return rows.cpu().clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)


def equal(one, other) -> bool:
    """True where two states, sets of buffers or values are equal bit for bit."""
    if isinstance(one, torch.Tensor):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and torch.equal(*(as_bytes(rows) for rows in (one, other)))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def per_environment(state: dict, but: tuple = ()) -> dict[str, torch.Tensor]:
    """The rows [B, ...] of a state."""
    return {key: rows for key, rows in state.items() if key not in (*WHOLE, *but)}


def statistics(env) -> dict[str, float]:
    return {name: float(value) for name, value in env.statistics().items()}


def of_batch(rows: torch.Tensor) -> torch.Tensor:
    """Flags [B] or [B, A] as [B]: of any agent."""
    return rows.reshape(len(rows), -1).any(dim=1)
