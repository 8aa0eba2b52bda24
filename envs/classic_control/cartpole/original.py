"""The original: Gymnasium's own CartPole, with its state made accessible."""

import numpy as np

from .. import gymnasium_original
from ..gymnasium_original import get_state
from .port import PORT

__all__ = ["get_state", "make", "margin", "set_state"]


def make(render_mode: str | None = None, **params):
    """Gymnasium's CartPole-v1 with its time limit; `params` as in `port.Params`."""
    env = gymnasium_original.make(PORT, render_mode, params, keywords=("sutton_barto_reward",))
    cartpole = env.unwrapped
    cartpole.total_mass = cartpole.masspole + cartpole.masscart
    cartpole.polemass_length = cartpole.masspole * cartpole.length
    return env


def set_state(env, state, elapsed: int = 0):
    """Puts a reset environment into a state (x, x_dot, theta, theta_dot), `elapsed` steps into an episode."""
    gymnasium_original.set_state(env, state, elapsed)
    env.unwrapped.steps_beyond_terminated = None


def margin(env, states):
    """Distance that states [n, k] lie beyond a threshold, in x (m) or theta (rad); below zero the episode goes on."""
    x, _, theta, _ = np.transpose(states)
    limits = env.unwrapped
    return np.maximum(np.abs(x) - limits.x_threshold, np.abs(theta) - limits.theta_threshold_radians)
