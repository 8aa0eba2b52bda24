"""Policies without learning: functions of observations, for the original and the port alike (README.md, 6).

A policy is `policy(observation, params, noise) -> action`: of observations [..., n] an action each, [...] int32 or,
where actions are continuous, [..., 2] float32 in -1..1. All are PyTorch on the device of the observations, compute in
float64 and never wait for the device; NumPy arrays are taken too.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete

from lockstep.reading import nearest

from ..checks import integer
from ..noise import random_numbers
from .params import RATES, SLOTS, Params, given_params

EMPTY = 1e-3  # m: a slot whose |x| and |y| are smaller holds nothing
STILL = 1e-3  # m/s, below which a boat's course is its heading
SLOW = 1.0  # m/s, below which the baselines speed up
ATTRACTION, REPULSION = 50.0, 500.0  # of potential fields
CONTACT = 0.2  # weight of 1/time to contact, of velocity obstacles
MARGIN = 1e-3  # m, m/s or s, that keeps their divisions finite
TINY = 1e-12  # m/s, below which a velocity has no direction
SPEEDS = (0.02, 0.4002, 5)  # m/s, of candidates: the first, from one to the next, and how many
ANGLES = (0.1, 63)  # rad, from one to the next from 0 on
IN_CACHE = 64  # robots whose velocities times neighbours fit into a core's cache


@dataclass(frozen=True)
class Noise:
    """Key of the random policy's numbers, which are those of the port's own: A rows of each environment, in order.

    Raises:
        ValueError: a number out of range, or environments that are no integers [B]; names field, value and what is
            allowed.
    """

    seed: int  # 0 .. 2^64-1
    environment: np.ndarray  # [B] 0 .. 2^32-1
    clock: int  # steps since the environments were seeded, 0 .. 2^32-1

    def __post_init__(self):
        integer("noise: seed", self.seed, 0, 2**64 - 1)
        integer("noise: clock", self.clock, 0, 2**32 - 1)
        given = np.asarray(self.environment)
        if (
            given.ndim != 1
            or not given.size
            or given.dtype.kind not in "iu"
            or not 0 <= given.min() <= given.max() < 2**32
        ):
            raise ValueError(f"noise: environment={self.environment!r:.60} must be integers [B] from 0 to {2**32 - 1}")
        object.__setattr__(self, "environment", given)


@dataclass(frozen=True)
class View:
    """Observations of the kinematic version, in body axes."""

    goal: torch.Tensor  # [..., 2] m
    velocity: torch.Tensor  # [..., 2] m/s, over ground
    place: torch.Tensor  # [..., 10, 2] m, of obstacles, then of robots
    radius: torch.Tensor  # [..., 10] m
    moving: torch.Tensor  # [..., 10, 2] m/s
    robot: torch.Tensor  # [10] bool
    seen: torch.Tensor  # [..., 10] bool


def tensor(observation) -> torch.Tensor:
    """Observations where they are: of an array on the host; ValueError where they are no numbers."""
    try:
        return observation if isinstance(observation, torch.Tensor) else torch.from_numpy(np.asarray(observation))
    except (TypeError, ValueError):
        raise ValueError(f"observation={observation!r:.60} must be an array of numbers") from None


def rows_of(observation, params: Params) -> torch.Tensor:
    """Observations as a tensor; ValueError where they are of another shape than the version's [..., n]."""
    rows = tensor(observation)
    if not rows.ndim or rows.shape[-1] != given_params(params).observed:
        raise ValueError(f"observation has shape {tuple(rows.shape)}, must have (..., {params.observed})")
    return rows


def kinematic(observation, params: Params) -> torch.Tensor:
    """Observations [..., 39] in float64; ValueError where they are of another version or shape."""
    if given_params(params).version != "kinematic":
        raise ValueError(f"version={params.version!r} must be 'kinematic', whose observations this policy reads")
    return rows_of(observation, params).double()


def view(rows: torch.Tensor, params: Params) -> View:
    """The fields of observations [..., 39]."""
    rocks = rows[..., 4 : 4 + 3 * SLOTS].unflatten(-1, (SLOTS, 3))
    boats = rows[..., 4 + 3 * SLOTS :].unflatten(-1, (SLOTS, 4))
    place = torch.cat([rocks[..., :2], boats[..., :2]], dim=-2)
    radius = torch.cat([rocks[..., 2], torch.full_like(boats[..., 0], params.collision_radius)], dim=-1)
    moving = torch.cat([torch.zeros_like(rocks[..., :2]), boats[..., 2:]], dim=-2)
    robot = torch.arange(2 * SLOTS, device=rows.device) >= SLOTS
    return View(rows[..., :2], rows[..., 2:4], place, radius, moving, robot, (place.abs() >= EMPTY).any(dim=-1))


# ---- Policies ------------------------------------------------------------------------------------------------------


