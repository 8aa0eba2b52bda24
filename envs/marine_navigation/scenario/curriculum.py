"""Curricula: settings of episodes by environment steps, or mixed by weight; evaluation sets (README.md, 4.4)."""

import bisect
import itertools
import math
import numbers
from dataclasses import dataclass

from lockstep.reading import nearest

from ...noise import philox
from ..params import Params, Setting
from ..streams import MIX, unit
from .published import published
from .scenario import Scenario

MILLION = 1_000_000
DISTANCES = (30.0, 35.0, 40.0, 40.0, 40.0, 40.0)
PER_STAGE, EVALUATION_SEED = 10, 253


@dataclass(frozen=True)
class Stages:
    """One setting after the other.

    Args:
        starts: environment steps, of all environments together, from which each setting holds; the first is 0.
    """

    starts: tuple[int, ...]
    settings: tuple[Setting, ...]

    def setting(self, steps: int, seed: int, environment: int, episode: int) -> Setting:
        """The setting of an episode that begins after so many environment steps."""
        return self.settings[bisect.bisect_right(self.starts, steps) - 1]


@dataclass(frozen=True)
class Mix:
    """A setting for each episode, drawn by weight."""

    weights: tuple[float, ...]
    settings: tuple[Setting, ...]

    def setting(self, steps: int, seed: int, environment: int, episode: int) -> Setting:
        """The setting of an episode, whatever the steps before it."""
        mark = float(unit(philox((environment, episode, 0, MIX), seed)[0])) * math.fsum(self.weights)
        below = list(itertools.accumulate(self.weights))
        return self.settings[min(bisect.bisect_right(below, mark), len(self.settings) - 1)]


def _stages(robots, cores, obstacles, distances=DISTANCES) -> Stages:
    settings = tuple(itertools.starmap(Setting, zip(robots, cores, obstacles, distances, strict=True)))
    return Stages(tuple(n * MILLION for n in range(len(settings))), settings)


CURRICULA = {
    "thruster": {
        "published": _stages((3, 4, 5, 5, 5, 5), (0,) * 6, (0, 0, 0, 2, 3, 4)),
        "vortices": _stages((3, 4, 5, 5, 5, 5), (4, 6, 8, 8, 8, 8), (0, 0, 0, 2, 3, 4)),
    },
    "kinematic": {"published": _stages((3, 5, 7, 7, 7, 7), (4, 6, 8, 8, 8, 8), (0, 0, 0, 6, 8, 10))},
    "sonar": {"published": _stages((1, 1, 1), (4, 6, 8), (6, 8, 10), DISTANCES[:3])},
}
_KINEMATIC = zip((3, 5, 7) * 2, (4, 6, 8) * 2, (0, 0, 0, 6, 8, 10), strict=True)
EVALUATIONS = {
    "thruster": CURRICULA["thruster"]["published"].settings,
    "kinematic": tuple(Setting(robots, cores, obstacles, 40.0) for robots, cores, obstacles in _KINEMATIC),
    "sonar": CURRICULA["sonar"]["published"].settings,
}


def evaluation(params: Params) -> list[Scenario]:
    """The version's published evaluation set: ten scenarios of each stage."""
    settings = [setting for setting in EVALUATIONS[params.version] for _ in range(PER_STAGE)]
    return published(EVALUATION_SEED, settings, params, fixed=params.version == "sonar")


def curriculum_of(given, params: Params) -> "Stages | Mix | None":
    """The curriculum that a user hands over.

    Args:
        given: None, a name, `Stages`, `Mix`, or pairs of a setting (A, C, O, D_min) and its weight.

    Raises:
        ValueError: an unknown name, stages that do not start at 0 and increase, a weight that is not positive, or a
            setting that cannot be drawn; names it.
    """
    if given is None:
        return None
    if isinstance(given, str):
        known = CURRICULA[params.version]
        if given not in known:
            raise ValueError(f"curriculum={given!r} is unknown where version={params.version!r}{nearest(given, known)}")
        given = known[given]
    if not isinstance(given, Stages | Mix):
        try:
            settings, weights = zip(*given, strict=True)
            given = Mix(tuple(weights), tuple(Setting(*setting) for setting in settings))
        except (TypeError, ValueError):
            allowed = "a name, Stages, Mix, or pairs of a setting (A, C, O, D_min) and a weight"
            raise ValueError(f"curriculum={given!r:.80} must be {allowed}") from None
    marks = given.starts if isinstance(given, Stages) else given.weights
    if not given.settings or len(marks) != len(given.settings):
        raise ValueError(f"curriculum has {len(given.settings)} settings and {len(marks)} starts or weights")
    if isinstance(given, Stages):
        if given.starts[0] != 0 or any(one >= other for one, other in itertools.pairwise(given.starts)):
            raise ValueError(f"curriculum: starts={given.starts} must begin with 0 and increase")
    else:
        for weight in given.weights:
            if not isinstance(weight, numbers.Real) or not 0 < weight < math.inf:
                raise ValueError(f"curriculum: weight={weight!r} must be positive and finite")
    for number, setting in enumerate(given.settings):
        params.check_setting(Setting(*setting), f"curriculum[{number}]: ")
    return given
