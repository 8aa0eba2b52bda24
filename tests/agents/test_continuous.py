"""Contract of algorithms that learn a Box from a replay: rows stored, updates due, runs continued."""

import dataclasses
import math
import sys

import pytest
import torch
from gymnasium.spaces import Box

from lockstep import agents
from lockstep.agents import recipes
from lockstep.agents.parts.continuous import Continuous
from lockstep.agents.run import checkpoint, command_line, training
from lockstep.agents.run.config import config_of, replaced
from tests.agents.graphs import nothing_waiting
from tests.agents.test_discrete import Counted, iterated, requires_equal, stored
from tests.agents.worlds import BOX, Clock, Crew, World, near_first

SMALL = {"num_envs": 8, "total_steps": 8 * 100, "capacity": 1000, "learning_starts": 0, "batch_size": 16}
SMALL |= {"hidden": (16,), "epsilon_steps": 0}
UNIT = Box(-1.0, 1.0, (2,))
NAMES = [name for name in agents.names() if issubclass(agents.algorithm(name), Continuous)]


@pytest.fixture(params=NAMES)
def kind(request) -> type[Continuous]:
    return agents.algorithm(request.param)


def config(kind: type[Continuous], **changes):
    return replaced(kind.Config(), SMALL | changes)


def of_world(kind: type[Continuous], world=None, **changes) -> Continuous:
    return kind(World(8, BOX, near_first) if world is None else world, config(kind, **changes))


class Boxed(Clock):
    """A clock with numbers as actions."""

    def __init__(self, num_envs: int, ends: tuple[str, ...] = ("truncated",)):
        super().__init__(num_envs, ends=ends)
        self.single_action_space = BOX


def test_there_are_such_algorithms():
    assert NAMES


# ---- what is stored --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [("truncated",), ("terminated",), ("terminated", "truncated")])
def test_a_transition_ends_where_its_episode_does_and_only_a_terminated_one_is_worth_nothing(kind, ends):
    """Clocks of five steps: after step 4 comes 5, and not the next episode's 0."""
    run = iterated(of_world(kind, Boxed(8, ends), gamma=0.9), 10)
    rows = stored(run)
    assert len(rows["obs"]) == 80 and torch.equal(rows["next_obs"], rows["obs"] + 1)
    dead = (rows["obs"][:, 0] == 4) & ("terminated" in ends)
    torch.testing.assert_close(rows["discount"], torch.where(dead, 0.0, 0.9))


def test_returns_of_several_steps_are_those_of_one_episode(kind):
    """A clock that gives 1: 1.9 of two steps, and from the last step 1, before the final observation 5."""
    run = iterated(of_world(kind, Boxed(8), gamma=0.9, n_step=2), 10)
    rows = stored(run)
    obs = rows["obs"][:, 0]
    torch.testing.assert_close(rows["reward"], torch.where(obs == 4, 1.0, 1.9))
    torch.testing.assert_close(rows["next_obs"][:, 0], (obs + 2).clamp(max=5))
    torch.testing.assert_close(rows["discount"], torch.where(obs == 4, 0.9, 0.81))


def test_an_action_is_stored_as_networks_know_it(kind):
    """The environment is given twice as much in [-2, 2]; its reward tells the distance from what was best."""
    run = iterated(of_world(kind), 10)
    rows = stored(run)
    assert rows["action"].abs().max() <= 1
    torch.testing.assert_close(rows["reward"], near_first(rows["obs"], 2 * rows["action"]))


def test_agents_that_do_not_act_are_left_out(kind):
    """Agent 0 acts all five steps of an episode, agent 1 the first three, nobody ever in environment 2."""

    def active(step: int) -> torch.Tensor:
        acts = torch.tensor([True, step < 3]).repeat(4, 1)
        acts[2] = False
        return acts

    env = World(4, BOX, near_first, agents=2, active=active)
    run = iterated(of_world(kind, env, num_envs=4), 10)
    rows = stored(run)
    assert len(rows["obs"]) == 2 * 3 * (5 + 3)
    assert rows["obs"].isfinite().all() and rows["reward"].isfinite().all()
    assert rows["next_obs"].isnan().any()  # of who finished, whose discount is 0
    obs, acts = env.reset()[0], active(0)
    assert run.act(obs).shape == (4, 2, 2)
    assert torch.equal(run.act(obs, active=acts), torch.where(acts.unsqueeze(2), run.act(obs), 0))
    told = run.statistics()
    assert told["episode_length"] == 4.0 and math.isfinite(told["critic_loss"])


