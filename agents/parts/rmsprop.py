"""RMSprop (Tieleman and Hinton, 2012) on parameters that are one tensor, with a limit on the gradient's norm."""

import math
from collections.abc import Mapping

import torch

from .adam import within
from .kernels import require

DECAY = 0.99  # of the mean square


class RMSprop:
    """Steps that wait for nothing.

    Args:
        parameters: [P], which are changed in place.
        gradient: [P], read at every step where it lies.
        limit: of the gradient's norm.
        epsilon: added to the root of the mean square.

    Attributes:
        state: tensors by name: square, the running mean [P] of squared gradients.
    """

    def __init__(self, parameters: torch.Tensor, gradient: torch.Tensor, limit: float, epsilon: float = 1e-8):
        require("gradient", gradient, parameters.shape, parameters.dtype, parameters.device)
        self.parameters, self.gradient, self.limit, self.epsilon = parameters, gradient, limit, epsilon
        self.state = {"square": torch.zeros_like(parameters)}

    def step(self, lr: float | torch.Tensor) -> torch.Tensor:
        """One step, unless the gradient is not finite; its norm [].

        lr: the learning rate, a number, or a tensor [] on the device of the parameters.
        """
        norm = torch.linalg.vector_norm(self.gradient)
        takes = norm < math.inf  # which NaN is not
        gradient = torch.where(takes, self.gradient * within(norm, self.limit), 0.0)
        square = self.state["square"]
        square.lerp_(gradient.square(), (1 - DECAY) * takes.to(square.dtype))
        self.parameters.addcdiv_(gradient * -lr, square.sqrt().add_(self.epsilon))
        return norm

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        for name, part in self.state.items():
            part.copy_(state[name])
