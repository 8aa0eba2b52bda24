"""Stacked networks: first numbers, layout in memory, and what they compute, against modules of torch."""

import itertools

import pytest
import torch
from torch import nn

from lockstep import envs
from lockstep.agents.parts.actor_critic import ActorCritic
from tests.agents.worlds import normal

SHAPES = [  # inputs, outputs, free, hidden
    (4, 2, 0, (64, 64)),
    (3, 1, 1, (32, 32)),
    (5, 6, 6, (7, 9, 11)),
    (2, 3, 0, (16,)),
]


def make(inputs=4, outputs=2, free=0, hidden=(16, 16), **options) -> ActorCritic:
    """Networks whose biases are not 0."""
    networks = ActorCritic(inputs, outputs, free, hidden, **options)
    for name, part in networks.parts(networks.parameters).items():
        if name.endswith("bias"):
            part.copy_(0.1 * normal(*part.shape))
    return networks


def module(networks: ActorCritic, network: str, learner: int = 0) -> nn.Sequential:
    """A network made anew of torch's layers, in float64, with copies of the numbers."""
    parts, layers = networks.parts(networks.parameters), []
    for number in range(len(networks.hidden) + 1):
        weight, bias = (parts[f"{network}.{number}.{kind}"][learner] for kind in ("weight", "bias"))
        layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
        layer.load_state_dict({"weight": weight, "bias": bias})
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1]).requires_grad_(False)


@pytest.mark.parametrize(("inputs", "outputs", "free", "hidden"), SHAPES)
def test_first_weights_are_orthogonal_with_the_gains_of_their_layers(inputs, outputs, free, hidden):
    networks = ActorCritic(inputs, outputs, free, hidden, log_std=-0.5)
    last = {f"actor.{len(hidden)}.weight": 0.01, f"critic.{len(hidden)}.weight": 1.0}
    for name, part in networks.parts(networks.parameters).items():
        if name.endswith("bias"):
            assert not part.any()
        elif name == "free":
            assert (part == -0.5).all()
        else:
            weight = part[0].double()
            weight = weight if weight.shape[0] <= weight.shape[1] else weight.T
            gain = last.get(name, 2**0.5)
            torch.testing.assert_close(weight @ weight.T, gain**2 * torch.eye(len(weight)).double(), rtol=0, atol=1e-5)
    assert set(last) <= set(networks.places)


