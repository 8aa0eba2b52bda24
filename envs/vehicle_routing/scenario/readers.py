"""Readers of published benchmark files: Solomon's, Gehring and Homberger's, and Li and Lim's (README.md, 4.4)."""

from pathlib import Path

import numpy as np

from ... import reading
from ...checks import choice, integer
from ...noise import philox
from .. import streams
from ..params import MOST, MOST_HORIZON, MOST_REQUESTS, STEP_THRESHOLD, THRESHOLDS, TICKS
from ..streams import mulhi
from .scenario import Scenario, typed

COLUMNS = {
    "solomon": ("number", "x", "y", "demand", "ready time", "due date", "service time"),
    "li_lim": ("number", "x", "y", "demand", "ready time", "due date", "service time", "pickup", "delivery"),
}


def solomon(path, ticks: int = TICKS, rounded: bool = False, types="uniform", seed: int = 0, closure: bool = False):
    """The one instance of a file of Solomon, or of Gehring and Homberger, as a `Scenario` with mode="vrptw".

    Args:
        ticks: per unit of the file, whose times are whole numbers of them.
        rounded: round distances to the nearest tick, half up; else they are cut off.
        types: "uniform", drawn by `seed` as thresholds are, a name, or numbers [n].
        closure: take travel times of shortest paths.

    Raises:
        ValueError: not such a file; names the file, the line and what is allowed.
    """
    path, lines = _lines(path)
    heads = [number for number, words in lines if words[0].upper() == "CUST"]
    before = [(number, words) for number, words in lines if heads and number < heads[0]]
    capacities = [(number, words) for number, words in before if len(words) == 2 and all(map(_is_number, words))]
    if len(heads) != 1 or len(capacities) != 1:
        raise ValueError(f"{path}: must have a line of two numbers, vehicles and capacity, before one of CUST NO.")
    fleet, capacity = _head(path, *capacities[0], ("vehicles", "capacity"))
    lines = [line for line in lines if line[0] > heads[0]]
    stops = _stops(path, lines, COLUMNS["solomon"], ticks)
    rows = [[i, early, late, i, early, late] for i, (_, _, _, _, early, late, _) in enumerate(stops)][1:]
    service = [[stop[6]] * 2 for stop in stops[1:]]
    demand = [
        integer(f"{path}, line {number}: demand", stop[3], 1, capacity)
        for (number, _), stop in zip(lines[1:], stops[1:], strict=True)
    ]
    return _scenario(path, "vrptw", stops, rows, service, demand, fleet, capacity, ticks, rounded, types, seed, closure)


def li_lim(path, ticks: int = TICKS, rounded: bool = False, types="uniform", seed: int = 0, closure: bool = False):
    """The one instance of a file of Li and Lim, as a `Scenario` with mode="darp"; arguments as of `solomon`.

    Raises:
        ValueError: not such a file, or pickups and deliveries that do not fit; names the file, the line and what is
            allowed.
    """
    path, lines = _lines(path)
    fleet, capacity, speed = _head(path, *lines[0], ("vehicles", "capacity", "speed"))
    if speed != 1:
        raise ValueError(f"{path}, line {lines[0][0]}: speed={speed} must be 1, so that times are distances")
    stops = _stops(path, lines[1:], COLUMNS["li_lim"], ticks)
    where = [number for number, _ in lines[1:]]
    rows, service, demand = [], [], []
    for i, stop in enumerate(stops[1:], 1):
        back, ahead = stop[7], stop[8]
        if (back == 0) == (ahead == 0):
            raise ValueError(f"{path}, line {where[i]}: pickup={back}, delivery={ahead}: one of them must be 0")
        partner = back or ahead
        if not 1 <= partner < len(stops) or partner != int(partner):
            raise ValueError(f"{path}, line {where[i]}: partner {partner} must be from 1 to {len(stops) - 1}")
        other = stops[int(partner)]
        if (other[7] if ahead else other[8]) != i or (other[8] if ahead else other[7]) != 0:
            raise ValueError(f"{path}, line {where[i]}: partner {partner} must point back to {i}")
        if stop[3] != -other[3] or (stop[3] > 0) != (ahead > 0):
            raise ValueError(
                f"{path}, line {where[i]}: demand={stop[3]} must be {-other[3]}, positive at the pickup: its partner's "
                "with the other sign"
            )
        if ahead:
            rows.append([i, stop[4], stop[5], int(partner), other[4], other[5]])
            service.append([stop[6], other[6]])
            demand.append(integer(f"{path}, line {where[i]}: demand", stop[3], 1, capacity))
    return _scenario(path, "darp", stops, rows, service, demand, fleet, capacity, ticks, rounded, types, seed, closure)


