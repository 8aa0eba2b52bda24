"""Positions of vehicles, however they were read: without pandas, which the loaders in `traces` need."""

from dataclasses import dataclass, field

import numpy as np

from ..params import MOST

LATEST_S = 1e11  # in the year 5138; a larger time of a file is in milliseconds


@dataclass(frozen=True, eq=False)
class Records:
    """R positions of vehicles, from a loader or from anywhere else.

    Raises:
        ValueError: vectors that differ in length or are of another kind, a number that is none or too large, a negative
            time; names the vector and the first index.
    """

    vehicle: np.ndarray  # [R] integers or strings
    utc_s: np.ndarray  # [R] float64, not negative
    x: np.ndarray  # [R] m
    y: np.ndarray  # [R] m
    source: dict = field(default_factory=dict)  # file and its SHA-256

    def __post_init__(self):
        if not isinstance(self.source, dict):
            raise ValueError(f"source={self.source!r:.60} must be a dict")
        where = self.source.get("file", "records")
        vehicle = np.asarray(self.vehicle)
        if vehicle.dtype == object and all(isinstance(one, str) for one in vehicle.flat):  # as pandas keeps strings
            vehicle = vehicle.astype(str)
        if vehicle.dtype.kind not in "iufU":
            raise ValueError(f"{where}: vehicle holds {vehicle.dtype}, must hold integers or strings")
        object.__setattr__(self, "vehicle", vehicle)
        for name, (low, high) in {"utc_s": (0.0, LATEST_S), "x": (-MOST, MOST), "y": (-MOST, MOST)}.items():
            try:
                values = np.asarray(getattr(self, name), dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{where}: {name} holds no numbers: {error}") from error
            if values.shape != self.vehicle.shape or values.ndim != 1:
                raise ValueError(f"{where}: {name} has shape {values.shape}, must be a vector as long as vehicle's")
            wrong = np.flatnonzero(~((values >= low) & (values <= high)))
            if len(wrong):
                raise ValueError(f"{where}: {name}[{wrong[0]}] is {values[wrong[0]]}, must lie in [{low:g}, {high:g}]")
            object.__setattr__(self, name, values)
