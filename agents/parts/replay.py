"""Experience replay (Lin, 1992) on the device: a ring of rows, sampled uniformly with replacement."""

import functools
import math
from collections.abc import Mapping, Sequence

import torch

from lockstep.agents.run import checkpoint
from lockstep.envs.checks import find_device, integer, require_memory


class Replay:
    """A ring of rows with named fields; a full one forgets its oldest.

    Rows stay on their device, and so does how many there are: nothing here waits for it. A row is a whole transition,
    its next observation included, so that neighbours in the ring need not follow one another in time.

    Args:
        capacity: rows.
        fields: by name the shape of one row and its type.
        device: "cpu", "cuda" or "cuda:<index>".

    Attributes:
        rows: by name [capacity + 1, ...]; the last one takes what is not to be kept and is never sampled. They take
            memory from their first use on: who only acts needs none.
        written: int64 [1], rows that were ever kept.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
        MemoryError: at the first use of rows; they do not fit.
    """

    def __init__(self, capacity: int, fields: Mapping[str, tuple[Sequence[int], torch.dtype]], device="cpu"):
        self.capacity, self.device = integer("capacity", capacity, 1, 2**31 - 1), find_device(device)
        if not fields:
            raise ValueError("fields must name at least one field")
        self.fields = dict(fields)
        self.written = torch.zeros(1, dtype=torch.int64, device=self.device)

    def require_memory(self) -> None:
        """Raises MemoryError where what takes memory from its first use on would not fit."""
        require_memory(self._missing_bytes(), self.device, "capacity", self.capacity)

    def _missing_bytes(self) -> int:
        """Bytes that are still to be allocated."""
        of_row = sum(math.prod(shape) * dtype.itemsize for shape, dtype in self.fields.values())
        return 0 if "rows" in vars(self) else of_row * (self.capacity + 1)

    @functools.cached_property
    @torch.inference_mode(False)  # whose tensors could not be changed
    def rows(self) -> dict[str, torch.Tensor]:
        self.require_memory()
        return {
            name: torch.zeros(self.capacity + 1, *shape, dtype=dtype, device=self.device)
            for name, (shape, dtype) in self.fields.items()
        }

    @property
    def size(self) -> torch.Tensor:
        """int64 [1], rows that can be sampled."""
        return self.written.clamp(max=self.capacity)

    def add(self, rows: Mapping[str, torch.Tensor], valid: torch.Tensor | None = None) -> torch.Tensor:
        """Keeps rows in their order.

        Args:
            rows: every field [N, ...], N at most the capacity.
            valid: bool [N], rows to keep; None: all. The others may hold anything.

        Returns:
            int64 [N], the place of each row; the capacity of those that are not kept.

        Raises:
            ValueError: fields, a shape or a type that are not the ring's.
        """
        if rows.keys() != self.rows.keys():
            raise ValueError(f"rows have the fields {', '.join(rows)}; the replay has {', '.join(self.rows)}")
        count = len(next(iter(rows.values())))
        if count > self.capacity:
            raise ValueError(f"{count} rows at once do not fit a replay of capacity={self.capacity}")
        for name, kept in self.rows.items():
            if rows[name].shape != (count, *kept.shape[1:]) or rows[name].dtype != kept.dtype:
                raise ValueError(
                    f"rows[{name!r}] must be {kept.dtype} {[count, *kept.shape[1:]]}, "
                    f"is {rows[name].dtype} {list(rows[name].shape)}"
                )
        if valid is None:
            places = (self.written + torch.arange(count, device=self.device)) % self.capacity
            self.written += count
        else:
            number = valid.cumsum(0)
            places = torch.where(valid, (self.written + number - 1) % self.capacity, self.capacity)
            self.written += number[-1]
        for name, kept in self.rows.items():
            kept.index_copy_(0, places, rows[name])
        return places

    def sample(self, count: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Rows [count, ...] drawn uniformly, independently of each other; zeros while nothing was kept.

        generator: on the replay's device.
        """
        uniform = torch.rand(count, dtype=torch.float64, device=self.device, generator=generator)
        places = (uniform * self.size).long()  # below the size: float64 has 53 bits
        return self.at(places)

    def at(self, places: torch.Tensor) -> dict[str, torch.Tensor]:
        """Rows [N, ...] of places int64 [N]."""
        return {name: kept.index_select(0, places) for name, kept in self.rows.items()}

    def clear(self) -> None:
        """Forgets all rows."""
        for kept in (self.written, *vars(self).get("rows", {}).values()):
            kept.zero_()

    def state(self) -> dict:
        """A copy of all that later calls depend on."""
        return {"written": self.written.clone(), "rows": {name: kept[:-1].clone() for name, kept in self.rows.items()}}

    def load_state(self, state: Mapping) -> None:
        """Goes on from the `state()` of a replay of the same capacity and fields; ValueError names what differs."""
        kept = {name: rows[:-1] for name, rows in self.rows.items()}
        checkpoint.require_like(state, {"written": self.written, "rows": kept}, "replay")
        self.written.copy_(state["written"])
        for name, rows in kept.items():
            rows.copy_(state["rows"][name])
