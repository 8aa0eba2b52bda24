"""The reward of preset `physical` as it was before, kept to compare with the present one.

    drift = 1/5 sum over V, LC, VC, EC, CC of mean Q (in - dep) / s_family
    reward = 0.5 success - 0.35 omega cost - 0.15 drift

V is the virtual queue of delays, and s_family the largest Q (in - dep) that the random policy reaches in ten episodes.
A CPU's cost was the share that admitted tasks were given, whether or not anything waited, and that of its empty places
while something did; the present cost is of both as far as they are used. All other costs are the present ones.
"""

import functools
from collections.abc import Mapping

import numpy as np

from lockstep.envs.vehicular_edge.params import DRIFTS
from lockstep.envs.vehicular_edge.slot.step import initial, random_action, step
from lockstep.envs.vehicular_edge.slot.tables import tables

EPISODES, SEED = 10, 264
CPUS = {"lc": 1 / 12, "vc": 1 / 4, "ec": 1 / 12, "cc": 1 / 4}  # weight in the cost of what the CPUs of a kind take


@functools.cache
def scales(drawn, traffic: str) -> dict[str, float]:
    """s of each family on a map, whose scenarios are drawn(traffic, 0), drawn(traffic, 1), ..."""
    packed = tables(np, [drawn(traffic, index) for index in range(EPISODES)])
    state, largest = initial(np, packed), dict.fromkeys(DRIFTS, 0.0)
    for t in range(packed.params.slots):
        action = random_action(np, packed.params, SEED, np.arange(EPISODES), t)
        after, outcome = step(np, packed, state, action, t)
        for name in DRIFTS:
            change = outcome.flows["in"][name] - outcome.flows["dep"][name]
            largest[name] = max(largest[name], float(np.abs(state[name] * change).max()))
        state = after
    return {name: value or 1.0 for name, value in largest.items()}


def cost_above(record: Mapping) -> np.ndarray:
    """The earlier cost of a slot less the present one, [B] or a number.

    Args:
        record: of the slot, with shares of CPUs [..., n] in "cpu": by kind those that the places of "admitted" tasks
            were given, and those of all places, "whole".
    """
    total = 0.0
    for name, weight in CPUS.items():
        out, departed = (np.asarray(record[way][name], float) for way in ("out", "dep"))
        admitted, whole = (record["cpu"][places][name] for places in ("admitted", "whole"))
        earlier = np.where(departed > 0.0, whole, admitted)  # a queue that waits is served where it has a share
        used = departed / np.where(out > 0.0, out, 1.0)
        total = total + weight * (earlier - whole * used).mean(axis=-1)
    return total


def drift(arrived: Mapping, departed: Mapping, scale: Mapping[str, float]) -> np.ndarray:
    """The earlier drift of every slot [B, T], of flows [B, T, n] of the five families."""
    total = 0.0
    for name in DRIFTS:
        into, out = (np.asarray(flow[name], float) for flow in (arrived, departed))
        backlog = np.zeros_like(into)
        for t in range(1, into.shape[1]):  # what left a real queue had been there
            backlog[:, t] = np.maximum(backlog[:, t - 1] + into[:, t - 1] - out[:, t - 1], 0.0)
        total = total + (backlog * (into - out)).mean(axis=2) / scale[name]
    return 0.2 * total
