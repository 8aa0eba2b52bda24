"""Acrobot-v1 as a port. Parameters carry Gymnasium's names."""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from gymnasium.spaces import Box, Discrete

from ...batch.port import Field, Port
from ..bounds import interval
from ..render import frames

# Largest angle of the kernel: its sine holds up to 100 rad; within a Runge-Kutta step angles grow to half of that.
ANGLE_LIMIT = 4 * math.pi  # rad
SPEED_LIMITS = (4 * math.pi, 9 * math.pi)  # rad/s
TIME_STEP_LIMIT = 0.2  # s


@dataclass(frozen=True)
class Params:
    dt: float = field(default=0.2, metadata={"positive": True})  # s
    LINK_LENGTH_1: float = field(default=1.0, metadata={"positive": True})  # m
    LINK_LENGTH_2: float = field(default=1.0, metadata={"positive": True})  # m, drawn only: no equation has it
    LINK_MASS_1: float = field(default=1.0, metadata={"positive": True})  # kg
    LINK_MASS_2: float = field(default=1.0, metadata={"positive": True})  # kg
    LINK_COM_POS_1: float = 0.5  # m, from the joint to the centre of mass
    LINK_COM_POS_2: float = 0.5  # m
    LINK_MOI: float = field(default=1.0, metadata={"positive": True})  # kg m^2, of each link
    MAX_VEL_1: float = field(default=4 * math.pi, metadata={"positive": True})  # rad/s
    MAX_VEL_2: float = field(default=9 * math.pi, metadata={"positive": True})  # rad/s
    book_or_nips: Literal["book", "nips"] = "book"

    def __post_init__(self):
        limits = {"dt": TIME_STEP_LIMIT, "MAX_VEL_1": SPEED_LIMITS[0], "MAX_VEL_2": SPEED_LIMITS[1]}
        for name, limit in limits.items():
            if getattr(self, name) > limit:
                raise ValueError(f"{name}={getattr(self, name)} must be at most {limit}")


def observation(params: Params) -> Box:
    high = np.array([1.0, 1.0, 1.0, 1.0, params.MAX_VEL_1, params.MAX_VEL_2], dtype=np.float32)
    return Box(-high, high, dtype=np.float32)


PORT = Port(
    title="Acrobot-v1",
    gymnasium_id="Acrobot-v1",
    params=Params,
    state=(
        *(Field(name, (), "real", -ANGLE_LIMIT, ANGLE_LIMIT, angle=True) for name in ("theta1", "theta2")),
        *(Field(f"theta{k}_dot", (), "real", -limit, limit) for k, limit in enumerate(SPEED_LIMITS, 1)),
    ),
    observation=observation,
    action=Discrete(3),
    horizon=500,
    reward_threshold=-100.0,
    render=frames,
    # From the reset box the square root of the energy above rest (J) must grow by 4.48, and a step adds less than 0.23.
    shortest_episode=20,
    reset_options=("low", "high"),
    reset_bounds=lambda options: interval(options, -0.1, 0.1, ANGLE_LIMIT),
    running_return=False,
)
