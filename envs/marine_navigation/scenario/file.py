"""Scenario files (README.md, 4.5): JSON of one, NPZ of many, and the published evaluation files."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from lockstep.reading import nearest

from ... import reading
from ...checks import choice, integer
from ..params import MOST, VERSIONS
from .scenario import FLAGS, LARGEST, Scenario, refuse

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
ASKED, CORE_RADIUS = "asked", "core_radius"  # optional, a number of each scenario, named as its fields; 0: none
KNOWN = ("version", *FIELDS, COOPERATIVE, ASKED, CORE_RADIUS)
PUBLISHED_CORE_RADIUS = 0.5  # m, by which a published circulation becomes an edge speed where the file has none
NUMBERED = re.compile(r"env_(\d+)")  # names of a published sonar's scenarios


def save(path, scenarios: "Scenario | Iterable[Scenario]"):
    """Writes scenarios of one version: `.json` takes one, `.npz` any number.

    Raises:
        ValueError: another suffix, something else than scenarios, one without a robot, none, several for JSON, several
            versions, or a file that cannot be written; names it.
    """
    path = _path(path)
    try:
        many = [scenarios] if isinstance(scenarios, Scenario) else list(scenarios)
    except TypeError:
        raise ValueError(f"{path}: scenarios={scenarios!r:.60} must be a Scenario or a list of them") from None
    for number, one in enumerate(many):
        if not isinstance(one, Scenario):
            raise ValueError(f"{path}: scenarios[{number}]={one!r:.60} must be a Scenario")
        if not len(one.start):
            raise ValueError(f"{path}: scenarios[{number}] has no robot, must have at least one")
    versions = sorted({one.version for one in many})
    if len(versions) != 1:
        raise ValueError(f"{path}: scenarios must be of one version, not {', '.join(versions) or 'none'}")
    if path.suffix == ".json" and len(many) != 1:
        raise ValueError(f"{path}: JSON holds one scenario, not {len(many)}; save as .npz")
    try:
        (_save_one if path.suffix == ".json" else _save_many)(path, versions[0], many)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}") from error


def _path(given) -> Path:
    return reading.path_of(given, "a scenario file, .json or .npz", (".json", ".npz"))


def _rows(scenario: Scenario) -> dict[str, np.ndarray]:
    found = {key: getattr(scenario, name) for key, (name, _, _) in FIELDS.items()}
    if scenario.blind:
        found[COOPERATIVE] = np.arange(len(scenario.start)) < len(scenario.start) - scenario.blind
    return found


def _save_one(path: Path, version: str, many: list[Scenario]):
    text = {"version": version} | {kind: {} for kind in KINDS}
    for key, rows in _rows(many[0]).items():
        kind, name = key.split(".")
        text[kind][name] = rows.tolist()
    text |= {name: getattr(many[0], name) for name in (ASKED, CORE_RADIUS) if getattr(many[0], name)}
    path.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")


def _save_many(path: Path, version: str, many: list[Scenario]):
    counts = np.array([one.counts for one in many])
    arrays = {f"n_{kind}": counts[:, column] for column, kind in enumerate(KINDS)}
    arrays |= {name: np.array([getattr(one, name) for one in many]) for name in (ASKED, CORE_RADIUS)}
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
    """Scenarios of a file: our JSON or NPZ, or a published evaluation file, of one object, a list, or `env_0` and on.

    Raises:
        ValueError: not such a file, a part is missing, unknown, of another type or ragged; names file, part and what is
            allowed.
    """
    path = _path(path)
    found = reading.content(path)
    if path.suffix == ".npz":
        return _load_many(reading.arrays(found, path), path)
    return [_read(one, where) for where, one in _objects(reading.parsed(found, path), str(path))]


def _objects(content, where: str) -> Iterator[tuple[str, object]]:
    """The objects that a text holds one of, in order, and what errors call each."""
    if isinstance(content, list):
        if not content:
            raise ValueError(f"{where}: holds no scenario, must hold at least one")
        yield from ((f"{where}[{number}]", one) for number, one in enumerate(content))
    elif isinstance(content, dict) and content and all(map(NUMBERED.fullmatch, content)):
        names = sorted(content, key=lambda name: int(NUMBERED.fullmatch(name)[1]))
        yield from ((f"{where}: {name}", content[name]) for name in names)
    else:
        yield where, content


def _load_many(arrays: dict[str, np.ndarray], path: Path) -> list[Scenario]:
    counted = [f"n_{kind}" for kind in KINDS]
    for key in arrays:
        if key not in KNOWN and key not in counted:
            raise ValueError(f"{path}: {key} is unknown{nearest(key, [*KNOWN, *counted])}")
    for key in ("version", *counted, *FIELDS):
        if key not in arrays:
            raise ValueError(f"{path}: {key} is missing")
    version, columns = str(arrays["version"]), [arrays[key] for key in counted]
    shapes, kinds = {column.shape for column in columns}, {column.dtype.kind for column in columns}
    if len(shapes) > 1 or columns[0].ndim != 1 or not kinds <= {"i", "u"} or not columns[0].size:
        raise ValueError(f"{path}: n_robots, n_cores and n_obstacles must be integers [N] of one N from 1 on")
    counts = np.stack([column.astype(np.int64) for column in columns], axis=1)
    single = {name: arrays[name] for name in (ASKED, CORE_RADIUS) if name in arrays}
    for name, column in single.items():
        if column.shape != columns[0].shape:
            raise ValueError(f"{path}: {name} has shape {column.shape}, must have {columns[0].shape}")
    found = []
    for number, row in enumerate(counts.tolist()):
        sizes, rows = dict(zip(KINDS, row, strict=True)), {}
        for kind, count in sizes.items():
            integer(f"{path}: n_{kind}[{number}]", count, int(kind == "robots"), MOST[kind])
        for key in (*FIELDS, *([COOPERATIVE] if COOPERATIVE in arrays else [])):
            kind, array = key.split(".")[0], arrays[key]
            if array.ndim < 2 or len(array) != len(counts) or sizes[kind] > array.shape[1]:
                allowed = f"({len(counts)}, at least {sizes[kind]}, ...), as n_{kind}[{number}] says"
                raise ValueError(f"{path}: {key} has shape {array.shape}, must have {allowed}")
            rows[key] = array[number, : sizes[kind]]
        rows |= {name: column[number].item() for name, column in single.items()}
        found.append(_scenario(version, rows, f"{path}[{number}]"))
    return found


def _read(content, where: str) -> Scenario:
    if not isinstance(content, dict):
        raise ValueError(f"{where}: is {type(content).__name__}, must be an object")
    if "env" in content:
        return _read_published(content, where)
    given = {}
    for name, part in content.items():
        given |= {f"{name}.{inner}": rows for inner, rows in part.items()} if isinstance(part, dict) else {name: part}
    for key in given:
        if key not in (*KNOWN, *KINDS):
            raise ValueError(f"{where}: {key} is unknown{nearest(key, KNOWN)}")
    for key in FIELDS:
        _part(content, key, where)
    return _scenario(given.pop("version", None), given, where)


def _read_published(content: dict, where: str) -> Scenario:
    """Scenario of a published object; what it does not need, such as rewards and trajectories, is not read."""
    sonar = "robot" in content  # whose robot is alone
    kind = "robot" if sonar else "robots"
    robots = _part(content, kind, where)
    if not isinstance(robots, dict):
        raise ValueError(f"{where}: {kind} is {type(robots).__name__}, must be an object")
    version = "sonar" if sonar else "kinematic" if "init_speed" in robots else "thruster"
    for key, value in robots.items():
        moving = key.startswith("init_") and key not in ("init_theta", "init_speed")
        if moving and _numbers(value, f"{kind}.{key}", where).any():
            raise ValueError(f"{where}: {kind}.{key} must be 0, since boats start at rest")
    owner = "env" if sonar else kind
    keys = {"start": f"{owner}.start", "goal": f"{owner}.goal", "heading": f"{kind}.init_theta"}
    keys |= {} if version == "thruster" else {"speed": f"{kind}.init_speed"}
    own = {name: _numbers(_part(content, key, where), key, where) for name, key in keys.items()}
    if version == "thruster":
        own["speed"] = np.zeros(own["start"].shape[:1])
    circulation = _numbers(_part(content, "env.cores.Gamma", where), "env.cores.Gamma", where)
    wrong = ~((circulation > 0) & (circulation < np.inf))
    refuse(wrong, circulation, "env.cores.Gamma", where, "must be positive and finite")
    radius = content["env"].get("r", PUBLISHED_CORE_RADIUS)
    if isinstance(radius, bool) or not isinstance(radius, int | float) or not 1 / LARGEST <= radius <= LARGEST:
        allowed = f"a positive number from {1 / LARGEST:g} to {LARGEST:g}, the radius of cores in m"
        raise ValueError(f"{where}: env.r={radius!r:.60} must be {allowed}")
    rows = {f"robots.{name}": array[None] if sonar else array for name, array in own.items()} | {
        "cores.centre": _part(content, "env.cores.positions", where),
        "cores.clockwise": _part(content, "env.cores.clockwise", where),
        "cores.edge_speed": circulation / (2 * np.pi * radius),
        "obstacles.centre": _part(content, "env.obstacles.positions", where),
        "obstacles.radius": _part(content, "env.obstacles.r", where),
        CORE_RADIUS: radius if circulation.size else 0.0,
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


def _numbers(values, key: str, where: str, kinds: str = "iuf", most: int = max(MOST.values())) -> np.ndarray:
    count = len(values) if isinstance(values, list) or getattr(values, "ndim", 0) else 0
    if count > most:
        raise ValueError(f"{where}: {key} has {count} rows, must have at most {most}")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{where}: {key} is ragged") from error
    if array.size and array.dtype.kind not in kinds:
        raise ValueError(f"{where}: {key} holds {array.dtype}, must hold numbers")
    if kinds != FLAGS and _holds_flags(values):
        raise ValueError(f"{where}: {key} holds true or false, must hold numbers")
    return array


def _holds_flags(values) -> bool:
    return any(isinstance(one, bool) for one in np.asarray(values, dtype=object).flat)


def _scenario(version, rows: dict, where: str) -> Scenario:
    choice(f"{where}: version", _single(version), VERSIONS)
    found, counts = {}, {}
    for key, (name, kind, width) in FIELDS.items():
        array = found[name] = _numbers(rows[key], key, where, FLAGS if name == "clockwise" else "iuf", MOST[kind])
        count = counts.setdefault(kind, len(array) if array.ndim else -1)
        wanted = (count, 2)[:width]
        if array.shape != wanted and (array.size or count):
            allowed = str(wanted).replace("-1", "n")
            raise ValueError(f"{where}: {key} has shape {array.shape}, must have {allowed}")
        if name == "clockwise" and not np.isin(array, (0, 1)).all():
            raise ValueError(f"{where}: {key} holds {array.tolist()!r:.60}, must hold flags")
    if not counts["robots"]:
        raise ValueError(f"{where}: robots.start holds no robot, must hold at least one")
    seeing = _numbers(rows.get(COOPERATIVE, np.ones(counts["robots"])), COOPERATIVE, where, FLAGS)
    blind = int((seeing == 0).sum())
    flags = seeing.shape == (counts["robots"],) and np.isin(seeing, (0, 1)).all()
    if not flags or not seeing[: len(seeing) - blind].all():
        allowed = "a flag per robot, false only at the end"
        raise ValueError(f"{where}: {COOPERATIVE}={seeing.tolist()!r:.60} must be {allowed}")
    asked = integer(f"{where}: {ASKED}", _single(rows.get(ASKED, counts["robots"])), counts["robots"], MOST["robots"])
    radius = _numbers(rows.get(CORE_RADIUS, 0.0), CORE_RADIUS, where)
    if radius.shape or not 0 <= radius <= LARGEST:
        raise ValueError(f"{where}: {CORE_RADIUS}={radius.tolist()!r:.60} must be a number from 0 to {LARGEST:g}")
    return Scenario(version=version, **found, asked=asked, blind=blind, read=True, core_radius=radius.item())


def _single(value):
    """The value, or of a list or an object its type, which may be nested too deep to be shown."""
    return type(value) if isinstance(value, list | dict) else value
