"""Delays of tasks by route, deadlines and Little's law, from the flows of an episode (README.md, 5.2).

A(t) is what has arrived in a queue up to and with slot t, D(t) what has departed. The work of slot t leaves a stage in
the first slot s with D(s) >= A(t); the stages of a route compose, since what departs in s arrives at the next stage in
s. A slot lasts 1 s. Needs the routed queues (Q4 clear): the pooled ones do not conserve bits.

Axes: B episodes, T slots, Nc clients, J task slots, Ns servers, Ne edges.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .params import FAMILIES, Params

ROUTES = ("local", "server", "edge", "cloud")
NOT_ADMITTED = -1  # in place of a route
ON_TIME, LATE, OPEN, NO_TASK = 0, 1, 2, -1  # outcomes; OPEN: still queued at the end, its deadline not yet passed
OUTCOMES = {"on_time": ON_TIME, "late": LATE, "open": OPEN}


class Flows(NamedTuple):
    """Flows of an episode in Mbit; the trailing axes of a family are those of its queue."""

    arrived: Mapping[str, np.ndarray]  # of each family [B, T, ...], in
    departed: Mapping[str, np.ndarray]  # [B, T, ...], dep
    target: np.ndarray  # [B, T, Nc, J] option that was tried
    admitted: np.ndarray  # [B, T, Nc, J] bool


class Paths(NamedTuple):
    """The ways that tasks can take, as scenarios have them; made by `paths`."""

    count: np.ndarray  # [B, T, Nc] tasks, with those beyond J
    deadline_s: np.ndarray  # [B, T, Nc, J]
    access: np.ndarray  # [B, T, Nc], -1 where none
    server_of: np.ndarray  # [B, T, Nc, S]
    edge_wire_s: np.ndarray  # [B, Ne, Ne] propagation between edges
    cloud_wire_s: np.ndarray  # [B, Ne] and to the cloud


class Delivery(NamedTuple):
    """The fate of every task."""

    route: np.ndarray  # [B, T, Nc, J] index into ROUTES, or NOT_ADMITTED
    delay_s: np.ndarray  # [B, T, Nc, J]; inf where it was not served before the end, or not at all
    outcome: np.ndarray  # [B, T, Nc, J] ON_TIME, LATE, OPEN or NO_TASK
    overflow: np.ndarray  # [B] tasks beyond the J slots of a client, all failures


class Sojourn(NamedTuple):
    """Little's law of a queue: `backlog` is to be `rate * delay_s`."""

    backlog: np.ndarray  # [B, ...] mean over the slots, Mbit
    rate: np.ndarray  # [B, ...] arrivals, Mbit/s
    delay_s: np.ndarray  # [B, ...] mean over the bits that arrived; one that stays counts until the end


def flows(records: Sequence[Mapping], params: Params) -> Flows:
    """The flows of an episode.

    Args:
        records: of each slot; `in` and `dep` by family, `target`, `admitted`: each [B, ...], or of one episode [...].

    Raises:
        ValueError: the queues are pooled.
    """
    if params.slot_tandem:
        raise ValueError("slot_tandem=True pools the queues, which then lose bits; delays need slot_tandem=False")
    batched = np.ndim(records[0]["target"]) == 3

    def stacked(values) -> np.ndarray:
        together = np.stack([np.asarray(value) for value in values], axis=1 if batched else 0)
        return together if batched else together[None]

    def by_family(side: str) -> dict[str, np.ndarray]:
        return {name: stacked(record[side][name] for record in records) for name in FAMILIES}

    return Flows(
        by_family("in"),
        by_family("dep"),
        stacked(record["target"] for record in records),
        stacked(record["admitted"] for record in records).astype(bool),
    )


def paths(scenarios: Sequence) -> Paths:
    """The ways of the tasks of B episodes, of whose scenarios there is one each."""
    params = scenarios[0].params

    def stacked(name: str) -> np.ndarray:
        return np.stack([getattr(scenario, name) for scenario in scenarios])

    return Paths(
        stacked("task_count"),
        stacked("task_deadline"),
        stacked("access"),
        stacked("server_of"),
        stacked("wire_edge") / params.edge_wire_mps,
        stacked("wire_cloud") / params.cloud_wire_mps,
    )


