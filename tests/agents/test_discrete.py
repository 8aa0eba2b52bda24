"""Contract of algorithms that learn values of Discrete actions: rows stored, updates due, runs continued."""

import collections
import math
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep import agents
from lockstep.agents.parts import off_policy, transitions
from lockstep.agents.parts.discrete import Values
from lockstep.agents.parts.off_policy import OffPolicy
from lockstep.agents.run import checkpoint, command_line, training
from lockstep.agents.run.config import config_of, replaced
from tests.agents.graphs import nothing_waiting, waits
from tests.agents.worlds import Clock, World, first_is_right

SMALL = {"num_envs": 8, "total_steps": 8 * 100, "capacity": 128, "learning_starts": 0, "replay_ratio": 0.25}
NAMES = [name for name in agents.names() if issubclass(agents.algorithm(name), Values)]


@pytest.fixture(params=NAMES)
def kind(request) -> type[Values]:
    return agents.algorithm(request.param)


PLAIN = {"n_step": 1, "sigma": 0.0}  # of those that have them: rows of one step, and no noise but epsilon


def config(kind: type[Values], **changes):
    """A small run; what shapes a network by a number becomes 16."""
    default = kind.Config()
    narrow = {name: 16 for name in kind.SHAPES if type(getattr(default, name)) is int} | {"hidden": (16,)}
    plain = {name: value for name, value in PLAIN.items() if hasattr(default, name)}
    return replaced(default, SMALL | narrow | plain | changes)


def iterated(run, iterations: int):
    for _ in range(iterations):
        run.iterate()
    return run


def stored(run) -> dict[str, torch.Tensor]:
    """The rows of the replay, by place."""
    return {name: rows[: int(run.replay.size)] for name, rows in run.replay.rows.items()}


def terminated(rows: dict[str, torch.Tensor]) -> torch.Tensor:
    """Those after which nothing follows."""
    return rows["discount"] == 0


def mutant(module: types.ModuleType, name: str, old: str, new: str) -> type:
    """A class of a copy of the module with one place changed."""
    source = Path(module.__file__).read_text()
    assert source.count(old) == 1, old
    copy = {"__name__": "mutant", "__package__": module.__package__}
    exec(compile(source.replace(old, new), "mutant", "exec"), copy)
    return copy[name]


def requires_equal(one, other) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            requires_equal(one[key], other[key])
    else:
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_there_are_such_algorithms():
    assert NAMES


# ---- what is stored --------------------------------------------------------------------------------------------------


def requires_whole_transitions(kind: type[Values], ends: tuple[str, ...]) -> None:
    """Clocks of five steps: whatever ends an episode, after step 4 comes 5, and not the next episode's 0."""
    rows = stored(iterated(kind(Clock(8, limit=5, ends=ends), config(kind)), 10))
    assert len(rows["obs"]) == 80
    assert torch.equal(rows["next_obs"], rows["obs"] + 1)
    assert torch.equal(terminated(rows), (rows["obs"][:, 0] == 4) & ("terminated" in ends))
    # in the order of steps, and within a step of environments
    expected = (torch.arange(10).view(10, 1) + torch.arange(8)) % 5
    assert torch.equal(rows["obs"].view(10, 8), expected.float())
    assert (rows["reward"] == 1).all()


@pytest.mark.parametrize("ends", [("truncated",), ("terminated",), ("terminated", "truncated")])
def test_a_transition_ends_where_its_episode_does(kind, ends):
    requires_whole_transitions(kind, ends)


class OneBuffer(Clock):
    """A clock that writes over the observations that it gave."""

    def __init__(self, num_envs: int):
        super().__init__(num_envs)
        self.buffer = torch.zeros(num_envs, 1)

    def reset(self, seed=None):
        return self.buffer.copy_(super().reset(seed)[0]), {}

    def step(self, action: torch.Tensor):
        obs, *rest = super().step(action)
        return self.buffer.copy_(obs), *rest


