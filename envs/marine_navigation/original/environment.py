"""The original as a PettingZoo environment; episode.py holds the model."""

import inspect
from collections.abc import Mapping

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Discrete

from lockstep.extras import extra
from lockstep.reading import nearest

from ...checks import choice, integer
from ..params import MOST, Params, given_params, make_params
from ..scenario import curriculum_of, philox_scenario, pool_of
from ..scenario.drawing import placed
from .actions import action
from .boats import Boat
from .episode import Episode

with extra("pettingzoo", of="the original of 'marine_navigation'"):
    from pettingzoo import ParallelEnv


class MarineNavigation(ParallelEnv):
    """The environment, of robots `robot_0` and so on, each with an observation, a reward and an end of its own.

    Args:
        params: of a version.
        scenario: None to draw each episode, or a `Scenario`, a path of a scenario file, or a list of them, of which
            episode e of environment b plays number (b + e) mod N.
        curriculum: None, or settings of the episodes that are drawn: a name, `Stages`, `Mix`, or pairs of a setting
            and a weight.
        seed, index: key of the noise, 0 .. 2^64-1, and number of the environment, 0 .. 2^32-1.
        batch: environments whose steps a curriculum counts, of which this is one.
        check_actions: refuse numbers outside an action's space; else they are clipped, and NaN and indices that are
            none act as 0.
        render_mode: None or "rgb_array".

    Raises:
        ValueError: names a field, its value and what is allowed.
    """

    metadata = {"name": "marine_navigation", "render_modes": ["rgb_array"], "is_parallelizable": True}

    def __init__(
        self,
        params: Params | None = None,
        scenario=None,
        curriculum=None,
        seed: int = 0,
        index: int = 0,
        batch: int = 1,
        check_actions: bool = True,
        render_mode: str | None = None,
    ):
        p = Params() if params is None else given_params(params)
        self.render_mode = choice("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        self.check_actions = choice("check_actions", check_actions, (True, False))
        self.key, self.index = integer("seed", seed, 0, 2**64 - 1), integer("index", index, 0, 2**32 - 1)
        self.batch = integer("batch", batch, 1, 2**31 - 1)
        if scenario is not None and curriculum is not None:
            raise ValueError(f"curriculum={curriculum!r:.60} must be None where scenarios are given")
        self.scenarios = None if scenario is None else pool_of(scenario, p)
        self.curriculum = curriculum_of(curriculum, p)
        if self.scenarios:
            every = [one.counts for one in self.scenarios]
        else:
            every = [one[:3] for one in (self.curriculum.settings if self.curriculum else [p.check_setting(p.setting)])]
        self.params = p = p.widened(every)
        self.most = {kind: getattr(p, kind) for kind in MOST}  # of all episodes
        self.possible_agents = [f"robot_{i}" for i in range(self.most["robots"])]
        self._indices = {agent: i for i, agent in enumerate(self.possible_agents)}
        self.agents: list[str] = []
        continuous = p.action_kind == "continuous"
        observation = Box(-np.inf, np.inf, (p.observed,), np.float64)
        self._spaces = {
            agent: (observation, Box(-1.0, 1.0, (2,), np.float32) if continuous else Discrete(p.choices))
            for agent in self.possible_agents
        }
        self.number, self.clock, self.playing = -1, 0, 0  # of the episode, of steps since the seed, of the scenario
        self.episode: Episode | None = None

    # ---- PettingZoo

    def observation_space(self, agent: str) -> Box:
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> "Box | Discrete":
        return self._spaces[agent][1]

    def reset(self, seed: int | None = None, options: dict | None = None):
        """Opens the next episode; a seed begins with episode 0 again.

        Args:
            seed: 0 .. 2^64-1.
            options: there are none; ignored, as PettingZoo's interface has it.

        Returns:
            Observations (README.md, 2.4; float64) and infos by agent.

        Raises:
            ValueError: a seed that is none; or no robot finds a place at D_min from its goal.
        """
        if seed is not None:
            self.key, self.number, self.clock = integer("seed", seed, 0, 2**64 - 1), -1, 0
        self.number += 1
        self.episode = Episode(self.params, self._scenario(), self.key, self.index, self.number)
        self.agents = self.possible_agents[: len(self.episode.boats)]
        return self.observe(), self._infos()

    def step(self, actions: Mapping):
        """One control step of every active robot.

        Args:
            actions: of each agent: rates of thrust [2] in -1..1, or an index. Others than `agents` are not read.

        Returns:
            Observations, rewards, terminated, truncated and infos by agent. An info says of the robot, since the
            episode began: "return", "time" (s active), "energy" (N s, or control effort), "reached", "hit_robot",
            "hit_obstacle"; and "success" and "episode_length" of all.

        Raises:
            ResetNeeded: no episode is open.
            ValueError: an agent has no action, or one of the wrong kind or range; names agent, value and what is
                allowed.
        """
        if not self.agents:
            raise ResetNeeded("no episode is open: call reset() first")
        if not isinstance(actions, Mapping):
            raise ValueError(f"actions must be a dict by agent, not {type(actions).__name__}")
        for agent in actions:
            if agent not in self._indices:
                raise ValueError(f"actions: no agent {agent!r}{nearest(agent, self.possible_agents)}")
        acting = list(self.agents)
        for agent in acting:
            if agent not in actions:
                raise ValueError(f"actions: agent {agent!r} is active and has none")
        read = {self._indices[a]: action(actions[a], a, self.params, self.check_actions) for a in acting}
        outcome = self.episode.step(read)
        self.clock += 1
        infos, place = self._infos(), self._indices
        self.agents = [] if self.episode.over else [a for a in acting if self.episode.boats[place[a]].active]
        return (
            {agent: np.array(outcome.observation[place[agent]]) for agent in acting},
            *({agent: column[place[agent]] for agent in acting} for column in outcome[1:]),
            {agent: infos[agent] for agent in acting},
        )

    def observe(self) -> dict[str, np.ndarray]:
        """Observations of the agents at this point of the episode."""
        rows = self.episode.perceive()[0]
        return {agent: np.array(rows[self._indices[agent]]) for agent in self.agents}

    def render(self) -> np.ndarray | None:
        """A picture of the scene [height, width, 3] uint8 where render_mode is "rgb_array"; needs matplotlib."""
        if self.render_mode is None:
            return None
        if self.episode is None:
            raise ResetNeeded("no episode is open: call reset() first")
        from .render import picture

        return picture(self.episode)

    def close(self):
        pass

    # ---- inside

    @property
    def success(self) -> bool:
        """True if every robot has reached its goal and none has hit anything."""
        boats = self.episode.boats
        return all(boat.reached and not (boat.hit_robot or boat.hit_obstacle) for boat in boats)

    def _scenario(self):
        if self.scenarios:
            self.playing = (self.index + self.number) % len(self.scenarios)
            return self.scenarios[self.playing]
        place, setting = (self.key, self.index, self.number), self.params.setting
        if self.curriculum is not None:
            setting = self.curriculum.setting(self.clock * self.batch, *place)
        return placed(philox_scenario(self.params, setting, *place), setting, *place[1:])

    def _infos(self) -> dict[str, dict]:
        episode = {"success": self.success, "episode_length": self.episode.elapsed}
        return {agent: self._row(self.episode.boats[self._indices[agent]]) | episode for agent in self.agents}

    def _row(self, boat: Boat) -> dict:
        return {
            "return": boat.total,
            "time": boat.steps * self.params.period,
            "energy": boat.energy,
            "reached": boat.reached,
            "hit_robot": boat.hit_robot,
            "hit_obstacle": boat.hit_obstacle,
        }


def make(
    preset: str | None = None,
    scenario=None,
    seed: int = 0,
    index: int = 0,
    version: str = "thruster",
    curriculum=None,
    batch: int = 1,
    check_actions: bool = True,
    render_mode: str | None = None,
    **params,
) -> MarineNavigation:
    """The original of a version, "thruster", "kinematic" or "sonar".

    Args:
        preset: "corrected" (None) or "original".
        scenario, seed, index, curriculum, batch, check_actions, render_mode: as in `MarineNavigation`.
        **params: single fields of `params.Params`.

    Raises:
        ValueError: an unknown version, preset or parameter, or a value that is not allowed; names it.
    """
    options = [name for name in inspect.signature(make).parameters if name != "params"]
    return MarineNavigation(
        make_params(version, preset, options, **params),
        scenario, curriculum, seed, index, batch, check_actions, render_mode,
    )  # fmt: skip
