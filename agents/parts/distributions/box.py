"""Distributions over a Box: normal numbers by Box and Muller, as `envs/kernels/mlp.cuh` makes them, and beta numbers of
two gamma numbers, each the first of a fixed number of proposals that is accepted.
"""

import functools
import math
from dataclasses import dataclass

import torch
from torch.nn.functional import softplus

from .distribution import UNIT, Distribution

HALF_LN_2PI = 0.5 * math.log(2 * math.pi)
PROPOSALS = 4  # for each gamma number


@dataclass(frozen=True)
class OnBox(Distribution):
    """What the distributions over a Box share: its bounds and the form of a stored action."""

    low: tuple[float, ...]  # [m]
    high: tuple[float, ...]  # [m]

    m = property(lambda self: len(self.low))
    sizes = ()
    stored_shape = property(lambda self: (self.m,))
    stored_dtype = torch.float32

    @functools.cached_property
    def _log_widths(self) -> tuple[float, ...]:
        return tuple(math.log(high - low) for low, high in zip(self.low, self.high, strict=True))

    @functools.cached_property
    def _log_volume(self) -> float:
        return sum(self._log_widths)

    def _bounds(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        return _row(self.low, device), _row(self.high, device)


class Gaussian(OnBox):
    """A normal number z for each component, with free log_std; the environment gets z clipped.

    The outputs are the means. log p and entropy are those of z.
    """

    outputs = free = property(lambda self: self.m)
    words = property(lambda self: 2 * self.m)

    def variates(self, noise):
        """Box and Muller: words 2j and 2j + 1 make normal j, the first uniform number lies in (0, 1]."""
        return _normal(noise[..., 0 : self.words : 2], noise[..., 1 : self.words : 2])

    def sample(self, out, free, noise, mask=None):
        normal = noise if noise.is_floating_point() else self.variates(noise)
        return torch.addcmul(out, free.exp(), normal), _normal_log_prob(normal, free)

    def mode(self, out, free=None, mask=None):
        return out

    def log_prob_entropy(self, out, free, action, mask=None):
        log_prob = _normal_log_prob((action - out) / free.exp(), free)
        return log_prob, _normal_entropy(free).expand_as(log_prob)

    def of_components(self, out, free, action, mask=None):
        normal = (action - out) * (-free).exp()
        return torch.addcmul(-HALF_LN_2PI - free, normal, normal, value=-0.5), free + (0.5 + HALF_LN_2PI)

    def to_environment(self, action):
        return torch.clamp(action, *self._bounds(action.device))


class Squashed(Gaussian):
    """a = mid + half tanh z of a Gaussian z. z is stored, since it cannot be found again from an a near a bound.

    log p and entropy are those of a; the greedy action is that of the mean of z.
    """

    def sample(self, out, free, noise, mask=None):
        z, log_prob = super().sample(out, free, noise)
        return z, log_prob - self._log_slope(z)

    def log_prob_entropy(self, out, free, action, mask=None):
        """The entropy has no closed form: it is that of z plus ln da/dz at the one z there is, an estimate.

        That z stands as mean + deviation * normal, so that the estimate has the entropy's gradient on average. -log p,
        the plain estimate, has a gradient that is 0 on average where z was drawn from the same distribution.
        """
        deviation = free.exp()
        normal = (action - out) / deviation
        log_slope = self._log_slope(torch.addcmul(out, deviation, normal.detach()))
        return _normal_log_prob(normal, free) - log_slope.detach(), _normal_entropy(free) + log_slope

    def of_components(self, out, free, action, mask=None):
        log_probs, entropies = super().of_components(out, free, action)
        z = torch.addcmul(out, free.exp(), ((action - out) / free.exp()).detach())
        log_slopes = 2 * (math.log(2) - z - softplus(-2 * z)) + (_row(self._log_widths, z.device) - math.log(2))
        return log_probs - log_slopes.detach(), entropies + log_slopes

    def to_environment(self, action):
        # (1 + tanh z) / 2 = sigmoid(2 z); lerp, unlike mid + half tanh z, never rounds beyond a bound.
        return torch.lerp(*self._bounds(action.device), torch.sigmoid(2 * action))

    def _log_slope(self, z):
        """ln da/dz [...] summed over components: 1 - tanh^2 z in logarithms, which is finite for any finite z."""
        log_sech = math.log(2) - z - softplus(-2 * z)
        return 2 * log_sech.sum(dim=-1) + (self._log_volume - self.m * math.log(2))


class Beta(OnBox):
    """a = low + (high - low) x, x of a beta distribution with both parameters above 1 (Chou et al., ICML 2017).

    The outputs are alpha's of all components, then beta's, before 1 + softplus. x is stored; log p and entropy are
    those of a.

    x = g / (g + h), gamma numbers of shapes alpha and beta by the method of Marsaglia and Tsang (ACM TOMS 26, 2000),
    which accepts a proposal with probability e^d Gamma(a) d^(1/2 - a) / sqrt(2 pi) for shape a, d = a - 1/3: at a >= 1
    at least 0.9516. Of a fixed number of proposals, 4, none is accepted with probability 5.5e-6 at most; the first
    is then taken all the same. So the law of a component's x is off by at most 1.1e-5 in total variation.
    """

    outputs = property(lambda self: 2 * self.m)
    words = property(lambda self: 3 * PROPOSALS * self.outputs)

    def variates(self, noise):
        """A normal number n for each proposal, of shape [4, 2m], and n^2 / 2 - ln u, which its test needs.

        The first third of the words are the normals' first, the second their second, the last u in (0, 1].
        """
        first, second, last = noise[..., : self.words].unflatten(-1, (3, PROPOSALS, self.outputs)).unbind(-3)
        normal = _normal(first, second)
        bound = torch.addcmul((last * UNIT).add_(UNIT).log_().neg_(), normal, normal, value=0.5)
        return torch.stack((normal, bound), dim=-3)

    def sample(self, out, free, noise, mask=None):
        normal, bound = (noise if noise.is_floating_point() else self.variates(noise)).unbind(-3)
        shape = 1 + softplus(out)
        d = (shape - 1 / 3).unsqueeze(-2)
        # The proposal is d (1 + r)^3. Clamping makes it positive: its logarithm, -50, is as good as always rejected.
        r = (normal * (9 * d).rsqrt()).clamp_min(UNIT - 1)
        accepted = bound + 3 * d * (r.log1p() - r * (1 + r * (1 + r / 3))) > 0  # ln v + 1 - v, without cancellation
        first = accepted.view(torch.uint8).argmax(dim=-2, keepdim=True)
        gamma, other = (d * (1 + r.gather(-2, first)) ** 3).squeeze(-2).chunk(2, dim=-1)
        x = gamma / (gamma + other)
        return x, self._log_prob(self._unit(shape), x)

    def mode(self, out, free=None, mask=None):
        alpha, beta = softplus(out).clamp_min(1e-30).chunk(2, dim=-1)  # less 1; both may underflow
        return alpha / (alpha + beta)

    def log_prob_entropy(self, out, free, action, mask=None):
        unit = self._unit(1 + softplus(out))
        return self._log_prob(unit, action), unit.entropy().sum(dim=-1) + self._log_volume

    def of_components(self, out, free, action, mask=None):
        unit, log_widths = self._unit(1 + softplus(out)), _row(self._log_widths, out.device)
        return unit.log_prob(action.clamp(UNIT, 1 - UNIT)) - log_widths, unit.entropy() + log_widths

    def to_environment(self, action):
        return torch.lerp(*self._bounds(action.device), action)

    def _unit(self, shape) -> torch.distributions.Beta:
        return torch.distributions.Beta(*shape.chunk(2, dim=-1), validate_args=False)  # to validate is to synchronise

    def _log_prob(self, unit, x):
        """At 0 and 1, where rounding may put x, log p can be infinite and its gradient NaN."""
        return unit.log_prob(x.clamp(UNIT, 1 - UNIT)).sum(dim=-1) - self._log_volume


def _normal(first, second):
    """Box and Muller: a normal number of two words each."""
    radius = (first * UNIT).add_(UNIT).log_().mul_(-2).sqrt_()
    return (second * (2 * math.pi * UNIT)).cos_().mul_(radius)


def _normal_log_prob(normal, log_std):
    """log p [...] of mean + e^log_std * normal, summed over the components."""
    return -normal.shape[-1] * HALF_LN_2PI - torch.addcmul(log_std, normal, normal, value=0.5).sum(dim=-1)


def _normal_entropy(log_std):
    return log_std.sum(dim=-1) + log_std.shape[-1] * (0.5 + HALF_LN_2PI)


@functools.cache
def _row(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    """The values as a float32 row on the device, copied there once."""
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=torch.float32, device=device)
