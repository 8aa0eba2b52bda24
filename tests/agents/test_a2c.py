"""A2C: its update by hand and beside PPO's, tasks with known values, and runs that must be the same."""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete

from lockstep.agents import a2c, ppo
from lockstep.agents.a2c import A2C, Config
from lockstep.agents.ppo import PPO
from lockstep.agents.run import training
from lockstep.agents.run.config import replaced
from tests.agents.graphs import nothing_waiting
from tests.agents.ppo import reference
from tests.agents.test_discrete import Counted, iterated, requires_equal
from tests.agents.worlds import BOX, Clock, Crew, World, first_is_right, near_first

SMALL = Config(num_envs=8, horizon=16, total_steps=128 * 20, hidden=(16, 16), threads=1)


def changed(**changes) -> Config:
    return replaced(SMALL, changes)


# ---- updates ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_an_update_is_the_one_by_hand(name):
    """Two environments, four steps: advantages, gradient, limit and RMSprop, in NumPy and float64."""
    options = {"ent_coef": 0.02, "vf_coef": 0.25, "max_grad_norm": 0.3}
    run = A2C(name, changed(num_envs=2, horizon=4, total_steps=80, gae_lambda=0.9, seed=5, lr=3e-3, **options))
    run.iterate()
    expected = reference.of(run.networks, clip_value=False, norm_adv=False, **options)
    names = reference.names(run.networks)
    square = run.networks.parts(run.optimizers["optimizer"].state["square"].unsqueeze(0))
    square = [square[key][0].double().numpy().copy() for key in names]
    run.phases["rollout"]()
    rows = run.rollout.rows
    told = {key: rows[key].double().numpy() for key in ("reward", "value", "bootstrap")}
    told |= {key: rows[key].numpy() for key in ("terminated", "truncated")}
    advantage, target = reference.advantages(**told, gamma=0.99, gae_lambda=0.9)
    batch = {key: tensor.double().numpy() for key, tensor in run.rollout.batch().items()}
    batch |= {"action": run.rollout.batch()["action"].numpy(), "advantage": advantage.ravel(), "target": target.ravel()}
    gradient = expected.gradient(**batch)  # of PPO, whose ratio is 1 where nothing was learnt yet
    norm = np.sqrt(sum((part**2).sum() for part in gradient))
    assert norm > 0.3
    run.phases["advantage"]()
    run.phases["update"]()
    found = run.networks.parts(run.networks.parameters)
    for key, part, mean, number in zip(names, gradient, square, expected.numbers, strict=True):
        limited = part * 0.3 / norm
        step = limited / (np.sqrt(0.99 * mean + 0.01 * limited**2) + 1e-5)
        by_hand = number - 3e-3 * (1 - 1 / 10) * step
        np.testing.assert_allclose(found[key][0].numpy(), by_hand, rtol=0, atol=1e-5, err_msg=key)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("cartpole", {}),
        ("pendulum", {}),
        ("cartpole", {"critic_lr": 1e-2}),
        ("pendulum", {"critic_lr": 1e-2, "squash": "tanh", "log_std": -0.5}),
    ],
)
def test_with_adam_it_is_ppo_of_one_epoch_and_one_minibatch(name, more):
    """The limit of the ratio of probabilities does nothing at 1."""
    given = {"gae_lambda": 0.95, "lr": 3e-3, "ent_coef": 0.01, "reward_scale": 0.1, "seed": 3} | more
    same = {key: getattr(SMALL, key) for key in ("num_envs", "horizon", "total_steps", "hidden", "threads")}
    config = replaced(ppo.Config(), same | given | {"epochs": 1, "minibatches": 1})
    expected = iterated(PPO(name, config), 10)
    found = iterated(A2C(name, changed(**given, optimizer="adam", norm_adv=True)), 10)
    torch.testing.assert_close(found.networks.parameters, expected.networks.parameters, rtol=0, atol=1e-4)
    assert found.statistics()["episodes"] == expected.statistics()["episodes"]


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_a_critic_s_learning_rate_is_its_own(optimizer):
    """Of the first update, with one limit for both: the actor's step stays, the critic's is three times as large."""
    given = {"optimizer": optimizer, "max_grad_norm": 0.1, "anneal_lr": False, "lr": 1e-3}
    steps = []
    for changes in ({}, {"critic_lr": 3e-3}):
        run = A2C("pendulum", changed(**given, **changes))
        begun = run.networks.parameters.clone()
        run.iterate()
        assert run.statistics()["grad_norm"] > 0.1
        steps.append((run.networks.parameters - begun)[0])
    at = run.networks.places["critic.0.weight"][0]
    assert steps[0][:at].any() and steps[0][at:].any()
    torch.testing.assert_close(steps[1][:at], steps[0][:at], rtol=1e-3, atol=1e-7)
    torch.testing.assert_close(steps[1][at:], 3 * steps[0][at:], rtol=1e-3, atol=5e-7)


