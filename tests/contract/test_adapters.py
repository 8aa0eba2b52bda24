"""Environments of several agents under TorchRL and PettingZoo: groups, flags, masks, names; the same episodes."""

import functools
import warnings

import numpy as np
import pytest
import torch
from gymnasium.error import ResetNeeded
from gymnasium.vector.utils import batch_space

from lockstep import envs
from lockstep.envs.adapters import pettingzoo
from tests.contract.batches import equal, folder, having, make, port
from tests.contract.test_gymnasium import TEAMS

B = 5
SEVERAL = having(lambda declared: declared.agents)
ONE = having(lambda declared: not declared.agents)[0]
FLAGS = ("done", "terminated", "truncated")


@functools.cache
def adapter():
    """The adapter for TorchRL, which warns of its own calls while it is imported."""
    pytest.importorskip("torchrl", reason="needs TorchRL: pip install torchrl")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from lockstep.envs.adapters import torchrl
    return torchrl


def for_torchrl(name: str, num_envs: int = B, group_map=None, **options):
    torch.manual_seed(1)  # of the actions that it draws
    options = {"autoreset_mode": "Disabled", "check_actions": False, "reset": False} | options
    return adapter().TorchRLEnv(make(name, num_envs, **options), group_map)


def mixed(name: str) -> dict[str, list[str]]:
    """Groups against the agents' order: the last with the first, and the others."""
    first, *others, last = port(name).agents
    return {"ends": [last, first]} | ({"between": others} if others else {})


# ---- TorchRL --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("grouped", [False, True])
def test_torchrls_own_checker_accepts_groups_of_agents(name, grouped):
    env = for_torchrl(name, group_map=mixed(name) if grouped else None, max_episode_steps=2)  # one reset among them
    from torchrl.envs.utils import check_env_specs

    check_env_specs(env, break_when_any_done="both", seed=0)


@pytest.mark.parametrize("name", TEAMS)
def test_groups_and_specs_are_those_of_torchrls_wrapper_of_the_original(name):
    """Ours have a batch more, and TorchRL an info, which is ours to leave out."""
    ours = for_torchrl(name, max_episode_steps=None)
    from torchrl.envs.libs.pettingzoo import PettingZooWrapper

    apart = port(name).rows > 1
    original = envs.make_original(name, scenario=ours.batch.scenarios)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = PettingZooWrapper(env=original, use_mask=apart, done_on_any=not apart)
    assert ours.group_map == theirs.group_map
    for part in ("full_observation_spec", "full_action_spec", "full_reward_spec", "full_done_spec"):
        own, other = getattr(ours, part), getattr(theirs, part)
        leaves = {key for key in other.keys(True, True) if "info" not in key}
        assert set(own.keys(True, True)) == leaves
        for key in leaves:
            assert own[key].shape == (B, *other[key].shape) and own[key].dtype in (other[key].dtype, torch.float32)
            if other[key].space is not None and hasattr(other[key].space, "low"):
                for bound in ("low", "high"):  # TorchRL's wrapper has the largest float for infinity
                    limit = getattr(own[key].space, bound)[0]
                    theirs_limit = getattr(other[key].space, bound).to(limit.dtype)
                    assert torch.equal(limit.nan_to_num(), theirs_limit.nan_to_num())


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("grouped", [False, True])
def test_rollouts_of_agents_are_the_batch_stepped_by_hand(name, grouped):
    """Several episodes, in two rollouts of which the second goes on: every bit, by group."""
    env = for_torchrl(name, group_map=mixed(name) if grouped else None, max_episode_steps=4)
    env.set_seed(5)
    first = env.rollout(7, break_when_any_done=False)
    following = env.rollout(6, auto_reset=False, tensordict=env.maybe_reset(after(first)), break_when_any_done=False)
    rows = torch.cat([first, following], dim=1)
    batch, agents = make(name, B, max_episode_steps=4, reset=False), port(name).agents
    obs, info = batch.reset(seed=5)
    active, over = info["active"], torch.zeros(B, len(agents), dtype=torch.bool)
    ends = 0
    for t in range(rows.shape[1]):
        now = rows[:, t]
        action = torch.zeros(batch.actions.shape, dtype=batch.actions.stored_type)
        for group, members in env.group_map.items():
            places = [agents.index(agent) for agent in members]
            action[:, places] = now[group, "action"].to(action.dtype)
            assert torch.equal(now[group, "observation"], obs[:, places])
            assert not any(now[flag].any() for flag in FLAGS)  # an episode begins afresh
            if port(name).rows > 1:
                assert torch.equal(now[group, "mask"], active[:, places])
            assert torch.equal(now[group, "terminated"], over[:, places, None])
        obs, reward, terminated, truncated, info = batch.step(action)
        over, active = over | terminated, info["active"]
        ended = info["_final_obs"]
        last = torch.where(ended[:, None, None], info["final_obs"], obs)
        for group, members in env.group_map.items():
            places, then = [agents.index(agent) for agent in members], now["next", group]
            assert torch.equal(then["observation"], last[:, places])
            assert torch.equal(then["reward"], reward[:, places, None])
            assert torch.equal(then["terminated"], over[:, places, None])
            assert torch.equal(then["truncated"], truncated[:, places, None])
            assert torch.equal(then["done"], (over | truncated)[:, places, None])
            if port(name).rows > 1:
                playing = active & ~ended[:, None]  # in this mode those of the next episode are
                assert torch.equal(then["mask"], playing[:, places])
        assert torch.equal(now["next", "done"], ended[:, None])
        assert torch.equal(now["next", "terminated"], over.all(dim=1, keepdim=True))
        assert torch.equal(now["next", "truncated"], truncated.any(dim=1, keepdim=True))
        over &= ~ended[:, None]
        ends += int(ended.sum())
    assert ends >= 3 * B


