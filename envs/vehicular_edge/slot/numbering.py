"""Numbers of nodes, places and shares in the vectors of the array code, and sums over them.

Nodes are numbered clients, servers, edges, cloud. A place is a CPU weight that a task can be given: each node has as
many as it admits, in that order.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..params import Params

Array = Any  # of NumPy or CuPy


@dataclass(frozen=True)
class Numbering:
    """Node number `nodes` stands for where a task goes that reaches none."""

    nodes: int
    groups: tuple[tuple[int, int], ...]  # (nodes, cap) of clients, servers, edges, cloud
    cap: Array  # [nodes + 1] tasks admitted per slot
    place_node: Array  # [places]
    place_rank: Array  # [places] which of its node's places
    place_share: Array  # [places] entry of the share vector
    power_share: Array  # [Nc, 2] entries of the share vector: V2V, V2I


def numbering(xp, params: Params) -> Numbering:
    Nc, Ns, Ne = params.clients, params.servers, params.edges
    groups = ((Nc, params.cap_local), (Ns, params.cap_server), (Ne, params.cap_edge), (1, params.cap_cloud))
    cap = np.concatenate([np.full(count, most) for count, most in groups])
    place_node = np.repeat(np.arange(cap.size), cap)
    place_rank = np.concatenate([np.arange(most) for most in cap])
    # A client's block ends with two weights of power.
    place_share = np.arange(place_node.size) + 2 * np.minimum(place_node, Nc)
    power_share = (np.arange(Nc) * (params.cap_local + 2) + params.cap_local)[:, None] + np.arange(2)
    arrays = (np.append(cap, 0), place_node, place_rank, place_share, power_share)
    return Numbering(cap.size, groups, *(xp.asarray(array) for array in arrays))


def of_nodes(xp, numbering: Numbering, values) -> Array:
    """Sums over the places of each node: [B, places] to [B, nodes]."""
    sums, start = [], 0
    for nodes, cap in numbering.groups:
        group = values[:, start : start + nodes * cap]
        sums.append(group.reshape(-1, nodes, cap).sum(axis=2))
        start += nodes * cap
    return xp.concatenate(sums, axis=1)


def of_places(xp, values, decision) -> Array:
    """Values of tasks [B, Nc, J] at the places [B, places] that serve them; 0 where a place is empty."""
    found = xp.take_along_axis(values.reshape(len(values), -1), decision.task, axis=1)
    return xp.where(decision.filled, found, 0.0)


def of_routes(xp, params: Params, values, decision, counted, through) -> Array:
    """Sums over tasks by the edge that they go through and by where they are aimed at.

    Args:
        values: [B, Nc, J].
        counted: [B, Nc, J] bool, which tasks count.
        through: [B, Ne, Nc] which clients count at an edge.

    Returns:
        [B, Ne, Ne + 1], destinations are the edges and the cloud.
    """
    destination = xp.where(counted, decision.target - (params.server_choices + 1), -1)
    aimed = (destination[..., None] == xp.arange(params.edges + 1)).astype(values.dtype)  # [B, Nc, J, Ne + 1]
    by_client = xp.matmul(values[:, :, None], aimed)[:, :, 0]
    return xp.matmul(through.astype(values.dtype), by_client)
