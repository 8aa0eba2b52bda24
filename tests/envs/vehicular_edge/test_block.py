"""What the batch of the vehicular edge has of its own: integers as actions, pools of scenarios, queues at a reset."""

import numpy as np
import pytest
import torch

from lockstep import envs

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


def test_the_last_observation_has_queues_and_the_next_one_tasks():
    env = make(3)
    env.reset(seed=0)
    for t in range(8):
        obs, _, terminated, truncated, info = env.step(env.random_actions()[0])
        assert truncated.tolist() == [[t == 7] * 2] * 3 and not terminated.any()
    tasks = 2 * env.params.target_length
    assert (info["final_obs"][:, :, :tasks] == 0).all()  # no tasks after the last slot
    assert (obs[:, :, :tasks] > 0).any()
    assert (obs[:, 0, tasks : tasks + env.params.clients] == 0).all()  # empty queues
    assert (info["final_obs"][:, 0, tasks : tasks + env.params.clients] > 0).any()


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


def test_integers_of_a_wrong_form_or_that_are_no_option_are_named():
    env = make(2)
    env.reset(seed=0)
    p, before = env.params, buffers(env)
    target = torch.zeros(2, p.clients, p.tasks, dtype=torch.int32)
    share = torch.ones(2, p.share_length)
    table = [
        ({"target": target}, "'target' and 'share', got 'target'"),
        ({"target": target.long(), "share": share}, "target must be a int32 tensor on cpu, got torch.int64"),
        ({"target": target, "share": share[:1]}, rf"share has shape \(1, {p.share_length}\); allowed: \(2, "),
        ({"target": target + p.options, "share": share}, rf"target of environment 0, client 0, task 0 is {p.options}"),
        ({"target": target, "share": -share}, "share of environment 0, index 0 is -1.0, not in"),
        ({"target": target, "share": share * torch.nan}, "share of environment 0, index 0 is nan, not in"),
    ]
    for action, message in table:
        with pytest.raises(ValueError, match=message):
            env.step(action)
    same(before, buffers(env))


def test_a_state_of_other_parameters_or_scenarios_is_refused_unless_it_does_not_say_so():
    env, rules, pool = make(2), make(2, penalty_weight=2.0), make(2, scenario_seed=1)
    for one in (env, rules, pool):
        one.reset(seed=0)
        one.rollout(2)
    state, before = env.state(), buffers(rules)
    with pytest.raises(ValueError, match="a batch with penalty_weight=1.0, this one has 2.0; without"):
        rules.set_state(state)
    with pytest.raises(ValueError, match=f"other scenarios .pool='{state['pool']}'. than the 3 of this one"):
        pool.set_state(state)
    same(before, buffers(rules))
    pool.set_state({key: value for key, value in state.items() if key != "pool"})
    assert torch.equal(pool.state()["state"], state["state"])


def test_a_pool_is_known_on_machines_whose_linear_algebra_rounds_otherwise():
    env = make(2)
    for table in env._buffers.tables.values():
        if table.is_floating_point():
            table.copy_(torch.nextafter(table, torch.full_like(table, torch.inf)))
    known = env.state()["pool"]
    assert known == make(7, trace=True, chunk=2).state()["pool"]
    assert known != make(2, scenario_seed=1).state()["pool"]


def test_a_queue_goes_in_by_its_name():
    env = make(3)
    env.reset(seed=0)
    env.rollout(3)
    before = env.state()
    env.set_state({"lc": np.full(env.params.clients, 7.0), "elapsed": 5}, mask=np.array([True, False, False]))
    assert (env.queues["lc"][0] == 7.0).all()
    assert torch.equal(env.state()["state"][1:], before["state"][1:])
    assert env.state()["elapsed"].tolist() == [5, 3, 3]
