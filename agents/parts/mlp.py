"""A multilayer perceptron whose numbers are one tensor, with its gradient written out.

For layers of some 64 units automatic differentiation takes several times as long as their arithmetic, and on the CPU
torch's own products of a gradient still twice as long.
"""

import ctypes
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, Self

import torch
from torch import nn

from .kernels import require
from .module import sequential
from .native import functions
from .precision import arithmetic

SOURCE = Path(__file__).with_name("mlp.cuh")
LANES = 16  # a multiple of those of a vector
CPU = torch.device("cpu")
SMALL = 2**24  # multiplications of a layer, up to which several threads are not worth their waking


def small(rows: int, widths: Sequence[int]) -> bool:
    """True where the products of rows with layers of these widths are best done by one thread."""
    return rows * max(widths) ** 2 < SMALL


def seeds(seed: int, count: int) -> list[int]:
    """Seeds of the first numbers of so many networks, or parts of one."""
    draws = torch.Generator("cpu").manual_seed(seed)
    return torch.randint(2**31, (count,), generator=draws, dtype=torch.int64, device="cpu").tolist()


def _addresses(tensors: Sequence[torch.Tensor]) -> ctypes.Array:
    return (ctypes.c_void_p * len(tensors))(*[tensor.data_ptr() for tensor in tensors])


class Network(Protocol):
    """A function trained in one piece: its numbers are one tensor [P], and so is their gradient."""

    parameters: torch.Tensor
    gradient: torch.Tensor

    def multiply(self, precision: str) -> None:
        """Has matrix products made in one of `precision.PRECISIONS` from now on; at first it is "fp32"."""
        ...

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...

    def copy(self) -> Self:
        """Another one with the same numbers, whose products are "fp32"."""
        ...


