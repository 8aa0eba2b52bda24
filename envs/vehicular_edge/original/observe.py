"""The vector that both agents see (README.md, 2.7)."""

import itertools

import numpy as np

from .episode import Episode


def observe(episode: Episode) -> np.ndarray:
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
