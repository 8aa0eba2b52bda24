"""A multilayer perceptron whose numbers are one tensor, with its gradient written out.

For layers of some 64 units automatic differentiation takes several times as long as their arithmetic, and on the CPU
so do torch's own operations.
"""

import ctypes
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import torch

from .kernels import functions, require

SOURCE = Path(__file__).with_name("mlp.cuh")
WIDEST = 256  # layer for which the CPU's compiled form is faster than torch
LANES = 16  # a multiple of those of a vector


class MLP:
    """Linear layers with ReLU between.

    On the CPU layers of up to WIDEST units are C++, in one thread; a row's outputs do not depend on the other rows.

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
        self.compiled = self.parameters.device.type == "cpu" and max(widths) <= WIDEST
        if self.compiled:
            self._forward, self._backward = functions(SOURCE, dtype, mlp_forward="pipipp", mlp_backward="pippipppp")
            self._widths = torch.tensor(self.widths)
            self._padded = -(-max(widths) // LANES) * LANES

    def _views(self, flat: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        parts = iter(flat.split([size for outputs, inputs in self.shapes for size in (outputs * inputs, outputs)]))
        return [(next(parts).view(shape), next(parts)) for shape in self.shapes]

    def activations(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The inputs [N, n], each hidden layer's output [N, *], and the outputs [N, m]."""
        if self.compiled:
            x = require("x", x.contiguous(), (len(x), self.widths[0]), self.parameters.dtype, self.parameters.device)
            kept = [x, *(x.new_empty(len(x), width) for width in self.widths[1:])]
            panels = x.new_empty(self._padded * self._padded)
            shape = self._widths.data_ptr(), len(self.layers)
            self._forward(*shape, self.parameters.data_ptr(), len(x), _addresses(kept), panels.data_ptr())
            return kept
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
            kept: the `activations`, whose first N rows the loss is made of.
            slope: [N, m], derivatives of the loss by the outputs.
        """
        rows = len(slope)
        if self.compiled:
            require("slope", slope, (min(rows, len(kept[0])), self.widths[-1]), slope.dtype, kept[0].device)
            room = slope.new_empty(2 * rows + max(rows, self._padded), self._padded)
            parts = self.parameters.data_ptr(), self.gradient.data_ptr(), rows, _addresses(kept), slope.data_ptr()
            places = room.data_ptr(), room[2 * rows :].data_ptr()
            self._backward(self._widths.data_ptr(), len(self.layers), *parts, *places)
            return
        for number in reversed(range(len(self.layers))):
            weight, bias = self._slopes[number]
            before = kept[number][:rows]
            torch.mm(slope.t(), before, out=weight)
            torch.sum(slope, 0, out=bias)
            if number:
                slope = (slope @ self.layers[number][0]).mul_(before > 0)


def _addresses(tensors: Sequence[torch.Tensor]) -> ctypes.Array:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
