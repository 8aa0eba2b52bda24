"""A distribution over actions, between an actor's outputs and what an environment's step takes.

Sampling is a function of noise that is handed in: words of Philox4x32-10 shifted right by 8, integers k of 24 bits
that stand for u = k 2^-24.

Axes: [...] any leading axes (learners, steps, environments, agents), m components of a Box, d of a MultiDiscrete.
Nothing here, in `discrete.py` or in `gaussian.py` waits for the device or depends on values for its shapes, so a CUDA
graph can capture all but `check_mask`, once it has run before (bounds of a Box are copied to the device at their first
use).
"""

import math
from abc import ABC, abstractmethod
from typing import ClassVar

import torch

UNIT = 2.0**-24  # of the noise


class Distribution(ABC):
    """Made by `of`. Scores and probabilities are float32; log p and entropy are of the whole action, in nats.

    Attributes:
        outputs: of the actor.
        free: parameters that do not depend on the observation (log_std of a Gaussian).
        sizes: number of actions of each discrete component; none of a Box.
        masks: width of an action mask, 0 where there is none.
        words: of noise that one action takes.
        stored_shape, stored_dtype: of one action as `sample` returns it and a batch keeps it.
        in_kernels: whether kernels, those of roll-outs and those of updates, are written for it.
    """

    outputs: int
    free: int = 0
    sizes: tuple[int, ...]
    masks = property(lambda self: sum(self.sizes))
    words: int
    stored_shape: tuple[int, ...]
    stored_dtype: torch.dtype
    in_kernels: ClassVar[bool] = False

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
            float32 [..., words], uniform in [0, 1); of a Gaussian [..., m], normal.
        """
        return noise[..., : self.words].float() * UNIT

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
