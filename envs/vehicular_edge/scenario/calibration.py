"""Scales of backlogs, costs and drifts: what the random policy reaches in ten episodes (README.md, 4.6).

The episodes run side by side as array code, which needs no compiler. Queues do not depend on any scale, so episodes
that follow one another would find the same extremes.
"""

import functools
import itertools
from dataclasses import replace

import numpy as np

from ...checks import integer
from ..params import DRIFTS, FAMILIES, Params, running_shapes
from ..slot.operations import reported
from ..slot.step import initial, random_action, step
from ..slot.tables import tables
from .drawing import published_stream
from .scenario import Calibration, Scenario
from .synthetic import checked_params, checked_seed, drawn_each

LINKS = 2_000_000  # of all slots and scenarios that are played side by side, about 100 bytes each


def calibrate(
    params: Params,
    traffic: str | list[Scenario] = "arterial",
    episodes: int = 10,
    seed: int = 264,
) -> Calibration:
    """Extremes that the random policy reaches: largest backlogs, costs and |phi| (Q10), largest size and work,
    deviations of scores; and what a slot brings on average.

    Args:
        traffic: the map, of which scenarios 0 .. episodes-1 are drawn, or the scenarios themselves; episode b plays
            scenario b modulo their number, and each that is played counts once in means and deviations.
        seed: of the scenarios and of the policy, whose actions in episode b at slot t are those that the ports draw for
            environment b at step t.

    Returns:
        A scale that would be 0 is 1.
    """
    integer("episodes", episodes, 1, 2**31 - 1)
    given = traffic if isinstance(traffic, list | tuple) else ()
    if not isinstance(traffic, str) and not (given and all(isinstance(one, Scenario) for one in given)):
        raise ValueError(f"traffic={traffic!r:.60} must be the name of a map, or a list of scenarios, at least one")
    params, seed = checked_params(params), checked_seed(seed)
    distinct = episodes if isinstance(traffic, str) else len(traffic)
    if isinstance(traffic, str):
        scenarios = drawn_each(params, traffic, episodes, seed, Calibration.ones(params))
    else:
        scenarios = (traffic[episode % len(traffic)] for episode in range(episodes))
    most, loads, scores = {}, [], {"scores_v2v": [], "scores_v2i": []}
    links = params.slots * params.clients * (params.servers + params.edges)
    together = max(1, min(episodes, LINKS // links))
    for first in range(0, episodes, together):
        group = list(itertools.islice(scenarios, together))
        environments = np.arange(first, first + len(group))
        for before, after, outcome in _episodes(group, len(group), _random_actions(params, environments, seed)):
            found = reported(after)
            found |= {f"cost_{name}": outcome.costs[name] for name in ("i2i", "i2c")}
            found |= {f"drift_{name}": _phi(name, before, outcome.flows) for name in DRIFTS}
            _raise(most, found)
        for scenario in group[: max(0, distinct - first)]:
            _raise(most, {"size": scenario.task_size, "work": scenario.task_work})
            loads.append(1e-6 * scenario.task_bits.sum() / params.slots)
            for name, values in scores.items():
                values.append(getattr(scenario, name))
    scale = {name: value or 1.0 for name, value in most.items()}
    deviation = {name: np.concatenate(values).std(axis=0) for name, values in scores.items()}
    return Calibration(
        backlog=np.array([scale[name] for name in FAMILIES]),
        cost_i2i=scale["cost_i2i"],
        cost_i2c=scale["cost_i2c"],
        load=float(np.mean(loads)) or 1.0,
        drift=np.array([scale[f"drift_{name}"] for name in DRIFTS]),
        size=scale["size"],
        work=scale["work"],
        score_v2v=np.where(deviation["scores_v2v"] > 0, deviation["scores_v2v"], 1.0),
        score_v2i=np.where(deviation["scores_v2i"] > 0, deviation["scores_v2i"], 1.0),
    )


@functools.cache
def cached(params: Params, traffic: str) -> Calibration:
    """`calibrate`, once per process."""
    return calibrate(params, traffic)


def warm_up(scenario: Scenario, episodes: int = 10) -> dict[str, np.ndarray]:
    """First running scales: the extremes of ten episodes of the random policy, which start from none.

    Its numbers continue the published stream (README.md, 4.3, step 7), or come from Philox, as the scenario itself.

    Returns:
        Those of `params.running_shapes`.
    """
    params = scenario.params
    if params.draw == "published":
        stream = published_stream(params, scenario.seed)
        actions = np.moveaxis(stream.random_sample((episodes, params.slots, 2, params.action_length)), 1, 0)
    else:
        actions = _random_actions(params, np.arange(episodes), scenario.seed)
    *_, (_, last, _) = _episodes([replace(scenario, running=None)], episodes, actions)
    return {
        name: last[name].min(axis=0) if name.startswith("drift_min_") else last[name].max(axis=0)
        for name in running_shapes(params)
    }


def _episodes(scenarios: list[Scenario], episodes: int, actions):
    """State before, state after and outcome of every slot of so many episodes side by side."""
    packed = tables(np, scenarios, np.arange(episodes) % len(scenarios))
    state = initial(np, packed)
    for t, action in enumerate(actions):
        before = state
        state, outcome = step(np, packed, before, action, t)
        yield before, state, outcome


def _raise(most: dict[str, float], found: dict[str, np.ndarray]):
    for name, values in found.items():
        most[name] = max(most.get(name, 0.0), float(values.max()))


def _random_actions(params: Params, environments: np.ndarray, seed: int):
    """[B, 2, A] of every slot."""
    return (random_action(np, params, seed, environments, t) for t in range(params.slots))


def _phi(name: str, before: dict, flows: dict) -> np.ndarray:
    """|phi| of every queue of a family, Mbit^2."""
    return np.abs((before[name] - flows["out"][name]) * flows["in"][name])
