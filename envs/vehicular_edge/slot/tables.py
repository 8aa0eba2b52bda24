"""Tables that the array code looks up: scenarios packed along a leading axis.

Symbols: P scenarios, T slots, Nc clients, Ns servers, Ne edges, J task slots, S server choices, R = Ns + Ne receivers
(servers, then edges).
"""

from dataclasses import dataclass

import numpy as np

from ..params import BITS, DRIFTS, FAMILIES, Params
from .numbering import Array, Numbering, numbering


@dataclass(frozen=True)
class Tables:
    """Scenarios [P, ...] for B environments, environment b in scenario index[b]; floats in one dtype."""

    params: Params
    numbering: Numbering
    dtype: np.dtype
    index: Array  # [B]

    count: Array  # [P, T, Nc] tasks generated, those beyond J included
    size: Array  # [P, T, Nc, J] MB
    cycles: Array  # [P, T, Nc, J] per bit, 1 where there is no task
    rate: Array  # [P, T, Nc, J] tasks/s
    mean: Array  # [P, T, Nc, J] MB

    access: Array  # [P, T, Nc] access edge, -1 none
    covered: Array  # [P, T, Ne, Nc] 1 within the edge's range, else 0
    server_of: Array  # [P, T, Nc, S] -1 where fewer are in range
    snr: Array  # [P, T, R, Nc] gain over noise power, 1/W
    ascending: Array  # [P, T, R, Nc] clients, weakest gain first
    weaker: Array  # [P, T, R, Nc] how many places of that order come before a client's interferers end
    scores: Array  # [P, T + 1, 2, components] as observed; V2V, V2I

    cpu: Array  # [P, nodes] GHz
    power: Array  # [P, Nc] W
    density: Array  # [P] mean cycles/bit over the types
    wire: Array  # [P, Ne, Ne + 1] m from access edge to edge or cloud
    wire_rate: Array  # [P, Ne, Ne + 1] Mbit/s of that wire, 0 to itself
    bandwidth: Array  # [R] MHz

    task_scale: Array  # [P, 2] of size and of work, as observed: MB, MB cycles/bit
    backlog_scale: dict[str, Array]  # [P] Mbit
    cost_scale: dict[str, Array]  # [P] MB m
    drift_scale: dict[str, Array]  # [P] Mbit^2, of the published drift
    load: Array  # [P] Mbit that a slot brings, G
    running: dict[str, Array]  # [P, n] first running scales; empty without them


def tables(xp, scenarios, index=None, dtype="float64") -> Tables:
    """Packs scenarios of equal Params.

    Args:
        xp: numpy or cupy.
        scenarios: list of Scenario.
        index: [B] scenario of each environment; by default one environment per scenario.
        dtype: of all floats, float64 or float32.

    Raises:
        ValueError: no scenarios, or their Params differ; an index of none of them.
    """
    scenarios = list(scenarios)
    if not scenarios:
        raise ValueError("scenarios must be at least one")
    params, dtype = scenarios[0].params, np.dtype(dtype)
    for number, scenario in enumerate(scenarios):
        if scenario.params != params:
            raise ValueError(f"scenarios[{number}] has other Params than scenarios[0]")
    index = np.arange(len(scenarios)) if index is None else np.asarray(index)
    if index.ndim != 1 or index.min(initial=0) < 0 or index.max(initial=0) >= len(scenarios):
        raise ValueError(f"index must be a vector of numbers from 0 to {len(scenarios) - 1}")
    packed = [_arrays(scenario) for scenario in scenarios]

    def stack(values):
        array = np.stack(values)
        return xp.asarray(array.astype(dtype) if array.dtype == np.float64 else array)

    def column(group: str, names):
        return {name: stack([one[group][name] for one in packed]) for name in names}

    groups = {group: column(group, packed[0][group]) for group in _GROUPS}
    plain = {name: stack([one[name] for one in packed]) for name in packed[0] if name not in _GROUPS}
    bandwidth = np.repeat([params.bandwidth_v2v_mhz, params.bandwidth_v2i_mhz], [params.servers, params.edges])
    return Tables(
        params, numbering(xp, params), dtype, xp.asarray(index), bandwidth=xp.asarray(bandwidth.astype(dtype)),
        **plain, **groups,
    )  # fmt: skip


