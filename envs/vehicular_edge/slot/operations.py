"""The four operations of a slot as array code: `offloading`, `noma`, `queue_update` and `cost` (README.md, 2.1 to 2.6).

`xp` is numpy or cupy, B environments come first, and no loop runs over environments, clients or tasks. `when` is a pair
of vectors [B], scenario and slot. Units: Mbit, Mbit/s, GHz, Gcycles, W, MB, m. Symbols as in tables.py.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ..params import FAMILIES, LARGEST_SHARE, MBIT, queue_shapes
from .numbering import Array, of_nodes, of_places, of_routes
from .tables import Tables


class Decision(NamedTuple):
    """The slot after decoding and admission: where each task runs, and with which share."""

    target: Array  # [B, Nc, J] option 0..O-1; local where the chosen server does not exist
    present: Array  # [B, Nc, J] bool, there is such a task
    admitted: Array  # [B, Nc, J] bool
    dropped: Array  # [B, 3] tasks: beyond J, rejected by a cap, without access edge
    task: Array  # [B, places] flat index i J + j of the task that a place serves
    filled: Array  # [B, places] bool, there is one
    weight: Array  # [B, places] share of its node's CPU, normalised
    power: Array  # [B, 2, Nc] W for V2V and V2I
    listed: Array  # [B, Ns + Ne + 1, Nc] bool, client has a task admitted at server, edge or cloud
    at_access: Array  # [B, Ne, Nc] bool, edge is the client's access edge
    uploaded: Array  # [B, Nc, J] bool, goes up at the access edge
    members: Array  # [B, R, Nc] bool, client is in C_r


# ---- decode and admit


def offloading(xp, tables: Tables, action: Any, when) -> Decision:
    """Decodes both agents' actions and admits tasks, node by node up to its cap in the order of priority."""
    params, numbering = tables.params, tables.numbering
    Nc, Ns, J, S = params.clients, params.servers, params.tasks, params.server_choices
    B, M, nodes = len(tables.index), Nc * J, numbering.nodes
    target, share = decode(xp, tables, action)
    weight, power = _shares(xp, tables, share)
    count, access, server_of = (table[when] for table in (tables.count, tables.access, tables.server_of))

    server = xp.take_along_axis(server_of, xp.clip(target - 1, 0, S - 1), axis=2)
    target = xp.where((target >= 1) & (target <= S) & (server < 0), 0, target)
    upward = target > S
    present = xp.arange(J) < count[..., None]
    reaches = present & (~upward | (access >= 0)[..., None])
    node = xp.where(upward, Nc + Ns + target - (S + 1), Nc + server)
    node = xp.where(target == 0, xp.arange(Nc)[:, None], node)
    node = xp.where(reaches, node, nodes).reshape(B, M)

    # Keys in the order of nodes, and of priority within a node: the rank of a task is its place in that order.
    first = 0 * when[1] if params.fixed_priority else when[1] * Nc // params.slots
    turn = (xp.arange(Nc) - first[:, None]) % Nc
    position = (turn[..., None] * J + xp.arange(J)).reshape(B, M)
    key = node * M + position
    ordered = xp.sort(key, axis=1)
    bounds = xp.arange(nodes + 2) * M  # a node's keys lie between its bound and the next
    row = xp.arange(B)[:, None]
    begins = xp.searchsorted((ordered + row * (bounds[-1])).ravel(), (bounds + row * bounds[-1]).ravel())
    begins = begins.reshape(B, nodes + 2) - row * M
    accepted = xp.minimum(begins[:, 1:] - begins[:, :-1], numbering.cap)  # [B, nodes + 1]
    last = xp.take_along_axis(ordered, xp.clip(begins[:, :-1] + accepted - 1, 0, M - 1), axis=1)
    admitted = ((key <= xp.take_along_axis(last, node, axis=1)) & (node < nodes)).reshape(B, Nc, J)

    filled = numbering.place_rank < accepted[:, numbering.place_node]
    found = xp.minimum(begins[:, numbering.place_node] + numbering.place_rank, M - 1)
    place = xp.take_along_axis(ordered, found, axis=1) % M
    client = (place // J + first[:, None]) % Nc
    listed = xp.zeros((B, nodes - Nc, Nc + 1), dtype=bool)
    away = slice(Nc * params.cap_local, None)
    listed[row, numbering.place_node[away] - Nc, xp.where(filled[:, away], client[:, away], Nc)] = True
    listed = listed[..., :Nc]

    at_access = access[:, None, :] == xp.arange(params.edges)[:, None]
    sent = reaches if params.rejected_transmit else admitted
    uploaded = sent & upward
    members = xp.concatenate([listed[:, :Ns], at_access & uploaded.any(axis=2)[:, None, :]], axis=1)
    dropped = [xp.maximum(count - J, 0).sum(axis=1)]
    dropped += [(reaches & ~admitted).sum(axis=(1, 2)), (present & ~reaches).sum(axis=(1, 2))]
    return Decision(
        target, present, admitted, xp.stack(dropped, axis=1), client * J + place % J, filled, weight, power,
        listed, at_access, uploaded, members,
    )  # fmt: skip


def decode(xp, tables: Tables, action: Any) -> tuple[Array, Array]:
    """Targets [B, Nc, J] and shares [B, A1] of an action; a number that is none reads 0, one outside [0, 1] the end."""
    params = tables.params
    shape = (len(tables.index), params.clients, params.tasks)
    if isinstance(action, dict):
        share = xp.clip(xp.asarray(action["share"]), 0.0, LARGEST_SHARE)
        return xp.asarray(action["target"]).reshape(shape), share.astype(tables.dtype)
    action = xp.clip(xp.where(action >= 0.0, action, 0.0), 0.0, 1.0)
    chosen = action[:, 0, : params.target_length].astype(np.float64)  # in which every form floors alike
    if params.cloud_only_at_one:
        target = xp.floor(chosen * (params.options - 1))
    else:
        target = xp.minimum(xp.floor(chosen * params.options), params.options - 1)
    return target.astype(np.int32).reshape(shape), action[:, 1, : params.share_length].astype(tables.dtype)


def _shares(xp, tables: Tables, share) -> tuple[Array, Array]:
    """Normalised CPU weights [B, places] and powers [B, 2, Nc] in W; a block of zeros stays zero."""
    numbering = tables.numbering
    weight, pair = share[:, numbering.place_share], share[:, numbering.power_share]
    total = of_nodes(xp, tables.numbering, weight)
    weight = weight / xp.where(total > 0.0, total, 1.0)[:, numbering.place_node]
    total = pair[..., :1] + pair[..., 1:]
    power = tables.power[tables.index][..., None] * (pair / xp.where(total > 0.0, total, 1.0))
    return weight, xp.swapaxes(power, 1, 2)


# ---- radio


def noma(xp, tables: Tables, decision: Decision, when) -> Array:
    """Rates [B, R, Nc] in Mbit/s under successive interference cancellation: only weaker gains of C_r interfere."""
    params = tables.params
    power = xp.repeat(decision.power, [params.servers, params.edges], axis=1)
    received = xp.where(decision.members, tables.snr[when] * power, 0.0)  # over N0
    ascending = xp.take_along_axis(received, tables.ascending[when], axis=2)
    weakest = xp.cumsum(ascending, axis=2)[..., :-1]
    weakest = xp.concatenate([xp.zeros_like(ascending[..., :1]), weakest], axis=2)  # before each place of the order
    interference = xp.take_along_axis(weakest, tables.weaker[when], axis=2)
    if params.interference_in_mw:
        interference = 1e3 * interference
    return tables.bandwidth[:, None] * xp.log1p(received / (1.0 + interference)) / math.log(2.0)


# ---- queues


def queue_update(xp, tables: Tables, state: dict[str, Array], decision: Decision, rate, when):
    """Real and virtual queues after the slot, by name [B, ...], and what came in, went out and departed, in Mbit."""
    params = tables.params
    Nc, Ns, Ne = params.clients, params.servers, params.edges
    parts = {"lc": slice(0, Nc), "vc": slice(Nc, Nc + Ns), "ec": slice(Nc + Ns, Nc + Ns + Ne), "cc": slice(-1, None)}
    bits = MBIT * tables.size[when]
    if params.rate_weighted_bits:
        bits = bits * tables.rate[when]
    offered = of_nodes(xp, tables.numbering, of_places(xp, bits, decision))
    served = _served(xp, tables, decision, when)
    into = {"lc": offered[:, :Nc], "v2v": offered[:, parts["vc"]]}
    out = {name: served[:, part] for name, part in parts.items()} | {"v2v": rate[:, :Ns].sum(axis=2)}
    if params.slot_tandem:
        _pooled(xp, tables, decision, bits, rate, into, out)
    else:
        _routed(xp, tables, state, decision, bits, rate, into, out)
    if params.idle_last_slot:
        works = (when[1] < params.slots - 1).astype(tables.dtype)
        for flow in (into, out):
            for name, amount in flow.items():
                flow[name] = amount * works.reshape(-1, *[1] * (amount.ndim - 1))
    queues = {name: xp.maximum(state[name] - out[name], 0.0) + into[name] for name in queue_shapes(params)}
    departed = {name: xp.minimum(state[name], out[name]) for name in queue_shapes(params)}

    into["delay"], out["delay"] = _delay(xp, tables, state, decision, when)
    departed["delay"] = out["delay"]
    queues["delay"] = xp.maximum(state["delay"] + into["delay"] - out["delay"], 0.0)
    if params.cpu_virtual_queues:
        cpu = tables.cpu[tables.index]
        used = of_nodes(xp, tables.numbering, xp.where(decision.filled, decision.weight, 0.0))
        first_of_cloud = decision.weight[:, -params.cap_cloud, None]
        work = cpu * xp.concatenate([used[:, :-1], first_of_cloud], axis=1)
        for name, part in parts.items():
            queues[f"cpu_{name}"] = xp.maximum(state[f"cpu_{name}"] + work[:, part] - cpu[:, part], 0.0)
    if params.running_scales:
        for name, backlog in reported(queues).items():
            queues[f"max_{name}"] = xp.maximum(state[f"max_{name}"], backlog)
    return queues, {"in": into, "out": out, "dep": departed}


def _served(xp, tables, decision, when) -> Array:
    """Capacity [B, nodes] in Mbit: what the CPU of a node can compute of the tasks that it admitted."""
    cycles = tables.cycles[when].reshape(len(decision.task), -1)
    per_bit = xp.where(decision.filled, decision.weight / xp.take_along_axis(cycles, decision.task, axis=1), 0.0)
    served = of_nodes(xp, tables.numbering, per_bit)
    if not tables.params.empty_places_idle:
        idle = of_nodes(xp, tables.numbering, xp.where(decision.filled, 0.0, decision.weight))
        served = served + idle / tables.density[tables.index][:, None]
    return 1e3 * tables.cpu[tables.index] * served


def _pooled(xp, tables, decision, bits, rate, into, out) -> None:
    """Adds the flows of radio, wires and what they feed, one queue for all sources and destinations."""
    Ns, Ne = tables.params.servers, tables.params.edges
    uplink = rate[:, Ns:].sum(axis=1)  # [B, Nc] at the access edge
    sent = xp.where(decision.uploaded, bits, 0.0).sum(axis=2)
    tasks = of_routes(xp, tables.params, xp.ones_like(bits), decision, decision.admitted, decision.at_access)
    wires = (tasks * tables.wire_rate[tables.index]).sum(axis=1)  # [B, Ne + 1] into every edge and the cloud
    listed = decision.listed[:, Ns:]
    into["v2i"] = xp.where(decision.at_access, sent[:, None], 0.0).sum(axis=2)
    into["i2i"] = xp.where(listed[:, :Ne] & ~decision.at_access, uplink[:, None], 0.0).sum(axis=2)
    into["i2c"] = xp.where(listed[:, Ne:], uplink[:, None], 0.0).sum(axis=2)
    out["v2i"], out["i2i"], out["i2c"] = rate[:, Ns:].sum(axis=2), wires[:, :Ne], wires[:, Ne:]
    into["vc"] = xp.minimum(into["v2v"], out["v2v"])
    into["ec"] = xp.minimum(into["v2i"], out["v2i"]) + xp.minimum(into["i2i"], out["i2i"])
    into["cc"] = xp.minimum(into["i2c"], out["i2c"])


def _routed(xp, tables, state, decision, bits, rate, into, out) -> None:
    """Adds the flows of radio, wires and what they feed, a queue for each access edge and destination."""
    Ns, Ne = tables.params.servers, tables.params.edges
    wire, home = tables.wire_rate[tables.index], xp.eye(Ne, dtype=bool)
    backlog = state["v2i"]
    pooled = backlog.sum(axis=2, keepdims=True)
    into["v2i"] = of_routes(xp, tables.params, bits, decision, decision.admitted, decision.at_access)
    out["v2i"] = rate[:, Ns:].sum(axis=2)[..., None] * (backlog / xp.where(pooled > 0.0, pooled, 1.0))
    uploaded = xp.minimum(backlog, out["v2i"])  # [B, Ne, Ne + 1]
    into["i2i"], out["i2i"] = xp.where(home, 0.0, uploaded[..., :Ne]), wire[..., :Ne]
    into["i2c"], out["i2c"] = uploaded[..., Ne], wire[..., Ne]
    at_home = xp.where(home, uploaded[..., :Ne], 0.0)
    into["vc"] = xp.minimum(state["v2v"], out["v2v"])
    into["ec"] = (at_home + xp.minimum(state["i2i"], out["i2i"])).sum(axis=1)
    into["cc"] = xp.minimum(state["i2c"], out["i2c"]).sum(axis=1, keepdims=True)


def _delay(xp, tables, state, decision, when) -> tuple[Array, Array]:
    """In and out [B, Nc] of the delay queues: backlog on the chosen paths, and bits that arrive on average; Mbit."""
    B, Nc, Ne = len(tables.index), tables.params.clients, tables.params.edges
    vehicles = (state["v2v"] + state["vc"])[xp.arange(B)[:, None, None], tables.server_of[when]]  # [B, Nc, S]
    computing = xp.concatenate([state["ec"], state["cc"]], axis=1)[:, None]  # [B, 1, Ne + 1]
    if tables.params.slot_tandem:
        links = xp.concatenate([xp.maximum(state["v2i"], state["i2i"]), state["i2c"]], axis=1)[:, None]
    else:
        wires = xp.concatenate([state["i2i"], state["i2c"][..., None]], axis=2)
        links = state["v2i"].sum(axis=2, keepdims=True) + wires  # [B, Ne, Ne + 1] from each access edge
        links = xp.matmul(xp.swapaxes(decision.at_access, 1, 2).astype(tables.dtype), links)
    upward = xp.broadcast_to(links + computing, (B, Nc, Ne + 1))
    paths = xp.concatenate([state["lc"][..., None], vehicles, upward], axis=2)  # [B, Nc, O]
    tasks = xp.maximum(decision.present.sum(axis=2), 1).astype(tables.dtype)

    def mean(values):
        return xp.where(decision.present, values, 0.0).sum(axis=2) / tasks

    chosen = xp.take_along_axis(paths, decision.target, axis=2)
    return mean(chosen), mean(tables.rate[when]) * (MBIT * mean(tables.mean[when]))


# ---- cost


def cost(xp, tables: Tables, state: dict[str, Array], decision: Decision, flows, when):
    """Cost [B], its kinds [B, n] in mW, GHz and MB m, and the largest of each so far where they run along."""
    params = tables.params
    Nc, Ns, Ne = params.clients, params.servers, params.edges
    power, scales = decision.power, tables.power[tables.index]
    if not params.idle_power_paid:
        sends = [decision.members[:, :Ns].any(axis=1), decision.members[:, Ns:].any(axis=1)]
        power = xp.where(xp.stack(sends, axis=1), power, 0.0)
    cpu = tables.cpu[tables.index]
    used = of_nodes(xp, tables.numbering, xp.where(decision.filled, decision.weight, 0.0))
    if not params.empty_places_idle:
        used = used + of_nodes(xp, tables.numbering, xp.where(decision.filled, 0.0, decision.weight))
    if not params.idle_power_paid:
        departed, served = (
            xp.concatenate([flows[way][name] for name in ("lc", "vc", "ec", "cc")], axis=1) for way in ("dep", "out")
        )
        used = used * (departed / xp.where(served > 0.0, served, 1.0))
    if params.all_covering_pay:
        counted, through = decision.present, tables.covered[when]
    else:
        counted, through = decision.admitted, decision.at_access
    amounts = of_routes(xp, params, tables.size[when], decision, counted, through)
    hauled = amounts * tables.wire[tables.index]  # MB m
    i2i, i2c = hauled[..., :Ne].sum(axis=2), hauled[..., Ne]

    work = cpu * used
    raw = {
        "power_v2v": (1e3 * power[:, 0], 1e3 * scales),
        "power_v2i": (1e3 * power[:, 1], 1e3 * scales),
        "lc": (work[:, :Nc], cpu[:, :Nc]),
        "vc": (work[:, Nc : Nc + Ns], cpu[:, Nc : Nc + Ns]),
        "ec": (work[:, Nc + Ns : -1], cpu[:, Nc + Ns : -1]),
        "i2i": (i2i, tables.cost_scale["i2i"][tables.index][:, None]),
        "i2c": (i2c, tables.cost_scale["i2c"][tables.index][:, None]),
        "cc": (work[:, -1:], cpu[:, -1:]),
    }
    if params.running_scales:
        maxima = {f"cost_{name}": xp.maximum(state[f"cost_{name}"], amount) for name, (amount, _) in raw.items()}
        share = {name: over(xp, tables, amount, maxima[f"cost_{name}"]) for name, (amount, _) in raw.items()}
    else:
        maxima, share = {}, {name: amount / scale for name, (amount, scale) in raw.items()}
    mean = {name: value.mean(axis=1) for name, value in share.items()}
    clients = (mean["power_v2v"] + mean["power_v2i"] + mean["lc"]) / 3
    edges = (mean["ec"] + mean["i2i"] + mean["i2c"]) / 3
    total = 0.25 * (clients + mean["vc"] + edges + mean["cc"])
    return total, {name: amount for name, (amount, _) in raw.items()}, maxima


def over(xp, tables: Tables, amount, most) -> Array:
    """An amount over its largest so far; where that is 0, what the switch says."""
    idle = 1.0 if tables.params.zero_max_is_one else 0.0
    return xp.where(most > 0.0, amount / xp.where(most > 0.0, most, 1.0), idle)


def reported(queues: dict[str, Array]) -> dict[str, Array]:
    """Backlogs [B, n] as they are observed: a routed family summed over its destinations or sources."""
    backlog = {name: queues[name] for name in FAMILIES}
    if backlog["v2i"].ndim == 3:
        backlog["v2i"], backlog["i2i"] = backlog["v2i"].sum(axis=2), backlog["i2i"].sum(axis=1)
        backlog["i2c"] = backlog["i2c"].sum(axis=1, keepdims=True)
    return backlog
