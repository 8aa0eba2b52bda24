"""Networks with their gradient written out, and Adam, beside torch's own."""

import itertools
import math

import pytest
import torch
from torch.nn.functional import linear, smooth_l1_loss

from lockstep.agents.parts import mlp
from lockstep.agents.parts.adam import Adam
from lockstep.agents.parts.mlp import MLP

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
# Layers narrower than a vector, of several, of many vectors with and without a rest; rows of several blocks and a rest.
WIDTHS = [(3, 2), (3, 5, 2), (1, 16, 1), (3, 16, 24, 2), (4, 64, 64, 2), (40, 67, 131, 80, 9), (70, 33)]
CLOSE = {torch.float64: {"rtol": 0, "atol": 1e-10}, torch.float32: {"rtol": 1e-5, "atol": 1e-5}}


def normal(*shape: int, seed: int = 2, **kind) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(**kind)


def leaves_of(network: MLP) -> list[torch.Tensor]:
    return [part.clone().requires_grad_() for layer in network.layers for part in layer]


def forward(leaves: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    for weight, bias in zip(leaves[::2], leaves[1::2], strict=True):
        x = linear(x, weight, bias)
        x = x if bias is leaves[-1] else x.relu()
    return x


def flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("rows", [1, 37, 64])
@pytest.mark.parametrize("widths", WIDTHS)
def test_the_gradient_written_out_is_that_of_automatic_differentiation(widths, rows, dtype, device, monkeypatch):
    network = MLP(widths, torch.device(device), seed=1, dtype=dtype)
    kind = {"device": device, "dtype": dtype}
    obs, slope = normal(rows + 5, widths[0], **kind).requires_grad_(), normal(rows, widths[-1], seed=3, **kind)
    leaves = leaves_of(network)
    expected = forward(leaves, obs)
    for limit in (0, mlp.SMALL):  # in torch, and in C++
        monkeypatch.setattr(mlp, "SMALL", limit)
        kept = network.activations(obs.detach())
        torch.testing.assert_close(kept[-1], expected.detach(), **CLOSE[dtype])
    expected[:rows].backward(slope)
    for limit, descends in itertools.product(
        (mlp.SMALL, 0), (False, True)
    ):  # in C++ where that is quicker, and in torch
        monkeypatch.setattr(mlp, "SMALL", limit)
        network.gradient.fill_(math.nan)
        by_inputs = network.backward(kept, slope, descends)
        torch.testing.assert_close(network.gradient, flat([leaf.grad for leaf in leaves]), **CLOSE[dtype])
        assert descends or by_inputs is None
        if descends:
            torch.testing.assert_close(by_inputs, obs.grad[:rows], **CLOSE[dtype])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("widths", WIDTHS)
def test_derivatives_by_the_inputs_are_those_of_automatic_differentiation(widths, device):
    kind = {"device": device, "dtype": torch.float64}
    network = MLP(widths, torch.device(device), seed=1, dtype=torch.float64)
    x, slope = normal(37, widths[0], **kind).requires_grad_(), normal(37, widths[-1], seed=3, **kind)
    (expected,) = torch.autograd.grad(forward(leaves_of(network), x), x, slope)
    kept, before = network.activations(x.detach()), slope.clone()
    torch.testing.assert_close(network.slope_of_inputs(kept, slope), expected, **CLOSE[torch.float64])
    assert torch.equal(slope, before)


@pytest.mark.parametrize("widths", [(3, 5, 2), (4, 64, 64, 2)])
def test_room_that_calls_share_grows_with_their_rows_and_serves_fewer(widths):
    network = MLP(widths, torch.device("cpu"), seed=1, dtype=torch.float64)
    for rows in (3, 40, 3):
        leaves, x, slope = leaves_of(network), normal(rows, widths[0], seed=rows), normal(rows, widths[-1])
        kept, expected = network.activations(x), forward(leaves, x)
        torch.testing.assert_close(kept[-1], expected.detach(), **CLOSE[torch.float64])
        expected.backward(slope)
        network.backward(kept, slope)
        torch.testing.assert_close(network.gradient, flat([leaf.grad for leaf in leaves]), **CLOSE[torch.float64])


def test_passes_read_numbers_and_fill_gradients_where_they_were_moved():
    network, x = MLP((3, 5, 2), torch.device("cpu"), seed=1), normal(4, 3, dtype=torch.float32)
    before = network(x)
    network.move(*torch.zeros(2, network.parameters.numel()))
    assert torch.equal(network(x), before)
    network.parameters.zero_()
    kept = network.activations(x)
    assert not kept[-1].any()
    network.backward(kept, torch.ones(4, 2))
    assert network.gradient[-2:].tolist() == [4.0, 4.0]


def test_an_input_that_requires_a_gradient_gets_one():
    network = MLP((3, 5, 2), torch.device("cpu"), seed=1, dtype=torch.float64)
    x, slope = normal(4, 3).requires_grad_(), normal(4, 2, seed=3)
    (expected,) = torch.autograd.grad(forward(leaves_of(network), x), x, slope)
    network(x).backward(slope)
    torch.testing.assert_close(x.grad, expected, **CLOSE[torch.float64])


@pytest.mark.gpu
def test_an_input_on_another_device_is_refused():
    with pytest.raises(RuntimeError, match="same device"):
        MLP((3, 5, 2), torch.device("cpu"))(torch.zeros(4, 3, device="cuda"))


def test_of_no_rows_there_are_none():
    assert [part.shape for part in MLP([3, 5, 2], torch.device("cpu")).activations(torch.empty(0, 3))] == [
        (0, 3),
        (0, 5),
        (0, 2),
    ]


def test_an_input_that_is_no_number_is_no_number_in_the_end():
    x = torch.tensor([[math.nan, 1.0, 2.0], [0.0, 1.0, 2.0]])
    found = MLP([3, 5, 2], torch.device("cpu"))(x)
    assert found[0].isnan().all() and found[1].isfinite().all()


def test_inputs_of_another_width_are_refused():
    with pytest.raises(ValueError, match=r"x must be \[N, 3\], got \[2, 4\]"):
        MLP([3, 5, 2], torch.device("cpu"))(torch.zeros(2, 4))


def test_one_thread_does_what_is_small():
    assert mlp.small(64, (4, 256, 2)) and not mlp.small(256, (4, 256, 2))


def test_a_slope_of_other_rows_is_refused():
    network = MLP((3, 5, 2), torch.device("cpu"))
    kept = network.activations(normal(4, 3, dtype=torch.float32))
    for shape in ((5, 2), (4, 3)):
        with pytest.raises(ValueError, match=r"slope must be \[4, 2\] of torch.float32"):
            network.backward(kept, torch.zeros(shape))
    with pytest.raises(ValueError, match="slope must be"):
        network.backward(kept, torch.zeros(4, 2, dtype=torch.float64))


def test_first_numbers_are_those_of_a_linear_layer():
    network = MLP((400, 300, 2), torch.device("cpu"), seed=1)
    for (weight, bias), inputs in zip(network.layers, (400, 300), strict=True):
        numbers, limit = torch.cat([weight.flatten(), bias]), 1 / math.sqrt(inputs)
        assert numbers.abs().max() <= limit
        assert numbers.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.1)
    other = MLP((400, 300, 2), torch.device("cpu"), seed=2)
    assert not torch.equal(network.parameters, other.parameters)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("limit", [0.05, 1e9])
