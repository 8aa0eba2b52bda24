"""Observations of all robots at once, in body axes, and the noise in them (README.md, 2.4)."""

import math
from collections.abc import Mapping

import numpy as np

from ...noise import philox
from ..params import BEAMS, SLOTS
from ..streams import KNOTS, PER_OBSERVER, PERCEPTION, ROBOT_OBJECT, UNIT, von_mises_knots
from .colregs import colregs_angles
from .model import Array, Model, distance, parts, to_body

LONGEST = math.sqrt(48 * math.log(2))  # standard deviations: no noise of a place is longer


def perceive(m: Model, state: Mapping, seed: int, index: Array) -> tuple[Array, Array]:
    """Observations [B, A, n] and COLREGs angles [B, A] of the active robots, zeros of others."""
    xp, active = m.xp, state["active"]
    if m.params.version == "thruster":
        rows, angles = thruster(m, state, seed, index)
    else:
        rows = (sonar if m.params.version == "sonar" else kinematic)(m, state)
        angles = xp.zeros(active.shape, dtype=m.real)
    return xp.where(active[..., None], rows, 0.0), xp.where(active, angles, 0.0)


def noise(m: Model, state: Mapping, seed: int, index: Array, among: Array) -> tuple[list[Array], Array]:
    """Standard normals of position x, y and velocity x, y, and ξ, [B, A, O + A] each, after the step just made.

    among: which are drawn; others are 0, since no number depends on another.
    """
    xp, rocky = m.xp, state["obstacle"].shape[1]
    b, i, k = xp.nonzero(among)
    observer = state["noise_id"][b, i].astype(xp.int64) if m.params.shared_noise else i
    first = PERCEPTION + PER_OBSERVER * observer + 2 * xp.where(k < rocky, k, ROBOT_OBJECT - rocky + k)
    place = index[b], state["episode"][b], state["elapsed"][b]
    words = [(word >> 8).astype(m.real) * UNIT for word in philox((*place, first), seed, xp)]
    normals = []
    for one, other in (words[:2], words[2:]):
        radius, angle = xp.sqrt(-2.0 * xp.log(one + UNIT)), 2.0 * math.pi * other
        normals += [radius * xp.cos(angle), radius * xp.sin(angle)]
    place = (philox((*place, first + 1), seed, xp)[0] >> 8) * (UNIT * (KNOTS - 1))
    below, knots = place.astype(xp.int64), xp.asarray(von_mises_knots())
    normals.append(knots[below] + (place - below) * (knots[below + 1] - knots[below]))
    found = xp.zeros((len(normals), *among.shape), dtype=m.real)
    for rows, numbers in zip(found, normals, strict=True):
        rows[b, i, k] = numbers
    return list(found[:-1]), found[-1]


def thruster(m: Model, state: Mapping, seed: int, index: Array) -> tuple[Array, Array]:
    xp, p, active = m.xp, m.params, state["active"]
    rocks, boats = parts(state["obstacle"]), [*parts(state["pose"])[:2], *parts(state["ground_velocity"])]
    still, wide = xp.zeros_like(rocks[0]), xp.full_like(boats[0], p.collision_radius)
    pairs = zip([rocks[0], rocks[1], still, still, rocks[2]], [*boats, wide], strict=True)
    x, y, vx, vy, radius = (xp.concatenate(pair, axis=1)[:, None] for pair in pairs)  # [B, 1, O + A]
    there = xp.concatenate([obstacles_there(m, state), active], axis=1)[:, None]
    rocky, A = still.shape[1], active.shape[1]
    far = distance(xp, x, y, boats[0][..., None], boats[1][..., None])  # [B, A, O + A]
    reach = p.perception_range + LONGEST * p.position_noise + radius * (p.radius_mean + p.radius_spread)
    among = active[..., None] & (far <= reach) & (xp.arange(rocky + A) != rocky + xp.arange(A)[:, None])
    if m.probe is not None:
        ended = (xp.arange(A) < state["counts"][:, :1]) & ~active
        m.note("a robot in range that has ended", among[..., rocky:] & ended[:, None])
    among = among & there
    normals, xi = noise(m, state, seed, index, among)
    dx = x + p.position_noise * normals[0] - boats[0][..., None]
    dy = y + p.position_noise * normals[1] - boats[1][..., None]
    vx, vy = vx + p.velocity_noise * normals[2], vy + p.velocity_noise * normals[3]
    radius = radius * (p.radius_mean + p.radius_spread * xi / math.pi)
    far = xp.sqrt(dx * dx + dy * dy)
    seen = among & m.at_most(far, p.perception_range + radius, among)
    m.note("more than five neighbours", seen.sum(axis=-1) > SLOTS)
    order, kept = nearest(m, xp.where(seen, far - radius, xp.inf))
    c, s = cosine_and_sine(m, state)
    dx, dy, vx, vy, radius = (xp.take_along_axis(one, order, axis=-1) for one in (dx, dy, vx, vy, radius))
    found = [*to_body(dx, dy, c, s), *to_body(vx, vy, c, s), radius]
    own = goal_and_velocity(m, state)
    angles = colregs_angles(m, own[2], own[3], found, kept)
    rows = [xp.stack([*own, state["reported_yaw_rate"], *parts(state["thrust"])], axis=-1)]
    rows += [filled(m, found, kept), filled(m, [kept.astype(m.real)], kept)]
    return xp.concatenate(rows, axis=-1), angles


