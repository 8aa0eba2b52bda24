"""Quantiles of returns at any fractions, from one network (Dabney et al., 2018), with their loss.

Axes: k rows, q fractions of each, n components of an observation, m of an action, F features, o outputs.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from .encoder import Encoder
from .mlp import MLP, Joined, seeds, small
from .module import sequential

COSINES = 64
DRAWN = 8  # fractions that an update draws for each row: of a prediction, and of a target
MEANT = 32  # fractions whose mean quantile is a value


def torch_threads(config) -> int:
    """As `run/algorithm.py` says: all where an update multiplies large matrices; else there is no work for them."""
    return 1 if small(DRAWN * config.batch_size, (config.features, *config.hidden)) else config.threads


def fractions(share: float, device: torch.device) -> torch.Tensor:
    """The midpoints [MEANT] of as many equal parts of (0, share).

    The mean of their quantiles is that of the worst returns, so large a share of all (the conditional value at risk);
    with share = 1 it is the mean of all.
    """
    return (torch.arange(MEANT, dtype=torch.float32, device=device) + 0.5) * (share / MEANT)


def drawn(rows: int, generator: torch.Generator) -> torch.Tensor:
    """Fractions [rows, DRAWN], uniform in [0, 1), on the generator's device."""
    return torch.rand(rows, DRAWN, dtype=torch.float32, device=generator.device, generator=generator)


def cosines(tau: torch.Tensor) -> torch.Tensor:
    """cos(pi i tau), i = 0 .. 63, of fractions [...]: [..., COSINES]."""
    return (tau.unsqueeze(-1) * (math.pi * torch.arange(COSINES, dtype=tau.dtype, device=tau.device))).cos_()


