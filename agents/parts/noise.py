"""The noise that actions are sampled with.

All draws are Philox (`envs/noise.py`), so they depend on seed, index, step and iteration alone: on no device, thread
count or split of the batch. The buffer is filled anew by each draw, which a CUDA graph can capture: the clock is
a tensor that the kernel reads.
"""

from collections.abc import Sequence

import torch

from lockstep.envs.checks import find_device, integer

from .kernels import ITEMS, lookup, require, seed_tensor, struct, threads_for


class Noise:
    """The numbers that actions are sampled with, for one roll-out of T steps.

    Word w of Philox block b of agent a of environment i of group g at step t has the key seeds[g] and the counter
    (first_index + i mod group size, a * blocks + b, t, 2^31 + 1).

    Args:
        seeds: one per group of environments; B is divisible by their number.
        num_envs: B.
        first_index: noise index of each group's environment 0, so that a batch can be split over processes.
        agents: A.
        blocks: Philox blocks of four words that one action takes; 0 makes an empty buffer.
        steps: T.
        device, threads: threads of the CPU at most; a small buffer takes one.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        num_envs: int,
        first_index: int = 0,
        agents: int = 1,
        blocks: int = 1,
        steps: int = 1,
        device="cpu",
        threads: int = 1,
    ):
        self.device = find_device(device)
        self._seeds = seed_tensor(seeds, self.device)
        groups, num_envs = len(seeds), integer("num_envs", num_envs, 1, 2**31 - 1)
        if num_envs % groups:
            raise ValueError(f"num_envs={num_envs} must be divisible by the number of seeds, {groups}")
        group_size = num_envs // groups
        first_index = integer("first_index", first_index, 0, 2**32 - group_size)
        agents, steps = integer("agents", agents, 1, 2**31 - 1), integer("steps", steps, 1, 2**31 - 1)
        blocks = integer("blocks", blocks, 0, 2**31 - 1)
        self.buffer = torch.zeros(steps, num_envs, agents, 4 * blocks, dtype=torch.int32, device=self.device)
        count = steps * group_size * agents * blocks
        tiles, threads = -(-count // ITEMS), threads_for(groups * count, threads)
        self._fixed = struct(
            "Noise",
            words=self.buffer,
            seeds=self._seeds,
            per_env=agents * blocks,
            group_size=group_size,
            groups=groups,
            first_index=first_index,
            tiles_per_group=tiles,
            count=count,
        )
        self._call = struct("NoiseCall")
        kernel = lookup(self._fixed, self._call, groups * tiles, ITEMS, self.device, threads)
        self._kernel = kernel("noise") if count else None

    def draw(self, clock: torch.Tensor) -> torch.Tensor:
        """The buffer int32 [T, B, A, 4 * blocks] filled for the steps clock .. clock + T - 1, each 0 .. 2^24-1.

        Args:
            clock: int64 [1] on the device.
        """
        self._call.clock = require("clock", clock, (1,), torch.int64, self.device).data_ptr()
        if self._kernel:
            self._kernel()
        return self.buffer
