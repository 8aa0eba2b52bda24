"""Charges of a Mbit when it is sent, for serving it and for waiting.

A Mbit that joins a queue waits for what is there, and holds up what comes later. Both are charged at once, by the slope
of

    Psi = sum over queues q of c_q W_q + CONGESTION kappa/2 w_q W_q^2 / mu_q,

where W_q [Mbit] is in the queue or on its way to it, mu_q [Mbit/s] its speed and c_q what its CPU costs per Mbit; kappa
and w_q are those of the drift. With CONGESTION = 1 the second term is what a queue of W_q Mbit is charged for waiting
until it is empty, if nothing joins it; more than 1 stands for what does join.

The unit is 0.5/G, with G [Mbit] the load of a slot: what the reward takes for a Mbit of drift.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch

from .params import WAITING, WEIGHTS, Params
from .policies.objective import CPUS, cost_shares

CONGESTION = 5.0  # found by trial, of 4 to 12
EFFICIENCY = 15.0  # bit/s/Hz, about what a receiver gets that hears several clients


class Charges(NamedTuple):
    """The potential of B environments, and the charges of a Mbit for the ways to their CPUs: the slope of Psi."""

    potential: torch.Tensor  # [B] L - Psi, with L the drift's Lyapunov function
    own: torch.Tensor  # [B, Nc] to the client's own CPU
    server: torch.Tensor  # [B, Ns] by V2V to the server's CPU
    beyond: torch.Tensor  # [B, Ne, Ne + 1] by V2I to the access edge, and on to the CPU of an edge or the cloud


def charges(queues: Mapping[str, torch.Tensor], speeds: torch.Tensor, load: torch.Tensor, params: Params) -> Charges:
    """The charges of a slot.

    Args:
        queues: of each family, [B, ...] Mbit at the beginning of the slot.
        speeds: [B, nodes] Mbit/s of the CPUs.
        load: [B] Mbit, G.
    """
    Q, Ne = queues, params.edges
    speed = dict(zip(CPUS, speeds.split([params.clients, params.servers, Ne, 1], dim=1), strict=True))
    paid = cost_shares(params)
    served = {name: 2.0 * load[:, None] * paid[name] / speed[name] for name in CPUS}
    speed |= {"v2v": EFFICIENCY * params.bandwidth_v2v_mhz, "v2i": EFFICIENCY * params.bandwidth_v2i_mhz}
    speed |= {"i2i": params.edge_wire_mbps, "i2c": params.cloud_wire_mbps}
    to_edges, to_cloud = Q["v2i"][..., :-1], Q["v2i"][..., -1]
    wires = ~torch.eye(Ne, dtype=torch.bool, device=load.device)  # none leads from an edge to itself
    coming = {
        "lc": Q["lc"],
        "v2v": Q["v2v"],
        "vc": Q["vc"] + Q["v2v"],
        "v2i": Q["v2i"].sum(dim=-1),
        "i2i": (Q["i2i"] + to_edges) * wires,
        "i2c": Q["i2c"] + to_cloud,
        "ec": Q["ec"] + (Q["i2i"] + to_edges).sum(dim=1),
        "cc": Q["cc"] + (Q["i2c"] + to_cloud).sum(dim=1, keepdim=True),
    }
    slope, potential = {}, torch.zeros_like(load)
    for name, mbit in coming.items():
        waits, serving = CONGESTION * WAITING * WEIGHTS[name] * mbit / speed[name], served.get(name, 0.0)
        slope[name] = waits + serving
        potential += WEIGHTS[name] * Q[name].flatten(1).sum(dim=1)
        potential -= (mbit * (0.5 * waits + serving)).flatten(1).sum(dim=1)
    onward = torch.cat([slope["i2i"] + slope["ec"][:, None], (slope["i2c"] + slope["cc"])[..., None]], dim=-1)
    return Charges(potential, slope["lc"], slope["v2v"] + slope["vc"], slope["v2i"][..., None] + onward)
