"""Many steps in one launch with their trajectory kept: equal to single steps bit for bit, whatever the policy."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from lockstep import envs
from tests.contract.batches import (
    CARRIED,
    DEVICES,
    INFO,
    NAMES,
    copies,
    equal,
    having,
    make,
    one_lane,
    port,
    random_step,
    spread,
    statistics,
)

KEPT = having(one_lane)  # trajectories
POLICIES = [(name, policy) for name in KEPT for policy in (["random", "linear"] if name in CARRIED else ["random"])]
STEPS = [1, 7, 8, 9, 130]


def linear(name: str, seed: int = 0) -> envs.Linear:
    """A linear policy of normal weights, which uses every action."""
    actions, n = port(name).policy_shape
    random = np.random.default_rng(seed)
    return envs.Linear(random.normal(size=(actions, n)).tolist(), (0.1 * random.normal(size=actions)).tolist())


def twins(name: str, device: str = "cpu", **options):
    """Two equal batches, some way into their episodes."""
    pair = [make(name, device=device, seed=8, check_actions=False, **options) for _ in range(2)]
    for env in pair:
        spread(env)
        env.rollout(13)
        env.statistics()
        env.reset(options={"reset_mask": np.arange(env.num_envs) == 0})
    return pair


def assert_a_trajectory_is_single_steps(fused, single, steps: int, policy="random", obs_dtype: str = "float32"):
    obs, space = single._outputs[0].clone(), single.single_action_space
    rows = fused.rollout(steps, policy, "trajectory", obs_dtype)
    actions = single.random_actions(steps)
    for k in range(steps):
        assert equal(rows["obs"][k], obs.to(rows["obs"].dtype))
        action = rows["action"][k]
        if policy == "random":
            assert equal(action, actions[k])
        if isinstance(space, Box):
            low, high = (torch.from_numpy(limit).to(action.device) for limit in (space.low, space.high))
            action = action.clamp(low if action.ndim > 1 else low[0], high if action.ndim > 1 else high[0])
        obs, *found, info = copies(single.step(action))
        for key, value in zip(("reward", "terminated", "truncated"), found, strict=True):
            assert equal(rows[key][k], value), key
    one, other = fused.state(), single.state()
    assert equal(*({key: value for key, value in state.items() if key not in INFO} for state in (one, other)))
    over = info["_final_obs"]  # info rows of episodes that ended on the way are not written
    assert all(torch.equal(one[key][over], info[key][over]) for key in INFO)
    np.testing.assert_equal(statistics(fused), statistics(single))  # NaN where no episode ended


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize(("name", "policy"), POLICIES)
def test_a_trajectory_is_single_steps_bit_for_bit(name, policy, steps, device):
    assert_a_trajectory_is_single_steps(*twins(name, device), steps, linear(name) if policy == "linear" else policy)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CARRIED)  # random actions: test_streams.test_steps_in_one_launch_are_single_steps
def test_without_a_trajectory_the_same_is_counted(name, device):
    policy = linear(name)
    plain, stored = twins(name, device)
    assert plain.rollout(130, policy) == {}
    stored.rollout(130, policy, store="trajectory")
    assert equal(plain.state(), stored.state())
    assert torch.equal(random_step(plain)[0], random_step(stored)[0])
    np.testing.assert_equal(statistics(plain), statistics(stored))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "obs_dtype"), [("float64", "float32"), ("float32", "bfloat16")])
@pytest.mark.parametrize("name", KEPT)
def test_a_trajectory_of_other_types_is_single_steps(name, dtype, obs_dtype, device):
    assert_a_trajectory_is_single_steps(*twins(name, device, dtype=dtype), 40, obs_dtype=obs_dtype)


@pytest.mark.parametrize("device", DEVICES)
def test_fused_steps_are_right_where_episodes_are_shorter_than_the_fetch_ahead(device):
    for name in ("cartpole", "counters"):
        assert_a_trajectory_is_single_steps(*twins(name, device, max_episode_steps=3), 50)
    fused, single = twins("cartpole", device)
    for env in (fused, single):
        env.reset(seed=8, options={"low": -0.4, "high": 0.4})  # most episodes end at the first steps
    assert_a_trajectory_is_single_steps(fused, single, 50)
    resumed, single = twins("cartpole", device)
    for env in (resumed, single):
        env.set_state(fused.state())  # bounds come along
    assert_a_trajectory_is_single_steps(resumed, single, 50)


@pytest.mark.parametrize("name", KEPT)
def test_a_trajectory_does_not_depend_on_the_number_of_threads(name):
    found = []
    for threads in (1, 5):
        env = make(name, 600, seed=3, threads=threads)
        rows = env.rollout(60, linear(name) if name in CARRIED else "random", store="trajectory")
        found.append((env.state(), {key: value.clone() for key, value in rows.items()}, statistics(env)))
    assert equal(*found)


# ---- the linear policy ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CARRIED)
def test_the_linear_policy_takes_the_highest_score_or_clips_the_only_one(name, device):
    env, policy = make(name, device=device, seed=1, max_episode_steps=None), linear(name)
    spread(env)
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
@pytest.mark.parametrize("name", CARRIED)
def test_the_actor_chooses_as_the_fused_policy_does(name, device):
    env, policy = make(name, device=device, seed=1), linear(name)
    actor = env.actor(policy)
    rows = env.rollout(30, policy, store="trajectory")
    chosen = torch.stack([actor(obs) for obs in rows["obs"]])
    assert (chosen - rows["action"].to(chosen.dtype)).abs().double().mean() < 1e-3  # a score may fall on a boundary


def test_the_random_actor_is_the_random_policy(name):
    env = make(name)
    assert torch.equal(env.actor("random")(None), env.random_actions()[0])


# ---- buffers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KEPT)
def test_the_buffers_of_a_rollout_can_be_had_before_it(name):
    env, other, policy = make(name), make(name), linear(name) if name in CARRIED else "random"
    before = env.state()
    buffers = env.rollout_buffers(7, policy, "bfloat16")
    assert equal(before, env.state())
    assert {k: (tuple(v.shape), v.dtype) for k, v in buffers.items()} == env.trajectory_layout(7, obs_dtype="bfloat16")
    expected = other.rollout(7, policy, "trajectory", "bfloat16")
    env.rollout(7, policy, "trajectory", "bfloat16")
    assert equal(buffers, expected)
    again = env.rollout_buffers(7, "random", "bfloat16")  # another policy's have the same form
    assert all(again[key].data_ptr() == buffers[key].data_ptr() for key in buffers)
    assert env.rollout_buffers(8)["reward"].data_ptr() != buffers["reward"].data_ptr()


def test_a_trajectory_too_large_for_memory_says_how_many_steps_would_fit():
    with pytest.raises(MemoryError, match="a trajectory of steps=20000000 needs .* would fit"):
        make("cartpole").rollout(20_000_000, store="trajectory")


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps=0 must be"),
        ({"store": "all"}, "store='all' must be one of 'statistics', 'trajectory'"),
        ({"policy": "greedy"}, "policy must be 'random'.*, got 'greedy'"),
        ({"policy": None}, "policy must be 'random'.*, got None"),
        ({"obs_dtype": "bfloat16"}, "obs_dtype='bfloat16' needs store='trajectory'"),
    ],
)
def test_a_wrong_rollout_is_refused(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(name).rollout(**{"steps": 3} | arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": -1}, "steps=-1 must be"),
        ({"policy": "greedy"}, "policy must be 'random', a Linear or an MLP, got 'greedy'"),
        ({"obs_dtype": "float16"}, "obs_dtype='float16' must be one of 'float32', 'bfloat16'"),
    ],
)
def test_wrong_buffers_of_a_trajectory_are_refused(arguments, message):
    env = make("cartpole")
    for asked in (env.rollout_buffers, env.trajectory_layout, lambda **given: env.rollout(store="trajectory", **given)):
        with pytest.raises(ValueError, match=message):
            asked(**{"steps": 3} | arguments)


def test_a_linear_policy_that_does_not_fit_is_refused():
    for weights, message in (
        ([[0] * 3] * 2, r"weights has shape \(2, 3\); this environment needs \(2, 4\)"),
        ([[np.inf] * 4] * 2, "policy.weights holds values that are not finite"),
    ):
        with pytest.raises(ValueError, match=message):
            make("cartpole").rollout(3, envs.Linear(weights, [0, 0]))


def test_what_several_lanes_or_numbers_do_not_carry_is_refused(name):
    env = make(name)
    if name not in CARRIED:
        for call in (lambda policy: env.rollout(3, policy), env.actor):
            with pytest.raises(ValueError, match="policy must be 'random'"):
                call(envs.Linear([[0]], [0]))
    if name not in KEPT:
        with pytest.raises(ValueError, match=f"a roll-out of {env.name} keeps statistics alone"):
            env.rollout(3, store="trajectory")


@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
def test_a_rollout_needs_same_step(name, mode):
    with pytest.raises(ValueError, match=f"rollout needs autoreset_mode='SameStep', not '{mode}'"):
        make(name, autoreset_mode=mode).rollout(3)


# ---- graphs ---------------------------------------------------------------------------------------------------------


def test_a_graph_needs_cuda(name):
    with pytest.raises(ValueError, match="a CUDA graph needs device='cuda'; this environment is on cpu"):
        make(name).graph()


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "policy"), [*POLICIES, *((name, "random") for name in NAMES if name not in KEPT)])
def test_a_graph_replays_single_steps_bit_for_bit(name, policy):
    captured, single = (make(name, device="cuda") for _ in range(2))
    for env in (captured, single):
        spread(env)
    actor = single.actor(policy if policy == "random" else linear(name))
    graph = captured.graph(policy if policy == "random" else captured.actor(linear(name)), steps=10)
    assert equal(captured.state(), single.state())
    obs = single._outputs[0]
    for _ in range(20):
        graph.replay()
        for _ in range(10):
            obs = single.step(actor(obs))[0]
    assert equal(captured.state(), single.state())
    assert statistics(captured) == statistics(single)
