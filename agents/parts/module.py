"""Networks as modules of torch, and a policy's likeliest actions as one that torch.export and ONNX take."""

import copy
from collections.abc import Iterable

import torch
from torch import nn

from .distributions import Distribution
from .normaliser import normalised


def sequential(layers: Iterable[tuple[torch.Tensor, torch.Tensor]], activation: type[nn.Module]) -> nn.Sequential:
    """Layers, each a weight [outputs, inputs] and a bias [outputs], whose numbers it shares; an activation between."""
    found: list[nn.Module] = []
    for weight, bias in layers:
        layer = nn.Linear(*reversed(weight.shape), device="meta")
        layer.weight, layer.bias = (nn.Parameter(part, requires_grad=False) for part in (weight, bias))
        found += [layer, activation()]
    return nn.Sequential(*found[:-1])


class Greedy(nn.Module):
    """An actor's likeliest actions, from observations [B, n] that it normalises first where its training did.

    It has a copy of the numbers.
    """

    def __init__(self, actor: nn.Sequential, distribution: Distribution, shift=None, scale=None):
        super().__init__()
        self.actor, self.distribution = copy.deepcopy(actor), distribution
        self.register_buffer("shift", None if shift is None else shift.clone())
        self.register_buffer("scale", None if scale is None else scale.clone())

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        x = obs.float()
        if self.shift is not None:
            x = normalised(x, self.shift, self.scale)
        return self.distribution.to_environment(self.distribution.mode(self.actor(x)))
