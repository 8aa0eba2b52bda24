"""Policies that a fused rollout can carry in its kernel."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

HIDDEN = (16, 32, 64)  # widths that an MLP's kernels are compiled for
LAYERS = (nn.Linear, nn.Tanh, nn.Linear, nn.Tanh, nn.Linear)


@dataclass(frozen=True)
class Linear:
    """A fixed linear policy on scores = weights @ obs + bias.

    Discrete actions: the one with the highest score, the lowest such action first. A continuous action: the one score,
    clipped to the space. An environment copies it once: numbers changed in place later are not seen.

    Args:
        weights: [m, n], m actions (1 of a Box), n observation components.
        bias: [m].
    """

    weights: Sequence
    bias: Sequence

    def tensors(self, m: int, n: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights [m, n] and bias [m], float32 copies on the device.

        Raises:
            ValueError: a wrong shape, or values that are not finite.
        """
        found = []
        for name, shape in (("weights", (m, n)), ("bias", (m,))):
            given = getattr(self, name)
            try:
                tensor = torch.as_tensor(given, dtype=torch.float32, device=device).clone().contiguous()
            except (TypeError, ValueError, RuntimeError):
                raise ValueError(f"policy.{name} must be numbers of shape {shape}, got {given!r:.80}") from None
            if tuple(tensor.shape) != shape:
                raise ValueError(f"policy.{name} has shape {tuple(tensor.shape)}; this environment needs {shape}")
            if not bool(tensor.isfinite().all()):
                raise ValueError(f"policy.{name} holds values that are not finite")
            found.append(tensor)
        return found[0], found[1]


@dataclass(frozen=True, eq=False)
class MLP:
    """A small network as a policy, and another one as its critic; their numbers are read at each launch.

    Discrete actions: the actor's outputs are logits. A continuous action: its one output is the mean of a normal
    distribution, and the environment gets the sample clipped to the space.

    Args:
        actor: Sequential(Linear(n, H), Tanh(), Linear(H, H), Tanh(), Linear(H, m)) in float32 on the environment's
            device, H one of 16, 32, 64.
        critic: the same with one output, or None: no values are kept.
        log_std: [1] logarithm of the standard deviation of a continuous action; None is 0.
        greedy: the likeliest action instead of a sample.
    """

    actor: nn.Sequential
    critic: nn.Sequential | None = None
    log_std: torch.Tensor | None = None
    greedy: bool = False

    def check(self, m: int, n: int, continuous: bool, device: torch.device) -> int:
        """The hidden width H.

        Raises:
            ValueError: layers, shapes, dtype or device that the kernel is not written for.
        """
        hidden = _width(self.actor, "actor", n, m, device)
        if self.critic is not None and _width(self.critic, "critic", n, 1, device) != hidden:
            raise ValueError(f"policy.critic must have {hidden} hidden units like policy.actor")
        if self.log_std is not None:
            if not continuous:
                raise ValueError("policy.log_std belongs to continuous actions; this environment's are discrete")
            if not isinstance(self.log_std, torch.Tensor) or not _fits(self.log_std, (1,), device):
                raise ValueError(f"policy.log_std must be a float32 tensor of shape (1,) on {device}")
        if not isinstance(self.greedy, bool):
            raise ValueError(f"policy.greedy={self.greedy!r} must be True or False")
        return hidden

    def numbers(self) -> torch.Tensor:
        """All numbers in one float32 tensor, in the order of `mlp.cuh`."""
        some = self.actor[0].weight
        log_std = some.new_zeros(1) if self.log_std is None else self.log_std.detach()
        parts = [*_flat(self.actor), log_std, some.new_zeros(3)]
        return torch.cat(parts if self.critic is None else [*parts, *_flat(self.critic)])


def _width(network, name: str, inputs: int, outputs: int, device: torch.device) -> int:
    if not isinstance(network, nn.Sequential) or tuple(map(type, network)) != LAYERS:
        found = type(network).__name__
        if isinstance(network, nn.Sequential):
            found += f"({', '.join(type(layer).__name__ for layer in network)})"
        raise ValueError(f"policy.{name} must be Sequential(Linear, Tanh, Linear, Tanh, Linear), got {found}")
    hidden = network[0].out_features
    if hidden not in HIDDEN:
        raise ValueError(f"policy.{name} has {hidden} hidden units; allowed: {', '.join(map(str, HIDDEN))}")
    for place, shape in ((0, (hidden, inputs)), (2, (hidden, hidden)), (4, (outputs, hidden))):
        layer = network[place]
        if layer.bias is None:
            raise ValueError(f"policy.{name}[{place}] needs a bias")
        for kind, tensor, needed in (("weights", layer.weight, shape), ("bias", layer.bias, shape[:1])):
            if not _fits(tensor, needed, device):
                found = f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"
                raise ValueError(f"policy.{name}[{place}]: {kind} must be {needed} float32 on {device}, got {found}")
    return hidden


def _fits(tensor: torch.Tensor, shape: tuple[int, ...], device: torch.device) -> bool:
    return tuple(tensor.shape) == shape and tensor.dtype == torch.float32 and tensor.device == device


def _flat(network: nn.Sequential) -> list[torch.Tensor]:
    """Weights and biases, layer by layer, padded to a multiple of four numbers."""
    parts = [part.detach().flatten() for layer in network[::2] for part in (layer.weight, layer.bias)]
    padding = -sum(part.numel() for part in parts) % 4
    return [*parts, parts[0].new_zeros(padding)] if padding else parts
