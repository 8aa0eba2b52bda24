"""Streams of value and advantage (Wang et al., 2016) whose layers have learned noise (Fortunato et al., 2018).

Axes: N or k rows, n components of an observation, m actions, z numbers for each.
"""

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import nn

from .encoder import Encoder
from .mlp import MLP, seeds


def combined(value: torch.Tensor, advantage: torch.Tensor, z: int) -> torch.Tensor:
    """V + A - the mean of A over actions, [N, m, z], of what the streams give, [N, z] and [N, m * z]."""
    value, advantage = (out.unflatten(1, (-1, z)) for out in (value, advantage))
    return value + advantage - advantage.mean(dim=1, keepdim=True)


class NoisyDuelling:
    """A ReLU layer, then two streams of linear layers with ReLU between; the gradient is written out.

    Numbers of the streams are mean + scale * noise. A weight's noise is f(e) f(e') and a bias's f(e), with
    f(e) = sign(e) sqrt |e|, of a standard normal number for each output e and each input e' of its layer. In use is the
    noise of the last `set_noise` or `sample_noise`, or since `remove_noise` none.

    Args:
        n, m, z: as above.
        encoder: width of the first layer, which has no noise, or an encoder in its place, whose numbers are copied.
        hidden: widths of each stream's layers but the last.
        sigma: scales begin as this over the square root of their layer's inputs.
        device: of all tensors.
        seed: of the first means, which are those of `MLP`.

    Attributes:
        parameters, gradient: [P + S], means of all layers' numbers, then scales of those of the streams.
        noise: [S].
    """

    def __init__(
        self,
        n: int,
        m: int,
        z: int,
        encoder: int | Encoder,
        hidden: Sequence[int],
        sigma: float,
        device: torch.device,
        seed: int = 0,
    ):
        self._sizes = n, m, z, encoder, hidden, sigma, device, seed
        width = encoder if isinstance(encoder, int) else encoder.width
        widths = [n, width], [width, *hidden, z], [width, *hidden, m * z]
        self.parts = [MLP(part, device, own) for part, own in zip(widths, seeds(seed, len(widths)), strict=True)]
        if isinstance(encoder, Encoder):
            self.parts[0] = encoder.copy()
        self.encoder, *self.streams = self.parts
        self.z, self.device, self._counts = z, device, [part.parameters.numel() for part in self.parts]
        self._shapes = [shape for stream in self.streams for shape in stream.shapes]
        scales = [
            torch.full((outputs * (inputs + 1),), sigma / math.sqrt(inputs), dtype=torch.float32, device=device)
            for outputs, inputs in self._shapes
        ]
        self.parameters = torch.cat([*(part.parameters for part in self.parts), *scales])
        self.gradient = torch.zeros_like(self.parameters)
        self.noise = torch.zeros(sum(self._counts[1:]), dtype=torch.float32, device=device)

    def copy(self) -> Self:
        """Another one with the same numbers, and no noise in use."""
        other = NoisyDuelling(*self._sizes)
        other.parameters.copy_(self.parameters)
        return other

    def multiply(self, precision: str) -> None:
        """Has matrix products made in this precision from now on."""
        for part in self.parts:
            part.multiply(precision)

    def normal(self, generator: torch.Generator | None) -> torch.Tensor:
        """Standard normal numbers for `set_noise`, of the generator or of torch's own."""
        count = sum(sum(shape) for shape in self._shapes)
        return torch.randn(count, dtype=torch.float32, device=self.device, generator=generator)

    def sample_noise(self, generator: torch.Generator | None) -> None:
        """Takes new noise into use."""
        self.set_noise(self.normal(generator))

    def set_noise(self, normal: torch.Tensor) -> None:
        """Takes noise of standard normal numbers into use."""
        sizes = [size for shape in self._shapes for size in shape]
        factors = (normal.sign() * normal.abs().sqrt()).split(sizes)
        pairs = zip(factors[::2], factors[1::2], strict=True)
        noise = [part for outputs, inputs in pairs for part in (torch.outer(outputs, inputs).flatten(), outputs)]
        torch.cat(noise, out=self.noise)
        self._take()

    def remove_noise(self) -> None:
        """Takes the means into use."""
        self.noise.zero_()
        self._take()

    def _take(self) -> None:
        *means, scales = self.parameters.split([*self._counts, len(self.noise)])
        self.encoder.parameters.copy_(means[0])
        of_streams = self._counts[1:]
        parts = means[1:], scales.split(of_streams), self.noise.split(of_streams)
        for stream, mean, scale, noise in zip(self.streams, *parts, strict=True):
            torch.addcmul(mean, scale, noise, out=stream.parameters)

    def activations(self, x: torch.Tensor) -> list[list[torch.Tensor]]:
        """Those of the encoder for observations [N, n], of the value and of the advantages."""
        encoded = self.encoder.activations(x)
        features = encoded[-1].relu()
        return [encoded, *(stream.activations(features) for stream in self.streams)]

    def combined(self, kept: Sequence[Sequence[torch.Tensor]]) -> torch.Tensor:
        """[N, m, z] of `activations`."""
        return combined(*(layers[-1] for layers in kept[1:]), self.z)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.combined(self.activations(x))

    def backward(self, kept: Sequence[Sequence[torch.Tensor]], slope: torch.Tensor) -> None:
        """Fills `gradient` with that of a loss.

        Args:
            kept: the `activations`, whose first k rows the loss is made of.
            slope: [k, m, z], derivatives of the loss by what is combined.
        """
        encoded, *streams = ([layer[: len(slope)] for layer in layers] for layers in kept)
        slopes = slope.sum(dim=1), (slope - slope.mean(dim=1, keepdim=True)).flatten(1)
        by_features = torch.zeros_like(encoded[-1])
        for stream, layers, own in zip(self.streams, streams, slopes, strict=True):
            by_features += stream.backward(layers, own, descends=True)
        self.encoder.backward(encoded, by_features * (encoded[-1] > 0))
        by_means, by_scales = self.gradient.split([sum(self._counts), len(self.noise)])
        torch.cat([part.gradient for part in self.parts], out=by_means)
        torch.mul(by_means[self._counts[0] :], self.noise, out=by_scales)

    def sequential(self, support: torch.Tensor) -> nn.Sequential:
        """The means of `Expected` by observations [N, n], as a module that shares the numbers in use."""
        encoder, *streams = (part.sequential() for part in self.parts)
        return nn.Sequential(encoder, nn.ReLU(), Expected(*streams, support))


class Expected(nn.Module):
    """Means [N, m] of distributions over a support [z], whose logits are what the streams give, combined."""

    def __init__(self, value: nn.Sequential, advantage: nn.Sequential, support: torch.Tensor):
        super().__init__()
        self.value, self.advantage = value, advantage
        self.register_buffer("support", support)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        logits = combined(self.value(features), self.advantage(features), len(self.support))
        return logits.softmax(dim=-1) @ self.support
