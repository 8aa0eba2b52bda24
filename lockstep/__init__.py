"""Lockstep: reinforcement-learning environments as batches on one device, verified against their originals.

`lockstep.envs`, `.agents`, `.experiments` and `.paper` are the folders of those names, here or beside this one.
"""

from . import interrupt  # isort: skip  # noqa: F401 - before it, Ctrl-C shows a traceback of Python's own

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["__version__", "agents", "envs", "experiments", "make", "make_original", "names", "paper"]
if not Path(__path__[0], "envs").is_dir():  # a checkout, whose folders lie beside this one
    __path__.append(str(Path(__file__).resolve().parents[1]))

if TYPE_CHECKING:
    from . import agents, envs, experiments, paper
    from .envs import make, make_original, names
else:

    def __getattr__(name: str):
        """Imports on first use: experiments and paper run where torch is not installed."""
        if name in ("agents", "envs", "experiments", "paper"):
            return importlib.import_module(f".{name}", __name__)
        if name in ("make", "make_original", "names"):
            return getattr(importlib.import_module(".envs", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
