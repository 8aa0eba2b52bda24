"""Beams of the sonar version (README.md, 2.4)."""

import math
from collections.abc import Sequence

from ..params import BEAMS, Params
from .boats import Boat, distance
from .perception import Obstacle, goal_and_velocity


def sonar(robot: Boat, obstacles: Sequence[Obstacle], p: Params) -> list[float]:
    """The 26 numbers of a robot of the sonar version, exact: velocity, goal, and the point that each beam hits."""
    c, s = math.cos(robot.theta), math.sin(robot.theta)
    goal_x, goal_y, u, v = goal_and_velocity(robot, c, s)
    row = [u, v, goal_x, goal_y]
    if p.nearest_centre_only and obstacles:
        obstacles = [min(obstacles, key=lambda one: distance(one.x, one.y, robot.x, robot.y))]
    for beam in range(BEAMS):
        angle = p.beam_angle * (2.0 * beam / (BEAMS - 1) - 1.0)
        reach = nearest_hit(robot, robot.theta + angle, obstacles, p)
        row += [0.0, 0.0] if reach is None else [reach * math.cos(angle), reach * math.sin(angle)]
    return row


def nearest_hit(robot: Boat, heading: float, obstacles: Sequence[Obstacle], p: Params) -> float | None:
    """Distance to the first obstacle along a beam of a world heading, m; None where there is none in range."""
    c, s, found = math.cos(heading), math.sin(heading), None
    for one in obstacles:
        reach = hit(one.x - robot.x, one.y - robot.y, one.radius, c, s)
        if reach is None or reach > p.perception_range:
            continue
        if found is not None and reach > found:
            if p.beam_break:
                break
            continue
        found = reach
    return found


def hit(dx: float, dy: float, radius: float, c: float, s: float) -> float | None:
    """Distance along the direction (c, s) to a circle about (dx, dy), from within to its far side; None if missed."""
    along, beside = dx * c + dy * s, dy * c - dx * s
    if abs(beside) > radius:
        return None
    half = math.sqrt(radius * radius - beside * beside)
    if along - half >= 0.0:
        return along - half
    return along + half if along + half >= 0.0 else None
