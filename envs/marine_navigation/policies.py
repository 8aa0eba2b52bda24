"""Policies without learning: functions of rows of observations, for the original and the port alike (README.md, 6).

A policy is `policy(observation, params, noise) -> action`: of rows [N, observation] an action each, [N] int64 or, where
actions are continuous, [N, 2] float32 in -1..1. All are NumPy.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from gymnasium.spaces import Box, Discrete

from ..noise import random_numbers
from .params import SLOTS, Params

EMPTY = 1e-3  # m: a slot whose |x| and |y| are smaller holds nothing
STILL = 1e-3  # m/s, below which a boat's course is its heading
SLOW = 1.0  # m/s, below which the baselines speed up
ATTRACTION, REPULSION = 50.0, 500.0  # of potential fields
CONTACT = 0.2  # weight of 1/time to contact, of velocity obstacles
MARGIN = 1e-3  # m, m/s or s, that keeps their divisions finite
SPEEDS = 0.02 + 0.4002 * np.arange(5)  # m/s, of candidates
ANGLES = 0.1 * np.arange(63)  # rad


@dataclass(frozen=True)
class Noise:
    """Key of the random policy's numbers, which are those of the port's own: A rows of each environment, in order."""

    seed: int
    environment: np.ndarray  # [B]
    clock: int  # steps since the environments were seeded


@dataclass(frozen=True)
class View:
    """Rows of the kinematic version, in body axes."""

    goal: np.ndarray  # [N, 2] m
    velocity: np.ndarray  # [N, 2] m/s, over ground
    place: np.ndarray  # [N, 10, 2] m, of obstacles, then of robots
    radius: np.ndarray  # [N, 10] m
    moving: np.ndarray  # [N, 10, 2] m/s
    robot: np.ndarray  # [10] bool
    seen: np.ndarray  # [N, 10] bool


def view(observation, params: Params) -> View:
    """The fields of rows [N, 39]; ValueError where they are of another version or shape."""
    rows = np.asarray(observation, dtype=np.float64)
    if params.version != "kinematic":
        raise ValueError(f"version={params.version!r} must be 'kinematic', whose observations this policy reads")
    if rows.ndim != 2 or rows.shape[1] != params.observed:
        raise ValueError(f"observation has shape {rows.shape}, must have (N, {params.observed})")
    rocks = rows[:, 4 : 4 + 3 * SLOTS].reshape(-1, SLOTS, 3)
    boats = rows[:, 4 + 3 * SLOTS :].reshape(-1, SLOTS, 4)
    place = np.concatenate([rocks[..., :2], boats[..., :2]], axis=1)
    radius = np.concatenate([rocks[..., 2], np.full(boats.shape[:2], params.collision_radius)], axis=1)
    moving = np.concatenate([np.zeros_like(rocks[..., :2]), boats[..., 2:]], axis=1)
    robot = np.arange(2 * SLOTS) >= SLOTS
    return View(rows[:, :2], rows[:, 2:4], place, radius, moving, robot, (np.abs(place) >= EMPTY).any(axis=-1))


# ---- Policies ------------------------------------------------------------------------------------------------------


def apf(observation, params: Params, noise: Noise | None = None) -> np.ndarray:
    """Artificial potential field: the force 50 g to the goal g, less a repulsion of all that is near and not receding.

    With p a neighbour, G = |p| - r - R and q = 1/G - 1/range: -500 q |g|²/G² p/|p| - 500 q² g, and of a robot that
    comes nearer at v_a also -(v_a/G) p/|p|.
    """
    found = view(observation, params)
    goal = found.goal[:, None]
    far = np.maximum(np.linalg.norm(found.place, axis=-1), EMPTY)
    toward = found.place / far[..., None]
    gap = far - found.radius - params.collision_radius
    gap = np.where(np.abs(gap) < MARGIN, MARGIN, gap)
    closing = ((found.velocity[:, None] - found.moving) * toward).sum(axis=-1)
    counts = found.seen & (~found.robot | (closing >= 0))
    q = 1 / gap - 1 / params.perception_range
    along = -REPULSION * q * (goal**2).sum(axis=-1) / gap**2 - np.where(found.robot, closing / gap, 0.0)
    repulsion = along[..., None] * toward - REPULSION * (q**2)[..., None] * goal
    force = ATTRACTION * found.goal + (repulsion * counts[..., None]).sum(axis=1)
    wanted = (force * direction(found.velocity)).sum(axis=-1) / REPULSION
    return steer(found.velocity, angle_of(force), wanted, params)


def rvo(observation, params: Params, noise: Noise | None = None) -> np.ndarray:
    """Reciprocal velocity obstacles: of 316 velocities the one nearest to straight ahead outside every cone.

    Where all lie in a cone, the one that minimises 0.2/time to contact plus that distance.
    """
    found, R = view(observation, params), params.collision_radius
    straight = params.top_speed * found.goal / np.maximum(np.linalg.norm(found.goal, axis=-1, keepdims=True), MARGIN)
    fixed = (SPEEDS * np.stack([np.cos(ANGLES), np.sin(ANGLES)])[..., None]).reshape(2, -1).T  # [315, 2]
    fixed = np.broadcast_to(fixed, (len(straight), *fixed.shape))
    candidates = np.concatenate([fixed, straight[:, None]], axis=1)  # [N, 316, 2]
    apex = np.where(found.robot[:, None], (found.velocity[:, None] + found.moving) / 2, 0.0)
    wide = np.where(found.robot, 4 * R, 3 * found.radius + 2 * R)  # of a cone's disc, m
    far = np.maximum(np.linalg.norm(found.place, axis=-1) + MARGIN, wide)
    relative = candidates[:, :, None] - apex[:, None]  # [N, 316, 10, 2]
    off = wrapped(angle_of(relative) - angle_of(found.place)[:, None])
    inside = found.seen[:, None] & (np.abs(off) <= np.arcsin(wide / far)[:, None])
    chord = np.sqrt(np.maximum(wide[:, None] ** 2 - (far[:, None] * np.sin(off)) ** 2, 0.0))
    contact = MARGIN + (far[:, None] * np.cos(off) - chord) / (np.linalg.norm(relative, axis=-1) + MARGIN)
    soonest = np.where(inside, contact, np.inf).min(axis=-1)
    away = np.linalg.norm(candidates - straight[:, None], axis=-1)
    free = ~inside.any(axis=-1)
    cost = np.where(free.any(axis=-1)[:, None], np.where(free, away, np.inf), CONTACT / soonest + away)
    chosen = candidates[np.arange(len(cost)), cost.argmin(axis=-1)]
    speed = np.linalg.norm(found.velocity, axis=-1)
    wanted = ((chosen * direction(found.velocity)).sum(axis=-1) - speed) / params.period
    return steer(found.velocity, angle_of(chosen), wanted, params)


def straight(observation, params: Params, noise: Noise | None = None) -> np.ndarray:
    """Straight to the goal, whatever lies between."""
    rows = np.asarray(observation, dtype=np.float64)
    if params.version != "thruster":
        goal, velocity = (rows[:, 2:4], rows[:, :2]) if params.version == "sonar" else (rows[:, :2], rows[:, 2:4])
        return steer(velocity, angle_of(goal), np.full(len(rows), params.acceleration), params)
    bearing, turning, thrust = angle_of(rows[:, :2]), rows[:, 4], rows[:, 5:7]
    ahead = params.thrust_high / 2 * np.clip(np.cos(bearing), 0.0, 1.0) ** 2  # slow in a bend, lest it circle the goal
    aside = params.thrust_high / 2 * np.clip(bearing - turning, -1.0, 1.0)
    wanted = np.stack([ahead + aside, ahead - aside], axis=-1)
    rate = np.clip((wanted - thrust) / (params.period * params.thrust_rate), -1.0, 1.0)
    if params.action_kind == "continuous":
        return rate.astype(np.float32)
    digits = np.abs(rate[..., None] - np.array([0.0, -0.5, -1.0, 0.5, 1.0])).argmin(axis=-1)
    return 5 * digits[:, 0] + digits[:, 1]


def random(observation, params: Params, noise: Noise) -> np.ndarray:
    """Uniform actions, of the numbers that the port's own random policy draws."""
    rows, environments = len(observation), np.asarray(noise.environment)
    continuous = params.action_kind == "continuous"
    space = Box(-1.0, 1.0, (2,), np.float32) if continuous else Discrete(params.choices)
    drawn = random_numbers(space, rows // len(environments), noise.seed, environments, noise.clock)
    return drawn.reshape(rows, 2) if continuous else drawn.reshape(rows).astype(np.int64)


POLICIES: dict[str, Callable[..., np.ndarray]] = {policy.__name__: policy for policy in (apf, rvo, straight, random)}


def names(params: Params) -> list[str]:
    """Policies that read the observations of a version."""
    return [name for name in POLICIES if params.version == "kinematic" or name not in ("apf", "rvo")]


def acting(name: str, params: Params, noise: Noise | None = None) -> Callable[[np.ndarray], np.ndarray]:
    """A policy by name, as a function of rows alone."""
    return functools.partial(POLICIES[name], params=params, noise=noise)


# ---- Steering ------------------------------------------------------------------------------------------------------


def steer(velocity: np.ndarray, course: np.ndarray, acceleration: np.ndarray, params: Params) -> np.ndarray:
    """Actions [N] of a kinematic boat nearest to a wanted course and acceleration.

    Args:
        velocity: [N, 2] m/s over ground; below 1 m/s a boat speeds up, whatever is wanted.
        course: [N] rad, as the velocity's angle.
        acceleration: [N] m/s².
    """
    turn = wrapped(course - angle_of(direction(velocity)))
    rates = params.turn_rate * np.array([-1.0, 0.0, 1.0])
    accelerations = params.acceleration * np.array([-1.0, 0.0, 1.0])
    which = np.abs(acceleration[:, None] - accelerations).argmin(axis=-1)
    which = np.where(np.linalg.norm(velocity, axis=-1) < SLOW, 2, which)
    return 3 * which + np.abs(turn[:, None] - rates).argmin(axis=-1)


def direction(velocity: np.ndarray) -> np.ndarray:
    """Unit vectors [N, 2] along velocities; straight ahead where there is next to none."""
    speed = np.linalg.norm(velocity, axis=-1, keepdims=True)
    return np.where(speed < STILL, [1.0, 0.0], velocity / np.maximum(speed, STILL))


def angle_of(vector: np.ndarray) -> np.ndarray:
    return np.arctan2(vector[..., 1], vector[..., 0])


def wrapped(angle: np.ndarray) -> np.ndarray:
    """Angles in [-π, π)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi
