"""RMSprop beside torch's own, and where a gradient is not finite."""

import math

import pytest
import torch

from lockstep.agents.parts.rmsprop import DECAY, RMSprop

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("limit", [0.05, 1e9])
def test_steps_are_those_of_torch_s(limit, device):
    """With the gradient's norm limited and not."""
    first, gradient = torch.randn(2, 50, generator=torch.Generator().manual_seed(0)).to(device)
    found, expected = RMSprop(first.clone(), gradient, limit, 1e-5), first.clone().requires_grad_()
    optimizer = torch.optim.RMSprop([expected], lr=1e-3, alpha=DECAY, eps=1e-5)
    for _ in range(20):
        expected.grad = gradient.clone()
        norm = torch.nn.utils.clip_grad_norm_([expected], limit)
        optimizer.step()
        torch.testing.assert_close(found.step(1e-3), norm)
        gradient.mul_(-0.9)
    torch.testing.assert_close(found.parameters, expected.detach())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_no_step_is_made_of_a_gradient_that_is_not_finite(bad, device):
    parameters, gradient = torch.ones(2, 50, device=device)
    optimizer = RMSprop(parameters, gradient, 1.0)
    optimizer.step(0.1)
    before, square = parameters.clone(), optimizer.state["square"].clone()
    gradient[33] = bad
    assert not optimizer.step(0.1).isfinite()
    assert torch.equal(parameters, before) and torch.equal(optimizer.state["square"], square)


def test_steps_go_on_from_a_state():
    whole, half = (RMSprop(*torch.ones(2, 50), 1.0) for _ in range(2))
    for _ in range(3):
        whole.step(0.1)
    half.parameters.copy_(whole.parameters)
    half.load_state(whole.state)
    for optimizer in (whole, half):
        optimizer.step(0.1)
    assert torch.equal(whole.parameters, half.parameters)
