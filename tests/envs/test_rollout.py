"""Many steps in one launch: equal to single steps bit for bit, whatever the policy; and what policies choose."""

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs.spaces import Box
from tests.envs.batches import DEVICES, INFO, NAMES, B, copies, linear, make, random_step, same, spread, statistics

STEPS = [1, 7, 8, 9, 500, 1000]


def twins(name, device="cpu", **options):
    """Two equal batches, some way into their episodes."""
    pair = [make(name, device=device, seed=8, check_actions=False, **options) for _ in range(2)]
    for env in pair:
        spread(env)
        env.rollout(13)
        env.statistics()
    return pair


def assert_fused_equals_single(fused, single, steps, policy="random"):
    obs = single.reset(options={"reset_mask": np.arange(B) == 0})[0].clone()
    fused.reset(options={"reset_mask": np.arange(B) == 0})
    rows = fused.rollout(steps, policy, store="trajectory")
    actions, space = single.random_actions(steps), single.single_action_space
    for k in range(steps):
        assert torch.equal(rows["obs"][k], obs)
        if policy == "random":
            assert torch.equal(rows["action"][k], actions[k])
        action = rows["action"][k]
        if isinstance(space, Box):
            action = action.clamp(space.low.item(), space.high.item())
        obs, reward, terminated, truncated, info = copies(single.step(action))
        assert torch.equal(rows["reward"][k], reward)
        assert torch.equal(rows["terminated"][k], terminated)
        assert torch.equal(rows["truncated"][k], truncated)
    assert same(fused.state(), single.state(), but=INFO)  # those of episodes that ended on the way are not written
    ended = terminated | truncated
    for key in INFO:
        assert torch.equal(fused.state()[key][ended], info[key][ended])
    np.testing.assert_equal(statistics(fused), statistics(single))  # NaN where no episode ended


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("policy", ["random", "linear"])
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", NAMES)
def test_a_fused_trajectory_equals_single_steps_bit_for_bit(name, device, policy, steps):
    assert_fused_equals_single(*twins(name, device), steps, linear(name) if policy == "linear" else policy)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("policy", ["random", "linear"])
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", NAMES)
def test_fused_statistics_equal_a_fused_trajectory(name, device, policy, steps):
    policy = linear(name) if policy == "linear" else policy
    plain, stored = twins(name, device)
    assert plain.rollout(steps, policy) == {}
    stored.rollout(steps, policy, store="trajectory")
    assert same(plain.state(), stored.state())
    assert torch.equal(random_step(plain)[0], random_step(stored)[0])
    np.testing.assert_equal(statistics(plain), statistics(stored))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_fused_steps_in_float64_equal_single_ones(name, device):
    assert_fused_equals_single(*twins(name, device, dtype="float64"), 100)


@pytest.mark.parametrize("device", DEVICES)
def test_fused_steps_are_right_where_episodes_are_shorter_than_the_fetch_ahead(device):
    assert_fused_equals_single(*twins("cartpole", device, max_episode_steps=3), 50)
    fused, single = twins("cartpole", device)
    for env in (fused, single):
        env.reset(seed=8, options={"low": -0.4, "high": 0.4})  # most episodes end at the first steps
    assert_fused_equals_single(fused, single, 50)
    resumed, single = twins("cartpole", device)
    for env in (resumed, single):
        env.set_state(fused.state())  # bounds come along
    assert_fused_equals_single(resumed, single, 50)


@pytest.mark.parametrize("name", NAMES)
def test_a_rollout_does_not_depend_on_the_number_of_threads(name):
    found = []
    for threads in (1, 2, 5):
        env = make(name, 3000, seed=3, threads=threads)
        spread(env)
        rows = env.rollout(60, linear(name), store="trajectory")
        found.append((env.state(), {key: value.clone() for key, value in rows.items()}, statistics(env)))
    for state, rows, counted in found[1:]:
        assert same(state, found[0][0]) and same(rows, found[0][1])
        assert counted == found[0][2]


# ---- the linear policy --------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_the_linear_policy_takes_the_highest_score_or_clips_the_only_one(name, device):
    env, policy = make(name, device=device, seed=1), linear(name)
    rows = env.rollout(50, policy, store="trajectory")
    weights, bias = (torch.tensor(part, dtype=torch.float64) for part in (policy.weights, policy.bias))
    scores, actions = rows["obs"].cpu().double() @ weights.T + bias, rows["action"].cpu()
    space = env.single_action_space
    if isinstance(space, Box):
        expected = scores[..., 0].clamp(space.low.item(), space.high.item())
        assert ((actions - expected).abs() <= 1e-5).all()
        assert (actions.abs() < space.high.item()).any()
    else:
        best = scores.topk(2, dim=-1).values
        clear = best[..., 0] - best[..., 1] > 1e-5
        assert clear.double().mean() > 0.99
        assert torch.equal(actions[clear], scores.argmax(dim=-1).to(torch.uint8)[clear])
        assert len(actions.unique()) > 1