def requires_own_observations(kind: type[Values]) -> None:
    rows = stored(iterated(kind(OneBuffer(8), config(kind)), 10))
    assert torch.equal(rows["next_obs"], rows["obs"] + 1)


def test_an_environment_may_reuse_its_buffers(kind):
    requires_own_observations(kind)


def test_an_action_is_stored_with_the_observation_that_it_was_chosen_for(kind):
    rows = stored(iterated(kind(World(8), config(kind, epsilon_start=0.5, epsilon_end=0.5)), 10))
    assert torch.equal(rows["reward"], first_is_right(rows["obs"], rows["action"]))


def test_agents_that_do_not_act_are_left_out(kind):
    """Agent 0 acts all five steps of an episode, agent 1 the first three, nobody ever in environment 2."""

    def active(step: int) -> torch.Tensor:
        acts = torch.tensor([True, step < 3]).repeat(4, 1)
        acts[2] = False
        return acts

    env = World(4, agents=2, active=active)
    run = iterated(kind(env, config(kind, num_envs=4, horizon=1, capacity=1000)), 10)
    rows = stored(run)
    assert len(rows["obs"]) == 2 * 3 * (5 + 3)
    assert rows["obs"].isfinite().all()
    assert rows["reward"].isfinite().all()
    assert run.act(env.reset()[0]).shape == (4, 2)
    figures = run.statistics()
    assert (figures["episodes"], figures["episode_length"]) == (2 * 3 * 2, 4.0)
    assert math.isfinite(figures["loss"])


def test_returns_of_several_steps_are_those_of_one_episode(kind):
    """A clock that gives 1: 1.9 of two steps, and from the last step 1, before the final observation 5."""
    rows = stored(iterated(kind(Clock(8), config(kind, gamma=0.9, n_step=2)), 10))
    obs = rows["obs"][:, 0]
    torch.testing.assert_close(rows["reward"], torch.where(obs == 4, 1.0, 1.9))
    torch.testing.assert_close(rows["next_obs"][:, 0], (obs + 2).clamp(max=5))
    torch.testing.assert_close(rows["discount"], torch.where(obs == 4, 0.9, 0.81))


# ---- what is learnt --------------------------------------------------------------------------------------------------


class Cycle(Clock):
    """A clock that shows 0 at the end of an episode, so that every observation has a step after it."""

    def _observe(self) -> torch.Tensor:
        return super()._observe() % self.limit


VALUES = [  # of steps 0 to 4 of a clock that gives 1 at each, discounted by 0.9
    (("truncated",), [10.0] * 5),  # 1 / (1 - 0.9)
    (("terminated",), [4.0951, 3.439, 2.71, 1.9, 1.0]),  # sum of 0.9^k over the steps that are left
    (("terminated", "truncated"), [4.0951, 3.439, 2.71, 1.9, 1.0]),
]


@pytest.mark.parametrize(("ends", "values"), VALUES)
def test_a_limit_of_time_is_no_end_of_reward(kind, ends, values):
    given = {"num_envs": 10, "total_steps": 8000, "capacity": 1000, "replay_ratio": 0.2, "target_every": 100}
    run = kind(Cycle(10, ends=ends), config(kind, **given, tau=1.0, gamma=0.9, lr=1e-2, hidden=(32,)))
    iterated(run, run.iterations)
    found = run._values(torch.arange(5.0).view(5, 1)).amax(dim=1)
    np.testing.assert_allclose(found, values, rtol=0, atol=0.3)


def test_it_learns_which_action_is_right(kind):
    run = kind(World(8), config(kind, total_steps=8 * 500, capacity=5000, epsilon_steps=2000, lr=1e-2, gamma=0.5))
    iterated(run, run.iterations)
    obs = torch.randn(1000, 3, generator=torch.Generator().manual_seed(1))
    assert first_is_right(obs, run.act(obs)).mean() > 0.95


# ---- how much, and how often -----------------------------------------------------------------------------------------


