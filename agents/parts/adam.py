"""Adam (Kingma and Ba, 2015) on parameters that are one tensor, with a limit on the gradient's norm."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch.optim.adam import adam

from .kernels import require
from .native import functions

SOURCE = Path(__file__).with_name("adam.cuh")
BETA1, BETA2 = 0.9, 0.999


def within(norm: torch.Tensor, limit: float) -> torch.Tensor:
    """The factors that bring gradients of these norms to a limit; 1 where they are below."""
    return (limit / (norm + 1e-6)).clamp_(max=1.0)


class Adam:
    """Steps that wait for nothing; on the CPU they are C++, in one thread, and moments too small to be normal become 0.

    Args:
        parameters: [P], which are changed in place.
        gradient: [P], read at every step where it lies.
        limit: of the gradient's norm.
        epsilon: added to the root of the second moment.
        average: makes the gradient, before its norm is taken, the mean of those of all processes.

    Attributes:
        state: tensors by name: first and second, the moments [P], and steps float32 [], how many there were.
    """

    def __init__(
        self,
        parameters: torch.Tensor,
        gradient: torch.Tensor,
        limit: float,
        epsilon: float = 1e-8,
        average: Callable[[torch.Tensor], None] | None = None,
    ):
        require("gradient", gradient, parameters.shape, parameters.dtype, parameters.device)
        self.parameters, self.gradient, self.limit, self.epsilon = parameters, gradient, limit, epsilon
        self.average = average
        steps = torch.zeros((), dtype=torch.float32, device=parameters.device)
        self.state = {"first": torch.zeros_like(parameters), "second": torch.zeros_like(parameters), "steps": steps}
        self._compiled = None
        if parameters.device.type == "cpu":
            (self._compiled,) = functions(SOURCE, parameters.dtype, adam_limited="ppppppiddddd")
            self._places = [part.data_ptr() for part in (parameters, gradient, *self.state.values())]

    def step(self, lr: float | torch.Tensor) -> torch.Tensor:
        """One step, unless the gradient is not finite; its norm [].

        lr: the learning rate, a number, or a tensor [] on the device of the parameters.
        """
        if self.average is not None:
            self.average(self.gradient)
        if self._compiled is not None:
            norm = self.parameters.new_empty(())
            numbers = self.limit, lr, BETA1, BETA2, self.epsilon
            self._compiled(*self._places, norm.data_ptr(), self.parameters.numel(), *numbers)
            return norm
        norm = torch.linalg.vector_norm(self.gradient)
        self.gradient.mul_(within(norm, self.limit))
        first, second, steps = ([part] for part in self.state.values())
        adam(
            *([self.parameters], [self.gradient], first, second, [], steps),
            **{"fused": True, "found_inf": (norm < math.inf).logical_not().float(), "lr": lr, "eps": self.epsilon},
            **{"beta1": BETA1, "beta2": BETA2, "weight_decay": 0.0, "amsgrad": False, "maximize": False},
        )
        return norm

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        for name, part in self.state.items():
            part.copy_(state[name])
