"""The original as a Gymnasium environment; episode.py holds the model."""

import inspect
import secrets
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Discrete

from ...checks import integer
from ..oracles import best_known, make_oracle
from ..params import Params, make_params
from ..scenario import Scenario, city, draw, load
from ..windows import ACTIONS
from .episode import Episode
from .observe import observe, space


class VehicleRouting(gymnasium.Env):
    """The environment; an action is a shift that the next traveller is asked to accept.

    Args:
        params: whose sizes are the scenario's.
        scenario: None for the city of the parameters, or a `Scenario`, or the path of a scenario file.
        oracle: its word, see `oracles.make_oracle`; None: the best known of the scenario, see `oracles.best_known`.
        seed, index: key of the noise, 0 .. 2^64-1, and number of the environment, 0 .. 2^32-1.

    Attributes:
        key: of the noise; with `unseeded_instances` drawn by the system at each reset with a seed.
        masks: [n, 16] bool, actions by traveller that `info["action_mask"]` shows; others may be chosen all the same.

    Raises:
        ValueError: names a field, its value and what is allowed.
        ImportError: the oracle needs a library that is not installed.
    """

    metadata = {"name": "vehicle_routing", "render_modes": []}

    def __init__(
        self,
        params: Params | None = None,
        scenario: Scenario | str | Path | None = None,
        oracle: str | None = None,
        seed: int = 0,
        index: int = 0,
    ):
        self.params = params or Params()
        self.path = scenario if isinstance(scenario, str | Path) else None
        self.scenario = scenario_of(scenario, self.params).check(self.params)
        self.key, self.index = integer("seed", seed, 0, 2**64 - 1), integer("index", index, 0, 2**32 - 1)
        self.word = best_known(self.params, self.scenario.travel) if oracle is None else oracle
        self.oracle = make_oracle(self.word, self.params, self.scenario.travel)
        self.observation_space = space(self.params, self.scenario)
        self.action_space = Discrete(ACTIONS)
        self.masks = np.ones((self.params.requests, ACTIONS), bool)
        self.number, self.episode = -1, None

    # ---- Gymnasium

    def reset(self, seed: int | None = None, options: dict | None = None, key: int | None = None):
        """Opens the next episode; a seed or a key begins with episode 0 again.

        Args:
            seed: 0 .. 2^64-1.
            options: there are none; ignored, as Gymnasium's interface has it.
            key: of the noise, which is used as it is, even with `unseeded_instances`.

        Returns:
            Observation and info: "traveller" (who asks), "action_mask" [16], and "key".

        Raises:
            ValueError: a seed or key that is none, or `masks` of another shape or with a row that allows nothing.
        """
        again = self.number < 0
        for name, given in (("seed", seed), ("key", key)):
            if given is not None:
                self.key, again = integer(name, given, 0, 2**64 - 1), True
        super().reset(seed=seed)
        if again:
            self.number = -1
            if self.params.unseeded_instances and key is None:
                self.key = secrets.randbits(64)
        self.number += 1
        instance = draw(self.scenario, self.params, self.key, self.index, self.number)
        self.episode = Episode(self.params, self.scenario, instance, self.number)
        return observe(self.episode), self._asks() | {"key": self.key}

    def step(self, action):
        """One decision.

        Args:
            action: 4 i + j for a pickup (-30, -20, -10, 0)[i] and a drop-off (0, 10, 20, 30)[j] min later.

        Returns:
            Observation, reward (min), terminated, False, and an info: "traveller" (who asks next, or -1), "action_mask"
            [16], "answered" (who was asked), "accepted", "shift" (accepted, min), "cost" (ticks), "walk" (nodes),
            "vehicles", "failed".

        Raises:
            ResetNeeded: no episode is open.
            ValueError: the action is not an integer 0 .. 15; names the environment.
        """
        episode = self.episode
        if episode is None or episode.terminated:
            raise ResetNeeded("no episode is open: call reset() first")
        if isinstance(action, np.ndarray) and action.shape == ():
            action = action[()]
        action = integer(f"action of environment {self.index}", action, 0, ACTIONS - 1)
        answered = episode.traveller
        if self.params.rebuild_oracle:
            scenario = self.scenario if self.path is None else load(self.path)
            self.oracle = make_oracle(self.word, self.params, scenario.travel)
        reward, accepted, shift, failed = episode.step(action, self.oracle)
        info = {
            "answered": answered,
            "accepted": accepted,
            "shift": shift,
            "cost": episode.cost,
            "walk": np.array(episode.walk, dtype=np.int16),
            "vehicles": episode.vehicles,
            "failed": failed,
        }
        return observe(episode), reward, episode.terminated, False, self._asks() | info

    def observe(self) -> np.ndarray:
        """The observation at this point of the episode."""
        return observe(self.episode)

    # ---- inside

    def _asks(self) -> dict:
        found, known = np.shape(self.masks), (self.params.requests, ACTIONS)
        if found != known:
            raise ValueError(f"masks have shape {found}, must have {known}")
        traveller = -1 if self.episode.terminated else self.episode.traveller
        mask = np.ones(ACTIONS, bool) if traveller < 0 else np.array(self.masks[traveller], dtype=bool)
        if not mask.any():
            raise ValueError(f"masks[{traveller}] allows no action of traveller {traveller}, must allow one or more")
        return {"traveller": traveller, "action_mask": mask}


def scenario_of(given, params: Params) -> Scenario:
    """The scenario that was given: an object, a path, or None for the city of the parameters."""
    if given is None:
        return city(params=params)
    if isinstance(given, str | Path):
        return load(given)
    if not isinstance(given, Scenario):
        raise ValueError(f"scenario={given!r:.60} must be a Scenario, a path of a scenario file, or None")
    return given


def make(
    preset: str | None = None,
    scenario: Scenario | str | Path | None = None,
    oracle: str | None = None,
    seed: int = 0,
    index: int = 0,
    **params,
) -> VehicleRouting:
    """The original.

    Args:
        preset: "corrected" (None) or "original".
        scenario, oracle, seed, index: as in `VehicleRouting`.
        **params: single fields of `params.Params`; mode, requests, capacity, horizon and fleet_size are otherwise those
            of a scenario that is given.

    Raises:
        ValueError: an unknown preset or parameter, or a value that is not allowed; names it.
        ImportError: the oracle needs a library that is not installed.
    """
    options = [name for name in inspect.signature(make).parameters if name != "params"]
    if scenario is not None:
        params = scenario_of(scenario, Params()).options() | params
    return VehicleRouting(make_params(preset, options, **params), scenario, oracle, seed, index)
