"""Actors and critics: multilayer perceptrons, stacked side by side, with all their numbers in one tensor."""

import contextlib
import copy
import itertools
import math
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from lockstep.envs.checks import require_memory
from lockstep.envs.policies import HIDDEN

from .module import sequential
from .precision import arithmetic

KNOWN = "two equal layers of 16, 32 or 64 units, precision='fp32'"  # what `in_kernels` is


class ActorCritic:
    """L actors and critics of one shape, which never mix: learner l sees its rows alone.

    The numbers are one tensor `parameters` [L, P]: actor layer by layer, each weight [out, in] and bias [out], padded
    to a multiple of four; the free numbers of the action distribution, padded to at least four; critic likewise. In
    this order `envs/kernels/mlp.cuh` reads a policy. Padding stays 0.

    Args:
        inputs: components of an observation.
        outputs: of the actor.
        free: numbers of the action distribution that no observation changes (log_std).
        hidden: widths of the tanh layers.
        learners: L.
        seeds: one per learner; a learner's first numbers depend on its seed alone.
        precision: of the matrix products, "fp32", "tf32" (CUDA) or "bf16"; numbers and results stay float32.
        log_std: first value of the free numbers, one or one for each.
        actors: for each output the actor that gives it, from 0 on, each of whom has layers of its own; None: one for
            all. Where the numbers here are, all actors' layers stand in the place of one's.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        free: int,
        hidden: Sequence[int] = (64, 64),
        learners: int = 1,
        seeds: Sequence[int] = (0,),
        precision: str = "fp32",
        log_std: float | Sequence[float] = 0.0,
        device: torch.device | str = "cpu",
        actors: Sequence[int] | None = None,
    ):
        self.inputs, self.outputs, self.free, self.hidden = inputs, outputs, free, tuple(hidden)
        self.learners, self.precision, self.device = learners, precision, torch.device(device)
        self.places: dict[str, tuple[int, tuple[int, ...]]] = {}  # offset and shape of each part of a row
        owners = torch.tensor([0] * outputs if actors is None else actors, dtype=torch.int64, device="cpu")
        counts, width = owners.bincount().tolist(), 0
        self._actors = [f"actor{number}" for number in range(len(counts))] if len(counts) > 1 else ["actor"]
        for name, count in zip(self._actors, counts, strict=True):
            width = self._place(name, [inputs, *hidden, count], width)
        self._order = owners.argsort(stable=True).argsort().to(self.device)  # of outputs among those of all actors
        if free:
            self.places["free"] = (width, (free,))
        width += max(4, -(-free // 4) * 4)
        self.size = self._place("critic", [inputs, *hidden, 1], width)
        needed = 6 * 4 * self.size * learners  # numbers, their gradient twice, Adam's moments and what makes the first
        require_memory(needed, self.device, "hidden layers with parameters", self.size * learners)
        first = torch.stack([self._initial(seed, log_std) for seed in seeds])  # [L, P]
        self.parameters = first.to(self.device)
        self._padding = self.parameters.new_zeros(learners, 8)  # as much as there is in one place, or more
        # Leaves of the autograd graph that share the memory of `parameters`.
        self.leaves = {name: part.detach().requires_grad_() for name, part in self.parts(self.parameters).items()}

    @property
    def critic_at(self) -> int:
        """The place in a row of `parameters` from which on they are the critic's."""
        return self.places["critic.0.weight"][0]

    @property
    def in_kernels(self) -> bool:
        """True where kernels, those of roll-outs and those of updates, are written for networks of this form."""
        equal = len(self.hidden) == 2 and self.hidden[0] == self.hidden[1]
        return equal and self.hidden[0] in HIDDEN and self.precision == "fp32" and len(self._actors) == 1

    def _place(self, network: str, widths: Sequence[int], at: int) -> int:
        for number, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
            self.places[f"{network}.{number}.weight"] = (at, (outputs, inputs))
            self.places[f"{network}.{number}.bias"] = (at + outputs * inputs, (outputs,))
            at += outputs * (inputs + 1)
        return -(-at // 4) * 4

    def _initial(self, seed: int, log_std: float | Sequence[float]) -> torch.Tensor:
        """One learner's first numbers [P]: orthogonal, gain sqrt 2, of the actor's last layer 0.01, the critic's 1."""
        generator = torch.Generator("cpu").manual_seed(seed)
        row = torch.zeros(1, self.size, dtype=torch.float32, device="cpu")
        last = {self._last(actor): 0.01 for actor in self._actors} | {self._last("critic"): 1.0}
        for name, part in self.parts(row).items():
            if name == "free":
                part.copy_(torch.as_tensor(log_std, dtype=torch.float32, device="cpu"))
            elif name.endswith("weight"):
                nn.init.orthogonal_(part[0], last.get(name, math.sqrt(2)), generator=generator)
        return row[0]

    def _last(self, network: str) -> str:
        return f"{network}.{len(self.hidden)}.weight"

    def parts(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Views [L, *shape] of every weight and bias in a tensor [L, P]."""
        return {
            name: rows[:, at : at + math.prod(shape)].view(len(rows), *shape)
            for name, (at, shape) in self.places.items()
        }

    def flat(self, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The opposite of `parts`: a tensor [L, P] with 0 in the padding."""
        return torch.cat(self.pieces(parts), dim=1)

    def pieces(self, parts: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """Parts of a row of `flat`, side by side: tensors [L, *], views of the parts and padding."""
        pieces, at = [], 0
        for name, (start, shape) in self.places.items():
            pieces += [self._padding[:, : start - at], parts[name].flatten(1)]
            at = start + math.prod(shape)
        return [*pieces, self._padding[:, : self.size - at]]

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Actor's outputs [L, N, m] and critic's values [L, N] of observations [L, N, n]."""
        with self.arithmetic():
            return self.actor(x), self.critic(x)

    def actor(self, x: torch.Tensor) -> torch.Tensor:
        """The actor's outputs [L, N, m] alone."""
        with self.arithmetic():
            found = [self._layers(actor, x).float() for actor in self._actors]
        return found[0] if len(found) == 1 else torch.cat(found, dim=-1).index_select(-1, self._order)

    def critic(self, x: torch.Tensor) -> torch.Tensor:
        """The values [L, N] alone."""
        with self.arithmetic():
            return self._layers("critic", x).float().squeeze(-1)

    def _layers(self, network: str, x: torch.Tensor) -> torch.Tensor:
        for number in range(len(self.hidden) + 1):
            x = self._layer(f"{network}.{number}.weight", x)
            x = torch.tanh(x) if number < len(self.hidden) else x
        return x

    def _layer(self, name: str, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.leaves[name], self.leaves[name.replace("weight", "bias")]
        if self.learners == 1:  # bit for bit what a stack of one gives, and faster
            return nn.functional.linear(x, weight.squeeze(0), bias.squeeze(0))  # [0] has a gradient that fills zeros
        return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))

    def arithmetic(self) -> contextlib.AbstractContextManager:
        """Within it matrix products have these networks' precision."""
        return arithmetic(self.precision, self.device)

    def one(self, learner: int) -> "ActorCritic":
        """A learner by itself; it shares its numbers with these."""
        one = copy.copy(self)
        one.learners, one.parameters = 1, self.parameters[learner : learner + 1]
        one.leaves = {name: leaf[learner : learner + 1] for name, leaf in self.leaves.items()}
        return one

    def sequential(self, learner: int = 0) -> tuple[nn.Sequential, nn.Sequential]:
        """Actor and critic of one learner as modules of torch that share its numbers.

        Raises:
            ValueError: there are several actors.
        """
        if len(self._actors) > 1:
            raise ValueError(f"{len(self._actors)} actors are no module")
        parts = self.parts(self.parameters)
        actor, critic = (
            [
                tuple(parts[f"{network}.{number}.{kind}"][learner] for kind in ("weight", "bias"))
                for number in range(len(self.hidden) + 1)
            ]
            for network in ("actor", "critic")
        )
        return sequential(actor, nn.Tanh), sequential(critic, nn.Tanh)
