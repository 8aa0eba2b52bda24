"""Observations (README.md, 2.2)."""

import numpy as np
from gymnasium.spaces import Box

from ..params import TICKS, Params
from ..scenario import Scenario
from ..windows import latest_end
from .episode import Episode


def space(params: Params, scenario: Scenario) -> Box:
    most = latest_end(params)
    if params.raw_observation:
        return Box(0.0, max(len(scenario.travel) - 1, most), (params.requests, 6), np.float32)
    return Box(0.0, most / params.horizon, (params.requests, 8), np.float32)


def observe(episode: Episode) -> np.ndarray:
    """Rows of the fixed requests, then zeros; the last row is the request that asks, as it was offered."""
    rows = np.zeros((episode.params.requests, 6))
    for row, decision in zip(rows, episode.decisions, strict=False):
        row[:] = decision.kept
    there = np.arange(len(rows)) < len(episode.decisions)
    if not episode.terminated:
        rows[-1], there[-1] = episode.instance.offered[episode.traveller], True
    if episode.params.raw_observation:
        rows[:, [1, 2, 4, 5]] /= TICKS
        return rows.astype(np.float32)
    xy, horizon = episode.scenario.unit_xy, episode.params.horizon_ticks
    places = [xy[rows[:, column].astype(int)] * there[:, None] for column in (0, 3)]
    return np.hstack([places[0], rows[:, 1:3] / horizon, places[1], rows[:, 4:6] / horizon]).astype(np.float32)
