"""Tables that the kernel reads (`struct Tables` in layout.cuh): settings of episodes, scenarios, what noise needs."""

import math
from collections.abc import Sequence

import numpy as np

from .params import BEAMS, Params
from .scenario import Mix, Scenario, Stages
from .streams import von_mises_knots


def tables(
    params: Params, curriculum: Stages | Mix, scenarios: Sequence[Scenario], batch: int, dtype: str
) -> dict[str, np.ndarray]:
    """All tables.

    Args:
        curriculum: of one stage where there is none.
        scenarios: none where episodes are drawn.
        batch: environments whose steps the curriculum counts.
        dtype: of the arithmetic.
    """
    angles = np.linspace(-params.beam_angle, params.beam_angle, BEAMS)
    mixed = isinstance(curriculum, Mix)
    weights = np.array(curriculum.weights if mixed else [1.0], dtype=np.float64)
    settings = curriculum.settings
    return {
        "knots": von_mises_knots().astype(dtype),
        "beam": np.column_stack([np.cos(angles), np.sin(angles)]).astype(dtype),
        "begins": np.array([0] if mixed else [-(-start // batch) for start in curriculum.starts], dtype=np.int64),
        "below": np.append(np.cumsum(weights), math.fsum(weights)),
        "asked": np.array([one[:3] for one in settings], dtype=np.int32),
        "distance": np.array([one[3] for one in settings], dtype=np.float64),
    } | of_scenarios(params, scenarios)


def of_scenarios(params: Params, scenarios: Sequence[Scenario]) -> dict[str, np.ndarray]:
    """Scenarios, padded with zeros to what the parameters hold; without any one row of zeros."""
    N = max(len(scenarios), 1)
    found = {
        "counts": np.zeros((N, 6), np.int32),
        "robots": np.zeros((N, params.robots, 6)),
        "cores": np.zeros((N, max(params.cores, 1), 4)),
        "obstacles": np.zeros((N, max(params.obstacles, 1), 3)),
    }
    for n, one in enumerate(scenarios):
        robots, cores, obstacles = one.counts
        found["counts"][n] = (*one.counts, one.asked, max(one.blind, params.non_cooperative), one.read)
        found["robots"][n, :robots] = np.column_stack([one.start, one.goal, one.heading, one.speed])
        found["obstacles"][n, :obstacles] = np.column_stack([one.obstacle_centre, one.radius])
        if cores:
            found["cores"][n, :cores] = one.cores(params)
    return found
