"""Contract of algorithms that learn from a replay, whatever their actions: limits of time, checkpoints, processes."""

import types

import pytest
import torch

import lockstep
from lockstep import agents
from lockstep.agents.parts import off_policy
from lockstep.agents.parts.continuous import Continuous
from lockstep.agents.parts.off_policy import OffPolicy
from lockstep.agents.run import training
from tests.agents import test_continuous, test_discrete
from tests.agents.test_discrete import iterated, stored, terminated
from tests.agents.worlds import Clock

NAMES = [name for name in agents.names() if issubclass(agents.algorithm(name), OffPolicy)]


@pytest.fixture(params=NAMES)
def kind(request) -> type[OffPolicy]:
    return agents.algorithm(request.param)


def of_clock(kind: type[OffPolicy], **changes) -> OffPolicy:
    """A run on eight clocks of five steps, whose episodes a limit of time ends."""
    if issubclass(kind, Continuous):
        clock, made = test_continuous.Boxed(8), test_continuous
    else:
        clock, made = Clock(8), test_discrete
    clock.state, clock.set_state = dict, lambda state: None
    return kind(clock, made.config(kind, **changes))


@pytest.mark.parametrize("limit_ends", [False, True])
def test_a_limit_of_time_counts_as_an_end_where_it_is_asked_for(kind, limit_ends):
    rows = stored(iterated(of_clock(kind, limit_ends=limit_ends), 10))
    assert torch.equal(terminated(rows), (rows["obs"][:, 0] == 4) & limit_ends)


def test_without_its_replay_a_run_fills_one_anew_before_it_learns(kind):
    given = {"save_replay": False, "learning_starts": 40}
    first = iterated(of_clock(kind, **given), 10)
    state = first.state()
    assert "replay" not in state and first.learns
    second = of_clock(kind, **given)
    second.load_state(state)
    assert second.env_steps == 80 and second.replay.size == 0
    before = second.weights()
    iterated(second, 4)
    assert not second.learns and all(torch.equal(part, before[name]) for name, part in second.weights().items())
    iterated(second, 2)
    assert second.learns and not any(torch.equal(part, before[name]) for name, part in second.weights().items())


def test_who_has_the_weights_alone_explores_as_its_training_did_in_the_end(kind, tmp_path):
    environment, made = ("pendulum", test_continuous) if issubclass(kind, Continuous) else ("cartpole", test_discrete)
    config = made.config(kind, epsilon_start=1.0, epsilon_end=0.25, epsilon_steps=40, total_steps=80)
    trained = training.train(kind, environment, config, output=tmp_path)
    actor = kind(environment, kind.to_act(config))
    actor.load_weights(trained.weights())
    anew = training.load(kind, tmp_path, environment=environment)
    obs = lockstep.make(environment, 50).reset(seed=1)[0]

    def sampled(run: OffPolicy) -> torch.Tensor:
        torch.manual_seed(0)
        return run.act(obs, greedy=False)

    assert actor.env_steps == anew.env_steps == 0
    assert not torch.equal(sampled(trained), trained.act(obs))
    assert torch.equal(sampled(actor), sampled(trained)) and torch.equal(sampled(anew), sampled(trained))


@pytest.mark.parametrize(("field", "value"), [("num_envs", 9), ("batch_size", 15)])
def test_processes_have_equal_parts(kind, field, value, monkeypatch):
    two = types.SimpleNamespace(size=2, rank=0, device=torch.device("cpu"))
    monkeypatch.setattr(off_policy, "Ranks", lambda device: two)
    with pytest.raises(ValueError, match=f"{field}={value} must be divisible by the number of processes, 2"):
        of_clock(kind, replay_ratio=1.0, **{field: value})
