"""Networks that begin with a layer for each part of an observation: by hand, and beside automatic differentiation."""

import math

import pytest
import torch
from torch.nn.functional import linear

from lockstep.agents.parts import mlp
from lockstep.agents.parts.duelling import NoisyDuelling
from lockstep.agents.parts.encoder import Encoded, Encoder, Factored, network_of
from lockstep.agents.parts.mlp import MLP
from lockstep.agents.parts.quantiles import DRAWN, QuantileNetwork
from lockstep.agents.run.observation import Part
from tests.agents.parts.test_mlp import CLOSE, DEVICES, flat, forward, leaves_of, normal
from tests.agents.parts.test_quantiles import uniform

CPU = torch.device("cpu")
# Three numbers of the agent's own, three flagged slots, another number, and two slots that are empty where all is 0.
PARTS = (Part((2.0, 4.0, 0.5)), Part((2.0, 1.0), slots=3, flagged=True), Part((4.0,)), Part((2.0, 4.0), slots=2))
NUMBERS, INPUTS, WIDTH = 14, 17, 28  # two features for each number; flags besides
FORMS = [pytest.param(*form) for form in ((True, False), (True, True), (False, False))]  # alike, raw


def encoder(alike: bool = True, raw: bool = False, width: int = WIDTH, **given) -> Encoder:
    return Encoder(PARTS, width, alike, raw, **{"device": CPU, "seed": 1} | given)


def observations(rows: int, **kind) -> torch.Tensor:
    """Some slots hold nothing: flagged ones anything, others zeros."""
    x = normal(rows, INPUTS, **kind)
    held = normal(rows, 5, seed=9, **kind) > 0
    x[:, NUMBERS:] = held[:, :3].to(x.dtype)
    x[:, 10:14] *= held[:, 3:].repeat_interleave(2, dim=1)
    return x


def features(leaves: list[torch.Tensor], x: torch.Tensor, alike: bool, raw: bool) -> torch.Tensor:
    """An encoder's features, slot by slot of the definition."""
    at, flag, found = 0, NUMBERS, []
    for part, weight, bias in zip(PARTS, leaves[::2], leaves[1::2], strict=True):
        scale = torch.tensor(part.scale, dtype=x.dtype, device=x.device)
        slots = x[:, at : at + part.numbers].split(len(part.scale), dim=1)
        scaled = [numbers / (1 if raw else scale) for numbers in slots]
        if alike and part.slots:
            flags = x[:, flag : flag + 3] > 0.5
            held = flags.split(1, dim=1) if part.flagged else [(s != 0).any(1, True) for s in slots]
            found += [linear(one, weight, bias) * there for one, there in zip(scaled, held, strict=True)]
        else:
            found.append(linear(torch.cat(scaled, dim=1), weight, bias))
        at, flag = at + part.numbers, flag + part.flags
    return torch.cat(found, dim=1)


def test_features_by_hand():
    """Own numbers 6 / 2 and 8 / 4 with weights 1 and 10, bias 100. Objects 2 / 2 and 4 / 2 with weight 1, bias 1, and
    one between them that is not there. Of the others one is 0, and so not there, and 12 / 4 has weight 2, bias -1."""
    parts = Part((2.0, 4.0)), Part((2.0,), slots=3, flagged=True), Part((4.0,), slots=2)
    net = Encoder(parts, 7, True, False, CPU)
    net.parameters.zero_()
    (own, of_own), (objects, of_objects), (others, of_others) = net.layers
    own.copy_(torch.tensor([[1.0, 10.0], [0.0, 0.0]]))
    of_own.fill_(100.0)
    objects.fill_(1.0), of_objects.fill_(1.0), others.fill_(2.0), of_others.fill_(-1.0)
    found = net(torch.tensor([[6.0, 8.0, 2.0, 12.0, 4.0, 0.0, 12.0, 1.0, 0.0, 1.0]]))
    assert found.tolist() == [[123.0, 100.0, 2.0, 0.0, 3.0, 0.0, 5.0]]
    raw = Encoder(parts, 7, True, True, CPU)
    raw.parameters.copy_(net.parameters)
    found = raw(torch.tensor([[6.0, 8.0, 2.0, 12.0, 4.0, 0.0, 12.0, 1.0, 0.0, 1.0]]))
    assert found.tolist() == [[186.0, 100.0, 3.0, 0.0, 5.0, 0.0, 23.0]]


def test_what_a_flagged_slot_holds_counts_for_nothing_where_its_flag_is_0():
    net, x = encoder(), observations(50, dtype=torch.float32)
    other = x.clone()
    other[:, 3:9] += (1 - x[:, NUMBERS:]).repeat_interleave(2, dim=1) * 7
    assert not torch.equal(other, x) and torch.equal(net(other), net(x))


