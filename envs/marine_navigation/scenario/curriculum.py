"""Curricula: settings of episodes by environment steps, or mixed by weight; evaluation sets (README.md, 4.4)."""

import bisect
import itertools
import math
import numbers
import sys
from dataclasses import dataclass

from lockstep.reading import nearest

from ...checks import integer
from ...noise import philox
from ..params import Params, Setting, given_params
from ..streams import MIX, unit
from .published import published
from .scenario import Scenario

MILLION = 1_000_000
LARGEST = sys.float_info.max
DISTANCES = (30.0, 35.0, 40.0, 40.0, 40.0, 40.0)
PER_STAGE = 10
EVALUATION_SEEDS = {"thruster": 253, "kinematic": 253, "sonar": 348}


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
    """The version's published evaluation set: ten scenarios of each stage; ValueError unless given `Params`."""
    version = given_params(params).version
    settings = [setting for setting in EVALUATIONS[version] for _ in range(PER_STAGE)]
    return published(EVALUATION_SEEDS[version], settings, params, fixed=version == "sonar")


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
    ordered = isinstance(given, Stages)
    marks = _listed("starts" if ordered else "weights", given.starts if ordered else given.weights)
    settings = _listed("settings", given.settings)
    if not settings or len(marks) != len(settings):
        raise ValueError(f"curriculum has {len(settings)} settings and {len(marks)} starts or weights")
    settings = tuple(params.check_setting(one, f"curriculum[{number}]: ") for number, one in enumerate(settings))
    return Stages(_starts(marks), settings) if ordered else Mix(_weights(marks), settings)


def _listed(field: str, given) -> tuple:
    try:
        return tuple(given)
    except TypeError:
        raise ValueError(f"curriculum: {field}={given!r:.60} must be a tuple") from None


def _starts(given: tuple) -> tuple[int, ...]:
    starts = tuple(integer(f"curriculum: starts[{n}]", start, 0, 2**63 - 1) for n, start in enumerate(given))
    if starts[0] != 0 or any(one >= other for one, other in itertools.pairwise(starts)):
        raise ValueError(f"curriculum: starts={starts} must begin with 0 and increase")
    return starts


def _weights(given: tuple) -> tuple[float, ...]:
    for weight in given:
        if isinstance(weight, bool) or not isinstance(weight, numbers.Real) or not 0 < weight <= LARGEST:
            raise ValueError(f"curriculum: weight={weight!r} must be positive and finite")
    weights = tuple(map(float, given))
    if not math.isfinite(sum(weights)):
        raise ValueError(f"curriculum: weights={weights} must have a finite sum")
    return weights
