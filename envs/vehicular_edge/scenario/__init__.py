"""Scenarios: everything that is drawn, recorded or read before an episode."""

from .pool import draw, draw_each, draw_pool, from_trace, load, pool_of, under
from .scenario import Calibration, Scenario

__all__ = ["Calibration", "Scenario", "draw", "draw_each", "draw_pool", "from_trace", "load", "pool_of", "under"]