# ---- how much, and how often -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_envs", "horizon", "ratio"), [(1, 4, 0.25), (16, 2, 0.25), (128, 1, 1.0), (2, 1, 2.0)])
def test_updates_are_counted_by_steps_of_single_environments(kind, num_envs, horizon, ratio):
    given = {"num_envs": num_envs, "horizon": horizon, "total_steps": 512, "learning_starts": 256}
    run = of_world(kind, Boxed(num_envs), **given, replay_ratio=ratio, batch_size=4)
    while run.iteration < run.iterations:
        run.iterate()
        late = max(0, run.env_steps - 256 + num_envs * horizon)
        assert run.updates == late * ratio
        assert all(adam.state["steps"] == run.updates for name, adam in run.adams.items() if "critic" in name)


@pytest.mark.parametrize(
    ("num_envs", "ratio", "every", "after"),
    [
        (8, 0.25, 1, [1, 2, 3, 4, 5, 6, 7, 8]),  # once for each update at most
        (8, 0.25, 8, [2, 4, 6, 8]),
        (32, 0.25, 8, [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32]),  # within an iteration of 8 updates
        (8, 0.125, 24, [3]),
        (8, 0.25, 20, [6]),  # 5 updates, after the two of an iteration
        (64, 0.03125, 80, [4, 6, 8]),  # 2.5 updates
    ],
)
def test_target_networks_change_every_so_many_steps_of_single_environments(kind, num_envs, ratio, every, after):
    run = of_world(kind, Boxed(num_envs), num_envs=num_envs, replay_ratio=ratio, target_every=every)
    moves = []
    run._move_targets = lambda times: moves.extend([run.updates] * times)
    assert iterated(run, 4).updates == 4 * num_envs * ratio
    assert moves == after


@pytest.mark.parametrize(("every", "tau"), [(1, 0.25), (3, 1.0)])
def test_target_networks_go_their_share_of_the_way(kind, every, tau):
    """One update in each iteration of eight steps."""
    run = of_world(kind, replay_ratio=0.125, target_every=8 * every, tau=tau)
    for _ in range(7):
        before = {name: target.parameters.clone() for name, target in run.targets.items()}
        run.iterate()
        for name, old in before.items():
            moved = (1 - tau) * old + tau * run.networks[name].parameters
            expected = old if run.updates % every else moved
            torch.testing.assert_close(run.targets[name].parameters, expected)


def test_networks_begin_apart_and_their_targets_with_them(kind):
    run = of_world(kind)
    numbers = [network.parameters[:8] for network in run.networks.values()]
    assert len({tuple(row.tolist()) for row in numbers}) == len(numbers)
    for name, target in run.targets.items():
        assert torch.equal(target.parameters, run.networks[name].parameters)
        assert target.parameters.data_ptr() != run.networks[name].parameters.data_ptr()


def test_the_share_of_uniform_actions_falls_linearly(kind):
    run = of_world(kind, epsilon_start=0.9, epsilon_end=0.1, epsilon_steps=400)
    assert [run.epsilon(steps) for steps in (0, 100, 200, 400, 800)] == pytest.approx([0.9, 0.7, 0.5, 0.1, 0.1])
    assert iterated(run, 25).statistics()["epsilon"] == pytest.approx(0.5)


def test_uniform_actions_fill_their_bounds(kind):
    """20,000 numbers of U(-1, 1): the share below -0.5 is 1/4, and the mean square 1/3."""
    given = {"num_envs": 1000, "total_steps": 10_000, "capacity": 10_000, "replay_ratio": 0.0}
    uniform = {"epsilon_start": 1.0, "epsilon_end": 1.0}
    run = iterated(of_world(kind, World(1000, UNIT, near_first), **given, **uniform), 10)
    action = stored(run)["action"]
    assert (action < -0.5).float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert action.square().mean().item() == pytest.approx(1 / 3, abs=0.02)
    torch.manual_seed(0)
    drawn = run.act(torch.zeros(5000, 3), greedy=False)
    assert (drawn < -0.5).float().mean().item() == pytest.approx(0.25, abs=0.02)


