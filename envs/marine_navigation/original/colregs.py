"""Turn to starboard that the rules of the road ask for (COLREGs; README.md, 2.5)."""

import math
from collections.abc import Sequence

from ..params import CROSSING, HEAD_ON, MARGIN, SLOW
from .boats import to_body
from .perception import Seen


def colregs_angle(u: float, v: float, neighbours: Sequence[Seen], R: float) -> float:
    """φ in rad of the first neighbour that asks for a turn, else 0.

    Args:
        u, v: own velocity over ground, m/s, in body axes.
        neighbours: nearest first, in the same axes.
        R: own radius, m.
    """
    if math.sqrt(u * u + v * v) < SLOW:
        return 0.0
    for other in neighbours:
        speed = math.sqrt(other.vx * other.vx + other.vy * other.vy)
        if speed < SLOW:
            continue
        c, s = other.vx / speed, other.vy / speed
        x, y = to_body(-other.x, -other.y, c, s)
        eu, ev = to_body(u, v, c, s)
        if head_on(x, y, eu, ev) or crossing(x, y, eu, ev):
            phi = turn(u, v, other, R)
            if phi > 0.0:
                return phi
    return 0.0


def head_on(x: float, y: float, u: float, v: float) -> bool:
    """True if an own ship at (x, y) with velocity (u, v), in the other's axes, meets it about head on."""
    first, last, wide = HEAD_ON
    return first <= x <= last and abs(y) <= wide and u < 0.0 and abs(v) < -u


def crossing(x: float, y: float, u: float, v: float) -> bool:
    """True if the own ship crosses from the other's port side, so that it must give way."""
    first, last, least, slope = CROSSING
    return first <= x <= last and least <= y <= 0.0 and y <= -slope * x and v >= abs(u)


def turn(u: float, v: float, other: Seen, R: float) -> float:
    """φ: from the own course to the one that passes the other's disc with R to spare; 0 within the disc."""
    far, b = math.sqrt(other.x * other.x + other.y * other.y), other.radius + MARGIN
    if far < b:
        return 0.0
    beta = math.atan2(other.y, other.x) + math.asin(b / far) + math.atan2(R, math.sqrt(far * far - b * b))
    return wrapped(beta - math.atan2(v, u))


def wrapped(angle: float) -> float:
    """The angle in [-π, π)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi
