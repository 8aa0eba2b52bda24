"""COLREGs angles of all robots at once (README.md, 2.5)."""

import math
from collections.abc import Sequence

from ..params import CROSSING, HEAD_ON, MARGIN, SLOW
from .model import Array, Model, to_body


def colregs_angles(m: Model, u: Array, v: Array, neighbours: Sequence[Array], kept: Array) -> Array:
    """φ [B, A] of the first neighbour that asks for a turn, else 0.

    Args:
        u, v: own velocities over ground [B, A], in body axes.
        neighbours: x, y, velocity x, y and radius, [B, A, n] each, nearest first.
        kept: [B, A, n] bool.
    """
    xp, own = m.xp, m.xp.sqrt(u * u + v * v)
    m.decides(own - SLOW, kept.any(axis=-1))
    u, v, own = u[..., None], v[..., None], own[..., None]
    x, y, vx, vy, radius = neighbours
    speed = xp.sqrt(vx * vx + vy * vy)
    kept = kept & (own >= SLOW)
    m.decides(speed - SLOW, kept)
    kept = kept & (speed >= SLOW)
    c, s = (xp.where(kept, part / xp.maximum(speed, SLOW), 0.0) for part in (vx, vy))
    px, py = to_body(-x, -y, c, s)
    eu, ev = to_body(u, v, c, s)
    asks, asked = {"head-on": head_on, "crossing": crossing}, False
    for encounter, holds in asks.items():
        found = kept & holds(m, px, py, eu, ev, kept)
        m.note(encounter, found)
        asked = asked | found
    phi = turn(m, u, v, x, y, radius, asked)
    angles = xp.zeros(phi.shape[:2], dtype=m.real)
    for k in range(phi.shape[2]):
        angles = xp.where(angles > 0, angles, xp.where(asked[..., k] & (phi[..., k] > 0), phi[..., k], 0.0))
    m.note("a turn that is asked for", angles > 0)
    return angles


def head_on(m: Model, x: Array, y: Array, u: Array, v: Array, among: Array) -> Array:
    """True where an own ship at (x, y) with velocity (u, v), in the other's axes, meets it about head on."""
    first, last, wide = HEAD_ON
    across, opposed = m.xp.abs(y), m.xp.abs(v) + u
    for apart in (x - first, x - last, across - wide, opposed):
        m.decides(apart, among)
    return (x >= first) & (x <= last) & (across <= wide) & (u < 0) & (opposed < 0)


def crossing(m: Model, x: Array, y: Array, u: Array, v: Array, among: Array) -> Array:
    """True where the own ship crosses from the other's port side, so that it must give way."""
    first, last, least, slope = CROSSING
    below, beside = y + slope * x, v - m.xp.abs(u)
    for apart in (x - first, x - last, y - least, y, below, beside):
        m.decides(apart, among)
    return (x >= first) & (x <= last) & (y >= least) & (y <= 0) & (below <= 0) & (beside >= 0)


def turn(m: Model, u: Array, v: Array, x: Array, y: Array, radius: Array, asked: Array) -> Array:
    """φ: from the own course to the one that passes the other's disc with R to spare; 0 within the disc."""
    xp, far, b = m.xp, m.xp.sqrt(x * x + y * y), radius + MARGIN
    m.decides(far - b, asked)
    tangent = xp.sqrt(xp.maximum(far * far - b * b, 0.0))
    ratio = b / xp.maximum(far, b)
    beta = xp.arctan2(y, x) + xp.arcsin(ratio) + xp.arctan2(xp.full_like(far, m.params.collision_radius), tangent)
    phi = xp.mod(beta - xp.arctan2(v, u) + math.pi, 2 * math.pi) - math.pi
    outside = asked & (far >= b)
    m.decides(phi, outside)
    m.decides(math.pi - xp.abs(phi), outside)
    return xp.where(far < b, 0.0, phi)
