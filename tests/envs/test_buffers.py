"""Buffers of a batch: what stands for its scenarios."""

from types import SimpleNamespace

import numpy as np
import torch

from lockstep.envs.batch.buffers import Buffers


def pool(**tables) -> str:
    """What stands for scenarios of these tables."""
    held = SimpleNamespace(tables={name: torch.from_numpy(np.asarray(table)) for name, table in tables.items()})
    return Buffers.pool.func(held)


def test_scenarios_of_other_integers_are_others_whatever_the_last_bits_of_numbers():
    counts, rates = np.array([3, 4]), np.array([0.5, 1.5])
    assert pool(counts=counts, rates=rates) == pool(counts=counts, rates=np.nextafter(rates, 2))
    assert pool(counts=counts, rates=rates) != pool(counts=counts + 1, rates=rates)


def test_scenarios_of_numbers_alone_are_told_apart_by_them_in_batches_of_both_types():
    rates = np.array([0.1, 1.5])
    assert pool(rates=rates) == pool(rates=rates.astype(np.float32))
    assert pool(rates=rates) != pool(rates=rates + 1)