@pytest.mark.parametrize("device", DEVICES)
def test_of_equal_scores_the_lowest_action_is_taken(device):
    for name, m, n in (("cartpole", 2, 4), ("mountain_car", 3, 2)):
        env = make(name, device=device)
        ties = env.rollout(5, envs.Linear(torch.zeros(m, n), [1] * m), store="trajectory")
        assert (ties["action"] == 0).all()
        last = env.rollout(5, envs.Linear(torch.zeros(m, n), [0] * (m - 1) + [1]), store="trajectory")
        assert (last["action"] == m - 1).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_the_actor_chooses_as_the_fused_policy_does(name, device):
    env, policy = make(name, device=device, seed=1), linear(name)
    actor = env.actor(policy)
    rows = env.rollout(30, policy, store="trajectory")
    chosen = torch.stack([actor(obs) for obs in rows["obs"]])
    assert (chosen - rows["action"].to(chosen.dtype)).abs().double().mean() < 1e-3  # a score may fall on a boundary
    assert torch.equal(env.actor("random")(None), env.random_actions()[0])


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps=0 must be"),
        ({"steps": 3, "policy": "greedy"}, "policy must be 'random', a Linear or an MLP, got 'greedy'"),
        ({"steps": 3, "store": "all"}, "store='all' must be one of 'statistics', 'trajectory'"),
        ({"steps": 3, "obs_dtype": "bfloat16"}, "obs_dtype='bfloat16' needs store='trajectory'"),
        (
            {"steps": 3, "store": "trajectory", "obs_dtype": "float16"},
            "obs_dtype='float16' must be one of 'float32', 'bfloat16'",
        ),
        (
            {"steps": 3, "policy": envs.Linear([[0] * 3] * 2, [0, 0])},
            r"weights has shape \(2, 3\); this environment needs \(2, 4\)",
        ),
        (
            {"steps": 3, "policy": envs.Linear([[np.inf] * 4] * 2, [0, 0])},
            "policy.weights holds values that are not finite",
        ),
    ],
)
def test_a_wrong_rollout_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make().rollout(**arguments)


@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
def test_a_rollout_needs_same_step(mode):
    with pytest.raises(ValueError, match=f"rollout needs autoreset_mode='SameStep', not '{mode}'"):
        make(autoreset_mode=mode).rollout(3)


def test_a_trajectory_too_large_for_memory_says_how_many_steps_would_fit():
    with pytest.raises(MemoryError, match="a trajectory of steps=20000000 needs .* would fit"):
        make().rollout(20_000_000, store="trajectory")


@pytest.mark.parametrize("name", NAMES)
def test_the_buffers_of_a_rollout_can_be_had_before_it(name):
    env, other = make(name), make(name)
    before = env.state()
    buffers = env.rollout_buffers(7, linear(name), "bfloat16")
    assert same(before, env.state())
    assert {k: (tuple(v.shape), v.dtype) for k, v in buffers.items()} == env.trajectory_layout(7, obs_dtype="bfloat16")
    expected = other.rollout(7, linear(name), "trajectory", "bfloat16")
    env.rollout(7, linear(name), "trajectory", "bfloat16")
    assert same(buffers, expected)
    again = env.rollout_buffers(7, "random", "bfloat16")  # a linear policy's have the same form
    assert all(again[key].data_ptr() == buffers[key].data_ptr() for key in buffers)
    assert env.rollout_buffers(8)["reward"].data_ptr() != buffers["reward"].data_ptr()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": -1}, "steps=-1 must be"),
        ({"steps": 3, "policy": None}, "policy must be 'random', a Linear or an MLP, got None"),
        ({"steps": 3, "obs_dtype": "int8"}, "obs_dtype='int8' must be one of 'float32', 'bfloat16'"),
    ],
)
def test_wrong_rollout_buffers_are_refused(arguments, message):
    for asked in (make().rollout_buffers, make().trajectory_layout):
        with pytest.raises(ValueError, match=message):
            asked(**arguments)


# ---- graphs -------------------------------------------------------------------------------------


def test_a_graph_needs_cuda():
    with pytest.raises(ValueError, match="a CUDA graph needs device='cuda'; this environment is on cpu"):
        make().graph()


@pytest.mark.gpu
@pytest.mark.parametrize("policy", ["random", "linear"])
@pytest.mark.parametrize("name", NAMES)
def test_a_graph_replays_single_steps_bit_for_bit(name, policy):
    captured, single = (make(name, 3000, device="cuda") for _ in range(2))
    for env in (captured, single):
        spread(env)
    actor = single.actor(policy if policy == "random" else linear(name))
    graph = captured.graph(policy if policy == "random" else captured.actor(linear(name)), steps=10)
    assert same(captured.state(), single.state())
    obs = single._outputs[0]
    for _ in range(20):
        graph.replay()
        for _ in range(10):
            obs = single.step(actor(obs))[0]
    assert same(captured.state(), single.state())
    assert statistics(captured) == statistics(single)