# ---- Stages --------------------------------------------------------------------------------------------------------


def leaving(arrivals: np.ndarray, departures: np.ndarray) -> np.ndarray:
    """The slot in which the work of each slot has left a stage, T where it stays.

    Args:
        arrivals, departures: of each slot [..., T]; real and virtual queues alike.

    Returns:
        int [..., T], never before the slot itself.
    """
    slots = arrivals.shape[-1]
    A, D = (np.cumsum(flow, axis=-1, dtype=np.float64) for flow in (arrivals, departures))
    # A queue that was emptied has departed what arrived up to the rounding of the largest backlog, once per slot.
    largest = (A - D + departures).max(axis=-1, keepdims=True)
    flow_eps, sum_eps = (np.finfo(kind).eps for kind in (np.result_type(arrivals, np.float32), np.float64))
    rounding = slots * (flow_eps * largest + sum_eps * A[..., -1:])
    least = (A - rounding)[..., :, None]  # [..., t, 1] against [..., 1, s]
    return np.maximum((D[..., None, :] < least).sum(axis=-1), np.arange(slots))


def then(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The slot in which work has left two stages, one after the other; slots as `leaving` gives them, [..., T]."""
    slots = first.shape[-1]
    stays = np.full((*second.shape[:-1], 1), slots)
    return np.take_along_axis(np.concatenate([second, stays], axis=-1), first, axis=-1)


def route_leaving(moved: Flows) -> dict[str, np.ndarray]:
    """The slot in which the work of each slot has been computed, by route; T where that is not before the end.

    Returns:
        local [B, Nc, T], server [B, Ns, T], edge [B, Ne, Ne, T] (access edge, destination), cloud [B, Ne, T].
    """

    def stage(name: str) -> np.ndarray:  # [B, ..., T]
        return leaving(*(np.moveaxis(side[name], 1, -1) for side in (moved.arrived, moved.departed)))

    up, across, edge = stage("v2i"), stage("i2i"), stage("ec")
    edges = edge.shape[1]
    same = np.eye(edges, dtype=bool)[None, :, :, None]
    at_destination = np.where(same, up[:, :, :edges], then(up[:, :, :edges], across))
    compute = np.broadcast_to(edge[:, None], at_destination.shape)
    at_cloud = then(up[:, :, edges], stage("i2c"))
    return {
        "local": stage("lc"),
        "server": then(stage("v2v"), stage("vc")),
        "edge": then(at_destination, compute),
        "cloud": then(at_cloud, np.broadcast_to(stage("cc"), at_cloud.shape)),
    }


# ---- Tasks ---------------------------------------------------------------------------------------------------------


def deliver(moved: Flows, where: Paths, params: Params) -> Delivery:
    """The fate of every task of B episodes."""
    slots, S, Ne = moved.target.shape[1], params.server_choices, params.edges
    target = moved.target
    B, T, Nc, J = target.shape
    b, t, i = np.ogrid[:B, :T, :Nc, :1][:3]
    exists = np.arange(J) < where.count[..., None]
    route = np.select([target == 0, target <= S, target <= S + Ne], [0, 1, 2], default=3)
    route = np.where(moved.admitted & exists, route, NOT_ADMITTED)

    access = np.maximum(where.access, 0)[..., None]  # [B, T, Nc, 1]; the route tells whether there is one
    server = np.maximum(where.server_of[b, t, i, np.clip(target - 1, 0, S - 1)], 0)
    edge = np.clip(target - 1 - S, 0, Ne - 1)
    leaves = route_leaving(moved)
    left = np.select(
        [route == 0, route == 1, route == 2, route == 3],
        [
            leaves["local"][b, i, t],
            leaves["server"][b, server, t],
            leaves["edge"][b, access, edge, t],
            leaves["cloud"][b, access, t],
        ],
        default=slots,
    )
    wire = np.select(
        [route == 2, route == 3], [where.edge_wire_s[b, access, edge], where.cloud_wire_s[b, access]], default=0.0
    )
    age = slots - t  # s, of a task when the episode ends
    served = (route != NOT_ADMITTED) & (left < slots)
    delay = np.where(served, left - t + wire, np.inf)
    # A task that is still queued is late once its deadline has passed; before that nobody can say.
    undecided = (route != NOT_ADMITTED) & ~served & (age + wire <= where.deadline_s)
    outcome = np.where(delay <= where.deadline_s, ON_TIME, np.where(undecided, OPEN, LATE))
    overflow = np.maximum(where.count - J, 0).sum(axis=(1, 2))
    return Delivery(route, delay, np.where(exists, outcome, NO_TASK), overflow)


def counts(delivered: Delivery) -> dict[str, np.ndarray]:
    """Tasks of each episode [B]: on_time, late (with those never admitted and those beyond J) and open."""
    of = {name: (delivered.outcome == code).sum(axis=(1, 2, 3)) for name, code in OUTCOMES.items()}
    return of | {"late": of["late"] + delivered.overflow}


def on_time_share(delivered: Delivery) -> np.ndarray:
    """On time among the tasks of which it is known, [B]; 1 where there is none."""
    of = counts(delivered)
    known = of["on_time"] + of["late"]
    return np.where(known > 0, of["on_time"] / np.maximum(known, 1), 1.0)


def percentiles(delivered: Delivery, percents: Sequence[float] = (50, 95, 99)) -> dict[str, np.ndarray]:
    """Delays [B, len(percents)] in s, of each route and of `all` admitted tasks.

    What is late and was not served counts as an infinite delay, what is open is left out; NaN where a route was not
    taken.
    """
    known = (delivered.route != NOT_ADMITTED) & np.isin(delivered.outcome, (ON_TIME, LATE))

    def of_one(delays: np.ndarray) -> np.ndarray:
        if not len(delays):
            return np.full(len(percents), np.nan)
        return np.percentile(delays, percents, method="inverted_cdf")

    found = {}
    for name in (*ROUTES, "all"):
        chosen = known if name == "all" else known & (delivered.route == ROUTES.index(name))
        found[name] = np.stack([of_one(delay[taken]) for delay, taken in zip(delivered.delay_s, chosen, strict=True)])
    return found


def histogram(delivered: Delivery, longest: int) -> np.ndarray:
    """Number of tasks [B, longest + 2] with a delay of 0, 1, .., longest seconds (rounded down), or a longer one.

    Of the slots up to T - 1 - longest alone, whose delays up to `longest` are all known. A task that was not admitted
    has a longer one; those beyond J are not counted.
    """
    slots = delivered.route.shape[1]
    if longest >= slots:
        raise ValueError(f"longest={longest} s must be below the {slots} slots of an episode")
    early = delivered.outcome[:, : slots - longest] != NO_TASK
    seconds = np.minimum(delivered.delay_s[:, : slots - longest], longest + 1).astype(int)
    return np.stack([np.bincount(row[known], minlength=longest + 2) for row, known in zip(seconds, early, strict=True)])


# ---- Little's law --------------------------------------------------------------------------------------------------


def sojourn(arrivals: np.ndarray, departures: np.ndarray, backlog: np.ndarray) -> Sojourn:
    """Little's law of queues that serve bit by bit, first in first out.

    The delay comes from matching departing with arriving bits, not from the backlog.

    Args:
        arrivals, departures: [..., T] of each slot; backlog: [..., T] at the slots' ends, as the environment had it.
    """
    slots = arrivals.shape[-1]
    A, D = (np.cumsum(flow, axis=-1, dtype=np.float64) for flow in (arrivals, departures))
    total = A[..., -1]
    before_A, before_D = (np.concatenate([np.zeros((*X.shape[:-1], 1)), X[..., :-1]], axis=-1) for X in (A, D))
    # [..., t, s]: of the bits that came in slot t, those that left in slot s.
    upper = np.minimum(A[..., :, None], D[..., None, :])
    lower = np.maximum(before_A[..., :, None], before_D[..., None, :])
    matched = np.maximum(upper - lower, 0.0)
    t = np.arange(slots)
    waited = (matched * (t[None, :] - t[:, None])).sum(axis=(-2, -1))
    left = np.asarray(arrivals, dtype=np.float64) - matched.sum(axis=-1)
    waited = waited + (left * (slots - t)).sum(axis=-1)
    delay = np.where(total > 0, waited / np.where(total > 0, total, 1.0), 0.0)
    return Sojourn(backlog.mean(axis=-1, dtype=np.float64), total / slots, delay)
