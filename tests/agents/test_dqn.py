"""DQN: what it stores, what it learns from it, and that a run can go on."""

import collections
import dataclasses
import math
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch.nn.functional import linear, smooth_l1_loss
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep.agents import dqn
from lockstep.agents.dqn import DQN, Config
from lockstep.agents.parts import transitions
from lockstep.agents.run import checkpoint, command_line, training
from lockstep.agents.run.config import replaced
from tests.agents.worlds import Clock, World, first_is_right

SMALL = Config(num_envs=8, total_steps=8 * 100, capacity=100, learning_starts=0, replay_ratio=0.25, hidden=(16,))


def changed(**changes) -> Config:
    return replaced(SMALL, changes)


def iterated(run: DQN, iterations: int) -> DQN:
    for _ in range(iterations):
        run.iterate()
    return run


def stored(run: DQN) -> dict[str, torch.Tensor]:
    """The rows of the replay, by place."""
    return {name: rows[: int(run.replay.size)] for name, rows in run.replay.rows.items()}


def mutant(module: types.ModuleType, name: str, old: str, new: str) -> type:
    """A class of a copy of the module with one place changed."""
    source = Path(module.__file__).read_text()
    assert source.count(old) == 1, old
    copy = {"__name__": "mutant"}
    exec(compile(source.replace(old, new), "mutant", "exec"), copy)
    return copy[name]


# ---- what is stored --------------------------------------------------------------------------------------------------


def requires_whole_transitions(kind: type[DQN], ends: tuple[str, ...]) -> None:
    """Clocks of five steps: whatever ends an episode, after step 4 comes 5, and not the next episode's 0."""
    run = iterated(kind(Clock(8, limit=5, ends=ends), kind.Config(**dataclasses.asdict(SMALL))), 10)
    rows = stored(run)
    assert len(rows["obs"]) == 80
    assert torch.equal(rows["next_obs"], rows["obs"] + 1)
    assert torch.equal(rows["terminated"], (rows["obs"][:, 0] == 4) & ("terminated" in ends))
    # in the order of steps, and within a step of environments
    expected = (torch.arange(10).view(10, 1) + torch.arange(8)) % 5
    assert torch.equal(rows["obs"].view(10, 8), expected.float())
    assert (rows["reward"] == 1).all()


@pytest.mark.parametrize("ends", [("truncated",), ("terminated",), ("terminated", "truncated")])
def test_a_transition_ends_where_its_episode_does(ends):
    requires_whole_transitions(DQN, ends)


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


def requires_own_observations(kind: type[DQN]) -> None:
    rows = stored(iterated(kind(OneBuffer(8), kind.Config(**dataclasses.asdict(SMALL))), 10))
    assert torch.equal(rows["next_obs"], rows["obs"] + 1)


def test_an_environment_may_reuse_its_buffers():
    requires_own_observations(DQN)


def test_an_action_is_stored_with_the_observation_that_it_was_chosen_for():
    run = iterated(DQN(World(8), changed(epsilon_start=0.5, epsilon_end=0.5)), 10)
    rows = stored(run)
    assert torch.equal(rows["reward"], first_is_right(rows["obs"], rows["action"]))


def test_agents_that_do_not_act_are_left_out():
    """Agent 0 acts all five steps of an episode, agent 1 the first three, nobody ever in environment 2."""

    def active(step: int) -> torch.Tensor:
        acts = torch.tensor([True, step < 3]).repeat(4, 1)
        acts[2] = False
        return acts

    env = World(4, agents=2, active=active)
    run = iterated(DQN(env, changed(num_envs=4, horizon=1, capacity=1000)), 10)
    rows = stored(run)
    assert len(rows["obs"]) == 2 * 3 * (5 + 3)
    assert rows["obs"].isfinite().all()
    assert rows["reward"].isfinite().all()
    assert run.act(env.reset()[0]).shape == (4, 2)
    figures = run.statistics()
    assert (figures["episodes"], figures["episode_length"]) == (2 * 3 * 2, 4.0)
    assert math.isfinite(figures["loss"])


# ---- what is learnt --------------------------------------------------------------------------------------------------


