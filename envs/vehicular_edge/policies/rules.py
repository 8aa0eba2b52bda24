"""Policies that look up an option and search for nothing.

Nodes are numbered through: client i is i, then come servers, edges and the cloud.
"""

import numpy as np

from ...noise import RANDOM_POLICY
from ..slot.numbering import Array
from .views import Action, Noise, View, where_its_view_is

# ---- Layouts -------------------------------------------------------------------------------------------------------


def nodes(view: View) -> Array:
    """The node of each client's options, [B, Nc, O]; one that admits nothing where the option leads to none of its own.

    That is a server that is missing (it means local), and without an access edge every edge and the cloud.
    """
    xp, params, nowhere = view.xp, view.params, view.tables.numbering.nodes
    Nc, Ns, Ne = params.clients, params.servers, params.edges
    batch, servers = (view.size, Nc), view.now("server_of")
    beyond = xp.broadcast_to(Nc + Ns + xp.arange(Ne + 1), (*batch, Ne + 1))
    return xp.concatenate(
        [
            xp.broadcast_to(xp.arange(Nc)[:, None], (*batch, 1)),
            xp.where(servers >= 0, Nc + servers, nowhere),
            xp.where(view.now("access")[..., None] >= 0, beyond, nowhere),
        ],
        axis=-1,
    )


def equal_shares(view: View) -> Array:
    """Weights [B, A1], all equal."""
    return view.xp.ones((view.size, view.params.share_length), dtype=np.float32)


# ---- Policies ------------------------------------------------------------------------------------------------------


@where_its_view_is
def local(view: View, noise: Noise) -> Action:
    """Every task at its own client."""
    params = view.params
    return {"target": view.xp.zeros((view.size, params.clients, params.tasks), np.int32), "share": equal_shares(view)}


@where_its_view_is
def nearest_edge(view: View, noise: Noise) -> Action:
    """Every task at the access edge of its client, where there is none at the client."""
    xp, params, access = view.xp, view.params, view.now("access")
    option = xp.where(access >= 0, 1 + params.server_choices + access, 0).astype(np.int32)
    target = xp.repeat(option[..., None], params.tasks, axis=-1)
    return {"target": target, "share": equal_shares(view)}


@where_its_view_is
def random(view: View, noise: Noise) -> Action:
    """Raw actions U[0, 1), decoded: what the port's own random policy does."""
    xp, params = view.xp, view.params
    raw = noise.uniform(xp, 2 * params.action_length, RANDOM_POLICY)
    chosen = raw[:, : params.target_length].astype(np.float64)
    if params.cloud_only_at_one:
        option = xp.floor(chosen * (params.options - 1))
    else:
        option = xp.minimum(xp.floor(chosen * params.options), params.options - 1)
    share = raw[:, params.action_length : params.action_length + params.share_length]
    return {"target": option.astype(np.int32).reshape(-1, params.clients, params.tasks), "share": share}


@where_its_view_is
def rounding(view: View, noise: Noise) -> Action:
    """Randomised rounding: O weights U[0, 1) for each task and one draw from them; random shares."""
    xp, params = view.xp, view.params
    tasks, options = params.target_length, params.options
    drawn = noise.uniform(xp, tasks * (options + 1) + params.share_length)
    of_tasks = drawn[:, : tasks * (options + 1)].reshape(-1, tasks, options + 1).astype(np.float64)
    below = xp.cumsum(of_tasks[..., :options], axis=-1)
    mark = of_tasks[..., options:] * below[..., -1:]
    option = xp.minimum((below <= mark).sum(axis=-1), options - 1).astype(np.int32)
    share = drawn[:, tasks * (options + 1) :]
    return {"target": option.reshape(-1, params.clients, params.tasks), "share": share}


