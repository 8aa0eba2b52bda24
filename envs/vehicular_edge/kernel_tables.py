"""Tables that the kernel reads (`struct Tables` in layout.cuh): the scenarios of a pool, packed once."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .params import MBIT, Params

NO_MASK = np.zeros((1,), dtype=np.uint32)


def tables(scenarios: Sequence, params: Params, dtype: str, drawn: bool) -> dict[str, np.ndarray]:
    """All tables of a pool, [scenarios, ...]; those that a compile-time choice leaves unread are one zero.

    Args:
        drawn: gains are drawn in the kernel, so that none are stored.
    """
    real = np.dtype(dtype)
    packed = {}
    for number, scenario in enumerate(scenarios):
        found = replace(scenario)  # what follows from its arrays is as large as they are, and dropped with this copy
        for name, row in _of_scenario(found, params, real, drawn).items():
            if number == 0:
                packed[name] = np.empty((len(scenarios), *row.shape), row.dtype)
            packed[name][number] = row
    first = [scale.ravel() for scale in scenarios[0].first_scales.values()]
    return packed | {"running": np.concatenate(first or [np.zeros(1)]).astype(real)}


def _of_scenario(found, params: Params, real: np.dtype, drawn: bool) -> dict[str, np.ndarray]:
    p = params
    count = np.asarray(found.task_count)
    exists = np.arange(p.tasks) < count[..., None]  # [T, Nc, J]
    mbit = np.where(exists, found.task_size, 0.0) * MBIT
    density = np.where(exists & (found.task_cycles > 0), found.task_cycles, 1.0)
    within = np.minimum(count, p.tasks)
    numbers = {
        "cpu": np.concatenate([found.client_cpu, found.server_cpu, found.edge_cpu, [p.cloud_ghz]]),
        "power": found.client_power,
        "wire": found.wire,
        "link": found.wire_rate,
        "inverse_scale": 1.0 / _scales(found, p),
        "bits": mbit,
        "inverse_density": 1.0 / density,
        "offer": mbit * np.where(exists, found.task_rate, 0.0) if p.rate_weighted_bits else np.zeros(1),
        "demand": _demand(found, exists, within),
        "scores": _scores(found, p),
    }
    servers = np.where(found.server_of < 0, np.arange(p.clients)[:, None], found.server_of + p.clients)
    packed = {name: np.asarray(value, dtype=real) for name, value in numbers.items()}
    packed |= {
        "count": count.astype(np.uint16),
        "tallies": np.stack([count.sum(1), within.sum(1), (count > 0).sum(1)], axis=-1).astype(np.int32),
        "access": np.where(found.access < 0, p.edges, found.access).astype(np.uint16),
        "server": servers.astype(np.uint16),
        "covered": _bits(found.covered) if p.all_covering_pay else NO_MASK,
    }
    unread = {"gain": np.zeros(1, real), "order": NO_MASK, "key": np.zeros(1, np.int64)}
    unread |= {"xy_client": np.zeros(1), "xy_receiver": np.zeros(1)}
    return unread | packed | (_positions(found) if drawn else _gains(found, p, real))


def _scales(found, p: Params) -> np.ndarray:
    """Scales of the kernel: backlogs, wire costs (of MB m), drifts, sizes [Mbit], work [Mcycles], density, load."""
    calibration = found.calibration
    size, work = calibration.size, calibration.work
    if p.running_scales:  # Q11: over the scenario
        size, work = found.task_size.max(), found.task_work.max()
    return np.array(
        [
            *calibration.backlog,
            calibration.cost_i2i,
            calibration.cost_i2c,
            *calibration.drift,
            size * MBIT if size > 0 else np.inf,
            work * 1e-6 if work > 0 else np.inf,
            found.mean_density,
            calibration.load,
        ]
    )


def _demand(found, exists: np.ndarray, within: np.ndarray) -> np.ndarray:
    """[T, Nc] Mbit/s that the delay queue serves: mean rate times mean size; 0 without tasks."""
    tasks = np.maximum(within, 1)
    rate = np.where(exists, found.task_rate, 0.0).sum(-1) / tasks
    size = np.where(exists, found.task_mean, 0.0).sum(-1) / tasks
    return rate * size * MBIT


def _scores(found, p: Params) -> np.ndarray:
    """[T, 2 components]."""
    v2v, v2i = found.scores_v2v, found.scores_v2i
    if not p.raw_observation:  # Q26
        v2v, v2i = v2v / found.calibration.score_v2v, v2i / found.calibration.score_v2i
    return np.concatenate([v2v, v2i], axis=-1)


def _bits(mask: np.ndarray) -> np.ndarray:
    """[..., n] bool as bits of uint32 [..., ceil(n / 32)], lowest first."""
    words = -(-mask.shape[-1] // 32)
    padded = np.zeros((*mask.shape[:-1], words * 32), dtype=bool)
    padded[..., : mask.shape[-1]] = mask
    return np.packbits(padded, axis=-1, bitorder="little").view("<u4").astype(np.uint32)


def _gains(found, p: Params, real: np.dtype) -> dict[str, np.ndarray]:
    """Gains [T, receivers, Nc] over noise, weakest first, and whose they are; negative: equal to the one before."""
    order = np.concatenate([found.order_v2v, found.order_v2i], axis=1)[..., ::-1]
    gain = np.concatenate([found.gain_v2v.swapaxes(1, 2), found.gain_v2i.swapaxes(1, 2)], axis=1)
    begin = np.arange(0, gain.size, p.clients).reshape(*gain.shape[:2], 1)  # of a receiver's clients, [T, receivers, 1]
    sorted_gain = gain.ravel()[order + begin]
    tied = sorted_gain[..., 1:] == sorted_gain[..., :-1]
    scaled = sorted_gain / p.noise_watt
    np.negative(scaled[..., 1:], out=scaled[..., 1:], where=tied)
    return {"gain": scaled.astype(real), "order": order.astype(np.uint8 if p.clients <= 256 else np.uint16)}


def _positions(found) -> dict[str, np.ndarray]:
    T = len(found.xy_client)
    edges = np.broadcast_to(found.edge_xy, (T, *found.edge_xy.shape))
    return {
        "xy_client": np.asarray(found.xy_client, dtype=np.float64),
        "xy_receiver": np.concatenate([found.xy_server, edges], axis=1).astype(np.float64),
        "key": np.array([found.index, found.seed], dtype=np.uint64).view(np.int64),
    }
