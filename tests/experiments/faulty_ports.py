"""CartPole for a batch, as Gymnasium has it, and with one planted fault each."""

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class NextStep(CartPoleVectorEnv):
    """Gymnasium's own: the step after an episode's end resets."""

    def __init__(self, num_envs: int):
        super().__init__(num_envs)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.draw(self.num_envs)
        return self.state.T.astype(np.float32), {}

    def draw(self, number: int) -> np.ndarray:
        """First states [4, number]."""
        return self.np_random.uniform(-0.05, 0.05, (4, number))


class SameStep(NextStep):
    """The ending step resets, and shows in its info what the episode ended with."""

    metadata = CartPoleVectorEnv.metadata | {"autoreset_mode": AutoresetMode.SAME_STEP}

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        ended = terminated | truncated
        if ended.any():
            self.state[:, ended] = self.draw(ended.sum())
            self.steps[ended] = 0
            self.prev_done[:] = False
            info = self.told(observation, self.state.T.astype(np.float32), ended)
        return self.state.T.astype(np.float32), reward, terminated, truncated, info

    def told(self, last, first, ended):
        return {"final_obs": last, "_final_obs": ended}


class Disabled(NextStep):
    """Resets those that a mask names, and no others."""

    metadata = CartPoleVectorEnv.metadata | {"autoreset_mode": AutoresetMode.DISABLED}

    def reset(self, *, seed=None, options=None):
        if not options:
            return super().reset(seed=seed)
        mask = options["reset_mask"]
        self.state[:, mask] = self.draw(mask.sum())
        self.steps[mask] = 0
        return self.state.T.astype(np.float32), {}

    def step(self, action):
        outcome = super().step(action)
        self.prev_done[:] = False
        return outcome


class Forgetful(SameStep):
    def told(self, last, first, ended):
        return {}


class Early(SameStep):
    """Its last observation is the next episode's first."""

    def told(self, last, first, ended):
        return {"final_obs": first, "_final_obs": ended}


class Strong(NextStep):
    def __init__(self, num_envs: int):
        super().__init__(num_envs)
        self.force_mag = 10.1


class TwiceAsStrong(NextStep):
    def __init__(self, num_envs: int):
        super().__init__(num_envs)
        self.force_mag = 20.0


class Leaning(NextStep):
    """Its pole may lean further before it has fallen."""

    def __init__(self, num_envs: int):
        super().__init__(num_envs)
        self.theta_threshold_radians *= 1.05


class Shorter(NextStep):
    def __init__(self, num_envs: int):
        super().__init__(num_envs)
        self.max_episode_steps = 499


class Endless(NextStep):
    def __init__(self, num_envs: int):
        super().__init__(num_envs)
        self.max_episode_steps = 10**9


class Outcome(NextStep):
    """Something of what a step leads to is changed."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return *self.changed(observation, reward, terminated, truncated), info


class NothingForTheLastStep(Outcome):
    def changed(self, observation, reward, terminated, truncated):
        return observation, np.where(terminated, 0, reward), terminated, truncated


class PaidForResets(Outcome):
    def changed(self, observation, reward, terminated, truncated):
        return observation, np.ones_like(reward), terminated, truncated


class LimitTerminates(Outcome):
    def changed(self, observation, reward, terminated, truncated):
        return observation, reward, terminated | truncated, truncated & False


class OneFlag(Outcome):
    """Never both: what is truncated is not terminated."""

    def changed(self, observation, reward, terminated, truncated):
        return observation, reward, terminated & ~truncated, truncated


class NotANumber(Outcome):
    """Its last observations."""

    def changed(self, observation, reward, terminated, truncated):
        return np.where(terminated[:, None], np.nan, observation), reward, terminated, truncated


class Lapsing(Outcome):
    """Some observations within an episode are not shown; rewards and flags are right."""

    def changed(self, observation, reward, terminated, truncated):
        return np.where(observation[:, :1] > 0.1, np.nan, observation), reward, terminated, truncated


class WronglyDeclared(NextStep):
    metadata = CartPoleVectorEnv.metadata | {"autoreset_mode": AutoresetMode.SAME_STEP}


class GoesOn(NextStep):
    """Resets nobody, and does not say so."""

    metadata = {"render_modes": []}

    def step(self, action):
        outcome = super().step(action)
        self.prev_done[:] = False
        return outcome


class PufferEnv:
    """The class of PufferLib that its environments have, as far as it counts here."""

    __module__ = "pufferlib.pufferlib"


class InPlace(PufferEnv):
    """In PufferLib's way: buffers that each step writes, flags of bytes, and the next episode in the ending step."""

    def __init__(self, num_envs: int):
        self.batch, self.num_agents = SameStep(num_envs), num_envs
        self.buffers = [np.zeros((num_envs, 4), np.float32), np.zeros(num_envs, np.float32)]
        self.buffers += [np.zeros(num_envs, np.uint8) for _ in range(2)]

    def reset(self, seed=None):
        self.buffers[0][:] = self.batch.reset(seed=seed)[0]
        return self.buffers[0], []

    def step(self, actions):
        for buffer, found in zip(self.buffers, self.batch.step(actions), strict=False):
            buffer[:] = found
        return *self.buffers, [{"episode_length": 9.0}]


class Undeclared(NextStep):
    metadata = {"render_modes": []}


class Narrow(SameStep):
    """Its first states are not as far apart."""

    def draw(self, number):
        return super().draw(number) * 0.8


class Deaf(NextStep):
    """Draws on from where it is, whatever seed it is given."""

    def __init__(self, num_envs: int, seed: int = 0):
        super().__init__(num_envs)
        self._np_random = np.random.default_rng(seed)

    def reset(self, *, seed=None, options=None):
        return super().reset()


class OneSeed(NextStep):
    """Whatever seed it is given, it takes 0."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=0)


class Twins(SameStep):
    """Environments that begin together begin alike."""

    def draw(self, number):
        return np.repeat(super().draw(1), number, axis=1)


class Taxis(SyncVectorEnv):
    """Environments that begin in one of 300 states; those of one seed all begin and go on alike."""

    def __init__(self, num_envs: int):
        super().__init__([lambda: gymnasium.make("Taxi-v4")] * num_envs)

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=self.seeds(seed), options=options)


class TaxisAlike(Taxis):
    def seeds(self, seed):
        return [seed] * self.num_envs


class TaxisOfOneSeed(Taxis):
    def seeds(self, seed):
        return 0


def four() -> NextStep:
    """A batch of one size."""
    return NextStep(4)


def deaf(num_envs: int) -> Deaf:
    return Deaf(num_envs)


def seeded(num_envs: int, seed: int) -> Deaf:
    """Takes its seed when it is made."""
    return Deaf(num_envs, seed)


def by_hand(num_envs: int) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * num_envs)


def nothing() -> list:
    return []


def original() -> gymnasium.Env:
    return gymnasium.make("CartPole-v1")


def states(observation: np.ndarray) -> np.ndarray:
    return observation.astype(np.float64)


def put(port: NextStep, states: np.ndarray) -> None:
    port.state = states.T.copy()


def broken(num_envs: int):
    return num_envs / 0


class Windy(CartPoleEnv):
    """An original that draws a random number in each step."""

    def step(self, action):
        self.state = self.state + self.np_random.normal(0, 0.01, 4)
        return super().step(action)


class Half(gymnasium.ObservationWrapper):
    """An original that shows the first two numbers of its state."""

    def __init__(self):
        super().__init__(original())
        self.observation_space = gymnasium.spaces.Box(-5, 5, (2,))

    def observation(self, observation):
        return observation[:2]