def after(rows):
    """The root that follows the last step of a rollout."""
    from torchrl.envs.utils import step_mdp

    return step_mdp(rows[:, -1])


@pytest.mark.parametrize("name", having(lambda declared: declared.rows > 1))
def test_agents_that_have_ended_stay_so_and_are_masked(name):
    env = for_torchrl(name, 64, mixed(name), max_episode_steps=None)
    env.set_seed(1)
    rows = env.rollout(env.batch.max_episode_steps, break_when_any_done=False)["next"]
    waited = 0
    for group in env.group_map:
        gone, whole = rows[group, "terminated"].squeeze(-1), rows["done"]
        before = gone[:, :-1] & ~whole[:, :-1]  # the episode goes on without them
        assert gone[:, 1:][before].all()
        assert not rows[group, "mask"][gone].any()
        later = torch.zeros_like(gone)
        later[:, 1:] = before
        assert (rows[group, "reward"].squeeze(-1)[later] == 0).all() and (rows[group, "observation"][later] == 0).all()
        waited += int(later.sum())
    assert waited > 0


@pytest.mark.parametrize("name", SEVERAL)
def test_episode_rewards_of_groups_are_summed_across_resets(name):
    env = for_torchrl(name, max_episode_steps=3)
    from torchrl.envs import RewardSum, TransformedEnv

    keys = [(group, "episode_reward") for group in env.group_map]
    summed = TransformedEnv(env, RewardSum(in_keys=env.reward_keys, out_keys=keys, reset_keys=["_reset"] * len(keys)))
    rows = summed.rollout(6, break_when_any_done=False)
    for key in keys:
        reward, total = rows["next", key[0], "reward"], rows["next", key]
        torch.testing.assert_close(total[:, 2], reward[:, :3].sum(dim=1))
        assert port(name).rows > 1 or torch.allclose(total[:, 5], reward[:, 3:].sum(dim=1))


def test_groups_that_are_none_are_refused():
    name = TEAMS[0]
    first, *others = port(name).agents
    table = [
        (lambda: for_torchrl(name, group_map={"a": [first]}), f"Agent {others[0]} wasn't found in any group"),
        (lambda: for_torchrl(name, group_map={"a": [first, "nobody"]}), "Agent nobody wasn't present in environment"),
        (lambda: for_torchrl(name, group_map=[first]), "group_map must be a mapping of groups to agents' names, not"),
        (lambda: for_torchrl(name, group_map={"done": [first, *others]}), "group_map: 'done' is a key of TorchRL"),
        (lambda: for_torchrl(ONE, group_map={"a": [first]}), f"{ONE} has one agent, who is in no group"),
    ]
    for call, message in table:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    ("agents", "groups"),
    [
        (["north", "south"], {"north": ["north"], "south": ["south"]}),
        (["ship_0", "ship_1", "tug", "_7"], {"ship": ["ship_0", "ship_1"], "tug": ["tug"], "_7": ["_7"]}),
    ],
)
def test_default_groups_go_by_names_with_numbers(agents, groups):
    assert adapter().default_groups(agents) == groups


