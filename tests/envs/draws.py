"""First states of episodes: the numbers they are made of, and their distribution."""

from collections.abc import Callable

import numpy as np

from lockstep import envs
from lockstep.envs import noise


def first_states(env, episodes: int) -> np.ndarray:
    """First states [episodes, B, k] of a batch's next episodes."""
    states = []
    for _ in range(episodes):
        env.reset()
        states.append(env.state()["state"].cpu().numpy())
    return np.stack(states)


def assert_made_of(name: str, expected: Callable, device: str = "cpu"):
    """Every first state is expected(uniform); uniform(j, low, high) is the j-th number of the documented stream."""
    for dtype in ("float32", "float64"):
        for seed, first_index in ((0, 0), (7, 1000), (2**32 + 7, 1000), (2**64 - 1, 2**32 - 300)):
            options = {"seed": seed, "first_index": first_index, "dtype": dtype, "autoreset_mode": "Disabled"}
            found = first_states(envs.make(name, 300, device=device, **options), 3)
            index = np.arange(first_index, first_index + 300, dtype=np.uint64)
            for episode in range(3):
                words = noise.philox((index, episode, 0, noise.RESET), seed)

                def uniform(j, low, high, words=words, dtype=dtype):
                    return noise.uniform(words[j], low, high, getattr(np, dtype))

                columns = np.broadcast_arrays(*expected(uniform))
                np.testing.assert_array_equal(found[episode], np.stack(columns, axis=1))


def assert_uniform(draws: np.ndarray, low: float, high: float):
    """Kolmogorov-Smirnov against the uniform distribution: p > 1e-3, that is, a statistic below 1.95 / sqrt(n)."""
    draws = np.sort(draws.astype(np.float64).ravel())
    n = len(draws)
    expected, rank = (draws - low) / (high - low), np.arange(1, n + 1) / n
    assert max(np.max(rank - expected), np.max(expected - rank + 1 / n)) < 1.95 / np.sqrt(n)


def assert_uncorrelated(states: np.ndarray):
    """No correlation of [episodes, B, k] across fields, neighbouring environments and episodes beyond 4 / sqrt(n)."""
    states = (states - states.mean(axis=(0, 1), dtype=np.float64)) / states.std(axis=(0, 1), dtype=np.float64)
    fields = states.shape[2]
    for a in range(fields):
        pairs = [(states[..., a], states[..., b]) for b in range(a)]
        for b in range(fields):
            pairs += [(states[:, 1:, a], states[:, :-1, b]), (states[1:, :, a], states[:-1, :, b])]
        for one, other in pairs:
            assert abs(np.mean(one * other)) < 4 / np.sqrt(one.size)
