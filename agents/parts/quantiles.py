"""Quantiles of returns at any fractions, from one network (Dabney et al., 2018), with their loss.

Axes: k rows, q fractions of each, n components of an observation, m of an action, F features, o outputs.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from .adam import BETA1, BETA2, Adam
from .encoder import Encoder
from .kernels import require
from .mlp import CPU, MLP, Joined, seeds, small
from .native import functions

SOURCE = Path(__file__).with_suffix(".cuh")
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


@functools.cache
def _functions(dtype: torch.dtype) -> dict[str, Callable]:
    arguments = {"cosines": "piip", "product_of": "ppiiiiip", "part": "pppiiiipp", "huber": "pppiiipp"}
    arguments |= {"passes": "ppppiiip", "descents": "pppppppppp" + "iiiiddddd" + "p"}
    return dict(zip(arguments, functions(SOURCE, dtype, **arguments), strict=True))


def _in_cpp(given: torch.Tensor) -> bool:
    """True where a pass over this is one of C++."""
    return given.device.type == "cpu" and not given.requires_grad


def _places(*parts: torch.Tensor) -> list[int]:
    return [part.data_ptr() for part in parts]


def _call(name: str, kind: torch.dtype, tensors: Sequence[torch.Tensor], *numbers: float, out: Sequence[torch.Tensor]):
    """A call to C++ for one type of numbers, `kind`, with contiguous tensors."""
    _functions(kind)[name](*_places(*tensors), *numbers, *_places(*out))


def cosines(tau: torch.Tensor) -> torch.Tensor:
    """cos(pi i tau), i = 0 .. 63, of fractions [...]: [..., COSINES]."""
    if _in_cpp(tau):
        found = tau.new_empty(*tau.shape, COSINES)
        _call("cosines", tau.dtype, [tau.contiguous()], tau.numel(), COSINES, out=[found])
        return found
    return _cosines(tau)


def _cosines(tau: torch.Tensor) -> torch.Tensor:
    """The same in torch."""
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
    kind, (rows, count) = predicted.dtype, predicted.shape
    if _in_cpp(predicted) and kind == tau.dtype == target.dtype:
        loss, slope = predicted.new_empty(rows), predicted.new_empty(rows, count)
        given = [part.contiguous() for part in (predicted, tau, target)]
        _call("huber", kind, given, rows, count, target.shape[1], out=[loss, slope])
        return loss, slope
    error = target.unsqueeze(1) - predicted.unsqueeze(2)  # [k, q, any]
    slope = error.clamp(-1.0, 1.0)
    weighed = (tau.unsqueeze(2) - (error < 0).to(tau.dtype)).abs() * slope
    return (weighed * (error - 0.5 * slope)).mean(dim=2).sum(dim=1), -weighed.mean(dim=2)


def product(once: torch.Tensor, each: torch.Tensor, rectified: bool = True) -> torch.Tensor:
    """The product [k, q, F] of factors after ReLU, which is done in their places.

    Args:
        once: [k, F], contiguous.
        each: [k, q, F], or [1, q, F], the same of all rows; contiguous.
        rectified: False: the first has no ReLU.
    """
    if _in_cpp(each):
        found = once.new_empty(once.shape[0], *each.shape[1:])
        _call("product_of", each.dtype, [once, each], rectified, once.shape[0], *each.shape, out=[found])
        return found
    return (once.relu_() if rectified else once).unsqueeze(1) * each.relu_()


def parted(
    slope: torch.Tensor, once: torch.Tensor, each: torch.Tensor, rectified: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Derivatives by both factors of `product` before ReLU, [k, F] and [k * q, F], from those by it [k * q, F].

    All are contiguous, and factors as `product` left them, none of them the same of all rows.
    """
    if _in_cpp(each):
        by_once, by_each = torch.empty_like(once), torch.empty_like(slope)
        _call("part", each.dtype, [slope, once, each], rectified, *each.shape, out=[by_once, by_each])
        return by_once, by_each
    slope = slope.view_as(each)
    by_once, by_each = (slope * each).sum(dim=1), slope * once.unsqueeze(1) * (each > 0)
    return by_once * (once > 0) if rectified else by_once, by_each.flatten(0, 1)


