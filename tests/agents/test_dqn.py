"""DQN: its update by hand, by automatic differentiation, and beside another library's."""

import dataclasses

import pytest
import torch
from torch.nn.functional import linear, smooth_l1_loss

from lockstep.agents import dqn
from lockstep.agents.dqn import DQN, Config
from lockstep.agents.run.config import replaced
from tests.agents.test_discrete import Counted, iterated, mutant
from tests.agents.worlds import Clock, World, first_is_right

SMALL = Config(num_envs=8, total_steps=8 * 100, capacity=100, learning_starts=0, replay_ratio=0.25, hidden=(16,))


def changed(**changes) -> Config:
    return replaced(SMALL, changes)


# ---- targets ---------------------------------------------------------------------------------------------------------


def with_values(kind: type[DQN], online: tuple, target: tuple, **row) -> DQN:
    """A run whose networks have these values of two actions everywhere, with a replay of one row over and over."""
    config = dataclasses.asdict(changed(gamma=0.9, max_grad_norm=1e9, capacity=16)) | row.pop("config", {})
    run = kind(Clock(8), kind.Config(**config))
    for network, values in ((run.online, online), (run.target, target)):
        network.parameters.zero_()
        network.layers[-1][1].copy_(torch.tensor(values))
    row = {"obs": [1.0], "next_obs": [2.0], "action": 0, "reward": 0.5, "discount": 0.9} | row
    run.replay.add({name: torch.tensor([value] * 8) for name, value in row.items()})
    return run


TARGETS = [  # double, terminated; loss |1 - target| - 1/2, or half its square, and the derivative by the value
    (False, False, 8.0, -1.0),  # target 0.5 + 0.9 * 10 = 9.5
    (True, False, 3.5, -1.0),  # the second action seems best, and is worth 0.5 + 0.9 * 5 = 5
    (False, True, 0.125, 0.5),  # 0.5
    (True, True, 0.125, 0.5),
]


def requires_targets(kind: type[DQN], double: bool, terminated: bool, loss: float, slope: float) -> None:
    run = with_values(kind, (1.0, 2.0), (10.0, 5.0), discount=0.9 * (not terminated), config={"double": double})
    run._updates(3)
    figures = run.statistics()  # of three updates, whose steps of Adam change little
    run = with_values(kind, (1.0, 2.0), (10.0, 5.0), discount=0.9 * (not terminated), config={"double": double})
    run._updates(1)
    first = run.statistics()
    assert first["loss"] == pytest.approx(loss, abs=1e-5)
    assert first["q_value"] == pytest.approx(1.0)
    assert first["grad_norm"] == pytest.approx(abs(slope), abs=1e-5)
    assert run.online.gradient[-2:].tolist() == pytest.approx([slope, 0.0], abs=1e-5)
    assert figures["loss"] == pytest.approx(loss, abs=0.01)


@pytest.mark.parametrize(("double", "terminated", "loss", "slope"), TARGETS)
def test_targets_by_hand(double, terminated, loss, slope):
    requires_targets(DQN, double, terminated, loss, slope)


LEARNING = {
    "value after the end": ("self.bootstrapped(rows,", "(0.5 + 0.9 *", TARGETS[2]),
    "no target network": ('self.target(rows["next', 'self.online(rows["next', TARGETS[0]),
    "chosen by the target network": ("kept[-1][k:].argmax", "target.argmax", TARGETS[1]),
    "squared error": ("error.clamp(-1.0, 1.0)", "error", TARGETS[0]),
}


@pytest.mark.parametrize(("old", "new", "given"), LEARNING.values(), ids=LEARNING)
def test_each_trap_of_learning_is_noticed(old, new, given):
    wrong = mutant(dqn, "DQN", old, new)
    with pytest.raises(AssertionError):
        requires_targets(wrong, *given)


