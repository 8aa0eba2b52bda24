"""Noisy duelling networks: what they add up, how their noise is spread, and their gradient."""

import math

import pytest
import torch

from lockstep.agents.parts.duelling import NoisyDuelling, combined
from lockstep.agents.parts.mlp import MLP

CPU = torch.device("cpu")
SIZES = {"n": 4, "m": 3, "z": 5, "encoder": 8, "hidden": (6, 7)}
MEANS = (4 + 1) * 8
STREAMS = 2 * ((8 + 1) * 6 + (6 + 1) * 7) + (7 + 1) * 5 * (1 + 3)


def network(**changes) -> NoisyDuelling:
    return NoisyDuelling(**SIZES | {"sigma": 0.5, "device": CPU, "seed": 1} | changes)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_of_values_and_advantages_by_hand():
    """Two actions, two numbers each: values 10, 20; advantages 1, 2 and 3, 6, whose means are 2, 4."""
    found = combined(torch.tensor([[10.0, 20.0]]), torch.tensor([[1.0, 2.0, 3.0, 6.0]]), 2)
    assert found.tolist() == [[[9.0, 18.0], [11.0, 22.0]]]


def test_the_mean_over_actions_is_the_value():
    net = network()
    net.sample_noise(torch.Generator().manual_seed(0))
    kept = net.activations(normal(9, 4))
    assert net.combined(kept).shape == (9, 3, 5)
    torch.testing.assert_close(net.combined(kept).mean(dim=1), kept[1][-1])


def test_parameters_are_counted_by_hand():
    """Those of 256 features, two streams of 128, 128 and 51 numbers for each of 25 actions: 539,740 without encoder."""
    assert network().parameters.numel() == MEANS + 2 * STREAMS
    net = NoisyDuelling(5, 25, 51, 256, (128, 128), 0.05, CPU)
    assert net.parameters.numel() - (5 + 1) * 256 == 2 * (2 * (257 * 128 + 129 * 128) + 129 * 51 * 26) == 539_740


# ---- noise -----------------------------------------------------------------------------------------------------------


