"""The published draws, by NumPy's legacy generator in the published order (README.md, 4.3)."""

import math
from collections.abc import Iterable

import numpy as np

from ...checks import choice, integer
from ..params import OBSTACLE_MARGIN, START_MARGIN, Params, given_params, make_params
from .drawing import FIXED, draw
from .scenario import Scenario

IDS = 30  # of the draws that the thruster version begins with


class Published:
    """Proposals of many episodes in a row from one generator."""

    def __init__(self, params: Params, seed: int):
        self.params, self.random, self.asked = params, np.random.RandomState(seed), 0
        if params.version == "thruster":
            for _ in range(6):
                self.random.randint(0, IDS)

    def robot(self, n: int) -> tuple[float, float, float, float]:
        """Start x, y and goal x, y."""
        return tuple(self.random.uniform(START_MARGIN, self.params.width - START_MARGIN, 4).tolist())

    def motion(self, i: int) -> tuple[float, float]:
        """Heading and own speed, after the thruster version's noise id, which nothing here uses."""
        if self.params.version == "thruster":
            self.random.randint(0, 5 * self.asked)
            return self.random.uniform(0.0, 2 * math.pi), 0.0
        heading = self.random.uniform(0.0, 2 * math.pi)
        return heading, self.random.uniform(0.0, self.params.top_speed)

    def core(self, n: int) -> tuple[float, float, bool, float]:
        """Centre, true if clockwise, edge speed."""
        p = self.params
        x, y = self.random.uniform(0.0, p.width, 2).tolist()
        clockwise = bool(self.random.binomial(1, 0.5))
        return x, y, clockwise, self.random.uniform(p.edge_speed_low, p.edge_speed_high)

    def obstacle(self, n: int) -> tuple[float, float, float]:
        """Centre, radius."""
        p = self.params
        x, y = self.random.uniform(OBSTACLE_MARGIN, p.width - OBSTACLE_MARGIN, 2).tolist()
        return x, y, self.random.uniform(p.obstacle_low, p.obstacle_high)


def published(
    seed: int, settings: Iterable[tuple], params: Params | None = None, fixed: bool = False
) -> list[Scenario]:
    """The scenarios of a list of episodes, drawn one after the other from one generator.

    Args:
        seed: 0 .. 2^32-1.
        settings: (A, C, O, D_min) of each episode; D_min in m.
        params: None for the thruster version as published.
        fixed: start and goal of the sonar's evaluation, which take no draw.

    Raises:
        ValueError: a seed or a setting that is not allowed, or `fixed` of another version or of a map too small for
            it; names it.
    """
    params = make_params("thruster", "original") if params is None else given_params(params)
    choice("fixed", fixed, (False, True))
    if fixed and params.version != "sonar":
        raise ValueError(f"fixed=True must be False where version={params.version!r}")
    if fixed and params.width < max(FIXED[1]):
        raise ValueError(f"width={params.width} is too small for fixed=True, whose goal is {FIXED[1]}")
    if isinstance(settings, str) or not isinstance(settings, Iterable):
        raise ValueError(f"settings={settings!r:.60} must be a list of (A, C, O, D_min)")
    source, found = Published(params, integer("seed", seed, 0, 2**32 - 1)), []
    for number, setting in enumerate(settings):
        setting = params.check_setting(setting, f"settings[{number}]: ")
        source.asked = setting.robots
        found.append(draw(params, setting, source, fixed))
    return found