def requires_ratio(kind: type[Values], num_envs: int, horizon: int, ratio: float) -> None:
    given = {"num_envs": num_envs, "horizon": horizon, "total_steps": 640, "learning_starts": 128}
    run = kind(Clock(num_envs), config(kind, **given, replay_ratio=ratio))
    while run.iteration < run.iterations:
        run.iterate()
        late = max(0, run.env_steps - run.config.learning_starts + num_envs * horizon)
        assert int(run.adam.state["steps"]) == late * ratio


@pytest.mark.parametrize(
    ("num_envs", "horizon", "ratio"),
    [(1, 4, 0.25), (4, 1, 0.25), (64, 1, 0.25), (16, 2, 0.25), (64, 2, 1.0), (2, 1, 2.0)],
)
def test_updates_are_counted_by_steps_of_single_environments(kind, num_envs, horizon, ratio):
    """AT_ONCE = 64 is more than the updates of an iteration, as many, and half as many."""
    requires_ratio(kind, num_envs, horizon, ratio)


def test_the_share_of_random_actions_falls_linearly(kind):
    run = kind(Clock(8), config(kind, epsilon_start=0.9, epsilon_end=0.1, epsilon_steps=400))
    assert [run.epsilon(steps) for steps in (0, 100, 200, 400, 800)] == pytest.approx([0.9, 0.7, 0.5, 0.1, 0.1])
    at_once = kind(Clock(8), config(kind, epsilon_start=0.9, epsilon_end=0.1, epsilon_steps=0))
    assert at_once.epsilon(0) == 0.1
    assert iterated(run, 25).statistics()["epsilon"] == pytest.approx(0.5)


@pytest.mark.parametrize(("epsilon", "share"), [(0.0, 1.0), (1.0, 0.25), (0.4, 0.7)])
def test_so_many_actions_are_random(kind, epsilon, share):
    """Of four actions a random one is the best in a quarter of cases."""
    env = World(1000, Discrete(4), lambda obs, action: obs[:, 0])
    given = {"num_envs": 1000, "total_steps": 10_000, "capacity": 10_000, "replay_ratio": 0}
    run = iterated(kind(env, config(kind, **given, epsilon_start=epsilon, epsilon_end=epsilon)), 10)
    rows = stored(run)
    greedy = rows["action"] == run.act(rows["obs"])
    assert greedy.float().mean().item() == pytest.approx(share, abs=0.02)
    assert greedy.all() if epsilon == 0 else rows["action"].unique().tolist() == [0, 1, 2, 3]
    torch.manual_seed(0)
    drawn = run.act(rows["obs"], greedy=False) == run.act(rows["obs"])
    assert drawn.float().mean().item() == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("tau", [1.0, 0.25])
def test_the_target_network_follows_now_and_then(kind, tau):
    run = kind(World(8), config(kind, target_every=24, tau=tau))
    moves = []
    for _ in range(9):
        before = run.target.parameters.clone()
        run.iterate()
        moves.append(not torch.equal(run.target.parameters, before))
        there = (1 - tau) * before + tau * run.online.parameters if moves[-1] else before
        torch.testing.assert_close(run.target.parameters, there)
    assert moves == [False, False, True] * 3


