"""IQN: its targets by hand, its update by automatic differentiation, quantiles of chance, and risk."""

import dataclasses
import math

import pytest
import torch
from torch.nn.functional import huber_loss

from lockstep.agents import iqn
from lockstep.agents.iqn import IQN
from lockstep.agents.parts.quantiles import DRAWN
from lockstep.agents.run import training
from lockstep.agents.run.config import replaced
from tests.agents.parts.test_quantiles import leaves_of, make_known, normal, reference
from tests.agents.test_discrete import iterated
from tests.agents.test_sac import copied, flat_gradient
from tests.agents.worlds import World

SMALL = {"num_envs": 8, "total_steps": 8 * 100, "capacity": 1000, "learning_starts": 0, "batch_size": 16}
SMALL |= {"features": 12, "hidden": (16, 8), "max_grad_norm": 1e9, "gamma": 0.9}


def made(world=None, **changes) -> IQN:
    return IQN(World(8) if world is None else world, replaced(iqn.Config(), SMALL | changes))


# ---- targets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_per_quantile", [False, True])
def test_targets_by_hand_of_terminated_and_of_truncated_rows(max_per_quantile):
    """The target network says 0.8, and 1 - cos(pi tau): with the fractions of a row the better of the two on average,
    or at each of them the larger one. Of a terminated row the reward 0.5 remains."""
    run = made(features=2, hidden=(2,), max_per_quantile=max_per_quantile)
    make_known(run.target)
    run.online.parameters.fill_(99.0)
    rows = {"next_obs": normal(64, 3), "reward": torch.full((64,), 0.5), "discount": torch.tensor([0.0, 0.9] * 32)}
    quantiles = (1 - (math.pi * torch.rand(64, 8, generator=copied(run.generator))).cos()).tolist()
    with torch.no_grad():
        found = run._targets(rows)
    safe = []
    for number, row in enumerate(quantiles):
        safe.append(sum(row) / 8 < 0.8)
        best = [max(0.8, quantile) for quantile in row] if max_per_quantile else [0.8] * 8 if safe[-1] else row
        expected = [0.5] * 8 if number % 2 == 0 else [0.5 + 0.9 * quantile for quantile in best]
        assert found[number].tolist() == pytest.approx(expected, abs=1e-5)
    assert 0 < sum(safe) < 64  # both actions are the better one at times


# ---- updates ---------------------------------------------------------------------------------------------------------