@where_its_view_is
def greedy(view: View, noise: Noise) -> Action:
    """Each task in order of admission where link and queues look best among the nodes with room; the first one local.

    The k-th task at a node gets a CPU share in proportion to its work times its size, power goes to the bands in
    proportion to the mean link.
    """
    xp, params, numbering = view.xp, view.params, view.tables.numbering
    first, cap = numbering.place_share[numbering.place_rank == 0], numbering.cap
    where, exists, weight = nodes(view), view.exists, (view.work * view.now("size")).astype(np.float32)
    scores = promise(view)
    b = xp.arange(view.size)
    used = xp.zeros((view.size, len(cap)), dtype=np.int64)
    target = xp.zeros((view.size, params.clients, params.tasks), dtype=np.int32)
    share = xp.zeros((view.size, params.share_length), dtype=np.float32)
    for place in range(params.clients):
        client = (view.first_client + place) % params.clients  # [B]
        at, score = where[b, client], scores[b, client]  # [B, O]
        for j in range(params.tasks):
            room = used[b[:, None], at] < cap[at]
            option = xp.argmax(xp.where(room, score, -np.inf), axis=-1)
            if j == 0:
                option = xp.where(room[:, 0], 0, option)
            node = at[b, option]
            admitted = exists[b, client, j] & room[b, option]
            place_of = first[xp.minimum(node, numbering.nodes - 1)] + used[b, node]
            share[b[admitted], place_of[admitted]] = weight[b, client, j][admitted]
            used[b, node] += admitted
            target[b, client, j] = xp.where(admitted, option, 0)
    share[:, numbering.power_share] = band_weights(view)
    return {"target": target, "share": share}


def promise(view: View) -> Array:
    """Score of each option of a client, of which `greedy` takes the highest, [B, Nc, O]."""
    xp, params = view.xp, view.params
    Nc, Ne = params.clients, params.edges
    free = {name: 1.0 / (1.0 + view.scaled(name)) for name in ("lc", "v2v", "vc", "v2i", "i2i", "ec", "i2c", "cc")}
    v2v, v2i = links(view)
    b, i = xp.arange(view.size)[:, None, None], xp.arange(Nc)[None, :, None]
    server = xp.maximum(view.now("server_of"), 0)
    access = xp.maximum(view.now("access"), 0)[..., None]  # [B, Nc, 1]
    at_server = v2v[b, i, server] * (free["v2v"][b, server] + free["vc"][b, server])
    beyond = free["v2i"][b, access] + (free["i2i"] + free["ec"])[:, None, :]
    at_edge = v2i[b, i, access] * beyond
    averages = [1.0 / (1.0 + view.scaled(name).mean(axis=-1)) for name in ("v2i", "i2i", "i2c", "cc")]
    at_cloud = xp.broadcast_to((sum(averages) / 4.0)[:, None, None], (view.size, Nc, 1))
    at_edge = xp.broadcast_to(at_edge, (view.size, Nc, Ne))
    return xp.concatenate([free["lc"][..., None], at_server, at_edge, at_cloud], axis=-1)


def links(view: View) -> tuple[Array, Array]:
    """Links to servers [B, Nc, Ns] and edges [B, Nc, Ne]: the rate alone and at full power, over the client's largest.

    0 where a server cannot be chosen or an edge does not cover the client.
    """
    xp, params = view.xp, view.params
    chosen = (view.now("server_of")[..., None] == xp.arange(params.servers)).any(axis=-2)
    covered = view.now("covered").swapaxes(1, 2) > 0
    usable = xp.concatenate([chosen, covered], axis=-1)
    snr = view.now("snr").swapaxes(1, 2) * view.always("power")[..., None]  # [B, Nc, Ns + Ne]
    rates = view.tables.bandwidth * xp.log1p(snr) * usable
    largest = rates.max(axis=-1, keepdims=True)
    found = rates / xp.where(largest > 0, largest, 1.0)
    return found[..., : params.servers], found[..., params.servers :]


def band_weights(view: View) -> Array:
    """Power weights [B, Nc, 2] in proportion to the mean link of the band; equal where there is no link at all."""
    xp = view.xp
    means = [link.sum(axis=-1) / xp.maximum((link > 0).sum(axis=-1), 1) for link in links(view)]
    weights = xp.stack(means, axis=-1)
    return xp.where(weights.sum(axis=-1, keepdims=True) > 0, weights, 1.0).astype(np.float32)
