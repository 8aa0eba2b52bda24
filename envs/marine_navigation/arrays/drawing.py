"""States in which episodes begin, with the rules of `scenario.drawing` applied to all proposals at once.

All in float64: which proposals are accepted depends on no type. Symbols: R episodes.
"""

import math
from collections.abc import Callable

import numpy as np

from ...noise import philox
from .. import streams
from ..layout import state_shapes
from ..params import OBSTACLE_MARGIN, PROPOSALS, START_MARGIN
from ..scenario.drawing import OPPOSITE, SAME_TURN_SPEED
from ..streams import UNIT, between
from .boats import currents
from .model import Array, Model, distance, parts

TOGETHER = 512  # episodes, which need some 100 MB


def first(m: Model, seed: int, index: Array, episode: Array) -> dict[str, Array]:
    """States [R, ...] of `step` of the given episodes of the environments `index`."""
    if len(index) > TOGETHER:
        drawn = [first(m, seed, index[k:][:TOGETHER], episode[k:][:TOGETHER]) for k in range(0, len(index), TOGETHER)]
        return {name: m.xp.concatenate([part[name] for part in drawn]) for name in drawn[0]}
    xp, p, draw = m.xp, m.params, Draws(m, seed, index, episode)
    robots, placed = place_robots(m, draw)
    cores, turning = place_cores(m, draw, robots, placed)
    rocks, standing = place_obstacles(m, draw, robots, placed, cores, turning)
    words = draw.words(xp.arange(p.robots), streams.ROBOTS)
    heading, speed = between(0.0, 2 * math.pi, unit(words[0])), between(0.0, p.top_speed, unit(words[1]))
    x, y, flag, edge = parts(cores)
    found = {
        "pose": xp.stack([*parts(robots)[:2], heading], axis=-1) * placed[..., None],
        "goal": robots[..., 2:] * placed[..., None],
        "core": xp.stack([x, y, xp.where(flag >= 0.5, 1, -1), p.core_radius * edge], axis=-1) * turning[..., None],
        "obstacle": rocks * standing[..., None],
        "counts": xp.stack([there.sum(axis=1) for there in (placed, turning, standing)], axis=1),
        "asked": xp.full(len(index), p.robots),
        "blind": xp.full(len(index), p.non_cooperative),
        "noise_id": ((words[2].astype(xp.uint64) >> xp.uint64(8)) * xp.uint64(5 * p.robots) >> xp.uint64(24)) * placed,
    }
    if p.version != "thruster":
        found["speed"] = speed * placed
    state = {"active": placed, "elapsed": xp.zeros(len(index), dtype=xp.int64), "episode": xp.asarray(episode)}
    for name, (shape, kind) in state_shapes(p, p.robots, p.cores, p.obstacles).items():
        kind = m.real if kind is np.float64 else kind
        state[name] = found[name].astype(kind) if name in found else xp.zeros((len(index), *shape), dtype=kind)
    state["ground_velocity"] = first_velocity(m, state)
    return state


def first_velocity(m: Model, state: dict[str, Array]) -> Array:
    """Reported velocities [R, A, 2] before the first step."""
    xp, p, (x, y, theta) = m.xp, m.params, parts(state["pose"])
    own = xp.zeros_like(state["goal"])
    if p.version != "thruster":
        own = state["speed"][..., None] * xp.stack([xp.cos(theta), xp.sin(theta)], axis=-1)
    if not p.start_without_current or p.version == "sonar":
        own = own + xp.stack(currents(m, state["core"])(x, y), axis=-1)
    return xp.where(state["active"][..., None], own, 0.0)


def unit(word: Array) -> Array:
    """U[0, 1) of words, float64."""
    return (word >> 8) * UNIT


class Draws:
    """Random numbers of R episodes."""

    def __init__(self, m: Model, seed: int, index: Array, episode: Array):
        self.m, self.seed, self.place = m, seed, (index[:, None], episode[:, None])

    def words(self, step: Array, stream: int) -> Array:
        """Words [4, R, n] of step fields [n]."""
        return philox((*self.place, step, stream), self.seed, self.m.xp)

    def proposals(self, stream: int, *bounds: tuple[float, float]) -> list[Array]:
        """Numbers of every proposal of a stage, [R, PROPOSALS] each, within their bounds."""
        words = self.words(self.m.xp.arange(PROPOSALS), stream)
        return [between(low, high, unit(word)) for (low, high), word in zip(bounds, words, strict=False)]


def accepted(m: Model, most: int, proposed: list[Array], passing: Array, beside: Callable) -> tuple[Array, Array]:
    """The first proposals that pass and may stand beside all that were accepted before them.

    Args:
        most: that a stage asks for.
        proposed: numbers [R, PROPOSALS].
        passing: [R, PROPOSALS] bool, by all other rules.
        beside: given the numbers [R, 1] of an accepted one, which proposals may stand beside it.

    Returns:
        Rows [R, most, numbers] and which of them there are [R, most].
    """
    xp, R = m.xp, len(passing)
    rows, there = xp.zeros((R, most, len(proposed))), xp.zeros((R, most), dtype=bool)
    for k in range(most):
        n = passing.argmax(axis=1)[:, None]
        chosen = [xp.take_along_axis(number, n, axis=1) for number in proposed]
        rows[:, k], there[:, k] = xp.concatenate(chosen, axis=1), xp.take_along_axis(passing, n, axis=1)[:, 0]
        passing = passing & (xp.arange(PROPOSALS) > n) & beside(*chosen)
    return rows, there


