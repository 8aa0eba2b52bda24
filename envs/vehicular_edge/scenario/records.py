"""Positions of vehicles, however they were read: without pandas, which the loaders in `traces` need."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, eq=False)
class Records:
    """R positions of vehicles, from a loader or from anywhere else.

    Raises:
        ValueError: vectors of different lengths, or a number that is not finite; names the vector and the first index.
    """

    vehicle: np.ndarray  # [R] integers or strings
    utc_s: np.ndarray  # [R] float64
    x: np.ndarray  # [R] m
    y: np.ndarray  # [R] m
    source: dict = field(default_factory=dict)  # file and its SHA-256

    def __post_init__(self):
        where = self.source.get("file", "records")
        object.__setattr__(self, "vehicle", np.asarray(self.vehicle))
        for name in ("utc_s", "x", "y"):
            try:
                values = np.asarray(getattr(self, name), dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{where}: {name} holds no numbers: {error}") from error
            if values.shape != self.vehicle.shape or values.ndim != 1:
                raise ValueError(f"{where}: {name} has shape {values.shape}, must be a vector as long as vehicle's")
            wrong = np.flatnonzero(~np.isfinite(values))
            if len(wrong):
                raise ValueError(f"{where}: {name}[{wrong[0]}] is {values[wrong[0]]}, must be finite")
            object.__setattr__(self, name, values)
