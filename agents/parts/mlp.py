"""A multilayer perceptron whose numbers are one tensor, with its gradient written out.

For layers of some 64 units automatic differentiation takes several times as long as their arithmetic, and on the CPU
torch's own products of a gradient still twice as long.
"""

import ctypes
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import torch

from .kernels import require
from .native import functions

SOURCE = Path(__file__).with_name("mlp.cuh")
LANES = 16  # a multiple of those of a vector
SMALL = 2**24  # multiplications of a layer, up to which several threads are not worth their waking


def small(rows: int, widths: Sequence[int]) -> bool:
    """True where the products of rows with layers of these widths are best done by one thread."""
    return rows * max(widths) ** 2 < SMALL


class MLP:
    """Linear layers with ReLU between.

    Args:
        widths: inputs, units of each hidden layer, outputs.
        device: of all tensors.
        seed: of the first numbers, which are drawn on the CPU.
        dtype: float32 or float64.

    Attributes:
        parameters, gradient: [P], layer by layer, each weight [outputs, inputs] and bias [outputs].
    """

    def __init__(self, widths: Sequence[int], device: torch.device, seed: int = 0, dtype: torch.dtype = torch.float32):
        self.widths, self.shapes = list(widths), [(outputs, inputs) for inputs, outputs in itertools.pairwise(widths)]
        count = sum(outputs * (inputs + 1) for outputs, inputs in self.shapes)
        self.parameters, self.gradient = torch.zeros(2, count, dtype=dtype, device=device)
        self.layers, self._slopes = self._views(self.parameters), self._views(self.gradient)
        generator = torch.Generator().manual_seed(seed)
        for weight, bias in self.layers:  # as `torch.nn.Linear` begins: U(-x, x), x = 1 / sqrt(inputs)
            for part in (weight, bias):
                uniform = torch.rand(part.shape, generator=generator)
                part.copy_((2 * uniform - 1) / math.sqrt(weight.shape[1]))
        self._compiled = None
        if self.parameters.device.type == "cpu":
            (self._compiled,) = functions(SOURCE, dtype, mlp_backward="pippipppp")
            self._widths = torch.tensor(self.widths)

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
        """Fills `gradient` with that of a loss; small ones on the CPU in C++.

        Args:
            kept: the `activations`, whose first N rows the loss is made of.
            slope: [N, m], derivatives of the loss by the outputs.
        """
        rows = len(slope)
        if self._compiled is not None and small(rows, self.widths):
            shape = (min(rows, len(kept[0])), self.widths[-1])
            slope = require("slope", slope.contiguous(), shape, self.gradient.dtype, self.gradient.device)
            kept = [layer.contiguous() for layer in kept]
            padded = -(-max(self.widths) // LANES) * LANES
            slopes, panels = slope.new_empty(2 * rows * padded), slope.new_empty(max(rows, padded) * padded)
            numbers = self.parameters.data_ptr(), self.gradient.data_ptr(), rows
            inputs = (ctypes.c_void_p * len(kept))(*(layer.data_ptr() for layer in kept)), slope.data_ptr()
            room = slopes.data_ptr(), panels.data_ptr()
            self._compiled(self._widths.data_ptr(), len(self.layers), *numbers, *inputs, *room)
            return
        for number in reversed(range(len(self.layers))):
            weight, bias = self._slopes[number]
            before = kept[number][:rows]
            torch.mm(slope.t(), before, out=weight)
            torch.sum(slope, 0, out=bias)
            if number:
                slope = (slope @ self.layers[number][0]).mul_(before > 0)