def apf(observation, params: Params, noise: Noise | None = None) -> torch.Tensor:
    """Artificial potential field: the force 50 g to the goal g, less a repulsion of all that is near and not receding.

    With p a neighbour, G = |p| - r - R and q = 1/G - 1/range: -500 q |g|²/G² p/|p| - 500 q² g, and of a robot that
    comes nearer at v_a also -(v_a/G) p/|p|.
    """
    found = view(kinematic(observation, params), params)
    goal = found.goal[..., None, :]
    far = length(found.place).clamp(min=EMPTY)
    toward = found.place / far[..., None]
    gap = far - found.radius - params.collision_radius
    gap = torch.where(gap.abs() < MARGIN, MARGIN, gap)
    closing = ((found.velocity[..., None, :] - found.moving) * toward).sum(dim=-1)
    counts = found.seen & (~found.robot | (closing >= 0))
    q = 1 / gap - 1 / params.perception_range
    along = -REPULSION * q * (goal**2).sum(dim=-1) / gap**2 - torch.where(found.robot, closing / gap, 0.0)
    repulsion = along[..., None] * toward - REPULSION * (q**2)[..., None] * goal
    force = ATTRACTION * found.goal + (repulsion * counts[..., None]).sum(dim=-2)
    wanted = (force * direction(found.velocity)).sum(dim=-1) / REPULSION
    return steer(found.velocity, angle_of(force), wanted, params)


def rvo(observation, params: Params, noise: Noise | None = None) -> torch.Tensor:
    """Reciprocal velocity obstacles: of 316 velocities the one nearest to straight ahead outside every cone.

    Where all lie in a cone, the one that minimises 0.2/time to contact plus that distance.
    """
    rows = kinematic(observation, params)
    parts = rows.reshape(-1, rows.shape[-1]).split(IN_CACHE if rows.is_cpu else max(rows[..., 0].numel(), 1))
    actions = torch.cat([outside_cones(view(part, params), params) for part in parts])
    return actions.reshape((*rows.shape[:-1], *actions.shape[1:]))


def outside_cones(found: View, params: Params) -> torch.Tensor:
    """The actions of `rvo`, [E] int32 or [E, 2] float32, of E robots."""
    R = params.collision_radius
    straight = params.top_speed * found.goal / length(found.goal).clamp(min=MARGIN)[..., None]
    fixed = candidates(straight).expand(*straight.shape[:-1], -1, -1)
    choices = torch.cat([fixed, straight[..., None, :]], dim=-2)  # [..., 316, 2]
    halfway = (found.velocity[..., None, :] + found.moving) / 2
    apex = torch.where(found.robot[:, None], halfway, 0.0)
    wide = torch.where(found.robot, 4 * R, 3 * found.radius + 2 * R)[..., None, :]  # of a cone's disc, m
    apart = length(found.place)[..., None]
    far = torch.maximum(apart[..., None, :, 0] + MARGIN, wide)
    across, up = (choices[..., None, k] - apex[..., None, :, k] for k in (0, 1))  # relative, [..., 316, 10]
    speed = (across.square() + up.square()).sqrt()
    toward = found.place / apart.clamp(min=EMPTY)
    along = across * toward[..., None, :, 0] + up * toward[..., None, :, 1]
    cosine = along / speed.clamp(min=TINY)  # of the angle between a velocity and a cone's axis
    inside = found.seen[..., None, :] & (cosine >= (1 - (wide / far).square()).sqrt())
    chord = (wide.square() - far.square() * (1 - cosine.square())).clamp(min=0.0).sqrt()
    contact = MARGIN + (far * cosine - chord) / (speed + MARGIN)
    soonest = torch.where(inside, contact, math.inf).amin(dim=-1)
    away = length(choices - straight[..., None, :])
    free = ~inside.any(dim=-1)
    cost = torch.where(free, away, math.inf)
    cost = torch.where(free.any(dim=-1, keepdim=True), cost, CONTACT / soonest + away)
    best = cost.argmin(dim=-1)[..., None, None].expand(*cost.shape[:-1], 1, 2)
    chosen = choices.gather(-2, best)[..., 0, :]
    wanted = ((chosen * direction(found.velocity)).sum(dim=-1) - length(found.velocity)) / params.period
    return steer(found.velocity, angle_of(chosen), wanted, params)


def candidates(like: torch.Tensor) -> torch.Tensor:
    """The 315 velocities [315, 2] of all speeds at every angle, by angle."""
    (first, apart, speeds), (turn, angles) = SPEEDS, ANGLES
    angle = turn * torch.arange(angles, device=like.device, dtype=like.dtype)[:, None]
    speed = first + apart * torch.arange(speeds, device=like.device, dtype=like.dtype)
    return torch.stack([speed * angle.cos(), speed * angle.sin()], dim=-1).flatten(0, 1)


