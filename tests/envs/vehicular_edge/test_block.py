"""The machinery of block environments: batches, chunks, threads, autoreset, noise, state."""

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs import noise
from lockstep.envs.kernels import compile, structs
from lockstep.envs.spaces import ResetNeeded

SMALL = {"vehicles": 20, "edges": 4, "slots": 8, "components": 3, "scenarios": 3, "traffic": "dense"}


def make(num_envs: int, **options):
    return envs.make("vehicular_edge", num_envs, **{**SMALL, **options})


def buffers(env) -> dict[str, torch.Tensor]:
    """All that a batch has written, as bytes."""
    return {name: b.contiguous().view(torch.uint8).clone() for name, b in env._buffers.items() if b.numel()}


def played(env, steps: int = 11, seed: int = 3) -> dict[str, torch.Tensor]:
    env.reset(seed=seed)
    for _ in range(steps):
        env.step(env.random_actions()[0])
    return buffers(env)


def same(one: dict, other: dict):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


# ---- nothing depends on the batch


def test_one_environment_equals_its_row_of_a_batch():
    env = make(70)
    env.reset(seed=3)
    for _ in range(11):
        env.step(env.random_actions()[0])
    for index in (0, 33, 69):
        alone = make(1, first_index=index)
        alone.reset(seed=3)
        for _ in range(11):
            alone.step(alone.random_actions()[0])
        for name in ("state", "obs", "final_obs", "reward", "metrics", "episode_return", "scenario", "elapsed"):
            assert torch.equal(alone._buffers[name][0], env._buffers[name][index]), (name, index)


@pytest.mark.parametrize(
    "options", [{"chunk": 1}, {"chunk": 7}, {"chunk": 500}, {"threads": 2}, {"threads": 3, "chunk": 6}]
)
def test_chunks_and_threads_change_no_bit(options):
    same(played(make(20, threads=1)), played(make(20, **options)))


def test_twenty_steps_at_once_are_twenty_steps():
    stepped, fused = make(5), make(5)
    stepped.reset(seed=1)
    fused.reset(seed=1)
    for _ in range(20):
        stepped.step(stepped.random_actions()[0])
    fused.rollout(20)
    one, other = buffers(stepped), buffers(fused)
    for name in ("final_obs", "episode_return", "episode_length"):  # of episodes that ended within the rollout
        one.pop(name), other.pop(name)
    same(one, other)


# ---- what the compilers say


def test_fields_of_batch_and_tables_have_names_of_their_own():
    text = next(iter(envs.units("vehicular_edge").values()))
    tables, batch = list(structs.fields("Tables", text)), list(structs.fields("Batch", text))
    assert batch[:2] == ["state", "obs"]
    assert tables[:2] == ["cpu", "power"]
    # Those of the tables come last in the batch; a name of both would stand once, and further up.
    assert batch[-len(tables) :] == tables
    assert batch[-len(tables) - 1] == "scenarios"


@pytest.mark.slow
@pytest.mark.parametrize("target", compile.TARGETS)
def test_every_kernel_compiles_for_the_gpu_without_spilling_registers(target):
    for (mode, dtype, word), text in envs.units("vehicular_edge").items():
        if target != compile.TARGETS[-1] and word not in ("physical", "original"):
            continue  # both presets and types for every target, the rest for the last one
        rows = compile.resources(text, target)
        rollout = {"rollout_random"} if mode == "SameStep" else set()
        assert {used["kernel"] for used in rows} == {"step", "reset", "observe", "random_actions"} | rollout
        for used in rows:
            assert used["spill_store_bytes"] == used["spill_load_bytes"] == 0, (mode, dtype, word, used)
            assert used["stack_bytes"] == 0, (mode, dtype, word, used)


# ---- autoreset


def test_same_step_shows_the_last_observation_beside_the_first():
    env = make(3)
    env.reset(seed=0)
    total = torch.zeros(3)
    for t in range(8):
        obs, reward, terminated, truncated, info = env.step(env.random_actions()[0])
        total += reward[:, 0]
        assert truncated.tolist() == [t == 7] * 3
        assert not terminated.any()
    torch.testing.assert_close(info["episode_return"], total)
    assert info["episode_length"].tolist() == [8] * 3
    tasks = 2 * env.params.target_length
    assert (info["final_obs"][:, :, :tasks] == 0).all()  # no tasks after the last slot
    assert (obs[:, :, :tasks] > 0).any()
    assert (obs[:, 0, tasks : tasks + env.params.clients] == 0).all()  # empty queues
    assert (info["final_obs"][:, 0, tasks : tasks + env.params.clients] > 0).any()


def test_next_step_resets_in_a_step_of_its_own():
    env = make(2, autoreset_mode="NextStep")
    env.reset(seed=0)
    for _ in range(8):
        obs, _, _, truncated, info = env.step(env.random_actions()[0])
    assert truncated.all()
    assert torch.equal(obs, info["final_obs"])
    obs, reward, _, truncated, info = env.step(env.random_actions()[0])
    assert info["is_reset"].all()
    assert not truncated.any()
    assert (reward == 0).all()
    assert env.state()["t"].tolist() == [0, 0]
    *_, info = env.step(env.random_actions()[0])
    assert not info["is_reset"].any()
    assert env.state()["t"].tolist() == [1, 1]