def place_robots(m: Model, draw: Draws) -> tuple[Array, Array]:
    """Starts and goals [R, A, 4], far from one another; which there are [R, A]."""
    xp, p = m.xp, m.params
    low, high = START_MARGIN, p.width - START_MARGIN
    proposed = sx, sy, gx, gy = draw.proposals(streams.ROBOT_PROPOSALS, *[(low, high)] * 4)
    apart = distance(xp, gx, gy, sx, sy)
    if p.version == "sonar":  # the pair farthest apart so far, as soon as that is over D_min
        n = xp.where((apart > p.min_goal_distance).any(axis=1), (apart > p.min_goal_distance).argmax(axis=1),
                     apart.argmax(axis=1))[:, None]  # fmt: skip
        rows = xp.stack([xp.take_along_axis(number, n, axis=1) for number in proposed], axis=-1)
        return rows, xp.ones(n.shape, dtype=bool)

    def beside(x: Array, y: Array, u: Array, v: Array) -> Array:
        return (distance(xp, x, y, sx, sy) > p.clear) & (distance(xp, u, v, gx, gy) > p.clear)

    return accepted(m, p.robots, proposed, ~(apart < p.min_goal_distance), beside)


def place_cores(m: Model, draw: Draws, robots: Array, placed: Array) -> tuple[Array, Array]:
    """Centres, flags and edge speeds [R, C, 4] of cores; which there are [R, C]."""
    xp, p, r = m.xp, m.params, m.params.core_radius
    if not p.cores:
        return xp.zeros((len(placed), 0, 4)), xp.zeros((len(placed), 0), dtype=bool)
    bounds = (0.0, p.width), (0.0, p.width), (0.0, 1.0), (p.edge_speed_low, p.edge_speed_high)
    proposed = x, y, flag, speed = draw.proposals(streams.CORE_PROPOSALS, *bounds)

    def beside(ox: Array, oy: Array, other: Array, edge: Array) -> Array:
        strength, theirs, d = r * speed, r * edge, distance(xp, x, y, ox, oy)
        least, most = xp.minimum(strength, theirs), xp.maximum(strength, theirs)
        opposite = (d > 2 * r) & (most <= (OPPOSITE * least / r) * (d - 2 * r))
        opposite = opposite | (p.opposite_cores_overlap & (d < 2 * r))
        alike = d >= (strength + theirs) / SAME_TURN_SPEED
        return xp.where((flag >= 0.5) == (other >= 0.5), alike, opposite)

    passing = inside(m, x, y, r) & clear_of_robots(m, x, y, r + p.clear, robots, placed)
    return accepted(m, p.cores, proposed, passing, beside)


def place_obstacles(
    m: Model, draw: Draws, robots: Array, placed: Array, cores: Array, turning: Array
) -> tuple[Array, Array]:
    """Centres and radii [R, O, 3] of obstacles; which there are [R, O]."""
    xp, p = m.xp, m.params
    if not p.obstacles:
        return xp.zeros((len(placed), 0, 3)), xp.zeros((len(placed), 0), dtype=bool)
    place = OBSTACLE_MARGIN, p.width - OBSTACLE_MARGIN
    proposed = x, y, r = draw.proposals(streams.OBSTACLE_PROPOSALS, place, place, (p.obstacle_low, p.obstacle_high))

    def beside(ox: Array, oy: Array, radius: Array) -> Array:
        return distance(xp, x, y, ox, oy) > radius + r

    passing = inside(m, x, y, r) & clear_of_robots(m, x, y, r + p.clear, robots, placed)
    for k in range(cores.shape[1]):
        cx, cy = cores[:, k, 0, None], cores[:, k, 1, None]
        passing &= (distance(xp, x, y, cx, cy) > p.core_radius + r) | ~turning[:, k, None]
    return accepted(m, p.obstacles, proposed, passing, beside)


def inside(m: Model, x: Array, y: Array, r: "Array | float") -> Array:
    """True of discs in the map."""
    W = m.params.width
    return (x - r >= 0.0) & (x + r <= W) & (y - r >= 0.0) & (y + r <= W)


def clear_of_robots(m: Model, x: Array, y: Array, least: "Array | float", robots: Array, placed: Array) -> Array:
    """True where every start and goal is at least so far away."""
    passing = m.xp.ones(x.shape, dtype=bool)
    for k in range(placed.shape[1]):
        sx, sy, gx, gy = (robots[:, k, part, None] for part in range(4))
        far = (distance(m.xp, x, y, sx, sy) >= least) & (distance(m.xp, x, y, gx, gy) >= least)
        passing &= far | ~placed[:, k, None]
    return passing