def straight(observation, params: Params, noise: Noise | None = None) -> torch.Tensor:
    """Straight to the goal, whatever lies between; ValueError where the observation is of another version or shape."""
    rows = rows_of(observation, params).double()
    if params.version != "thruster":
        first, second = rows[..., :2], rows[..., 2:4]
        goal, velocity = (second, first) if params.version == "sonar" else (first, second)
        return steer(velocity, angle_of(goal), torch.full_like(goal[..., 0], params.acceleration), params)
    bearing, turning, thrust = angle_of(rows[..., :2]), rows[..., 4], rows[..., 5:7]
    ahead = params.thrust_high / 2 * bearing.cos().clamp(0.0, 1.0) ** 2  # slow in a bend, lest it circle the goal
    aside = params.thrust_high / 2 * (bearing - turning).clamp(-1.0, 1.0)
    wanted = torch.stack([ahead + aside, ahead - aside], dim=-1)
    rate = ((wanted - thrust) / (params.period * params.thrust_rate)).clamp(-1.0, 1.0).nan_to_num(0.0)
    if params.action_kind == "continuous":
        return rate.float()
    digits = closest(rate, RATES)
    return (len(RATES) * digits[..., 0] + digits[..., 1]).int()


def random(observation, params: Params, noise: Noise | None = None) -> torch.Tensor:
    """Uniform actions, of the numbers that the port's own random policy draws (`random_actions` of a batch).

    Raises:
        ValueError: no `Noise`, which it needs, or observations that are not as many rows of each of its environments.
    """
    if not isinstance(noise, Noise):
        raise ValueError(f"noise={noise!r:.60} must be Noise(seed, environment, clock) for the random policy")
    rows, environments = rows_of(observation, params), noise.environment
    (*lead, _), B = rows.shape, len(environments)
    agents, left = divmod(math.prod(lead), B)
    if not agents or left or (len(lead) > 1 and lead[0] != B):
        raise ValueError(f"noise: environment has {B} numbers, which observations {tuple(rows.shape)} are no rows of")
    continuous = params.action_kind == "continuous"
    space = Box(-1.0, 1.0, (2,), np.float32) if continuous else Discrete(params.choices)
    drawn = torch.from_numpy(random_numbers(space, agents, noise.seed, environments, noise.clock))
    drawn = drawn.to(rows.device, non_blocking=True)
    return drawn.reshape(*rows.shape[:-1], 2) if continuous else drawn.reshape(rows.shape[:-1])


POLICIES: dict[str, Callable[..., torch.Tensor]] = {policy.__name__: policy for policy in (apf, rvo, straight, random)}


def names(params: Params) -> list[str]:
    """Policies that read the observations of a version."""
    return [name for name in POLICIES if params.version == "kinematic" or name not in ("apf", "rvo")]


def acting(name: str, params: Params, noise: Noise | None = None) -> Callable[..., torch.Tensor]:
    """A policy by name, as a function of observations alone; ValueError where there is none of that name, or no
    `Params`."""
    given_params(params)
    if name not in POLICIES:
        raise ValueError(f"policy={name!r} is unknown{nearest(name, POLICIES)}")
    return functools.partial(POLICIES[name], params=params, noise=noise)


# ---- Steering ------------------------------------------------------------------------------------------------------


def steer(velocity: torch.Tensor, course: torch.Tensor, acceleration: torch.Tensor, params: Params) -> torch.Tensor:
    """Actions [...] of a kinematic boat nearest to a wanted course and acceleration.

    Args:
        velocity: [..., 2] m/s over ground; below 1 m/s a boat speeds up, whatever is wanted.
        course: [...] rad, as the velocity's angle.
        acceleration: [...] m/s².
    """
    turn = wrapped(course - angle_of(direction(velocity)))
    which = closest(acceleration, [params.acceleration * sign for sign in (-1, 0, 1)])
    which = torch.where(length(velocity) < SLOW, 2, which)
    return (3 * which + closest(turn, [params.turn_rate * sign for sign in (-1, 0, 1)])).int()


def closest(value: torch.Tensor, choices) -> torch.Tensor:
    """Number of the nearest of a few choices, the lowest of several."""
    return torch.stack([(value - choice).abs() for choice in choices], dim=-1).argmin(dim=-1)


def direction(velocity: torch.Tensor) -> torch.Tensor:
    """Unit vectors [..., 2] along velocities; straight ahead where there is next to none."""
    speed = length(velocity)[..., None]
    ahead = torch.eye(2, device=velocity.device, dtype=velocity.dtype)[0]
    return torch.where(speed < STILL, ahead, velocity / speed.clamp(min=STILL))


def length(vector: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(vector, dim=-1)


def angle_of(vector: torch.Tensor) -> torch.Tensor:
    return torch.atan2(vector[..., 1], vector[..., 0])


def wrapped(angle: torch.Tensor) -> torch.Tensor:
    """Angles in [-π, π)."""
    return torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
