"""Buffers of a batch: the hash that stands for its scenarios."""

from types import SimpleNamespace

import numpy as np
import torch

from lockstep.envs.batch.buffers import Buffers

COUNTS, RATES = np.array([3, 4]), np.array([0.1, 1.5])


def pool(inexact: bool = False, **tables) -> str:
    """The hash of scenarios of these tables."""
    held = {name: torch.from_numpy(np.asarray(table)) for name, table in tables.items()}
    return Buffers.pool.func(SimpleNamespace(tables=held, _inexact=inexact))


def test_scenarios_are_told_apart_by_every_number_in_batches_of_both_types():
    assert pool(counts=COUNTS, rates=RATES) == pool(counts=COUNTS, rates=RATES.astype(np.float32))
    assert pool(counts=COUNTS, rates=RATES) != pool(counts=COUNTS, rates=RATES + 1)
    assert pool(counts=COUNTS, rates=RATES) != pool(counts=COUNTS + 1, rates=RATES)


def test_where_last_bits_are_a_machines_integers_alone_tell_scenarios_apart():
    near = np.nextafter(RATES.astype(np.float32), np.float32(2))
    assert pool(True, counts=COUNTS, rates=RATES) == pool(True, counts=COUNTS, rates=near)
    assert pool(True, counts=COUNTS, rates=RATES) != pool(True, counts=COUNTS + 1, rates=RATES)