def kinematic(m: Model, state: Mapping) -> Array:
    xp, p, active = m.xp, m.params, state["active"]
    (x, y), (c, s) = parts(state["pose"])[:2], cosine_and_sine(m, state)
    rocks, rows = parts(state["obstacle"][:, None]), [xp.stack(goal_and_velocity(m, state), axis=-1)]
    far = distance(xp, rocks[0], rocks[1], x[..., None], y[..., None])  # [B, A, O]
    among = active[..., None] & obstacles_there(m, state)[:, None]
    seen = among & m.at_most(far, p.perception_range + rocks[2], among)
    m.note("more than five obstacles", seen.sum(axis=-1) > SLOTS)
    order, kept = nearest(m, xp.where(seen, far - rocks[2], xp.inf))
    place = to_body(rocks[0] - x[..., None], rocks[1] - y[..., None], c, s)
    found = [*place, xp.broadcast_to(rocks[2], far.shape)]
    rows.append(filled(m, [xp.take_along_axis(one, order, axis=-1) for one in found], kept))

    far = distance(xp, x[:, None], y[:, None], x[..., None], y[..., None])  # [B, A, A]
    reach = p.perception_range + p.hull_radius
    among = (active & ~blind(m, state))[..., None] & active[:, None] & ~xp.eye(far.shape[1], dtype=bool)
    seen = among & m.at_most(far, reach, among)
    m.note("more than five robots", seen.sum(axis=-1) > SLOTS)
    ended = (xp.arange(far.shape[1]) < state["counts"][:, :1]) & ~active
    m.note("a robot in range that has ended", active[..., None] & ended[:, None] & (far <= reach))
    order, kept = nearest(m, xp.where(seen, far - p.collision_radius, xp.inf))
    place = to_body(x[:, None] - x[..., None], y[:, None] - y[..., None], c, s)
    velocity = to_body(*(part[:, None] for part in parts(state["ground_velocity"])), c, s)
    found = [xp.take_along_axis(one, order, axis=-1) for one in (*place, *velocity)]
    return xp.concatenate([*rows, filled(m, found, kept)], axis=-1)


