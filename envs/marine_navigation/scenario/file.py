"""Scenario files (README.md, 4.5): JSON of one, NPZ of many, and the published evaluation files."""

import json
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..params import VERSIONS
from .scenario import Scenario

FIELDS = {  # of a file: the field of a scenario, its kind, numbers of a row
    "robots.start": ("start", "robots", 2),
    "robots.goal": ("goal", "robots", 2),
    "robots.heading": ("heading", "robots", 1),
    "robots.speed": ("speed", "robots", 1),
    "cores.centre": ("core_centre", "cores", 2),
    "cores.clockwise": ("clockwise", "cores", 1),
    "cores.edge_speed": ("edge_speed", "cores", 1),
    "obstacles.centre": ("obstacle_centre", "obstacles", 2),
    "obstacles.radius": ("radius", "obstacles", 1),
}
KINDS = ("robots", "cores", "obstacles")
COOPERATIVE = "robots.cooperative"  # optional: flags of robots that see the others
PUBLISHED_CORE_RADIUS = 0.5  # m, by which a published circulation becomes an edge speed


def save(path, scenarios: "Scenario | Iterable[Scenario]"):
    """Writes scenarios of one version: `.json` takes one, `.npz` any number.

    Raises:
        ValueError: another suffix, no scenario, several for JSON, or several versions; names it.
    """
    path, many = Path(path), [scenarios] if isinstance(scenarios, Scenario) else list(scenarios)
    versions = sorted({one.version for one in many})
    if len(versions) != 1:
        raise ValueError(f"{path}: scenarios must be of one version, not {', '.join(versions) or 'none'}")
    if path.suffix == ".json":
        if len(many) != 1:
            raise ValueError(f"{path}: JSON holds one scenario, not {len(many)}; save as .npz")
        text = {"version": versions[0]} | {kind: {} for kind in KINDS}
        for key, rows in _rows(many[0]).items():
            kind, name = key.split(".")
            text[kind][name] = rows.tolist()
        path.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")
    elif path.suffix == ".npz":
        _save_many(path, versions[0], many)
    else:
        raise ValueError(f"{path}: the suffix must be .json or .npz")


def _rows(scenario: Scenario) -> dict[str, np.ndarray]:
    found = {key: getattr(scenario, name) for key, (name, _, _) in FIELDS.items()}
    if scenario.blind:
        found[COOPERATIVE] = np.arange(len(scenario.start)) < len(scenario.start) - scenario.blind
    return found


def _save_many(path: Path, version: str, many: list[Scenario]):
    counts = np.array([one.counts for one in many])
    arrays = {f"n_{kind}": counts[:, column] for column, kind in enumerate(KINDS)}
    every = [_rows(one) for one in many]
    if any(COOPERATIVE in rows for rows in every):
        every = [{COOPERATIVE: np.ones(len(one.start), bool)} | rows for one, rows in zip(many, every, strict=True)]
    for key, first in every[0].items():
        most = max(len(rows[key]) for rows in every)
        padded = arrays[key] = np.zeros((len(many), most, *first.shape[1:]), first.dtype)
        for row, rows in zip(padded, every, strict=True):
            row[: len(rows[key])] = rows[key]
    np.savez(path, version=version, **arrays)


def load(path) -> list[Scenario]:
    """Scenarios of a file: our JSON or NPZ, or a published evaluation file, of one object or a list.

    Raises:
        ValueError: not such a file, a part is missing, of another type or ragged; names file, part and what is allowed.
    """
    path = Path(path)
    if path.suffix == ".npz":
        return _load_many(path)
    if path.suffix != ".json":
        raise ValueError(f"{path}: the suffix must be .json or .npz")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    many = content if isinstance(content, list) else [content]
    if not many:
        raise ValueError(f"{path}: holds no scenario, must hold at least one")
    return [
        _read(one, f"{path}[{number}]" if isinstance(content, list) else str(path)) for number, one in enumerate(many)
    ]