def test_an_update_has_the_gradient_of_automatic_differentiation():
    run = iterated(made(World(8, ends=("terminated",))), 30)
    run.target.parameters.add_(0.1)
    leaves, generator = leaves_of(run.online), copied(run.generator)
    rows = run.replay.sample(16, generator)
    fractions = [torch.rand(16, DRAWN, generator=generator) for _ in range(2)]  # of targets, and of predictions
    following = reference([part for layer in run.target.layers for part in layer], rows["next_obs"], fractions[0], 0)
    best = following.mean(dim=1).argmax(dim=1)
    following = torch.stack([following[row, :, action] for row, action in enumerate(best.tolist())])
    target = rows["reward"].unsqueeze(1) + rows["discount"].unsqueeze(1) * following
    found = reference(leaves, rows["obs"], fractions[1], 0)
    predicted = torch.stack([found[row, :, action] for row, action in enumerate(rows["action"].tolist())])
    pairs = torch.broadcast_tensors(predicted.unsqueeze(2), target.unsqueeze(1))
    weight = (fractions[1].unsqueeze(2) - (pairs[1] < pairs[0]).float()).abs()
    loss = (weight * huber_loss(*pairs, reduction="none")).mean(dim=2).sum(dim=1).mean()
    loss.backward()
    run.statistics()
    with torch.no_grad():
        run._updates(1)
    told = run.statistics()
    assert told["loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert told["q_value"] == pytest.approx(predicted.mean().item(), rel=1e-4)
    torch.testing.assert_close(run.online.gradient, flat_gradient(leaves), rtol=1e-4, atol=1e-5)


def test_quantiles_of_chance_are_learnt():
    """A reward of 0 or 10 by the toss of a coin, and nothing after it: below tau = 1/2 the quantile is 0, above 10."""
    coin = torch.Generator().manual_seed(0)
    env = World(8, reward=lambda obs, action: 10 * torch.randint(2, (8,), generator=coin).float())
    run = made(env, gamma=0.0, lr=1e-2, total_steps=8 * 500, capacity=5000, batch_size=64)
    iterated(run, run.iterations)
    tau = torch.tensor([[0.1, 0.25, 0.75, 0.9]])
    found = run.online.activations(normal(100, 3, seed=1), tau).quantiles.mean(dim=(0, 2))
    # the loss is least at tau / (1 - tau), and at as much below 10
    assert found.tolist() == pytest.approx([1 / 9, 1 / 3, 10 - 1 / 3, 10 - 1 / 9], abs=1.0)


# ---- risk ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cvar", "action"), [(1.0, 1), (0.5, 0), (0.25, 0)])
def test_the_mean_of_the_worst_returns_chooses_the_action(cvar, action):
    """One action is worth 0.8 for sure. Of the other the mean of all is 1, of the worse half 1 - 2 / pi = 0.36."""
    run = made(features=2, hidden=(2,), cvar=cvar)
    make_known(run.online)
    obs = normal(50, 3)
    assert (run.act(obs) == action).all() and (run.module()(obs) == action).all()


def test_a_run_with_other_weights_acts_with_a_risk_of_its_own(tmp_path):
    settings = replaced(iqn.Config(), {"num_envs": 16, "total_steps": 1600, "features": 16, "hidden": (16,)})
    run = training.train(IQN, "cartpole", settings, output=tmp_path)
    averse = training.train(IQN, "cartpole", replaced(settings, {"cvar": 0.25, "total_steps": 16}), init_from=tmp_path)
    obs = normal(1000, 4)
    assert torch.equal(averse.online.parameters, run.online.parameters)
    worst = run.online(obs, 0.25 * (torch.arange(32) + 0.5) / 32)
    assert torch.equal(averse.act(obs), worst.argmax(dim=1))


# ---- networks --------------------------------------------------------------------------------------------------------


def test_the_network_has_as_many_numbers_as_its_widths_say():
    """CartPole: 4 -> 256, 64 -> 256, 256 -> 128 -> 128 -> 2, each layer inputs x outputs + outputs."""
    features = 4 * 256 + 256 + 64 * 256 + 256
    assert IQN("cartpole").parameter_count == features + 256 * 128 + 128 + 128 * 128 + 128 + 128 * 2 + 2


# ---- whether it learns -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("environment", "aim"), [("cartpole", 475), ("acrobot", -100)])
def test_it_reaches_its_environment_s_aim(environment, aim):
    """By the recipe, over 100 episodes that no training saw."""
    settings = iqn.config_of(environment, threads=1)
    run = training.train(IQN, environment, settings)
    assert training.evaluation.in_original(environment, run.act).returns.mean() > aim


def test_qr_dqn_of_sb3_contrib_makes_as_many_steps_and_updates():
    """Its layers are ours but that of fractions; steps, updates, exploration and learning rate are ours."""
    pytest.importorskip("sb3_contrib")
    from lockstep.experiments.learning_workers import Job, sb3

    config = replaced(iqn.Config(), SMALL | {"total_steps": 800, "replay_ratio": 0.25, "target_every": 16, "lr": 1e-2})
    job = Job("rate", "iqn", "cartpole", "CartPole-v1", dataclasses.asdict(config))
    peer, run = sb3.iqn(job, sb3.vector(job, 0), 0), IQN("cartpole", config)
    assert (peer.gradient_steps, peer.train_freq.frequency, peer.batch_size) == (2, 1, 16)
    assert (peer.buffer_size, peer.learning_starts, peer.target_update_interval, peer.n_steps) == (1000, 0, 16, 1)
    assert peer.exploration_schedule(0.5) == pytest.approx(run.epsilon(400))
    assert [peer.lr_schedule(left) for left in (1.0, 0.5)] == pytest.approx([1e-2, 0.51e-2])
    layers = [layer for layer in peer.quantile_net.modules() if isinstance(layer, torch.nn.Linear)]
    assert [layer.out_features for layer in layers] == [12, 16, 8, 2 * 32]
    with pytest.raises(ValueError, match=r"^IQN of Stable-Baselines3 needs cvar=1\.0$"):
        sb3.iqn(dataclasses.replace(job, settings=job.settings | {"cvar": 0.5}), None, 0)