def test_several_actors_are_networks_of_their_own_whose_outputs_are_put_in_order():
    networks, x = make(outputs=5, free=5, actors=[1, 0, 1, 2, 0], learners=2, seeds=(3, 4)), normal(2, 7, 4)
    assert not networks.in_kernels and make().in_kernels
    out, value = networks(x)
    for learner in range(2):
        seen = x[learner].double()
        apart = [module(networks, f"actor{number}", learner)(seen) for number in range(3)]
        assert [part.shape[1] for part in apart] == [2, 2, 1]
        expected = [apart[1][:, 0], apart[0][:, 0], apart[1][:, 1], apart[2][:, 0], apart[0][:, 1]]
        torch.testing.assert_close(out[learner].double(), torch.stack(expected, dim=1), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(value[learner].double(), module(networks, "critic", learner)(seen)[:, 0])
    one = networks.one(1)
    torch.testing.assert_close(one.actor(x[1:]), out[1:])
    with pytest.raises(ValueError, match="^3 actors are no module$"):
        one.sequential()


def test_first_numbers_belong_to_a_seed_alone():
    stack = ActorCritic(4, 2, 0, learners=3, seeds=(5, 6, 5))
    assert torch.equal(stack.parameters[0], stack.parameters[2])
    assert not torch.equal(stack.parameters[0], stack.parameters[1])
    assert torch.equal(stack.parameters[1:2], ActorCritic(4, 2, 0, seeds=(6,)).parameters)


@pytest.mark.parametrize(("inputs", "outputs", "free", "hidden"), SHAPES)
def test_numbers_lie_one_after_another_and_padding_is_0(inputs, outputs, free, hidden):
    networks = make(inputs, outputs, free, hidden, learners=2, seeds=(0, 1), log_std=1.0)

    def up(count):
        return -(-count // 4) * 4

    def count(widths):
        return sum((a + 1) * b for a, b in itertools.pairwise(widths))

    actor, critic = count([inputs, *hidden, outputs]), count([inputs, *hidden, 1])
    assert networks.size == up(actor) + max(4, up(free)) + up(critic)
    assert networks.places["critic.0.weight"][0] == up(actor) + max(4, up(free))
    ones = {name: torch.ones_like(part) for name, part in networks.parts(networks.parameters).items()}
    assert networks.flat(ones).sum() == 2 * (actor + free + critic)  # everything else is padding
    assert not networks.parameters[networks.flat(ones) == 0].any()
    assert torch.equal(networks.flat(networks.parts(networks.parameters)), networks.parameters)


@pytest.mark.parametrize(("outputs", "free"), [(2, 0), (1, 1)])
@pytest.mark.parametrize("hidden", envs.policies.HIDDEN)
def test_the_kernel_reads_the_numbers_as_they_lie(outputs, free, hidden):
    networks = make(4, outputs, free, (hidden, hidden), learners=2, seeds=(0, 1), log_std=-0.3)
    actor, critic = networks.sequential(1)
    log_std = networks.parts(networks.parameters)["free"][1] if free else None
    numbers = envs.MLP(actor, critic, log_std).numbers()
    assert torch.equal(networks.parameters[1, : len(numbers)], numbers)
    assert not networks.parameters[1, len(numbers) :].any()


def test_modules_share_the_numbers_that_are_trained():
    networks = make()
    actor, critic = networks.sequential()
    networks.parameters.zero_()
    assert not any(part.any() for part in (*actor.parameters(), *critic.parameters()))
    actor[0].weight[2, 1] = 3.0
    assert networks.parameters[0, 2 * 4 + 1] == 3.0
    assert all(leaf.untyped_storage().data_ptr() == networks.parameters.data_ptr() for leaf in networks.leaves.values())


@pytest.mark.parametrize("learners", [1, 3])
@pytest.mark.parametrize(("inputs", "outputs", "free", "hidden"), SHAPES)
def test_outputs_and_values_are_those_of_torch_s_modules(inputs, outputs, free, hidden, learners):
    networks = make(inputs, outputs, free, hidden, learners=learners, seeds=range(learners))
    x = normal(learners, 10, inputs)
    out, value = networks(x)
    assert out.shape == (learners, 10, outputs) and value.shape == (learners, 10)
    assert torch.equal(networks.actor(x), out) and torch.equal(networks.critic(x), value)
    for learner in range(learners):
        rows = x[learner].double()
        expected = module(networks, "actor", learner)(rows), module(networks, "critic", learner)(rows).squeeze(1)
        torch.testing.assert_close(out[learner].double(), expected[0], rtol=0, atol=1e-6)
        torch.testing.assert_close(value[learner].double(), expected[1], rtol=0, atol=1e-5)


def test_a_learner_of_a_stack_computes_and_derives_as_alone():
    stack = make(learners=3, seeds=(0, 1, 2))
    x = normal(3, 20, 4)
    out, value = stack(x)
    gradients = torch.autograd.grad(out.square().sum() + value.sum(), list(stack.leaves.values()))
    for learner in range(3):
        alone = stack.one(learner)
        assert alone.parameters.data_ptr() == stack.parameters[learner].data_ptr()
        own_out, own_value = alone(x[learner : learner + 1])
        torch.testing.assert_close(own_out[0], out[learner], rtol=0, atol=1e-6)
        torch.testing.assert_close(own_value[0], value[learner], rtol=0, atol=1e-6)
        solo = make(seeds=(learner,))
        solo.parameters.copy_(stack.parameters[learner])
        own_out, own_value = solo(x[learner : learner + 1])
        own = torch.autograd.grad(own_out.square().sum() + own_value.sum(), list(solo.leaves.values()))
        for one, all_ in zip(own, gradients, strict=True):
            torch.testing.assert_close(one[0], all_[learner], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("learners", [1, 2])
def test_bf16_rounds_products_but_neither_numbers_nor_results(learners):
    exact = make(learners=learners, seeds=range(learners))
    rough = make(learners=learners, seeds=range(learners), precision="bf16")
    x = normal(learners, 50, 4)
    (out, value), (expected, expected_value) = rough(x), exact(x)
    assert out.dtype == value.dtype == rough.parameters.dtype == torch.float32
    assert not torch.equal(value, expected_value)
    torch.testing.assert_close(
        out, expected, rtol=0, atol=0.03
    )  # bf16 has 8 bits: 2^-9 relative to each of a sum's terms
    torch.testing.assert_close(value, expected_value, rtol=0, atol=0.05)
    for gradient in torch.autograd.grad(out.sum() + value.sum(), list(rough.leaves.values())):
        assert gradient.dtype == torch.float32
    with rough.arithmetic():
        inside = rough(x)
    assert torch.equal(inside[0], out) and torch.equal(inside[1], value)


@pytest.mark.gpu
def test_tf32_holds_inside_and_is_put_back():
    products = torch.backends.cuda.matmul  # allow_tf32, the older name, may not be asked for beside the newer
    before = products.fp32_precision
    networks = make(precision="tf32", device="cuda")
    with networks.arithmetic():
        assert products.fp32_precision == "tf32"
    assert products.fp32_precision == before
    x = normal(1, 50, 4)
    torch.testing.assert_close(networks(x.cuda())[0].cpu(), make()(x)[0], rtol=0, atol=0.01)
