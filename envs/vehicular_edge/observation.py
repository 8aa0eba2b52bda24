"""The space of what both agents see, in every form (README.md, 2.7)."""

import numpy as np
from gymnasium.spaces import Box

from .params import Params


def space(p: Params) -> Box:
    """Of one environment and either agent, [D]: [0, 1] as published, or what really bounds each number (Q26)."""
    low = np.zeros(p.observation_length, np.float32)
    if p.raw_observation:
        return Box(low, np.ones_like(low), dtype=np.float32)
    first = 2 * p.tasks * p.clients + p.clients
    for start in (first, first + p.components + 2 * p.servers):  # only scores have a sign
        low[start : start + p.components] = -np.inf
    return Box(low, np.full_like(low, np.inf), dtype=np.float32)