@dataclass(frozen=True)
class Pass:
    """A pass of a `QuantileNetwork`: its quantiles [k, q, o], and all that their gradient needs."""

    obs: torch.Tensor  # [k, n]
    cosines: torch.Tensor  # [k * q, COSINES]
    of_obs: torch.Tensor  # [k, F]
    of_tau: torch.Tensor  # [k, q, F]
    trunk: list[torch.Tensor]  # [k * q, *], the activations of the layers after both, those up to actions left out
    action: torch.Tensor  # [k, m]
    of_action: torch.Tensor | None  # [k, *]
    before_action: list[torch.Tensor]  # [k * q, F] and [k, q, *], the activations of the layer up to actions
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

    Attributes:
        sizes: n, COSINES, rectified, the number of layers after these two, F, hidden, o.

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
        up_to, rest = ([features, hidden[0]], hidden) if actions else ([], [features, *hidden])
        widths = [[inputs, features], [COSINES, features], *([[actions, hidden[0]], up_to] if actions else [])]
        widths.append([*rest, outputs])
        parts = [MLP(own, device, first) for own, first in zip(widths, seeds(seed, len(widths)), strict=True)]
        if encoder is not None:
            parts[0] = encoder.copy()
        sizes = {"inputs": inputs, "outputs": outputs, "features": features, "hidden": hidden, "actions": actions}
        super().__init__(parts, **sizes, device=device, encoder=encoder, rectified=rectified)
        self._rectified = rectified
        self._obs, self._tau, *of_action, self._trunk = parts
        self._action, self._up_to_action = of_action or (None, None)
        self._all = fractions(1.0, device)
        self.sizes = inputs, COSINES, int(rectified), len(hidden) + 1, features, *hidden, outputs
        self._plain = encoder is None and not actions

    def activations(self, x: torch.Tensor, tau: torch.Tensor) -> Pass:
        """A pass of observations, and actions, [k, n + m] at fractions [k, q]; or [1, q], the same for all rows."""
        obs, action = x.split(self._split, dim=1)
        cosines_of_tau, shape = cosines(tau).flatten(0, 1), (len(x), tau.shape[1], -1)
        of_obs, of_tau = self._obs(obs), self._tau(cosines_of_tau).view(*tau.shape, -1)
        found, before_action, of_action = product(of_obs, of_tau, self._rectified).flatten(0, 1), [], None
        if self._action is not None:
            of_action, before_action = self._action(action), [found, self._up_to_action(found).view(shape)]
            found = product(of_action, before_action[1]).flatten(0, 1)
        trunk = self._trunk.activations(found)
        quantiles = trunk[-1].view(shape)
        return Pass(obs, cosines_of_tau, of_obs, of_tau, trunk, action, of_action, before_action, quantiles)

    def compiled(self, rows: int) -> bool:
        """True where `Batches` of so many rows at DRAWN fractions take it: small ones on the CPU, in "fp32".

        They have neither actions nor an encoder.
        """
        layers = self._obs, self._tau, self._trunk
        return self._plain and all(layer.in_cpp and small(rows * DRAWN, layer.widths) for layer in layers)

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
        slope = self._trunk.backward(kept.trunk, slope.flatten(0, 1), descends=True)
        if self._action is not None:
            found, before_action = kept.before_action
            by_action, slope = parted(slope, kept.of_action, before_action)
            self._action.backward([kept.action], by_action)
            slope = self._up_to_action.backward([found], slope, descends=True)
        by_obs, by_tau = parted(slope, kept.of_obs, kept.of_tau, self._rectified)
        self._obs.backward([kept.obs], by_obs)
        self._tau.backward([kept.cosines], by_tau)

    def slope_of_actions(self, kept: Pass, slope: torch.Tensor) -> torch.Tensor:
        """Derivatives [k, m] of a loss by the actions, of arguments as `backward` takes them."""
        slope = self._trunk.slope_of_inputs(kept.trunk, slope.flatten(0, 1))
        by_action, _ = parted(slope, kept.of_action, kept.before_action[1])
        return self._action.slope_of_inputs([kept.action], by_action)

    def sequential(self, tau: torch.Tensor | nn.Module) -> nn.Sequential:
        """A call without actions at fractions [q], or at [k, q] that a module gives of observations.

        It is a module of torch that shares the numbers, of fixed fractions of all but the cosines.
        """
        of_obs = nn.Sequential(self._obs.sequential(), nn.ReLU() if self._rectified else nn.Identity())
        trunk = self._trunk.sequential()
        if isinstance(tau, nn.Module):
            of_tau = nn.Sequential(self._tau.sequential(), nn.ReLU())
            return nn.Sequential(_Product(of_obs, tau, of_tau), trunk, _Mean())
        return nn.Sequential(of_obs, _Factor(self._tau(cosines(tau)).relu_()), trunk, _Mean())