@pytest.mark.parametrize("number", [0, -1])
def test_a_gradient_that_is_not_finite_in_one_network_has_no_step_of_the_other(number):
    run = iterated(A2C("pendulum", changed(critic_lr=1e-3, optimizer="adam")), 1)
    run.gradient.fill_(1.0)
    run.gradient[number] = math.inf
    before = run.state()
    assert run._step(run.rates) == math.inf
    requires_equal(run.state(), before)


# ---- what is learnt --------------------------------------------------------------------------------------------------


class Cycle(Clock):
    """A clock that shows 0 at the end of an episode, so that every observation has a step after it."""

    def _observe(self) -> torch.Tensor:
        return super()._observe() % self.limit


@pytest.mark.parametrize(
    ("ends", "values"),
    [
        (("truncated",), [10.0] * 5),  # 1 / (1 - 0.9)
        (("terminated",), [4.0951, 3.439, 2.71, 1.9, 1.0]),  # sum of 0.9^k over the steps that are left
    ],
)
def test_a_limit_of_time_is_no_end_of_reward(ends, values):
    config = changed(num_envs=10, horizon=20, total_steps=200 * 600, gamma=0.9, lr=3e-3, max_grad_norm=10.0)
    run = A2C(Cycle(10, ends=ends), config)
    iterated(run, run.iterations)
    with torch.no_grad():
        found = run.networks.critic(torch.arange(5.0).view(1, 5, 1))[0]
    np.testing.assert_allclose(found, values, rtol=0, atol=0.3)


@pytest.mark.parametrize("changes", [{}, {"norm_obs": True, "norm_adv": True}, {"optimizer": "adam"}])
def test_it_learns_which_action_is_right(changes):
    run = A2C(World(8), changed(total_steps=128 * 200, gamma=0.5, lr=3e-3, **changes))
    iterated(run, run.iterations)
    obs = torch.randn(1000, 3, generator=torch.Generator().manual_seed(1))
    assert first_is_right(obs, run.act(obs)).mean() > 0.95


@pytest.mark.parametrize("squash", ["clip", "tanh"])
def test_it_learns_numbers(squash):
    """The best action is the observation's first components, within [-1, 1]."""
    given = {"total_steps": 128 * 400, "gamma": 0.0, "lr": 3e-3, "norm_adv": True, "squash": squash}
    run = A2C(World(8, BOX, near_first), changed(**given))
    iterated(run, run.iterations)
    obs = torch.randn(1000, 3, generator=torch.Generator().manual_seed(1))
    assert near_first(obs, run.act(obs)).mean() > -0.3 > near_first(obs, torch.zeros(1000, 2)).mean()


@pytest.mark.parametrize("norm_adv", [False, True])
def test_rows_that_do_not_count_may_hold_anything(norm_adv):
    """Agent 0 acts all five steps of an episode, agent 1 the first three, nobody ever in environment 2."""

    def active(step: int) -> torch.Tensor:
        acts = torch.tensor([True, step < 3]).repeat(8, 1)
        acts[2] = False
        return acts

    found = []
    for rubbish in (float("nan"), 7.0):
        env = World(8, agents=2, active=active, rubbish=rubbish)
        run = iterated(A2C(env, changed(norm_adv=norm_adv)), 5)
        assert run.statistics()["episode_length"] == 4.0 and run.act(env.table[0]).shape == (8, 2)
        found.append(run.networks.parameters)
    assert torch.equal(*found) and found[0].isfinite().all()


