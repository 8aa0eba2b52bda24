"""The original: Gymnasium's own Pendulum, with its state made accessible. Its angle is not wrapped."""

import numpy as np

from .. import gymnasium_original
from ..gymnasium_original import get_state
from .port import PORT

__all__ = ["get_state", "make", "margin", "set_state"]


def make(render_mode: str | None = None, **params):
    """Gymnasium's Pendulum-v1 with its time limit; `params` as in `port.Params`."""
    return gymnasium_original.make(PORT, render_mode, params)


def set_state(env, state, elapsed: int = 0):
    """Puts a reset environment into a state (theta, theta_dot), `elapsed` steps into an episode."""
    gymnasium_original.set_state(env, state, elapsed)
    env.unwrapped.last_u = None  # drawn as an arrow; no torque led to this state


def margin(env, states):
    """Minus infinity for each of the states [n, k]: the episode goes on."""
    return np.full(len(states), -np.inf)