def test_updates_are_those_of_automatic_differentiation_and_torch_s_adam(limit, dtype, device):
    """Of a Huber loss, with the gradient's norm limited and not."""
    network, kind = MLP((4, 64, 64, 2), torch.device(device), dtype=dtype), {"device": device, "dtype": dtype}
    leaves, adam = leaves_of(network), Adam(network.parameters, network.gradient, limit)
    optimizer = torch.optim.Adam(leaves, lr=1e-3)
    for update in range(20):
        obs, target = normal(64, 4, seed=update, **kind), normal(64, 2, seed=update + 100, **kind)
        optimizer.zero_grad()
        smooth_l1_loss(forward(leaves, obs), target, reduction="sum").backward()
        expected = torch.nn.utils.clip_grad_norm_(leaves, limit)
        optimizer.step()
        kept = network.activations(obs)
        network.backward(kept, (kept[-1] - target).clamp(-1.0, 1.0))
        torch.testing.assert_close(adam.step(1e-3), expected, rtol=1e-10 if dtype == torch.float64 else 1e-4, atol=0)
    assert adam.state["steps"].item() == 20
    torch.testing.assert_close(network.parameters, flat(leaves), **CLOSE[dtype])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_no_step_is_made_of_a_gradient_that_is_not_finite(bad, device):
    parameters, gradient = torch.ones(2, 50, device=device)
    adam = Adam(parameters, gradient, 1.0)
    adam.step(0.1)
    before, state = parameters.clone(), {name: part.clone() for name, part in adam.state.items()}
    gradient[33] = bad
    assert not adam.step(0.1).isfinite()
    assert torch.equal(parameters, before)
    assert all(torch.equal(adam.state[name], part) for name, part in state.items())


@pytest.mark.parametrize("dtype", CLOSE)
def test_moments_below_the_smallest_normal_number_are_0_on_the_cpu(dtype):
    """Processors take many times as long with them, and 0.9 times the last few of them are themselves."""
    least = torch.finfo(dtype).tiny
    parameters, gradient = torch.ones(50, dtype=dtype), torch.zeros(50, dtype=dtype)
    adam = Adam(parameters, gradient, 1.0)
    for times, decayed in ((1, 0.0), (2, 2 * least)):
        for name, decay in (("first", 0.9), ("second", 0.999)):
            adam.state[name].fill_(times * least)
            adam.step(0.1)
            assert adam.state[name].tolist() == pytest.approx([decay * decayed] * 50, rel=1e-6, abs=0)
    assert torch.equal(parameters, torch.ones_like(parameters))


def test_steps_go_on_from_a_state():
    whole, half = (Adam(*torch.ones(2, 50), 1.0) for _ in range(2))
    for _ in range(3):
        whole.step(0.1)
    half.parameters.copy_(whole.parameters)
    half.load_state(whole.state)
    for adam in (whole, half):
        adam.step(0.1)
    assert torch.equal(whole.parameters, half.parameters)
