"""Reinforcement-learning environments as batched ports.

The folder is the list: an environment is a folder with a `kernel.cuh`, in the folder of its family.
"""

import dataclasses
import functools
import importlib
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import torch

from lockstep.reading import nearest

from .arrays import ArraysEnv
from .batch import OPTIONS, BatchedEnv, Field, Graph, Port, World
from .policies import MLP, Linear

_FOLDER = Path(__file__).resolve().parent

__all__ = [
    "MLP",
    "ArraysEnv",
    "BatchedEnv",
    "Field",
    "Graph",
    "Linear",
    "Port",
    "World",
    "arrays_form",
    "cuda_available",
    "folder",
    "has_arrays",
    "make",
    "make_arrays",
    "make_original",
    "names",
    "original",
    "port",
    "units",
]


def names() -> list[str]:
    """The environments, alphabetically."""
    return sorted(_folders(_FOLDER))


@functools.cache
def _folders(root: Path) -> dict[str, list[Path]]:
    """The folders with a kernel by name: of each environment one, which is its family's or lies in that."""
    found: dict[str, list[Path]] = {}
    for kernel in sorted([*root.glob("*/kernel.cuh"), *root.glob("*/*/kernel.cuh")]):
        found.setdefault(kernel.parent.name, []).append(kernel.parent)
    return found


def folder(name: str) -> Path:
    """The folder of an environment.

    Raises:
        ValueError: no such environment; names the nearest. Or several of that name; names their folders.
    """
    if not isinstance(name, str):
        raise ValueError(f"an environment is named by a string, got {name!r}; known: {', '.join(names())}")
    found = _folders(_FOLDER)
    if name not in found:
        raise ValueError(f"no environment {name!r}{nearest(name, sorted(found))}")
    first, *others = found[name]
    if others:
        places = " and ".join(f"envs/{place.relative_to(_FOLDER).as_posix()}" for place in found[name])
        raise ValueError(f"{places} have one name; rename all but one")
    return first


def _part(name: str, role: str):
    inside = ".".join(folder(name).relative_to(_FOLDER).parts)
    return importlib.import_module(f".{inside}.{role}", __name__)


def port(name: str) -> Port:
    """The traits that an environment's `port.py` declares."""
    return _part(name, "port").PORT


def make(name: str, num_envs: int, device: "str | torch.device" = "cpu", **options) -> BatchedEnv:
    """A batch of `num_envs` environments; `BatchedEnv` lists the options, an environment's README its own.

    Raises:
        ValueError: an unknown environment or option (the nearest name is given), or what the class refuses.
    """
    declared = port(name)
    known = [*OPTIONS, *declared.own_options, *(field.name for field in dataclasses.fields(declared.params))]
    for option in options:
        if option not in known:
            raise ValueError(f"{declared.title} has no parameter or option {option!r}{nearest(option, known)}")
    return (declared.batched or BatchedEnv)(declared, folder(name), num_envs, device, **options)


def original(name: str):
    """An environment's `original.py`: make, get_state, set_state.

    Raises:
        ImportError: a library that it needs is not installed, such as PettingZoo; names it.
    """
    try:
        return _part(name, "original")
    except ModuleNotFoundError as error:
        raise ImportError(f"the original of {name!r} needs {error.name}: pip install {error.name}") from error


def make_original(name: str, **params):
    """The original in float64: a Gymnasium environment, or one of PettingZoo's parallel API.

    Args:
        params: options of the environment and its single parameters: `help(envs.original(name).make)`.

    Raises:
        ValueError: names an option, its value and what is allowed.
        ImportError: a library that it needs is not installed, such as PettingZoo; names it.
    """
    return original(name).make(**params)


def has_arrays(name: str) -> bool:
    """True where an environment has the optional array form, a module or a package."""
    return any((folder(name) / form).exists() for form in ("arrays.py", "arrays/__init__.py"))


def arrays_form(name: str):
    """An environment's `arrays`: reset and step on NumPy or CuPy.

    Raises:
        ValueError: the environment has none.
    """
    if not has_arrays(name):
        raise ValueError(f"{name!r} has no array form ({folder(name).name}/arrays)")
    return _part(name, "arrays")


def make_arrays(name: str, num_envs: int, xp=None, seed: int = 0, **options):
    """A batch in array form on NumPy, or on CuPy given as `xp`: an `ArraysEnv`, or the form's own class of that name.

    Raises:
        ValueError: the environment has none.
    """
    form, xp = arrays_form(name), np if xp is None else xp
    if hasattr(form, "ArraysEnv"):
        return form.ArraysEnv(num_envs, xp, seed, **options)
    return ArraysEnv(form, num_envs, port(name), xp, seed, **options)


def units(name: str) -> dict[tuple[str, str, str], str]:
    """The translation units of an environment by (autoreset mode, dtype, word), with default parameters.

    The word is how observations are kept, or "mlp" for the rollouts with the widest MLP, which are a unit of their own;
    a port may list others (`Port.builds`).
    """
    return port(name).units(folder(name))


def cuda_available() -> bool:
    """True where ports can run on device="cuda"."""
    return torch.cuda.is_available()


def _register():
    """Every environment whose original Gymnasium knows, as lockstep/<its id>.

    `gymnasium.make` gives the original, `gymnasium.make_vec` the port. Without a library that one environment needs,
    the others work.
    """
    for name in names():
        try:
            declared = port(name)
        except ImportError:  # of a library that it needs
            continue
        except Exception as error:  # whatever is wrong with one, the others work; asking for it says the same again
            warnings.warn(f"{name} is left out: {type(error).__name__}: {error}", stacklevel=2)
            continue
        known = gymnasium.registry.get(declared.gymnasium_id)
        if known is None:
            continue
        gymnasium.register(
            id=f"lockstep/{declared.gymnasium_id}",
            entry_point=known.entry_point,
            vector_entry_point=f"{__name__}.vector:{name}",
            max_episode_steps=declared.of("horizon"),
            reward_threshold=declared.reward_threshold,
        )


_register()
