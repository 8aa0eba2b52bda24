"""Categorical distributions: one of n actions is drawn by inverse distribution function, as in `envs/kernels/mlp.cuh`,
so that a roll-out in the kernel and one in torch draw alike.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from .distribution import Distribution

FORBIDDEN = -1e8  # logit: exp is exactly 0, and 0 times it is 0, where -inf would give NaN


@dataclass(frozen=True)
class Categorical(Distribution):
    """One of n actions; the outputs are logits."""

    n: int

    outputs = property(lambda self: self.n)
    sizes = property(lambda self: (self.n,))
    words = 1
    stored_shape = ()
    in_kernels = True
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


def _allowed(out, mask):
    return out if mask is None else out.masked_fill(~mask, FORBIDDEN)


def _draw(logits, uniform, gaps: bool):
    """The first of n actions whose cumulative probability exceeds u times the sum, int64 [...], and its log p.

    Logits [..., n], u [..., 1]. With gaps, actions of probability 0, only the others' sums count: where those are added
    up in parallel, rounding may let them rise over a gap, or end lower than before.
    """
    log_probs = logits.log_softmax(dim=-1)
    probabilities = logits.softmax(dim=-1)  # an exp of log_probs takes fifty times as long where it underflows
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
    return log_prob, -(logits.softmax(dim=-1) * log_probs).sum(dim=-1)