def huber(predicted: torch.Tensor, tau: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The quantile Huber loss with kappa = 1, of each row, and its derivatives by what was predicted.

    With e = target_j - predicted_i it is the sum over i of the mean over j of |tau_i - [e < 0]| h(e), where h(e) is
    e^2 / 2 up to 1 and |e| - 1/2 beyond.

    Args:
        predicted, tau: [k, q], quantiles and their fractions.
        target: [k, any], samples of the returns.

    Returns:
        [k] and [k, q].
    """
    error = target.unsqueeze(1) - predicted.unsqueeze(2)  # [k, q, any]
    slope = error.clamp(-1.0, 1.0)
    weighed = (tau.unsqueeze(2) - (error < 0).to(tau.dtype)).abs() * slope
    return (weighed * (error - 0.5 * slope)).mean(dim=2).sum(dim=1), -weighed.mean(dim=2)


@dataclass(frozen=True)
class Pass:
    """A pass of a `QuantileNetwork`: its quantiles [k, q, o], and all that their gradient needs."""

    obs: torch.Tensor  # [k, n]
    cosines: torch.Tensor  # [k * q, COSINES]
    of_obs: torch.Tensor  # [k, F]
    of_tau: torch.Tensor  # [k, q, F]
    inputs: list[torch.Tensor]  # [k * q, *], of each layer after these two
    action: torch.Tensor  # [k, m]
    of_action: torch.Tensor | None  # [k, *]
    before_action: torch.Tensor | None  # [k, q, *]
    quantiles: torch.Tensor


class QuantileNetwork(Joined):
    """Quantiles of returns from observations, or from observations and actions, with the gradient written out.

        x = ReLU(linear(obs)) * ReLU(linear(cosines(tau)))

    goes through linear layers with ReLU between. Where there are actions, what leaves the first of them is multiplied
    by ReLU(linear(action)).

    Args:
        inputs: n.
        outputs: o.
        features: F.
        hidden: widths of the layers after these, one at least.
        device: of all tensors.
        seed: of the first numbers, which are those of `MLP`.
        actions: m; 0: there are none.
        encoder: of F features, in place of linear(obs); its numbers are copied.
        rectified: False: x has linear(obs) without ReLU.

    Layers are those of observations, of cosines, of actions where there are some, and all others in their order.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        features: int,
        hidden: Sequence[int],
        device: torch.device,
        seed: int = 0,
        actions: int = 0,
        encoder: Encoder | None = None,
        rectified: bool = True,
    ):
        self._split = [inputs, actions]
        widths = [(inputs, features), (COSINES, features), *([(actions, hidden[0])] if actions else [])]
        widths += itertools.pairwise([features, *hidden, outputs])
        parts = [MLP(pair, device, own) for pair, own in zip(widths, seeds(seed, len(widths)), strict=True)]
        if encoder is not None:
            parts[0] = encoder.copy()
        sizes = {"inputs": inputs, "outputs": outputs, "features": features, "hidden": hidden, "actions": actions}
        super().__init__(parts, **sizes, device=device, encoder=encoder, rectified=rectified)
        self._rectified = rectified
        self._obs, self._tau, *rest = parts
        self._action = rest.pop(0) if actions else None
        self._trunk = rest
        self._all = fractions(1.0, device)

    def activations(self, x: torch.Tensor, tau: torch.Tensor) -> Pass:
        """A pass of observations, and actions, [k, n + m] at fractions [k, q]; or [1, q], the same for all rows."""
        obs, action = x.split(self._split, dim=1)
        cosines_of_tau = cosines(tau).flatten(0, 1)
        of_obs = self._obs(obs)
        of_obs = of_obs.relu_() if self._rectified else of_obs
        of_tau = self._tau(cosines_of_tau).relu_().view(*tau.shape, -1)
        rows, before_action, of_action = (len(x), tau.shape[1], -1), None, None
        inputs = [(of_obs.unsqueeze(1) * of_tau).flatten(0, 1)]
        for number, layer in enumerate(self._trunk[:-1]):
            found = layer(inputs[-1]).relu_()
            if number == 0 and self._action is not None:
                before_action, of_action = found.view(rows), self._action(action).relu_()
                found = (before_action * of_action.unsqueeze(1)).flatten(0, 1)
            inputs.append(found)
        quantiles = self._trunk[-1](inputs[-1]).view(rows)
        return Pass(obs, cosines_of_tau, of_obs, of_tau, inputs, action, of_action, before_action, quantiles)

    def __call__(self, x: torch.Tensor, tau: torch.Tensor | None = None) -> torch.Tensor:
        """Means [k, o] of the quantiles at fractions [q], or [k, q]; None: those of all returns."""
        tau = self._all if tau is None else tau
        return self.activations(x, tau if tau.dim() == 2 else tau.unsqueeze(0)).quantiles.mean(dim=1)

    def backward(self, kept: Pass, slope: torch.Tensor) -> None:
        """Fills `gradient` with that of a loss.

        Args:
            kept: a pass at fractions [k, q].
            slope: [k, q, o], derivatives of the loss by the quantiles.
        """
        slope = slope.flatten(0, 1)
        for number in reversed(range(len(self._trunk))):
            slope = self._trunk[number].backward([kept.inputs[number]], slope, descends=True)
            slope = self._rectified_slope(kept, number, slope)
            if number == 1 and self._action is not None:
                by_action, slope = self._parted(slope, kept.of_action, kept.before_action)
                self._action.backward([kept.action], by_action)
        by_obs, by_tau = self._parted(slope, kept.of_obs, kept.of_tau)
        self._obs.backward([kept.obs], by_obs)
        self._tau.backward([kept.cosines], by_tau)

    def slope_of_actions(self, kept: Pass, slope: torch.Tensor) -> torch.Tensor:
        """Derivatives [k, m] of a loss by the actions, of arguments as `backward` takes them."""
        slope = slope.flatten(0, 1)
        for number in reversed(range(1, len(self._trunk))):
            slope = self._trunk[number].slope_of_inputs([kept.inputs[number]], slope)
            slope = self._rectified_slope(kept, number, slope)
        by_action, _ = self._parted(slope, kept.of_action, kept.before_action)
        return self._action.slope_of_inputs([kept.action], by_action)

    def _rectified_slope(self, kept: Pass, number: int, slope: torch.Tensor) -> torch.Tensor:
        """Derivatives by the inputs of a layer, made 0 where ReLU, or a factor's, gave 0."""
        passed = kept.inputs[number] if number or self._rectified else kept.of_tau.flatten(0, 1)
        return slope.mul_(passed > 0)

    @staticmethod
    def _parted(slope: torch.Tensor, once: torch.Tensor, each: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Derivatives by both factors, [k, *] of a row and [k * q, *], from those by their product [k * q, *]."""
        slope = slope.view_as(each)
        return (slope * each).sum(dim=1), (slope * once.unsqueeze(1)).flatten(0, 1)

    def sequential(self, tau: torch.Tensor | nn.Module) -> nn.Sequential:
        """A call without actions at fractions [q], or at [k, q] that a module gives of observations.

        It is a module of torch that shares the numbers, of fixed fractions of all but the cosines.
        """
        of_obs = nn.Sequential(self._obs.sequential(), nn.ReLU() if self._rectified else nn.Identity())
        trunk = sequential([layer for part in self._trunk for layer in part.layers], nn.ReLU)
        if isinstance(tau, nn.Module):
            of_tau = nn.Sequential(self._tau.sequential(), nn.ReLU())
            return nn.Sequential(_Product(of_obs, tau, of_tau), trunk, _Mean())
        return nn.Sequential(of_obs, _Factor(self._tau(cosines(tau)).relu_()), trunk, _Mean())


class _Factor(nn.Module):
    """Features [k, F] times those of q fractions [q, F]: [k, q, F]."""

    def __init__(self, of_tau: torch.Tensor):
        super().__init__()
        self.register_buffer("of_tau", of_tau)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.unsqueeze(1) * self.of_tau


class _Product(nn.Module):
    """Features [k, F] times those of fractions [k, q] that a module gives of the same inputs: [k, q, F]."""

    def __init__(self, of_obs: nn.Module, tau: nn.Module, of_tau: nn.Module):
        super().__init__()
        self.of_obs, self.tau, self.of_tau = of_obs, tau, of_tau

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.of_obs(x).unsqueeze(1) * self.of_tau(cosines(self.tau(x)))


class _Mean(nn.Module):
    """The mean [k, o] of quantiles [k, q, o]."""

    def forward(self, quantiles: torch.Tensor) -> torch.Tensor:
        return quantiles.mean(dim=1)
