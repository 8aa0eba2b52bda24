"""Readers: what one thread may do besides holding a state. Rules without a meaning; test_ports.py states them."""

from dataclasses import dataclass

import numpy as np
from gymnasium.spaces import Box

from lockstep.envs import Field, Port, World

PAGES = np.arange(35, dtype=np.float32).reshape(7, 5)


@dataclass(frozen=True)
class Params:
    inertia: float = 0.5


def world(port: Port, preset: str | None, params: dict) -> World:
    """Pages, of which an observation ends with one."""
    return World(port.make_params(preset, params), tables=lambda dtype, num_envs: {"pages": PAGES})


PORT = Port(
    title="Readers",
    params=Params,
    state=(Field("place"), Field("read", dtype="int32", low=0)),  # episodes before, in spite of resets
    observation=Box(-np.inf, np.inf, (6,), np.float32),
    action=Box(-1.0, 1.0, (2,), np.float32),
    horizon=30,
    world=world,
    metrics={"step": 1, "before": 1},
)
