"""What a port declares about itself, and the checks that follow from it."""

import dataclasses
import functools
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

from .checks import nearest
from .kernels import compile
from .policies import HIDDEN
from .spaces import Box, Discrete
from .vectorised import MODES

TILES = {"cpu": 256, "cuda": 64}  # environments of a vector loop on the CPU, of a block of threads on a GPU


@dataclass(frozen=True)
class Port:
    """One environment's parameters, spaces and limits; its dynamics are `kernel.cuh` beside it."""

    title: str  # as printed: "CartPole-v1"
    gymnasium_id: str  # of the original
    params: type  # frozen dataclass of compile-time constants
    state: tuple[str, ...]  # names, in order
    state_limit: tuple[float, ...]  # |state| that the kernel is written for
    observation: Callable[[Any], Box]  # of one environment, from the parameters
    action: Discrete | Box  # of one environment
    horizon: int  # steps after which an episode is truncated
    reward_threshold: float | None
    reset_bounds: Callable[[Mapping], tuple[float, ...]]  # from reset's options
    shortest_episode: int  # steps; with default parameters and bounds no episode is shorter
    reset_options: tuple[str, ...] = ("low", "high")  # that reset_bounds reads, in the order of the bounds
    observes_state: bool = False  # an observation is the state itself, so that it can be a view of it
    angles: tuple[str, ...] = ()  # state fields that live on the circle
    running_return: bool = False  # the return does not follow from length and terminal flag, so rewards are summed
    presets: Mapping[str, Mapping] = field(default_factory=lambda: {"original": {}})

    kind = "thread"  # one thread holds one environment

    @property
    def continuous(self) -> bool:
        """Whether actions are of a Box."""
        return isinstance(self.action, Box)

    @property
    def policy_shape(self) -> tuple[int, int]:
        """Outputs and inputs of a policy: actions (1 of a Box) and observation components."""
        outputs = 1 if self.continuous else int(self.action.n)
        return outputs, self.observation(self.params()).shape[0]

    def make_params(self, preset: str | None, overrides: Mapping):
        """The parameters of a preset with single ones replaced.

        Raises:
            ValueError: an unknown preset or parameter (the nearest known name is given), or a value of the wrong kind.
        """
        if preset is not None and preset not in list(self.presets):
            raise ValueError(f"preset={preset!r} is unknown; {self.title} has {', '.join(map(repr, self.presets))}")
        chosen = {**self.presets[preset or "original"], **overrides}
        known = {f.name: f for f in dataclasses.fields(self.params)}
        for name, value in chosen.items():
            if name not in known:
                raise ValueError(f"{self.title} has no parameter or option {name!r}{nearest(name, known)}")
            chosen[name] = constant(name, value, known[name])
        return self.params(**chosen)

    def unit(
        self, folder: Path, params, *, mode: str, dtype: str, limit: int, view: bool, tile: int, hidden: int = 0
    ) -> str:
        """The translation unit in one combination of compile-time choices.

        Args:
            folder: of the environment.
            mode: of autoreset.
            limit: steps after which an episode is truncated.
            view: observations are the state.
            tile: environments per vector loop or block of threads.
            hidden: width of an MLP policy, whose rollouts the unit then has in place of steps, or 0.
        """
        defines = {
            "ELAPSED": "u16" if limit <= 65535 else "int",
            "AUTORESET": MODES[mode],
            "LIMIT": limit,
            "VIEW": int(view),
            "CONTINUOUS": int(self.continuous),
            "RUNNING_RETURN": int(self.running_return),
            "HIDDEN": hidden,
            "TILE": tile,
        }
        return compile.unit(dtype, defines, params, folder / "kernel.cuh", compile.KERNELS / "batch.cuh")

    def units(self, folder: Path) -> dict[tuple[str, str, str], str]:
        """All translation units with default parameters, as `envs.units` describes them."""
        unit = functools.partial(self.unit, folder, self.params(), limit=self.horizon, tile=TILES["cuda"])
        types = ("float32", "float64")
        found = {(mode, dtype, "copy"): unit(mode=mode, dtype=dtype, view=False) for mode in MODES for dtype in types}
        for mode in MODES if self.observes_state else ():
            found[mode, "float32", "view"] = unit(mode=mode, dtype="float32", view=True)
        for dtype in types:
            found["SameStep", dtype, "mlp"] = unit(mode="SameStep", dtype=dtype, view=False, hidden=max(HIDDEN))
        return found


def constant(name: str, value, spec):
    """The value of a parameter as the constant a kernel gets: one of the choices, a bool, an int, or a float that
    float32 can hold.

    Args:
        spec: the parameter's `dataclasses.Field`.

    Raises:
        ValueError: names the parameter, the value and what is allowed.
    """
    choices = get_args(spec.type)
    if choices:
        if value not in choices:
            raise ValueError(f"{name}={value!r} must be one of {', '.join(map(repr, choices))}")
        return value
    if spec.type is bool:
        if not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name}={value!r} must be True or False")
        return bool(value)
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name}={value!r} must be a number")
    if not abs(value) <= float(np.finfo(np.float32).max):
        raise ValueError(f"{name}={value!r} must be a finite number")
    if spec.type is int:
        if value != int(value):
            raise ValueError(f"{name}={value!r} must be an integer")
        return int(value)
    if spec.metadata.get("positive") and not value >= np.finfo(np.float32).tiny:
        raise ValueError(f"{name}={value!r} must be positive")
    return float(value)


def interval(options: Mapping, low: float, high: float, limit: float) -> tuple[float, float]:
    """Reset bounds `low` and `high` of the options, as Gymnasium's classic control takes them.

    Raises:
        ValueError: not numbers, low > high, or beyond what the kernel is written for.
    """
    bounds = []
    for name, default in (("low", low), ("high", high)):
        value = options.get(name, default)
        try:
            bounds.append(float(value))
        except (TypeError, ValueError):
            raise ValueError(f"options[{name!r}]={value!r} must be a number") from None
        if not abs(bounds[-1]) <= max(limit, float(np.float32(limit))):  # as float32 may have rounded it
            raise ValueError(f"options[{name!r}]={value!r} must lie in [-{limit}, {limit}]")
    if bounds[0] > bounds[1]:
        raise ValueError(f"options: low={bounds[0]} must not exceed high={bounds[1]}")
    return bounds[0], bounds[1]
