"""Contract of algorithms that learn from a replay, whatever their actions: limits of time, checkpoints, processes."""

import dataclasses
import types

import pytest
import torch

import lockstep
from lockstep import agents
from lockstep.agents.parts import off_policy
from lockstep.agents.parts.continuous import Continuous
from lockstep.agents.parts.off_policy import OffPolicy
from lockstep.agents.run import checkpoint, training
from lockstep.agents.run.config import replaced
from lockstep.envs import checks
from tests.agents import test_continuous, test_discrete
from tests.agents.test_algorithms import same
from tests.agents.test_discrete import Counted, iterated, stored, terminated
from tests.agents.worlds import BOX, Clock, World

NAMES = [name for name in agents.names() if issubclass(agents.algorithm(name), OffPolicy)]


@pytest.fixture(params=NAMES)
def kind(request) -> type[OffPolicy]:
    return agents.algorithm(request.param)


def of_clock(kind: type[OffPolicy], num_envs: int = 8, **changes) -> OffPolicy:
    """A run on clocks of five steps, whose episodes a limit of time ends."""
    if issubclass(kind, Continuous):
        clock, made = test_continuous.Boxed(num_envs), test_continuous
    else:
        clock, made = Clock(num_envs), test_discrete
    clock.state, clock.set_state = dict, lambda state: None
    return kind(clock, made.config(kind, num_envs=num_envs, **changes))


def counting(run: OffPolicy) -> list[int]:
    """The updates of a run from now on, chunk by chunk, which it counts instead of making them."""
    made = []
    run._updates = made.append
    return made


def played(kind: type[OffPolicy], **changes) -> tuple[str, object]:
    """An environment with actions that an algorithm takes, and a small configuration."""
    if issubclass(kind, Continuous):
        return "pendulum", test_continuous.config(kind, **changes)
    return "cartpole", test_discrete.config(kind, **changes)


def test_help_says_what_is_counted_over_all_processes(kind):
    help_of = {field.name: field.metadata["help"] for field in dataclasses.fields(kind.Config)}
    assert all(help_of[name].endswith(", over all processes") for name in ("capacity", "batch_size"))


@pytest.mark.parametrize("num_envs", [1, 2, 6])
def test_updates_that_are_no_whole_number_are_carried_on(kind, num_envs):
    run = of_clock(kind, num_envs, replay_ratio=0.25)
    made = counting(run)
    for iteration in range(1, 13):
        run.iterate()
        assert sum(made) == iteration * num_envs // 4


def test_what_is_carried_on_is_part_of_the_state(kind):
    """Of 1.5 updates an iteration one is made in the first, and with its rest two in the second."""
    first, second = (of_clock(kind, 6, replay_ratio=0.25) for _ in range(2))
    second.load_state(iterated(first, 1).state())
    made = counting(second)
    second.iterate()
    assert made == [1, 1] and "owed" not in of_clock(kind, 8, replay_ratio=0.25).state()


