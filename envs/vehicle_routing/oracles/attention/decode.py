"""Decoding of walks in torch operations: one selection of all walks at a time."""

import torch
from torch import Tensor

from .network import CLIP, Network, asked_of, moves
from .problems import Answers, Nodes
from .walks import Walks


def decode(
    network: Network, travel: Tensor, nodes: Nodes, keys: Tensor, samples: int = 1,
    uniform: Tensor | None = None, first: Tensor | None = None,
) -> Answers:  # fmt: skip
    """Answers of B x samples walks, those of a problem in a row.

    Args:
        travel: [Z, Z] int32 ticks.
        keys: [B, N, 4 d] of the encoder.
        uniform: [samples, places] numbers of U[0, 1), by which nodes are drawn, the same for every problem; None:
            greedy, ties to the lowest index.
        first: [B x samples] first nodes, where they are allowed; None: chosen like the others.
    """
    params = network.params
    walks, keys = Walks(params, travel, nodes.repeated(samples)), keys.repeat_interleave(samples, 0)
    drawn = None if uniform is None else uniform.to(keys).repeat(len(nodes.zone), 1)
    step = 0
    while not bool(walks.over.all()):
        allowed = walks.allowed()
        logit = logits(network, walks, keys, allowed, step)
        node = logit.argmax(1) if drawn is None else pick(logit, drawn[:, step])
        if step == 0 and first is not None:
            node = torch.where(allowed.gather(1, first[:, None])[:, 0] & ~walks.over, first, node)
        walks.select(node)
        step += 1
    return walks.answers()


def logits(network: Network, walks: Walks, keys: Tensor, allowed: Tensor, step: int) -> Tensor:
    """Logits [B, N] before they are clipped, of nodes that are not allowed the lowest number."""
    d, heads = network.shape.width, network.shape.heads
    key, value, pointer, query = keys.split(d, -1)
    asked = asked_of(walks.params, walks.load, walks.clock, step, walks.requests, keys.dtype)
    here = query.gather(1, walks.at[:, None, None].expand(-1, 1, d))[:, 0] + asked @ network.context
    lowest = torch.finfo(keys.dtype).min
    score = (
        (key * here[:, None]).unflatten(-1, (heads, -1)).sum(-1).masked_fill(~allowed[..., None], lowest)
    )  # [B, N, heads]
    weight = score.softmax(1).masked_fill(~allowed[..., None], 0.0)
    glimpse = (weight[..., None] * value.unflatten(-1, (heads, -1))).sum(1).flatten(1)
    logit = (pointer @ glimpse[..., None])[..., 0]
    if network.legs is not None:
        given = (walks.legs(), walks.clock[:, None], walks.nodes.earliest, walks.due)
        logit = logit + moves(*given, keys.dtype) @ network.legs
    return logit.masked_fill(~allowed, lowest)


def pick(logit: Tensor, u: Tensor) -> Tensor:
    """Nodes [B] drawn by numbers u [B] of U[0, 1)."""
    allowed = logit > torch.finfo(logit.dtype).min
    clipped = (CLIP * logit.tanh()).masked_fill(~allowed, -torch.inf)
    below = (clipped - clipped.amax(1, keepdim=True)).exp().cumsum(1)
    found = (below <= (u * below[:, -1])[:, None]).sum(1)
    last = logit.shape[1] - 1 - allowed.flip(1).int().argmax(1)
    return torch.minimum(found, last)
