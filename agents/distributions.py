"""Distributions over actions, between an actor's outputs and what an environment's step takes.

Sampling is a function of noise that is handed in: words of Philox4x32-10 shifted right by 8, integers k of 24 bits
that stand for u = k 2^-24. One of n actions is drawn by inverse distribution function, a normal number by Box and
Muller, both as `envs/kernels/mlp.cuh` does, so that a rollout in the kernel and one in torch draw alike. A beta number
is made of two gamma numbers, each the first of a fixed number of proposals that is accepted.

Axes: [...] any leading axes (learners, steps, environments, agents), m components of a Box, d of a MultiDiscrete.
Nothing here waits for the device or depends on values for its shapes, so a CUDA graph can capture all but `check_mask`,
once it has run before (bounds of a Box are copied to the device at their first use).
"""

import functools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import pad, softplus

from envs.checks import choice
from envs.spaces import Box, Discrete

BOXES = ("clipped", "squashed", "beta")
UNIT = 2.0**-24  # of the noise
FORBIDDEN = -1e8  # logit: exp is exactly 0, and 0 times it is 0, where -inf would give NaN
HALF_LN_2PI = 0.5 * math.log(2 * math.pi)
PROPOSALS = 4  # for each gamma number


class Distribution(ABC):
    """What `of` returns. Scores and probabilities are float32; log p and entropy are of the whole action, in nats.

    Attributes:
        outputs: of the actor.
        free: parameters that do not depend on the observation (log_std of a Gaussian).
        sizes: number of actions of each discrete component; none of a Box.
        masks: width of an action mask, 0 where there is none.
        words: of noise that one action takes.
        stored_shape, stored_dtype: of one action as `sample` returns it and a batch keeps it.
    """

    outputs: int
    free: int = 0
    sizes: tuple[int, ...]
    masks = property(lambda self: sum(self.sizes))
    words: int
    stored_shape: tuple[int, ...]
    stored_dtype: torch.dtype

    @property
    def components(self) -> int:
        """Independent numbers of an action: 1, or as many as are stored."""
        return math.prod(self.stored_shape)

    @property
    def blocks(self) -> int:
        """Philox blocks of four words that one action takes."""
        return -(-self.words // 4)

    def variates(self, noise):
        """The numbers that `sample` makes of noise first; a rollout of many small steps makes them once for all.

        Returns:
            float32 [..., words], uniform in [0, 1); of a Gaussian [..., m], normal; of a Beta [..., 2, 4, 2m].
        """
        return noise[..., : self.words] * UNIT

    @abstractmethod
    def sample(self, out, free, noise, mask=None) -> tuple[torch.Tensor, torch.Tensor]:
        """An action [..., *stored_shape] and its log p [...]; meant for torch.no_grad.

        Args:
            out: [..., outputs].
            free: [..., free], broadcast against `out`; None where there are none.
            noise: int32 [..., 4 * blocks], or what `variates` made of it.
            mask: bool [..., masks], true where allowed; None allows all. A row that allows nothing is drawn uniformly.
        """

    @abstractmethod
    def mode(self, out, free=None, mask=None) -> torch.Tensor:
        """The greedy action [..., *stored_shape], the first of equally likely ones."""

    def log_prob_entropy(self, out, free, action, mask=None) -> tuple[torch.Tensor, torch.Tensor]:
        """log p of stored actions, and the entropy, both [...] and differentiable in `out` and `free`."""
        log_probs, entropies = self.of_components(out, free, action, mask)
        return log_probs.sum(dim=-1), entropies.sum(dim=-1)

    @abstractmethod
    def of_components(self, out, free, action, mask=None) -> tuple[torch.Tensor, torch.Tensor]:
        """Likewise of each of an action's independent components, both [..., components]."""

    def to_environment(self, action) -> torch.Tensor:
        """A stored action as the environment takes it."""
        return action

    def check_mask(self, mask):
        """Raises ValueError unless a mask is bool [..., masks] and allows an action everywhere; synchronises."""
        if not self.sizes:
            raise ValueError("the actions of a Box have no mask; leave it None")
        if mask.dtype != torch.bool or mask.shape[-1:] != (self.masks,):
            found = f"{str(mask.dtype).removeprefix('torch.')} {list(mask.shape)}"
            raise ValueError(f"action mask must be bool [..., {self.masks}], got {found}")
        allowed = torch.stack([part.any(dim=-1) for part in mask.split(self.sizes, dim=-1)], dim=-1)
        empty = (~allowed).nonzero()
        if len(empty):
            *row, k = empty[0].tolist()
            of_which = f" of component {k}" if self.stored_shape else ""
            raise ValueError(
                f"action mask{row} allows none of the {self.sizes[k]} actions{of_which}; it must allow one"
            )


def of(space, box: str = "clipped") -> Distribution:
    """The distribution for an action space.

    Args:
        space: Discrete; MultiDiscrete of one axis; Box of one axis and floating-point numbers.
        box: "clipped", a Gaussian whose sample the environment gets clipped; "squashed", a Gaussian through tanh;
            "beta", on the interval. The latter two need finite bounds.

    Raises:
        ValueError: another space, one that does not count from 0, or bounds that are not finite.
    """
    choice("box", box, BOXES)
    if np.any(getattr(space, "start", 0)):
        raise ValueError(f"action space {space} must count its actions from 0")
    if isinstance(space, Discrete):
        return Categorical(int(space.n))
    sizes = np.asarray(getattr(space, "nvec", ()))  # only a MultiDiscrete has it
    if sizes.ndim == 1 and len(sizes):
        return MultiCategorical(tuple(sizes.tolist()))
    if not isinstance(space, Box) or len(space.shape) != 1 or not np.issubdtype(space.dtype, np.floating):
        raise ValueError(
            f"no policy for action space {space}; it must be Discrete, or a MultiDiscrete or float Box of one axis"
        )
    low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
    wrong = np.flatnonzero(~(np.isfinite(low) & np.isfinite(high) & (low < high)))
    if box != "clipped" and len(wrong):
        k = wrong[0]
        raise ValueError(f"box={box!r} needs finite bounds, low < high; component {k} has [{low[k]:g}, {high[k]:g}]")
    kind = {"clipped": Gaussian, "squashed": Squashed, "beta": Beta}[box]
    return kind(tuple(low.tolist()), tuple(high.tolist()))


@dataclass(frozen=True)
class Categorical(Distribution):
    """One of n actions; the outputs are logits."""

    n: int

    outputs = property(lambda self: self.n)
    sizes = property(lambda self: (self.n,))
    words = 1
    stored_shape = ()
    stored_dtype = property(lambda self: torch.uint8 if self.n <= 256 else torch.int64)

    def sample(self, out, free, noise, mask=None):
        uniform = noise if noise.is_floating_point() else self.variates(noise)
        action, log_prob = _draw(_allowed(out, mask), uniform, gaps=mask is not None)
        return action.to(self.stored_dtype), log_prob

    def mode(self, out, free=None, mask=None):
        return _allowed(out, mask).argmax(dim=-1).to(self.stored_dtype)

    def log_prob_entropy(self, out, free, action, mask=None):
        return _known(_allowed(out, mask), action)

    def of_components(self, out, free, action, mask=None):
        log_prob, entropy = self.log_prob_entropy(out, free, action, mask)
        return log_prob.unsqueeze(-1), entropy.unsqueeze(-1)


@dataclass(frozen=True)
class MultiCategorical(Distribution):
    """One action for each of d components, independent; the outputs are their logits one after another."""

    sizes: tuple[int, ...]  # [d]

    outputs = property(lambda self: sum(self.sizes))
    words = property(lambda self: len(self.sizes))
    stored_shape = property(lambda self: (len(self.sizes),))
    stored_dtype = torch.int64

    def sample(self, out, free, noise, mask=None):
        uniform = noise if noise.is_floating_point() else self.variates(noise)
        gaps = mask is not None or len(set(self.sizes)) > 1
        action, log_prob = _draw(self._logits(out, mask), uniform.unsqueeze(-1), gaps)
        return action, log_prob.sum(dim=-1)

    def mode(self, out, free=None, mask=None):
        return self._logits(out, mask).argmax(dim=-1)

    def of_components(self, out, free, action, mask=None):
        return _known(self._logits(out, mask), action)

    def _logits(self, out, mask):
        """[..., d, widest]: a row for each component, filled up with what is less likely than a forbidden action."""
        logits, widest = _allowed(out, mask), max(self.sizes)
        if min(self.sizes) == widest:
            return logits.unflatten(-1, (len(self.sizes), widest))
        rows = logits.split(self.sizes, dim=-1)
        return torch.stack([pad(row, (0, widest - row.shape[-1]), value=2 * FORBIDDEN) for row in rows], dim=-2)


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


def _allowed(out, mask):
    return out if mask is None else out.masked_fill(~mask, FORBIDDEN)


def _draw(logits, uniform, gaps: bool):
    """The first of n actions whose cumulative probability exceeds u times the sum, int64 [...], and its log p.

    Logits [..., n], u [..., 1]. With gaps, actions of probability 0, only the others' sums count: where those are added
    up in parallel, rounding may let them rise over a gap, or end lower than before.
    """
    log_probs = logits.log_softmax(dim=-1)
    probabilities = log_probs.exp()
    cumulative = probabilities.cumsum(dim=-1)
    if gaps:
        cumulative = cumulative * (probabilities > 0)
    total = cumulative.amax(dim=-1, keepdim=True) if gaps else cumulative[..., -1:]
    exceeds = cumulative > uniform * total
    action = exceeds.view(torch.uint8).argmax(dim=-1, keepdim=True)
    return action.squeeze(-1), log_probs.gather(-1, action).squeeze(-1)


def _known(logits, action):
    """log p of actions [...] and entropy [...] for logits [..., n]."""
    log_probs = logits.log_softmax(dim=-1)
    log_prob = log_probs.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)
    return log_prob, -(log_probs.exp() * log_probs).sum(dim=-1)


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