class Batches:
    """Passes and gradient steps of a `QuantileNetwork` in C++, one call for many batches of k rows.

    Args:
        network: one that is `compiled`.
        rows: k.
    """

    def __init__(self, network: QuantileNetwork, rows: int):
        self.network, self.rows = network, rows
        self._sizes = torch.tensor(network.sizes, dtype=torch.int64, device=CPU)

    def quantiles(self, obs: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
        """Quantiles [N, q, o] of observations [N, n] at fractions [N, q], N a multiple of k."""
        count, (obs, tau) = self._checked(obs, tau)
        found = tau.new_empty(*tau.shape, self.network.sizes[-1])
        given = self._sizes, self.network.parameters, obs, tau
        _call("passes", tau.dtype, given, count, self.rows, tau.shape[1], out=[found])
        return found

    def descend(
        self,
        adam: Adam,
        lr: float,
        obs: torch.Tensor,
        action: torch.Tensor,
        tau: torch.Tensor,
        target: torch.Tensor,
    ) -> torch.Tensor:
        """A step of Adam for each batch, down the mean `huber` of its rows.

        Args:
            adam: of the network's numbers, in one process.
            lr: the learning rate.
            obs, action, tau, target: [N, n], int64 [N] in 0 .. o-1, whose quantiles count, [N, q] and [N, any].

        Returns:
            [3, N / k], of each batch: the loss, the mean of these quantiles, the gradient's norm.
        """
        count, (obs, tau) = self._checked(obs, tau)
        target = require("target", target.contiguous(), (len(tau), target.shape[1]), tau.dtype, CPU)
        action = require("action", action.contiguous(), (len(tau),), torch.int64, CPU)
        given = self._sizes, adam.parameters, adam.gradient, *adam.state.values(), obs, action, tau, target
        numbers = count, self.rows, tau.shape[1], target.shape[1], adam.limit, lr, BETA1, BETA2, adam.epsilon
        told = tau.new_empty(3, count)
        _call("descents", tau.dtype, given, *numbers, out=[told])
        return told

    def _checked(self, obs: torch.Tensor, tau: torch.Tensor) -> tuple[int, list[torch.Tensor]]:
        """The number of batches, and both tensors, contiguous."""
        count, kind = len(obs) // self.rows, self.network.parameters.dtype
        shapes = {"obs": (count * self.rows, self.network.sizes[0]), "tau": (count * self.rows, tau.shape[1])}
        given = (part.contiguous() for part in (obs, tau))
        return count, [require(name, part, shapes[name], kind, CPU) for name, part in zip(shapes, given, strict=True)]


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
        return self.of_obs(x).unsqueeze(1) * self.of_tau(_cosines(self.tau(x)))


class _Mean(nn.Module):
    """The mean [k, o] of quantiles [k, q, o]."""

    def forward(self, quantiles: torch.Tensor) -> torch.Tensor:
        return quantiles.mean(dim=1)
