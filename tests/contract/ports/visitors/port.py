"""Visitors: as many agents as a parameter says, of whom an episode has some or none; test_visitors.py has the NumPy."""

from dataclasses import dataclass

import numpy as np
from gymnasium.spaces import Box, Discrete

from lockstep.envs import Field, Port, World

HOMES = (0.0, 0.5, -0.5)  # of the scenarios


@dataclass(frozen=True)
class Params:
    visitors: int = 3
    goal: float = 2.0  # from the middle, to both sides, where a visitor's episode terminates


def names(params: Params) -> tuple[str, ...]:
    return ("first", "second", "third")[: params.visitors]


def world(port: Port, preset, params) -> World:
    chosen = port.make_params(preset, params)
    return World(
        chosen,
        scenarios=len(HOMES),
        in_turn=True,
        tables=lambda dtype, num_envs: {"home": np.array(HOMES, dtype)},
        metrics={"made": 1, "pace": (chosen.visitors,)},
        flags={"far": (chosen.visitors,), "full": ()},
        amounts={"homes": (), "paces": (chosen.visitors,)},
    )


PORT = Port(
    title="Visitors",
    params=Params,
    lanes=8,
    agents=names(Params()),
    team=names,
    absent=True,
    state=lambda params: (
        Field("place", (params.visitors,)),
        Field("here", (params.visitors,), "int32", low=0, high=1),
    ),
    observation=Box(-np.inf, np.inf, (3,), np.float32),
    action=Discrete(3),
    horizon=9,
    world=world,
)
