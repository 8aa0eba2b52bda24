"""Pendulum-v1 as a port. Parameters carry Gymnasium's names."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from gymnasium.spaces import Box

from ...batch.port import Field, Port
from ..bounds import number
from ..render import frames

ANGLE_LIMIT = 100.0  # rad; the kernel's sine holds up to there
SPEED_LIMIT = 100.0  # rad/s, of a first state
TURN_LIMIT = 96.0  # rad in one step, from an angle of at most pi


@dataclass(frozen=True)
class Params:
    max_speed: float = field(default=8.0, metadata={"positive": True})  # rad/s
    dt: float = field(default=0.05, metadata={"positive": True})  # s
    g: float = 10.0  # m/s^2
    m: float = field(default=1.0, metadata={"positive": True})  # kg
    l: float = field(default=1.0, metadata={"positive": True})  # m  # noqa: E741

    def __post_init__(self):
        if self.max_speed * self.dt > TURN_LIMIT:
            raise ValueError(f"max_speed={self.max_speed} times dt={self.dt} must be at most {TURN_LIMIT} rad")


def observation(params: Params) -> Box:
    high = np.array([1.0, 1.0, params.max_speed], dtype=np.float32)
    return Box(-high, high, dtype=np.float32)


def reset_bounds(options: Mapping) -> tuple[float, float]:
    """Largest angle (rad) and speed (rad/s) of a first state, to both sides.

    Raises:
        ValueError: not a number, negative, or beyond what the kernel is written for.
    """
    bounds = []
    for name, default, limit in (("x_init", math.pi, ANGLE_LIMIT), ("y_init", 1.0, SPEED_LIMIT)):
        value = options.get(name, default)
        bounds.append(number(name, value))
        if not 0 <= bounds[-1] <= limit:
            raise ValueError(f"options[{name!r}]={value!r} must lie in [0, {limit}]")
    return bounds[0], bounds[1]


PORT = Port(
    title="Pendulum-v1",
    gymnasium_id="Pendulum-v1",
    params=Params,
    state=(Field("theta", low=-ANGLE_LIMIT, high=ANGLE_LIMIT, angle=True), Field("theta_dot")),
    observation=observation,
    action=Box(np.array([-2.0], dtype=np.float32), np.array([2.0], dtype=np.float32), dtype=np.float32),
    horizon=200,
    reward_threshold=None,
    render=frames,
    shortest_episode=200,  # it never terminates
    reset_bounds=reset_bounds,
    reset_options=("x_init", "y_init"),
)
