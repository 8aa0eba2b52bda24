"""Prioritised experience replay (Schaul et al., 2016) on the device: rows are drawn in proportion to loss^alpha."""

import functools
from collections.abc import Mapping, Sequence

import torch

from lockstep.agents.run import checkpoint

from .replay import Replay

LEAST = 1e-6  # what a loss counts for at least, so that every row can be drawn again


class PrioritisedReplay(Replay):
    """A `Replay` whose rows have priorities, in a tree of sums; nothing here waits for the device.

    New rows have the largest priority that any had so far. A node is computed anew from both of its children whenever
    one changes, so that no rounding adds up.

    Args:
        capacity, fields, device: as `Replay` takes them.
        alpha: exponent of a loss in a priority.

    Attributes:
        tree: float64 [2 * leaves]; node 1 is the sum of all, nodes 2 i and 2 i + 1 are the children of i, and the
            priority of the row at a place is node leaves + place. It takes memory as rows do.
        highest: float64 [1], the largest priority so far, at first 1.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
        MemoryError: at the first use of rows or tree; they do not fit.
    """

    def __init__(
        self, capacity: int, fields: Mapping[str, tuple[Sequence[int], torch.dtype]], device="cpu", alpha: float = 0.5
    ):
        super().__init__(capacity, fields, device)
        self.alpha = alpha
        self.leaves = 1 << self.capacity.bit_length()  # a power of two, with one for the row that is never drawn
        self.highest = torch.ones(1, dtype=torch.float64, device=self.device)

    def _missing_bytes(self) -> int:
        of_tree = 0 if "tree" in vars(self) else 2 * self.leaves * torch.float64.itemsize
        return super()._missing_bytes() + of_tree

    @functools.cached_property
    @torch.inference_mode(False)  # whose tensors could not be changed
    def tree(self) -> torch.Tensor:
        self.require_memory()
        return torch.zeros(2 * self.leaves, dtype=torch.float64, device=self.device)

    def add(self, rows: Mapping[str, torch.Tensor], valid: torch.Tensor | None = None) -> torch.Tensor:
        places = super().add(rows, valid)
        self._write(places, torch.where(places < self.capacity, self.highest, 0.0))
        return places

    def draw(
        self, batches: int, size: int, beta: float | torch.Tensor, generator: torch.Generator
    ) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
        """Batches of rows, one row of a batch from each of `size` equal parts of the sum of priorities.

        Args:
            batches, size: how many, and rows of each.
            beta: exponent of the importance weights (1 / (number * probability))^beta, divided by a batch's largest.
            generator: on the replay's device.

        Returns:
            Rows [batches * size, ...], batch by batch; their places int64 [batches * size]; and weights float32
            [batches, size], which are 0 while nothing was kept.
        """
        given = {"dtype": torch.float64, "device": self.device}
        parts = torch.arange(size, **given) + torch.rand(batches, size, generator=generator, **given)
        sought = (parts * (self.tree[1] / size)).flatten()  # that much of the sum lies before the row
        pairs, node = self.tree.view(-1, 2), torch.ones(batches * size, dtype=torch.int64, device=self.device)
        for _ in range(self.leaves.bit_length() - 1):
            left, right = pairs.index_select(0, node).unbind(dim=1)
            goes_right = (sought >= left) & (right > 0)  # rounding leads to no row without a priority
            sought = sought - goes_right * left
            node = 2 * node + goes_right
        priority = self.tree.index_select(0, node).view(batches, size)
        relative = priority.amin(dim=1, keepdim=True) / priority  # the sum and the number of rows cancel out
        weights = torch.where(priority > 0, relative**beta, 0.0).float()
        places = node - self.leaves
        return self.at(places), places, weights

    def update_priorities(self, places: torch.Tensor, loss: torch.Tensor) -> None:
        """Gives rows the priorities of their losses, the largest one where a place repeats.

        A loss that is not finite changes nothing, nor does that of a place where no row was kept.

        Args:
            places: int64 [N], as `draw` gave them.
            loss: [N].
        """
        before = self.tree.index_select(0, self.leaves + places)
        priority = loss.double().clamp(min=LEAST) ** self.alpha
        priority = torch.where((before > 0) & priority.isfinite(), priority, before)
        torch.maximum(self.highest, priority.amax(), out=self.highest)
        self._write(places, priority)

    def _write(self, places: torch.Tensor, priority: torch.Tensor) -> None:
        """Priorities [N] of places [N], and all sums that they are part of."""
        self.tree.scatter_reduce_(0, self.leaves + places, priority, "amax", include_self=False)
        self._sum(self.leaves + places)

    def _sum(self, node: torch.Tensor) -> None:
        """Computes anew what lies above nodes [N], level by level; whole levels where those have no more than N."""
        pairs, level = self.tree.view(-1, 2), self.leaves
        while level > 1:
            level, node = level // 2, node >> 1
            if level <= len(node):
                torch.sum(pairs[level : 2 * level], dim=1, out=self.tree[level : 2 * level])
            else:
                self.tree.index_copy_(0, node, pairs.index_select(0, node).sum(dim=1))

    def clear(self) -> None:
        """Forgets all rows and priorities."""
        super().clear()
        if "tree" in vars(self):
            self.tree.zero_()
        self.highest.fill_(1.0)

    def state(self) -> dict:
        """A copy of all that later calls depend on; the sums follow from the priorities."""
        priorities = self.tree[self.leaves : self.leaves + self.capacity]
        return super().state() | {"priorities": priorities.clone(), "highest": self.highest.clone()}

    def load_state(self, state: Mapping) -> None:
        """Goes on from the `state()` of a replay of the same capacity and fields; ValueError names what differs."""
        priorities = self.tree[self.leaves : self.leaves + self.capacity]
        checkpoint.require_like(state, {"priorities": priorities, "highest": self.highest}, "replay")
        super().load_state(state)
        priorities.copy_(state["priorities"])
        self.highest.copy_(state["highest"])
        self._sum(torch.arange(self.leaves, 2 * self.leaves, dtype=torch.int64, device=self.device))
