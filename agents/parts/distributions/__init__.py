"""Distributions over actions, and the one for an action space."""

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from .discrete import Categorical, MultiCategorical
from .distribution import Distribution
from .gaussian import Gaussian
from .squashed import SquashedGaussian
from .squashed import of as squash_into

__all__ = ["Categorical", "Distribution", "Gaussian", "MultiCategorical", "SquashedGaussian", "of"]
SQUASHES = ("clip", "tanh", "atan")


def of(space, squash: str = "clip") -> Distribution:
    """The distribution for an action space: Discrete; MultiDiscrete of one axis; Box of one axis and floating-point
    numbers, which may be without bounds.

    Args:
        squash: one of SQUASHES; of a Box with bounds alone it may be another than "clip".

    Raises:
        ValueError: another space, or one that does not count from 0.
    """
    if squash != "clip":
        return SquashedGaussian.of(squash_into(space, squash))
    if np.any(getattr(space, "start", 0)):
        raise ValueError(f"action space {space} must count its actions from 0")
    if isinstance(space, Discrete):
        return Categorical(int(space.n))
    if isinstance(space, MultiDiscrete) and space.nvec.ndim == 1:
        return MultiCategorical(tuple(space.nvec.tolist()))
    if not isinstance(space, Box) or len(space.shape) != 1 or not np.issubdtype(space.dtype, np.floating):
        raise ValueError(
            f"no policy for action space {space}; it must be Discrete, or a MultiDiscrete or float Box of one axis"
        )
    return Gaussian(*(tuple(np.asarray(bound, np.float32).tolist()) for bound in (space.low, space.high)))
