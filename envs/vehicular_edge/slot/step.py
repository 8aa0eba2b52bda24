"""A slot of B environments from state to state, composed of the four operations; its observations, and random actions.

All in float64 or float32, as the tables are. The largest intermediates hold about 40 kB of float64 per environment at
the default sizes, few live at once: a step of a thousand environments needs 0.25 GB.
"""

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box

from ... import noise
from ..params import DRIFTS, WAITING, WEIGHTS, Params, state_shapes
from .numbering import Array
from .operations import Decision, cost, noma, offloading, over, queue_update, reported
from .tables import Tables


class Outcome(NamedTuple):
    """Outcome of a slot, besides the next state."""

    observation: Array  # [B, D] of the next slot, or the final one
    reward: Array  # [B] of each agent
    truncated: Array  # [B] bool
    success: Array  # [B]
    cost: Array  # [B]
    drift: Array  # [B] phi, or the drift of L
    costs: dict[str, Array]  # [B, n] of every kind, mW, GHz and MB m
    decision: Decision
    rate: Array  # [B, R, Nc] Mbit/s, 0 where client is not in C_r
    flows: dict[str, dict[str, Array]]  # "in", "out" and "dep" of every queue, Mbit


def initial(xp, tables: Tables) -> dict[str, Array]:
    """The state before the first slot: empty queues, and the running scales that the scenarios bring along."""
    state = {}
    for name, shape in state_shapes(tables.params).items():
        if name in tables.running:
            state[name] = tables.running[name][tables.index]
        else:
            state[name] = xp.zeros((len(tables.index), *shape), dtype=tables.dtype)
    return state


def step(xp, tables: Tables, state: dict[str, Array], action: Any, t) -> tuple[dict[str, Array], Outcome]:
    """One slot of B environments; starts no new episode.

    Args:
        state: [B, ...] by the names of params.state_shapes; not changed.
        action: raw [B, 2, A] in [0, 1], or {"target": int [B, Nc, J], "share": [B, A1]}.
        t: the slot, 0..T-1, one for all or [B].
    """
    params = tables.params
    when = (tables.index, xp.broadcast_to(xp.asarray(t), tables.index.shape))
    decision = offloading(xp, tables, action, when)
    rate = noma(xp, tables, decision, when)
    queues, flows = queue_update(xp, tables, state, decision, rate, when)
    total, costs, maxima = cost(xp, tables, state, decision, flows, when)
    drift, bounds = _drift(xp, tables, state, queues, flows)
    success = _success(xp, tables, decision)
    after = {**queues, **maxima, **bounds}
    if params.unsigned_drift:
        penalty = 0.7 * xp.log(params.penalty_weight * xp.maximum(total, 1e-6)) + 0.3 * xp.log(xp.maximum(drift, 1e-6))
    else:
        penalty = 0.7 * params.penalty_weight * total + drift
    reward = 0.5 * success - 0.5 * penalty
    following = when[1] + 1
    observation = observe(xp, tables, after, following)
    after = {name: after[name] for name in state_shapes(params)}
    truncated = following == params.slots
    return after, Outcome(observation, reward, truncated, success, total, drift, costs, decision, rate, flows)


def _success(xp, tables: Tables, decision: Decision) -> Array:
    """Admitted share [B] of the tasks, those beyond J included unless they are ignored."""
    tasks = decision.present.sum(axis=(1, 2))
    if not tables.params.silent_overflow:
        tasks = tasks + decision.dropped[:, 0]
    admitted = decision.admitted.sum(axis=(1, 2)).astype(tables.dtype)
    return admitted / xp.maximum(tasks.astype(tables.dtype), 1e-6)


def _drift(xp, tables, state, queues, flows) -> tuple[Array, dict[str, Array]]:
    """Drift [B], and the running bounds of each queue's where there are any."""
    params, total, bounds = tables.params, 0.0, {}
    if not params.unsigned_drift:  # by the flows: of L itself float32 would keep too little
        for name, weight in WEIGHTS.items():
            change = flows["in"][name] - flows["dep"][name] + WAITING * queues[name]
            total = total + weight * change.reshape(len(change), -1).sum(axis=1)
        return total / tables.load[tables.index], bounds
    for name in DRIFTS:
        lowest, highest = f"drift_min_{name}", f"drift_max_{name}"
        drift = (state[name] - flows["out"][name]) * flows["in"][name]
        if params.running_scales:
            low, high = xp.minimum(state[lowest], drift), xp.maximum(state[highest], drift)
            bound = xp.where(drift < 0.0, low, high)
            share = xp.where(drift == 0.0, 0.0, drift / xp.where(drift == 0.0, 1.0, bound))
            bounds |= {lowest: low, highest: high}
        else:
            share = xp.minimum(abs(drift) / tables.drift_scale[name][tables.index][:, None], 1.0)
        total = total + share.mean(axis=1)
    return 0.2 * total, bounds


def observe(xp, tables: Tables, state: dict[str, Array], t) -> Array:
    """Observations [B, D] at the start of slot t [B]; T is the end of an episode."""
    params, index = tables.params, tables.index
    B = len(index)
    slot = (index, xp.minimum(t, params.slots - 1))
    tasks = (xp.arange(params.tasks) < tables.count[slot][..., None]) & (t < params.slots)[:, None, None]
    size = tables.size[slot]
    work = size * tables.cycles[slot]
    scaled = xp.stack([size, work], axis=3) / tables.task_scale[index][:, None, None]
    scaled = xp.where(tasks[..., None], scaled, 0.0)
    seen = reported(state)
    if params.running_scales:
        seen = {name: over(xp, tables, backlog, state[f"max_{name}"]) for name, backlog in seen.items()}
    else:
        seen = {name: backlog / tables.backlog_scale[name][index][:, None] for name, backlog in seen.items()}
    scores = tables.scores[index, t]
    vehicles = xp.stack([seen["v2v"], seen["vc"]], axis=2).reshape(B, -1)
    edges = xp.stack([seen["v2i"], seen["i2i"], seen["ec"]], axis=2).reshape(B, -1)
    parts = [scaled.reshape(B, -1), seen["lc"], scores[:, 0], vehicles, scores[:, 1], edges, seen["i2c"], seen["cc"]]
    return xp.concatenate(parts, axis=1)


def random_action(xp, params: Params, seed: int, environments: Array, clock: int) -> Array:
    """Actions of the random policy in environments [B] at a step clock: [B, 2, A] float32 in [0, 1)."""
    high = np.ones(params.action_length, np.float32)
    return noise.random_numbers(Box(0 * high, high), 2, seed, environments, clock, xp)
