"""State of the original in the names, shapes and units that all forms share (`layout.state_shapes`)."""

import numpy as np
from gymnasium.error import ResetNeeded

from ...checks import integer, state_fields
from ..layout import state_shapes
from ..oracles.problem import routes_of
from ..scenario import Instance
from ..windows import ACTIONS
from .environment import VehicleRouting
from .episode import Decision, Episode


def get_state(env: VehicleRouting) -> dict[str, np.ndarray]:
    """Every field of `layout.state_shapes`, and `episode`.

    Raises:
        ResetNeeded: there was no episode yet.
    """
    episode = _opened(env)
    instance, decisions = episode.instance, episode.decisions
    found = {"traveller": -1, "action": -1, "kept": 0, "accepted": 0, "walk": 0, "twin_walk": 0}
    found = {name: np.full(shape, found.get(name, 0), kind) for name, (shape, kind) in state_shapes(env.params).items()}
    for t, decision in enumerate(decisions):
        for name, value in decision._asdict().items():
            found[name][t] = value
    for name in ("walk", "twin_walk"):
        walk = getattr(episode, name)
        found[name][: len(walk)] = walk
    found["t"][()] = len(decisions)
    for name in ("trip", "offered", "order"):
        found[name][:] = getattr(instance, name)
    for name in ("answered", "failed", "cost", "twin_cost", "returns"):
        found[name][()] = getattr(episode, name)
    return found | {"episode": np.int64(episode.number)}


def set_state(env: VehicleRouting, state: dict):
    """Puts the environment into a state; fields that it lacks stay as they are.

    Raises:
        ValueError: an unknown field, another shape, or a number that means nothing; names the field.
        ResetNeeded: there was no episode yet.
    """
    fields = get_state(env) | _checked(env, state)
    plain = {name: array.tolist() for name, array in fields.items()}
    integer("state field 'answered'", plain["answered"], 0, plain["t"])
    for name in ("traveller", "action"):
        if min(plain[name][: plain["t"]], default=0) < 0:
            raise ValueError(f"state field {name!r} must hold {plain['t']} decisions, as t says")
    env.number = plain["episode"]
    episode = Episode(env.params, env.scenario, Instance(plain["trip"], plain["offered"], plain["order"]), env.number)
    rows = zip(*(plain[name] for name in Decision._fields), strict=True)
    episode.decisions = [Decision(i, action, bool(yes), kept) for i, action, yes, kept in rows][: plain["t"]]
    for name in ("answered", "cost", "twin_cost", "returns"):
        setattr(episode, name, plain[name])
    episode.failed = bool(plain["failed"])
    for name in ("walk", "twin_walk"):
        routes = routes_of(plain[name])
        setattr(episode, name, [0, *(node for route in routes for node in (*route, 0))])
        if name == "walk":
            episode.vehicles = len(routes)
    env.episode = episode


def _opened(env: VehicleRouting) -> Episode:
    if env.episode is None:
        raise ResetNeeded("no episode is open: call reset() first")
    return env.episode


def _checked(env: VehicleRouting, state: dict) -> dict[str, np.ndarray]:
    p = env.params
    shapes, found = state_shapes(p) | {"episode": ((), np.int64)}, {}
    n, most = p.requests, 2**31 - 1
    limits = {
        "t": (0, n), "answered": (0, n), "failed": (0, 1), "trip": (0, env.scenario.trip.shape[1] - 1),
        "order": (0, n - 1), "traveller": (-1, n - 1), "action": (-1, ACTIONS - 1), "accepted": (0, 1),
        "walk": (0, p.nodes - 1), "twin_walk": (0, p.nodes - 1), "episode": (0, 2**32 - 1),
    }  # fmt: skip
    for name, kind, array in state_fields(state, shapes):
        if kind is not np.float64:
            for value in array.ravel().tolist():
                whole = int(value) if value == int(value) else value
                integer(f"state field {name!r}", whole, *limits.get(name, (0, most)))
        found[name] = array.astype(kind)
    if "order" in found and sorted(found["order"].tolist()) != list(range(n)):
        raise ValueError(f"state field 'order' must hold each traveller 0 .. {n - 1} once")
    return found