def _scenario(path, mode, stops, rows, service, demand, fleet, capacity, ticks, rounded, types, seed, closure):
    seed = integer("seed", seed, 0, 2**64 - 1)
    for name, given in (("rounded", rounded), ("closure", closure)):
        choice(name, given, (False, True))
    n = integer(f"{path}: requests", len(rows), 1, MOST_REQUESTS)
    xy = np.array([stop[1:3] for stop in stops], dtype=np.float64)
    exact = ticks * np.sqrt(((xy[:, None] - xy) ** 2).sum(axis=-1))
    words = philox((0, 0, np.arange(n), streams.KINDS), seed)
    threshold = np.stack([mulhi(words[1], THRESHOLDS), mulhi(words[2], THRESHOLDS)], axis=1) * STEP_THRESHOLD * TICKS
    found = Scenario(
        travel=np.floor(exact + 0.5 if rounded else exact), trip=np.array(rows)[:, None],
        type=typed(types, n, words[0]), threshold=threshold[:, None], service=np.array(service)[:, None],
        demand=np.array(demand)[:, None], zone_xy=xy, fixed=True, mode=mode, capacity=capacity, fleet_size=fleet,
        horizon=stops[0][5],
    )  # fmt: skip
    return found.closed() if closure else found


def _lines(given) -> tuple[Path, list[tuple[int, list[str]]]]:
    """The path that was given, and number and words of each line that is not empty."""
    path = reading.path_of(given, "a text file")
    try:
        text = reading.content(path).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    found = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not found:
        raise ValueError(f"{path}: is empty")
    return path, found


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _numbers(path: Path, number: int, words: list[str], names: tuple[str, ...]) -> list[float]:
    if len(words) != len(names) or not all(map(_is_number, words)):
        raise ValueError(
            f"{path}, line {number}: {' '.join(words)[:60]!r} must be {len(names)} numbers: {', '.join(names)}"
        )
    found = [float(word) for word in words]
    if not np.isfinite(found).all():
        raise ValueError(f"{path}, line {number}: {' '.join(words)[:60]!r} must be finite")
    return [int(value) if value == int(value) else value for value in found]


def _head(path: Path, number: int, words: list[str], names: tuple[str, ...]) -> list[float]:
    """Vehicles and capacity, whole numbers above 0, and what follows them."""
    found = _numbers(path, number, words, names)
    for name, value in zip(names[:2], found[:2], strict=True):
        integer(f"{path}, line {number}: {name}", value, 1, MOST)
    return found


def _stops(path: Path, lines: list[tuple[int, list[str]]], names: tuple[str, ...], ticks: int) -> list[list[float]]:
    """The depot's numbers, then those of each customer, whose number is its place; times in ticks."""
    ticks = integer("ticks", ticks, 1, 100_000)
    if len(lines) < 2:
        raise ValueError(f"{path}: must have a line of the depot and one of each customer, has {len(lines)}")
    stops, seen = [], {}
    for place, (number, words) in enumerate(lines):
        stop = _numbers(path, number, words, names)
        if stop[0] in seen:
            raise ValueError(f"{path}, line {number}: number {stop[0]} stands in line {seen[stop[0]]} already")
        if stop[0] != place:
            raise ValueError(f"{path}, line {number}: number {stop[0]} must be {place}")
        seen[stop[0]] = number
        end = stops[0][5] if stops else MOST_HORIZON * TICKS
        where = f"{path}, line {number}: "
        early = _in_ticks(where + names[4], stop[4], ticks, 0, end)
        late = _in_ticks(where + names[5], stop[5], ticks, early if stops else 1, end)
        stay = _in_ticks(where + names[6], stop[6], ticks, 0, end)
        stops.append([*stop[:4], early, late, stay, *stop[7:]])
    if stops[0][3] or stops[0][4] or stops[0][6]:
        raise ValueError(f"{path}, line {lines[0][0]}: demand, ready time and service time of the depot must be 0")
    return stops


def _in_ticks(what: str, value: float, ticks: int, least: int, most: int) -> int:
    found = round(value * ticks)
    if abs(value * ticks - found) > 1e-6:
        raise ValueError(f"{what}={value} must be a multiple of {1 / ticks:g}, a tick")
    if not least <= found <= most:
        raise ValueError(f"{what}={value} must be from {least / ticks:g} to {most / ticks:g}")
    return found
