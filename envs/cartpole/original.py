"""The original: Gymnasium's own CartPole, with its state made accessible."""

import dataclasses

import gymnasium
import numpy as np

from .port import PORT


def make(render_mode: str | None = None, **params):
    """Gymnasium's CartPole-v1 with its time limit, without the passive checker, which would slow it down.

    `params` as in `port.Params`.
    """
    params = dataclasses.asdict(PORT.make_params(None, params))
    env = gymnasium.make(
        "CartPole-v1",
        disable_env_checker=True,
        render_mode=render_mode,
        sutton_barto_reward=params.pop("sutton_barto_reward"),
    )
    cartpole = env.unwrapped
    for name, value in params.items():
        setattr(cartpole, name, value)
    cartpole.total_mass = cartpole.masspole + cartpole.masscart
    cartpole.polemass_length = cartpole.masspole * cartpole.length
    return env


def _time_limit(env):
    while not isinstance(env, gymnasium.wrappers.TimeLimit):
        env = env.env
    return env


def get_state(env) -> tuple[np.ndarray, int]:
    """State (x, x_dot, theta, theta_dot) as float64 [4], and the steps of the running episode."""
    return np.array(env.unwrapped.state, dtype=np.float64), _time_limit(env)._elapsed_steps


def set_state(env, state, elapsed: int = 0):
    """Puts a reset environment into a state, `elapsed` steps into an episode."""
    env.unwrapped.state = np.array(state, dtype=np.float64)
    env.unwrapped.steps_beyond_terminated = None
    _time_limit(env)._elapsed_steps = elapsed