def test_correlated_noise_has_its_correlation_and_the_deviation_of_white_noise(kind):
    """20,000 rows from the first step on: a standard normal number, whose correlation with the one before is 0.9."""
    given = {"num_envs": 20_000, "total_steps": 20_000, "capacity": 40_000, "replay_ratio": 0.0}
    run = of_world(kind, World(20_000, UNIT, near_first), **given, noise_correlation=0.9)
    steps = [run._exploring(20_000, run.generator).clone() for _ in range(100)]
    for noise in (steps[0], steps[1], steps[-1]):
        assert noise.std().item() == pytest.approx(1, abs=0.02) and noise.mean().item() == pytest.approx(0, abs=0.02)
    for before, after in (steps[:2], steps[-2:]):
        assert (before * after).mean().item() == pytest.approx(0.9, abs=0.02)
    torch.manual_seed(0)
    own = run._exploring(5, None)
    torch.manual_seed(0)
    assert torch.equal(own, run._exploring(5, None))  # of this step alone


# ---- what is learnt --------------------------------------------------------------------------------------------------


def test_it_learns_which_action_is_right(kind):
    """The best action is the observation's first components, within [-1, 1]; the Box is as large."""
    given = {"num_envs": 64, "total_steps": 64 * 40, "capacity": 10_000, "batch_size": 64, "hidden": (32, 32)}
    run = of_world(kind, World(64, UNIT, near_first), **given, gamma=0.0, lr=1e-2, epsilon_steps=1000)
    iterated(run, run.iterations)
    obs = torch.randn(1000, 3, generator=torch.Generator().manual_seed(1))
    assert near_first(obs, run.act(obs)).mean() > -0.1 > near_first(obs, torch.zeros(1000, 2)).mean()


VALUES = [(("truncated",), [2.0] * 5), (("terminated",), [1.9375, 1.875, 1.75, 1.5, 1.0])]


class Cycle(Boxed):
    """A clock that shows 0 at the end of an episode, so that every observation has a step after it."""

    def _observe(self) -> torch.Tensor:
        return super()._observe() % self.limit


@pytest.mark.parametrize(("ends", "values"), VALUES)
@pytest.mark.parametrize("n_step", [1, 3])
def test_a_limit_of_time_is_no_end_of_reward(kind, ends, values, n_step):
    """Of 1 at each step, discounted by 0.5: 2 without an end; sums over the steps left before one."""
    entropy = {"learn_alpha": False, "alpha": 1e-8} if kind.name == "sac" else {}
    given = {"num_envs": 10, "total_steps": 2000, "replay_ratio": 0.2, "target_every": 100, "tau": 1.0}
    run = of_world(kind, Cycle(10, ends), **given, **entropy, n_step=n_step, gamma=0.5, lr=1e-2, hidden=(32,))
    iterated(run, run.iterations)
    obs = torch.arange(5.0).view(5, 1)
    action = run.squash.mode(run.networks["actor"](obs))
    for name, critic in run.networks.items():
        if "critic" in name:
            found = critic(torch.cat([obs, action], dim=1)).flatten().tolist()
            assert found == pytest.approx(values, abs=0.1)


# ---- that a run can go on --------------------------------------------------------------------------------------------

GO_ON = {"num_envs": 16, "total_steps": 16 * 40, "learning_starts": 64, "epsilon_steps": 400, "n_step": 3}
GO_ON |= {"noise_correlation": 0.5}


def test_a_run_that_was_interrupted_is_the_same_to_the_last_bit(kind):
    whole = iterated(kind("pendulum", config(kind, **GO_ON)), 30)
    first = iterated(kind("pendulum", config(kind, **GO_ON)), 13)
    state = first.state()
    iterated(first, 5)  # what happens afterwards does not change what was kept
    second = iterated(kind("pendulum", config(kind, **GO_ON)), 3)
    second.load_state(state)
    requires_equal(iterated(second, 17).state(), whole.state())
    assert whole.updates == (480 - 64 + 16) / 4


def test_a_checkpoint_is_continued_and_used(kind, tmp_path):
    whole = training.train(kind, "pendulum", config(kind, **GO_ON))
    half = config(kind, **GO_ON, eval_every=320)
    training.train(kind, "pendulum", half, output=tmp_path, check=lambda run: True)
    resumed = training.train(kind, "pendulum", half, output=tmp_path, resume=tmp_path)
    requires_equal(resumed.state(), whole.state())
    used, obs = training.load(kind, tmp_path), torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(used.act(obs), whole.act(obs))
    further = training.train(kind, "pendulum", config(kind, total_steps=8, learning_starts=32), init_from=tmp_path)
    requires_equal(further.weights(), whole.weights())
    for name, target in further.targets.items():
        assert torch.equal(target.parameters, whole.networks[name].parameters)


# ---- what a run says of itself ---------------------------------------------------------------------------------------


