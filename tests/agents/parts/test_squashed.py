"""Squashing numbers into a Box: densities beside torch's own distributions, slopes beside automatic differentiation."""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch.distributions import AffineTransform, ComposeTransform, Independent, Normal, TanhTransform
from torch.distributions import TransformedDistribution as Transformed

from lockstep.agents.parts import distributions
from lockstep.agents.parts.distributions import squashed
from lockstep.agents.parts.distributions.squashed import Squashed

FORMS = {"tanh": torch.tanh, "atan": lambda z: 2 / math.pi * torch.atan(z)}
BOX = ((-2.0, -1.0, 0.0), (2.0, 3.0, 0.5))


def drawn(rows: int, m: int) -> tuple[torch.Tensor, ...]:
    """Mean, log_std, normal numbers and z, float64."""
    generator = torch.Generator().manual_seed(0)
    mean, log_std, normal = torch.randn(3, rows, m, generator=generator, dtype=torch.float64)
    return mean, log_std, normal, mean + log_std.exp() * normal


def test_log_prob_is_that_of_torch():
    mean, log_std, normal, z = drawn(200, 3)
    base = Independent(Normal(mean, log_std.exp()), 1)
    expected = Transformed(base, [TanhTransform(cache_size=1)])
    action = expected.transforms[0](z)
    found = Squashed(*BOX).log_prob(z, normal, log_std)
    torch.testing.assert_close(found, expected.log_prob(action), rtol=0, atol=1e-8)


def test_actions_of_the_environment_are_those_of_torch_s_affine_map():
    low, high = (torch.tensor(bound) for bound in BOX)
    chain = ComposeTransform([TanhTransform(), AffineTransform((low + high) / 2, (high - low) / 2)])
    z = torch.randn(100, 3, generator=torch.Generator().manual_seed(1))
    squash = Squashed(*BOX)
    torch.testing.assert_close(squash.to_environment(squash(z)), chain(z))
    ends = squash.to_environment(torch.tensor([[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]]))
    assert torch.equal(ends, torch.stack([low, high]))


