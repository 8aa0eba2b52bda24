"""Differences of a peer's tasks from Gymnasium's, run in the peer's own Python: python steps_of_peers.py <peer>.

Every step is repeated by Gymnasium's class from the state before it. Half of the environments act at random, the
others by policies that reach walls, bounds of speed, goals and limits. Prints, by task: the largest differences of
observation and reward, how many ending steps are flagged differently, and how long episodes that were cut lasted.
"""

import json
import sys
import warnings

import gymnasium
import numpy as np

from lockstep.experiments.classic_control.verify import SHOWN

B, RANDOM = 16, 8
STEPS = {"MountainCarContinuous-v0": 1010}  # else 510


def envpool(task: str):
    """(observation, step); step gives observations after it, of the next step, rewards, two flags, which are live."""
    import envpool

    env = envpool.make_gymnasium(task, num_envs=B, num_threads=1, seed=0)
    ended = np.zeros(B, bool)

    def step(actions: np.ndarray) -> tuple:
        nonlocal ended
        live = ~ended
        observation, reward, terminated, truncated, _ = env.step(actions)
        ended = terminated | truncated
        return observation, observation, reward, terminated, truncated, live

    return env.reset()[0], step


def gymnax(task: str):
    import gymnax
    import jax

    env, params = gymnax.make(task)
    vector_step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
    key = jax.random.key(0)
    observation, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key, B), params)

    def step(actions: np.ndarray) -> tuple:
        nonlocal key, state
        key, for_steps = jax.random.split(key)
        following, state, reward, terminated, truncated, more = vector_step(
            jax.random.split(for_steps, B), state, actions, params
        )
        found = more["final_observation"], following, reward, terminated, truncated
        return *map(np.asarray, found), np.ones(B, bool)

    return np.asarray(observation), step


def compare(task: str, begin) -> dict:
    """One task of a peer against Gymnasium's."""
    one = gymnasium.make(task).unwrapped
    one.reset(seed=0)
    space, rng = one.action_space, np.random.default_rng(0)
    discrete = hasattr(space, "n")
    observation, step = begin(task)
    worst, flags, lengths, cut = [0.0, 0.0], 0, np.zeros(B, int), set()
    for _ in range(STEPS.get(task, 510)):
        actions = SHOWN[task].policy(observation).astype("int32" if discrete else "float32")
        drawn = rng.integers(space.n, size=RANDOM) if discrete else rng.uniform(space.low, space.high, (RANDOM, 1))
        actions[:RANDOM] = drawn
        states = SHOWN[task].states(observation)
        after, following, reward, terminated, truncated, live = step(actions)
        for i in np.flatnonzero(live):
            one.state = states[i]
            if task == "CartPole-v1":
                one.steps_beyond_terminated = None
            expected, gain, ends, _, _ = one.step(int(actions[i]) if discrete else actions[i])
            worst[0] = max(worst[0], float(np.abs(expected - after[i]).max()))
            worst[1] = max(worst[1], abs(float(gain) - float(reward[i])))
            flags += int(bool(ends) != bool(terminated[i]))
            lengths[i] += 1
            if truncated[i]:
                cut.add(int(lengths[i]))
            if terminated[i] or truncated[i]:
                lengths[i] = 0
        observation = following
    return {"observation": worst[0], "reward": worst[1], "flags": flags, "cut": sorted(cut)}


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    peer = {"envpool": envpool, "gymnax": gymnax}[sys.argv[1]]
    print(json.dumps({task: compare(task, peer) for task in SHOWN}))
