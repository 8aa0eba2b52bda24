"""State of the original in the names, shapes and units that all forms share."""

import math
from collections.abc import Mapping

import numpy as np

from ...checks import integer
from ..params import AGENTS, limits, state_shapes
from .checks import check_range, numbers
from .environment import VehicularEdge
from .nodes import column


def get_state(env: VehicularEdge) -> dict[str, np.ndarray]:
    """Every field of `params.state_shapes`, in its shape and unit, as float64."""
    queues, running = env.episode.queues | env.episode.virtual, env.episode.scales.running
    return {
        name: (column(queues[name], "backlog") if name in queues else np.array(running[name])).reshape(shape)
        for name, shape in state_shapes(env.params).items()
    }


def set_state(env: VehicularEdge, state: dict, t: int):
    """Puts the environment at the start of slot `t` of its present scenario.

    Raises:
        ValueError: a field is missing, unknown or of another shape, holds a number that it cannot, or t is not in 0..T.
    """
    shapes, p = state_shapes(env.params), env.params
    if not isinstance(state, Mapping):
        raise ValueError(f"state={state!r:.60} must be a dict of fields")
    if set(state) != set(shapes):
        raise ValueError(f"state must have the fields {', '.join(shapes)}; got {', '.join(map(str, state))}")
    t = integer("t", t, 0, p.slots)
    queues, fields = env.episode.queues | env.episode.virtual, {}
    for name, shape in shapes.items():
        values = fields[name] = numbers(f"state field {name!r}", state[name]).astype(np.float64)
        if values.shape != shape:
            raise ValueError(f"state field {name!r} has shape {values.shape}, not {shape}")
        low, finite = limits(name)
        check_range(f"state field {name!r}", values, low, math.inf, finite)
    for name, values in fields.items():
        if name in queues:
            for queue, backlog in zip(queues[name], values.ravel().tolist(), strict=True):
                queue.put(backlog)
        else:
            env.episode.scales.running[name] = values.tolist()
    env.episode.enter(t)
    env.agents = list(AGENTS) if t < p.slots else []