def test_a_reward_that_is_not_finite_ends_the_run_and_spares_the_parameters(kind, tmp_path):
    env = World(8, BOX, lambda obs, action: torch.full((8,), float("nan")))
    env.state, env.set_state = lambda: {"time": env.time}, lambda state: None
    with pytest.raises(
        FloatingPointError, match="since the last row .* updates' gradients were not finite; no step was made of them"
    ):
        training.train(kind, env, config(kind), output=tmp_path)
    kept, fresh = checkpoint.load(tmp_path / "checkpoint.pt")["states"][0], of_world(kind)
    critics = [name for name in fresh.networks if "critic" in name]
    assert all(kept[name].isfinite().all() for name in fresh.networks)
    assert critics and all(torch.equal(kept[name], fresh.networks[name].parameters) for name in critics)


BAD = [
    (lambda kind: config(kind, num_envs=64, total_steps=63), "total_steps=63 must be at least one iteration"),
    (lambda kind: config(kind, squash="sin"), "squash='sin' must be one of 'tanh', 'atan'"),
    (lambda kind: config(kind, n_step=0), r"n_step=0 must lie in \[1, ...\]"),
    (lambda kind: kind("pendulum", {}), r"config must be a \w+.Config, as \w+.config_of makes it, not a dict"),
    (lambda kind: kind("cartpole", config(kind)), "no squash into action space Discrete"),
    (lambda kind: of_world(kind, Crew(8)), "agents use 2 and 5 numbers of an action; each must use all"),
    (lambda kind: of_world(kind, World(4, BOX, near_first)), "the environment has num_envs=4; this run needs 8"),
    (
        lambda kind: of_world(kind, capacity=47, n_step=3),
        "capacity=47 must be at least 2 x n_step x rows of a step = 48",
    ),
    (lambda kind: of_world(kind).load_state(of_world(kind).state()), "World has no state"),
    (
        lambda kind: of_world(kind).load_weights(of_world(kind, hidden=(8,)).weights()),
        r"state\['actor'\] must have the shape",
    ),
]


@pytest.mark.parametrize(("call", "sentence"), BAD)
def test_bad_input_is_refused(kind, call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(kind)


# ---- what runs where -------------------------------------------------------------------------------------------------


def test_an_iteration_waits_for_nothing(kind):
    run = iterated(kind("pendulum", config(kind, num_envs=64, n_step=3, total_steps=6400)), 4)
    with Counted() as counted:
        run.iterate()
    assert not counted.waits


@pytest.mark.gpu
@pytest.mark.parametrize("graph", ["auto", "off"])
def test_on_a_gpu_no_iteration_waits_and_it_goes_on(kind, graph):
    given = config(kind, num_envs=64, n_step=3, total_steps=6400, graph=graph)
    run = iterated(kind("pendulum", given, "cuda"), 4)
    other = kind("pendulum", given, "cuda")
    other.load_state(run.state())
    with nothing_waiting():
        iterated(run, 3)
    assert run.statistics()["episodes"] >= 0
    requires_equal(iterated(other, 3).weights(), run.weights())


# ---- as a command, and whether it learns -----------------------------------------------------------------------------


def test_the_command_trains_and_plays_in_the_original(kind, tmp_path, monkeypatch, capsys):
    arguments = ["pendulum", "--seed", "1", "--total-steps", "1280", "--episodes", "2", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [kind.name, *arguments, "--quiet", "--hidden", "16", "--threads", "1"])
    command_line.main(kind.name)
    assert capsys.readouterr().out.startswith("1,280 steps; mean return of 2 episodes in the original:")
    assert training.load(kind, tmp_path).env_steps == 1280


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_it_swings_the_pendulum_up(kind, seed):
    """Its environment's aim, reached by the recipe: -200 over 100 episodes that no training saw."""
    settings = config_of(kind, "pendulum", seed=seed, threads=1)
    run = training.train(kind, "pendulum", settings)
    assert run.env_steps == dataclasses.asdict(settings)["total_steps"]
    assert training.evaluation.in_original("pendulum", run.act).returns.mean() > -200


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(recipes.load("mountain_car_continuous").keys() & set(NAMES)))
def test_it_drives_up_the_mountain(name):
    """Gymnasium's threshold, reached by the recipe: 90 over 100 episodes that no training saw."""
    kind = agents.algorithm(name)
    run = training.train(kind, "mountain_car_continuous", config_of(kind, "mountain_car_continuous", threads=1))
    assert training.evaluation.in_original("mountain_car_continuous", run.act).returns.mean() > 90
