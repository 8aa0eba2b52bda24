"""Scenarios: a city and its travellers, drawn or read before an episode."""

from .city import city
from .drawing import Instance, draw
from .episodes import save_episodes
from .file import load, save
from .readers import li_lim, solomon
from .scenario import Scenario

__all__ = ["Instance", "Scenario", "city", "draw", "li_lim", "load", "save", "save_episodes", "solomon"]