@pytest.mark.parametrize("form", FORMS)
def test_slopes_are_those_of_automatic_differentiation(form):
    squash = Squashed((-1.0,), (1.0,), form)
    z = torch.linspace(-4, 4, 101, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(FORMS[form](z).sum(), z, create_graph=True)
    (bend,) = torch.autograd.grad(slope.log().sum(), z)
    for found, expected in (
        (squash(z), FORMS[form](z)),
        (squash.slope(z), slope),
        (squash.log_slope(z), slope.log()),
        (squash.bend(z), bend),
    ):
        torch.testing.assert_close(found.detach(), expected.detach(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_densities_as_if_tanh_squashed(form):
    squash, nothing = Squashed((-1.0,), (1.0,), form, as_tanh=True), torch.zeros(101, 1, dtype=torch.float64)
    z = torch.linspace(-4, 4, 101, dtype=torch.float64, requires_grad=True)
    assumed = (1 - FORMS[form](z) ** 2 + 1e-6).log()
    (bend,) = torch.autograd.grad(assumed.sum(), z)
    found = squash.log_prob(z[:, None], nothing, nothing)
    torch.testing.assert_close(found.detach(), -squashed.HALF_LN_2PI - assumed.detach(), rtol=0, atol=1e-9)
    torch.testing.assert_close(squash.bend(z).detach(), bend, rtol=0, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_the_density_is_one_in_all(form):
    """The integral over a of exp(log p), by a over the quantiles of a fine grid of z."""
    z = torch.linspace(-60, 60, 400_001, dtype=torch.float64).unsqueeze(1)
    mean, log_std = 0.4, math.log(0.7)
    squash = Squashed((-1.0,), (1.0,), form)
    log_prob = squash.log_prob(z, (z - mean) / math.exp(log_std), torch.full_like(z, log_std))
    assert torch.trapezoid(log_prob.exp(), squash(z)[:, 0]).item() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_far_out_everything_is_finite(form):
    squash, z = Squashed((-1.0,), (1.0,), form), torch.tensor([[-50.0], [50.0]])
    for found in (squash(z), squash.slope(z), squash.log_slope(z), squash.bend(z), squash.to_environment(squash(z))):
        assert found.isfinite().all()
    # ln(1 - tanh^2 z) is ln 4 - 2|z| far out; of (2 / pi) atan z it is ln(2 / pi) - ln(1 + z^2)
    expected = math.log(4) - 100 if form == "tanh" else math.log(2 / math.pi) - math.log(2501)
    assert squash.log_slope(z).flatten().tolist() == pytest.approx([expected] * 2)


def test_only_bounded_boxes_of_one_axis_have_one():
    assert squashed.of(Box(-2.0, 3.0, (2,)), "atan") == Squashed((-2.0, -2.0), (3.0, 3.0), "atan")
    for space in (Discrete(2), Box(-1, 1, (2, 2)), Box(0.0, np.inf, (2,)), Box(0, 9, (2,), dtype=np.int64)):
        with pytest.raises(ValueError, match="it must be a float Box of one axis with finite bounds"):
            squashed.of(space)


# ---- a policy's distribution -----------------------------------------------------------------------------------------


def policy(form: str) -> distributions.Distribution:
    return distributions.of(Box(np.float32(BOX[0]), np.float32(BOX[1])), form)


def test_drawn_actions_have_the_density_of_torch():
    found, mean, log_std = policy("tanh"), *torch.randn(2, 200, 3, generator=torch.Generator().manual_seed(0))
    words = torch.randint(0, 2**24, (200, 8), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    z, log_prob = found.sample(mean, log_std[0], words)
    base = Independent(Normal(mean, log_std[0].exp()), 1)
    expected = Transformed(base, [TanhTransform(cache_size=1)])
    action = expected.transforms[0](z)
    torch.testing.assert_close(log_prob, expected.log_prob(action), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(found.log_prob_entropy(mean, log_std[0], z)[0], log_prob, rtol=1e-4, atol=1e-4)
    low, high = (torch.tensor(bound) for bound in BOX)
    given = found.to_environment(z)
    assert ((given >= low) & (given <= high)).all()
    torch.testing.assert_close(given, (low + high) / 2 + (high - low) / 2 * action)
    assert torch.equal(found.to_environment(found.mode(mean)), Squashed(*BOX).to_environment(mean.tanh()))


@pytest.mark.parametrize("form", FORMS)
def test_sampled_entropy_and_its_slopes_are_those_of_quadrature(form):
    """Of one component with mean 0.4 and deviation 0.7, over 400,000 draws."""
    numbers = torch.tensor([0.4, math.log(0.7)], dtype=torch.float64, requires_grad=True)
    x = torch.linspace(-9, 9, 20_001, dtype=torch.float64)
    z = numbers[0] + numbers[1].exp() * x
    (slope,) = torch.autograd.grad(FORMS[form](z).sum(), z, create_graph=True)
    density = (-x * x / 2).exp() / math.sqrt(2 * math.pi)
    expected = torch.trapezoid(density * slope.log(), x) + numbers[1] + 0.5 * math.log(2 * math.pi * math.e)
    by_hand = torch.autograd.grad(expected, numbers)[0]

    found = distributions.of(Box(-1.0, 1.0, (1,)), form)
    normal = torch.randn(400_000, 1, generator=torch.Generator().manual_seed(0))
    mean, log_std = torch.full((400_000, 1), 0.4, requires_grad=True), torch.tensor([math.log(0.7)], requires_grad=True)
    drawn = (mean + log_std.exp() * normal).detach()
    entropy = found.log_prob_entropy(mean, log_std, drawn)[1].mean()
    by_mean, by_log_std = torch.autograd.grad(entropy, [mean, log_std])
    assert entropy.item() == pytest.approx(expected.item(), abs=0.01)
    assert [by_mean.sum().item(), by_log_std.item()] == pytest.approx(by_hand.tolist(), abs=0.01)