def layers_of(net: NoisyDuelling, numbers: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Weight and bias of each layer of the streams, of numbers [..., S]."""
    shapes = [shape for stream in net.streams for shape in stream.shapes]
    parts = iter(numbers.split([size for o, i in shapes for size in (o * i, o)], dim=-1))
    return [(next(parts).unflatten(-1, shape), next(parts)) for shape in shapes]


def test_scales_begin_with_the_inputs_of_their_layer():
    net = network(sigma=0.5)
    for (weight, bias), inputs in zip(layers_of(net, net.parameters[MEANS + STREAMS :]), [8, 6, 7] * 2, strict=True):
        assert torch.cat([weight.flatten(), bias]).unique().item() == pytest.approx(0.5 / math.sqrt(inputs))


def test_what_is_in_use_is_mean_and_scale_times_noise():
    net = network()
    net.sample_noise(torch.Generator().manual_seed(3))
    mean, scale = net.parameters[MEANS:].split(STREAMS)
    assert net.noise.ne(0).all()
    assert torch.equal(net.encoder.parameters, net.parameters[:MEANS])
    used = torch.cat([stream.parameters for stream in net.streams])
    torch.testing.assert_close(used, mean + scale * net.noise)
    net.remove_noise()
    assert torch.equal(torch.cat([stream.parameters for stream in net.streams]), mean)


def test_a_layer_s_noise_is_a_product_and_no_layer_has_that_of_another():
    """f(e') of the inputs follows from any row, and the rows are f(e) of the outputs times it."""
    net = network()
    net.sample_noise(torch.Generator().manual_seed(0))
    found = layers_of(net, net.noise)
    for weight, bias in found:
        torch.testing.assert_close(weight, torch.outer(bias, weight[0] / bias[0]))
    assert len({round(float(bias[0]), 6) for _, bias in found}) == len(found)


def test_noise_has_mean_0_and_the_variance_of_its_factors():
    """f(e)^2 = |e|, of mean sqrt(2 / pi), and its square's mean is 1; a weight has two such factors.

    All within five standard errors.
    """
    net, generator, draws = network(), torch.Generator().manual_seed(0), 20_000
    drawn = torch.empty(draws, STREAMS)
    for row in drawn:
        net.sample_noise(generator)
        row.copy_(net.noise)
    layers = layers_of(net, drawn)
    for numbers, variance in (
        ([weight.flatten(1) for weight, _ in layers], 2 / math.pi),
        ([bias for _, bias in layers], math.sqrt(2 / math.pi)),
    ):
        found = torch.cat(numbers, dim=1).double()
        assert found.mean(dim=0).abs().max() < 5 * math.sqrt(variance / draws)
        assert (found.square().mean(dim=0) - variance).abs().max() < 5 * math.sqrt((1 - variance**2) / draws)


def test_every_draw_is_new_and_depends_on_the_generator_alone():
    one, other = network(), network()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    draws = torch.Generator().manual_seed(7)
    one.sample_noise(draws)
    first = one.noise.clone()
    other.sample_noise(torch.Generator().manual_seed(7))
    assert torch.equal(other.noise, first)
    one.sample_noise(draws)
    assert not (one.noise == first).any()
    assert torch.equal(torch.get_rng_state(), before)


# ---- gradient --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.0, 0.5])
def test_the_gradient_is_that_of_automatic_differentiation(sigma):
    """The first rows alone are in the loss; the others may hold anything."""
    net, x, slope = network(sigma=sigma), normal(9, 4), normal(6, 3, 5, seed=1)
    net.sample_noise(torch.Generator().manual_seed(2))
    x[6:] = float("nan")
    net.backward(net.activations(x), slope)
    parameters = net.parameters.clone().requires_grad_()
    mean, scale = parameters[MEANS:].split(STREAMS)
    streams = iter(layers_of(net, mean + scale * net.noise))
    weight, bias = parameters[: 4 * 8].view(8, 4), parameters[4 * 8 : MEANS]
    features = torch.nn.functional.linear(x[:6], weight, bias).relu()
    outputs = []
    for _ in range(2):
        h = features
        for number in range(3):
            h = torch.nn.functional.linear(h, *next(streams))
            h = h.relu() if number < 2 else h
        outputs.append(h.unflatten(1, (-1, 5)))
    value, advantage = outputs
    logits = value + advantage - advantage.mean(dim=1, keepdim=True)
    torch.testing.assert_close(net(x)[:6], logits.detach())
    (logits * slope).sum().backward()
    torch.testing.assert_close(net.gradient, parameters.grad, rtol=1e-4, atol=1e-5)


def test_a_gradient_goes_through_each_layer_once(monkeypatch):
    passed, backward = [], MLP.backward
    monkeypatch.setattr(
        MLP, "backward", lambda part, *given, **asked: passed.append(part) or backward(part, *given, **asked)
    )
    monkeypatch.setattr(MLP, "slope_of_inputs", None)
    net = network()
    net.backward(net.activations(normal(9, 4)), normal(6, 3, 5, seed=1))
    assert passed == [*net.streams, net.encoder]


def test_the_first_means_are_those_of_three_networks_with_seeds_of_their_own():
    net = network()
    first = [part.parameters[:20] for part in net.parts]
    assert len({tuple(part.tolist()) for part in first}) == 3
    assert torch.equal(network().parameters, net.parameters)
    assert not torch.equal(network(seed=2).parameters, net.parameters)


def test_the_module_gives_the_means_of_the_distributions():
    net, support, x = network(), torch.linspace(-2.0, 2.0, 5), normal(9, 4)
    net.remove_noise()
    expected = (net(x).softmax(dim=2) * support).sum(dim=2)
    torch.testing.assert_close(net.sequential(support)(x), expected)
