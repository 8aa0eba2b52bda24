"""Philox: published answers, equality of the forms, and the random policy."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import given
from hypothesis import strategies as st

from lockstep.envs import noise

WORD = st.integers(0, 2**32 - 1)
SPACES = {
    "two actions": Discrete(2),
    "three actions": Discrete(3),
    "an interval": Box(np.array([-2.0], dtype=np.float32), np.array([1.0], dtype=np.float32)),
}


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


def philox(counter, key: int) -> list[int]:
    """The ten rounds in Python's integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key % 2**32, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 % 2**32, (p0 >> 32) ^ c3 ^ k1, p0 % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


@given(counter=st.tuples(WORD, WORD, WORD, WORD), key=st.integers(0, 2**64 - 1))
def test_philox_in_arrays_equals_philox_in_python_integers(counter, key):
    assert noise.philox(counter, key).tolist() == philox(counter, key)


# ---- the random policy --------------------------------------------------------------------------


def random_action(space: str, seed: int, index: int, t: int) -> float:
    """The documented random policy in Python's integers."""
    if space == "two actions":  # a bit each, 32 in a word, 128 in a block
        return philox((index, 0, t // 128, 2**31), seed)[t % 128 // 32] >> (t % 32) & 1
    if space == "three actions":  # 16 bits each, the low half of a word first, 8 in a block
        word = philox((index, 0, t // 8, 2**31), seed)[t % 8 // 2]
        return 3 * (word >> 16 if t % 2 else word % 2**16) >> 16
    word = philox((index, 0, t // 4, 2**31), seed)[t % 4]  # one in a word, 4 in a block
    return -2.0 + 3.0 * (word >> 8) / 2**24


@pytest.mark.parametrize("space", SPACES)
def test_the_random_policy_is_the_documented_one(space):
    for seed, first, start in ((0, 0, 0), (2**40 + 3, 17, 123)):
        found = noise.random_actions(SPACES[space], seed, np.arange(first, first + 3, dtype=np.uint64), 270, start)
        expected = [[random_action(space, seed, first + i, start + k) for i in range(3)] for k in range(270)]
        np.testing.assert_allclose(found, expected, rtol=0, atol=3e-7 if space == "an interval" else 0)


@pytest.mark.parametrize("space", SPACES)
def test_the_random_policy_uses_its_actions_evenly_and_independently(space):
    actions = noise.random_actions(SPACES[space], 6, np.arange(10_000, dtype=np.uint64), 96).astype(np.float64)
    count = {"two actions": 2, "three actions": 3}.get(space)
    if count:
        for action in range(count):
            share = 1 / count
            assert abs(np.mean(actions == action) - share) < 4 * np.sqrt(share * (1 - share) / actions.size)
    else:
        ranks = (np.sort(actions.ravel()) + 2) / 3
        assert np.abs(ranks - np.arange(ranks.size) / ranks.size).max() < 1.95 / np.sqrt(ranks.size)
    actions = (actions - actions.mean()) / actions.std()
    for a, b in ((actions[1:], actions[:-1]), (actions[8:], actions[:-8]), (actions[:, 1:], actions[:, :-1])):
        assert abs(np.mean(a * b)) < 4 / np.sqrt(a.size)
