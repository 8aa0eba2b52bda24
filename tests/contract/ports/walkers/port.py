"""Walkers: agents whose episodes end apart, in three phases. Rules without a meaning; test_ports.py has them in NumPy.

`PORT` has three agents, `ALONE` is the same environment of one agent, who has no axis.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
from gymnasium.spaces import Box, MultiDiscrete

from lockstep.envs import BatchedEnv, Field, Port


@dataclass(frozen=True)
class Params:
    goal: float = 3.0  # from the middle, to both sides, where an agent's episode terminates
    lanes: int = 8


def fields(agents: int) -> tuple[Field, ...]:
    return (
        Field("place", (agents,)),
        Field("wish", (agents, 2), low=-4.0, high=4.0),
        Field("pull", (agents,)),
        Field("walked", (agents,), dtype="float64"),
        Field("steps", (agents,), dtype="int32", low=0),
    )


def pull(env: BatchedEnv):
    """The phase between two kernels, in torch: what agents do about their wishes."""
    of = env.fields()
    of["pull"].copy_(of["wish"][..., 0] * 0.5 + of["wish"][..., 1])


def box(size: int, limit: float) -> Box:
    return Box(np.full(size, -limit, np.float32), np.full(size, limit, np.float32))


PORT = Port(
    title="Walkers",
    params=Params,
    lanes=lambda params: params.lanes,
    agents=("first", "second", "third"),
    state=fields(3),
    observation=lambda params: box(5, np.inf),
    action=MultiDiscrete(np.array([3, 5]), dtype=np.int32),
    horizon=30,
    metrics={"crowd": 1, "paces": 2},
    record=lambda params: 3,
    phases=("propose", pull, "step"),
)
ALONE = dataclasses.replace(PORT, title="One walker", agents=(), state=fields(1))
