"""Quantiles and their loss by hand; networks beside automatic differentiation and beside known distributions."""

import math

import pytest
import torch
from torch.nn.functional import huber_loss, linear

from lockstep.agents.parts import mlp, quantiles
from lockstep.agents.parts.adam import Adam
from lockstep.agents.parts.encoder import Encoder
from lockstep.agents.parts.quantiles import COSINES, DRAWN, MEANT, Batches, QuantileNetwork
from lockstep.agents.run.observation import Part

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CPU = torch.device("cpu")
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def normal(*shape: int, seed: int = 2, device: str = "cpu") -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device)


def uniform(*shape: int, seed: int = 3, device: str = "cpu") -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)).to(device)


@pytest.fixture(params=["C++", "torch"])
def way(request, monkeypatch):
    """Both ways on the CPU."""
    if request.param == "torch":
        monkeypatch.setattr(quantiles, "_in_cpp", lambda part: False)


# ---- the loss --------------------------------------------------------------------------------------------------------


def test_the_loss_and_its_derivatives_by_hand(way):
    """Of 0 at tau = 1/4 the errors are 1/2 and 3, both weighed by 1/4; of 1 at 3/4 they are -1/2, weighed by 1/4, and
    2, weighed by 3/4. h(1/2) = 1/8, h(3) = 5/2, h(2) = 3/2."""
    predicted, tau = torch.tensor([[0.0, 1.0]]), torch.tensor([[0.25, 0.75]])
    loss, slope = quantiles.huber(predicted, tau, torch.tensor([[0.5, 3.0]]))
    first, second = 0.25 * (0.125 + 2.5) / 2, (0.25 * 0.125 + 0.75 * 1.5) / 2
    assert loss.tolist() == pytest.approx([first + second])
    # minus the mean of weights times errors within [-1, 1]
    assert slope[0].tolist() == pytest.approx([-0.25 * (0.5 + 1) / 2, -(0.25 * -0.5 + 0.75 * 1) / 2])


def test_the_loss_is_a_weighed_huber_loss_of_torch_with_its_gradient(way):
    predicted = (2 * normal(50, 8).double()).requires_grad_()
    tau, target = uniform(50, 8).double(), 2 * normal(50, 5, seed=4).double()
    pairs = torch.broadcast_tensors(predicted.unsqueeze(2), target.unsqueeze(1))
    weight = torch.where(pairs[1] < pairs[0], 1 - tau.unsqueeze(2), tau.unsqueeze(2))
    expected = (weight * huber_loss(*pairs, reduction="none")).mean(dim=2).sum(dim=1)
    expected.sum().backward()
    loss, slope = quantiles.huber(predicted.detach(), tau, target)
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(slope, predicted.grad)


@pytest.mark.parametrize("tau", [0.1, 0.2, 0.5, 0.8])
def test_of_two_points_it_is_least_at_their_quantile(tau, way):
    """Returns of 0, a quarter of all, and of 100. Below tau = 1/4 the least is where 1/4 (1 - tau) q = 3/4 tau, above
    where 1/4 (1 - tau) = 3/4 tau (100 - q): within kappa = 1 of the quantiles 0 and 100."""
    low = 3 * tau / (1 - tau)
    least = low if tau < 0.25 else 100 - 1 / low
    assert abs(least - (0 if tau < 0.25 else 100)) < 1
    around = torch.tensor([[least - 0.1], [least], [least + 0.1]], dtype=torch.float64)
    target = torch.tensor([[0.0, 100.0, 100.0, 100.0]], dtype=torch.float64).expand(3, -1)
    loss, slope = quantiles.huber(around, torch.full_like(around, tau), target)
    assert slope[0] < -1e-3 and abs(slope[1]) < 1e-9 and slope[2] > 1e-3
    assert loss[1] < loss[0] and loss[1] < loss[2]


# ---- fractions -------------------------------------------------------------------------------------------------------


