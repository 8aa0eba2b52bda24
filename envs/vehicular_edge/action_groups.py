"""Groups of the numbers of an action that belong together, for who learns to act."""

import numpy as np

from .params import Params
from .slot.numbering import numbering


def of(params: Params) -> np.ndarray:
    """int64 [2, A0 + A1], group of each number: by what it decides, and by the client or node that it decides it for.

    It decides on targets, power in either band, or the CPU of clients, servers, edges or the cloud. The first A0 are
    agent `offloading`'s.
    """
    places, Nc = numbering(np, params), params.clients
    kinds = np.repeat(np.arange(len(places.groups)), [count for count, _ in places.groups])  # of nodes
    targets = np.arange(params.target_length)
    kind, node = (np.zeros(params.share_length, np.int64) for _ in range(2))
    kind[places.place_share], node[places.place_share] = 3 + kinds[places.place_node], 2 * Nc + places.place_node
    kind[places.power_share], node[places.power_share] = [1, 2], Nc + np.arange(Nc)[:, None]
    return np.stack([np.append(0 * targets, kind), np.append(targets // params.tasks, node)])
