"""CartPole-v1 as a port. Parameters carry Gymnasium's names."""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from gymnasium.spaces import Box, Discrete

from ...batch.port import Field, Port
from ..bounds import interval
from ..render import frames

ANGLE_LIMIT = 0.4188790  # rad; the kernel's sine and cosine hold up to 24 degrees, twice the angle that ends an episode


@dataclass(frozen=True)
class Params:
    gravity: float = 9.8  # m/s^2
    masscart: float = field(default=1.0, metadata={"positive": True})  # kg
    masspole: float = field(default=0.1, metadata={"positive": True})  # kg
    length: float = field(default=0.5, metadata={"positive": True})  # m, half of the pole
    force_mag: float = 10.0  # N
    tau: float = field(default=0.02, metadata={"positive": True})  # s
    kinematics_integrator: Literal["euler", "semi_implicit_euler"] = "euler"
    theta_threshold_radians: float = field(default=12 * 2 * math.pi / 360, metadata={"positive": True})  # rad
    x_threshold: float = field(default=2.4, metadata={"positive": True})  # m
    sutton_barto_reward: bool = False

    def __post_init__(self):
        if self.theta_threshold_radians > ANGLE_LIMIT:
            raise ValueError(f"theta_threshold_radians={self.theta_threshold_radians} must be at most {ANGLE_LIMIT}")


def observation(params: Params) -> Box:
    high = np.array([2 * params.x_threshold, np.inf, 2 * params.theta_threshold_radians, np.inf], dtype=np.float32)
    return Box(-high, high, dtype=np.float32)


PORT = Port(
    title="CartPole-v1",
    gymnasium_id="CartPole-v1",
    params=Params,
    state=(
        Field("x"),
        Field("x_dot"),
        Field("theta", low=-ANGLE_LIMIT, high=ANGLE_LIMIT),
        Field("theta_dot"),
    ),
    observation=observation,
    action=Discrete(2),
    horizon=500,
    reward_threshold=475.0,
    render=frames,
    shortest_episode=8,  # no action sequence from any corner of the default reset box ends sooner
    observes_state=True,
    reset_options=("low", "high"),
    reset_bounds=lambda options: interval(options, -0.05, 0.05, ANGLE_LIMIT),
    running_return=False,
)
