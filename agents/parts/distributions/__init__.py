"""Which distribution is for which action space."""

import numpy as np

from lockstep.envs.checks import choice
from lockstep.envs.spaces import Box, Discrete

from .box import Beta, Gaussian, Squashed
from .discrete import Categorical, MultiCategorical
from .distribution import Distribution

BOXES = ("clipped", "squashed", "beta")


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
