"""The attention model: an encoder of nodes, and the keys from which a walk is decoded (README.md, 5.3).

Axes: B problems, N nodes, F features, d width.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ....checks import choice, integer
from ...params import TICKS, Params
from ...scenario.scenario import box, scaled
from .problems import Nodes

CLIP = 10.0  # of the logits
TIME_MIN = 40.0  # by which travel times are scaled
OF_HEAD = 8  # numbers, or a multiple, as decode.cuh sums them
PARTS = 4  # of what a walk reads of a node: key, value, key of the pointer, query
MOST = {"width": 1024, "layers": 16, "heads": 128, "ff": 4096}  # of a shape, so that making a network takes no minute


@dataclass(frozen=True)
class Shape:
    """Sizes and forms of a network.

    Raises:
        ValueError: a size or form that is none; names it.
    """

    width: int = 128  # d
    layers: int = 3
    heads: int = 8
    ff: int = 512
    norm: Literal["layer", "batch"] = "layer"
    features: Literal["row", "plane"] = "row"  # of a node's zone: travel times to all zones, or its place
    pairs: bool = True  # a node is told of its partner's features
    legs: bool = True  # logits are told of the leg, the wait and the slack
    raw: bool = False  # features in minutes and requests

    def __post_init__(self):
        for size, most in MOST.items():
            integer(size, getattr(self, size), 1, most)
        if self.width % (OF_HEAD * self.heads):
            raise ValueError(f"width={self.width} must be a multiple of {OF_HEAD} for each of heads={self.heads}")
        choice("norm", self.norm, ("layer", "batch"))
        choice("features", self.features, ("row", "plane"))
        for form in ("pairs", "legs", "raw"):
            choice(form, getattr(self, form), (False, True))


class Norm(nn.Module):
    """Normalisation over a node's numbers, or over the batch's nodes."""

    def __init__(self, width: int, over: str):
        super().__init__()
        self.over = over
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        if over == "batch":
            self.register_buffer("mean", torch.zeros(width))
            self.register_buffer("variance", torch.ones(width))

    def forward(self, h: Tensor, there: Tensor, statistics: bool) -> Tensor:
        if self.over == "layer":
            return F.layer_norm(h, h.shape[-1:], self.scale, self.shift)
        mean, variance = self.mean, self.variance
        if statistics:
            weight = (there / there.sum()).to(h.dtype).unsqueeze(-1)
            mean = (h * weight).sum((0, 1))
            variance = ((h - mean) ** 2 * weight).sum((0, 1))
            if self.training:
                self.mean.lerp_(mean.detach(), 0.1)
                self.variance.lerp_(variance.detach(), 0.1)
        return (h - mean) / (variance + 1e-5).sqrt() * self.scale + self.shift


class Layer(nn.Module):
    """Attention and a network of one hidden layer, each with a residual and a norm."""

    def __init__(self, shape: Shape):
        super().__init__()
        d, self.heads = shape.width, shape.heads
        self.queries_keys_values, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, shape.ff), nn.Linear(shape.ff, d)
        self.first, self.second = Norm(d, shape.norm), Norm(d, shape.norm)

    def forward(self, h: Tensor, there: Tensor, mask: Tensor | None, statistics: bool) -> Tensor:
        three = self.queries_keys_values(h).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*three, attn_mask=mask).transpose(1, 2).flatten(2)
        h = self.first(h + self.out(mixed), there, statistics)
        return self.second(h + self.down(F.relu(self.up(h))), there, statistics)


class Network(nn.Module):
    """The network of a city.

    Args:
        travel: [Z, Z] ticks.
    """

    def __init__(self, shape: Shape, params: Params, travel: np.ndarray):
        super().__init__()
        d = shape.width
        self.shape, self.params = shape, params
        table = zone_features(shape, travel)
        self.register_buffer("zones", torch.from_numpy(table).float(), persistent=False)
        load, time = (1.0, 1.0 / TICKS) if shape.raw else (1.0 / params.capacity, 1.0 / params.horizon_ticks)
        scales = [load, *[time] * (2 if shape.features == "row" else 3)]  # of demand, e, l, and where asked for service
        self.register_buffer("scales", torch.tensor(scales), persistent=False)
        features = table.shape[1] + len(scales)
        self.embed = nn.Linear(features, d)
        self.partner = nn.Linear(features, d, bias=False) if shape.pairs and params.paired else None
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.keys_values = nn.Linear(d, 2 * d, bias=False)
        self.pointer, self.out = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.here, self.graph = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.context = nn.Parameter(torch.zeros(3, d))  # what load, clock and step add to a query
        self.legs = nn.Parameter(torch.zeros(3)) if shape.legs else None

    def features(self, nodes: Nodes) -> Tensor:
        """Features [B, N, F] of nodes."""
        columns = [nodes.demand, nodes.earliest, nodes.latest, nodes.service][: len(self.scales)]
        numbers = torch.stack(columns, -1) * self.scales
        return torch.cat([self.zones[nodes.zone.long()], numbers], -1)

    def forward(self, nodes: Nodes, statistics: bool = False) -> Tensor:
        """Numbers of each node that walks read, [B, N, 4 d]: key, value, key of the pointer, query.

        Args:
            statistics: a batch norm takes this batch's (`batch_statistics`), not the stored ones.
        """
        x, there = self.features(nodes), nodes.there
        h = self.embed(x)
        if self.partner is not None:
            across = x[:, 1:].unflatten(1, (-1, 2)).flip(2).flatten(1, 2)
            h = h + F.pad(self.partner(across), (0, 0, 1, 0))
        h, mask = h * there.unsqueeze(-1), there[:, None, None, :]
        for layer in self.layers:
            h = layer(h, there, mask, statistics)
        h = h * there.unsqueeze(-1)
        mean = h.sum(1, keepdim=True) / there.sum(1)[:, None, None]
        d, heads = self.shape.width, self.shape.heads
        key, value = self.keys_values.weight.split(d)
        # Logits are q' K with q' = out(glimpse): `out` goes into K, once for all nodes instead of once for a selection.
        pointer = self.out.weight.T @ self.pointer.weight
        weight = torch.cat([key / math.sqrt(d // heads), value, pointer / math.sqrt(d), self.here.weight])
        keys = F.linear(h, weight)
        keys[..., 3 * d :] += self.graph(mean)
        return keys


def zone_features(shape: Shape, travel: np.ndarray) -> np.ndarray:
    """Features of zones, [Z, Z] travel times, or [Z, 2] places in the smallest square round them."""
    if shape.features == "row":
        return travel / (TICKS if shape.raw else TICKS * TIME_MIN)
    return box(scaled(np.asarray(travel)))


def asked_of(params: Params, load: Tensor, clock: Tensor, step, requests: Tensor, dtype: torch.dtype) -> Tensor:
    """Load, clock and step as a query knows them, [B, 3].

    Args:
        load, clock: [B] int32.
        step: selections so far.
        requests: [B] in a problem.
    """
    share = torch.as_tensor(step, device=load.device).expand_as(load)
    return torch.stack([
        load.to(dtype) / params.capacity, clock.to(dtype) / params.horizon_ticks,
        share.to(dtype) / (2 * requests.clamp(min=1)).to(dtype),
    ], -1)  # fmt: skip


def moves(leg: Tensor, clock: Tensor, earliest: Tensor, latest: Tensor, dtype: torch.dtype) -> Tensor:
    """Of moves to each node the leg, the time until service starts, and the slack, [..., N, 3] in units of 40 min.

    Args:
        leg, earliest, latest: [..., N] ticks; node 0 is the depot, whose slack is 0.
        clock: [..., 1] ticks.
    """
    arrival, depot = clock + leg, torch.arange(leg.shape[-1], device=leg.device) == 0
    start = torch.where(depot, arrival, torch.maximum(arrival, earliest))
    slack = torch.where(depot, 0, latest - arrival)
    return torch.stack([part.to(dtype) for part in (leg, start - clock, slack)], -1) / (TIME_MIN * TICKS)


def shape_of(fields: dict) -> Shape:
    """A shape of its fields, of which those unknown are left out."""
    return Shape(**{field.name: fields[field.name] for field in dataclasses.fields(Shape) if field.name in fields})
