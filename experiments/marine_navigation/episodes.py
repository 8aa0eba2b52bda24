"""The published episodes, played in the original and in the port: success, time, energy, collisions by kind.

Axes: E episodes, A robots of the largest.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from lockstep import envs
from lockstep.envs.marine_navigation.params import Params, make_params
from lockstep.envs.marine_navigation.scenario import Scenario, published
from lockstep.experiments import originals
from lockstep.experiments.config import Settings

COLUMNS = [
    *("robots", "cores", "obstacles", "episode"),
    *("success", "episode_length", "return", "time_s", "energy", "reached", "hit_robot", "hit_obstacle"),
    *("reached_time_s", "reached_energy"),
]
# A row is an episode. robots, cores, obstacles: asked for. return, time_s, energy: means of its robots; the last two
# also of those that reached their goals. reached, hit_robot, hit_obstacle: numbers of robots.
TOLD = ("returns", "steps", "energy", "reached", "hit_robot", "hit_obstacle")  # of each robot
ALONE = 20  # episodes from which it is worth it to start processes

Act = Callable[[torch.Tensor], torch.Tensor]  # from observations [E, A, n], one call a step
Player = Callable[[np.ndarray], Act]  # from the numbers [E] of environments; where it goes to processes, picklable


def parameters(version: str, preset: str, evaluation: Settings, **given: object) -> Params:
    """The parameters under which episodes have as many steps as a version's evaluation says."""
    given |= evaluation.get("parameters", {})
    extra = make_params(version, preset, **given).limit_extra_step
    return make_params(version, preset, max_steps=evaluation.steps - extra, **given)


@dataclass(frozen=True)
class Evaluation:
    """Published episodes, one list over all settings, so many of each.

    Args:
        settings: robots, cores, obstacles and least distance, m.
        each: episodes of a setting.
    """

    name: str  # of the environment
    params: Params
    settings: Sequence[Sequence[float]]
    each: int
    drawn: int  # seed of the published draws
    seed: int

    @property
    def wanted(self) -> list[Sequence[float]]:
        return [setting for setting in self.settings for _ in range(self.each)]

    @property
    def pool(self) -> list[Scenario]:
        return published(self.drawn, self.wanted, self.params)

    def in_port(self, player: Player, device: str = "cpu") -> pd.DataFrame:
        """COLUMNS of every episode as the port plays them, side by side."""
        played = np.arange(len(self.wanted))
        return self._rows(in_port(self.name, player, self.params, self.pool, device, self.seed), played)

    def in_original(self, player: Player, fewer: int) -> pd.DataFrame:
        """The same of the first so many episodes of each setting as the original plays them, on all cores."""
        pool = self.pool
        played = np.flatnonzero(np.arange(len(pool)) % self.each < fewer)
        robots = max(scene.counts[0] for scene in pool)
        same = {"name": self.name, "player": player, "params": self.params, "seed": self.seed, "robots": robots}
        if len(played) >= ALONE and originals.cores() > 1:
            scenes = np.fromiter((pool[number] for number in played), dtype=object)
            return self._rows(originals.on_all_cores(in_original, played, scenes, **same)(), played)
        return self._rows(in_original(played, [pool[number] for number in played], **same), played)

    def _rows(self, fields: Mapping[str, np.ndarray], played: np.ndarray) -> pd.DataFrame:
        rows, wanted = pd.DataFrame(told(fields, self.params)), self.wanted
        rows[["robots", "cores", "obstacles"]] = [wanted[number][:3] for number in played]
        rows["episode"] = played % self.each
        return rows[COLUMNS]


def in_original(
    numbers: np.ndarray,
    scenes: Sequence[Scenario],
    *,
    name: str,
    player: Player,
    params: Params,
    seed: int,
    robots: int,
) -> dict[str, np.ndarray]:
    """States in which episodes end, [E, ...], as the original plays them side by side.

    Args:
        numbers: of the environments.
        scenes: one each.
        player: of the actions.
        robots: A.
    """
    module, A = envs.original(name), robots
    every = [module.MarineNavigation(params, [one], seed=seed, index=n) for n, one in zip(numbers, scenes, strict=True)]
    seen = np.zeros((len(every), A, params.observed))
    for env, rows in zip(every, seen, strict=True):
        show(rows, env.reset()[0])
    act = player(numbers)
    while any(env.agents for env in every):
        for env, rows, action in zip(every, seen, act(torch.from_numpy(seen)).numpy(), strict=True):
            if env.agents:
                given = {agent: action[place] for agent, place in places(env.agents)}
                rows[:] = 0
                show(rows, env.step(given)[0])
    states = [module.get_state(env) for env in every]
    wide = {field: (A, *np.shape(states[0][field])[1:]) for field in TOLD}
    found = {field: np.zeros((len(every), *shape)) for field, shape in wide.items()}
    for number, state in enumerate(states):
        for field in TOLD:
            found[field][number, : len(state[field])] = state[field]
    return found | {"counts": np.stack([state["counts"] for state in states])}


def in_port(
    name: str, player: Player, params: Params, pool: list[Scenario], device: str, seed: int
) -> dict[str, np.ndarray]:
    """States in which episodes end, [E, ...], each of an environment of the port."""
    options = {"device": device, "seed": seed, "scenarios": pool, "autoreset_mode": "Disabled"}
    env = envs.make(name, len(pool), check_actions=False, **options, **dataclasses.asdict(params))
    observation, _ = env.reset(seed=seed)
    act = player(np.arange(len(pool)))
    over = False
    while not over:
        observation, *_, info = env.step(act(observation))
        over = bool(info["_final_obs"].all())
    fields = env.fields()
    return {field: fields[field].cpu().numpy() for field in (*TOLD, "counts")}


def places(agents: Sequence[str]) -> list[tuple[str, int]]:
    return [(agent, int(agent.rpartition("_")[2])) for agent in agents]


def show(rows: np.ndarray, observations: Mapping[str, np.ndarray]) -> None:
    """Puts observations into the rows [A, n] of their agents."""
    for agent, place in places(list(observations)):
        rows[place] = observations[agent]


def told(fields: Mapping[str, np.ndarray], params: Params) -> dict[str, np.ndarray]:
    """Columns [E] of ended episodes."""
    there = np.arange(fields["steps"].shape[1]) < fields["counts"][:, :1]  # [E, A]
    reached, hit = fields["reached"] > 0, (fields["hit_robot"] > 0) | (fields["hit_obstacle"] > 0)
    time = fields["steps"] * params.period

    def mean(values: np.ndarray, among: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return np.where(among, values, 0.0).sum(axis=1) / among.sum(axis=1)

    return {
        "success": (~there | (reached & ~hit)).all(axis=1).astype(int),
        "episode_length": fields["steps"].max(axis=1).astype(int),
        "return": mean(fields["returns"], there),
        "time_s": mean(time, there),
        "energy": mean(fields["energy"], there),
        **{kind: (there & (fields[kind] > 0)).sum(axis=1) for kind in ("reached", "hit_robot", "hit_obstacle")},
        "reached_time_s": mean(time, there & reached),
        "reached_energy": mean(fields["energy"], there & reached),
    }
