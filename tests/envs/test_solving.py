"""A policy found on the port solves Gymnasium's environment, and the reverse.

Policies are one number s = w obs + b: a continuous action is s, clipped; of discrete actions the last one is taken
where s is positive, else the first one. The cross-entropy method finds w and b (De Boer and others, 2005).
"""

from collections.abc import Callable

import numpy as np
import pytest

from lockstep import envs
from tests.envs.batches import DIFFERENT, make, statistics

# Mean return that counts as solved: Gymnasium's threshold. Pendulum has none, and no such policy swings it up; random
# torques get -1230.
SOLVED = {"cartpole": 475, "mountain_car": -110, "mountain_car_continuous": 90, "acrobot": -100, "pendulum": -1000}

# Searches: generations, population, episodes of each, and a seed that gets there; others get stuck.
SEARCHES = [
    ("port", "cartpole", (6, 40, 200, 0)),
    ("port", "mountain_car", (8, 48, 200, 0)),
    ("port", "mountain_car_continuous", (6, 40, 200, 0)),
    ("port", "acrobot", (8, 48, 200, 2)),
    ("port", "pendulum", (8, 48, 200, 2)),
    ("gymnasium", "cartpole", (6, 20, 3, 0)),
    ("gymnasium", "mountain_car", (6, 32, 6, 3)),
    ("gymnasium", "mountain_car_continuous", (6, 24, 3, 0)),
    ("gymnasium", "acrobot", (8, 24, 3, 2)),
]


def policy(name: str, numbers: np.ndarray) -> envs.Linear:
    """The policy of w and b, w in units of one over the observation space's bounds where there are any."""
    port = envs.port(name)
    high = port.observation(port.params()).high
    weights, bias = numbers[:-1] / np.where(high < 1e6, high, 1.0), numbers[-1]
    signs = {1: [3.0], 2: [-1.0, 1.0], 3: [-1.0, 0.0, 1.0]}[int(getattr(port.action, "n", 1))]
    return envs.Linear([(sign * weights).tolist() for sign in signs], [float(sign * bias) for sign in signs])


def on_the_port(name: str, chosen: envs.Linear, episodes: int, seed: int) -> np.ndarray:
    """Returns [episodes] of the first episode of each environment."""
    env = make(name, episodes, seed=seed)
    rows = env.rollout(env.max_episode_steps, chosen, store="trajectory")
    ended = (rows["terminated"] | rows["truncated"]).numpy()
    first = np.cumsum(ended, axis=0) - ended == 0
    return (rows["reward"].numpy() * first).sum(axis=0)


def in_gymnasium(name: str, chosen: envs.Linear, episodes: int, seed: int) -> np.ndarray:
    """Returns [episodes] of Gymnasium's own class."""
    env, weights, bias = envs.make_original(name), np.array(chosen.weights), np.array(chosen.bias)
    space, returns = env.action_space, []
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        total, ended = 0.0, False
        while not ended:
            scores = weights @ obs + bias
            discrete = hasattr(space, "n")
            action = int(scores.argmax()) if discrete else np.clip(scores, space.low, space.high).astype(np.float32)
            obs, reward, terminated, truncated, _ = env.step(action)
            total += reward
            ended = terminated or truncated
        returns.append(total)
    return np.array(returns)


def score_on_the_port(name: str, chosen: envs.Linear, episodes: int, seed: int) -> float:
    """Mean return of the episodes that end within as many steps as the longest one takes, which is quickly found."""
    env = make(name, episodes, seed=seed)
    env.rollout(env.max_episode_steps, chosen)
    return statistics(env)["return_mean"]


def score_in_gymnasium(name: str, chosen: envs.Linear, episodes: int, seed: int) -> float:
    return in_gymnasium(name, chosen, episodes, seed).mean()


def search(name: str, score: Callable, generations: int, population: int, episodes: int, seed: int) -> envs.Linear:
    """The best policy that the cross-entropy method finds, `score` being one of the two functions above."""
    random, n = np.random.default_rng(seed), make(name).single_observation_space.shape[0]
    mean, deviation = np.zeros(n + 1), np.ones(n + 1)
    for _ in range(generations):
        numbers = mean + deviation * random.normal(size=(population, n + 1))
        scores = [score(name, policy(name, row), episodes, seed=1) for row in numbers]
        elite = numbers[np.argsort(scores)[::-1][: max(4, population // 8)]]
        mean, deviation = elite.mean(axis=0), elite.std(axis=0) + 0.1
    best = [policy(name, row) for row in (mean, *elite[:3])]
    return max(best, key=lambda found: score(name, found, 5 * episodes, seed=50))


def searches() -> list:
    """One in every run, the others among the slow cases, or the long ones."""

    def marks(where: str, name: str) -> list:
        if (where, name) == ("gymnasium", "cartpole"):
            return []
        return [pytest.mark.slow if name in DIFFERENT else pytest.mark.long]

    return [pytest.param(*case, marks=marks(*case[:2])) for case in SEARCHES]


@pytest.mark.parametrize(("where", "name", "settings"), searches())
def test_a_policy_found_on_one_side_solves_the_task_on_both(where, name, settings):
    found = search(name, {"port": score_on_the_port, "gymnasium": score_in_gymnasium}[where], *settings)
    ours, theirs = on_the_port(name, found, 1000, seed=11), in_gymnasium(name, found, 200, seed=20_000)
    assert min(ours.mean(), theirs.mean()) >= SOLVED[name]
    error = np.sqrt(ours.var() / ours.size + theirs.var() / theirs.size)
    assert abs(ours.mean() - theirs.mean()) <= 4 * error