def sonar(m: Model, state: Mapping) -> Array:
    xp, p = m.xp, m.params
    x, y, theta = (part[..., None] for part in parts(state["pose"]))  # [B, 1, 1]
    rocks, there = state["obstacle"], obstacles_there(m, state)
    if p.nearest_centre_only and rocks.shape[1]:
        far = xp.where(there, distance(xp, rocks[..., 0], rocks[..., 1], x[..., 0], y[..., 0]), xp.inf)
        with np.errstate(invalid="ignore"):
            m.decides(xp.diff(xp.sort(far, axis=1)[:, :2], axis=1), there.sum(axis=1, keepdims=True) > 1)
        first = far.argmin(axis=1)[:, None]
        rocks, there = rocks[xp.arange(len(far))[:, None], first], xp.take_along_axis(there, first, axis=1)
    angle = p.beam_angle * (2.0 * xp.arange(BEAMS) / (BEAMS - 1) - 1.0).astype(m.real)
    c, s = xp.cos(theta + angle), xp.sin(theta + angle)  # [B, 1, BEAMS]
    found = xp.full_like(c, xp.inf)
    searching = xp.broadcast_to(state["active"][..., None], c.shape)
    for k in range(rocks.shape[1]):
        cx, cy, radius = (part[:, None, None] for part in parts(rocks[:, k]))
        along, beside = (cx - x) * c + (cy - y) * s, (cy - y) * c - (cx - x) * s
        among = searching & there[:, k, None, None]
        touched = among & m.at_most(xp.abs(beside), radius, among)
        half = xp.sqrt(xp.maximum(radius * radius - beside * beside, 0.0))
        reach = xp.where(along - half >= 0.0, along - half, along + half)
        m.decides(along - half, touched)
        m.decides(along + half, touched)
        hit = touched & (reach >= 0.0) & m.at_most(reach, p.perception_range, touched & (reach >= 0.0))
        further = hit & (reach > found)
        m.decides(reach - found, hit)
        if k:
            m.note("a beam that hits one behind another", further)
        if p.beam_break:
            searching = searching & ~further
        found = xp.where(hit & ~further, reach, found)
    m.note("a beam that hits", xp.isfinite(found))
    reach = xp.where(xp.isfinite(found), found, 0.0)
    goal_x, goal_y, u, v = goal_and_velocity(m, state)
    points = xp.stack([reach * xp.cos(angle), reach * xp.sin(angle)], axis=-1)
    return xp.concatenate([xp.stack([u, v, goal_x, goal_y], axis=-1), points.reshape(*x.shape[:2], -1)], axis=-1)


# ---- Parts ---------------------------------------------------------------------------------------------------------


def nearest(m: Model, gap: Array) -> tuple[Array, Array]:
    """Order [B, A, 5 at most] of the least gaps [B, A, n], ties as they stand, and which of these are finite."""
    order = m.xp.argsort(gap, axis=-1, kind="stable")
    if m.probe is not None:
        following = m.xp.take_along_axis(gap, order[..., : SLOTS + 1], axis=-1)
        finite = m.xp.isfinite(following[..., 1:])
        m.decides(following[..., 1:] - m.xp.where(finite, following[..., :-1], 0.0), finite)
    order = order[..., :SLOTS]
    return order, m.xp.isfinite(m.xp.take_along_axis(gap, order, axis=-1))


def filled(m: Model, numbers: list[Array], kept: Array) -> Array:
    """Slots of numbers [B, A, n] each as rows [B, A, 5 * numbers], zeros where nothing is kept."""
    slots = m.xp.zeros((*kept.shape[:2], SLOTS, len(numbers)), dtype=m.real)
    slots[:, :, : kept.shape[2]] = m.xp.where(kept[..., None], m.xp.stack(numbers, axis=-1), 0.0)
    return slots.reshape(*kept.shape[:2], -1)


def obstacles_there(m: Model, state: Mapping) -> Array:
    return m.xp.arange(state["obstacle"].shape[1]) < state["counts"][:, 2:]


def blind(m: Model, state: Mapping) -> Array:
    """True of robots [B, A] that see no robot."""
    return m.xp.arange(state["active"].shape[1]) >= (state["asked"] - state["blind"])[:, None]


def cosine_and_sine(m: Model, state: Mapping) -> tuple[Array, Array]:
    """Of every heading, [B, A, 1]."""
    theta = state["pose"][..., 2:]
    return m.xp.cos(theta), m.xp.sin(theta)


def goal_and_velocity(m: Model, state: Mapping) -> list[Array]:
    """Goal x, y and velocity over ground u, v, [B, A] each."""
    c, s = (one[..., 0] for one in cosine_and_sine(m, state))
    goal = parts(state["goal"] - state["pose"][..., :2])
    return [*to_body(*goal, c, s), *to_body(*parts(state["ground_velocity"]), c, s)]
