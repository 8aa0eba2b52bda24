"""The original: two ferries as objects in float64, one episode at a time, by PettingZoo's parallel interface."""

import copy
from collections.abc import Mapping, Sequence

import numpy as np
from pettingzoo import ParallelEnv

from ...noise import RESET, philox, uniform
from .port import AGENTS, PORT, Params, Scenario, pool_of

STARTS, GUSTS, WAVES = 1, 2, 2 + len(AGENTS)  # streams of noise: one, one for each ferry, for each four crates


class Ferry:
    """One ferry: where it is, what it owns and carries."""

    def __init__(self, params: Params, north: float):
        self.position = np.array([0.0, north])  # km east and north
        self.money = params.purse  # EUR
        self.bid = 0.0  # EUR
        self.tows = 0
        self.aboard = np.ones(params.crates, dtype=int)


class Ferries(ParallelEnv):
    """The strait, for two agents that end when their ferry lands or sinks.

    Args:
        params: as in port.py.
        scenarios: an episode plays one of them.
        seed, index: key of the noise, and the environment's place in its counter.
    """

    metadata = {"name": "ferries", "render_modes": [], "is_parallelizable": True}
    render_mode = None

    def __init__(self, params: Params, scenarios: Sequence[Scenario], seed: int, index: int):
        self.params, self.scenarios, self.key, self.index = params, scenarios, seed, index
        self.possible_agents, self.agents = list(AGENTS), []
        self.observed = PORT.of("observation", params)
        self.actions = {agent: copy.deepcopy(PORT.action) for agent in AGENTS}  # each of which is seeded by itself
        self.episode = -1

    def observation_space(self, agent: str):
        return self.observed

    def action_space(self, agent: str):
        return self.actions[agent]

    def noise(self, stream: int) -> np.ndarray:
        return philox((self.index, self.episode, self.t, stream), self.key)

    def reset(self, seed: int | None = None, options: dict | None = None):
        """Opens the next episode; with a seed, or at first, episode 0."""
        self.key = self.key if seed is None else seed
        self.episode = 0 if seed is not None else self.episode + 1
        self.t, self.tug, self.price = 0, -1, 0.0
        self.scenario = int(self.noise(RESET)[0]) % len(self.scenarios)
        north = uniform(self.noise(STARTS)[: len(AGENTS)], -1, 1, np.float64)
        self.ferries = [Ferry(self.params, start) for start in north]
        self.agents = list(AGENTS)
        return {agent: self.observe(agent) for agent in AGENTS}, {agent: {} for agent in AGENTS}

    def step(self, actions: Mapping):
        """One step; `actions` holds thrust east and north and a share of the highest bid of each agent that plays."""
        playing = list(self.agents)
        actions = {agent: np.asarray(actions[agent], dtype=np.float64) for agent in playing}
        self.propose(actions)
        self.settle()
        self.wash_overboard()
        outcomes = {agent: self.sail(AGENTS.index(agent), actions[agent]) for agent in playing}
        self.t += 1
        terminated = {agent: ended for agent, (_, ended) in outcomes.items()}
        truncated = {agent: self.t >= self.params.steps and not terminated[agent] for agent in playing}
        self.agents = [agent for agent in playing if not (terminated[agent] or truncated[agent])]
        return (
            {agent: self.observe(agent) for agent in playing},
            {agent: gain for agent, (gain, _) in outcomes.items()},
            terminated,
            truncated,
            {agent: {} for agent in playing},
        )

    def propose(self, actions: Mapping):
        for agent, ferry in zip(AGENTS, self.ferries, strict=True):
            wanted = self.params.highest_bid * actions[agent][2] if agent in actions else 0.0
            ferry.bid = max(min(wanted, ferry.money), 0.0)

    def settle(self):
        bids = [ferry.bid for ferry in self.ferries]
        self.tug = bids.index(max(bids)) if max(bids) > 0 else -1
        self.price = min(bids)

    def wash_overboard(self):
        fours = self.params.crates // 4
        for number, agent in enumerate(AGENTS):
            if agent in self.agents:
                words = np.concatenate([self.noise(WAVES + number * fours + four) for four in range(fours)])
                self.ferries[number].aboard[words % 1000 < self.params.washed_per_mille] = 0

    def sail(self, number: int, action: np.ndarray) -> tuple[float, bool]:
        """A ferry's gain in EUR, and whether it has landed or sunk."""
        p, ferry, scenario = self.params, self.ferries[number], self.scenarios[self.scenario]
        towed = self.tug == number
        ferry.tows += towed
        gust = uniform(self.noise(GUSTS + number)[:2], -p.gust, p.gust, np.float64)
        pull = p.pull / ferry.tows if towed else 0.0
        way = pull * (scenario.pier[self.t % p.tide, number] - ferry.position)
        ferry.position += way + p.speed * action[:2] + (np.array([p.current, 0.0]) + gust)
        distance = np.square(scenario.pier[(self.t + 1) % p.tide, number] - ferry.position).sum()
        landed = bool(distance <= p.berth**2)
        sunk = bool(not landed and abs(ferry.position[1]) > p.shoals)
        gain = -p.fuel * (action[0] ** 2 + action[1] ** 2)
        gain -= self.price if towed else 0.0
        gain -= p.hull if sunk else 0.0
        gain += 0.01 * int(ferry.aboard @ scenario.worth[number]) if landed else 0.0
        ferry.money += gain
        return gain, landed or sunk

    def observe(self, agent: str) -> np.ndarray:
        number, p = AGENTS.index(agent), self.params
        own, other = self.ferries[number], self.ferries[1 - number]
        pier = self.scenarios[self.scenario].pier[self.t % p.tide, number]
        alone = AGENTS[1 - number] not in self.agents
        rest = (own.money / p.purse, own.aboard.mean(), self.tug == number, self.price, not alone)
        return np.array([*own.position, *(pier - own.position), *(other.position - own.position), *rest], np.float32)


def make(
    preset: str | None = None,
    scenario: Sequence[Scenario] | None = None,
    seed: int = 0,
    index: int = 0,
    **params,
) -> Ferries:
    """The original with given scenarios, or those that the port draws when nothing is said.

    Args:
        preset: "calm" or "storm".
        seed, index: of the noise.
        **params: single fields of `port.Params`.
    """
    chosen = PORT.make_params(preset, params)
    return Ferries(chosen, pool_of(chosen, 4 if scenario is None else scenario, 0), seed, index)


def get_state(env: Ferries) -> dict:
    """Every field of the port, and where the episode is."""
    fields = {
        name: np.array([getattr(ferry, name) for ferry in env.ferries])
        for name in ("position", "money", "bid", "tows", "aboard")
    }
    place = {"elapsed": env.t, "episode": env.episode, "scenario": env.scenario}
    active = np.array([agent in env.agents for agent in AGENTS])
    return {**fields, "price": env.price, "tug": env.tug, **place, "active": active}


def set_state(env: Ferries, state: Mapping):
    """Puts what `get_state` gave, or a part of it, into an environment that has been reset."""
    for name, value in state.items():
        if name in ("position", "aboard"):
            for ferry, own in zip(env.ferries, np.asarray(value), strict=True):
                setattr(ferry, name, own.astype(float if name == "position" else int))
        elif name in ("money", "bid", "tows"):
            for ferry, own in zip(env.ferries, np.asarray(value).tolist(), strict=True):
                setattr(ferry, name, own)
        elif name == "active":
            env.agents = [agent for agent, plays in zip(AGENTS, value, strict=True) if plays]
        elif name == "price":
            env.price = float(value)
        else:
            setattr(env, {"elapsed": "t"}.get(name, name), int(value))
