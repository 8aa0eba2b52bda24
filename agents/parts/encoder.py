"""Networks that begin with a layer for each part of an observation, with their gradient written out.

Axes: N or k rows, n components of an observation, s slots of a part, m actions, F features.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from lockstep.agents.run import observation
from lockstep.agents.run.observation import Part

from .mlp import MLP, Joined, seeds

ENCODINGS = ("flat", "objects", "parts")


class Encoder(Joined):
    """A linear layer from each part of an observation, in place of one from all: it does what `MLP([n, F])` does.

    Each number has as many features. With `alike`, all slots of a part share a layer, features of a slot that holds
    nothing are 0, and those of all slots lie in their order; otherwise a part has one layer, whatever its slots hold.

    Args:
        parts: what an observation is made of.
        width: F.
        alike: as above.
        raw: take numbers as they are, not divided by their scales.
        device: of all tensors.
        seed: of the first numbers, which are those of `MLP`.
        dtype: float32 or float64.

    Raises:
        ValueError: F is no multiple of how many numbers there are.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        width: int,
        alike: bool,
        raw: bool,
        device: torch.device,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ):
        numbers = sum(part.numbers for part in parts)
        if width % numbers:
            raise ValueError(f"a first layer of {width} must be a multiple of {numbers}, as many for each number")
        self.parts, self.width, each = parts, width, width // numbers
        self.shared = [alike and part.slots > 0 for part in parts]
        kinds = zip(parts, self.shared, seeds(seed, len(parts)), strict=True)
        inputs = [(len(part.scale) if shared else part.numbers, own) for part, shared, own in kinds]
        given = {"dtype": dtype, "device": device}
        super().__init__(
            [MLP([size, each * size], seed=own, **given) for size, own in inputs],
            **{"parts": parts, "width": width, "alike": alike, "raw": raw} | given,
        )
        self._widths = [each * part.numbers for part in parts]
        self.factors = [torch.tensor([1.0 if raw else 1 / one for one in part.scale], **given) for part in parts]

    def activations(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The observations [N, n] and the outputs [N, F]."""
        return [x, encoded(self, self._members, x)]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.activations(x)[-1]

    def backward(self, kept: Sequence[torch.Tensor], slope: torch.Tensor) -> None:
        """Fills `gradient` with that of a loss.

        Args:
            kept: the `activations`, whose first N rows the loss is made of.
            slope: [N, F], derivatives of the loss by the outputs.
        """
        inputs, slopes = inputs_of(self, kept[0][: len(slope)]), slope.split(self._widths, dim=1)
        for layer, (rows, held), by_outputs in zip(self._members, inputs, slopes, strict=True):
            by_outputs = by_outputs.reshape(len(rows), -1)
            layer.backward([rows], by_outputs if held is None else by_outputs.masked_fill(~held, 0.0))

    def sequential(self) -> nn.Module:
        """The layer as a module of torch that shares its numbers."""
        return _Encoder(self)


def inputs_of(encoder: "Encoder | _Encoder", x: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor | None]]:
    """Inputs of each part's layer by observations, [N, *] or [N * s, *], and which slots hold something [N * s, 1]."""
    parts = zip(observation.split(encoder.parts, x), encoder.factors, encoder.shared, strict=True)
    for (numbers, held), factor, shared in parts:
        scaled = numbers * factor
        yield (scaled.flatten(0, 1), held.flatten().unsqueeze(1)) if shared else (scaled.flatten(1), None)


def encoded(encoder: "Encoder | _Encoder", layers: Sequence[Callable], x: torch.Tensor) -> torch.Tensor:
    """Features [N, F] of observations by layers, one for each part."""
    found = []
    for part, layer, (rows, held) in zip(encoder.parts, layers, inputs_of(encoder, x), strict=True):
        out = layer(rows)
        found.append(out if held is None else out.masked_fill(~held, 0.0).view(-1, part.slots * out.shape[1]))
    return torch.cat(found, dim=1)


class _Encoder(nn.Module):
    """An `Encoder` as a module."""

    def __init__(self, encoder: Encoder):
        super().__init__()
        self.parts, self.shared = encoder.parts, encoder.shared
        self.layers = nn.ModuleList([layer.sequential() for layer in encoder._members])
        for number, factor in enumerate(encoder.factors):
            self.register_buffer(f"factor_{number}", factor)

    @property
    def factors(self) -> list[torch.Tensor]:
        return [getattr(self, f"factor_{number}") for number in range(len(self.parts))]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return encoded(self, self.layers, x)


class Factored(Joined):
    """Values of features and actions [N, F + m]: what leaves the first layer is multiplied by ReLU(linear(action)).

    Args:
        features: F.
        actions: m.
        hidden: widths of the ReLU layers.
        outputs: how many values.
        device, seed, dtype: as of `MLP`.

    Raises:
        ValueError: there is no hidden layer.
    """

    def __init__(
        self,
        features: int,
        actions: int,
        hidden: Sequence[int],
        outputs: int,
        device: torch.device,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ):
        if not hidden:
            raise ValueError("a value of encoded observations and actions needs two widths at least, not one")
        widths = [features, hidden[0]], [actions, hidden[0]], [*hidden, outputs]
        given = {"device": device, "dtype": dtype}
        super().__init__(
            [MLP(part, seed=own, **given) for part, own in zip(widths, seeds(seed, len(widths)), strict=True)],
            **{"features": features, "actions": actions, "hidden": hidden, "outputs": outputs} | given,
        )
        self._split = [features, actions]
        self._features, self._action, self._rest = self._members

    def activations(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Features [N, F], actions [N, m], both factors, then those of the layers after their product."""
        features, action = x.split(self._split, dim=1)
        factors = self._features(features).relu_(), self._action(action).relu_()
        return [features, action, *factors, *self._rest.activations(factors[0] * factors[1])]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.activations(x)[-1]

    def backward(
        self, kept: Sequence[torch.Tensor], slope: torch.Tensor, descends: bool = False
    ) -> torch.Tensor | None:
        """Does what `MLP.backward` does; derivatives [N, F] are those by the features alone."""
        features, action, of_features, of_action, *rest = (layer[: len(slope)] for layer in kept)
        slope = self._rest.backward(rest, slope, descends=True) * (rest[0] > 0)  # 0 where ReLU, or the other's, gave 0
        self._action.backward([action], slope * of_features)
        return self._features.backward([features], slope * of_action, descends)

    def slope_of_last(self, kept: Sequence[torch.Tensor], slope: torch.Tensor, count: int) -> torch.Tensor:
        """Derivatives [N, m] of a loss by the actions, as `MLP.slope_of_last` gives them."""
        _, action, of_features, _, *rest = kept
        slope = self._rest.slope_of_inputs(rest, slope) * (rest[0] > 0)
        return self._action.slope_of_inputs([action], slope * of_features)


class Encoded(Joined):
    """A network of which an encoder and ReLU are the first layer.

    Args:
        encoder: whose features the others take; its numbers and theirs are copied.
        trunk: of features [N, F], or of these and more inputs beside them.
    """

    def __init__(self, encoder: Encoder, trunk: MLP | Factored):
        self.encoder, self.trunk = encoder.copy(), trunk.copy()
        super().__init__([self.encoder, self.trunk], encoder=self.encoder, trunk=self.trunk)
        self._n = sum(part.numbers + part.flags for part in encoder.parts)

    def activations(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The observations [N, n], then those of the trunk."""
        obs, more = x[:, : self._n], x[:, self._n :]
        return [obs, *self.trunk.activations(torch.cat([self.encoder(obs).relu_(), more], dim=1))]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.activations(x)[-1]

    def backward(self, kept: Sequence[torch.Tensor], slope: torch.Tensor) -> None:
        """Fills `gradient` with that of a loss, of arguments as `MLP.backward` takes them."""
        obs, *kept = (layer[: len(slope)] for layer in kept)
        width = self.encoder.width
        by_features = self.trunk.backward(kept, slope, descends=True)[:, :width]
        self.encoder.backward([obs], by_features * (kept[0][:, :width] > 0))

    def slope_of_last(self, kept: Sequence[torch.Tensor], slope: torch.Tensor, count: int) -> torch.Tensor:
        """Derivatives [N, count] of a loss by the last inputs, which are not observations."""
        return self.trunk.slope_of_last(kept[1:], slope, count)

    def sequential(self) -> nn.Sequential:
        """The network of observations alone, as a module of torch that shares its numbers."""
        return nn.Sequential(self.encoder.sequential(), nn.ReLU(), self.trunk.sequential())


def network_of(
    encoder: Encoder | None,
    inputs: int,
    hidden: Sequence[int],
    outputs: int,
    device: torch.device,
    seed: int,
    actions: int = 0,
) -> MLP | Encoded:
    """A network of observations [N, n], or of observations and actions [N, n + m], with ReLU layers.

    Without an encoder they are one input. With one, which is the first layer, actions multiply what leaves the second.

    Args:
        inputs, outputs: n, and how many there are.
        hidden: widths of the ReLU layers.
        seed: of the first numbers.
        actions: m.
    """
    if encoder is None:
        return MLP([inputs + actions, *hidden, outputs], device, seed)
    (width, *rest), (_, seed) = hidden, seeds(seed, 2)  # the first is the encoder's
    if actions:
        return Encoded(encoder, Factored(width, actions, rest, outputs, device, seed))
    return Encoded(encoder, MLP([width, *rest, outputs], device, seed))