class Joined:
    """A network of several, whose numbers lie in one tensor, those of one after those of the other.

    Args:
        members: the others; their numbers move into that tensor.
        **made_of: what the class takes to make another one.

    Attributes:
        parameters, gradient: [P].
        layers: a weight [outputs, inputs] and a bias [outputs] of each layer of each.
    """

    def __init__(self, members: Sequence["MLP | Joined"], **made_of):
        self._members, self._made_of = members, made_of
        first, count = members[0].parameters, sum(member.parameters.numel() for member in members)
        self.move(*torch.zeros(2, count, dtype=first.dtype, device=first.device))

    @property
    def layers(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [layer for member in self._members for layer in member.layers]

    def copy(self) -> Self:
        """Another one with the same numbers."""
        copy = type(self)(**self._made_of)
        copy.parameters.copy_(self.parameters)
        return copy

    def move(self, parameters: torch.Tensor, gradient: torch.Tensor) -> None:
        """Moves the numbers into `parameters` [P], and has its gradient written to `gradient` [P] from now on."""
        counts = [member.parameters.numel() for member in self._members]
        for member, *places in zip(self._members, parameters.split(counts), gradient.split(counts), strict=True):
            member.move(*places)
        self.parameters, self.gradient = parameters, gradient

    def multiply(self, precision: str) -> None:
        """Has matrix products made in this precision from now on."""
        for member in self._members:
            member.multiply(precision)


@functools.cache
def _functions(dtype: torch.dtype) -> list[Callable]:
    return functions(SOURCE, dtype, mlp_forward="piipipp", mlp_backward="piippiippppp")


class Compiled:
    """Passes in C++ of perceptrons of the same widths on the CPU, one call for all of them.

    Axes: N rows; a leading one of the perceptrons where `stacked`, and none otherwise.

    Args:
        members: the perceptrons; only one of them unless `stacked`.
    """

    def __init__(self, members: Sequence["MLP"], stacked: bool = False):
        self.widths, numbers = members[0].widths, members[0].parameters
        self._forward, self._backward = _functions(numbers.dtype)
        self._kind, self._lead = numbers.dtype, (len(members),) * stacked
        self._columns = torch.tensor(self.widths, device="cpu")
        self._sizes = self._columns.data_ptr(), len(self.widths) - 1, len(members)
        self._parameters = _addresses([member.parameters for member in members])
        self._gradients = _addresses([member.gradient for member in members])
        self._padded = -(-max(self.widths) // LANES) * LANES
        self._room = (-1, 0, 0)

    def takes(self, x: torch.Tensor) -> bool:
        """True where a pass of x [N, n] is one of C++."""
        fits = x.device.type == "cpu" and x.dtype == self._kind and not x.requires_grad
        return fits and small(x.shape[0], self.widths)

    def passed(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The `activations` of x [N, n]: x, and [..., N, *] of each layer."""
        rows, inputs = x.shape
        if inputs != self.widths[0]:
            raise ValueError(f"x must be [N, {self.widths[0]}], got {[rows, inputs]}")
        kept = [x.contiguous(), *(x.new_empty(*self._lead, rows, width) for width in self.widths[1:])]
        self._forward(*self._sizes, self._parameters, rows, _addresses(kept), self._room_for(rows)[1])
        return kept

    def descended(
        self, kept: Sequence[torch.Tensor], slope: torch.Tensor, learns: bool, descends: bool
    ) -> torch.Tensor | None:
        """The pass of `MLP.backward`, with slope [..., N, m].

        learns: fill the gradients.
        """
        rows, given = slope.shape[-2], len(kept[0])
        shape = (*self._lead, min(rows, given), self.widths[-1])
        slope = require("slope", slope.contiguous(), shape, self._kind, CPU)
        kept = [layer.contiguous() for layer in kept]
        by_inputs = slope.new_empty(*self._lead, rows, self.widths[0]) if descends else None
        gradients = self._gradients if learns else None
        layers = *self._sizes, self._parameters, gradients, rows, given, _addresses(kept), slope.data_ptr()
        self._backward(*layers, *self._room_for(rows), by_inputs.data_ptr() if descends else None)
        return by_inputs

    def _room_for(self, rows: int) -> tuple[int, int]:
        """Addresses of room for two layers' slopes of so many rows, and for the panels of a layer."""
        if rows > self._room[0]:
            sizes = 2 * rows * self._padded, max(rows, self._padded) * self._padded
            self._scratch = [torch.empty(size, dtype=self._kind, device="cpu") for size in sizes]
            self._room = rows, *(part.data_ptr() for part in self._scratch)
        return self._room[1:]


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
        generator = torch.Generator("cpu").manual_seed(seed)
        for weight, bias in self.layers:  # as `torch.nn.Linear` begins: U(-x, x), x = 1 / sqrt(inputs)
            for part in (weight, bias):
                uniform = torch.rand(part.shape, generator=generator, dtype=torch.float32, device="cpu")
                part.copy_((2 * uniform - 1) / math.sqrt(weight.shape[1]))
        self._precision = "fp32"
        self._compiled = Compiled([self]) if self.parameters.device.type == "cpu" else None

    def _views(self, flat: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        parts = iter(flat.split([size for outputs, inputs in self.shapes for size in (outputs * inputs, outputs)]))
        return [(next(parts).view(shape), next(parts)) for shape in self.shapes]

    def copy(self) -> "MLP":
        """Another one with the same numbers."""
        copy = MLP(self.widths, self.parameters.device, dtype=self.parameters.dtype)
        copy.parameters.copy_(self.parameters)
        return copy

    def move(self, parameters: torch.Tensor, gradient: torch.Tensor) -> None:
        """Moves the numbers into `parameters` [P], and has its gradient written to `gradient` [P] from now on."""
        parameters.copy_(self.parameters)
        self.parameters, self.gradient = parameters, gradient
        self.layers, self._slopes = self._views(parameters), self._views(gradient)
        self._compiled = Compiled([self]) if self._compiled else None

    def multiply(self, precision: str) -> None:
        """Has matrix products made in this precision from now on."""
        self._precision = precision

    @property
    def in_cpp(self) -> bool:
        """True where passes may be made in C++: on the CPU, in "fp32"."""
        return self._compiled is not None and self._precision == "fp32"

    def activations(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The inputs [N, n], each hidden layer's output [N, *], and the outputs [N, m]; in C++ where small."""
        if self.in_cpp and self._compiled.takes(x):
            return self._compiled.passed(x)
        kept = [x]
        with arithmetic(self._precision, self.parameters.device):
            for number, (weight, bias) in enumerate(self.layers, start=1):
                x = torch.addmm(bias, x, weight.t())
                kept.append(x.relu_() if number < len(self.layers) else x.to(self.parameters.dtype))
        return kept

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.activations(x)[-1]

    def backward(
        self, kept: Sequence[torch.Tensor], slope: torch.Tensor, descends: bool = False
    ) -> torch.Tensor | None:
        """Fills `gradient` with that of a loss; small ones on the CPU in C++.

        Args:
            kept: the `activations`, whose first N rows the loss is made of.
            slope: [N, m], derivatives of the loss by the outputs.
            descends: give derivatives [N, n] by the inputs too.
        """
        rows = len(slope)
        if self.in_cpp and small(rows, self.widths):
            return self._compiled.descended(kept, slope, True, descends)
        with arithmetic(self._precision, self.parameters.device):
            for number in reversed(range(len(self.layers))):
                weight, bias = self._slopes[number]
                before = kept[number][:rows]
                self._product(slope.t(), before, out=weight)
                torch.sum(slope, 0, out=bias)
                if number or descends:
                    slope = self._product(slope, self.layers[number][0])
                if number:
                    slope.mul_(before > 0)
        return slope if descends else None

    def _product(self, one: torch.Tensor, other: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """A product [*, *], float32 or float64 as the numbers are, whatever the precision of its factors."""
        if self._precision != "bf16":
            return torch.mm(one, other, out=out)
        found = torch.mm(one, other)  # autocast leaves alone what is given its place
        return found.to(self.parameters.dtype) if out is None else out.copy_(found)

    def sequential(self) -> nn.Sequential:
        """The network as a module of torch that shares its numbers."""
        return sequential(self.layers, nn.ReLU)

    def slope_of_inputs(self, kept: Sequence[torch.Tensor], slope: torch.Tensor) -> torch.Tensor:
        """Derivatives [N, n] of a loss by the inputs.

        Args:
            kept: the `activations` of N rows.
            slope: [N, m], derivatives of the loss by the outputs.
        """
        if self.in_cpp and small(len(slope), self.widths):
            return self._compiled.descended(kept, slope, False, True)
        with arithmetic(self._precision, self.parameters.device):
            for number in reversed(range(len(self.layers))):
                slope = self._product(slope, self.layers[number][0])
                if number:
                    slope.mul_(kept[number] > 0)
        return slope

    def slope_of_last(self, kept: Sequence[torch.Tensor], slope: torch.Tensor, count: int) -> torch.Tensor:
        """Derivatives [N, count] of a loss by the last inputs, of arguments as `slope_of_inputs` takes them."""
        return self.slope_of_inputs(kept, slope)[:, -count:]
