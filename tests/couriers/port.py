"""Couriers: two agents whose batteries run out apart, on a heading that the wind of a scenario turns.

Rules without a meaning, for tests of what holds for any environment; `original.py` has them in NumPy.
"""

from dataclasses import dataclass

import numpy as np
from gymnasium.spaces import Box, Discrete

from lockstep.envs import Field, Port, World

AGENTS = ("first", "second")
WINDS = np.linspace(-0.2, 0.2, 5)  # rad, of each scenario of the pool


@dataclass(frozen=True)
class Params:
    drain: float = 0.125  # of a battery in a step, at most as much more


def world(port: Port, preset, params, scenarios: int = 3) -> World:
    return World(
        port.make_params(preset, params),
        scenarios=scenarios,
        tables=lambda dtype, num_envs: {"wind": WINDS[:scenarios].astype(dtype)},
    )


PORT = Port(
    title="Couriers",
    params=Params,
    lanes=8,
    agents=AGENTS,
    state=(
        Field("heading", (2,), low=-4.0, high=4.0, angle=True),
        Field("battery", (2,), dtype="float64", high=1.0),
        Field("trips", (2,), dtype="int32", low=0),
    ),
    observation=lambda params: Box(np.full(4, -np.inf, np.float32), np.full(4, np.inf, np.float32)),
    action=Discrete(3),
    horizon=9,
    world=world,
)