def test_a_part_with_one_layer_has_no_empty_slots():
    net, x = encoder(alike=False), observations(50, dtype=torch.float32)
    other = x.clone()
    other[:, NUMBERS:] = 1 - x[:, NUMBERS:]
    assert torch.equal(net(other), net(x))
    assert [tuple(weight.shape) for weight, _ in net.layers] == [(6, 3), (12, 6), (2, 1), (8, 4)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("rows", [1, 37])
@pytest.mark.parametrize(("alike", "raw"), FORMS)
def test_an_encoder_s_derivatives_are_those_of_automatic_differentiation(alike, raw, rows, dtype, device, monkeypatch):
    net, kind = encoder(alike, raw, device=torch.device(device), dtype=dtype), {"device": device, "dtype": dtype}
    x, slope = observations(rows + 5, **kind), normal(rows, WIDTH, seed=3, **kind)
    leaves = leaves_of(net)
    expected = features(leaves, x, alike, raw)
    expected[:rows].backward(slope)
    kept = net.activations(x)
    torch.testing.assert_close(kept[-1], expected.detach(), **CLOSE[dtype])
    for limit in (mlp.SMALL, 0):  # in C++ where that is quicker, and in torch
        monkeypatch.setattr(mlp, "SMALL", limit)
        net.gradient.fill_(math.nan)
        net.backward(kept, slope)
        torch.testing.assert_close(net.gradient, flat([leaf.grad for leaf in leaves]), **CLOSE[dtype])


def factored(leaves: list[torch.Tensor], x: torch.Tensor, width: int) -> torch.Tensor:
    """Values by a `Factored`, of features of this width and actions behind them."""
    of_features, of_action, rest = leaves[:2], leaves[2:4], leaves[4:]
    product = linear(x[:, :width], *of_features).relu() * linear(x[:, width:], *of_action).relu()
    return forward(rest, product)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("hidden", [(12,), (12, 8)])
@pytest.mark.parametrize("actions", [0, 2])
def test_encoded_networks_have_the_derivatives_of_automatic_differentiation(actions, hidden, dtype, monkeypatch):
    kind = {"dtype": dtype}
    trunk = Factored(WIDTH, actions, hidden, 3, CPU, **kind) if actions else MLP([WIDTH, *hidden, 3], CPU, **kind)
    net = Encoded(encoder(**kind), trunk)
    assert torch.equal(net.parameters, torch.cat([encoder(**kind).parameters, trunk.parameters]))
    x = torch.cat([observations(25, **kind), normal(25, actions, seed=4, **kind)], dim=1).requires_grad_()
    slope, leaves = normal(20, 3, seed=3, **kind), leaves_of(net)
    h = torch.cat([features(leaves[:8], x[:, :INPUTS], True, False).relu(), x[:, INPUTS:]], dim=1)
    expected = factored(leaves[8:], h, WIDTH) if actions else forward(leaves[8:], h)
    expected[:20].backward(slope)
    kept = net.activations(x.detach())
    torch.testing.assert_close(kept[-1], expected.detach(), **CLOSE[dtype])
    for limit in (mlp.SMALL, 0):
        monkeypatch.setattr(mlp, "SMALL", limit)
        net.gradient.fill_(math.nan)
        net.backward(kept, slope)
        torch.testing.assert_close(net.gradient, flat([leaf.grad for leaf in leaves]), **CLOSE[dtype])
    if actions:
        by_actions = net.slope_of_last(net.activations(x.detach()[:20]), slope, actions)
        torch.testing.assert_close(by_actions, x.grad[:20, INPUTS:], **CLOSE[dtype])


@pytest.mark.parametrize("rectified", [True, False])
@pytest.mark.parametrize("actions", [0, 2])
def test_encoded_quantiles_have_the_gradient_of_automatic_differentiation(actions, rectified):
    given = {"actions": actions, "encoder": encoder(), "rectified": rectified}
    net = QuantileNetwork(INPUTS, 3, WIDTH, (12, 8), CPU, seed=2, **given)
    kind = {"dtype": torch.float32}
    x, tau = torch.cat([observations(20, **kind), normal(20, actions, seed=4, **kind)], dim=1), uniform(20, DRAWN)
    x.requires_grad_()
    slope, leaves = normal(20, DRAWN, 3, seed=3, **kind), leaves_of(net)
    h, of_tau = features(leaves[:8], x[:, :INPUTS], True, False), leaves[8:10]
    h = h.relu() if rectified else h
    i = torch.arange(64)
    y = h.unsqueeze(1) * linear((math.pi * i * tau.unsqueeze(-1)).cos(), *of_tau).relu()
    trunk = leaves[12:] if actions else leaves[10:]
    y = linear(y, *trunk[:2]).relu()
    if actions:
        y = y * linear(x[:, INPUTS:], *leaves[10:12]).relu().unsqueeze(1)
    expected = forward(trunk[2:], y)
    expected.backward(slope)
    kept = net.activations(x.detach(), tau)
    torch.testing.assert_close(kept.quantiles, expected.detach(), rtol=1e-4, atol=1e-5)
    assert bool((kept.of_obs < 0).any()) is not rectified
    net.gradient.fill_(math.nan)
    net.backward(kept, slope)
    torch.testing.assert_close(net.gradient, flat([leaf.grad for leaf in leaves]), rtol=1e-4, atol=1e-5)
    if actions:
        torch.testing.assert_close(net.slope_of_actions(kept, slope), x.grad[:, INPUTS:], rtol=1e-4, atol=1e-5)


def test_encoded_streams_have_the_gradient_of_automatic_differentiation():
    net = NoisyDuelling(INPUTS, 3, 5, encoder(), (6,), 0.5, CPU, seed=1)
    net.sample_noise(torch.Generator().manual_seed(2))
    x, slope = observations(9, dtype=torch.float32), normal(6, 3, 5, seed=1, dtype=torch.float32)
    net.backward(net.activations(x), slope)
    count = encoder().parameters.numel()
    parameters = net.parameters.clone().requires_grad_()
    leaves = parameters[:count].split([part.numel() for layer in net.encoder.layers for part in layer])
    shapes = [part.shape for layer in net.encoder.layers for part in layer]
    h = features([leaf.view(shape) for leaf, shape in zip(leaves, shapes, strict=True)], x[:6], True, False).relu()
    mean, scale = parameters[count:].split(len(net.noise))
    used, outputs = iter((mean + scale * net.noise).split([s for o, i in net._shapes for s in (o * i, o)])), []
    for (first, inputs), (last, _) in (net._shapes[:2], net._shapes[2:]):
        hidden = linear(h, next(used).view(first, inputs), next(used)).relu()
        outputs.append(linear(hidden, next(used).view(last, first), next(used)).unflatten(1, (-1, 5)))
    logits = outputs[0] + outputs[1] - outputs[1].mean(dim=1, keepdim=True)
    torch.testing.assert_close(net(x)[:6], logits.detach())
    (logits * slope).sum().backward()
    torch.testing.assert_close(net.gradient, parameters.grad, rtol=1e-4, atol=1e-5)


MADE = {
    "values": lambda: network_of(encoder(), INPUTS, (WIDTH, 8), 3, CPU, 1),
    "values of actions": lambda: network_of(encoder(), INPUTS, (WIDTH, 8, 8), 1, CPU, 1, actions=2),
    "quantiles": lambda: QuantileNetwork(INPUTS, 3, WIDTH, (8,), CPU, 1, encoder=encoder()),
    "streams": lambda: NoisyDuelling(INPUTS, 3, 5, encoder(), (6,), 0.5, CPU, 1),
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_a_copy_has_the_same_numbers_in_a_place_of_its_own(made):
    net = made()
    x = torch.cat([observations(9, dtype=torch.float32), normal(9, 2, dtype=torch.float32)], dim=1)
    x = x if isinstance(net, Encoded) and isinstance(net.trunk, Factored) else x[:, :INPUTS]
    net.parameters.add_(0.25)
    if isinstance(net, NoisyDuelling):
        net.remove_noise()
    copy, before = net.copy(), net(x)
    if isinstance(net, NoisyDuelling):
        copy.remove_noise()
    assert torch.equal(copy.parameters, net.parameters) and torch.equal(copy(x), before)
    copy.parameters.mul_(2)
    assert torch.equal(net(x), before)


def test_without_an_encoder_a_network_is_one_of_all_inputs():
    net = network_of(None, INPUTS, (8, 6), 3, CPU, 5, actions=2)
    assert isinstance(net, MLP) and net.widths == [INPUTS + 2, 8, 6, 3]
    assert torch.equal(net.parameters, MLP([INPUTS + 2, 8, 6, 3], CPU, 5).parameters)


def test_layers_begin_apart():
    net = network_of(encoder(), INPUTS, (WIDTH, 8, 8), 1, CPU, 1, actions=2)
    first = [(weight.flatten()[0] * math.sqrt(weight.shape[1])).item() for weight, _ in net.layers]
    assert len({round(one, 5) for one in first}) == len(first) == 8


@pytest.mark.parametrize("alike", [True, False])
def test_the_module_gives_what_the_network_gives(alike):
    net, x = network_of(encoder(alike), INPUTS, (WIDTH, 8), 3, CPU, 1), observations(9, dtype=torch.float32)
    torch.testing.assert_close(net.sequential()(x), net(x))


def test_widths_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="a first layer of 30 must be a multiple of 14, as many for each number"):
        encoder(width=30)
    with pytest.raises(ValueError, match="needs two widths at least, not one"):
        network_of(encoder(), INPUTS, (WIDTH,), 1, CPU, 1, actions=2)