def _load_many(path: Path) -> list[Scenario]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = dict(stored)
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: not an archive of arrays of numbers: {error}") from error
    for key in ("version", *(f"n_{kind}" for kind in KINDS), *FIELDS):
        if key not in arrays:
            raise ValueError(f"{path}: {key} is missing")
    version, columns = str(arrays["version"]), [arrays[f"n_{kind}"] for kind in KINDS]
    shapes, kinds = {column.shape for column in columns}, {column.dtype.kind for column in columns}
    if len(shapes) > 1 or columns[0].ndim != 1 or not kinds <= {"i", "u"} or not columns[0].size:
        raise ValueError(f"{path}: n_robots, n_cores and n_obstacles must be integers [N] of one N from 1 on")
    counts = np.stack(columns, axis=1)
    found = []
    for number, row in enumerate(counts.tolist()):
        sizes, rows = dict(zip(KINDS, row, strict=True)), {}
        for key in (*FIELDS, *([COOPERATIVE] if COOPERATIVE in arrays else [])):
            kind, array = key.split(".")[0], arrays[key]
            if array.ndim < 2 or len(array) != len(counts) or not 0 <= sizes[kind] <= array.shape[1]:
                allowed = f"({len(counts)}, at least {sizes[kind]}, ...), as n_{kind}[{number}] says"
                raise ValueError(f"{path}: {key} has shape {array.shape}, must have {allowed}")
            rows[key] = array[number, : sizes[kind]]
        found.append(_scenario(version, rows, f"{path}[{number}]"))
    return found


def _read(content, where: str) -> Scenario:
    if not isinstance(content, dict):
        raise ValueError(f"{where}: is {type(content).__name__}, must be an object")
    if "env" in content:
        return _read_published(content, where)
    version = content.get("version")
    rows = {key: _part(content, key, where) for key in FIELDS}
    if "cooperative" in content["robots"]:
        rows[COOPERATIVE] = content["robots"]["cooperative"]
    return _scenario(version, rows, where)


def _read_published(content: dict, where: str) -> Scenario:
    """Scenario of a published object; what it does not need, such as rewards and trajectories, is not read."""
    robots = _part(content, "robots", where)
    if not isinstance(robots, dict):
        raise ValueError(f"{where}: robots is {type(robots).__name__}, must be an object")
    version = "kinematic" if "init_speed" in robots else "thruster"
    start = _part(content, "robots.start", where)
    for key, value in robots.items():
        moving = key.startswith("init_") and key not in ("init_theta", "init_speed")
        if moving and _numbers(value, f"robots.{key}", where).any():
            raise ValueError(f"{where}: robots.{key} must be 0, since boats start at rest")
    speed = robots["init_speed"] if version == "kinematic" else np.zeros(np.shape(_numbers(start, "start", where))[:1])
    circulation = _numbers(_part(content, "env.cores.Gamma", where), "env.cores.Gamma", where)
    rows = {
        "robots.start": start,
        "robots.goal": _part(content, "robots.goal", where),
        "robots.heading": _part(content, "robots.init_theta", where),
        "robots.speed": speed,
        "cores.centre": _part(content, "env.cores.positions", where),
        "cores.clockwise": _part(content, "env.cores.clockwise", where),
        "cores.edge_speed": circulation / (2 * np.pi * PUBLISHED_CORE_RADIUS),
        "obstacles.centre": _part(content, "env.obstacles.positions", where),
        "obstacles.radius": _part(content, "env.obstacles.r", where),
    }
    if "cooperative" in robots:
        rows[COOPERATIVE] = robots["cooperative"]
    return _scenario(version, rows, where)


def _part(content: dict, key: str, where: str):
    found = content
    for name in key.split("."):
        if not isinstance(found, dict) or name not in found:
            raise ValueError(f"{where}: {key} is missing")
        found = found[name]
    return found


def _numbers(values, key: str, where: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{where}: {key} is ragged") from error
    if array.size and array.dtype.kind not in "biuf":
        raise ValueError(f"{where}: {key} holds {array.dtype}, must hold numbers")
    return array


def _scenario(version, rows: dict, where: str) -> Scenario:
    if version not in VERSIONS:
        raise ValueError(f"{where}: version={version!r} must be one of {', '.join(map(repr, VERSIONS))}")
    found, counts = {}, {}
    for key, (name, kind, width) in FIELDS.items():
        array = found[name] = _numbers(rows[key], key, where)
        count = counts.setdefault(kind, len(array) if array.ndim else -1)
        wanted = (count, 2) if width == 2 else (count,)
        if array.shape != wanted and (array.size or count):
            raise ValueError(f"{where}: {key} has shape {array.shape}, must have ({max(count, 0)}, ..) of {width} each")
        if name == "clockwise" and not np.isin(array, (0, 1)).all():
            raise ValueError(f"{where}: {key} holds {array.tolist()}, must hold flags")
    seeing = _numbers(rows.get(COOPERATIVE, np.ones(counts["robots"])), COOPERATIVE, where).astype(bool)
    blind = int((~seeing).sum())
    if seeing.shape != (counts["robots"],) or seeing[: len(seeing) - blind].sum() != len(seeing) - blind:
        raise ValueError(f"{where}: {COOPERATIVE}={seeing.tolist()} must be a flag per robot, false only at the end")
    return Scenario(version=version, **found, blind=blind, read=True)
