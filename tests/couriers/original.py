"""The couriers one at a time, in float64, with the port's own noise."""

import numpy as np

from lockstep.envs.noise import philox, uniform

from .port import AGENTS, PORT, WINDS


class Original:
    """PettingZoo's parallel API, as far as it is asked for."""

    def __init__(self, winds, seed: int, index: int, params):
        self.winds, self.seed, self.index, self.params = winds, seed, index, params
        self.possible_agents, self.agents, self.episode = list(AGENTS), [], -1

    def observation_space(self, agent):
        return PORT.of("observation")

    def action_space(self, agent):
        return PORT.of("action")

    def close(self):
        pass

    def noise(self, stream: int):
        return philox((self.index, self.episode, self.elapsed, stream), self.seed)

    def reset(self, seed=None):
        self.seed, self.episode = (self.seed, self.episode + 1) if seed is None else (seed, 0)
        self.elapsed, self.agents = 0, list(AGENTS)
        self.scenario = int(self.noise(0)[0]) % len(self.winds)
        self.heading = uniform(self.noise(1)[:2], -3, 3, np.float64)
        self.battery, self.trips = np.ones(2), np.zeros(2, int)
        return self.observations(), {agent: {} for agent in AGENTS}

    def observations(self):
        rows = np.stack([self.heading, self.battery, self.trips, np.full(2, self.winds[self.scenario])], axis=1)
        return {agent: rows[a].astype(np.float32) for a, agent in enumerate(AGENTS) if agent in self.agents}

    def step(self, actions):
        words, acted = self.noise(2), list(self.agents)
        for a, agent in enumerate(AGENTS):
            if agent in acted:
                turned = self.heading[a] + (actions[agent] - 1 + self.winds[self.scenario])
                self.heading[a] = turned - 2 * np.pi * np.sign(turned) * (abs(turned) > np.pi)
                self.battery[a] -= self.params.drain * (1 + uniform(words[a], 0, 1, np.float64))
                self.trips[a] += actions[agent] == 2
        self.elapsed += 1
        observations, late = self.observations(), self.elapsed >= PORT.of("horizon")
        of = {agent: AGENTS.index(agent) for agent in acted}
        rewards = {agent: self.heading[a] * 0.5 + self.trips[a] for agent, a in of.items()}
        terminated = {agent: bool(self.battery[a] <= 0) for agent, a in of.items()}
        truncated = {agent: late and not terminated[agent] for agent in of}
        self.agents = [agent for agent in acted if not (terminated[agent] or truncated[agent])]
        return observations, rewards, terminated, truncated, {agent: {} for agent in acted}


def make(preset=None, scenario=None, seed: int = 0, index: int = 0, **params) -> Original:
    winds = WINDS[:3] if scenario is None else WINDS[list(scenario)]
    return Original(winds, seed, index, PORT.make_params(preset, params))


def get_state(env: Original) -> dict:
    found = {name: np.array(getattr(env, name)) for name in ("heading", "battery", "trips")}
    found |= {name: getattr(env, name) for name in ("elapsed", "episode", "scenario")}
    return found | {"active": np.array([agent in env.agents for agent in AGENTS])}


def set_state(env: Original, state: dict):
    for name in ("heading", "battery", "trips"):
        if name in state:
            getattr(env, name)[:] = state[name]
    for name in ("elapsed", "episode", "scenario"):
        setattr(env, name, int(state.get(name, getattr(env, name))))
    if "active" in state:
        env.agents = [agent for agent, active in zip(AGENTS, state["active"], strict=True) if active]
