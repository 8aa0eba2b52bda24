"""Two who walk on a line, each until it falls off an end: in PettingZoo's way, for a batch, and with a fault each.

Axes: B environments, A agents.
"""

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode, VectorEnv
from pettingzoo import AECEnv, ParallelEnv

AGENTS, LIMIT, STEP, END = ("left", "right"), 20, 0.2, 1.0


class Original(ParallelEnv):
    """State: place of each, who walks on, steps so far. An agent is paid where it stands, and sees the other one."""

    metadata = {"name": "walkers"}

    def __init__(self):
        self.possible_agents = [*AGENTS]

    def observation_space(self, agent):
        return Box(-2, 2, (2,))

    def action_space(self, agent):
        return Discrete(3)

    def reset(self, seed=None, options=None):
        if seed is not None or not hasattr(self, "random"):
            self.random = np.random.default_rng(seed)
        self.x, self.agents, self.elapsed = self.random.uniform(-0.5, 0.5, 2), [*AGENTS], 0
        return self.seen(), {agent: {} for agent in self.agents}

    def get_state(self):
        return [*self.x, *(agent in self.agents for agent in AGENTS), self.elapsed]

    def set_state(self, state):
        self.x, self.elapsed = state[:2].copy(), int(state[4])
        self.agents = [agent for agent, on in zip(AGENTS, state[2:4], strict=True) if on]

    def seen(self):
        place = dict(zip(AGENTS, self.x, strict=True))
        others = dict(zip(AGENTS, AGENTS[::-1], strict=True))
        return {agent: np.array([place[agent], place[others[agent]]], np.float32) for agent in self.agents}

    def step(self, actions):
        self.elapsed += 1
        for i, agent in enumerate(AGENTS):
            if agent in self.agents:
                self.x[i] += STEP * (actions[agent] - 1)
        place = dict(zip(AGENTS, self.x, strict=True))
        observation, reward = self.seen(), {agent: float(place[agent]) for agent in self.agents}
        terminated = {agent: bool(abs(place[agent]) > END) for agent in self.agents}
        truncated = {agent: self.elapsed >= LIMIT for agent in self.agents}
        infos = {agent: {} for agent in self.agents}
        self.agents = [agent for agent in self.agents if not terminated[agent] and not truncated[agent]]
        return observation, reward, terminated, truncated, infos


class Unequal(Original):
    """One of whom cannot stand still."""

    def action_space(self, agent):
        return Discrete(3 if agent == "left" else 2)


def in_turn() -> AECEnv:
    """An original whose agents act one after the other."""
    return AECEnv()


class Port(VectorEnv):
    """The same for a batch. It keeps the flag of an agent that has fallen, and shows on where it fell."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = Box(-2, 2, (2, 2)), MultiDiscrete([3, 3])

    def reset(self, *, seed=None, options=None):
        self.random = np.random.default_rng(seed)
        self.x, self.off = self.random.uniform(-0.5, 0.5, (self.num_envs, 2)), np.zeros((self.num_envs, 2), bool)
        self.elapsed = np.zeros(self.num_envs, int)
        return self.seen(), {}

    def put(self, states):
        self.x, self.off, self.elapsed = states[:, :2].copy(), states[:, 2:4] == 0, states[:, 4].astype(int)

    def seen(self):
        return np.stack([self.x, self.x[:, ::-1]], axis=2).astype(np.float32)

    def moved(self, actions):
        return STEP * (actions - 1)

    def paid(self):
        return self.x.copy()

    def fallen(self):
        return np.abs(self.x) > END

    def limit(self):
        return np.repeat(self.elapsed[:, None] >= LIMIT, 2, axis=1)

    def step(self, actions):
        self.elapsed += 1
        self.x += np.where(self.off, 0, self.moved(actions))
        reward, terminated, truncated, last = self.paid(), self.fallen(), self.limit(), self.seen()
        self.off = self.off | terminated | truncated
        ended = self.off.all(axis=1)
        self.x[ended] = self.random.uniform(-0.5, 0.5, (ended.sum(), 2))
        self.off[ended], self.elapsed[ended] = False, 0
        return self.seen(), reward, terminated, truncated, {"final_obs": last, "_final_obs": ended}


class Swapped(Port):
    """Each is paid for where the other stands, which leaves their mean as it is."""

    def paid(self):
        return self.x[:, ::-1].copy()


class Steady(Port):
    """The left one falls later; episodes end with the last of both."""

    def fallen(self):
        return np.abs(self.x) > END * np.array([1.1, 1])


class Patient(Port):
    """The right one has two steps more where the left one has fallen."""

    def limit(self):
        spared = self.off[:, 0] & (self.elapsed < LIMIT + 2)
        return super().limit() & ~np.stack([spared & False, spared], axis=1)


class Hasty(Port):
    """The right one's steps are longer."""

    def moved(self, actions):
        return super().moved(actions) * np.array([1, 1.1])


class OneReward(Port):
    """Pays the mean to all, in one number."""

    def step(self, actions):
        observation, reward, terminated, truncated, info = super().step(actions)
        return observation, reward.mean(axis=1), terminated.all(axis=1), truncated.all(axis=1), info


class Active(Port):
    """Says in its info who walks on, and has the flags of those alone."""

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset(seed=seed)
        return observation, {"active": ~self.off}

    def step(self, actions):
        on = ~self.off
        observation, reward, terminated, truncated, info = super().step(actions)
        return observation, reward, terminated & on, truncated & on, info | {"active": ~self.off}


class Bytes(Active):
    """Has bytes for flags."""

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return observation, {name: one.astype(np.uint8) for name, one in info.items()}

    def step(self, actions):
        observation, reward, *flags, info = super().step(actions)
        info |= {name: info[name].astype(np.uint8) for name in ("active", "_final_obs")}
        return observation, reward, *(flag.astype(np.uint8) for flag in flags), info


class Crowded(Port):
    """Pays each for where the other stands, among more than 16."""

    def paid(self):
        return self.x[:, ::-1].copy() if self.num_envs > 16 else super().paid()


class NextStep(Active):
    """The step after an episode's end resets, and gives nothing."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def reset(self, *, seed=None, options=None):
        self.over = np.zeros(self.num_envs, bool)
        return super().reset(seed=seed)

    def step(self, actions):
        over, first = self.over, self.x.copy()
        _, reward, terminated, truncated, info = super().step(np.where(over[:, None], 1, actions))
        self.x[over], self.elapsed[over], self.off[over] = first[over], 0, False
        self.over = info["_final_obs"] & ~over
        shown = np.where(self.over[:, None, None], info["final_obs"], self.seen())
        reward, *flags = (np.where(over[:, None], 0, one) for one in (reward, terminated, truncated))
        return shown, reward, *(one.astype(bool) for one in flags), {"active": ~(self.off | self.over[:, None])}


class Flat(Port):
    """Shows one row for both."""

    def seen(self):
        return super().seen().reshape(-1, 4)


def put(port: Port, states: np.ndarray) -> None:
    port.put(states)


def states(observation: np.ndarray) -> np.ndarray:
    """Seen from outside: where an agent is, or was when it fell, and that it walks on; the clock is not shown."""
    own, others = observation[:, [0, 2]], observation[:, [3, 1]]
    on = (np.abs(own) <= END) & (observation.reshape(-1, 2, 2) != 0).any(axis=2)
    return np.concatenate([np.where(own == 0, others, own), on, np.zeros((len(observation), 1))], axis=1)