def test_cosines_by_hand(way):
    """cos(0), cos(pi tau), cos(2 pi tau), ...: at 1/2 they are 1, 0, -1, 0 over and over, and at 1 they alternate."""
    found = quantiles.cosines(torch.tensor([[0.0, 0.5, 1.0]]))
    assert found.shape == (1, 3, COSINES)
    expected = torch.tensor([[1.0, 1, 1, 1], [1, 0, -1, 0], [1, -1, 1, -1]]).repeat(1, COSINES // 4)
    torch.testing.assert_close(found[0], expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_fractions_are_the_midpoints_of_equal_parts(share):
    found = quantiles.fractions(share, CPU)
    assert found.tolist() == pytest.approx([share * (2 * i + 1) / (2 * MEANT) for i in range(MEANT)])
    # of U(0, 1), whose quantiles are tau, the worst returns have the mean share / 2
    assert found.mean().item() == pytest.approx(share / 2)


def test_fractions_that_are_drawn_are_uniform():
    found = quantiles.drawn(10_000, torch.Generator().manual_seed(0))
    assert found.shape == (10_000, DRAWN) and found.min() >= 0 and found.max() < 1
    assert found.mean().item() == pytest.approx(0.5, abs=0.01)
    assert found.square().mean().item() == pytest.approx(1 / 3, abs=0.01)
    assert abs(torch.corrcoef(found.T) - torch.eye(DRAWN)).max() < 0.05


# ---- distributions that are known ------------------------------------------------------------------------------------


def make_known(network: QuantileNetwork) -> None:
    """Gives a network of 2 features, 2 units and 2 actions the quantiles 0.8, and 1 - cos(pi tau), whose mean is 1."""
    network.parameters.zero_()
    (_, of_obs), (weight, of_tau), (first, _), (last, _) = network.layers
    of_obs.fill_(1.0)
    of_tau.fill_(1.0)
    weight[0, 1] = -1.0
    first.copy_(torch.eye(2))
    last.copy_(torch.tensor([[0.0, 0.8], [1.0, 0.0]]))


def made_known() -> QuantileNetwork:
    network = QuantileNetwork(3, 2, 2, (2,), CPU)
    make_known(network)
    return network


def test_quantiles_of_a_known_distribution():
    tau = uniform(5, DRAWN)
    found = made_known().activations(normal(5, 3), tau).quantiles
    expected = torch.stack([torch.full_like(tau, 0.8), 1 - (math.pi * tau).cos()], dim=2)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("share", [1.0, 0.75, 0.5, 0.25])
def test_the_mean_of_the_worst_returns_is_the_conditional_value_at_risk(share):
    """1 / share times the integral of 1 - cos(pi tau) from 0 to share: 1 - sin(pi share) / (pi share)."""
    found = made_known()(normal(5, 3), quantiles.fractions(share, CPU))
    expected = 1 - math.sin(math.pi * share) / (math.pi * share)
    torch.testing.assert_close(found, torch.tensor([0.8, expected]).expand(5, 2), rtol=0, atol=2e-4)
    if share == 1:
        torch.testing.assert_close(made_known()(normal(5, 3)), found)


# ---- networks --------------------------------------------------------------------------------------------------------


def reference(leaves: list[torch.Tensor], x: torch.Tensor, tau: torch.Tensor, actions: int) -> torch.Tensor:
    """Quantiles [k, q, o], row by row of the definition; leaves are weights and biases in their order."""
    pairs = list(zip(leaves[::2], leaves[1::2], strict=True))
    obs, action = x[:, : x.shape[1] - actions], x[:, x.shape[1] - actions :]
    i = torch.arange(COSINES, device=x.device)
    y = linear(obs, *pairs[0]).relu().unsqueeze(1) * linear((math.pi * i * tau.unsqueeze(-1)).cos(), *pairs[1]).relu()
    trunk = pairs[3 if actions else 2 :]
    for number, pair in enumerate(trunk):
        y = linear(y, *pair)
        y = y.relu() if number < len(trunk) - 1 else y
        if number == 0 and actions:
            y = y * linear(action, *pairs[2]).relu().unsqueeze(1)
    return y


def leaves_of(network: QuantileNetwork) -> list[torch.Tensor]:
    return [part.clone().requires_grad_() for layer in network.layers for part in layer]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("actions", [0, 2])
@pytest.mark.parametrize(("rows", "hidden", "outputs"), [(1, (5,), 1), (37, (24, 16), 3), (16, (8, 8, 8), 1)])
def test_gradients_written_out_are_those_of_automatic_differentiation(
    rows, hidden, outputs, actions, device, monkeypatch
):
    network = QuantileNetwork(3, outputs, 20, hidden, torch.device(device), seed=1, actions=actions)
    x, tau = normal(rows, 3 + actions, device=device).requires_grad_(), uniform(rows, DRAWN, device=device)
    slope = normal(rows, DRAWN, outputs, seed=5, device=device)
    leaves = leaves_of(network)
    expected = reference(leaves, x, tau, actions)
    expected.backward(slope)
    for limit in (mlp.SMALL, 0):  # in C++ where that is quicker, and in torch
        monkeypatch.setattr(mlp, "SMALL", limit)
        if not limit:
            monkeypatch.setattr(quantiles, "_in_cpp", lambda part: False)
        network.gradient.fill_(math.nan)
        kept = network.activations(x.detach(), tau)
        torch.testing.assert_close(kept.quantiles, expected.detach(), **CLOSE)
        network.backward(kept, slope)
        torch.testing.assert_close(network.gradient, torch.cat([leaf.grad.flatten() for leaf in leaves]), **CLOSE)
    if actions:
        torch.testing.assert_close(network.slope_of_actions(kept, slope), x.grad[:, 3:], **CLOSE)


@pytest.mark.parametrize("rectified", [True, False])
@pytest.mark.parametrize(("rows", "hidden", "outputs"), [(1, (5,), 1), (37, (24, 16), 3), (16, (8, 8, 8), 2)])
def test_whole_steps_in_cpp_are_those_of_each_layer(rows, hidden, outputs, rectified):
    """Three steps, each on rows of its own, from moments that are not 0."""
    one, other = (QuantileNetwork(3, outputs, 20, hidden, CPU, seed=1, rectified=rectified) for _ in range(2))
    adams = [Adam(network.parameters, network.gradient, 0.5) for network in (one, other)]
    for adam in adams:
        adam.state["first"].fill_(1e-3), adam.state["second"].fill_(1e-4), adam.state["steps"].fill_(3)
    obs, tau, target = normal(3 * rows, 3), uniform(3 * rows, DRAWN), normal(3 * rows, 5, seed=4)
    action = torch.randint(outputs, (3 * rows,), generator=torch.Generator().manual_seed(5))
    assert one.compiled(rows)
    batches, expected = Batches(one, rows), []
    torch.testing.assert_close(batches.quantiles(obs, tau), other.activations(obs, tau).quantiles, **CLOSE)
    for number in range(3):
        own = slice(number * rows, (number + 1) * rows)
        kept = other.activations(obs[own], tau[own])
        taken = action[own].view(-1, 1, 1).expand(-1, DRAWN, -1)
        predicted = kept.quantiles.gather(2, taken).squeeze(2)
        loss, slope = quantiles.huber(predicted, tau[own], target[own])
        other.backward(kept, torch.zeros_like(kept.quantiles).scatter(2, taken, slope.unsqueeze(2) / rows))
        expected.append(torch.stack([loss.mean(), predicted.mean(), adams[1].step(1e-2)]))
    told = batches.descend(adams[0], 1e-2, obs, action, tau, target)
    torch.testing.assert_close(told, torch.stack(expected, dim=1), **CLOSE)
    torch.testing.assert_close(one.gradient, other.gradient, **CLOSE)
    torch.testing.assert_close(one.parameters, other.parameters, **CLOSE)
    for name, part in adams[0].state.items():
        torch.testing.assert_close(part, adams[1].state[name], **CLOSE)


def test_whole_steps_are_of_small_plain_networks_in_fp32():
    network = QuantileNetwork(3, 2, 20, (8,), CPU)
    assert network.compiled(64) and not network.compiled(10**6)
    assert not QuantileNetwork(3, 2, 20, (8,), CPU, actions=1).compiled(64)
    encoder = Encoder([Part((1.0,) * 3)], 21, False, False, CPU)
    assert not QuantileNetwork(3, 2, 21, (8,), CPU, encoder=encoder).compiled(64)
    network.multiply("bf16")
    assert not network.compiled(64)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"obs": normal(9, 3)}, r"obs must be \[8, 3\]"),
        ({"obs": normal(8, 4)}, r"obs must be \[8, 3\]"),
        ({"tau": uniform(4, DRAWN)}, r"tau must be \[8, 8\]"),
        ({"action": torch.zeros(8)}, "action must be .* of torch.int64"),
        ({"target": normal(8, 5).double()}, "target must be .* of torch.float32"),
    ],
)
def test_batches_that_do_not_fit_are_refused(changed, message):
    network = QuantileNetwork(3, 2, 20, (8,), CPU)
    given = {"obs": normal(8, 3), "action": torch.zeros(8, dtype=torch.int64), "tau": uniform(8, DRAWN)}
    given |= {"target": normal(8, 5)} | changed
    with pytest.raises(ValueError, match=message):
        Batches(network, 4).descend(Adam(network.parameters, network.gradient, 1.0), 1e-3, **given)