def with_values(kind: type[DQN], online: tuple, target: tuple, **row) -> DQN:
    """A run whose networks have these values of two actions everywhere, with a replay of one row over and over."""
    config = dataclasses.asdict(changed(gamma=0.9, max_grad_norm=1e9, capacity=8)) | row.pop("config", {})
    run = kind(Clock(8), kind.Config(**config))
    for network, values in ((run.online, online), (run.target, target)):
        network.parameters.zero_()
        network.layers[-1][1].copy_(torch.tensor(values))
    row = {"obs": [1.0], "next_obs": [2.0], "action": 0, "reward": 0.5, "terminated": False} | row
    run.replay.add({name: torch.tensor([value] * 8) for name, value in row.items()})
    return run


TARGETS = [  # double, terminated; loss |1 - target| - 1/2, or half its square, and the derivative by the value
    (False, False, 8.0, -1.0),  # target 0.5 + 0.9 * 10 = 9.5
    (True, False, 3.5, -1.0),  # the second action seems best, and is worth 0.5 + 0.9 * 5 = 5
    (False, True, 0.125, 0.5),  # 0.5
    (True, True, 0.125, 0.5),
]


def requires_targets(kind: type[DQN], double: bool, terminated: bool, loss: float, slope: float) -> None:
    run = with_values(kind, (1.0, 2.0), (10.0, 5.0), terminated=terminated, config={"double": double})
    run._updates(3)
    figures = run.statistics()  # of three updates, whose steps of Adam change little
    run = with_values(kind, (1.0, 2.0), (10.0, 5.0), terminated=terminated, config={"double": double})
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
    target = rows["reward"] + 0.9 * following.gather(1, best)[:, 0] * ~rows["terminated"]
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
        ReplayBufferSamples(obs, action[:, None], next_obs, terminated[:, None].float(), reward[:, None])
        for obs, action, next_obs, terminated, reward in zip(
            *(rows[name] for name in ("obs", "action", "next_obs", "terminated", "reward")), strict=True
        )
    )
    peer._setup_learn(1)
    peer.replay_buffer.sample = lambda *_, **__: next(batches)
    peer.train(3, 32)
    with torch.no_grad():
        run._updates(3)
    found = torch.cat([parameter.detach().flatten() for parameter in peer.q_net.parameters()])
    torch.testing.assert_close(run.online.parameters, found, rtol=0, atol=1e-5)


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
def test_a_limit_of_time_is_no_end_of_reward(ends, values):
    config = changed(
        num_envs=10,
        total_steps=8000,
        capacity=1000,
        replay_ratio=0.2,
        target_every=100,
        tau=1.0,
        gamma=0.9,
        lr=1e-2,
        hidden=(32,),
    )
    run = DQN(Cycle(10, ends=ends), config)
    iterated(run, run.iterations)
    found = run.online(torch.arange(5.0).view(5, 1)).amax(dim=1)
    np.testing.assert_allclose(found, values, rtol=0, atol=0.3)


@pytest.mark.parametrize("double", [False, True])
def test_it_learns_which_action_is_right(double):
    config = changed(total_steps=8 * 500, capacity=5000, epsilon_steps=2000, lr=1e-2, gamma=0.5, double=double)
    run = DQN(World(8), config)
    iterated(run, run.iterations)
    obs = torch.randn(1000, 3, generator=torch.Generator().manual_seed(1))
    assert first_is_right(obs, run.act(obs)).mean() > 0.95


# ---- how much, and how often -----------------------------------------------------------------------------------------


def requires_ratio(kind: type[DQN], num_envs: int, horizon: int, ratio: float) -> None:
    config = changed(num_envs=num_envs, horizon=horizon, total_steps=640, learning_starts=128, replay_ratio=ratio)
    run = kind(Clock(num_envs), kind.Config(**dataclasses.asdict(config)))
    while run.iteration < run.iterations:
        run.iterate()
        late = max(0, run.env_steps - config.learning_starts + num_envs * horizon)
        assert int(run.adam.state["steps"]) == late * ratio


@pytest.mark.parametrize(
    ("num_envs", "horizon", "ratio"),
    [(1, 4, 0.25), (4, 1, 0.25), (64, 1, 0.25), (16, 2, 0.25), (64, 2, 1.0), (2, 1, 2.0)],
)
def test_updates_are_counted_by_steps_of_single_environments(num_envs, horizon, ratio):
    """AT_ONCE = 64 is more than the updates of an iteration, as many, and half as many."""
    requires_ratio(DQN, num_envs, horizon, ratio)