# ---- updates ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("double", [False, True])
def test_an_update_is_that_of_automatic_differentiation_and_of_torch_s_adam(double):
    config = changed(num_envs=8, batch_size=16, hidden=(16, 8), double=double, gamma=0.9, max_grad_norm=0.05, lr=1e-2)
    run = iterated(DQN(World(8), config), 20)
    run.target.parameters.add_(0.1)
    layers = [part.clone().requires_grad_() for layer in run.online.layers for part in layer]
    optimizer = torch.optim.Adam(layers, config.lr)
    state = {"step": run.adam.state["steps"].clone()}
    for layer, first, second in zip(
        layers,
        *([part for pair in run.online._views(run.adam.state[name]) for part in pair] for name in ("first", "second")),
        strict=True,
    ):
        optimizer.state[layer] = {k: v.clone() for k, v in (state | {"exp_avg": first, "exp_avg_sq": second}).items()}
    generator = torch.Generator()
    generator.set_state(run.generator.get_state())
    rows = run.replay.sample(16, generator)

    def values(x):
        for number in range(0, 6, 2):
            x = linear(x, layers[number], layers[number + 1])
            x = x.relu() if number < 4 else x
        return x

    following = run.target(rows["next_obs"])
    best = (values(rows["next_obs"]) if double else following).argmax(dim=1, keepdim=True)
    target = rows["reward"] + rows["discount"] * following.gather(1, best)[:, 0]
    loss = smooth_l1_loss(values(rows["obs"]).gather(1, rows["action"].unsqueeze(1))[:, 0], target.detach())
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(layers, config.max_grad_norm)
    for group in optimizer.param_groups:
        group["lr"] = run.lr
    optimizer.step()
    run.statistics()
    run._updates(1)
    figures = run.statistics()
    assert figures["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert figures["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    assert norm > config.max_grad_norm
    expected = torch.cat([layer.detach().flatten() for layer in layers])
    torch.testing.assert_close(run.online.parameters, expected, rtol=0, atol=1e-6)


def test_updates_are_those_of_stable_baselines3():
    """The peer's model has our settings, and from the same weights and batches it learns the same."""
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    from lockstep.experiments.learning_workers import Job, sb3

    config = changed(double=False, batch_size=32, hidden=(16, 8), gamma=0.9, target_every=16)
    run = DQN("cartpole", config)
    for _ in range(20):
        run._rollout()
    run.target.parameters.mul_(1.5)
    job = Job("rate", "dqn", "cartpole", "CartPole-v1", dataclasses.asdict(config))
    peer = sb3.dqn(job, sb3.vector(job, 0), 0)
    assert (peer.gradient_steps, peer.train_freq.frequency, peer.batch_size) == (2, 1, 32)
    assert (peer.buffer_size, peer.learning_starts, peer.target_update_interval) == (100, 0, 16)
    schedule = [peer.exploration_schedule(1 - steps / config.total_steps) for steps in (0, 400)]
    assert schedule == pytest.approx([run.epsilon(steps) for steps in (0, 400)])
    assert sum(parameter.numel() for parameter in peer.q_net.parameters()) == run.parameter_count
    for network, own in ((peer.q_net, run.online), (peer.q_net_target, run.target)):
        for parameter, part in zip(network.parameters(), [p for layer in own.layers for p in layer], strict=True):
            parameter.data.copy_(part)
    generator = torch.Generator()
    generator.set_state(run.generator.get_state())
    rows = {name: part.split(32) for name, part in run.replay.sample(3 * 32, generator).items()}
    batches = (
        ReplayBufferSamples(obs, action[:, None], next_obs, (discount == 0)[:, None].float(), reward[:, None])
        for obs, action, next_obs, discount, reward in zip(
            *(rows[name] for name in ("obs", "action", "next_obs", "discount", "reward")), strict=True
        )
    )
    peer._setup_learn(1)
    peer.replay_buffer.sample = lambda *_, **__: next(batches)
    peer.train(3, 32)
    with torch.no_grad():
        run._updates(3)
    found = torch.cat([parameter.detach().flatten() for parameter in peer.q_net.parameters()])
    torch.testing.assert_close(run.online.parameters, found, rtol=0, atol=1e-5)


def test_without_the_double_it_learns_which_action_is_right():
    config = changed(total_steps=8 * 500, capacity=5000, epsilon_steps=2000, lr=1e-2, gamma=0.5, double=False)
    run = DQN(World(8), config)
    iterated(run, run.iterations)
    obs = torch.randn(1000, 3, generator=torch.Generator().manual_seed(1))
    assert first_is_right(obs, run.act(obs)).mean() > 0.95


def test_an_update_is_few_operations():
    run = iterated(DQN(World(64), changed(num_envs=64, total_steps=6400, capacity=1000, hidden=(16, 16))), 2)
    with Counted() as one:
        run._updates(1)
    with Counted() as several:
        run._updates(33)
    assert (several.found.total() - one.found.total()) / 32 <= 60
