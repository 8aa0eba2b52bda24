"""Small scenes by hand, and what to do in them, in the original and in the port."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs.marine_navigation import original
from lockstep.envs.marine_navigation.original import MarineNavigation
from lockstep.envs.marine_navigation.params import Params, make_params
from lockstep.envs.marine_navigation.scenario import Scenario

QUIET = {"position_noise": 0.0, "velocity_noise": 0.0, "radius_mean": 1.0, "radius_spread": 0.0}
FAR = (50.0, 50.0)  # a goal out of the way
FORMS = ("original", "port")
form = "original"  # that `opened` and `made` make; see conftest.py
RENAMED = {"scenario": "scenarios", "index": "first_index"}  # options, in the port
EPISODES = 3  # of a scene in the port
ROUNDED = 2.0**-24  # of a number, by which it is off where it is shown in float32
INFO = {"return": "returns"} | {n: n for n in ("time", "energy", "reached", "hit_robot", "hit_obstacle")}


def scene(version="thruster", robots=((5.0, 5.0, *FAR, 0.0, 0.0),), cores=(), obstacles=(), **more) -> Scenario:
    """Robots (x, y, goal x, goal y, heading, speed), cores (x, y, clockwise, edge speed), obstacles (x, y, radius)."""
    robots, cores, obstacles = (
        np.array(rows, float).reshape(-1, n) for rows, n in ((robots, 6), (cores, 4), (obstacles, 3))
    )
    return Scenario(
        version, robots[:, :2], robots[:, 2:4], robots[:, 4], robots[:, 5], cores[:, :2], cores[:, 2] > 0,
        cores[:, 3], obstacles[:, :2], obstacles[:, 2], **more,
    )  # fmt: skip


def crowded(version: str) -> Scenario:
    """As many of all as any scene here has, out of one another's way."""
    robots = [(100.0 + 20 * i, 0.0, *FAR, 0.0, 0.0) for i in range(1 if version == "sonar" else 4)]
    cores = [(100.0 + 20 * i, 200.0, True, 3.0) for i in range(12)]
    return scene(version, robots, cores, [(100.0 + 20 * i, 300.0, 1.0) for i in range(8)])


def params(version="thruster", preset=None, **single) -> Params:
    return make_params(version, preset, **single)


class Ported:
    """One environment of the port, in float64, with what tests ask of the original.

    Scenes are put into a pool with one that is larger than all, so that those of a version share their kernels.
    """

    def __init__(self, given: Scenario | None, **options):
        if given is not None:
            options |= {"version": given.version, "scenario": [given] * EPISODES + [crowded(given.version)]}
        self.env = make(dtype="float64", autoreset_mode="Disabled", **options)
        self.params = self.env.params
        self.reset()

    def reset(self, seed: int | None = None):
        seen, info = self.env.reset(seed=seed)
        self.agents = named(info["active"])
        return by_agent(seen, self.agents), {}

    def step(self, actions: Mapping):
        chosen = torch.zeros(self.env.actions.shape, dtype=self.env.actions.types[0])
        for agent, action in actions.items():
            chosen[0, number(agent)] = torch.tensor(np.array(action))
        acting = self.agents
        shown, *columns, info = self.env.step(chosen)
        over, found = bool(info["_final_obs"]), self.state()
        assert named(info["valid"]) == acting
        self.agents = [] if over else named(info["active"])
        if over:
            told = {name: info[key][0].tolist() for name, key in INFO.items()}
        else:
            told = {"return": found["returns"], "time": found["steps"] * self.params.period, "energy": found["energy"]}
            told |= {name: found[name] > 0 for name in ("reached", "hit_robot", "hit_obstacle")}
        whole = {"success": over and bool(info["success"]), "episode_length": found["elapsed"].item()}
        assert not over or whole["episode_length"] == info["episode_length"].item()
        infos = {agent: {name: told[name][number(agent)] for name in told} | whole for agent in acting}
        return (
            by_agent(info["final_obs"] if over else shown, acting),
            *({agent: column[0, number(agent)].item() for agent in acting} for column in columns),
            infos,
        )

    def observe(self) -> dict[str, np.ndarray]:
        return by_agent(self.env._outputs[0], self.agents)

    def state(self) -> dict[str, np.ndarray]:
        """Fields of what there is of robots, cores and obstacles."""
        found = {name: rows[0].numpy().copy() for name, rows in self._whole().items()}
        robots, *others = found["counts"].tolist()
        sizes = {"counts": 3} | dict(zip(("core", "obstacle"), others, strict=True))
        return {name: rows[: sizes.get(name, robots)] if rows.ndim else rows for name, rows in found.items()}

    def set_state(self, state: Mapping):
        whole = {name: rows.clone() for name, rows in self._whole().items() if name in state}
        for name, rows in state.items():
            whole[name][0][tuple(map(slice, np.shape(rows)))] = torch.as_tensor(np.array(rows))
        self.env.set_state(whole)
        self.agents = named(self._whole()["active"])

    def _whole(self) -> dict[str, torch.Tensor]:
        whole = {"active": self.env._info["active"]} | self.env.state()
        return self.env.fields() | {name: whole[name] for name in ("active", "elapsed", "episode")}


