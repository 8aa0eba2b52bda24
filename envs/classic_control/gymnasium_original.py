"""The base of the originals: Gymnasium's own environments, with their parameters and their state made accessible."""

import dataclasses
from collections.abc import Mapping

import gymnasium
import numpy as np

from ..batch.port import Port


def make(port: Port, render_mode: str | None, params: Mapping, keywords: tuple[str, ...] = ()) -> gymnasium.Env:
    """The original of a port with its time limit, without the passive checker, which would slow it down.

    Args:
        port: its parameters carry the names of the original's attributes.
        render_mode: as Gymnasium's; None draws nothing.
        params: fields of `port.params` that differ from their defaults.
        keywords: those fields that Gymnasium takes as a keyword of its class and keeps under another name.

    Raises:
        ValueError: an unknown parameter or a value of the wrong kind.
    """
    params = port.make_params(None, params)
    values = dataclasses.asdict(params)
    env = gymnasium.make(
        port.gymnasium_id,
        disable_env_checker=True,
        render_mode=render_mode,
        **{name: values.pop(name) for name in keywords},
    )
    for name, value in values.items():
        setattr(env.unwrapped, name, value)
    env.unwrapped.observation_space = port.of("observation", params)  # Gymnasium's own follows no attribute
    return env


def _time_limit(env):
    while not isinstance(env, gymnasium.wrappers.TimeLimit):
        env = env.env
    return env


def get_state(env) -> tuple[np.ndarray, int]:
    """The state as float64 [k], fields as the port names them, and the steps of the running episode."""
    return np.array(env.unwrapped.state, dtype=np.float64), _time_limit(env)._elapsed_steps


def set_state(env, state, elapsed: int = 0):
    """Puts a reset environment into a state [k], `elapsed` steps into an episode. The state is kept in float64."""
    env.unwrapped.state = np.array(state, dtype=np.float64)
    _time_limit(env)._elapsed_steps = elapsed
