"""Counters: what one thread can hold of every kind. Rules without a meaning, which test_ports.py states in NumPy."""

from dataclasses import dataclass

import numpy as np
from gymnasium.spaces import Box

from lockstep.envs import Field, Port, World
from lockstep.envs.checks import integer

WEIGHTS = (0.5, 0.75, 1.25, 0.625)  # by scenario


@dataclass(frozen=True)
class Params:
    shake: float = 0.5  # of the noise in each step


def world(port: Port, preset: str | None, params: dict, scenarios: int = 4) -> World:
    """Scenarios, each with a weight; and environments, each with a patience."""
    count = integer("scenarios", scenarios, 1, len(WEIGHTS))

    def tables(dtype: str, num_envs: int) -> dict[str, np.ndarray]:
        patience = 3 + np.arange(num_envs, dtype=np.int32) % 4
        return {"weight": np.array(WEIGHTS[:count], dtype=dtype), "patience": patience}

    return World(port.make_params(preset, params), scenarios=count, tables=tables)


PORT = Port(
    title="Counters",
    params=Params,
    state=(
        Field("place", (2,)),
        Field("pace", low=0.0, high=2.0),
        Field("walked", dtype="float64"),
        Field("seen", (2,), dtype="int32", low=0, high=100),  # steps to the right, and three bits of the last noise
    ),
    observation=lambda params: Box(np.full(7, -np.inf, np.float32), np.full(7, np.inf, np.float32)),
    action=Box(np.array([-1, -2, 0], np.float32), np.array([1, 2, 0.5], np.float32)),
    horizon=30,
    world=world,
)
