"""SAC: its target, gradients and temperature by hand and by automatic differentiation through torch's distributions."""

import math

import pytest
import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from lockstep.agents import sac
from lockstep.agents.run import training
from lockstep.agents.run.config import replaced
from lockstep.agents.sac import CRITICS, LOG_STD, SAC
from tests.agents.parts.test_mlp import forward, leaves_of
from tests.agents.test_discrete import iterated
from tests.agents.worlds import BOX, World, near_first

SMALL = {"num_envs": 8, "total_steps": 8 * 100, "capacity": 1000, "learning_starts": 0, "batch_size": 16}
SMALL |= {"hidden": (16, 8), "max_grad_norm": 1e9, "gamma": 0.9, "alpha": 0.3}


def made(**changes) -> SAC:
    return SAC(World(8, BOX, near_first), replaced(sac.Config(), SMALL | changes))


def constant(network, outputs: list[float]) -> None:
    """Makes a network answer this everywhere."""
    network.parameters.zero_()
    network.layers[-1][1].copy_(torch.tensor(outputs))


def copied(generator: torch.Generator) -> torch.Generator:
    copy = torch.Generator()
    copy.set_state(generator.get_state())
    return copy


def flat_gradient(leaves: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([leaf.grad.flatten() for leaf in leaves])


def draw(
    out: torch.Tensor, generator: torch.Generator, squash: str = "tanh", density_of_tanh: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """An action and its log p [k, 1]: of tanh by torch's distributions, which have no other, else by the formula."""
    mean, log_std = out.chunk(2, dim=1)
    std = log_std.clamp(-20, 2).exp()
    z = mean + std * torch.randn(mean.shape, generator=generator)
    if density_of_tanh or squash == "atan":
        action = z.tanh() if squash == "tanh" else z.atan() * 2 / math.pi
        exact = z.double().tanh() if squash == "tanh" else action.double()
        slope = 1 - exact.square() + 1e-6 if density_of_tanh else 2 / math.pi / (1 + z.square())
        return action, (Normal(mean, std).log_prob(z) - slope.log()).sum(dim=1, keepdim=True).float()
    policy = TransformedDistribution(Independent(Normal(mean, std), 1), [TanhTransform(cache_size=1)])
    action = policy.transforms[0](z)
    return action, policy.log_prob(action).unsqueeze(1)


# ---- the critics' target ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target_actor", [False, True])
def test_a_target_by_hand_of_a_terminated_and_of_a_truncated_row(target_actor):
    """Target critics say 4 and 3. Of a terminated row the reward 0.5 remains, of a truncated one
    0.5 + 0.9 (3 - 0.3 log p); where z is normal and s = ln(4 z's deviation) the mean is known: a = tanh z."""
    run = made(target_actor=target_actor)
    for name, value in zip(CRITICS, (4.0, 3.0), strict=True):
        constant(run.targets[name], [value])
        constant(run.networks[name], [99.0])
    deciding, other = (run.targets, run.networks) if target_actor else (run.networks, run.targets)
    constant(deciding["actor"], [0.25, -0.5, -1.0, 0.0])
    if target_actor:
        constant(other["actor"], [5.0, 5.0, 1.0, 1.0])
    rows = {"next_obs": torch.zeros(2, 3), "reward": torch.full((2,), 0.5), "discount": torch.tensor([0.0, 0.9])}
    e = torch.randn((2, 2), generator=copied(run.generator))[1]
    with torch.no_grad():
        found = run.target(rows).flatten()
    assert found[0].item() == 0.5
    log_p = 0.0
    for mean, log_std, normal in zip((0.25, -0.5), (-1.0, 0.0), e.tolist(), strict=True):
        z = mean + math.exp(log_std) * normal
        density = math.exp(-0.5 * normal**2) / math.sqrt(2 * math.pi) / math.exp(log_std)
        log_p += math.log(density / (1 - math.tanh(z) ** 2))
    assert found[1].item() == pytest.approx(0.5 + 0.9 * (3.0 - 0.3 * log_p), abs=1e-5)


# ---- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("squash", "more"),
    [
        ({}, {}),
        ({"squash": "atan"}, {"target_actor": True, "learn_alpha": False}),  # as marine navigation's recipe
        ({"density_of_tanh": True}, {}),
        ({"squash": "atan", "density_of_tanh": True}, {"target_actor": True}),
    ],
    ids=str,
)
def test_an_update_has_the_gradients_of_automatic_differentiation(squash, more):
    run = iterated(made(n_step=2, **squash, **more), 30)
    run.networks["actor"].layers[-1][1][2].add_(3.0)  # deviations on both sides of their limit
    before = {name: leaves_of(network) for name, network in run.networks.items()}
    targets = {name: leaves_of(network) for name, network in run.targets.items()}
    alpha, generator = run.log_alpha.exp().item(), copied(run.generator)
    rows = run.replay.sample(16, generator)
    with torch.no_grad():
        deciding = targets if run.config.target_actor else before
        action, log_p = draw(forward(deciding["actor"], rows["next_obs"]), generator, **squash)
        x = torch.cat([rows["next_obs"], action], dim=1)
        least = torch.minimum(*(forward(targets[name], x) for name in CRITICS))
        y = rows["reward"].unsqueeze(1) + rows["discount"].unsqueeze(1) * (least - alpha * log_p)
    x = torch.cat([rows["obs"], rows["action"]], dim=1)
    losses = [(forward(before[name], x) - y).square().mean() for name in CRITICS]
    sum(losses).backward()
    run.statistics()
    with torch.no_grad():
        run._updates(1)
    for name in CRITICS:
        torch.testing.assert_close(run.networks[name].gradient, flat_gradient(before[name]), rtol=1e-4, atol=1e-5)
    out = forward(before["actor"], rows["obs"])
    limits = out[:, 2:].detach()
    assert (limits > LOG_STD[1]).any() and (limits < LOG_STD[1]).any()
    action, log_p = draw(out, generator, **squash)
    x = torch.cat([rows["obs"], action], dim=1)
    least = torch.minimum(*(forward(leaves_of(run.networks[name]), x) for name in CRITICS))  # after their step
    (alpha * log_p - least).mean().backward()
    torch.testing.assert_close(run.networks["actor"].gradient, flat_gradient(before["actor"]), rtol=1e-4, atol=1e-5)
    log_alpha = torch.tensor([math.log(alpha)], requires_grad=True)
    (-log_alpha.exp() * (log_p.detach() - 2)).mean().backward()  # two components: target entropy -2
    expected = log_alpha.grad if run.config.learn_alpha else torch.zeros(1)
    torch.testing.assert_close(run.log_alpha_gradient, expected, rtol=1e-4, atol=1e-5)
    told = run.statistics()
    assert told["critic_loss"] == pytest.approx(sum(losses).item() / 2, rel=1e-4)
    assert told["entropy"] == pytest.approx(-log_p.mean().item(), rel=1e-4)


# ---- what greedy is --------------------------------------------------------------------------------------------------


def test_greedy_actions_are_drawn_where_it_is_asked_for():
    """tanh of N(0, 1): as torch's generator draws, and the mean, 0, otherwise."""
    run, other = made(eval_samples=True), made()
    for one in (run, other):
        constant(one.networks["actor"], [0.0, 0.0, 0.0, 0.0])
    obs = torch.zeros(1000, 3)
    torch.manual_seed(0)
    found = run.act(obs) / 2  # the Box is twice as wide
    torch.manual_seed(0)
    torch.testing.assert_close(found, torch.randn(1000, 2).tanh())
    assert not other.act(obs).any()


# ---- the temperature -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("log_std", "rises"), [(-6.0, True), (-0.5, False)])
def test_the_temperature_rises_where_actions_are_too_sure(log_std, rises):
    """z = N(0, s): where s is small a is z, whose entropy of two numbers is 2 (1.4189 + ln s), far below -2; with
    s = 0.6 it is above. The derivative by ln alpha is alpha (entropy + 2)."""
    run = made(lr=1e-3)
    constant(run.networks["actor"], [0.0, 0.0, log_std, log_std])
    run.replay.add({name: row.new_zeros((64, *row.shape[1:])) for name, row in run.replay.rows.items()})
    with torch.no_grad():
        run._updates(1)
    entropy = run.statistics()["entropy"]
    if rises:
        assert entropy == pytest.approx(2 * (0.5 * math.log(2 * math.pi * math.e) + log_std), abs=1.0)
    assert run.log_alpha_gradient.item() == pytest.approx(0.3 * (entropy + 2), rel=1e-4)
    # one step of Adam is as long as the learning rate
    assert run.log_alpha.item() == pytest.approx(math.log(0.3) + (1e-3 if rises else -1e-3), abs=1e-6)


def test_a_run_from_weights_goes_on_with_the_temperature_unless_its_own_is_fixed(tmp_path):
    settings = replaced(sac.Config(), SMALL | {"total_steps": 160, "alpha": 0.3})
    learned = training.train(SAC, "pendulum", settings, output=tmp_path).log_alpha
    assert learned.exp().item() != pytest.approx(0.3, abs=1e-4)
    short = replaced(settings, {"total_steps": 8, "learning_starts": 16, "alpha": 0.7})
    run = training.train(SAC, "pendulum", short, init_from=tmp_path)
    assert torch.equal(run.log_alpha, learned) and not run.adam_alpha.state["first"].any()
    fixed = training.train(SAC, "pendulum", replaced(short, {"learn_alpha": False}), init_from=tmp_path)
    assert fixed.log_alpha.exp().item() == pytest.approx(0.7)


WRONG = [(torch.full((1,), math.nan), "must be finite"), (torch.zeros(2), r"must have the shape \[1\], has \[2\]")]


@pytest.mark.parametrize(("log_alpha", "sentence"), WRONG)
def test_weights_may_have_a_temperature_which_must_be_one(log_alpha, sentence):
    run = made(alpha=0.3)
    run.load_weights(run.weights())
    assert run.log_alpha.exp().item() == pytest.approx(0.3)
    with pytest.raises(ValueError, match=rf"state\['log_alpha'\] {sentence}"):
        run.load_weights(run.weights() | {"log_alpha": log_alpha})


def test_a_fixed_temperature_stays():
    run = iterated(made(learn_alpha=False, alpha=0.078), 30)
    assert run.log_alpha.exp().item() == pytest.approx(0.078) and run.updates == 60
    assert run.statistics()["alpha"] == pytest.approx(0.078)


def test_where_it_is_learned_the_entropy_goes_to_minus_the_components():
    """A reward that wants a single action, and a target entropy of -2 that wants some spread around it."""
    env = World(64, BOX, lambda obs, action: 10 * near_first(obs, action))
    settings = SMALL | {"num_envs": 64, "total_steps": 64 * 100, "lr": 1e-2, "gamma": 0.0, "batch_size": 64}
    run = SAC(env, replaced(sac.Config(), settings | {"hidden": (32,)}))
    iterated(run, 80)
    run.statistics()
    assert iterated(run, 20).statistics()["entropy"] == pytest.approx(-2.0, abs=0.3)


# ---- what is drawn ---------------------------------------------------------------------------------------------------


def test_it_draws_from_its_distribution_and_its_greedy_action_is_the_squashed_mean():
    run = made(epsilon_start=0.0)
    constant(run.networks["actor"], [0.3, -0.2, -0.7, -20.5])
    obs = torch.zeros(20_000, 3)
    assert torch.allclose(run.act(obs), 2 * torch.tensor([0.3, -0.2]).tanh())  # the Box is [-2, 2]
    torch.manual_seed(0)
    z = (run.act(obs, greedy=False) / 2).atanh()
    assert z[:, 0].mean().item() == pytest.approx(0.3, abs=0.02)
    assert z[:, 0].std().item() == pytest.approx(math.exp(-0.7), abs=0.02)
    assert z[:, 1].std().item() < 1e-6


def test_networks_have_as_many_numbers_as_their_widths_say():
    """Pendulum: 3 -> 128 -> 128 -> 2 and twice 4 -> 128 -> 128 -> 1, each layer inputs x outputs + outputs."""
    actor = 3 * 128 + 128 + 128 * 128 + 128 + 128 * 2 + 2
    critic = 4 * 128 + 128 + 128 * 128 + 128 + 128 * 1 + 1
    assert SAC("pendulum").parameter_count == actor + 2 * critic