_GROUPS = ("backlog_scale", "cost_scale", "drift_scale", "running")


def _arrays(scenario) -> dict:
    """The arrays of one scenario by their names in Tables, on the host."""
    params, calibration = scenario.params, scenario.calibration
    ascending, weaker = _order(scenario)
    gain = np.concatenate([scenario.gain_v2v.transpose(0, 2, 1), scenario.gain_v2i.transpose(0, 2, 1)], axis=1)
    scores = np.stack([scenario.scores_v2v, scenario.scores_v2i], axis=1)
    if not params.raw_observation:
        scores = scores / np.stack([calibration.score_v2v, calibration.score_v2i])
    if params.running_scales:
        most = np.array([scenario.task_size.max(), (scenario.task_size * scenario.task_cycles).max()])
        task_scale = np.where(most > 0.0, most, 1.0)
    else:
        task_scale = np.array([calibration.size, calibration.work / BITS])
    cloud = [params.cloud_ghz]
    return {
        "count": scenario.task_count.astype(np.int32),
        "size": scenario.task_size,
        "cycles": np.where(scenario.task_cycles > 0.0, scenario.task_cycles, 1.0),
        "rate": scenario.task_rate,
        "mean": scenario.task_mean,
        "access": scenario.access.astype(np.int32),
        "covered": scenario.covered.transpose(0, 2, 1).astype(np.float64),
        "server_of": scenario.server_of.astype(np.int32),
        "snr": gain / params.noise_watt,
        "ascending": ascending,
        "weaker": weaker,
        "scores": np.concatenate([scores, scores[-1:]]),  # the final observation's distances are the last slot's
        "cpu": np.concatenate([scenario.client_cpu, scenario.server_cpu, scenario.edge_cpu, cloud]),
        "power": scenario.client_power * 1e-3,
        "density": np.float64(scenario.mean_density),
        "wire": scenario.wire,
        "wire_rate": scenario.wire_rate * ~np.eye(params.edges, params.edges + 1, dtype=bool),
        "task_scale": task_scale,
        "backlog_scale": {name: np.float64(calibration.backlog[n]) for n, name in enumerate(FAMILIES)},
        "cost_scale": {"i2i": np.float64(calibration.cost_i2i), "i2c": np.float64(calibration.cost_i2c)},
        "drift_scale": {name: np.float64(calibration.drift[n]) for n, name in enumerate(DRIFTS)},
        "load": np.float64(calibration.load),
        "running": scenario.first_scales,
    }


def _order(scenario) -> tuple[np.ndarray, np.ndarray]:
    """Clients by gain, weakest first, and how many of them interfere at most with each: [T, R, Nc] int16 both."""
    strongest_first = np.concatenate([scenario.order_v2v, scenario.order_v2i], axis=1)
    ascending = strongest_first[..., ::-1]
    gain = np.concatenate([scenario.gain_v2v.transpose(0, 2, 1), scenario.gain_v2i.transpose(0, 2, 1)], axis=1)
    place = np.broadcast_to(np.arange(ascending.shape[-1]), ascending.shape)
    if scenario.params.silent_ties:  # clients of equal gain share the place of the first of them
        in_order = np.take_along_axis(gain, ascending, axis=-1)
        begins = np.concatenate(
            [np.ones_like(in_order[..., :1], bool), in_order[..., 1:] != in_order[..., :-1]], axis=-1
        )
        place = np.maximum.accumulate(np.where(begins, place, 0), axis=-1)
    weaker = np.empty(ascending.shape, dtype=np.int16)
    np.put_along_axis(weaker, ascending, place.astype(np.int16), axis=-1)
    return ascending.astype(np.int16), weaker