@pytest.mark.parametrize(
    ("num_envs", "horizon", "ratio", "every", "after"),
    [
        (4, 1, 0.25, 16, [4, 8, 12, 16, 20, 24, 28, 32]),
        (64, 1, 0.25, 16, [4, 8, 12, 16, 20, 24, 28, 32]),  # within an iteration of 16 updates
        (16, 4, 0.25, 16, [4, 8, 12, 16, 20, 24, 28, 32]),
        (64, 1, 0.25, 24, [8, 12, 20, 24, 32]),  # of 6 updates, which do not divide 16: after the 4 that reach them
        (64, 1, 0.25, 36, [16, 24, 32]),  # of 9 updates, after the 8 that reach them
        (4, 1, 0.25, 2, [number for number in range(1, 33) for _ in range(2)]),
        (64, 1, 0.25, 2, [number for number in range(1, 33) for _ in range(2)]),
        (2, 1, 0.25, 2, [number // 2 for number in range(1, 65)]),  # half an update in each iteration
    ],
)
def test_the_target_network_follows_every_so_many_steps_of_single_environments(
    kind, num_envs, horizon, ratio, every, after
):
    given = {"num_envs": num_envs, "horizon": horizon, "total_steps": 128, "capacity": 128, "batch_size": 4}
    run, moves = kind(Clock(num_envs), config(kind, **given, replay_ratio=ratio, target_every=every)), []
    run._move_targets = lambda times: moves.extend([int(run.adam.state["steps"])] * times)
    iterated(run, run.iterations)
    assert int(run.adam.state["steps"]) == 128 * ratio and moves == after


def test_changes_that_are_due_together_are_as_far_as_one_by_one(kind):
    run = kind(Clock(8), config(kind, tau=0.25))
    run.online.parameters.add_(1.0)
    expected = run.target.parameters.clone()
    for _ in range(3):
        expected.lerp_(run.online.parameters, 0.25)
    run._move_targets(0)
    assert not torch.equal(run.target.parameters, expected)
    run._move_targets(3)
    torch.testing.assert_close(run.target.parameters, expected)


def test_the_learning_rate_falls_to_0(kind):
    run, constant = (kind(Clock(8), config(kind, lr=0.5, anneal_lr=anneal)) for anneal in (True, False))
    rates = [[iterated(one, 1).scheduled()["lr"] for one in (run, constant)] for _ in range(4)]
    assert rates == [[[pytest.approx(0.5 * (1 - k / 100))], [0.5]] for k in range(1, 5)]


# ---- that a run can go on --------------------------------------------------------------------------------------------

GO_ON = {"num_envs": 16, "total_steps": 16 * 60, "capacity": 500, "learning_starts": 64, "epsilon_steps": 400}
GO_ON |= {"target_every": 48, "n_step": 3}


def test_a_run_that_was_interrupted_is_the_same_to_the_last_bit(kind):
    whole = iterated(kind("cartpole", config(kind, **GO_ON)), 50)
    first = iterated(kind("cartpole", config(kind, **GO_ON)), 20)
    state = first.state()
    iterated(first, 5)  # what happens afterwards does not change what was kept
    second = iterated(kind("cartpole", config(kind, **GO_ON)), 3)
    second.load_state(state)
    iterated(second, 30)
    assert second.env_steps == whole.env_steps == 800
    requires_equal(second.state(), whole.state())


def test_a_checkpoint_is_continued_and_used(kind, tmp_path):
    given = config(kind, **GO_ON)
    half = replaced(given, {"save_every": 160})
    whole = training.train(kind, "cartpole", given)

    def stop(run: Values) -> bool:
        return True

    training.train(kind, "cartpole", replaced(half, {"eval_every": 480}), output=tmp_path, check=stop)
    resumed = training.train(kind, "cartpole", half, output=tmp_path, resume=tmp_path)
    requires_equal(resumed.state(), whole.state())
    used = training.load(kind, tmp_path)
    obs = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(used.act(obs), whole.act(obs))
    short = replaced(given, {"total_steps": 16, "learning_starts": 32})
    further = training.train(kind, "cartpole", short, init_from=tmp_path)
    assert torch.equal(further.online.parameters, whole.online.parameters)
    assert torch.equal(further.target.parameters, whole.online.parameters)
    header, *rows = (tmp_path / training.PROGRESS).read_text().splitlines()
    assert header.split(",")[-4:] == ["loss", "q_value", "grad_norm", "epsilon"]
    assert int(rows[-1].split(",")[1]) == 960


def test_same_seed_same_numbers_other_seed_other_ones(kind):
    one, same, other = (iterated(kind("cartpole", config(kind, **GO_ON, seed=seed)), 20) for seed in (1, 1, 2))
    requires_equal(one.state(), same.state())
    assert not torch.equal(one.online.parameters, other.online.parameters)
    assert not torch.equal(one.replay.rows["obs"], other.replay.rows["obs"])


# ---- what a run says of itself ---------------------------------------------------------------------------------------


def test_episodes_are_counted_where_the_environment_does_not(kind):
    run = iterated(kind(Clock(8, limit=4), config(kind)), 10)
    told = run.statistics()
    # environments 0 to 3 end after 4, 3, 2, 1 steps and then every 4; of so many episodes the first 6 began late
    lengths = [length for first in (4, 3, 2, 1) * 2 for length in [first] + [4] * ((10 - first) // 4)]
    assert told["episodes"] == len(lengths)
    assert told["episode_length"] == told["episode_return"] == pytest.approx(np.mean(lengths))
    assert set(told) == {"episodes", "episode_return", "episode_length", *kind.COLUMNS}
    assert math.isnan(iterated(run, 0).statistics()["loss"])


def test_a_reward_that_is_not_finite_ends_the_run_and_spares_the_parameters(kind, tmp_path):
    env = World(8, reward=lambda obs, action: torch.full((8,), float("nan")))
    env.state, env.set_state = lambda: {"time": env.time}, lambda state: None
    with pytest.raises(FloatingPointError, match=r"gradients were not finite; no step was made of them; the param"):
        training.train(kind, env, config(kind), output=tmp_path)
    kept = checkpoint.load(tmp_path / "checkpoint.pt")["states"][0]
    assert kept["parameters"].isfinite().all()
    assert kept["adam"]["first"].isfinite().all()
    assert torch.equal(kept["parameters"], kind(env, config(kind)).online.parameters)


class Boxed(World):
    def __init__(self):
        super().__init__(8, Box(-1, 1, (1,)))


BAD = [
    (lambda kind: config(kind, batch_size=0), r"batch_size=0 must lie in \[1, ...\]"),
    (lambda kind: config(kind, gamma=1.5), r"gamma=1.5 must lie in \[0, 1\]"),
    (lambda kind: config(kind, anneal_lr=1), "anneal_lr=1 must be True or False"),
    (
        lambda kind: config(kind, num_envs=64, total_steps=63),
        "total_steps=63 must be at least one iteration, num_envs x horizon = 64",
    ),
    (lambda kind: config_of(kind, "cartpole", "solve", learning_rate=1.0), "Config has no field 'learning_rate'"),
    (lambda kind: config_of(kind, "pendulum"), r"the key '\w+' is missing"),
    (lambda kind: kind("cartpole", {}), r"config must be a \w+.Config, as \w+.config_of makes it, not a dict"),
    (lambda kind: kind("cartpol", config(kind)), "cartpole"),
    (lambda kind: kind("pendulum", config(kind)), "no values for action space Box"),
    (lambda kind: kind(Boxed(), config(kind)), "it must be Discrete and count its actions from 0"),
    (lambda kind: kind(World(8, Discrete(2, start=1)), config(kind)), "must be Discrete and count its actions from 0"),
    (lambda kind: kind(World(4), config(kind)), "the environment has num_envs=4; this run needs 8"),
    (
        lambda kind: kind(World(8, mask=torch.ones(2, dtype=torch.bool)), config(kind)),
        "infos have 'action_mask', but actions of a Discrete cannot be masked",
    ),
    (
        lambda kind: kind("cartpole", config(kind, capacity=7)).iterate(),
        "8 rows at once do not fit a replay of capacity=7|capacity=7 must be at least 2 x n_step x rows",
    ),
    (
        lambda kind: kind(World(8), config(kind)).load_state(kind(World(8), config(kind)).state()),
        "World has no state",
    ),
    (
        lambda kind: kind("cartpole", config(kind)).load_weights(kind("cartpole", config(kind, hidden=(8,))).weights()),
        r"state\['parameters'\] must have the shape",
    ),
]


@pytest.mark.parametrize(("call", "sentence"), BAD)
def test_bad_input_is_refused(kind, call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(kind)


# ---- what runs where -------------------------------------------------------------------------------------------------


class Counted(TorchDispatchMode):
    """The operations of torch by name, and those of them at which the host waits for a device."""

    def __init__(self):
        super().__init__()
        self.found, self.waits = collections.Counter(), set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.found[function.overloadpacket.__name__] += 1
        if waits(function, args):
            self.waits.add(function.overloadpacket.__name__)
        return function(*args, **kwargs or {})


@pytest.mark.parametrize("env", ["cartpole", "acrobot", World])
def test_an_iteration_waits_for_nothing(kind, env):
    given = config(kind, num_envs=64, total_steps=6400, capacity=1000, hidden=(16, 16))
    run = iterated(kind(env if isinstance(env, str) else env(64), given), 2)
    with Counted() as counted:
        run.iterate()
    assert not counted.waits
    assert "_to_copy" not in counted.found or counted.found["_to_copy"] <= 64  # of types, on one device


def test_rows_that_a_mask_chooses_are_waited_for():
    numbers = torch.arange(4.0)
    with Counted() as counted:
        numbers.where(numbers > 1, 0)
        assert not counted.waits
        numbers[numbers > 1]
    assert counted.waits == {"index"}


@pytest.mark.gpu
@pytest.mark.parametrize("graph", ["auto", "off"])
@pytest.mark.parametrize("env", ["cartpole", "acrobot"])
def test_on_a_gpu_no_iteration_waits(kind, env, graph):
    given = config(kind, num_envs=64, total_steps=6400, capacity=1000, graph=graph)
    run = iterated(kind(env, given, "cuda"), 2)
    with nothing_waiting():
        iterated(run, 3)
    assert run.statistics()["episodes"] >= 0


@pytest.mark.gpu
def test_on_a_gpu_it_learns_and_goes_on(kind):
    given = config(kind, num_envs=64, total_steps=64 * 40, capacity=1000)
    whole, first = iterated(kind("cartpole", given, "cuda"), 40), iterated(kind("cartpole", given, "cuda"), 15)
    second = kind("cartpole", given, "cuda")
    second.load_state(first.state())
    assert torch.equal(iterated(second, 25).online.parameters, whole.online.parameters)


# ---- as a command ----------------------------------------------------------------------------------------------------


def test_the_command_trains_and_plays_in_the_original(kind, tmp_path, monkeypatch, capsys):
    arguments = ["cartpole", "--seed", "1", "--total-steps", "1280", "--episodes", "2", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [kind.name, *arguments, "--quiet", "--hidden", "16"])
    command_line.main(kind.name)
    assert capsys.readouterr().out.startswith("1,280 steps; mean return of 2 episodes in the original:")
    assert training.load(kind, tmp_path).env_steps == 1280


# ---- each trap has a test that it fails ------------------------------------------------------------------------------

STORING = {
    "crosses a reset": ("torch.where(ended.unsqueeze(1), last, self.obs)", "self.obs", ("truncated",)),
    "next episode after a terminated one": ("ended = terminated | truncated", "ended = truncated", ("terminated",)),
    "truncation as termination": ('"terminated": terminated}', '"terminated": ended}', ("truncated",)),
    "no terminal rows": ("return rows, valid", "return rows, ~terminated", ("terminated",)),
    "a view of the environment's buffer": ("self.obs.copy_(obs", "self.obs = (obs", OneBuffer),
}


@pytest.mark.parametrize(("old", "new", "trap"), STORING.values(), ids=STORING)
def test_each_trap_of_storing_is_noticed(kind, old, new, trap, monkeypatch):
    monkeypatch.setattr(off_policy, "Transitions", mutant(transitions, "Transitions", old, new))
    with pytest.raises(AssertionError):
        requires_own_observations(kind) if trap is OneBuffer else requires_whole_transitions(kind, trap)


def test_updates_counted_by_steps_of_the_batch_are_noticed(kind, monkeypatch):
    wrong = mutant(off_policy, "OffPolicy", "replay_ratio * self.config.num_envs", "replay_ratio * 4")
    monkeypatch.setattr(OffPolicy, "due", wrong.due)
    with pytest.raises(AssertionError):
        requires_ratio(kind, 64, 1, 0.25)
