"""The original: Gymnasium's own MountainCarContinuous, with its state made accessible.

Its state is float32 from the first step on, and so is part of the arithmetic of the next. From a state put in by
`set_state` one step is computed in float64, given a float64 action, and its result rounded to float32.
"""

from .. import gymnasium_original
from ..gymnasium_original import get_state, set_state
from ..mountain_car.original import margin
from .port import PORT

__all__ = ["get_state", "make", "margin", "set_state"]


def make(render_mode: str | None = None, **params):
    """Gymnasium's MountainCarContinuous-v0 with its time limit; `params` as in `port.Params`."""
    env = gymnasium_original.make(PORT, render_mode, params)
    car = env.unwrapped
    car.low_state, car.high_state = car.observation_space.low, car.observation_space.high
    return env
