"""A scenario: where robots, vortex cores and obstacles of an episode are when it begins (README.md, 4)."""

import numbers
from dataclasses import dataclass

import numpy as np

from ...checks import choice, integer
from ..params import MOST, VERSIONS, Params, given_params
from ..vortices import Core

FLAGS = "biuf"  # kinds of arrays that may hold flags; numbers must be of the others
LARGEST = 1e6  # m or m/s: of a position, a radius or a speed
# Arrays with a row for each robot, core and obstacle, besides those that are counted.
OF_COUNTS = ("goal", "heading", "speed"), ("clockwise", "edge_speed"), ("radius",)


@dataclass(frozen=True, eq=False)
class Scenario:
    """Float64 arrays unless another type stands beside them; no stage needs to have found all that was asked for.

    Raises:
        ValueError: an unknown version, an array of another shape or of no numbers, flags that are none, arrays that do
            not fit together, or a number of the wrong kind; names it and what is allowed.
    """

    version: str
    start: np.ndarray  # [A, 2] m
    goal: np.ndarray  # [A, 2] m
    heading: np.ndarray  # [A] rad, brought into [0, 2π)
    speed: np.ndarray  # [A] m/s through the water, 0 of a thruster boat
    core_centre: np.ndarray  # [C, 2] m
    clockwise: np.ndarray  # [C] bool
    edge_speed: np.ndarray  # [C] m/s
    obstacle_centre: np.ndarray  # [O, 2] m
    radius: np.ndarray  # [O] m
    asked: int = 0  # robots asked for, of which A were placed; 0: A
    blind: int = 0  # that so many of these, the last, see no other robot
    read: bool = False  # from a file, where the first reported velocity always has the current
    core_radius: float = 0.0  # m, for which alone the edge speeds hold, as of a published file; 0: any

    def __post_init__(self):
        for name, width in (("start", 2), ("goal", 2), ("heading", 1), ("speed", 1), ("core_centre", 2),
                            ("edge_speed", 1), ("obstacle_centre", 2), ("radius", 1)):  # fmt: skip
            object.__setattr__(self, name, _array(name, getattr(self, name), width).astype(np.float64))
        flags = _array("clockwise", self.clockwise, 1, FLAGS)
        if not np.isin(flags, (0, 1)).all():
            raise ValueError(f"scenario: clockwise={flags.tolist()!r:.60} must hold flags")
        object.__setattr__(self, "clockwise", flags.astype(bool))
        object.__setattr__(self, "heading", _within_a_turn(self.heading))
        object.__setattr__(self, "asked", integer("scenario: asked", self.asked, 0, MOST["robots"]) or len(self.start))
        object.__setattr__(self, "blind", integer("scenario: blind", self.blind, 0, MOST["robots"]))
        choice("scenario: read", self.read, (True, False))
        r = self.core_radius
        if isinstance(r, bool) or not isinstance(r, numbers.Real) or not 0 <= r <= LARGEST:
            raise ValueError(f"scenario: core_radius={r!r:.60} must be a number from 0 to {LARGEST:g}")
        object.__setattr__(self, "core_radius", float(r))
        choice("scenario: version", self.version, VERSIONS)
        for count, names in zip(self.counts, OF_COUNTS, strict=True):
            for name in names:
                if len(getattr(self, name)) != count:
                    raise ValueError(f"scenario: {name} has {len(getattr(self, name))} rows, must have {count}")

    @property
    def counts(self) -> tuple[int, int, int]:
        """Robots, cores and obstacles."""
        return len(self.start), len(self.core_centre), len(self.obstacle_centre)

    def cores(self, params: Params) -> list[Core]:
        """The cores as `vortices.current` takes them."""
        return [
            Core(x, y, 1 if clockwise else -1, params.core_radius * speed)
            for (x, y), clockwise, speed in zip(
                self.core_centre.tolist(), self.clockwise.tolist(), self.edge_speed.tolist(), strict=True
            )
        ]

    def check(self, params: Params, where: str = "scenario") -> "Scenario":
        """The scenario itself.

        Raises:
            ValueError: no `Params`, another version than the parameters', counts that are over a limit, a number that
                is not finite or far too large, a radius or an edge speed that is not positive, edge speeds for cores of
                another radius than the parameters', a thruster boat that moves, or a robot that starts in a collision;
                names the array, the first index and what is allowed.
        """
        if self.version != given_params(params).version:
            raise ValueError(f"{where}: version={self.version!r} must be {params.version!r}, as the parameters say")
        for kind, count in zip(MOST, self.counts, strict=True):
            least, most = int(kind == "robots"), 1 if params.version == "sonar" and kind == "robots" else MOST[kind]
            if not least <= count <= most:
                raise ValueError(f"{where}: {kind}={count} must be from {least} to {most}")
        for name in ("start", "goal", "heading", "speed", "core_centre", "edge_speed", "obstacle_centre", "radius"):
            array = getattr(self, name)
            refuse(~np.isfinite(array), array, name, where, "must be finite")
            refuse(np.abs(array) > LARGEST, array, name, where, f"must be at most {LARGEST:g}")
        for name in ("edge_speed", "radius"):
            refuse(getattr(self, name) <= 0, getattr(self, name), name, where, "must be positive")
        if params.version == "thruster":
            refuse(self.speed != 0, self.speed, "speed", where, "must be 0, since thruster boats start at rest")
        else:
            wrong = (self.speed < 0) | (self.speed > params.top_speed)
            refuse(wrong, self.speed, "speed", where, f"must be from 0 to {params.top_speed}")
        if self.core_radius not in (0.0, params.core_radius):
            raise ValueError(
                f"{where}: core_radius={self.core_radius}, by which its circulations are edge speeds, must be that of "
                f"the parameters, {params.core_radius}"
            )
        if self.blind and params.version != "kinematic":
            raise ValueError(f"{where}: blind={self.blind} must be 0 where version={params.version!r}")
        if not 0 <= self.blind <= len(self.start) <= self.asked:
            raise ValueError(
                f"{where}: blind={self.blind}, robots={len(self.start)} and asked={self.asked} must be in this order"
            )
        self._check_collisions(params.collision_radius, where)
        return self

    def _check_collisions(self, R: float, where: str):
        for i, (x, y) in enumerate(self.start.tolist()):
            for k, ((ox, oy), radius) in enumerate(
                zip(self.obstacle_centre.tolist(), self.radius.tolist(), strict=True)
            ):
                if np.hypot(x - ox, y - oy) <= R + radius:
                    raise ValueError(
                        f"{where}: start[{i}] is in a collision with obstacle {k}, must be over {R + radius:.6g} m away"
                    )
            for j in range(i):
                if np.hypot(x - self.start[j, 0], y - self.start[j, 1]) <= 2 * R:
                    raise ValueError(
                        f"{where}: start[{i}] is in a collision with robot {j}, must be over {2 * R:.6g} m away"
                    )


