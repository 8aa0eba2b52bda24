"""Scenario files (README.md, 4.3): `<name>.npz` holds the arrays, `<name>.json` the rest and the SHA-256 of both."""

from pathlib import Path

import numpy as np

from ... import pair
from ...checks import choice, integer
from .scenario import Scenario

VERSION = 1
UNITS = {"time": "0.1 min", "zone_xy": "km"}
HEADER = {"Q": "capacity", "H": "horizon", "K": "fleet_size"}
DRAWN, FIXED = ("trip", "trip_count"), ("instance", "service", "demand")


def save(path, scenario: Scenario):
    """Writes both files of `path`, a path without suffix or with either.

    Raises:
        ValueError: they cannot be written, or do not hold such a scenario; names it.
    """
    if not isinstance(scenario, Scenario):
        raise ValueError(f"scenario={scenario!r:.60} must be a Scenario")
    arrays = {name: getattr(scenario, name) for name in ("zone_xy", "travel", "threshold", "type")}
    arrays["depot"] = np.int32(scenario.depot)
    if scenario.fixed:
        by_instance = {"instance": scenario.trip, "service": scenario.service, "demand": scenario.demand}
        arrays |= {name: np.swapaxes(array, 0, 1) for name, array in by_instance.items()}
    else:
        arrays |= {name: getattr(scenario, name) for name in DRAWN}
        for name, plain in (("service", 0), ("demand", 1)):
            if (getattr(scenario, name) != plain).any():
                raise ValueError(f"{path}: {name} of trips that are not fixed must be {plain} in a file")
    header = {"version": VERSION, "seed": scenario.seed, "units": UNITS}
    header["params"] = {"mode": scenario.mode} | {short: getattr(scenario, name) for short, name in HEADER.items()}
    pair.write(path, arrays, header)


def load(path, closure: bool = False) -> Scenario:
    """The scenario of a path without suffix, with either suffix too.

    Args:
        closure: take travel times of shortest paths.

    Raises:
        ValueError: the file is not what was written, or not of this version; names the file, the part and what is
            expected.
    """
    choice("closure", closure, (False, True))
    arrays, header = pair.read(path, {"version": VERSION, "units": UNITS})
    scenario = _scenario(arrays, header, *pair.paths(path))
    return scenario.closed() if closure else scenario


def _scenario(arrays: dict, header: dict, text: Path, binary: Path) -> Scenario:
    fixed, params = "instance" in arrays, header.get("params")
    for name in ("travel", "depot", "type", *(FIXED if fixed else DRAWN)):
        if name not in arrays:
            raise ValueError(f"{binary}: {name} is missing")
    for name in ("mode", *HEADER):
        if not isinstance(params, dict) or name not in params:
            raise ValueError(f"{text}: params.{name} is missing")
    depot = arrays["depot"]
    if depot.shape != () or depot.dtype.kind not in "iu":
        raise ValueError(f"{binary}: depot is {depot.dtype} {depot.shape}, must be one whole number")
    choice(f"{text}: params.mode", params["mode"], ("darp", "vrptw"))
    numbers = {HEADER[name]: integer(f"{text}: params.{name}", params[name], 1, 2**31 - 1) for name in HEADER}
    given = {name: arrays.get(name) for name in ("trip", "trip_count")}
    if fixed:
        for name, axes in (("instance", 3), ("service", 3), ("demand", 2)):
            if arrays[name].ndim != axes:
                raise ValueError(f"{binary}: {name} has shape {arrays[name].shape}, must have {axes} axes")
        given = {"trip": np.swapaxes(arrays["instance"], 0, 1)}
        given |= {name: np.swapaxes(arrays[name], 0, 1) for name in ("service", "demand")}
    return Scenario(
        travel=arrays["travel"], type=arrays["type"], depot=int(depot), fixed=fixed, mode=params["mode"],
        threshold=arrays.get("threshold"), zone_xy=arrays.get("zone_xy"), seed=header.get("seed"), **given, **numbers,
    )  # fmt: skip
