"""Actors without a distribution: targets, gradients, noise and delay by hand and by automatic differentiation."""

import math

import pytest
import torch
from torch.nn.functional import mse_loss, smooth_l1_loss

from lockstep import agents
from lockstep.agents.parts.deterministic import Deterministic
from lockstep.agents.run.config import replaced
from tests.agents.parts.test_mlp import forward, leaves_of
from tests.agents.test_discrete import iterated
from tests.agents.test_sac import constant, copied, flat_gradient
from tests.agents.worlds import BOX, World, near_first

SMALL = {"num_envs": 8, "total_steps": 8 * 100, "capacity": 1000, "learning_starts": 0, "batch_size": 16}
SMALL |= {"hidden": (16, 8), "max_grad_norm": 1e9, "gamma": 0.9}
FORMS = {"tanh": torch.tanh, "atan": lambda z: 2 / math.pi * torch.atan(z)}
KINDS = [name for name in agents.names() if issubclass(agents.algorithm(name), Deterministic)]
VALUED = [name for name in KINDS if not hasattr(agents.algorithm(name).Config(), "cvar")]  # critics of one number


def made(name: str, **changes) -> Deterministic:
    kind = agents.algorithm(name)
    return kind(World(8, BOX, near_first), replaced(kind.Config(), SMALL | changes))


def critics_of(run: Deterministic) -> list[str]:
    return [name for name in run.networks if name != "actor"]


def following(run: Deterministic, noise: torch.Tensor, rows, critics: list) -> torch.Tensor:
    """Targets y [k, 1], with functions of the critics."""
    obs = rows["next_obs"]
    action = (forward(leaves_of(run.targets["actor"]), obs).tanh() + noise).clamp(-1, 1)
    values = [critic(torch.cat([obs, action], dim=1)) for critic in critics]
    least = torch.stack(values).amin(dim=0)
    return rows["reward"].unsqueeze(1) + rows["discount"].unsqueeze(1) * least


# ---- the critics' target ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VALUED)
def test_a_target_by_hand_of_a_terminated_and_of_a_truncated_row(name):
    """Target critics say 4 (and 3): 0.5 remains where it was terminated, else 0.5 + 0.9 times the smaller one."""
    run = made(name)
    for value, critic in zip((4.0, 3.0), critics_of(run), strict=False):
        constant(run.targets[critic], [value])
        constant(run.networks[critic], [99.0])
    rows = {"next_obs": torch.zeros(2, 3), "reward": torch.full((2,), 0.5), "discount": torch.tensor([0.0, 0.9])}
    with torch.no_grad():
        found = run.target(rows).flatten().tolist()
    assert found == pytest.approx([0.5, 0.5 + 0.9 * min((4.0, 3.0)[: len(critics_of(run))])])


def acting(run: Deterministic) -> None:
    """Makes target critics answer an action's first number."""
    for critic in critics_of(run):
        network = run.targets[critic]
        constant(network, [0.0])
        for number, (weight, _) in enumerate(network.layers):
            weight[0, 3 if number == 0 else 0] = 1.0


def test_noise_on_next_actions_is_limited_and_stays_in_bounds():
    """ReLU lets an action's first number through where it is positive; it is tanh 0.5 = 0.4621, or nearly 1."""
    rows = {"next_obs": torch.zeros(20_000, 3), "reward": torch.zeros(20_000), "discount": torch.ones(20_000)}
    run = made("td3", target_noise=0.2, target_noise_limit=0.3)
    acting(run)
    constant(run.targets["actor"], [0.5, 0.0])
    with torch.no_grad():
        found = run.target(rows).flatten() - math.tanh(0.5)
        assert found.abs().max().item() == pytest.approx(0.3, abs=1e-6)
        # of N(0, 0.2) more than 0.3 = 1.5 deviations away: 2 x 0.0668
        assert (found.abs() > 0.2999).float().mean().item() == pytest.approx(0.1336, abs=0.01)
        constant(run.targets["actor"], [9.0, 0.0])
        assert run.target(rows).max() == 1.0