def number(agent: str) -> int:
    return int(agent.removeprefix("robot_"))


def named(flags: torch.Tensor) -> list[str]:
    """Agents of whom the only row of flags [1, A] is true."""
    return [f"robot_{i}" for i, on in enumerate(flags[0].tolist()) if on]


def by_agent(rows: torch.Tensor, agents) -> dict[str, np.ndarray]:
    return {agent: rows[0, number(agent)].double().numpy() for agent in agents}


def make(**options):
    """An environment by options as the original takes them, without an episode."""
    if form == "original":
        return original.make(**options)
    return envs.make("marine_navigation", 1, **{RENAMED.get(name, name): value for name, value in options.items()})


def made(**options) -> "MarineNavigation | Ported":
    """An environment whose episodes are drawn, in the first one."""
    if form == "port":
        return Ported(None, **options)
    env = original.make(**options)
    env.reset()
    return env


def opened(given: Scenario, preset=None, check_actions=True, **single) -> "MarineNavigation | Ported":
    """An environment in the first episode of a scene."""
    if form == "port":
        return Ported(given, preset=preset, check_actions=check_actions, **single)
    env = MarineNavigation(params(given.version, preset, **single), given, check_actions=check_actions)
    env.reset()
    return env


def get_state(env: "MarineNavigation | Ported") -> dict[str, np.ndarray]:
    return env.state() if isinstance(env, Ported) else original.get_state(env)


def put(env: "MarineNavigation | Ported", **fields) -> "MarineNavigation | Ported":
    """The environment with fields of its state replaced; rows that are left out stay."""
    state = get_state(env)
    found = {name: np.broadcast_to(rows, np.shape(state[name])) for name, rows in fields.items()}
    env.set_state(found) if isinstance(env, Ported) else original.set_state(env, found)
    return env


def step(env: "MarineNavigation | Ported", *actions):
    """A step under an action for each agent, or under that of coasting for all."""
    nothing = np.zeros(2) if env.params.action_kind == "continuous" else 0 if env.params.version == "thruster" else 4
    chosen = actions or [nothing] * len(env.agents)
    return env.step(dict(zip(env.agents, chosen, strict=True)))


def play(env: "MarineNavigation | Ported", steps: int, *actions):
    """The last outcome of so many steps alike."""
    for _ in range(steps):
        outcome = step(env, *actions)
    return outcome


def state(env: "MarineNavigation | Ported", name: str, robot: int = 0) -> list[float]:
    """A field of one robot."""
    return np.atleast_1d(get_state(env)[name][robot]).tolist()


def rounding() -> float:
    """Of what is shown: the port shows float32."""
    return ROUNDED if form == "port" else 0.0


def near(expected, abs=1e-12):
    """Numbers that are shown, to so much besides their rounding."""
    return pytest.approx(expected, rel=rounding(), abs=abs)