@pytest.mark.gpu
@pytest.mark.parametrize("name", SEVERAL)
def test_a_step_of_agents_never_waits_for_the_device(name):
    env = for_torchrl(name, 64, mixed(name), device="cuda")
    rows = env.rand_action(env.reset())
    env._step(rows)  # compiled
    torch.cuda.set_sync_debug_mode("error")
    try:
        env._step(rows)
    finally:
        torch.cuda.set_sync_debug_mode("default")


# ---- PettingZoo -----------------------------------------------------------------------------------------------------


def parallel(name: str, **options) -> pettingzoo.ParallelPort:
    """One environment with the limit of its original."""
    options = {"autoreset_mode": "Disabled", "max_episode_steps": None, "reset": False} | options
    return pettingzoo.ParallelPort(make(name, 1, **options))


@pytest.mark.parametrize("name", SEVERAL)
def test_one_environment_passes_pettingzoos_own_tests(name):
    from pettingzoo.test import parallel_api_test, parallel_seed_test

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(parallel(name), num_cycles=60)
    parallel_seed_test(lambda: parallel(name), num_cycles=60)


@pytest.mark.parametrize("name", TEAMS)
def test_one_environment_steps_as_the_original(name):
    """Three episodes of the same noise: who plays, flags exactly; numbers as correctness has them."""
    env = parallel(name, dtype="float64")
    original = envs.make_original(name, scenario=env.batch.scenarios)
    assert env.possible_agents == original.possible_agents and env.metadata == original.metadata
    for agent in env.possible_agents:
        own, other = env.observation_space(agent), original.observation_space(agent)
        assert np.array_equal(own.low, other.low) and np.array_equal(own.high, other.high)
        assert env.action_space(agent) == original.action_space(agent)
        assert env.action_space(agent) is env.action_space(agent)
        env.action_space(agent).seed(3)
    near = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    steps = 0
    for seed in (5, None, None):
        found, theirs = env.reset(seed=seed), original.reset(seed=seed)
        assert list(found[1]) == list(theirs[1])
        near([*found[0].values()], [*theirs[0].values()])
        while original.agents:
            assert env.agents == original.agents and env.num_agents == len(env.agents)
            actions = {agent: env.action_space(agent).sample() for agent in env.agents}
            found, theirs = env.step(actions), original.step(actions)
            assert [list(one) for one in found] == [list(one) for one in theirs]
            assert found[2:4] == theirs[2:4]
            for place in (0, 1):
                near([*found[place].values()], [*theirs[place].values()])
            for agent, facts in theirs[4].items():
                for fact in facts.keys() & found[4][agent].keys():
                    near(found[4][agent][fact], facts[fact])
            steps += 1
        assert env.agents == []
    assert steps > 60


@pytest.mark.parametrize("name", TEAMS)
def test_one_environment_is_any_of_a_batch(name):
    batch = make(name, 4, seed=9)
    actions = batch.random_actions(3)
    single = parallel(name, seed=9, first_index=2)
    seen, _ = single.reset()
    for action in actions:
        obs, reward, *_ = batch.step(action)
        seen, gains, *_ = single.step({agent: action[2, a].numpy() for a, agent in enumerate(batch.agents)})
        for a, agent in enumerate(batch.agents):
            assert np.array_equal(seen[agent], obs[2, a].numpy()) and gains[agent] == float(reward[2, a])


