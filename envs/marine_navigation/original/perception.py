"""Observations of the original, in body axes (README.md, 2.4)."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..params import SLOTS, Params
from .boats import Boat, distance, to_body


class Obstacle(NamedTuple):
    """A disc."""

    x: float  # m
    y: float  # m
    radius: float  # m


class Seen(NamedTuple):
    """A neighbour as one robot sees it: in m and m/s, in that robot's axes."""

    gap: float  # distance less radius
    x: float
    y: float
    vx: float
    vy: float
    radius: float


def nearest(seen: list[Seen]) -> list[Seen]:
    """The five with the smallest gaps, nearest first; ties in the order given."""
    return sorted(seen, key=lambda one: one.gap)[:SLOTS]


def goal_and_velocity(robot: Boat, c: float, s: float) -> tuple[float, float, float, float]:
    """Goal x, y and velocity over ground u, v."""
    goal = to_body(robot.goal_x - robot.x, robot.goal_y - robot.y, c, s)
    return *goal, *to_body(robot.vx, robot.vy, c, s)


def thruster(
    robot: Boat, boats: Sequence[Boat], obstacles: Sequence[Obstacle], normals, xi, p: Params
) -> tuple[list[float], list[Seen]]:
    """The 37 numbers of a robot of the thruster version, and the neighbours they show.

    Args:
        boats: all that are active, the robot included.
        normals: standard normals of each object [O + boats][4], obstacles first.
        xi: of each object's radius [O + boats].
    """
    c, s = math.cos(robot.theta), math.sin(robot.theta)
    objects = [(one.x, one.y, 0.0, 0.0, one.radius, None) for one in obstacles]
    objects += [(one.x, one.y, one.vx, one.vy, p.collision_radius, one) for one in boats]
    seen = []
    for (x, y, vx, vy, radius, boat), noise, angle in zip(objects, normals, xi, strict=True):
        if boat is robot:
            continue
        dx = x + p.position_noise * noise[0] - robot.x
        dy = y + p.position_noise * noise[1] - robot.y
        vx, vy = vx + p.velocity_noise * noise[2], vy + p.velocity_noise * noise[3]
        radius *= p.radius_mean + p.radius_spread * angle / math.pi
        far = math.sqrt(dx * dx + dy * dy)
        if far <= p.perception_range + radius:
            seen.append(Seen(far - radius, *to_body(dx, dy, c, s), *to_body(vx, vy, c, s), radius))
    kept = nearest(seen)
    row = [*goal_and_velocity(robot, c, s), robot.turning, robot.left, robot.right]
    for one in kept:
        row += one[1:]
    row += [0.0] * (5 * (SLOTS - len(kept))) + [1.0] * len(kept) + [0.0] * (SLOTS - len(kept))
    return row, kept


def kinematic(robot: Boat, boats: Sequence[Boat], obstacles: Sequence[Obstacle], p: Params) -> list[float]:
    """The 39 numbers of a robot of the kinematic version, exact.

    Args:
        boats: all that are active, the robot included.
    """
    c, s = math.cos(robot.theta), math.sin(robot.theta)
    rocks, others = [], []
    for one in obstacles:
        far = distance(one.x, one.y, robot.x, robot.y)
        if far <= p.perception_range + one.radius:
            x, y = to_body(one.x - robot.x, one.y - robot.y, c, s)
            rocks.append(Seen(far - one.radius, x, y, 0.0, 0.0, one.radius))
    for one in boats if not robot.blind else ():
        far = distance(one.x, one.y, robot.x, robot.y)
        if one is not robot and far <= p.perception_range + p.hull_radius:
            place = to_body(one.x - robot.x, one.y - robot.y, c, s)
            others.append(Seen(far - p.collision_radius, *place, *to_body(one.vx, one.vy, c, s), p.collision_radius))
    rocks, others = nearest(rocks), nearest(others)
    row = list(goal_and_velocity(robot, c, s))
    for one in rocks:
        row += [one.x, one.y, one.radius]
    row += [0.0] * (3 * (SLOTS - len(rocks)))
    for one in others:
        row += [one.x, one.y, one.vx, one.vy]
    return row + [0.0] * (4 * (SLOTS - len(others)))
