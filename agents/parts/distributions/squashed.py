"""Numbers without bounds, squashed into a Box, with the density that squashing leaves them."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from gymnasium.spaces import Box
from torch.nn.functional import softplus

from .distribution import Distribution
from .gaussian import HALF_LN_2PI, Gaussian, _row

NEAR = 1e-6  # added to 1 - a^2


@dataclass(frozen=True)
class Squashed:
    """A squash of numbers z to actions a in (-1, 1), which are scaled to a Box.

    Axes: m components of a Box; all else are leading axes.

    Args:
        low, high: of the Box, finite [m].
        form: "tanh", or "atan" for (2 / pi) atan z.
        as_tanh: densities and their slopes are those of tanh all the same, 1 - a^2 + 1e-6, as in some published code.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    form: str = "tanh"
    as_tanh: bool = False

    @property
    def m(self) -> int:
        return len(self.low)

    def __call__(self, z: torch.Tensor) -> torch.Tensor:
        """a of z."""
        return z.tanh() if self.form == "tanh" else z.atan() * (2 / math.pi)

    def slope(self, z: torch.Tensor) -> torch.Tensor:
        """da/dz, of each component."""
        return z.cosh().pow_(-2) if self.form == "tanh" else (2 / math.pi) / (1 + z * z)

    def log_slope(self, z: torch.Tensor) -> torch.Tensor:
        """ln da/dz, of each component, finite however large z is."""
        if self.form == "tanh":
            return 2 * (math.log(2) - z - softplus(-2 * z))
        return math.log(2 / math.pi) - (z * z).log1p()

    def log_stretch(self, z: torch.Tensor) -> torch.Tensor:
        """The logarithm that `log_prob` subtracts for each component: `log_slope`, or that of tanh where asked for."""
        return self._slope_of_tanh(z).log() if self.as_tanh else self.log_slope(z)

    def _slope_of_tanh(self, z: torch.Tensor) -> torch.Tensor:
        """1 - a^2 + 1e-6, of which tanh's own slope is 1 - a^2 without cancellation."""
        return (self.slope(z) if self.form == "tanh" else 1 - self(z).square()) + NEAR

    def bend(self, z: torch.Tensor) -> torch.Tensor:
        """The derivative of `log_stretch` by z, of each component."""
        if self.as_tanh:
            return -2 * self(z) * self.slope(z) / self._slope_of_tanh(z)
        return -2 * z.tanh() if self.form == "tanh" else -2 * z / (1 + z * z)

    def log_prob(self, z: torch.Tensor, normal: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
        """ln of the density of a [...], where z = mean + e^log_std * normal; all [..., m]."""
        each = -HALF_LN_2PI - torch.addcmul(log_std, normal, normal, value=0.5) - self.log_stretch(z)
        return each.sum(dim=-1)

    def mode(self, out: torch.Tensor) -> torch.Tensor:
        """a of the actor's first m outputs, which are z or its mean."""
        return self(out[..., : self.m])

    def to_environment(self, action: torch.Tensor) -> torch.Tensor:
        """Actions in [-1, 1] as numbers of the Box."""
        row = _row.__wrapped__ if torch.compiler.is_compiling() else _row  # as in `Gaussian`
        low, high = (row(bound, action.device) for bound in (self.low, self.high))
        scaled = torch.addcmul(0.5 * (low + high), 0.5 * (high - low), action)
        return torch.clamp(scaled, low, high)  # rounding may leave it


@dataclass(frozen=True)
class SquashedGaussian(Gaussian):
    """A normal number z for each component, with free log_std; the environment gets z squashed.

    The outputs are the means, and z is what is stored. log p is that of the action a in (-1, 1). Its entropy is that of
    z and the mean of ln da/dz, which has no closed form: it is that of the one z at hand, whose slope is the one of
    mean + e^log_std * normal with the same normal number.
    """

    squash: Squashed
    in_kernels = False

    @classmethod
    def of(cls, squash: Squashed) -> "SquashedGaussian":
        return cls(squash.low, squash.high, squash)

    def sample(self, out, free, noise, mask=None):
        z, log_prob = super().sample(out, free, noise, mask)
        return z, log_prob - self.squash.log_slope(z).sum(dim=-1)

    log_prob_entropy = Distribution.log_prob_entropy

    def of_components(self, out, free, action, mask=None):
        log_prob, entropy = super().of_components(out, free, action, mask)
        normal = ((action - out) * (-free).exp()).detach()
        z = torch.addcmul(out, free.exp(), normal)
        return log_prob - self.squash.log_slope(action), entropy + self.squash.log_slope(z)

    def to_environment(self, action):
        return self.squash.to_environment(self.squash(action))


def of(space, form: str = "tanh") -> Squashed:
    """The squash into an action space.

    Raises:
        ValueError: it is no Box of one axis, floating-point numbers and finite bounds.
    """
    floats = isinstance(space, Box) and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating)
    if not floats or not space.is_bounded():
        raise ValueError(f"no squash into action space {space}; it must be a float Box of one axis with finite bounds")
    return Squashed(*(tuple(np.asarray(bound, np.float32).tolist()) for bound in (space.low, space.high)), form)