def test_rounding_makes_no_part_of_an_update(kind):
    """0.07 x 100 is 7.000000000000001 in floating point, and ten times 0.1 is less than 1."""
    assert of_clock(kind, 100, replay_ratio=0.07, capacity=200).due == 7
    run = of_clock(kind, 1, replay_ratio=0.1)
    made = counting(run)
    assert [sum(made) for _ in range(30) if iterated(run, 1)] == [number // 10 for number in range(1, 31)]


def test_nothing_is_learnt_before_returns_of_several_steps_are_known(kind):
    run = of_clock(kind, n_step=3, learning_starts=0)
    made = counting(run)
    assert [sum(made) > 0 for _ in range(4) if iterated(run, 1)] == [False, False, True, True]
    assert int(run.replay.size) > 0


def test_rewards_are_learnt_from_times_their_scale_and_told_without_it(kind):
    run = iterated(of_clock(kind, reward_scale=100.0), 10)
    assert stored(run)["reward"].tolist() == [100.0] * len(stored(run)["reward"])
    assert run.statistics()["episode_return"] <= 5


def test_who_only_acts_needs_no_memory_for_a_replay(kind):
    environment, config = played(kind)
    actor = kind(environment, kind.to_act(config))
    actor.act(actor.env.reset(seed=0)[0])
    actor.replay.clear()
    assert not {"rows", "tree"} & set(vars(actor.replay))
    actor.iterate()
    assert "rows" in vars(actor.replay)


def test_a_replay_that_does_not_fit_is_refused_at_once_to_who_learns_alone(kind, monkeypatch):
    monkeypatch.setattr(checks, "available_memory", lambda device: 2**30)
    environment, config = played(kind, capacity=2**31 - 1)
    with pytest.raises(MemoryError, match="^capacity=2147483647 needs .* would fit$"):
        kind(environment, config)
    actor = kind(environment, kind.to_act(config))
    assert actor.act(actor.env.reset(seed=0)[0]).isfinite().all()
    with pytest.raises(MemoryError, match="^capacity=2147483647 needs .* would fit$"):
        actor.iterate()


@pytest.mark.parametrize("kept", [True, False])
def test_a_checkpoint_with_or_without_its_replay_is_continued_with_the_other_setting(kind, kept, tmp_path):
    given = {"num_envs": 16, "total_steps": 16 * 40, "learning_starts": 64, "save_replay": kept, "eval_every": 320}
    environment, config = played(kind, **given)
    half = training.train(kind, environment, config, output=tmp_path, check=lambda run: True)
    other = replaced(config, {"save_replay": not kept})
    whole = training.train(kind, environment, other, output=tmp_path, resume=tmp_path)
    assert half.env_steps == 320 and whole.env_steps == 640
    assert int(whole.replay.written) == (640 if kept else 320)
    assert ("replay" in checkpoint.load(tmp_path / "checkpoint.pt")["states"][0]) == (not kept)


@pytest.mark.parametrize("older", [False, True])
def test_a_checkpoint_of_another_device_is_loaded_and_continued_with_random_numbers_of_this_one(kind, older, tmp_path):
    """A generator's state has 16 bytes on CUDA, 5,056 on the CPU; of before it was told, the size says which it is."""
    environment, config = played(kind, num_envs=16, total_steps=16 * 40, learning_starts=64, eval_every=320)
    half = training.train(kind, environment, config, output=tmp_path, check=lambda run: True)
    content = checkpoint.load(tmp_path / "checkpoint.pt")
    (state,) = content["states"]
    assert state["device"] == "cpu" and len(state["generator"]) == 5056
    if older:
        del state["device"]
        checkpoint.save(tmp_path / "same.pt", content)
        assert same(training.load(kind, tmp_path / "same.pt").state(), half.state())
    state |= {"generator": torch.arange(16, dtype=torch.uint8)} | ({} if older else {"device": "cuda"})
    checkpoint.save(tmp_path / "other.pt", content)
    loaded, seeded = training.load(kind, tmp_path / "other.pt"), kind(environment, config).generator.get_state()
    assert same(loaded.state(), half.state() | {"generator": seeded})
    obs = lockstep.make(environment, 50).reset(seed=1)[0]
    assert torch.equal(loaded.act(obs), half.act(obs))
    whole = training.train(kind, environment, config, resume=tmp_path / "other.pt")
    assert whole.env_steps == 640 and not same(whole.weights(), half.weights())


def test_a_generator_of_another_size_on_the_same_device_is_refused(kind, tmp_path):
    environment, config = played(kind, total_steps=8)
    training.train(kind, environment, config, output=tmp_path)
    content = checkpoint.load(tmp_path / "checkpoint.pt")
    content["states"][0]["generator"] = torch.arange(16, dtype=torch.uint8)
    checkpoint.save(tmp_path / "checkpoint.pt", content)
    with pytest.raises(ValueError, match=r"state\['generator'\] must have the shape \[5056\], has \[16\]"):
        training.load(kind, tmp_path)


@pytest.mark.parametrize(("field", "value"), [("raw_obs", True), ("norm_obs", True), ("squash", "sin")])
def test_weights_that_mean_something_else_are_refused(kind, field, value, tmp_path):
    environment, config = played(kind, total_steps=8)
    if not hasattr(config, field):
        pytest.skip("has no such setting")
    if field == "squash":
        value = next(form for form in ("tanh", "atan") if form != config.squash)
    training.train(kind, environment, config, output=tmp_path)
    with pytest.raises(
        ValueError, match=f"does not fit these networks: .*{field} is .* in the checkpoint and {value!r}"
    ):
        training.train(kind, environment, replaced(config, {field: value}), init_from=tmp_path)


# ---- observations by their mean and deviation ------------------------------------------------------------------------


def parameters(run: OffPolicy) -> dict:
    """The numbers of a run's networks."""
    return {name: part for name, part in run.weights().items() if name != "normaliser"}


def test_statistics_are_those_of_the_observations_that_were_stored(kind):
    """Of two agents, one finished after three of five steps; what stands in other rows may be anything."""

    def active(step: int) -> torch.Tensor:
        return torch.tensor([True, step < 3]).repeat(8, 1)

    space = {"action_space": BOX} if issubclass(kind, Continuous) else {}
    env = World(8, **space, reward=lambda obs, action: torch.ones(8, 2), agents=2, active=active)
    made = test_continuous if issubclass(kind, Continuous) else test_discrete
    run = iterated(kind(env, made.config(kind, norm_obs=True, replay_ratio=0.0, capacity=1000)), 10)
    obs, found = stored(run)["obs"].double(), run.normaliser
    assert len(obs) == found.count == 8 * 2 * (5 + 3)
    torch.testing.assert_close(found.mean[0], obs.mean(dim=0))
    torch.testing.assert_close(found.squares[0] / found.count, obs.var(dim=0, correction=0))
    seen = run.seen(stored(run)["obs"])
    torch.testing.assert_close(seen.mean(dim=0), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(seen.std(dim=0, correction=0), torch.ones(3))


def test_an_update_has_observations_and_targets_by_the_same_statistics(kind):
    """It is that of a run whose replay was normalised before."""
    run, plain = (of_clock(kind, norm_obs=norm, learning_starts=800, capacity=200) for norm in (True, False))
    iterated(run, 10)
    kept = run.replay.state()
    rows = kept["rows"] | {name: run.normaliser(kept["rows"][name]) for name in ("obs", "next_obs")}
    assert not torch.equal(rows["obs"], kept["rows"]["obs"])
    plain.replay.load_state(kept | {"rows": rows})
    plain.generator.set_state(run.generator.get_state())
    begun, statistics, plain.iteration = parameters(run), run.normaliser.state(), run.iteration
    for one in (run, plain):
        one._schedule()
        one.phases["update"]()
        one.phases["update"]()
    assert same(parameters(run), parameters(plain)) and not same(parameters(run), begun)
    assert same(run.normaliser.state(), statistics)  # which stored observations alone move


def test_a_policy_acts_and_explores_on_normalised_observations(kind):
    environment, config = played(kind, norm_obs=True, total_steps=80)
    run, plain = (kind(environment, replaced(config, {"norm_obs": norm})) for norm in (True, False))
    iterated(run, 10)
    run.load_weights({**run.weights(), **{name: 3 * part for name, part in parameters(run).items()}})
    plain.load_weights(parameters(run))
    n = run.env.single_observation_space.shape[-1]
    obs = 3 * torch.randn(50, n, generator=torch.Generator().manual_seed(0))
    before, found = run.state(), run.act(obs)
    assert torch.equal(found, plain.act(run.normaliser(obs))) and not torch.equal(found, plain.act(obs))
    torch.testing.assert_close(run.module()(obs).to(found.dtype), found)
    drawn = []
    for one, x in ((run, obs), (plain, run.normaliser(obs))):
        torch.manual_seed(0)
        drawn.append(one.act(x, greedy=False))
    assert torch.equal(*drawn) and same(run.state(), before)
    seen, actor = [], run._drawn
    run._drawn = lambda x, *given: (seen.append(x), actor(x, *given))[1]
    expected = run.seen(run.transitions.obs)
    if issubclass(kind, Continuous):
        expected = run.networks["actor"](expected)
    run.phases["rollout"]()
    assert torch.equal(seen[0], expected)


def test_a_run_that_normalises_goes_on_bit_for_bit_and_waits_for_nothing(kind, tmp_path):
    environment, config = played(kind, norm_obs=True, total_steps=8 * 40, n_step=3, eval_every=160)
    whole = training.train(kind, environment, config)
    training.train(kind, environment, config, output=tmp_path, check=lambda run: True)
    resumed = training.train(kind, environment, config, output=tmp_path, resume=tmp_path)
    assert same(resumed.state(), whole.state())
    used = training.load(kind, tmp_path)
    assert same(used.weights(), whole.weights()) and used.normaliser.count == 320
    with Counted() as counted:
        whole.iterate()
    assert not counted.waits


def test_a_checkpoint_from_before_there_was_a_setting_has_its_default(kind, tmp_path):
    environment, config = played(kind, total_steps=8)
    training.train(kind, environment, config, output=tmp_path)
    content = checkpoint.load(tmp_path / "checkpoint.pt")
    del content["config"]["norm_obs"]
    checkpoint.save(tmp_path / "checkpoint.pt", content)
    training.train(kind, environment, config, init_from=tmp_path)
    with pytest.raises(ValueError, match="norm_obs is False in the checkpoint and True here"):
        training.train(kind, environment, replaced(config, {"norm_obs": True}), init_from=tmp_path)


def test_weights_with_statistics_are_refused_by_a_run_without(kind):
    with pytest.raises(ValueError, match="state has a 'normaliser', for which norm_obs must be True here"):
        of_clock(kind).load_weights(of_clock(kind, norm_obs=True).weights())
    with pytest.raises(ValueError, match="state has no 'normaliser'"):
        of_clock(kind, norm_obs=True).load_weights(of_clock(kind).weights())


def test_parts_of_an_observation_are_not_normalised(kind):
    with pytest.raises(ValueError, match="norm_obs=True needs encoding='flat', not 'objects': parts have scales"):
        kind.Config(norm_obs=True, encoding="objects")


def test_what_counts_the_steps_of_all_environments_is_told_how_many_there_are(monkeypatch):
    """Two processes of eight environments: a curriculum counts sixteen steps for each of theirs."""
    two = types.SimpleNamespace(size=2, rank=0, device=torch.device("cpu"), average=None)
    monkeypatch.setattr(off_policy, "Ranks", lambda device: two)
    asked = []
    make = lockstep.envs.make
    monkeypatch.setattr(
        lockstep.envs, "make", lambda *given, **options: asked.append(options) or make(*given, **options)
    )
    kind = agents.algorithm("dqn")
    config = test_discrete.config(kind, num_envs=16, total_steps=160, capacity=1000)
    for named in ("action_kind=discrete, curriculum=published", "action_kind=discrete"):
        kind("marine_navigation", replaced(config, {"options": named}))
    kind("marine_navigation", replaced(config, {"options": "action_kind=discrete, curriculum=published, batch=64"}))
    kind("cartpole", config)
    assert [options.get("batch") for options in asked] == [16, 16, 64, None]


def test_a_share_of_random_actions_that_is_asked_for_takes_the_place_of_the_last_one(kind):
    name, config = played(kind, epsilon_end=0.5)
    run = kind(name, config)
    obs = torch.randn(2000, run.env.single_observation_space.shape[0])
    drawn = {}
    for epsilon in (None, 0.5, 1):
        torch.manual_seed(0)
        drawn[epsilon] = run.act(obs, greedy=False, epsilon=epsilon)
    assert torch.equal(drawn[None], drawn[0.5]) and not torch.equal(drawn[None], drawn[1])
    for given in ({"epsilon": 0.5}, {"epsilon": 1.5, "greedy": False}, {"epsilon": True, "greedy": False}):
        with pytest.raises(ValueError, match=r"epsilon=\S+ must lie in \[0, 1\], with greedy=False"):
            run.act(obs, **given)


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
