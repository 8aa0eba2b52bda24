"""Whole episodes of the vehicular edge under a policy, and what is kept of them."""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from lockstep import envs
from lockstep.envs.vehicular_edge import delays, original, policies
from lockstep.envs.vehicular_edge.params import DRIFTS, FAMILIES
from lockstep.envs.vehicular_edge.policies import objective
from lockstep.envs.vehicular_edge.scenario import draw
from lockstep.envs.vehicular_edge.slot.numbering import of_nodes
from lockstep.envs.vehicular_edge.slot.operations import offloading
from lockstep.envs.vehicular_edge.slot.tables import tables
from lockstep.envs.vehicular_edge.turns import random_turns
from lockstep.experiments.vehicular_edge import earlier_reward

PERCENTS = (50, 95, 99)
POLICIES = policies.POLICIES | {random_turns.__name__: random_turns}
UNSEEN = 1000  # index of the first scenario that is played; agents are trained on those from 0 on
LONGEST = 0.4  # of an episode: longer delays are not told apart, and as many slots at its end not counted
EDGE_FAMILIES = ("v2i", "ec")  # whose backlogs are kept
OF_A_SLOT = ("reward", "cost", "drift", "success", "jain", "energy")


class Job(NamedTuple):
    """One episode of the original."""

    traffic: str
    scenario: int  # index, drawn with the default seed
    policy: str
    seed: int  # of the policy's noise
    params: tuple[tuple[str, object], ...] = ()  # that differ from the preset physical


class Episode(NamedTuple):
    """The record of an episode."""

    totals: dict[str, float]  # columns of the level "episode"
    routes: list[dict]  # columns of the level "route"
    delays: np.ndarray  # [longest + 2] tasks by delay in s, the last place for longer ones
    backlogs: np.ndarray  # [families, T, Ne] Mbit at the slots' ends, in the order of EDGE_FAMILIES
    little: list[dict]  # columns of the level "little", of the first episode of a batch alone


def play(job: Job) -> Episode:
    """An episode of the original under one of POLICIES."""
    env = environment_of(job)
    packed = tables(np, env.scenarios)
    policy = POLICIES[job.policy]

    def act(_, t: int):
        noise = policies.Noise(job.seed, np.array([job.scenario]), np.array([t]))
        action = policy(policies.view_of_original(env, packed), noise)
        return env.step_decoded(action["target"][0], action["share"][0])

    return run(env, act, job.traffic)


def environment_of(job: Job):
    """The original of a job's scenario, before its first episode."""
    params = dict(job.params)
    scenario = drawn(job.traffic, job.scenario)
    return original.make(scenario=scenario, indexed=True, **params)


@functools.lru_cache(maxsize=64)
def drawn(traffic: str, index: int):
    """A scenario of the preset physical at the default sizes."""
    return draw(traffic=traffic, index=index)


def run(env, act: Callable[[dict, int], tuple], traffic: str) -> Episode:
    """One episode of an original; act(observations, slot) makes the step and returns what the step returned."""
    observations, _ = env.reset(seed=0)
    records, states, slots = [], [], env.params.slots
    for t in range(slots):
        observations = act(observations, t)[0]
        records.append(env.record | {"cpu": cpu_shares(env.episode.network)})
        states.append(original.get_state(env))
    moved = delays.flows(records, env.params)
    where = delays.paths([env.episode.scenario])
    backlogs = {name: np.stack([state[name] for state in states])[None] for name in FAMILIES}
    return next(kept(records, moved, where, backlogs, env.params, traffic))


def in_port(job: Job, scenarios: int, device: str, dtype: str = "float32") -> Iterator[tuple[int, Episode]]:
    """(scenario, Episode) of so many environments of the port, one episode each.

    Each takes one of the scenarios job.scenario, job.scenario + 1, ..., of which there are as many, by its own numbers.
    """
    pool = [drawn(job.traffic, job.scenario + number) for number in range(scenarios)]
    options = {"device": device, "scenarios": pool, "seed": job.seed, "dtype": dtype}
    env = envs.make("vehicular_edge", scenarios, trace=True, **options)
    xp, policy, slots = policies.namespace(env), POLICIES[job.policy], env.params.slots
    packed = tables(xp, env.scenarios)
    env.reset(seed=job.seed)
    chosen, numbers = host(env.state()["scenario"]), xp.arange(scenarios)
    records, backlogs = [], []
    for t in range(slots):
        view = policies.view_of_port(env, packed)
        action = policy(view, policies.Noise(job.seed, numbers, numbers * 0 + t))
        shares = cpu_shares_of_batch(view, action)
        *_, ended = env.step({name: torch.as_tensor(array, device=env.device) for name, array in action.items()})
        totals = {name: host(ended[name]) for name in ("dropped", "energy", "jain")}
        records.append(on_host(env.record()) | totals | {"cpu": shares})
        fields = env.fields()
        backlogs.append({name: host(fields[name]) for name in FAMILIES})
    # The last step has emptied the queues for the next episode.
    before, last = backlogs[-2], records[-1]
    backlogs[-1] = {name: before[name] + last["in"][name] - last["dep"][name] for name in FAMILIES}
    together = {name: np.stack([of_slot[name] for of_slot in backlogs], axis=1) for name in FAMILIES}
    where = delays.paths([env.scenarios[number] for number in chosen])
    played = kept(records, delays.flows(records, env.params), where, together, env.params, job.traffic)
    yield from zip((job.scenario + chosen).tolist(), played, strict=True)


