"""Several critics of the same observations and actions."""

from collections.abc import Mapping, Sequence

import torch

from .mlp import MLP, Compiled, Network


class Critics:
    """Networks with one value each, whose numbers stay where they are; small ones on the CPU pass in one call of C++.

    Axes: C critics, k rows, n inputs.

    Args:
        networks: some by name.
        names: of the critics.
    """

    def __init__(self, networks: Mapping[str, Network], names: Sequence[str]):
        self.names, self.members = tuple(names), [networks[name] for name in names]
        in_cpp = all(isinstance(member, MLP) and member.in_cpp for member in self.members)
        in_cpp = in_cpp and all(member.widths == self.members[0].widths for member in self.members)
        self._compiled = Compiled(self.members, stacked=True) if in_cpp else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Values [C, k, 1] of inputs [k, n]."""
        return self.activations(x)[0]

    def activations(self, x: torch.Tensor) -> tuple[torch.Tensor, list]:
        """Values [C, k, 1] of inputs [k, n], and what the passes back take."""
        if self._compiled and self._compiled.takes(x):
            kept = self._compiled.passed(x)
            return kept[-1], kept
        kept = [member.activations(x) for member in self.members]
        return torch.stack([own[-1] for own in kept]), kept

    def backward(self, kept: list, slope: torch.Tensor) -> None:
        """Fills the gradients of all with those of a loss, of its derivatives [C, k, 1] by the values."""
        if isinstance(kept[0], torch.Tensor):
            self._compiled.descended(kept, slope, True, False)
            return
        for member, own, part in zip(self.members, kept, slope, strict=True):
            member.backward(own, part)

    def slope_of_last(self, kept: list, slope: torch.Tensor, count: int) -> torch.Tensor:
        """Derivatives [k, count] by the last inputs of a loss, of those [C, k, 1] by the values."""
        if isinstance(kept[0], torch.Tensor):
            return self._compiled.descended(kept, slope, False, True)[..., -count:].sum(0)
        parts = zip(self.members, kept, slope, strict=True)
        return sum(member.slope_of_last(own, part, count) for member, own, part in parts)
