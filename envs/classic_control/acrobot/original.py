"""The original: Gymnasium's own Acrobot, with its state made accessible."""

import numpy as np

from .. import gymnasium_original
from ..gymnasium_original import get_state, set_state
from .port import PORT

__all__ = ["get_state", "make", "margin", "set_state"]


def make(render_mode: str | None = None, **params):
    """Gymnasium's Acrobot-v1 with its time limit; `params` as in `port.Params`."""
    return gymnasium_original.make(PORT, render_mode, params)


def margin(env, states):
    """Height (m) of the tip above the goal in states [n, k]; below zero the episode goes on."""
    theta1, theta2 = np.transpose(states)[:2]
    return -np.cos(theta1) - np.cos(theta1 + theta2) - 1.0
