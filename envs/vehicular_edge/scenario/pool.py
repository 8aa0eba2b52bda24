"""Scenarios to play, with their scales: drawn on synthetic traffic, on recorded traffic, or read from files."""

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import torch

from ...checks import choice, integer, require_memory
from ..params import Params
from . import file
from .calibration import cached, calibrate, warm_up
from .drawing import draw_arrays
from .records import Records
from .scenario import HEADER, Calibration, Scenario
from .synthetic import checked_index, checked_params, checked_seed, drawn_each, drawn_one
from .tracks import fill
from .traffic import TRAFFIC

SIZES = ("slots", "clients", "servers", "edges", "tasks", "components")  # of a scenario's arrays


def draw(
    params: Params | None = None,
    traffic: str = "arterial",
    index: int = 0,
    seed: int = 264,
    calibration: Calibration | None = None,
) -> Scenario:
    """Draws a scenario on synthetic traffic.

    Args:
        traffic: one of `traffic.TRAFFIC`.
        index: of the scenario in its pool, 0 .. 2^32-1; with draw="published" it changes the traffic alone.
        seed: 0 .. 2^64-1; with draw="published" to 2^32-1.
        calibration: None takes what `calibration.calibrate` finds for these parameters on this map.
    """
    params, index, seed = checked_params(params), checked_index(index), checked_seed(seed)
    drawn = drawn_one(params, traffic, index, seed, calibration or Calibration.ones(params))
    if calibration is None:
        drawn = replace(drawn, calibration=_calibration(params, traffic))
    return _warmed_up(drawn)


def draw_each(
    params: Params | None = None,
    traffic: str = "arterial",
    count: int = 8,
    seed: int = 264,
    calibration: Calibration | None = None,
) -> Iterator[Scenario]:
    """Scenarios 0 .. count-1 of `draw`, one after the other, as thousands of them do not fit in memory.

    All start from the running scales of scenario 0, as the environments of a pool do.
    """
    params, seed, count = checked_params(params), checked_seed(seed), integer("count", count, 1, 2**32)
    choice("traffic", traffic, TRAFFIC)
    calibration = calibration or _calibration(params, traffic)
    running = None
    for scenario in drawn_each(params, traffic, count, seed, calibration):
        scenario = _warmed_up(scenario) if scenario.index == 0 else replace(scenario, running=running)
        running = scenario.running
        yield scenario


def draw_pool(
    params: Params | None = None,
    traffic: str = "arterial",
    count: int = 8,
    seed: int = 264,
    calibration: Calibration | None = None,
) -> list[Scenario]:
    """The scenarios of `draw_each`; MemoryError where the arrays of all do not fit."""
    each = draw_each(params, traffic, count, seed, calibration)
    first = next(each)
    size = sum(array.nbytes for array in vars(first).values() if isinstance(array, np.ndarray))
    require_memory(count * size, torch.device("cpu"), "scenarios", count)
    return [first, *each]


def from_trace(
    records: Records,
    params: Params | None = None,
    index: int = 0,
    seed: int = 264,
    calibration: Calibration | None = None,
    name: str = "trace",
    edge_xy=None,
) -> Scenario:
    """A scenario on recorded traffic; everything but the positions is drawn as by `draw`.

    Args:
        records: of the window, see `traces`.
        calibration: None takes what the random policy reaches on this very scenario.
        edge_xy: where the edge nodes stand, [Ne, 2] m; None draws places in the box of the records.
    """
    params, index, seed = checked_params(params), checked_index(index), checked_seed(seed)
    xy, active, extent = fill(records, params)
    drawn = Scenario(
        params=params,
        **draw_arrays(params, xy, active, extent, index, seed, edge_xy),
        calibration=calibration or Calibration.ones(params),
        name=name,
        source=records.source,
        index=index,
        seed=seed,
    ).check(records.source.get("file", name))
    if calibration is None:
        drawn = replace(drawn, calibration=_calibration(params, [drawn]))
    return _warmed_up(drawn)


def pool_of(given, field: str = "scenario") -> list[Scenario]:
    """The scenarios that a user hands over: a `Scenario`, a path of a scenario file, or a list or tuple of them.

    Args:
        field: named by the errors.
    """
    many = list(given) if isinstance(given, list | tuple) else [given]
    if not many:
        raise ValueError(f"{field}=[] must hold at least one")
    found = [load(one) if isinstance(one, str | Path) else one for one in many]
    for one in found:
        if not isinstance(one, Scenario):
            raise ValueError(f"{field}={one!r:.60} must be a Scenario, a path of a scenario file, or a list of them")
    return found


def under(scenario: Scenario, params: Params, where: str = "scenario") -> Scenario:
    """A scenario under other parameters, checked.

    One that was drawn without a calibration, as its own parameters divide by none, gets that of the random policy on
    this very scenario where the new ones divide by it.

    Args:
        where: named by the errors.

    Raises:
        ValueError: a size that they would change, or something in the scenario without a meaning; names it.
    """
    for name in SIZES:
        own, wanted = getattr(scenario.params, name), getattr(params, name)
        if own != wanted:
            raise ValueError(f"{where}: {name} is {own}, Params has {wanted}")
    found = (scenario if params == scenario.params else replace(scenario, params=params)).check(where)
    if _divides(params) and not _divides(scenario.params) and scenario.calibration.is_ones:
        return replace(found, calibration=calibrate(params, [found]))
    return found


def load(path, params: Params | None = None) -> Scenario:
    """Reads what `Scenario.save` wrote.

    Args:
        path: without suffix, or with one of the two.
        params: what the scenario is played with, None for what it was drawn with; the sizes must agree.
    """
    arrays, header = file.read(path)
    lacking = [spec.name for spec in fields(Calibration) if spec.name not in header.get("calibration", {})]
    if "calibration" in header and lacking:
        raise ValueError(f"{path}: calibration in the JSON lacks {', '.join(lacking)}, must have every scale")
    try:
        own = Params(**header["params"])
        calibration = Calibration(**header["calibration"])
        stated = {name: header[name] for name in HEADER}
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: the JSON lacks a field or has an unknown one: {error}") from error
    file.check_known(arrays, own, str(path))
    arrays = file.check(arrays, own, str(path))
    running = {
        name.removeprefix(file.RUNNING): arrays.pop(name) for name in list(arrays) if name.startswith(file.RUNNING)
    }
    found = Scenario(params=own, **arrays, **stated, calibration=calibration, running=running or None)
    return under(found, own if params is None else params, str(path))


def _divides(params: Params) -> bool:
    """Tells that something is divided by a scale of the calibration (Q10, Q11, Q26)."""
    return not (params.running_scales and params.unsigned_drift and params.raw_observation)


def _calibration(params: Params, scenarios: "str | list[Scenario]") -> Calibration:
    """Scales that the random policy reaches on a map or on given scenarios; ones where nothing is divided by them."""
    if not _divides(params):
        return Calibration.ones(params)
    return (cached if isinstance(scenarios, str) else calibrate)(params, scenarios)


def _warmed_up(scenario: Scenario) -> Scenario:
    """With first running scales where the parameters ask for them (Q11)."""
    if not scenario.params.running_scales:
        return scenario
    return replace(scenario, running=warm_up(scenario))