def test_the_share_of_random_actions_falls_linearly():
    run = DQN(Clock(8), changed(epsilon_start=0.9, epsilon_end=0.1, epsilon_steps=400))
    assert [run.epsilon(steps) for steps in (0, 100, 200, 400, 800)] == pytest.approx([0.9, 0.7, 0.5, 0.1, 0.1])
    at_once = DQN(Clock(8), changed(epsilon_start=0.9, epsilon_end=0.1, epsilon_steps=0))
    assert at_once.epsilon(0) == 0.1
    assert iterated(run, 25).statistics()["epsilon"] == pytest.approx(0.5)


@pytest.mark.parametrize(("epsilon", "share"), [(0.0, 1.0), (1.0, 0.25), (0.4, 0.7)])
def test_so_many_actions_are_random(epsilon, share):
    """Of four actions a random one is the best in a quarter of cases."""
    env = World(1000, Discrete(4), lambda obs, action: obs[:, 0])
    config = changed(num_envs=1000, total_steps=10_000, capacity=10_000, replay_ratio=0, epsilon_start=epsilon)
    run = iterated(DQN(env, replaced(config, {"epsilon_end": epsilon})), 10)
    rows = stored(run)
    greedy = rows["action"] == run.act(rows["obs"])
    assert greedy.float().mean().item() == pytest.approx(share, abs=0.02)
    assert rows["action"][~greedy].unique().tolist() == ([] if epsilon == 0 else [0, 1, 2, 3])
    torch.manual_seed(0)
    drawn = run.act(rows["obs"], greedy=False) == run.act(rows["obs"])
    assert drawn.float().mean().item() == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("tau", [1.0, 0.25])
def test_the_target_network_follows_now_and_then(tau):
    run = DQN(World(8), changed(target_every=24, tau=tau))
    moves = []
    for _ in range(9):
        before = run.target.parameters.clone()
        run.iterate()
        moves.append(not torch.equal(run.target.parameters, before))
        there = (1 - tau) * before + tau * run.online.parameters if moves[-1] else before
        torch.testing.assert_close(run.target.parameters, there)
    assert moves == [False, False, True] * 3


def test_the_learning_rate_falls_to_0():
    run, constant = (DQN(Clock(8), changed(lr=0.5, anneal_lr=anneal)) for anneal in (True, False))
    rates = [(iterated(run, 1).lr, iterated(constant, 1).lr) for _ in range(4)]
    assert rates == [(pytest.approx(0.5 * (1 - k / 100)), 0.5) for k in range(1, 5)]


# ---- that a run can go on --------------------------------------------------------------------------------------------

GO_ON = changed(num_envs=16, total_steps=16 * 60, capacity=500, learning_starts=64, epsilon_steps=400, target_every=48)


def test_a_run_that_was_interrupted_is_the_same_to_the_last_bit():
    whole = iterated(DQN("cartpole", GO_ON), 50)
    first = iterated(DQN("cartpole", GO_ON), 20)
    state = first.state()
    iterated(first, 5)  # what happens afterwards does not change what was kept
    second = iterated(DQN("cartpole", replaced(GO_ON, {})), 3)
    second.load_state(state)
    iterated(second, 30)
    assert second.env_steps == whole.env_steps == 800
    requires_equal(second.state(), whole.state())


def requires_equal(one, other) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            requires_equal(one[key], other[key])
    else:
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_a_checkpoint_is_continued_and_used(tmp_path):
    half = replaced(GO_ON, {"save_every": 160})
    whole = dqn.train("cartpole", GO_ON)

    def stop(run: DQN) -> bool:
        return True

    dqn.train("cartpole", replaced(half, {"eval_every": 480}), output=tmp_path, check=stop)
    resumed = dqn.train("cartpole", half, output=tmp_path, resume=tmp_path)
    requires_equal(resumed.state(), whole.state())
    used = dqn.load(tmp_path)
    obs = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(used.act(obs), whole.act(obs))
    further = dqn.train("cartpole", replaced(GO_ON, {"total_steps": 16, "learning_starts": 32}), init_from=tmp_path)
    assert torch.equal(further.online.parameters, whole.online.parameters)
    assert torch.equal(further.target.parameters, whole.online.parameters)
    header, *rows = (tmp_path / training.PROGRESS).read_text().splitlines()
    assert header.split(",")[-4:] == ["loss", "q_value", "grad_norm", "epsilon"]
    assert int(rows[-1].split(",")[1]) == 960


