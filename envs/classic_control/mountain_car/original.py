"""The original: Gymnasium's own MountainCar, with its state made accessible."""

import numpy as np

from .. import gymnasium_original
from ..gymnasium_original import get_state, set_state
from .port import PORT

__all__ = ["get_state", "make", "margin", "set_state"]


def make(render_mode: str | None = None, **params):
    """Gymnasium's MountainCar-v0 with its time limit; `params` as in `port.Params`."""
    env = gymnasium_original.make(PORT, render_mode, params)
    car = env.unwrapped
    car.low, car.high = car.observation_space.low, car.observation_space.high
    return env


def margin(env, states):
    """Distance of states [n, k] beyond the goal, in position (m) or velocity (m per step); below zero it goes on."""
    position, velocity = np.transpose(states)
    return np.minimum(position - env.unwrapped.goal_position, velocity - env.unwrapped.goal_velocity)
