"""What both agents see (section 2.12 of the specification): the space of every form, the vector of the original."""

import itertools

import numpy as np

from ..spaces import Box
from .episode import Episode
from .params import Params


def space(p: Params) -> Box:
    """Of one environment and either agent, [D]: [0, 1] as published, or what really bounds each number (Q26)."""
    low = np.zeros(p.observation_length, np.float32)
    if p.raw_observation:
        return Box(low, np.ones_like(low), dtype=np.float32)
    first = 2 * p.tasks * p.clients + p.clients
    for start in (first, first + p.components + 2 * p.servers):  # only scores have a sign
        low[start : start + p.components] = -np.inf
    return Box(low, np.full_like(low, np.inf), dtype=np.float32)


def vector(episode: Episode) -> np.ndarray:
    """Tasks, backlogs and scores of distances at the start of a slot, [D] in float64."""
    p, network, found = episode.params, episode.network, episode.scenario
    calibration = found.calibration
    largest_mb, largest_work = calibration.size, calibration.work
    if p.running_scales:  # Q11
        largest_mb, largest_work = network.largest_mb, network.largest_work
    seen = []
    for client in network.clients:
        for task in client.tasks:
            seen += [task.size_mb / largest_mb, task.mbit * 1e6 * task.density / largest_work]
        seen += [0.0, 0.0] * (p.tasks - len(client.tasks))
    slot = min(episode.t, p.slots - 1)
    scores_v2v, scores_v2i = found.scores_v2v[slot], found.scores_v2i[slot]
    if not p.raw_observation:  # Q26
        scores_v2v, scores_v2i = scores_v2v / calibration.score_v2v, scores_v2i / calibration.score_v2i
    Q = episode.scales.backlogs(episode.reported(), calibration)
    seen += Q["lc"]
    seen += scores_v2v.tolist()
    seen += itertools.chain.from_iterable(zip(Q["v2v"], Q["vc"], strict=True))
    seen += scores_v2i.tolist()
    seen += itertools.chain.from_iterable(zip(Q["v2i"], Q["i2i"], Q["ec"], strict=True))
    seen += Q["i2c"] + Q["cc"]
    return np.array(seen)
