"""MountainCarContinuous-v0 as a port. Parameters carry Gymnasium's names."""

from dataclasses import dataclass, field

import numpy as np
from gymnasium.spaces import Box

from ...batch.port import Field, Port
from ..bounds import interval
from ..mountain_car.port import POSITION_LIMIT, check_positions, observation
from ..render import frames


@dataclass(frozen=True)
class Params:
    min_position: float = -1.2  # m
    max_position: float = 0.6  # m
    max_speed: float = field(default=0.07, metadata={"positive": True})  # m per step
    goal_position: float = 0.45  # m
    goal_velocity: float = 0.0  # m per step
    power: float = 0.0015  # m per step^2, at action 1

    def __post_init__(self):
        check_positions(self.min_position, self.max_position)


PORT = Port(
    title="MountainCarContinuous-v0",
    gymnasium_id="MountainCarContinuous-v0",
    params=Params,
    state=(Field("position", low=-POSITION_LIMIT, high=POSITION_LIMIT), Field("velocity")),
    observation=observation,
    action=Box(np.array([-1.0], dtype=np.float32), np.array([1.0], dtype=np.float32), dtype=np.float32),
    horizon=999,
    reward_threshold=90.0,
    render=frames,
    # From -0.4 m the goal is 0.85 m away; the velocity grows by at most power + 0.0025 a step and stays below
    # max_speed, which makes 0.822 m in 20 steps.
    shortest_episode=21,
    observes_state=True,
    reset_options=("low", "high"),
    reset_bounds=lambda options: interval(options, -0.6, -0.4, POSITION_LIMIT),
)
