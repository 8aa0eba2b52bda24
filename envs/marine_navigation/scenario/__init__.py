"""Scenarios: what is drawn or read before an episode."""

from .curriculum import CURRICULA, EVALUATIONS, Mix, Stages, curriculum_of, evaluation
from .drawing import noise_ids, philox_scenario
from .file import load, save
from .pool import pool_of
from .published import published
from .scenario import Scenario

__all__ = [
    "CURRICULA", "EVALUATIONS", "Mix", "Scenario", "Stages", "curriculum_of", "evaluation", "load", "noise_ids",
    "philox_scenario", "pool_of", "published", "save",
]  # fmt: skip