# ---- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "changes"), [*((name, {}) for name in VALUED), ("ddpg", {"huber": True})])
def test_an_update_has_the_gradients_of_automatic_differentiation(name, changes):
    run = iterated(made(name, n_step=2, **changes), 30)
    before = {network: leaves_of(run.networks[network]) for network in run.networks}
    names, generator = critics_of(run), copied(run.generator)
    rows = run.replay.sample(16, generator)
    noise = torch.zeros(16, 2)
    if hasattr(run.config, "target_noise"):
        run.updates = 1  # the next one is of the actor as well
        noise = (0.2 * torch.randn((16, 2), generator=generator)).clamp(-0.5, 0.5)
    with torch.no_grad():
        critics = [lambda x, leaves=leaves_of(run.targets[critic]): forward(leaves, x) for critic in names]
        y = following(run, noise, rows, critics)
    x = torch.cat([rows["obs"], rows["action"]], dim=1)
    measure = smooth_l1_loss if changes else mse_loss
    losses = [measure(forward(before[critic], x), y) for critic in names]
    sum(losses).backward()
    run.statistics()
    with torch.no_grad():
        run._updates(1)
    for critic in names:
        torch.testing.assert_close(run.networks[critic].gradient, flat_gradient(before[critic]), rtol=1e-4, atol=1e-5)
    action = forward(before["actor"], rows["obs"]).tanh()
    value = forward(leaves_of(run.networks[names[0]]), torch.cat([rows["obs"], action], dim=1))  # after its step
    (-value.mean()).backward()
    torch.testing.assert_close(run.networks["actor"].gradient, flat_gradient(before["actor"]), rtol=1e-4, atol=1e-5)
    assert run.statistics()["critic_loss"] == pytest.approx(sum(losses).item() / len(losses), rel=1e-4)


@pytest.mark.parametrize("name", VALUED)
def test_an_actor_goes_where_its_critic_says(name):
    """A critic of value a_1, for a_1 > 0: the derivative of the loss by the output z is -(1 - tanh^2 z)."""
    for form, squash in FORMS.items():
        run = made(name, squash=form)
        constant(run.networks["actor"], [0.5, 0.25])
        critic = run.networks[critics_of(run)[0]]
        constant(critic, [0.0])
        for number, (weight, _) in enumerate(critic.layers):
            weight[0, 3 if number == 0 else 0] = 1.0
        with torch.no_grad():
            run.learn_actor(torch.randn(16, 3), critics_of(run)[0])
        z = torch.tensor(0.5, requires_grad=True)
        squash(z).backward()
        found = run.networks["actor"].gradient[-2:].tolist()
        assert found == pytest.approx([-z.grad.item(), 0.0], abs=1e-6)


# ---- the delay, and exploration --------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_the_actor_learns_every_so_many_updates(delay):
    run = made("td3", policy_delay=delay)
    iterated(run, 1)
    for _ in range(7):
        before = run.networks["actor"].parameters.clone()
        run._updates(1)
        moved = not torch.equal(run.networks["actor"].parameters, before)
        assert moved == (run.updates % delay == 0)
    assert run.adams["actor"].state["steps"] == run.updates // delay


@pytest.mark.parametrize("name", KINDS)
def test_it_explores_with_normal_noise_around_its_greedy_action(name):
    run = made(name, noise=0.1, epsilon_start=0.0, squash="tanh")
    constant(run.networks["actor"], [0.3, 9.0])
    obs = torch.zeros(20_000, 3)
    greedy = run.act(obs) / 2  # the Box is [-2, 2]
    assert torch.allclose(greedy, torch.tensor([0.3, 9.0]).tanh())
    torch.manual_seed(0)
    apart = run.act(obs, greedy=False) / 2 - greedy
    assert apart[:, 0].mean().item() == pytest.approx(0.0, abs=0.005)
    assert apart[:, 0].std().item() == pytest.approx(0.1, abs=0.005)
    # an action beyond its bound stops there: half of the second numbers
    assert apart[:, 1].max() < 1e-6 and (apart[:, 1] > -1e-6).float().mean().item() == pytest.approx(0.5, abs=0.02)
