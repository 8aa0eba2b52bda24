"""Philox: published answers, equality of the forms, and what the stream must not depend on."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
from envs import noise

WORD = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # Random123's known answers for philox4x32-10
        ((0, 0, 0, 0), 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((2**32 - 1,) * 4, 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0A4093822,
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_published_answers(counter, key, expected):
    assert [f"{int(word):08x}" for word in noise.philox(counter, key)] == expected.split()


@given(counter=st.tuples(WORD, WORD, WORD, WORD), key=st.integers(0, 2**64 - 1))
def test_philox_in_arrays_equals_philox_in_python_integers(counter, key):
    c0, c1, c2, c3 = counter
    k0, k1 = key % 2**32, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 % 2**32, (p0 >> 32) ^ c3 ^ k1, p0 % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    assert noise.philox(counter, key).tolist() == [c0, c1, c2, c3]


def first_states(env, episodes):
    """First states [episodes, B, 4] of an environment's next episodes."""
    states = []
    for _ in range(episodes):
        env.reset()
        states.append(env.state()["state"].cpu().numpy())
    return np.stack(states)


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**64 - 1),
    first_index=st.integers(0, 2**32 - 300),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_kernel_draws_the_numbers_of_the_numpy_form(seed, first_index, dtype):
    env = envs.make("cartpole", 300, seed=seed, first_index=first_index, dtype=dtype)
    found = first_states(env, 3)
    index = np.arange(first_index, first_index + 300, dtype=np.uint64)
    for episode in range(3):
        words = noise.philox((index, episode, 0, noise.RESET), seed)
        np.testing.assert_array_equal(found[episode].T, noise.uniform(words, -0.05, 0.05, getattr(np, dtype)))


def test_random_actions_are_those_of_the_numpy_form():
    env = envs.make("cartpole", 300, seed=9)
    env.reset()
    for start in (0, 130):
        expected = noise.random_discrete2(9, np.arange(300, dtype=np.uint64), 260, start)
        np.testing.assert_array_equal(env.random_actions(260).numpy(), expected)
        env.rollout(130)


def run(num_envs, **options):
    """States after 60 steps under the random policy."""
    env = envs.make("cartpole", num_envs, **options)
    env.reset()
    for _ in range(60):
        env.step(env.random_actions()[0])
    return env.state()["state"].numpy()


@pytest.mark.parametrize("num_envs", [1, 7, 256, 4096, 65536])
def test_an_environment_does_not_depend_on_the_batch_around_it(num_envs):
    np.testing.assert_array_equal(run(num_envs, seed=5)[:7], run(1000, seed=5)[: min(num_envs, 7)])


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_do_not_depend_on_the_number_of_threads(threads):
    np.testing.assert_array_equal(run(3000, seed=5, threads=threads), run(3000, seed=5, threads=1))


def test_a_batch_can_be_split_by_first_index():
    whole = run(600, seed=5)
    np.testing.assert_array_equal(whole[:250], run(250, seed=5))
    np.testing.assert_array_equal(whole[250:], run(350, seed=5, first_index=250))


def test_a_group_equals_a_batch_of_its_own_with_its_seed():
    both = run(2 * 300, groups=2, seed=[11, 12])
    np.testing.assert_array_equal(both[:300], run(300, seed=11))
    np.testing.assert_array_equal(both[300:], run(300, seed=12))


def test_seeds_give_different_streams_and_equal_seeds_equal_ones():
    np.testing.assert_array_equal(run(64, seed=1), run(64, seed=1))
    assert (run(64, seed=1) != run(64, seed=2)).all()
    assert (run(64, seed=1) != run(64, seed=2**32 + 1)).all()


def test_first_states_are_uniform():
    # Kolmogorov-Smirnov against U(-.05, .05) on a million draws, p > 1e-3: the statistic is below 1.95 / sqrt(n)
    draws = np.sort(first_states(envs.make("cartpole", 10_000, seed=3), 25).ravel())
    n = len(draws)
    expected = (draws.astype(np.float64) + 0.05) / 0.1
    rank = np.arange(1, n + 1) / n
    assert n == 1_000_000
    assert max(np.max(rank - expected), np.max(expected - rank + 1 / n)) < 1.95 / np.sqrt(n)


def test_first_states_are_uncorrelated_across_components_environments_and_episodes():
    states = first_states(envs.make("cartpole", 10_000, seed=4), 10).astype(np.float64) / 0.05 * np.sqrt(3)
    limit = 4 / np.sqrt(states[..., 0].size)
    for a in range(4):
        for b in range(a):
            assert abs(np.mean(states[..., a] * states[..., b])) < limit
        assert abs(np.mean(states[:, 1:, a] * states[:, :-1, a])) < limit
        assert abs(np.mean(states[1:, :, a] * states[:-1, :, a])) < 4 / np.sqrt(states[1:, :, a].size)


def test_random_actions_are_fair_coins():
    env = envs.make("cartpole", 10_000, seed=6)
    env.reset()
    actions = env.random_actions(100).to(torch.float64)
    assert abs(actions.mean() - 0.5) < 4 * 0.5 / 1000
    assert abs(((actions[1:] - 0.5) * (actions[:-1] - 0.5)).mean()) < 4 * 0.25 / np.sqrt(99 * 10_000)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gpu_draws_the_numbers_of_the_cpu(dtype):
    options = {"seed": 2**64 - 3, "first_index": 77, "dtype": dtype}
    here, there = envs.make("cartpole", 5000, **options), envs.make("cartpole", 5000, device="cuda", **options)
    np.testing.assert_array_equal(first_states(here, 5), first_states(there, 5))
    assert torch.equal(here.random_actions(300), there.random_actions(300).cpu())
