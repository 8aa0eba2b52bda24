"""The order in which rows are cut into minibatches.

All draws are Philox (`envs/noise.py`), so they depend on seed, index, step and iteration alone: on no device, thread
count or split of the batch. The buffer is filled anew by each draw, which a CUDA graph can capture: the iteration is
a tensor that the kernel reads.
"""

from collections.abc import Sequence

import numpy as np
import torch

from lockstep.envs.checks import find_device, integer

from .kernels import ITEMS, lookup, require, seed_tensor, struct, threads_for


class MinibatchOrder:
    """Orders in which the rows of each group are cut into minibatches, one per epoch.

    Rows are sorted by word 0 of Philox with key seeds[g] and counter (position, epoch, iteration, 2^31 + 2); rows of
    equal words stay in their places.

    Args:
        seeds: one per group, here a learner's shard.
        rows: of each group.
        epochs: of one iteration.
        device, threads: threads of the CPU at most, for the words; the sort takes one.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
    """

    def __init__(self, seeds: Sequence[int], rows: int, epochs: int, device="cpu", threads: int = 1):
        self.device = find_device(device)
        self._seeds = seed_tensor(seeds, self.device)
        rows, epochs = integer("rows", rows, 1, 2**31 - 1), integer("epochs", epochs, 1, 2**31 - 1)
        shape = (epochs, len(seeds), rows)
        self.buffer = torch.zeros(shape, dtype=torch.int64, device=self.device)
        if self.device.type == "cpu":
            self._keys = self.buffer  # sorted in place
            self._array = self.buffer.numpy()
        else:
            self._keys = torch.zeros(shape, dtype=torch.int32, device=self.device)
            self._sorted = torch.zeros_like(self._keys)
        tiles = -(-rows // ITEMS)
        self._fixed = struct(
            "Order", keys=self._keys, seeds=self._seeds, rows=rows, groups=len(seeds), tiles_per_segment=tiles
        )
        self._call = struct("OrderCall")
        tiles *= epochs * len(seeds)
        threads = threads_for(tiles * ITEMS, threads)
        self._kernel = lookup(self._fixed, self._call, tiles, ITEMS, self.device, threads)("order")

    def draw(self, iteration: torch.Tensor) -> torch.Tensor:
        """The buffer int64 [epochs, G, rows]: a permutation of 0 .. rows - 1 for each epoch and group.

        Args:
            iteration: int64 [1] on the device.
        """
        self._call.iteration = require("iteration", iteration, (1,), torch.int64, self.device).data_ptr()
        self._kernel()
        if self.device.type == "cpu":
            self._array.sort(axis=-1)
            np.bitwise_and(self._array, 0xFFFFFFFF, out=self._array)
        else:
            torch.sort(self._keys, stable=True, dim=-1, out=(self._sorted, self.buffer))
        return self.buffer
