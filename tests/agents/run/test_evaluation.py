"""Episodes counted by the evaluation are those of Gymnasium's own loop, and of the port's own statistics."""

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from lockstep import envs
from lockstep.agents import ppo
from lockstep.agents.parts.team import Team
from lockstep.agents.run import evaluation
from lockstep.agents.run.config import replaced
from tests.couriers import couriers  # noqa: F401 - a fixture
from tests.envs.batches import DEVICES, NAMES

BALANCE = torch.tensor([0.05, 0.1, 1.0, 0.4])  # pushes the cart to where the pole leans; holds it for 500 steps


def in_port(name: str, policy, *options, **more) -> evaluation.Episodes:
    return evaluation.PortEpisodes(name, *options, **more).play(policy)


def leaning(environment: str):
    """A policy on the first observation components, as a function from obs [k, n] to actions [k, 1] or [k]."""
    space = envs.port(environment).of("action")
    if hasattr(space, "n"):
        return lambda obs: (obs.sum(1) > 0).long() * (int(space.n) - 1)
    return lambda obs: (3 * obs[:, :1]).clamp(space.low.item(), space.high.item())


def network(environment: str, device="cpu", seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    m, n = envs.port(environment).policy_shape
    return nn.Sequential(nn.Linear(n, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, m)).to(device)


@pytest.mark.parametrize("name", NAMES)
def test_in_the_original_each_episode_is_the_one_that_gymnasium_plays_with_its_seed(name):
    found = evaluation.in_original(name, leaning(name), episodes=4, first_seed=77)
    env, act = gymnasium.make(envs.port(name).gymnasium_id), leaning(name)
    for i in range(4):
        obs, _ = env.reset(seed=77 + i)
        total, length, ended = 0.0, 0, False
        while not ended:
            action = act(torch.tensor(obs, dtype=torch.float32)[None])[0].numpy()
            obs, reward, terminated, truncated, _ = env.step(action)
            total, length, ended = total + float(reward), length + 1, terminated or truncated
        assert (found.returns[i], found.lengths[i]) == (total, length)
    assert found.returns.dtype == np.float64 and found.lengths.dtype == np.int64


def test_a_policy_that_balances_the_pole_gets_500_in_the_original_and_in_the_port():
    def balance(obs):
        return (obs @ BALANCE > 0).long()

    for found in (evaluation.in_original("cartpole", balance, 10), in_port("cartpole", balance, 10)):
        assert found.returns.tolist() == [500.0] * 10 and found.lengths.tolist() == [500] * 10


def test_a_car_without_force_stays_in_its_valley():
    for play in (evaluation.in_original, in_port):
        found = play("mountain_car_continuous", lambda obs: torch.zeros(len(obs)), 3)
        assert found.returns.tolist() == [0.0] * 3 and found.lengths.tolist() == [999] * 3


def test_the_random_policy_gets_what_is_known_of_it():
    found = evaluation.random_policy("cartpole", 200)
    # 22.3 and 11.8 are mean and deviation of 20,000 random episodes of Gymnasium's, seed 0.
    assert abs(found.returns.mean() - 22.3) < 4 * 11.8 / 200**0.5
    assert evaluation.random_policy("mountain_car", 3).returns.tolist() == [-200.0] * 3
    assert -1400 < evaluation.random_policy("pendulum", 20).returns.mean() < -1000
    again = evaluation.random_policy("cartpole", 200)
    assert (again.returns == found.returns).all()
    assert (evaluation.random_policy("cartpole", 200, first_seed=5).lengths != found.lengths).any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_in_the_port_each_episode_is_the_first_one_of_its_environment(name, device):
    found = in_port(name, leaning(name), episodes=70, seed=3, device=device)
    env, act = envs.make(name, 70, device, seed=3), leaning(name)
    obs, _ = env.reset()
    returns, lengths = np.full(70, np.nan), np.zeros(70, dtype=int)
    for _ in range(env.max_episode_steps):
        *_, ended = env.step(act(obs))
        ended = {key: value.cpu().numpy() for key, value in ended.items()}
        first = ended["_final_obs"] & np.isnan(returns)
        returns[first], lengths[first] = ended["episode_return"][first], ended["episode_length"][first]
    np.testing.assert_array_equal(found.lengths, lengths)
    np.testing.assert_allclose(found.returns, returns, rtol=1e-5, atol=1e-4)  # the port adds in float32


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_a_network_in_the_kernel_plays_the_episodes_that_it_plays_in_torch(name, device):
    actor, space = network(name, device), envs.port(name).of("action")

    def act(obs):
        out = actor(obs)
        return out.argmax(1) if hasattr(space, "n") else out.clamp(space.low.item(), space.high.item())

    episodes = evaluation.PortEpisodes(name, 30, seed=4, device=device)
    inside, outside = episodes.play(envs.MLP(actor, greedy=True)), episodes.play(act)
    np.testing.assert_array_equal(inside.lengths, outside.lengths)
    np.testing.assert_allclose(inside.returns, outside.returns, rtol=1e-3, atol=1e-3)


def test_a_critic_changes_nothing():
    actor = network("cartpole")
    critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    without, beside = (in_port("cartpole", envs.MLP(actor, c, greedy=True), 9) for c in (None, critic))
    assert (without.lengths == beside.lengths).all()


def test_playing_again_gives_the_same_episodes_and_another_seed_others():
    episodes = evaluation.PortEpisodes("cartpole", 50, seed=1)
    policy = envs.MLP(network("cartpole"))  # it samples
    first, again = episodes.play(policy), episodes.play(policy)
    other = evaluation.PortEpisodes("cartpole", 50, seed=2).play(policy)
    assert (first.returns == again.returns).all() and (first.returns != other.returns).any()


def test_short_episodes_are_played_once_and_then_it_stops():
    asked = []

    def right(obs):
        asked.append(len(obs))
        return torch.ones(len(obs), dtype=torch.uint8)

    found = in_port("cartpole", right, 20)
    assert found.lengths.min() >= 8 and found.lengths.max() <= 11  # a pole that is only pushed right falls at once
    assert len(asked) <= evaluation.CHUNK and set(asked) == {20}
    asked.clear()
    found = evaluation.in_original("cartpole", right, 20)
    assert len(asked) == found.lengths.max() and sum(asked) == found.lengths.sum()  # the ended ones are not asked again


@pytest.mark.parametrize(
    ("name", "act", "message"),
    [
        ("cartpole", lambda obs: torch.zeros(3, dtype=torch.long), "must return a tensor (2,) or (2, 1) of actions"),
        ("cartpole", lambda obs: [0, 1], "got list"),
        ("cartpole", lambda obs: torch.zeros(len(obs)), "act must return integers, got float32"),
        ("pendulum", lambda obs: torch.zeros(len(obs), dtype=torch.long), "floating-point numbers, got int64"),
        ("cartpole", lambda obs: torch.tensor([1, 2]), "action 2 of episode 1 is not in 0 .. 1"),
        ("pendulum", lambda obs: torch.tensor([[2.5], [0.0]]), "action 2.5 of episode 0 is not in -2 .. 2"),
        ("pendulum", lambda obs: torch.tensor([0.0, np.nan]), "action nan of episode 1 is not in -2 .. 2"),
    ],
)
def test_an_action_that_the_original_does_not_take_is_named(name, act, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below, as it is
        evaluation.in_original(name, act, 2)
    assert message in str(caught.value)


def test_originals_are_closed_when_a_later_one_cannot_be_made(monkeypatch):
    module, closed = envs.original("cartpole"), []
    make = module.make

    def numbered(index=0):
        if index == 2:
            raise RuntimeError("no third")
        original = make()
        original.close = lambda: closed.append(index)
        return original

    monkeypatch.setattr(module, "make", numbered)
    with pytest.raises(RuntimeError, match="no third"), evaluation.games("cartpole", 3):
        pass
    assert sorted(closed) == [0, 1]


def test_a_wrong_environment_or_number_of_episodes_is_named():
    with pytest.raises(ValueError, match="no environment 'cartpol'; did you mean 'cartpole'?"):
        evaluation.in_original("cartpol", leaning("cartpole"))
    for play in (evaluation.in_original, in_port):
        with pytest.raises(ValueError, match="episodes=0 must be an integer from 1"):
            play("cartpole", leaning("cartpole"), 0)
    odd = nn.Sequential(nn.Linear(4, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 2))
    with pytest.raises(ValueError, match="policy.actor has 20 hidden units"):
        in_port("cartpole", envs.MLP(odd), 2)


def test_a_reward_of_several_agents_is_their_mean_wherever_it_is_counted(couriers):  # noqa: F811
    """In statistics, infos, evaluation in port and original, and in a team's training; who has ended adds nothing."""

    def act(obs):
        return 2 * (obs[..., 0] < 0).int()

    n, seed = 12, 5
    env, team = (envs.make(couriers, n, seed=seed) for _ in range(2))
    team = Team(team)
    (obs, _), (seen, _) = env.reset(seed=seed), team.reset(seed=seed)
    sums, of_team = np.zeros((n, 2)), np.zeros(n)
    running, told, uneven = np.ones(n, bool), [], 0
    while running.any():
        obs, reward, terminated, truncated, info = env.step(act(obs))
        seen, joint, over, cut, _ = team.step(act(seen.view(n, 2, -1)))
        ended = info["_final_obs"].numpy()
        uneven += int((terminated.numpy().any(axis=1) & ~ended).sum())
        sums += np.where(running[:, None], reward.numpy(), 0)
        of_team += np.where(running, joint.numpy(), 0)
        told += info["episode_return"][info["_final_obs"]].tolist()
        np.testing.assert_array_equal((over | cut).numpy(), ended)
        np.testing.assert_array_equal(cut.numpy(), truncated.any(dim=1).numpy())
        assert not (over & cut).any()
        running &= ~ended
    assert uneven >= 2  # agents end apart
    statistics = env.statistics()
    assert statistics["return_mean"].item() == pytest.approx(np.mean(told), abs=1e-5)
    assert statistics["episodes"].item() == len(told)
    module = envs.original(couriers)
    alone = [evaluation.play([module.make(seed=seed, index=i)], act, seed).returns[0] for i in range(n)]
    ported = in_port(couriers, act, n, seed).returns
    for found in (of_team, alone, ported):
        np.testing.assert_allclose(found, sums.mean(axis=1), atol=1e-5)


def test_a_policy_of_all_agents_is_scored_in_the_port_as_in_the_original(couriers):  # noqa: F811
    """Who has ended is seen as zeros in both, and in training; the port's own rows of it hold something else."""
    settings = {"num_envs": 12, "horizon": 6, "total_steps": 480, "minibatches": 2, "hidden": (16, 16), "threads": 1}
    run = ppo.PPO(couriers, replaced(ppo.CLEANRL, settings | {"joint": True}))
    run.networks.parameters.normal_(generator=torch.Generator().manual_seed(0))
    asked = []

    def act(obs, active):
        asked.append(active.clone())
        assert obs[~active].any(dim=1).all()
        return run.act(obs, active=active)

    module = envs.original(couriers)
    alone = [evaluation.play([module.make(seed=5, index=i)], run.act, 5).returns[0] for i in range(12)]
    for play in (run.act, act):
        np.testing.assert_allclose(in_port(couriers, play, 12, 5).returns, alone, atol=1e-5)
    assert not torch.stack(asked).all()


@pytest.mark.parametrize("joint", [False, True])
def test_a_run_over_agents_that_end_apart_goes_on_bit_for_bit(couriers, joint):  # noqa: F811
    settings = {"num_envs": 8, "horizon": 6, "total_steps": 480, "minibatches": 2, "hidden": (16, 16), "threads": 1}
    config = replaced(ppo.CLEANRL, settings | {"joint": joint})
    runs = [ppo.PPO(couriers, config) for _ in range(2)]
    for _ in range(4):
        runs[0].iterate()
    runs[1].load_state(runs[0].state())
    for run in runs:
        run.iterate()
        assert run.statistics()["explained_variance"] <= 1
    assert torch.equal(runs[0].networks.parameters, runs[1].networks.parameters)
    obs, _ = runs[0].env.env.reset() if joint else runs[0].env.reset()
    assert runs[0].act(obs).shape == (8, 2) and runs[0].act(obs).dtype == torch.int32
