"""A multilayer perceptron whose numbers are one tensor, with its gradient written out.

For layers of some 64 units automatic differentiation takes several times as long as their arithmetic.
"""

import itertools
import math
from collections.abc import Sequence

import torch


class MLP:
    """Linear layers with ReLU between.

    Args:
        widths: inputs, units of each hidden layer, outputs.
        device: of all tensors.
        seed: of the first numbers, which are drawn on the CPU.

    Attributes:
        parameters, gradient: float32 [P], layer by layer, each weight [outputs, inputs] and bias [outputs].
    """

    def __init__(self, widths: Sequence[int], device: torch.device, seed: int = 0):
        self.shapes = [(outputs, inputs) for inputs, outputs in itertools.pairwise(widths)]
        count = sum(outputs * (inputs + 1) for outputs, inputs in self.shapes)
        self.parameters, self.gradient = torch.zeros(2, count, device=device)
        self.layers, self._slopes = self._views(self.parameters), self._views(self.gradient)
        generator = torch.Generator().manual_seed(seed)
        for weight, bias in self.layers:  # as `torch.nn.Linear` begins: U(-x, x), x = 1 / sqrt(inputs)
            for part in (weight, bias):
                uniform = torch.rand(part.shape, generator=generator)
                part.copy_((2 * uniform - 1) / math.sqrt(weight.shape[1]))

    def _views(self, flat: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        parts = iter(flat.split([size for outputs, inputs in self.shapes for size in (outputs * inputs, outputs)]))
        return [(next(parts).view(shape), next(parts)) for shape in self.shapes]

    def activations(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The inputs [N, n], each hidden layer's output [N, *], and the outputs [N, m]."""
        kept = [x]
        for number, (weight, bias) in enumerate(self.layers, start=1):
            x = torch.addmm(bias, x, weight.t())
            kept.append(x.relu_() if number < len(self.layers) else x)
        return kept

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.activations(x)[-1]

    def backward(self, kept: Sequence[torch.Tensor], slope: torch.Tensor) -> None:
        """Fills `gradient` with that of a loss.

        Args:
            kept: the `activations`, of all rows or of those that the loss is made of.
            slope: [N, m], derivatives of the loss by the outputs.
        """
        for number in reversed(range(len(self.layers))):
            weight, bias = self._slopes[number]
            torch.mm(slope.t(), kept[number], out=weight)
            torch.sum(slope, 0, out=bias)
            if number:
                slope = (slope @ self.layers[number][0]).mul_(kept[number] > 0)
