"""Philox4x32-10 in array form, bit-equal to the kernels' (`kernels/philox.cuh`).

Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC'11). The key is the seed, the counter is
(environment index, episode, step, stream): a number depends on nothing else, so not on batch size, order or device.
"""

import numpy as np

RESET = 0  # streams
RANDOM_POLICY = 1 << 31
SAMPLING = RANDOM_POLICY + 1


def philox(counter, key: int, xp=np):
    """Ten rounds of Philox4x32.

    Args:
        counter: four integers or arrays that broadcast, each below 2^32.
        key: 0 .. 2^64-1.
        xp: numpy or cupy.

    Returns:
        uint32 [4, ...].
    """
    low32 = xp.uint64(0xFFFFFFFF)
    shift = xp.uint64(32)
    c0, c1, c2, c3 = xp.broadcast_arrays(*(xp.asarray(c, dtype=xp.uint64) for c in counter))
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = xp.uint64(0xD2511F53) * c0, xp.uint64(0xCD9E8D57) * c2
        c0, c1 = (p1 >> shift) ^ c1 ^ xp.uint64(k0), p1 & low32
        c2, c3 = (p0 >> shift) ^ c3 ^ xp.uint64(k1), p0 & low32
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return xp.stack([c0, c1, c2, c3]).astype(xp.uint32)


def uniform(word, low, high, dtype=np.float32):
    """low + (high - low) * u with u = (word >> 8) * 2^-24, computed in `dtype`, product and sum rounded apart."""
    unit = (word >> np.uint32(8)).astype(dtype) * dtype(2.0**-24)
    low, high = dtype(low), dtype(high)
    return low + (high - low) * unit


def random_actions(space, seed: int, index, steps: int, start: int = 0, xp=np):
    """The random policy: a Philox block of four words holds several actions in each word, lowest bits first.

    Two actions: one bit each, 32 in a word. n actions: 16 bits h each, two in a word, action (n h) >> 16. A Box: one
    uniform number in each word.

    Args:
        space: Discrete, or a Box of one number.
        index: environments [B].
        steps, start: for t = start .. start + steps - 1.

    Returns:
        [steps, B] uint8, of a Box float32.
    """
    n = getattr(space, "n", None)
    per_word = {None: 1, 2: 32}.get(n, 2)
    rows, block, words = [], None, None
    for t in range(start, start + steps):
        if t // (4 * per_word) != block:
            block = t // (4 * per_word)
            words = philox((index, 0, block, RANDOM_POLICY), seed, xp)
        word = words[t // per_word % 4]
        if n is None:
            rows.append(uniform(word, space.low.item(), space.high.item()))
        elif n == 2:
            rows.append(((word >> xp.uint32(t % 32)) & xp.uint32(1)).astype(xp.uint8))
        else:
            half = (word >> xp.uint32(t % 2 * 16)) & xp.uint32(0xFFFF)
            rows.append(((xp.uint32(n) * half) >> xp.uint32(16)).astype(xp.uint8))
    return xp.stack(rows)


def random_numbers(space, agents: int, seed: int, index, clock: int, xp=np):
    """The random policy where an action has several numbers, or several lanes hold an environment.

    Number k of all that an environment's agents do is word k % 4 of the block (environment, k // 4, clock).

    Args:
        space: of one agent; a Box or MultiDiscrete [n], or a Discrete.
        index: environments [B].

    Returns:
        [B, agents, n] int32, of a Box float32.
    """
    count = agents * int(np.prod(space.shape, dtype=int))
    blocks = xp.arange(-(-count // 4), dtype=xp.uint64)
    words = xp.moveaxis(philox((index[:, None], blocks, clock, RANDOM_POLICY), seed, xp), 0, 2)
    words = words.reshape(len(index), -1)[:, :count].reshape(len(index), agents, -1)
    if hasattr(space, "low"):
        low, high = (xp.asarray(np.ravel(limit).astype(np.float32)) for limit in (space.low, space.high))
        return low + (high - low) * uniform(words, 0, 1)
    choices = xp.asarray(np.ravel(getattr(space, "nvec", getattr(space, "n", None))).astype(np.uint64))
    return (words * choices >> xp.uint64(32)).astype(xp.int32)