def test_same_seed_same_numbers_other_seed_other_ones():
    one, same, other = (iterated(DQN("cartpole", replaced(GO_ON, {"seed": seed})), 20) for seed in (1, 1, 2))
    requires_equal(one.state(), same.state())
    assert not torch.equal(one.online.parameters, other.online.parameters)
    assert not torch.equal(one.replay.rows["obs"], other.replay.rows["obs"])


# ---- what a run says of itself ---------------------------------------------------------------------------------------


def test_episodes_are_counted_where_the_environment_does_not():
    run = iterated(DQN(Clock(8, limit=4), SMALL), 10)
    told = run.statistics()
    # environments 0 to 3 end after 4, 3, 2, 1 steps and then every 4; of so many episodes the first 6 began late
    lengths = [length for first in (4, 3, 2, 1) * 2 for length in [first] + [4] * ((10 - first) // 4)]
    assert told["episodes"] == len(lengths)
    assert told["episode_length"] == told["episode_return"] == pytest.approx(np.mean(lengths))
    assert set(told) == {"episodes", "episode_return", "episode_length", *DQN.COLUMNS}
    assert math.isnan(iterated(run, 0).statistics()["loss"])


def test_a_reward_that_is_not_finite_ends_the_run_and_spares_the_parameters(tmp_path):
    env = World(8, reward=lambda obs, action: torch.full((8,), float("nan")))
    env.state, env.set_state = lambda: {"time": env.time}, lambda state: None
    with pytest.raises(FloatingPointError, match=r"gradients were not finite; no step was made of them; the param"):
        dqn.train(env, SMALL, output=tmp_path)
    kept = checkpoint.load(tmp_path / "checkpoint.pt")["states"][0]
    assert kept["parameters"].isfinite().all()
    assert kept["adam"]["first"].isfinite().all()
    fresh = DQN(env, SMALL)
    assert torch.equal(kept["parameters"], fresh.online.parameters)


class Boxed(World):
    def __init__(self):
        super().__init__(8, Box(-1, 1, (1,)))


BAD = [
    (lambda: Config(batch_size=0), r"batch_size=0 must lie in \[1, ...\]"),
    (lambda: Config(gamma=1.5), r"gamma=1.5 must lie in \[0, 1\]"),
    (lambda: Config(double=1), "double=1 must be True or False"),
    (
        lambda: Config(num_envs=64, total_steps=63),
        "total_steps=63 must be at least one iteration, num_envs x horizon = 64",
    ),
    (
        lambda: Config(num_envs=3, replay_ratio=0.5),
        "replay_ratio=0.5 x num_envs=3 x horizon=1 is 1.5 updates per iteration; it must be a whole number",
    ),
    (lambda: dqn.config_of("cartpole", "solve", learning_rate=1.0), "Config has no field 'learning_rate'"),
    (lambda: dqn.config_of("pendulum"), "the key 'dqn' is missing"),
    (lambda: DQN("cartpole", {}), "config must be a dqn.Config, as dqn.config_of makes it, not a dict"),
    (lambda: DQN("cartpol", SMALL), "cartpole"),
    (lambda: DQN("pendulum", SMALL), "no values for action space Box"),
    (lambda: DQN(Boxed(), SMALL), "it must be Discrete and count its actions from 0"),
    (lambda: DQN(World(8, Discrete(2, start=1)), SMALL), "it must be Discrete and count its actions from 0"),
    (lambda: DQN(World(4), SMALL), "the environment has num_envs=4; this run needs 8"),
    (
        lambda: DQN(World(8, mask=torch.ones(2, dtype=torch.bool)), SMALL),
        "infos have 'action_mask', but actions of a Discrete cannot be masked",
    ),
    (lambda: DQN("cartpole", changed(capacity=7)).iterate(), "8 rows at once do not fit a replay of capacity=7"),
    (lambda: DQN(World(8), SMALL).load_state(DQN(World(8), SMALL).state()), "World has no state"),
    (
        lambda: DQN("cartpole", SMALL).load_weights(DQN("cartpole", changed(hidden=(8,))).weights()),
        r"state\['parameters'\] must have the shape",
    ),
]


@pytest.mark.parametrize(("call", "sentence"), BAD)
def test_bad_input_is_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


# ---- what runs where -------------------------------------------------------------------------------------------------

# Operations whose results the host must know before it can go on.
WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2", "equal", "item", "is_nonzero"}


class Counted(TorchDispatchMode):
    """The operations of torch by name."""

    def __init__(self):
        super().__init__()
        self.found = collections.Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.found[function.overloadpacket.__name__] += 1
        return function(*args, **kwargs or {})


@pytest.mark.parametrize("env", ["cartpole", "acrobot", World])
def test_an_iteration_waits_for_nothing_and_an_update_is_few_operations(env):
    config = changed(num_envs=64, total_steps=6400, capacity=1000, hidden=(16, 16))
    run = iterated(DQN(env if isinstance(env, str) else env(64), config), 2)
    with Counted() as counted:
        run.iterate()
    assert not WAITS & set(counted.found)
    assert "_to_copy" not in counted.found or counted.found["_to_copy"] <= 64  # of types, on one device
    with Counted() as one:
        run._updates(1)
    with Counted() as several:
        run._updates(33)
    assert (several.found.total() - one.found.total()) / 32 <= 60


@pytest.mark.gpu
@pytest.mark.parametrize("env", ["cartpole", "acrobot"])
def test_on_a_gpu_no_iteration_waits(env):
    run = iterated(DQN(env, changed(num_envs=64, total_steps=6400, capacity=1000), "cuda"), 2)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        iterated(run, 3)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert run.statistics()["episodes"] >= 0


@pytest.mark.gpu
def test_on_a_gpu_it_learns_and_goes_on():
    config = changed(num_envs=64, total_steps=64 * 40, capacity=1000)
    whole, first = iterated(DQN("cartpole", config, "cuda"), 40), iterated(DQN("cartpole", config, "cuda"), 15)
    second = DQN("cartpole", config, "cuda")
    second.load_state(first.state())
    assert torch.equal(iterated(second, 25).online.parameters, whole.online.parameters)


# ---- as a command ----------------------------------------------------------------------------------------------------


def test_the_command_trains_and_plays_in_the_original(tmp_path, monkeypatch, capsys):
    arguments = ["cartpole", "--seed", "1", "--total-steps", "1280", "--episodes", "2", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["dqn", *arguments, "--quiet", "--hidden", "16"])
    command_line.main("dqn")
    assert capsys.readouterr().out.startswith("1,280 steps; mean return of 2 episodes in the original:")
    assert dqn.load(tmp_path).env_steps == 1280


# ---- each trap has a test that it fails ------------------------------------------------------------------------------

STORING = {
    "crosses a reset": ("torch.where(ended.unsqueeze(1), last, self.obs)", "self.obs", ("truncated",)),
    "next episode after a terminated one": ("ended = terminated | truncated", "ended = truncated", ("terminated",)),
    "truncation as termination": ('"terminated": terminated}', '"terminated": ended}', ("truncated",)),
    "no terminal rows": ("return rows, valid", "return rows, ~terminated", ("terminated",)),
    "a view of the environment's buffer": ("self.N, -1).to(torch.float32, copy=True)\n", "self.N, -1)\n", OneBuffer),
}
LEARNING = {
    "value after the end": ('.masked_fill_(rows["terminated"].unsqueeze(1), 0.0)', "", requires_targets, *TARGETS[2]),
    "no target network": ('self.target(rows["next', 'self.online(rows["next', requires_targets, *TARGETS[0]),
    "chosen by the target network": ("kept[-1][k:].argmax", "target.argmax", requires_targets, *TARGETS[1]),
    "squared error": ("error.clamp(-1.0, 1.0)", "error", requires_targets, *TARGETS[0]),
    "updates by steps of the batch": ("_ratio * config.num_envs", "_ratio * 4", requires_ratio, 64, 1, 0.25),
}


@pytest.mark.parametrize(("old", "new", "trap"), STORING.values(), ids=STORING)
def test_each_trap_of_storing_is_noticed(old, new, trap, monkeypatch):
    monkeypatch.setattr(dqn, "Transitions", mutant(transitions, "Transitions", old, new))
    with pytest.raises(AssertionError):
        requires_own_observations(DQN) if trap is OneBuffer else requires_whole_transitions(DQN, trap)


@pytest.mark.parametrize(("old", "new", "require", "given"), [(*m[:3], m[3:]) for m in LEARNING.values()], ids=LEARNING)
def test_each_trap_of_learning_is_noticed(old, new, require, given):
    with pytest.raises(AssertionError):
        require(mutant(dqn, "DQN", old, new), *given)