def test_actions_that_are_not_allowed_are_never_taken():
    mask = torch.tensor([True, False, True])
    env = World(8, Discrete(3), lambda obs, action: (action == 1).float(), mask=mask)
    run = iterated(A2C(env, SMALL), 5)
    taken = run.rollout.rows["action"]
    assert (taken[:, 0::2] != 1).all() and (taken[:, 1::2] == 1).any()


# ---- that a run can go on --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{}, {"norm_obs": True}, {"optimizer": "adam", "hidden": (8,)}, {"optimizer": "adam", "critic_lr": 1e-2}]
)
def test_a_run_that_was_interrupted_is_the_same_to_the_last_bit(changes):
    """With the roll-out in the environment's kernel, and in torch."""
    whole, first, second = (A2C("cartpole", changed(**changes)) for _ in range(3))
    iterated(whole, 12)
    state = iterated(first, 5).state()
    iterated(first, 2)  # what happens afterwards does not change what was kept
    iterated(second, 3).load_state(state)
    requires_equal(iterated(second, 7).state(), whole.state())


# ---- what a run says of itself ---------------------------------------------------------------------------------------


def test_a_reward_that_is_not_finite_ends_the_run_and_spares_the_parameters():
    env = World(8, reward=lambda obs, action: torch.full((8,), float("nan")))
    before = A2C(env, SMALL).weights()
    run = iterated(A2C(env, SMALL), 2)
    with pytest.raises(FloatingPointError, match="iteration 1: since the last row 2 of 2 updates' gradients were not"):
        run.statistics()
    requires_equal(run.weights(), before)


def test_figures_are_means_over_iterations():
    run = iterated(A2C("cartpole", changed(anneal_lr=False)), 4)
    told = run.statistics()
    assert 0 < told["entropy"] <= math.log(2) and told["value_loss"] > 0 and told["grad_norm"] > 0
    assert told["lr"] == SMALL.lr and math.isnan(run.statistics()["policy_loss"])


BAD = [
    (lambda: Config(horizon=0), r"horizon=0 must lie in \[1, ...\]"),
    (lambda: Config(optimizer="sgd"), "optimizer='sgd' must be one of 'rmsprop', 'adam'"),
    (
        lambda: Config(num_envs=64, horizon=16, total_steps=1023),
        "total_steps=1023 must be at least one iteration, num_envs x horizon = 1024",
    ),
    (lambda: A2C("cartpole", changed(squash="tanh")), "no squash into action space Discrete"),
    (lambda: A2C("cartpole", {}), "config must be an a2c.Config, as a2c.config_of makes it, not a dict"),
    (lambda: A2C(World(4), SMALL), "the environment has num_envs=4; this run needs 8"),
    (lambda: A2C(Crew(8), SMALL), "agents use 2 and 5 numbers of an action; each must use all"),
    (lambda: A2C(World(8), SMALL).load_state(A2C(World(8), SMALL).state()), "World has no state"),
    (
        lambda: A2C(World(8), SMALL).load_weights(A2C(World(8), changed(norm_obs=True)).weights()),
        "state has a 'normaliser', for which norm_obs must be True here",
    ),
]


@pytest.mark.parametrize(("call", "sentence"), BAD)
def test_bad_input_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


# ---- what runs where -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", ["cartpole", "pendulum", World])
@pytest.mark.parametrize(
    "changes", [{}, {"optimizer": "adam", "norm_adv": True, "norm_obs": True}, {"critic_lr": 1e-2}]
)
def test_an_iteration_waits_for_nothing(env, changes):
    run = iterated(A2C(env if isinstance(env, str) else env(8), changed(**changes)), 2)
    with Counted() as counted:
        run.iterate()
    assert not counted.waits


@pytest.mark.gpu
def test_on_a_gpu_no_iteration_waits_and_it_goes_on():
    run = iterated(A2C("cartpole", SMALL, "cuda"), 2)
    other = A2C("cartpole", SMALL, "cuda")
    other.load_state(run.state())
    with nothing_waiting():
        iterated(run, 3)
    requires_equal(iterated(other, 3).weights(), run.weights())


# ---- whether it learns -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_it_holds_the_pole_up(seed):
    """Its environment's aim, reached by the recipe: 475 over 100 episodes that no training saw."""
    run = training.train(A2C, "cartpole", a2c.config_of("cartpole", seed=seed, threads=1))
    assert training.evaluation.in_original("cartpole", run.act).returns.mean() > 475
