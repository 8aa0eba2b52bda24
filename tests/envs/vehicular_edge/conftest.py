"""Scenarios that several files look at."""

import pytest

from lockstep.envs.vehicular_edge.params import PRESETS, Params
from lockstep.envs.vehicular_edge.scenario import Calibration, draw


@pytest.fixture(scope="session")
def physical():
    """A scenario of the default parameters in the city."""
    params = Params()
    return draw(params, "city", calibration=Calibration.ones(params))


@pytest.fixture(scope="session")
def published():
    """A scenario of the preset `original` on the dense map."""
    return draw(Params(**PRESETS["original"]), "dense")


@pytest.fixture(scope="session")
def small():
    """Parameters of an environment that steps quickly."""
    return Params(vehicles=20, slots=12, edges=4, components=5)
