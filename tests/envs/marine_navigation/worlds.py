"""Small scenes by hand, and what to do in them."""

import numpy as np

from lockstep.envs.marine_navigation.original import MarineNavigation, get_state, set_state
from lockstep.envs.marine_navigation.params import Params, make_params
from lockstep.envs.marine_navigation.scenario import Scenario

QUIET = {"position_noise": 0.0, "velocity_noise": 0.0, "radius_mean": 1.0, "radius_spread": 0.0}
FAR = (50.0, 50.0)  # a goal out of the way


def scene(version="thruster", robots=((5.0, 5.0, *FAR, 0.0, 0.0),), cores=(), obstacles=(), **more) -> Scenario:
    """Robots (x, y, goal x, goal y, heading, speed), cores (x, y, clockwise, edge speed), obstacles (x, y, radius)."""
    robots, cores, obstacles = (
        np.array(rows, float).reshape(-1, n) for rows, n in ((robots, 6), (cores, 4), (obstacles, 3))
    )
    return Scenario(
        version, robots[:, :2], robots[:, 2:4], robots[:, 4], robots[:, 5], cores[:, :2], cores[:, 2] > 0,
        cores[:, 3], obstacles[:, :2], obstacles[:, 2], **more,
    )  # fmt: skip


def params(version="thruster", preset=None, **single) -> Params:
    return make_params(version, preset, **single)


def opened(given: Scenario, preset=None, check_actions=True, **single) -> MarineNavigation:
    """An environment in the first episode of a scene."""
    env = MarineNavigation(params(given.version, preset, **single), given, check_actions=check_actions)
    env.reset()
    return env


def put(env: MarineNavigation, **fields) -> MarineNavigation:
    """The environment with fields of its state replaced; rows that are left out stay."""
    state = get_state(env)
    for name, rows in fields.items():
        state[name] = np.broadcast_to(rows, np.shape(state[name]))
    set_state(env, {name: state[name] for name in fields})
    return env


def step(env: MarineNavigation, *actions):
    """A step under an action for each agent, or under that of coasting for all."""
    nothing = np.zeros(2) if env.params.action_kind == "continuous" else 0 if env.params.version == "thruster" else 4
    chosen = actions or [nothing] * len(env.agents)
    return env.step(dict(zip(env.agents, chosen, strict=True)))


def play(env: MarineNavigation, steps: int, *actions):
    """The last outcome of so many steps alike."""
    for _ in range(steps):
        outcome = step(env, *actions)
    return outcome


def state(env: MarineNavigation, name: str, robot: int = 0) -> list[float]:
    """A field of one robot."""
    return np.atleast_1d(get_state(env)[name][robot]).tolist()