@pytest.mark.parametrize("name", SEVERAL)
def test_a_batch_by_names_is_the_batch(name):
    env, batch = pettingzoo.VectorPort(make(name, B, max_episode_steps=3)), make(name, B, max_episode_steps=3)
    agents = list(port(name).agents)
    assert (env.num_envs, env.agents, env.possible_agents, env.num_agents) == (B, agents, agents, len(agents))
    for agent in agents:
        assert env.single_observation_space(agent) == batch.single_observation_space
        assert env.single_action_space(agent) == batch.single_action_space
        assert env.observation_space(agent) == batch_space(batch.single_observation_space, B)
        assert env.action_space(agent) == batch_space(batch.single_action_space, B)
    (seen, infos), (obs, info) = env.reset(seed=2), batch.reset(seed=2)
    for _ in range(5):
        for a, agent in enumerate(agents):
            assert equal(seen[agent], obs[:, a]) and equal(infos[agent]["active"], info["active"][:, a])
        actions = {agent: env.action_space(agent).sample() for agent in agents}
        seen, *outcome, infos = kept = env.step(actions)
        together = torch.stack([torch.as_tensor(actions[agent]) for agent in agents], dim=1)
        obs, *rows, info = batch.step(together.to(batch.actions.stored_type))
        for found, expected in zip(outcome, rows, strict=True):
            assert all(equal(found[agent], expected[:, a]) for a, agent in enumerate(agents))
        for a, agent in enumerate(agents):
            assert infos[agent].keys() == info.keys()
            assert equal(infos[agent]["final_obs"], info["final_obs"][:, a])
            assert equal(infos[agent]["_final_obs"], info["_final_obs"])
    before = kept[0][agents[0]].clone()
    env.step(actions)
    assert equal(kept[0][agents[0]], before)  # a copy


def test_actions_that_are_none_are_named_and_so_are_batches():
    name = TEAMS[0]
    first, *others = port(name).agents
    env, batch = parallel(name), pettingzoo.VectorPort(make(name, 2))
    with pytest.raises(ResetNeeded, match=r"no episode is open: call reset\(\) first"):
        env.step({})
    env.reset(seed=0, options={"unknown": 1})
    good = {agent: env.action_space(agent).sample() for agent in env.agents}
    many = {agent: batch.action_space(agent).sample() for agent in batch.agents}
    table = [
        (lambda: env.step([1]), "actions must be a mapping by agent, not list"),
        (
            lambda: env.step({first: good[first]}),
            f"no action of agent '{others[0]}'.*: give an action of '{first}' and",
        ),
        (lambda: env.step(good | {"nobody": 0}), "'nobody' does not play: give"),
        (lambda: env.step(good | {first: good[first] + 9}), rf"action of agent '{first}' is not in Box\("),
        (lambda: env.step(good | {first: good[first][1:]}), rf"action of agent '{first}' is not in Box\("),
        (lambda: env.step(good | {first: "up"}), rf"action of agent '{first}' is not in Box\(.*: 'up'"),
        (lambda: env.step(good | {first: good[first] * np.nan}), f"action of agent '{first}' is not in"),
        (lambda: batch.step({first: many[first]}), f"no action of agent '{others[0]}'"),
        (
            lambda: batch.step(many | {first: many[first][:1]}),
            rf"'{first}' is torch.float32 \(1, .*, not torch.float32 \(2",
        ),
        (lambda: batch.step(many | {first: many[first] * 1j}), f"'{first}' is torch.complex64"),
        (lambda: batch.step(many | {first: "up"}), f"action of agent '{first}' is no tensor or array: 'up'"),
        (lambda: batch.step(many | {first: None}), f"action of agent '{first}' is no tensor or array: None"),
        (lambda: env.reset(options=[1]), "options must be a mapping, not list"),
        (lambda: pettingzoo.make(ONE), f"{ONE} has one agent, and Gymnasium's interface"),
        (lambda: pettingzoo.ParallelPort(make(name, 1)), "num_envs=1, autoreset_mode='Disabled', not num_envs=1, auto"),
        (
            lambda: pettingzoo.ParallelPort(make(name, 2, autoreset_mode="Disabled")),
            "not num_envs=2, autoreset_mode='D",
        ),
    ]
    for call, message in table:
        with pytest.raises(ValueError, match=message):
            call()
    assert env.agents == [first, *others]
    env.step(good)
    env.close()
    assert env.batch.closed


def test_adapters_are_made_by_name():
    name = TEAMS[0]
    env, batch = pettingzoo.make(name, seed=3), pettingzoo.make_vec(name, 2, seed=3)
    own, many = env.reset()[0], batch.reset()[0]
    assert all(np.array_equal(own[agent], many[agent][0].numpy()) for agent in env.possible_agents)
    assert folder(name).name == env.metadata["name"] == str(env)