def test_a_gradient_goes_through_each_layer_once(monkeypatch):
    passed, backward = [], mlp.MLP.backward
    monkeypatch.setattr(
        mlp.MLP, "backward", lambda part, *given, **asked: passed.append(part) or backward(part, *given, **asked)
    )
    monkeypatch.setattr(mlp.MLP, "slope_of_inputs", None)
    network = QuantileNetwork(3, 2, 20, (24, 16), CPU, actions=2)
    network.backward(network.activations(normal(9, 5), uniform(9, DRAWN)), normal(9, DRAWN, 2))
    # of observations, fractions, actions, up to these, and all after them
    assert len(passed) == len(set(map(id, passed))) == 5


def test_fractions_of_all_rows_are_those_of_each():
    network, x, tau = QuantileNetwork(3, 2, 20, (8,), CPU, seed=1), normal(9, 3), uniform(7)
    each = network.activations(x, tau.expand(9, -1)).quantiles
    torch.testing.assert_close(network.activations(x, tau.unsqueeze(0)).quantiles, each, **CLOSE)
    torch.testing.assert_close(network(x, tau), each.mean(dim=1), **CLOSE)
    row_by_row = torch.cat([network(row.unsqueeze(0), tau) for row in x])
    torch.testing.assert_close(row_by_row, network(x, tau), **CLOSE)


