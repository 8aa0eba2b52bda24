"""What every batched environment has, whether a thread holds one of its environments or a block of threads."""

import os
from collections.abc import Callable, Sequence

import numpy as np
import torch

from .checks import integer
from .spaces import AutoresetMode, ResetNeeded, VectorEnv

MODES = {"NextStep": 0, "SameStep": 1, "Disabled": 2}
RETURN_BITS = 20  # after the point in the return sums of `totals`, as in batch.cuh and block.cuh


class Graph:
    """A CUDA graph of `steps` times policy and step on the environment's own buffers, which it keeps alive."""

    def __init__(self, graph: "torch.cuda.CUDAGraph", steps: int, keep: tuple):
        self.steps = steps
        self.replay = graph.replay
        self._keep = keep


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


class Vectorised(VectorEnv):
    """Seeds, masks, statistics and graph capture over the buffers of a batch.

    A class of its own has num_envs, device, groups, autoreset_mode, `_buffers`, `_outputs`, `_check`, `_started` and
    the methods `step` and `random_actions`.
    """

    def _set_seeds(self, seeds: Sequence[int]):
        self._buffers["seeds"].copy_(torch.from_numpy(np.array(seeds, dtype=np.uint64)))

    def _seeds(self, seed) -> list[int]:
        several = isinstance(seed, Sequence) or (isinstance(seed, np.ndarray) and seed.ndim > 0)
        seeds = list(seed) if several else [seed] * self.groups
        if len(seeds) != self.groups:
            raise ValueError(f"seed has {len(seeds)} values; groups={self.groups} needs one, or one for each group")
        return [integer("seed", value, 0, 2**64 - 1) for value in seeds]

    def _mask(self, mask, name: str) -> torch.Tensor:
        """A bool tensor [B] on the device; a host mask is validated as Gymnasium does."""
        if not isinstance(mask, np.ndarray | torch.Tensor):
            raise TypeError(f"{name} must be a NumPy or torch array, got {type(mask).__name__}")
        if mask.dtype not in (np.bool_, torch.bool):
            raise TypeError(f"{name} must have dtype bool, got {mask.dtype}")
        if tuple(mask.shape) != (self.num_envs,):
            raise ValueError(f"{name} must have shape ({self.num_envs},), got {tuple(mask.shape)}")
        host = isinstance(mask, np.ndarray) or mask.device.type == "cpu"
        if host and not mask.any():
            raise ValueError(f"{name} must contain at least one True value")
        tensor = torch.from_numpy(np.ascontiguousarray(mask)) if isinstance(mask, np.ndarray) else mask.contiguous()
        return tensor.to(self.device)

    def _require_started(self, what: str):
        if not self._started:
            raise ResetNeeded(f"call reset() before {what}")

    def _require_unended(self):
        """With autoreset disabled, where actions are checked: nothing that has ended is stepped."""
        if self.autoreset_mode == AutoresetMode.DISABLED and self._buffers["ended"].any():
            first = int(self._buffers["ended"].nonzero()[0])
            raise ValueError(
                f"environment {first} has ended; with autoreset disabled it needs reset(options={{'reset_mask': ...}})"
            )

    def graph(self, policy: "str | Callable" = "random", steps: int = 1) -> Graph:
        """Captures `steps` times policy and step in a CUDA graph on the environment's buffers.

        Args:
            policy: "random", or a function from obs [B, n] to actions [B] that never synchronises.
            steps: steps per replay.

        Returns:
            A `Graph`; `replay()` runs it on torch's current stream.

        Raises:
            ValueError: not on CUDA, or actions are checked (a check synchronises).
        """
        self._require_started("capturing a graph")
        steps = integer("steps", steps, 1, 2**31 - 1)
        if self.device.type != "cuda":
            raise ValueError(f"a CUDA graph needs device='cuda'; this environment is on {self.device}")
        if self._check:
            raise ValueError("a CUDA graph needs check_actions=False: a check synchronises with the host")
        if policy != "random" and not callable(policy):
            raise ValueError(f"policy={policy!r} must be 'random' or a function from obs to actions")

        def run():
            actions = self.random_actions(steps) if policy == "random" else None
            for k in range(steps):
                self.step(actions[k] if policy == "random" else policy(self._outputs[0]))

        before = {name: buffer.clone() for name, buffer in self._buffers.items()}
        try:
            with torch.cuda.device(self.device):
                graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    run()  # compiles and allocates what the capture must not
                torch.cuda.current_stream().wait_stream(stream)
                with torch.cuda.graph(graph, stream=stream):  # torch's own stream may be another device's
                    run()
        finally:
            for name, buffer in self._buffers.items():
                buffer.copy_(before[name])  # the warm-up leaves no trace
        return Graph(graph, steps, (self, policy))

    def _clear_statistics(self):
        self._buffers["totals"].zero_()
        for row, start in enumerate((np.inf, -np.inf, np.inf, -np.inf)):
            self._buffers["extremes"][row] = start

    def statistics(self) -> dict[str, torch.Tensor]:
        """Episodes that ended since the last call: their number, and mean, minimum and maximum of return and length.

        Returns:
            0-d float64 tensors on the device (NaN without an episode): episodes, and return_ and length_ mean, min,
            max. Sums are of integers (returns in units of 2^-20), so they repeat bit for bit; the mean is NaN
            where unchecked actions made returns too large for such a sum.
        """
        totals = self._buffers["totals"]
        episodes, steps, _ = totals.sum(dim=1).double()
        # Whole numbers and fractions apart: the sum over all tiles may exceed 63 bits in units of 2^-20.
        wholes, fractions = totals[2] >> RETURN_BITS, totals[2] & (2**RETURN_BITS - 1)
        returns = wholes.sum().double() + fractions.sum().double() / 2**RETURN_BITS
        extremes = self._buffers["extremes"]
        none = torch.full_like(episodes, torch.nan)
        # A tile's sum holds 63 bits: what could have overflown it is no sum.
        largest = torch.where(totals[0] > 0, extremes[2:].abs().amax(dim=0), 0.0)
        summed = (totals[0] * largest < 2.0 ** (63 - RETURN_BITS)).all()

        def known(value):
            return torch.where(episodes > 0, value, none)

        found = {
            "episodes": episodes,
            "return_mean": torch.where(summed, known(returns / episodes), none),
            "return_min": known(extremes[2].min()),
            "return_max": known(extremes[3].max()),
            "length_mean": known(steps / episodes),
            "length_min": known(extremes[0].min()),
            "length_max": known(extremes[1].max()),
        }
        self._clear_statistics()
        return found