def test_disabled_stands_still_until_a_masked_reset():
    env = make(3, autoreset_mode="Disabled", check_actions=False)
    env.reset(seed=0)
    for _ in range(8):
        env.step(env.random_actions()[0])
    before = env.state()
    _, reward, _, truncated, _ = env.step(env.random_actions()[0])
    assert truncated.all()
    assert (reward == 0).all()
    assert torch.equal(env.state()["state"], before["state"])
    env.reset(options={"reset_mask": np.array([False, True, False])})
    assert env.state()["t"].tolist() == [8, 0, 8]
    assert env.state()["episode"].tolist() == [0, 1, 0]


def test_disabled_names_the_environment_that_needs_a_reset():
    env = make(2, autoreset_mode="Disabled")
    env.reset(seed=0)
    for _ in range(8):
        env.step(env.random_actions()[0])
    with pytest.raises(ValueError, match="environment 0 has ended"):
        env.step(env.random_actions()[0])


# ---- noise


def test_random_actions_are_the_documented_philox_numbers():
    env = make(2, first_index=5)
    env.reset(seed=11)
    env.rollout(3)
    length = 2 * env.params.action_length
    words = noise.philox((np.array([[5], [6]]), np.arange(-(-length // 4)), 4, noise.RANDOM_POLICY), 11)
    expected = noise.uniform(np.moveaxis(words, 0, -1).reshape(2, -1)[:, :length], 0.0, 1.0)
    np.testing.assert_array_equal(env.random_actions(2)[1].reshape(2, -1).numpy(), expected)


def test_the_scenario_of_an_episode_is_the_documented_philox_number():
    env = make(6, first_index=2, slots=3)
    env.reset(seed=9)
    for episode in range(4):
        expected = noise.philox((np.arange(2, 8), episode, 0, noise.RESET), 9)[0] % 3
        np.testing.assert_array_equal(env.state()["scenario"].numpy(), expected)
        env.rollout(3)


def test_statistics_are_those_of_the_episodes_that_ended():
    env = make(4)
    env.reset(seed=0)
    returns = []
    for _ in range(16):
        *_, info = env.step(env.random_actions()[0])
        if info["_final_obs"].all():
            returns += info["episode_return"].tolist()
    found = env.statistics()
    assert found["episodes"] == 8
    assert float(found["return_mean"]) == pytest.approx(np.mean(returns), abs=1e-6)
    assert float(found["return_max"]) == pytest.approx(max(returns))
    assert float(found["length_mean"]) == 8
    assert env.statistics()["episodes"] == 0


# ---- actions


def test_unchecked_actions_act_as_the_nearest_number_of_the_space_and_nan_as_zero():
    wild, tame = make(2, check_actions=False), make(2)
    wild.reset(seed=0)
    tame.reset(seed=0)
    action = wild.random_actions()[0] * 3 - 1
    action[0, :, ::7] = torch.nan
    action[1, :, ::5] = torch.inf
    action[1, :, 1::5] = -torch.inf
    wild.step(action)
    tame.step(torch.nan_to_num(action, nan=0.0, posinf=1.0, neginf=0.0).clamp(0, 1))
    same(buffers(wild), buffers(tame))


def test_unchecked_integers_are_clipped():
    wild, tame = make(1, check_actions=False), make(1)
    wild.reset(seed=0)
    tame.reset(seed=0)
    p = wild.params
    target = torch.arange(p.target_length, dtype=torch.int32).reshape(1, p.clients, p.tasks) * 37 - 1000
    share = torch.linspace(-1, 1, p.share_length)[None].contiguous()
    share[0, 3] = torch.nan
    wild.step({"target": target, "share": share})
    tame.step({"target": target.clamp(0, p.options - 1), "share": share.nan_to_num(0).clamp(min=0)})
    same(buffers(wild), buffers(tame))


@pytest.mark.parametrize("value", [1.5, -0.25, float("nan"), float("inf")])
def test_a_checked_action_outside_the_space_is_named(value):
    env = make(3)
    env.reset(seed=0)
    action = env.random_actions()[0]
    action[2, 1, 17] = value
    with pytest.raises(ValueError, match=rf"environment 2, agent 1, index 17 is {value}, not in \[0, 1\]"):
        env.step(action)


def test_wrong_shapes_types_and_keys_are_named():
    env = make(2)
    with pytest.raises(ResetNeeded):
        env.step(env.random_actions()[0])
    env.reset(seed=0)
    action = env.random_actions()[0]
    with pytest.raises(ValueError, match="float32 tensor on cpu, got torch.float64"):
        env.step(action.double())
    with pytest.raises(ValueError, match=r"action has shape \(1, 2"):
        env.step(action[:1])
    with pytest.raises(ValueError, match="'target' and 'share', got 'target'"):
        env.step({"target": action})
    with pytest.raises(ValueError, match="reset_mask"):
        env.reset(options={"reset_maks": None})


# ---- state


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_a_batch_resumes_from_its_state_bit_for_bit(mode):
    env, other = make(4, autoreset_mode=mode, check_actions=False), make(4, autoreset_mode=mode, check_actions=False)
    env.reset(seed=0)
    for _ in range(9):
        env.step(env.random_actions()[0])
    other.set_state(env.state())
    for _ in range(9):
        assert torch.equal(env.random_actions(), other.random_actions())
        one, two = env.step(env.random_actions()[0]), other.step(other.random_actions()[0])
        assert all(torch.equal(a, b) for a, b in zip(one[:4], two[:4], strict=True))
    assert torch.equal(env.state()["state"], other.state()["state"])


def test_a_state_of_other_parameters_or_scenarios_is_refused_unless_it_does_not_say_so():
    env, rules, pool = make(2), make(2, penalty_weight=2.0), make(2, scenario_seed=1)
    for one in (env, rules, pool):
        one.reset(seed=0)
        one.rollout(2)
    state, before = env.state(), buffers(rules)
    with pytest.raises(ValueError, match="a batch with penalty_weight=1.0, this one has 2.0; without"):
        rules.set_state(state)
    with pytest.raises(ValueError, match=f"other scenarios .pool='{env.pool}'. than the 3 of this one"):
        pool.set_state(state)
    same(before, buffers(rules))
    pool.set_state({key: value for key, value in state.items() if key != "pool"})
    assert torch.equal(pool.state()["state"], state["state"])


def test_a_pool_is_known_by_its_scenarios_whatever_plays_them():
    pool = make(2).pool
    assert pool == make(7, dtype="float64", seed=5, trace=True, chunk=2).pool
    assert pool != make(2, scenarios=2).pool
    assert pool != make(2, scenario_seed=1).pool


def test_a_pool_is_known_on_machines_whose_linear_algebra_rounds_otherwise():
    env = make(2)
    for table in env._tables.values():
        if table.is_floating_point():
            table.copy_(torch.nextafter(table, torch.full_like(table, torch.inf)))
    assert env.pool == make(2).pool


def test_a_masked_state_leaves_the_others_alone():
    env = make(3)
    env.reset(seed=0)
    env.rollout(3)
    before = env.state()
    env.set_state({"lc": np.full(env.params.clients, 7.0), "t": 5}, mask=np.array([True, False, False]))
    assert (env.fields()["lc"][0] == 7.0).all()
    assert torch.equal(env.state()["state"][1:], before["state"][1:])
    assert env.state()["t"].tolist() == [5, 3, 3]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"lcc": 0}, "unknown key 'lcc'; did you mean 'lc'"),
        ({"lc": np.zeros(3)}, r"lc has shape \(3,\)"),
        ({"vc": float("nan")}, "vc"),
        ({"t": 9}, "t=9 of environment 0 must be in 0 .. 8"),
        ({"t": 8}, "t=8 of environment 0 must be in 0 .. 7"),
        ({"scenario": 3}, "scenario=3 of environment 0 must be in 0 .. 2"),
        ({"clock": -1}, "clock"),
        ({"episode": -1}, "episode=-1 of environment 0 must be in 0 .. 4294967295"),
        ({"running_return": [1j, 1j]}, "running_return must be real, got complex128"),
        ({"params": "physical"}, "params must be a mapping of names to values, got str"),
    ],
)
def test_a_state_that_no_step_leads_to_is_refused_and_changes_nothing(state, message):
    env = make(2)
    env.reset(seed=0)
    env.rollout(2)
    before = buffers(env)
    if "vc" in state:
        state = {"vc": np.full(env.params.servers, np.nan)}
    with pytest.raises(ValueError, match=message):
        env.set_state(state)
    same(before, buffers(env))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 0}, "num_envs=0"),
        ({"chunk": 0}, "chunk=0"),
        ({"threads": 0}, "threads=0"),
        ({"dtype": "float16"}, "dtype='float16'"),
        ({"autoreset_mode": "same"}, "autoreset_mode='same'"),
        ({"first_index": -1}, "first_index=-1"),
        ({"seed": -1}, "seed=-1"),
        ({"device": "tpu"}, "device='tpu'"),
        ({"gains": "none"}, "gains='none'"),
        ({"vehicels": 3}, "'vehicels'; did you mean 'vehicles'"),
        ({"thread": 2}, "no parameter or option 'thread'; did you mean 'threads'"),
        ({"preset": "classic"}, "preset='classic' is unknown"),
        ({"scenarios": 0}, "scenarios=0"),
    ],
)
def test_a_bad_argument_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        make(**{"num_envs": 2, **options})


def test_a_batch_that_does_not_fit_says_how_many_would():
    with pytest.raises(MemoryError, match="about .* would fit"):
        make(2**30)