def cpu_shares(network) -> dict[str, dict[str, np.ndarray]]:
    """Shares [n] of each CPU in the original's last slot, by kind: that of admitted tasks, and that of all places."""
    kinds = {"lc": network.clients, "vc": network.servers, "ec": network.edges, "cc": [network.cloud]}
    return {
        "admitted": {kind: np.array([sum(one.weights[: one.occupied]) for one in of]) for kind, of in kinds.items()},
        "whole": {kind: np.array([sum(one.weights) for one in of]) for kind, of in kinds.items()},
    }


def cpu_shares_of_batch(view: policies.View, action: Mapping) -> dict[str, dict[str, np.ndarray]]:
    """The same [B, n] of an action that a batch is about to take."""
    xp, packed, p = view.xp, replace(view.tables, index=view.index), view.params
    taken = offloading(xp, packed, action, (view.index, view.t))
    found, ends = {}, np.cumsum([p.clients, p.servers, p.edges])
    for name, weight in {"admitted": xp.where(taken.filled, taken.weight, 0.0), "whole": taken.weight}.items():
        shares = objective.on_host(of_nodes(xp, packed.numbering, weight))
        found[name] = dict(zip(earlier_reward.CPUS, np.split(shares, ends, axis=1), strict=True))
    return found


def on_host(record: Mapping) -> dict:
    return {name: on_host(part) if isinstance(part, Mapping) else host(part) for name, part in record.items()}


def host(tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().copy()


# ---- What is kept --------------------------------------------------------------------------------------------------


def kept(records, moved: delays.Flows, where: delays.Paths, backlogs: Mapping, params, traffic) -> Iterator[Episode]:
    """An Episode of each of B; backlogs [B, T, ...] of each family."""
    delivered = delays.deliver(moved, where, params)
    counts, percentiles = delays.counts(delivered), delays.percentiles(delivered, PERCENTS)
    on_time, histogram = delays.on_time_share(delivered), delays.histogram(delivered, int(LONGEST * params.slots))
    summed = {name: np.stack([np.atleast_1d(np.asarray(r[name], float)) for r in records]) for name in OF_A_SLOT}
    dropped = np.stack([np.asarray(r["dropped"], float).reshape(-1, 3) for r in records]).sum(axis=0)
    cost = summed["cost"] + np.stack([np.atleast_1d(earlier_reward.cost_above(record)) for record in records])
    earlier = 0.5 * summed["success"] - 0.35 * params.penalty_weight * cost
    earlier = earlier - 0.15 * earlier_drifts(records, moved, traffic).T  # [T, B]
    for b in range(len(on_time)):
        totals = {
            "return": summed["reward"][:, b].sum(),
            "earlier_return": earlier[:, b].sum(),
            **{name: summed[name][:, b].mean() for name in ("cost", "drift", "success", "jain")},
            "energy_j": summed["energy"][:, b].sum(),
            "on_time": on_time[b],
            "open": counts["open"][b],
            "tasks": sum(count[b] for count in counts.values()),
            **dict(zip(("dropped_overflow", "dropped_cap", "dropped_coverage"), dropped[b], strict=True)),
        }
        routes = []
        for place, route in enumerate((*delays.ROUTES, "all")):
            taken = delivered.route[b] == place if route != "all" else delivered.route[b] != delays.NOT_ADMITTED
            seconds = (None if np.isnan(s) else float(s) for s in percentiles[route][b])
            named = dict(zip((f"delay_p{percent}_s" for percent in PERCENTS), seconds, strict=True))
            routes.append({"route": route, "tasks": int(taken.sum()), **named})
        at_edges = np.stack(
            [backlogs[name][b].sum(axis=-1) if name == "v2i" else backlogs[name][b] for name in EDGE_FAMILIES]
        )
        little = list(points(moved, backlogs, b)) if b == 0 else []
        yield Episode({name: value.item() for name, value in totals.items()}, routes, histogram[b], at_edges, little)


def earlier_drifts(records, moved: delays.Flows, traffic: str) -> np.ndarray:
    """The drift of the earlier reward in every slot, [B, T]."""
    flows = []
    for side, of_delay in ((moved.arrived, "in"), (moved.departed, "out")):
        virtual = np.stack([np.atleast_2d(np.asarray(record["delay"][of_delay])) for record in records], axis=1)
        flows.append({name: virtual if name == "delay" else side[name] for name in DRIFTS})
    return earlier_reward.drift(*flows, earlier_reward.scales(drawn, traffic))


def points(moved: delays.Flows, backlogs: Mapping, b: int) -> Iterator[dict]:
    """Little's law of every queue that something arrived at."""
    for name in FAMILIES:
        flat = (array[name][b].reshape(len(backlogs[name][b]), -1).T for array in (moved.arrived, moved.departed))
        found = delays.sojourn(*flat, backlogs[name][b].reshape(len(backlogs[name][b]), -1).T)
        for node in np.flatnonzero(found.rate > 0):
            backlog, rate, delay = (float(row[node]) for row in found)
            yield {"family": name, "node": int(node), "backlog_mbit": backlog, "rate_mbps": rate, "delay_s": delay}
