"""What every batched environment has, whether a thread holds one of its environments or a block of threads."""

import gc
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from .checks import choice, find_device, integer, nearest, require_memory
from .spaces import AutoresetMode, ClosedEnvironmentError, ResetNeeded, VectorEnv

MODES = {"NextStep": 0, "SameStep": 1, "Disabled": 2}
RETURN_BITS = 20  # after the point in the return sums of `totals`, as in episodes.cuh


class Graph:
    """A CUDA graph of `steps` times policy and step on the environment's own buffers, which it keeps alive."""

    def __init__(self, graph: "torch.cuda.CUDAGraph", steps: int, keep: tuple):
        self.steps = steps
        self.replay = graph.replay
        self._keep = keep


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Vectorised(VectorEnv):
    """Options, buffers, resets, seeds, statistics and graph capture of a batch.

    A class of its own has name, groups, `_outputs` and the methods `step`, `random_actions` and `_run`, which runs a
    kernel by its name.
    """

    _started = False

    def _configure(self, num_envs, device, dtype, autoreset_mode, threads, threads_from: int, check_actions):
        """Checks the options that both kinds have and keeps them; all threads from so many environments on."""
        self.num_envs = integer("num_envs", num_envs, 1, 2**31 - 1)
        self.device = find_device(device)
        self.dtype = choice("dtype", dtype, ("float32", "float64"))
        mode = choice("autoreset_mode", getattr(autoreset_mode, "value", autoreset_mode), MODES)
        self.autoreset_mode = AutoresetMode(mode)
        default_threads = 1 if self.num_envs < threads_from else cores()
        self.threads = default_threads if threads is None else integer("threads", threads, 1, 1024)
        choice("check_actions", check_actions, (None, True, False))
        self._check = self.device.type == "cpu" if check_actions is None else check_actions

    def _make_buffers(self, layout: Mapping[str, tuple[tuple[int, ...], torch.dtype]], beside: int = 0) -> dict:
        """Allocates all buffers of `struct Batch`, zero, where they fit and `beside` bytes too; returns their bytes."""
        sizes = {name: int(np.prod(shape)) * dtype.itemsize for name, (shape, dtype) in layout.items()}
        require_memory(sum(sizes.values()) + beside, self.device, "num_envs", self.num_envs)
        self._buffers = {name: torch.zeros(s, dtype=dtype, device=self.device) for name, (s, dtype) in layout.items()}
        self._clear_statistics()
        return sizes

    def __reduce__(self):
        raise TypeError(
            f"a batch of {self.name} is made of buffers and compiled kernels of its process and cannot be pickled or "
            "copied: call envs.make(...) in the process that needs it, and hand it state() for set_state()"
        )

    def close(self, **kwargs):
        """Ends the use of the batch; its tensors stay for whoever holds them."""
        super().close(**kwargs)
        self._started = False

    def _reset_arguments(self, seed, options: Mapping | None, known: Sequence[str] = ()):
        """What `reset` is to do, checked.

        Args:
            known: names of options besides "reset_mask".

        Returns:
            A mask [B] on the device or None, seeds to begin anew with or None, and the other options.
        """
        self._require_open()
        if not isinstance(options, Mapping | None):
            raise TypeError(f"options must be a mapping, got {type(options).__name__}")
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        for key in options:
            if key not in known:
                raise ValueError(f"unknown reset option {key!r}{nearest(key, (*known, 'reset_mask'))}")
        if mask is None:
            first = None if self._started else [int(s) for s in self._buffers["seeds"].cpu().numpy()]
            return None, first if seed is None else self._seeds(seed), options
        if seed is not None or options:
            other = "a seed or with reset bounds" if known else "a seed"
            raise ValueError(f"options['reset_mask'] cannot be combined with {other}")
        self._require_started("a masked reset")
        return self._mask(mask, "options['reset_mask']"), None, options

    def _restart(self, mask: torch.Tensor | None, seeds: Sequence[int] | None):
        """Starts an episode in the environments of a mask, or in all; with seeds the noise anew."""
        if seeds is not None:
            self._set_seeds(seeds)
            self._buffers["clock"].zero_()
        self._run("reset", input=0 if mask is None else mask, fresh=int(seeds is not None))
        self._started = True

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
        tensor = torch.from_numpy(np.array(mask)) if isinstance(mask, np.ndarray) else mask.contiguous()
        return tensor.to(self.device)

    def _require_open(self):
        if self.closed:
            raise ClosedEnvironmentError(f"this batch of {self.name} is closed; make another with envs.make")

    def _require_started(self, what: str):
        self._require_open()
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
        gc.collect()  # or a dead graph's memory may be freed in the midst of the capture, which would end it
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
