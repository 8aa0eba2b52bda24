"""The original: Gymnasium's own CartPole, with its state made accessible."""

from .. import gymnasium_original
from ..gymnasium_original import get_state
from .port import PORT

__all__ = ["get_state", "make", "set_state"]


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
