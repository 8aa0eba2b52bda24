"""The distribution over a Box: normal numbers by Box and Muller, as `envs/kernels/mlp.cuh` makes them."""

import functools
import math
from dataclasses import dataclass

import torch

from .distribution import UNIT, Distribution

HALF_LN_2PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class Gaussian(Distribution):
    """A normal number z for each component, with free log_std; the environment gets z clipped.

    The outputs are the means. log p and entropy are those of z.
    """

    low: tuple[float, ...]  # [m]
    high: tuple[float, ...]  # [m]

    m = outputs = free = property(lambda self: len(self.low))
    sizes = ()
    words = property(lambda self: 2 * self.m)
    stored_shape = property(lambda self: (self.m,))
    stored_dtype = torch.float32
    in_kernels = True

    def variates(self, noise):
        """Box and Muller: words 2j and 2j + 1 make normal j, the first uniform number lies in (0, 1]."""
        first, second = noise[..., 0 : self.words : 2].float(), noise[..., 1 : self.words : 2].float()
        radius = (first * UNIT).add_(UNIT).log_().mul_(-2).sqrt_()
        return (second * (2 * math.pi * UNIT)).cos_().mul_(radius)

    def sample(self, out, free, noise, mask=None):
        normal = noise if noise.is_floating_point() else self.variates(noise)
        return torch.addcmul(out, free.exp(), normal), _log_prob(normal, free)

    def mode(self, out, free=None, mask=None):
        return out

    def log_prob_entropy(self, out, free, action, mask=None):
        log_prob = _log_prob((action - out) / free.exp(), free)
        entropy = free.sum(dim=-1) + free.shape[-1] * (0.5 + HALF_LN_2PI)
        return log_prob, entropy.expand_as(log_prob)

    def of_components(self, out, free, action, mask=None):
        normal = (action - out) * (-free).exp()
        return torch.addcmul(-HALF_LN_2PI - free, normal, normal, value=-0.5), free + (0.5 + HALF_LN_2PI)

    def to_environment(self, action):
        row = _row.__wrapped__ if torch.compiler.is_compiling() else _row  # a cache would keep an export's fake tensors
        return torch.clamp(action, row(self.low, action.device), row(self.high, action.device))


def _log_prob(normal, log_std):
    """log p [...] of mean + e^log_std * normal, summed over the components."""
    return -normal.shape[-1] * HALF_LN_2PI - torch.addcmul(log_std, normal, normal, value=0.5).sum(dim=-1)


@functools.cache
def _row(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    """The values as a float32 row on the device, copied there once."""
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=torch.float32, device=device)
