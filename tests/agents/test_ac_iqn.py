"""AC-IQN: its target by hand, its update by automatic differentiation, and the risk that its actor takes."""

import math

import pytest
import torch

from lockstep.agents import ac_iqn
from lockstep.agents.ac_iqn import ACIQN
from lockstep.agents.parts import quantiles
from lockstep.agents.parts.quantiles import DRAWN
from lockstep.agents.run.config import replaced
from tests.agents.parts import test_mlp
from tests.agents.parts.test_quantiles import leaves_of, reference
from tests.agents.test_discrete import iterated
from tests.agents.test_sac import constant, copied, flat_gradient
from tests.agents.worlds import BOX, World, near_first

SMALL = {"num_envs": 8, "total_steps": 8 * 100, "capacity": 1000, "learning_starts": 0, "batch_size": 16}
SMALL |= {"features": 12, "hidden": (16, 8), "max_grad_norm": 1e9, "gamma": 0.9}


def made(**changes) -> ACIQN:
    return ACIQN(World(8, BOX, near_first), replaced(ac_iqn.Config(), SMALL | changes))


def make_spread(run: ACIQN, critics: dict) -> None:
    """Gives the critic the quantiles 2 (1 - cos(pi tau)) a_1 where a_1 > 0, else 0: their mean is 2 a_1."""
    critic = critics["critic"]
    critic.parameters.zero_()
    (_, of_obs), (weight, of_tau), (of_action, _), (first, _), (last, _) = critic.layers
    of_obs.fill_(1.0)
    of_tau.fill_(1.0)
    weight[:, 1] = -1.0
    of_action[0, 0] = 1.0
    first[0, 0] = 1.0
    last[0, 0] = 2.0


def test_a_target_by_hand_of_a_terminated_and_of_a_truncated_row():
    """The target actor's output 1 is squashed to (2 / pi) atan 1 = 1/2, so that the target critic's quantiles are
    1 - cos(pi tau)."""
    run = made(hidden=(4,))
    make_spread(run, run.targets)
    constant(run.targets["actor"], [1.0, -1.0])
    constant(run.networks["actor"], [5.0, 5.0])
    rows = {"next_obs": torch.zeros(2, 3), "reward": torch.full((2,), 0.5), "discount": torch.tensor([0.0, 0.9])}
    tau = torch.rand(2, DRAWN, generator=copied(run.generator))
    with torch.no_grad():
        found = run.target(rows)
    assert found[0].tolist() == [0.5] * DRAWN
    expected = [0.5 + 0.9 * (1 - math.cos(math.pi * fraction)) for fraction in tau[1].tolist()]
    assert found[1].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("cvar", [1.0, 0.5])
def test_an_update_has_the_gradients_of_automatic_differentiation(cvar):
    run = iterated(made(n_step=2, cvar=cvar), 30)
    actor, critic = test_mlp.leaves_of(run.networks["actor"]), leaves_of(run.networks["critic"])
    generator = copied(run.generator)
    rows = run.replay.sample(16, generator)
    of_target, tau, of_actor = (torch.rand(16, DRAWN, generator=generator) for _ in range(3))

    def acted(leaves: list[torch.Tensor], obs: torch.Tensor) -> torch.Tensor:
        return torch.cat([obs, 2 / math.pi * test_mlp.forward(leaves, obs).atan()], dim=1)

    with torch.no_grad():
        x = acted(test_mlp.leaves_of(run.targets["actor"]), rows["next_obs"])
        following = reference(leaves_of(run.targets["critic"]), x, of_target, 2).squeeze(2)
        target = rows["reward"].unsqueeze(1) + rows["discount"].unsqueeze(1) * following
    predicted = reference(critic, torch.cat([rows["obs"], rows["action"]], dim=1), tau, 2).squeeze(2)
    loss = quantiles.huber(predicted, tau, target)[0].mean()
    loss.backward()
    run.statistics()
    with torch.no_grad():
        run._updates(1)
    told = run.statistics()
    torch.testing.assert_close(run.networks["critic"].gradient, flat_gradient(critic), rtol=1e-4, atol=1e-5)
    stepped = leaves_of(run.networks["critic"])  # the actor sees the critic after its step
    (-reference(stepped, acted(actor, rows["obs"]), cvar * of_actor, 2).mean()).backward()
    torch.testing.assert_close(run.networks["actor"].gradient, flat_gradient(actor), rtol=1e-4, atol=1e-5)
    assert told["critic_loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert told["q_value"] == pytest.approx(predicted.mean().item(), rel=1e-4)


@pytest.mark.parametrize("cvar", [1.0, 0.5, 0.25])
def test_the_actor_goes_up_the_mean_of_the_worst_quantiles(cvar):
    """Of returns 2 (1 - cos(pi tau)) a_1 the worst have the mean 2 (1 - sin(pi cvar) / (pi cvar)) a_1,
    and a_1 = (2 / pi) atan z has the derivative 1 / pi at z = 1."""
    run = made(hidden=(4,), cvar=cvar)
    make_spread(run, run.networks)
    constant(run.networks["actor"], [1.0, 1.0])
    with torch.no_grad():
        run.learn_actor(torch.randn(20_000, 3), "critic")
    slope = 2 * (1 - math.sin(math.pi * cvar) / (math.pi * cvar)) / math.pi
    found = run.networks["actor"].gradient[-2:].tolist()
    assert found == pytest.approx([-slope, 0.0], abs=0.005)


def test_networks_have_as_many_numbers_as_their_widths_say():
    """Pendulum: actor 3 -> 256 -> 128 -> 128 -> 1; critic 3 -> 256, 64 -> 256, 1 -> 128, 256 -> 128 -> 128 -> 1."""
    trunk = 256 * 128 + 128 + 128 * 128 + 128 + 128 * 1 + 1
    actor = 3 * 256 + 256 + trunk
    assert ACIQN("pendulum").parameter_count == actor + 3 * 256 + 256 + 64 * 256 + 256 + 1 * 128 + 128 + trunk


def test_the_actor_has_as_many_numbers_as_the_published_one():
    """50,354 of two actions, with the published encoder's 688 numbers instead of those of 3 inputs."""
    run = ACIQN(World(8, BOX, near_first), replaced(ac_iqn.Config(), {"num_envs": 8}))
    assert run.networks["actor"].parameters.numel() == 50_354 - 688 + (3 + 1) * 256
