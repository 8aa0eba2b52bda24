"""What a roll-out needs around the environment: sampling noise, minibatch order, advantages.

The kernels are in `rollout.cuh`, one launch each. All draws are Philox (`envs/noise.py`), so they depend on seed,
index, step and iteration alone: on no device, thread count or split of the batch. Outputs are buffers of their object,
filled anew by its next call. Every call can be captured in a CUDA graph: clock and iteration are tensors that the
kernel reads.
"""

from collections.abc import Sequence

import numpy as np
import torch

from lockstep.envs.checks import find_device, integer
from lockstep.envs.kernels import structs

from .kernels import COLUMNS, ITEMS, lookup, struct, threads_for


def require(name: str, tensor, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The tensor; ValueError unless it has this shape, type and device and is contiguous."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name} must be a tensor {list(shape)}, got {type(tensor).__name__}")
    if tensor.shape != shape or tensor.dtype != dtype or tensor.device != device:
        raise ValueError(
            f"{name} must be {list(shape)} of {dtype} on {device}, "
            f"got {list(tensor.shape)} of {tensor.dtype} on {tensor.device}"
        )
    if not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous, got strides {tensor.stride()} for shape {list(shape)}")
    return tensor


def per_part(name: str, value: float | Sequence[float], columns: int) -> list[float]:
    """One number, or one for each of several equal parts of the columns; ValueError unless all lie in [0, 1]."""
    numbers = [float(number) for number in (value if isinstance(value, Sequence) else [value])]
    if not numbers or columns % len(numbers):
        raise ValueError(f"{name}: {len(numbers)} values must divide N={columns} columns into equal parts")
    for number in numbers:
        if not 0 <= number <= 1:
            raise ValueError(f"{name}={number} must lie in [0, 1]")
    return numbers


def seed_tensor(seeds: Sequence[int], device: torch.device) -> torch.Tensor:
    """uint64 [groups]; ValueError unless every seed is an integer from 0 to 2^64-1."""
    if not len(seeds):
        raise ValueError("seeds must hold at least one seed")
    checked = [integer(f"seeds[{g}]", seed, 0, 2**64 - 1) for g, seed in enumerate(seeds)]
    return torch.from_numpy(np.array(checked, dtype=np.uint64)).to(device)


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


class Order:
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


class Advantage:
    """Generalised advantage estimation (Schulman et al., arXiv:1506.02438, eq. 16) that bootstraps where it should.

    With e_t = terminated_t or truncated_t:
        delta_t = r_t + gamma n_t - V_t;  n_t = 0 if terminated, V(final observation) if only truncated, else V_{t+1}
        A_t = delta_t + gamma lambda (1 - e_t) A_{t+1};  target_t = A_t + V_t

    Args:
        shape: (T, N).
        gamma, gae_lambda: in [0, 1]; one number, or one for each of L equal parts of the columns.
        device, threads: threads of the CPU at most; they share the columns.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        gamma: float | Sequence[float],
        gae_lambda: float | Sequence[float],
        device="cpu",
        threads: int = 1,
    ):
        self.device = find_device(device)
        self.shape = T, N = integer("T", shape[0], 1, 2**31 - 1), integer("N", shape[1], 1, 2**31 - 1)
        discounts, lambdas = per_part("gamma", gamma, N), per_part("gae_lambda", gae_lambda, N)
        parts = max(len(discounts), len(lambdas))
        for name, numbers in (("gamma", discounts), ("gae_lambda", lambdas)):
            if len(numbers) not in (1, parts):
                raise ValueError(f"{name} has {len(numbers)} values, must be one or {parts} as the other")
        discounts, lambdas = (numbers * (parts // len(numbers)) for numbers in (discounts, lambdas))
        decays = [a * b for a, b in zip(discounts, lambdas, strict=True)]
        self._gamma, self._decay = (
            torch.tensor(numbers, dtype=torch.float32, device=self.device) for numbers in (discounts, decays)
        )
        self.advantage, self.target = (torch.zeros(T, N, device=self.device) for _ in range(2))
        self._fixed = struct(
            "Columns",
            gamma=self._gamma,
            decay=self._decay,
            columns=N,
            per_part=N // parts,
            advantage=self.advantage,
            target=self.target,
        )
        self._call = struct("ColumnsCall", steps=T)
        tile = COLUMNS[self.device.type]
        kernel = lookup(self._fixed, self._call, -(-N // tile), tile, self.device, threads_for(T * N, threads))
        self._kernels = {masked: kernel("advantage_of_valid" if masked else "advantage") for masked in (False, True)}

    def compute(
        self,
        reward: torch.Tensor,
        value: torch.Tensor,
        bootstrap: torch.Tensor,
        terminated: torch.Tensor,
        truncated: torch.Tensor,
        valid: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Advantage and target, the buffers float32 [T, N].

        Args:
            reward: float32 [T, N].
            value: float32 [T + 1, N], the last row of the observation after the roll-out.
            bootstrap: float32 [T, N], V(final observation) where truncated and not terminated; ignored elsewhere.
            terminated, truncated: bool [T, N].
            valid: bool [T, N]; None: all. A row that is not valid may hold anything. It gets 0 and 0 and is passed
                over: the row before it is followed by the next valid row, unless a flag lies between.

        Raises:
            ValueError: wrong shape, type or device, or not contiguous; names the argument.
        """
        T, N = self.shape
        require("reward", reward, (T, N), torch.float32, self.device)
        require("value", value, (T + 1, N), torch.float32, self.device)
        require("bootstrap", bootstrap, (T, N), torch.float32, self.device)
        flags = {"terminated": terminated, "truncated": truncated} | ({} if valid is None else {"valid": valid})
        for name, flag in flags.items():
            require(name, flag, (T, N), torch.bool, self.device)
        structs.fill(self._call, reward=reward, value=value, bootstrap=bootstrap, **flags)
        self._kernels[valid is not None]()
        return self.advantage, self.target
