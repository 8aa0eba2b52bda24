"""Passes of several critics at once, beside those of each by itself."""

import math

import pytest
import torch

from lockstep.agents.parts import mlp
from lockstep.agents.parts.critics import Critics
from lockstep.agents.parts.encoder import network_of
from lockstep.agents.parts.mlp import MLP
from tests.agents.parts.test_encoder import INPUTS, encoder
from tests.agents.parts.test_mlp import DEVICES, normal

CPU = torch.device("cpu")
ACTIONS, HIDDEN = 2, (28, 37, 20)
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def networks_of(count: int, encoded: bool, device: str):
    first = encoder(device=torch.device(device)) if encoded else None
    made = [network_of(first, INPUTS, HIDDEN, 1, torch.device(device), seed, ACTIONS) for seed in range(count)]
    return {f"critic_{number}": network for number, network in enumerate(made)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 37, 64])
@pytest.mark.parametrize("limit", [0, mlp.SMALL])  # in torch, and in C++
def test_values_and_gradients_are_those_of_each_critic(limit, rows, count, encoded, device, monkeypatch):
    monkeypatch.setattr(mlp, "SMALL", limit)
    networks, alone = networks_of(count, encoded, device), networks_of(count, encoded, device)
    critics = Critics(networks, list(networks))
    x = normal(rows, INPUTS + ACTIONS, device=device, dtype=torch.float32)
    slope = normal(count, rows, 1, seed=3, device=device, dtype=torch.float32)
    values, kept = critics.activations(x)
    kept_alone = [network.activations(x) for network in alone.values()]
    torch.testing.assert_close(values, torch.stack([own[-1] for own in kept_alone]), **CLOSE)
    assert torch.equal(critics(x), values)
    for network in networks.values():
        network.gradient.fill_(math.nan)
    critics.backward(kept, slope)
    by_actions = torch.zeros(rows, ACTIONS, device=device)
    for network, other, own, part in zip(networks.values(), alone.values(), kept_alone, slope, strict=True):
        other.backward(own, part)
        torch.testing.assert_close(network.gradient, other.gradient, **CLOSE)
        by_actions += other.slope_of_last(own, part, ACTIONS)
    torch.testing.assert_close(critics.slope_of_last(kept, slope, ACTIONS), by_actions, **CLOSE)


def test_the_critics_are_those_that_are_named_in_that_order():
    networks = networks_of(3, False, "cpu")
    x = normal(5, INPUTS + ACTIONS, dtype=torch.float32)
    found = Critics(networks, ["critic_2", "critic_0"])(x)
    torch.testing.assert_close(found, torch.stack([networks["critic_2"](x), networks["critic_0"](x)]), **CLOSE)


@pytest.mark.parametrize("limit", [0, mlp.SMALL])
def test_the_first_rows_alone_may_make_the_loss(limit, monkeypatch):
    monkeypatch.setattr(mlp, "SMALL", limit)
    networks = networks_of(2, False, "cpu")
    critics, x = Critics(networks, list(networks)), normal(9, INPUTS + ACTIONS, dtype=torch.float32)
    slope = normal(2, 4, 1, seed=3, dtype=torch.float32)
    critics.backward(critics.activations(x[:4])[1], slope)
    expected = [network.gradient.clone() for network in networks.values()]
    critics.backward(critics.activations(x)[1], slope)
    for network, gradient in zip(networks.values(), expected, strict=True):
        torch.testing.assert_close(network.gradient, gradient, **CLOSE)


def test_critics_of_other_widths_pass_each_by_itself():
    networks = {"one": MLP([3, 5, 1], CPU), "other": MLP([3, 8, 8, 1], CPU)}
    x = normal(6, 3, dtype=torch.float32)
    values = Critics(networks, list(networks))(x)
    torch.testing.assert_close(values, torch.stack([network(x) for network in networks.values()]), **CLOSE)


def test_slopes_of_another_number_of_critics_are_refused():
    networks = networks_of(2, False, "cpu")
    critics = Critics(networks, list(networks))
    _, kept = critics.activations(normal(5, INPUTS + ACTIONS, dtype=torch.float32))
    with pytest.raises(ValueError, match="slope"):
        critics.backward(kept, torch.zeros(1, 5, 1))