@pytest.mark.parametrize("actions", [0, 2])
def test_a_copy_has_the_same_numbers_in_a_place_of_its_own(actions):
    network = QuantileNetwork(3, 2, 20, (8, 8), CPU, seed=1, actions=actions)
    copy, x = network.copy(), normal(9, 3 + actions)
    assert torch.equal(copy(x), network(x))
    network.parameters.add_(0.1)
    assert not torch.equal(copy(x), network(x))


def test_first_numbers_depend_on_the_seed_and_differ_by_layer():
    one, same, other = (QuantileNetwork(64, 2, 8, (8,), CPU, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.parameters, same.parameters) and not torch.equal(one.parameters, other.parameters)
    (of_obs, _), (of_tau, _) = one.layers[:2]  # both [8, 64]
    assert not torch.equal(of_obs, of_tau)
    assert of_obs.abs().max() <= 1 / 8 and of_obs.std().item() == pytest.approx(1 / 8 / math.sqrt(3), rel=0.1)


@pytest.mark.parametrize(
    ("outputs", "actions", "count"),
    [
        # 69,961 with the published encoder's 688 numbers instead of one of n inputs: 16,640 of cosines, 32,896 + 16,512
        # + 3,225 of the three layers
        (25, 0, 69_961 - 688),
        # 67,249 likewise: 16,640, 384 of two actions, 32,896 + 16,512 + 129
        (1, 2, 67_249 - 688),
    ],
)
def test_networks_have_as_many_numbers_as_the_published_ones(outputs, actions, count):
    network = QuantileNetwork(37, outputs, 256, (128, 128), CPU, actions=actions)
    assert network.parameters.numel() == (37 + 1) * 256 + count
