"""State of the original in the names, shapes and units that all forms share (`layout.state_shapes`)."""

import numpy as np
from gymnasium.error import ResetNeeded

from ...checks import integer, state_fields
from ..layout import limits as layout_limits
from ..layout import state_shapes
from ..scenario.scenario import refuse
from ..vortices import Core
from .boats import Boat
from .environment import MarineNavigation
from .episode import Episode
from .perception import Obstacle

COLUMNS = {  # of a field: the attributes of a boat
    "pose": ("x", "y", "theta"),
    "water_velocity": ("wx", "wy"),
    "yaw_rate": ("r",),
    "reported_yaw_rate": ("turning",),
    "thrust": ("left", "right"),
    "speed": ("speed",),
    "ground_velocity": ("vx", "vy"),
    "goal": ("goal_x", "goal_y"),
    "noise_id": ("noise_id",),
    "returns": ("total",),
    "steps": ("steps",),
    "energy": ("energy",),
    "reached": ("reached",),
    "hit_robot": ("hit_robot",),
    "hit_obstacle": ("hit_obstacle",),
}


def get_state(env: MarineNavigation) -> dict[str, np.ndarray]:
    """Every field of `layout.state_shapes`, `active` [A], `elapsed`, `episode`, and `scenario` where there are any.

    Raises:
        ResetNeeded: there was no episode yet.
    """
    episode = _opened(env)
    boats, counts = episode.boats, (len(episode.boats), len(episode.cores), len(episode.obstacles))
    rows = {name: [[getattr(boat, part) for part in parts] for boat in boats] for name, parts in COLUMNS.items()}
    rows |= {"core": episode.cores, "obstacle": episode.obstacles}
    single = {"counts": counts, "asked": episode.asked, "blind": episode.unseeing}
    found = {}
    for name, (shape, kind) in state_shapes(env.params, *env.most.values()).items():
        if name in single:
            found[name] = np.array(single[name], dtype=kind)
            continue
        found[name] = np.zeros(shape, kind)
        if rows[name]:
            found[name][: len(rows[name])] = np.array(rows[name], kind).reshape(len(rows[name]), *shape[1:])
    found["active"] = np.zeros(env.most["robots"], bool)
    found["active"][: len(boats)] = [boat.active for boat in boats]
    found |= {"elapsed": np.int64(episode.elapsed), "episode": np.int64(episode.number)}
    if env.scenarios:
        found["scenario"] = np.int64(env.playing)
    return found


def set_state(env: MarineNavigation, state: dict):
    """Puts the environment into a state; fields that it lacks stay as they are, or as a `scenario` begins.

    Raises:
        ValueError: an unknown field, another shape, a number that is not finite or not whole, or counts over what the
            environment holds; names the field.
        ResetNeeded: there was no episode yet.
    """
    _opened(env)
    fields = _checked(env, state)
    number = fields.pop("episode", np.int64(env.number)).item()
    if "scenario" in fields:
        env.playing = fields.pop("scenario").item()
        env.episode = Episode(env.params, env.scenarios[env.playing], env.key, env.index, number)
    env.number = env.episode.number = number
    fields = get_state(env) | fields
    episode = env.episode
    robots, cores, obstacles = fields["counts"].tolist()
    episode.elapsed = fields["elapsed"].item()
    episode.asked, episode.unseeing = fields["asked"].item(), fields["blind"].item()
    episode.set_scene(
        [Core(*row) for row in fields["core"][:cores].tolist()],
        [Obstacle(*row) for row in fields["obstacle"][:obstacles].tolist()],
    )
    episode.boats = [_boat(env, fields, i) for i in range(robots)]
    episode.over = episode.elapsed >= env.params.limit or not episode.active
    env.agents = [] if episode.over else [f"robot_{boat.index}" for boat in episode.active]


def _opened(env: MarineNavigation) -> Episode:
    if env.episode is None:
        raise ResetNeeded("no episode is open: call reset() first")
    return env.episode


def _boat(env: MarineNavigation, fields: dict, i: int) -> Boat:
    parts = {}
    for name, attributes in COLUMNS.items():
        if name in fields:
            parts |= zip(attributes, np.atleast_1d(fields[name][i]).tolist(), strict=True)
    for flag in ("reached", "hit_robot", "hit_obstacle"):
        parts[flag] = bool(parts[flag])
    blind = i >= env.episode.asked - env.episode.unseeing
    return env.episode.boat(index=i, **parts, active=bool(fields["active"][i]), blind=blind)


def _checked(env: MarineNavigation, state: dict) -> dict[str, np.ndarray]:
    A = env.most["robots"]
    shapes = state_shapes(env.params, *env.most.values())
    shapes |= {"active": ((A,), np.bool_), "elapsed": ((), np.int64), "episode": ((), np.int64)}
    if env.scenarios:
        shapes["scenario"] = ((), np.int64)
    found = {}
    for name, kind, array in state_fields(state, shapes):
        found[name] = array.astype(kind)
        if kind is not np.float64 and (found[name] != array).any():
            raise ValueError(f"state field {name!r} must hold whole numbers, of flags 0 or 1")
    limits = {"elapsed": env.params.limit, "episode": 2**32 - 1, "scenario": len(env.scenarios or ()) - 1}
    for name, most in limits.items():
        if name in found:
            integer(f"state field {name!r}", found[name].item(), 0, most)
    for name, (low, high) in layout_limits(env.params, *env.most.values()).items():
        if name in found:
            array = found[name]
            refuse((array < low) | (array > high), array, name, "state", f"must be from {low} to {high}")
    return found
