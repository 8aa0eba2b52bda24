"""The buffers of a batch: their layout, their bytes, and the statistics in them."""

import functools
import hashlib
import math
from collections.abc import Mapping

import numpy as np
import torch

from ..checks import require_memory
from .launch import Form
from .port import TYPES, Port, World

BANKS = dict(zip(TYPES, ("state", "doubles", "integers"), strict=True))  # that hold the state's fields of each type
RETURN_BITS = 20  # after the point in the return sums of `totals`, as in batch.cuh
BY_TILE = ("totals", "extremes", "clock")
RARELY = ("episode", "final_obs", "episode_return", "episode_length", *BY_TILE)  # touched only where an episode ends
TWICE = (*BANKS.values(), "elapsed", "running_return")  # read and written
PARTS = dict.fromkeys(BANKS.values(), "state") | dict.fromkeys(("obs", "final_obs"), "observations")
EXTREMES = (math.inf, -math.inf, math.inf, -math.inf)  # of no episode


class Buffers(dict):
    """Tensors by the names in `struct Batch`, zero at first, and the scenarios' tables.

    Args:
        form, port, world: of the batch.
        dtype: of its arithmetic.
        limit: steps of an episode.
        **kept: view, observations are the state; is_reset, it is said which step was a reset; record, what a step did.

    Raises:
        MemoryError: they do not fit; says how many environments would.
    """

    def __init__(self, form: Form, port: Port, world: World, dtype: str, limit: int, **kept: bool):
        B, n = form.num_envs, port.of("observation", world.params).shape[0]
        names = port.agents_of(world.params)
        agents = port.rows_of(names)
        rows = (B,) if agents == 1 else (B, agents)
        types = dict(zip(TYPES, (getattr(torch, dtype), torch.float64, torch.int32), strict=True))
        state = {
            BANKS[kind]: ((B, count) if form.lanes > 1 else (count, B), types[kind])
            for kind, count in port.counts(world.params).items()
        }
        layout = state | {
            "obs": ((*(rows if not kept["view"] else (0,)), n), torch.float32),
            "reward": (rows, torch.float32),
            "terminated": (rows, torch.bool),
            "truncated": (rows, torch.bool),
            "active": ((B, agents) if port.apart(names) else (0,), torch.bool),
            "ended": ((B,), torch.bool),
            "is_reset": ((B if kept["is_reset"] else 0,), torch.bool),
            "elapsed": ((B,), torch.uint16 if limit <= 65535 else torch.int32),
            "episode": ((B,), torch.uint32),
            "scenario": ((B if world.scenarios else 0,), torch.int32),
            "running_return": ((B if port.running_return else 0,), torch.float32),
            "final_obs": ((*rows, n), torch.float32),
            "episode_return": ((B,), torch.float32),
            "episode_length": ((B,), torch.int32),
            "metrics": ((B, sum(map(math.prod, port.metrics_of(world).values()))), torch.float32),
            "flags": ((B, sum(map(math.prod, world.flags.values()))), torch.bool),
            "amounts": ((B, sum(map(math.prod, world.amounts.values()))), torch.int32),
            "record": ((B, port.of("record", world.params) if kept["record"] else 0), types["real"]),
            "totals": ((3, form.tiles), torch.int64),
            "extremes": ((4, form.tiles), torch.float64),
            "clock": ((form.tiles,), torch.int64),
            "bounds": ((len(port.reset_bounds({})),), types["real"]),
            "seeds": ((form.groups,), torch.uint64),
        }
        sizes = {name: math.prod(shape) * kind.itemsize for name, (shape, kind) in layout.items()}
        require_memory(sum(sizes.values()), form.device, "num_envs", B)  # before tables are made of as many rows
        tables = world.tables(dtype, B) if world.tables else {}
        if not isinstance(tables, Mapping):
            raise ValueError(f"{port.title}: world.tables must return arrays by name, not {type(tables).__name__}")
        self.bytes_of_tables = sum(table.nbytes for table in tables.values())
        require_memory(sum(sizes.values()) + self.bytes_of_tables, form.device, "num_envs", B)
        super().__init__(
            {name: torch.zeros(shape, dtype=kind, device=form.device) for name, (shape, kind) in layout.items()}
        )
        self._inexact, self._written = world.inexact, world.written
        self.tables = {name: torch.from_numpy(np.ascontiguousarray(t)).to(form.device) for name, t in tables.items()}
        shared = ("bounds", "seeds", *(BY_TILE if form.tile > 1 else ()))
        per_env = {name: size // B for name, size in sizes.items() if name not in shared}
        self.bytes_per_env = sum(per_env.values())
        self.bytes_per_step = sum(size * (1 + (name in TWICE)) for name, size in per_env.items() if name not in RARELY)
        self.memory = dict.fromkeys(("state", "observations", "record", "outputs"), 0)
        for name, size in sizes.items():
            self.memory[name if name == "record" else PARTS.get(name, "outputs")] += size
        self.memory["tables"] = self.bytes_of_tables
        self.clear_statistics()

    def clear_statistics(self):
        self["totals"].zero_()
        for row, start in enumerate(EXTREMES):
            self["extremes"][row] = start

    def statistics(self) -> dict[str, torch.Tensor]:
        """Number, mean and extremes of the episodes that ended since the last call, as `BatchedEnv.statistics` says."""
        totals, extremes = self["totals"], self["extremes"]
        episodes, steps, _ = totals.sum(dim=1).double()
        # Whole numbers and fractions apart: the sum over all tiles may exceed 63 bits in units of 2^-20.
        wholes, fractions = totals[2] >> RETURN_BITS, totals[2] & (2**RETURN_BITS - 1)
        returns = wholes.sum().double() + fractions.sum().double() / 2**RETURN_BITS
        none = torch.full_like(episodes, torch.nan)
        # A tile's sum holds 63 bits: what could have overflown it is no sum.
        largest = torch.where(totals[0] > 0, extremes[2:].abs().amax(dim=0), 0.0)
        summed = (totals[0] * largest < 2.0 ** (63 - RETURN_BITS)).all()
        found = {
            "return_mean": torch.where(summed, returns / episodes, none),
            "return_min": extremes[2].min(),
            "return_max": extremes[3].max(),
            "length_mean": steps / episodes,
            "length_min": extremes[0].min(),
            "length_max": extremes[1].max(),
        }
        self.clear_statistics()
        return {"episodes": episodes} | {name: torch.where(episodes > 0, x, none) for name, x in found.items()}

    @functools.cached_property
    def pool(self) -> str:
        """A hash of the tables, made when first asked for.

        Numbers that are no integers count in float32, as in batches of both types, and not at all where the world says
        that their last bits are a machine's; nor do tables that it says are written.
        """
        digest = hashlib.sha256()
        for name, table in sorted((name, one) for name, one in self.tables.items() if name not in self._written):
            digest.update(f"{name} {tuple(table.shape)}".encode())
            if not table.is_floating_point():
                digest.update(table.cpu().numpy().tobytes())
            elif not self._inexact:
                digest.update(table.float().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]
