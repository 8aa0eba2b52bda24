"""MountainCar-v0 as a port. Parameters carry Gymnasium's names."""

from dataclasses import dataclass, field

import numpy as np
from gymnasium.spaces import Box, Discrete

from ...batch.port import Field, Port
from ..bounds import interval
from ..render import frames

POSITION_LIMIT = 33.0  # m; the kernel's cosine of three times the position holds up to 100 rad


@dataclass(frozen=True)
class Params:
    min_position: float = -1.2  # m
    max_position: float = 0.6  # m
    max_speed: float = field(default=0.07, metadata={"positive": True})  # m per step
    goal_position: float = 0.5  # m
    goal_velocity: float = 0.0  # m per step
    force: float = 0.001  # m per step^2
    gravity: float = 0.0025  # m per step^2

    def __post_init__(self):
        check_positions(self.min_position, self.max_position)


def check_positions(low: float, high: float):
    """Raises ValueError unless the ends of the track are in order and the kernel is written for them."""
    if not -POSITION_LIMIT <= low < high <= POSITION_LIMIT:
        limits = f"[-{POSITION_LIMIT}, {POSITION_LIMIT}]"
        raise ValueError(f"min_position={low}, max_position={high} must be in order and lie in {limits}")


def observation(params) -> Box:
    low = np.array([params.min_position, -params.max_speed], dtype=np.float32)
    high = np.array([params.max_position, params.max_speed], dtype=np.float32)
    return Box(low, high, dtype=np.float32)


PORT = Port(
    title="MountainCar-v0",
    gymnasium_id="MountainCar-v0",
    params=Params,
    state=(Field("position", low=-POSITION_LIMIT, high=POSITION_LIMIT), Field("velocity")),
    observation=observation,
    action=Discrete(3),
    horizon=200,
    reward_threshold=-110.0,
    render=frames,
    # From -0.4 m the goal is 0.9 m away; the velocity grows by at most force + gravity a step and stays below
    # max_speed, which makes 0.875 m in 22 steps.
    shortest_episode=23,
    observes_state=True,
    reset_options=("low", "high"),
    reset_bounds=lambda options: interval(options, -0.6, -0.4, POSITION_LIMIT),
    running_return=False,
)
