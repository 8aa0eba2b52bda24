"""Parameters, library and type of a batch in array form, and what is noted of its steps."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..params import Params

Array = Any  # of NumPy or CuPy


@dataclass
class Probe:
    """Notes of the steps of B environments, for whoever compares them with another form."""

    num_envs: int
    nearest: Array = None  # [B] least distance of a number that decides something from where it decides otherwise
    met: dict[str, Array] = field(default_factory=dict)  # [B] bool of what happened in an environment

    def __post_init__(self):
        self.nearest = np.full(self.num_envs, np.inf)


@dataclass(frozen=True)
class Model:
    """A batch but for its state."""

    xp: Any  # numpy or cupy
    params: Params
    real: str  # float32 or float64
    probe: Probe | None = None  # on NumPy alone

    def decides(self, apart: Array, among: Array = True):
        """Notes numbers [B, ...] that decide something by their sign, where they do."""
        if self.probe is not None:
            apart = np.where(among & np.isfinite(apart), np.abs(apart), np.inf)
            least = apart.reshape(self.probe.num_envs, -1).min(axis=1, initial=np.inf)
            self.probe.nearest = np.minimum(self.probe.nearest, least)

    def at_most(self, value: Array, limit: Array, among: Array = True) -> Array:
        """True where a value is no more than a limit."""
        if self.probe is not None:
            self.decides(value - limit, among)
        return value <= limit

    def note(self, event: str, happened: Array):
        """Notes what happened [B, ...]."""
        if self.probe is not None:
            here = np.asarray(happened).reshape(self.probe.num_envs, -1).any(axis=1)
            self.probe.met[event] = self.probe.met.get(event, False) | here


def to_body(x: Array, y: Array, c: Array, s: Array) -> tuple[Array, Array]:
    """World vectors in axes whose first has cosine c and sine s."""
    return c * x + s * y, c * y - s * x


def distance(xp, ax: Array, ay: Array, bx: Array, by: Array) -> Array:
    dx, dy = ax - bx, ay - by
    return xp.sqrt(dx * dx + dy * dy)


def parts(rows: Array) -> list[Array]:
    """The numbers of rows [..., n], each [...]."""
    return [rows[..., k] for k in range(rows.shape[-1])]
