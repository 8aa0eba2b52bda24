"""Reinforcement-learning environments as batched ports. The folder is the list: an environment is a folder with a `port.py`."""

import functools
import importlib
from pathlib import Path

import torch

from .arrays import ArraysEnv
from .batch import BatchedEnv, Graph, Linear
from .port import Port, nearest

_FOLDER = Path(__file__).resolve().parent

__all__ = [
    "ArraysEnv",
    "BatchedEnv",
    "Graph",
    "Linear",
    "Port",
    "cuda_available",
    "folder",
    "has_arrays",
    "make",
    "make_arrays",
    "make_original",
    "names",
    "port",
]


def names() -> list[str]:
    """The environments, alphabetically."""
    return sorted(path.parent.name for path in _FOLDER.glob("*/port.py"))


def folder(name: str) -> Path:
    """The folder of an environment.

    Raises:
        ValueError: no such environment; names the nearest.
    """
    if name not in names():
        raise ValueError(f"no environment {name!r}{nearest(name, names())}")
    return _FOLDER / name


def _part(name: str, role: str):
    return importlib.import_module(f".{folder(name).name}.{role}", __name__)


def port(name: str) -> Port:
    """What an environment's `port.py` declares."""
    return _part(name, "port").PORT


def make(name: str, num_envs: int, device="cpu", **options) -> BatchedEnv:
    """A batch of `num_envs` environments; `BatchedEnv` lists the options."""
    return BatchedEnv(port(name), folder(name), num_envs, device, **options)


def make_original(name: str, **params):
    """The original, a Gymnasium environment in float64.

    Raises:
        ImportError: Gymnasium is not installed.
    """
    try:
        original = _part(name, "original")
    except ModuleNotFoundError as error:
        raise ImportError(f"the original of {name!r} needs {error.name}: pip install {error.name}") from error
    return original.make(**params)


def has_arrays(name: str) -> bool:
    """Whether an environment has the optional array form."""
    return (folder(name) / "arrays.py").exists()


def make_arrays(name: str, num_envs: int, xp=None, seed: int = 0) -> ArraysEnv:
    """A batch in array form on NumPy, or on CuPy given as `xp`.

    Raises:
        ValueError: the environment has none.
    """
    import numpy

    if not has_arrays(name):
        raise ValueError(f"{name!r} has no array form (envs/{name}/arrays.py)")
    return ArraysEnv(_part(name, "arrays"), num_envs, port(name).horizon, xp or numpy, seed)


def cuda_available() -> bool:
    """Whether ports can run on device="cuda" here."""
    return torch.cuda.is_available()


def _register():
    """Every environment as lockstep/<Gymnasium id>: `gymnasium.make` gives the original, `gymnasium.make_vec` the port."""
    import gymnasium

    for name in names():
        declared = port(name)
        gymnasium.register(
            id=f"lockstep/{declared.gymnasium_id}",
            entry_point=gymnasium.spec(declared.gymnasium_id).entry_point,
            vector_entry_point=functools.partial(make, name),
            max_episode_steps=declared.horizon,
            reward_threshold=declared.reward_threshold,
        )


try:
    _register()
except ImportError:  # a bare GPU machine without Gymnasium: ports work, originals do not
    pass