def refuse(wrong: np.ndarray, array: np.ndarray, name: str, where: str, rule: str):
    """Raises ValueError that names the first number of an array that is wrong."""
    if wrong.any():
        index = tuple(np.argwhere(wrong)[0].tolist())
        place = f"[{', '.join(map(str, index))}]" if index else ""
        raise ValueError(f"{where}: {name}{place} is {array[index]}, {rule}")


def _array(name: str, given, width: int, kinds: str = "iuf") -> np.ndarray:
    """Rows of `width` numbers, [n, width] or [n] of one."""
    try:
        array = np.asarray(given)
    except ValueError:
        raise ValueError(f"scenario: {name} is ragged") from None
    if not array.size:
        return np.zeros((0, 2) if width == 2 else 0)
    if array.dtype.kind not in kinds:
        raise ValueError(f"scenario: {name} holds {array.dtype}, must hold {'flags' if kinds == FLAGS else 'numbers'}")
    if not array.ndim or array.shape != (len(array), 2)[:width]:
        raise ValueError(f"scenario: {name} has shape {array.shape}, must have {'(n, 2)' if width == 2 else '(n,)'}")
    return array


def _within_a_turn(heading: np.ndarray) -> np.ndarray:
    """Headings in [0, 2π); those that are not finite stay."""
    finite = np.isfinite(heading)
    turned = np.mod(np.where(finite, heading, 0.0), 2 * np.pi)
    return np.where(finite, np.where(turned >= 2 * np.pi, 0.0, turned), heading)
