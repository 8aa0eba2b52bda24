"""The contract of the batched environment, which every environment keeps."""

import gc
import re
import weakref

import numpy as np
import pytest
import torch

import envs
from envs.checks import available_memory
from envs.spaces import AutoresetMode, ResetNeeded

NAMES = envs.names()
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
MODES = ["SameStep", "NextStep", "Disabled"]


def make(name="cartpole", num_envs=64, reset=True, **options):
    env = envs.make(name, num_envs, **options)
    if reset:
        env.reset()
    return env


def copies(outputs):
    obs, reward, terminated, truncated, info = outputs
    return [t.clone() for t in (obs, reward, terminated, truncated)] + [{k: v.clone() for k, v in info.items()}]


INFO = ("final_obs", "episode_return", "episode_length")


def same(a: dict, b: dict, but: tuple = ()) -> bool:
    keys = [key for key in a if key not in but]
    return all(torch.equal(a[k], b[k]) if isinstance(a[k], torch.Tensor) else a[k] == b[k] for k in keys)


def statistics(env) -> dict:
    return {name: float(value) for name, value in env.statistics().items()}


# ---- outputs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", DEVICES)
def test_outputs_have_the_documented_shapes_and_types(name, device):
    env = make(name, 33, device=device)
    n = env.single_observation_space.shape[0]
    obs, reward, terminated, truncated, info = env.step(env.random_actions()[0])
    assert (obs.shape, obs.dtype) == ((33, n), torch.float32)
    assert obs.is_contiguous()
    assert (reward.shape, reward.dtype) == ((33,), torch.float32)
    assert terminated.dtype == truncated.dtype == info["_final_obs"].dtype == torch.bool
    assert info["final_obs"].shape == (33, n)
    assert (info["episode_return"].dtype, info["episode_length"].dtype) == (torch.float32, torch.int32)
    assert {t.device.type for t in (obs, reward, terminated, truncated, *info.values())} == {device}


@pytest.mark.parametrize("name", NAMES)
def test_observations_stay_in_their_space_where_episodes_run(name):
    env = make(name, 256)
    low, high = torch.from_numpy(env.single_observation_space.low), torch.from_numpy(env.single_observation_space.high)
    for _ in range(300):
        obs, *_ = env.step(env.random_actions()[0])
        assert ((obs >= low) & (obs <= high)).all()


@pytest.mark.parametrize("name", NAMES)
def test_step_writes_into_the_same_buffers(name):
    env = make(name)
    first = env.step(env.random_actions()[0])
    second = env.step(env.random_actions()[0])
    for a, b in zip(first[:4], second[:4], strict=True):
        assert a.data_ptr() == b.data_ptr()


def test_numpy_arrays_are_views_of_the_same_buffers():
    env = make(arrays="numpy")
    obs, reward, terminated, truncated, info = env.step(np.ones(64, dtype=np.int64))
    assert all(isinstance(a, np.ndarray) for a in (obs, reward, terminated, truncated, *info.values()))
    before = obs.copy()
    env.step(np.ones(64, dtype=np.int64))
    assert (obs != before).any()


def test_other_libraries_see_the_buffers_through_dlpack():
    env = make()
    obs, *_ = env.step(env.random_actions()[0])
    shared = np.from_dlpack(obs)
    env.step(env.random_actions()[0])
    np.testing.assert_array_equal(shared, obs.numpy())


def test_a_view_is_the_state_itself():
    env, copy = make(obs="view"), make()
    for _ in range(50):
        seen, *_ = env.step(env.random_actions()[0])
        written, *_ = copy.step(copy.random_actions()[0])
        assert torch.equal(seen, written)
    assert torch.equal(seen, env.state()["state"])
    assert env.bytes_per_env == copy.bytes_per_env - 16


@pytest.mark.parametrize("num_envs", [1, 2, 3, 4, 1000])
def test_memory_per_environment_is_what_the_table_says(num_envs):
    env = make("cartpole", num_envs)
    # 4 x 4 state, 4 x 4 obs, 4 reward, 3 flags, 2 elapsed, 4 episode, 4 x 4 final_obs, 4 return, 4 length
    assert env.bytes_per_env == 69
    # state and elapsed twice, obs, reward, flags and a one-byte action once
    assert env.bytes_per_step == 2 * 18 + 16 + 4 + 3 + 1


# ---- actions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
@pytest.mark.parametrize("shape", [(64,), (64, 1)])
def test_every_allowed_action_type_and_shape_gives_the_same_step(dtype, shape):
    env, other = make(), make()
    action = env.random_actions()[0]
    expected = copies(env.step(action))
    found = other.step(action.to(dtype).reshape(shape))
    assert torch.equal(found[0], expected[0])


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (torch.zeros(63, dtype=torch.int64), r"action has shape \(63,\); allowed: \(64,\) or \(64, 1\)"),
        (torch.zeros(1, 64, dtype=torch.int64), r"action has shape \(1, 64\)"),
        (torch.zeros(64), r"action has dtype float32; allowed: uint8, int32, int64"),
        (torch.full((64,), torch.nan), r"action has dtype float32"),
        (np.zeros(64, dtype=np.float64), r"action must be an integer torch tensor on cpu, got float64"),
        (np.full(64, np.nan), r"action must be an integer torch tensor on cpu, got float64"),
        (torch.tensor(1), r"action has shape \(\); allowed: \(64,\) or \(64, 1\)"),
        (0, r"action must be an integer torch tensor on cpu, got int"),
        ([0] * 64, r"got list"),
    ],
)
def test_an_action_of_the_wrong_form_is_refused(action, message):
    with pytest.raises(ValueError, match=message):
        make().step(action)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
@pytest.mark.parametrize("value", [-1, 2, 255])
def test_an_action_outside_the_space_is_named_and_nothing_moves(device, dtype, value):
    if value < 0 and dtype == torch.uint8:
        value = 7
    env = make(device=device, check_actions=True)
    action = env.random_actions()[0].to(dtype)
    action[17] = value
    before = env.state()
    with pytest.raises(ValueError, match=rf"action\[17\]={value} of environment 17 is not in 0 .. 1"):
        env.step(action)
    assert same(before, env.state())


@pytest.mark.parametrize("device", DEVICES)
def test_unchecked_an_action_outside_the_space_acts_as_the_nearest(device):
    env, other = make(device=device, check_actions=False), make(device=device)
    wrong = torch.tensor([-5, 9] * 32, device=device)
    expected = copies(other.step(torch.tensor([0, 1] * 32, device=device)))
    assert torch.equal(env.step(wrong)[0], expected[0])


def test_a_chosen_action_type_excludes_the_others():
    env = make(action_dtype=torch.int32)
    with pytest.raises(ValueError, match="dtype uint8; allowed: int32"):
        env.step(torch.zeros(64, dtype=torch.uint8))


# ---- construction -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 0}, "num_envs=0 must be an integer from 1 to"),
        ({"num_envs": -3}, "num_envs=-3 must be"),
        ({"num_envs": 2.5}, "num_envs=2.5 must be"),
        ({"num_envs": True}, "num_envs=True must be"),
        ({"device": "tpu"}, "device='tpu' must be 'cpu', 'cuda' or 'cuda:<index>'"),
        ({"device": "mps"}, "device='mps' must be"),
        ({"device": 3.5}, "device=3.5 must be"),
        ({"seed": -1}, "seed=-1 must be an integer from 0 to 18446744073709551615"),
        ({"seed": 2**64}, "seed=18446744073709551616 must be"),
        ({"seed": "x"}, "seed='x' must be"),
        ({"seed": [1, 2]}, "seed has 2 values; groups=1 needs one"),
        ({"groups": 3}, "num_envs=64 must be divisible by groups=3"),
        ({"groups": 0}, "groups=0 must be"),
        ({"first_index": 2**32}, "first_index=4294967296 must be"),
        ({"max_episode_steps": 0}, "max_episode_steps=0 must be"),
        ({"max_episode_steps": 2**31}, "max_episode_steps=2147483648 must be"),
        (
            {"autoreset_mode": "Sometimes"},
            "autoreset_mode='Sometimes' must be one of 'NextStep', 'SameStep', 'Disabled'",
        ),
        ({"dtype": "float16"}, "dtype='float16' must be one of 'float32', 'float64'"),
        ({"obs": "slice"}, "obs='slice' must be one of"),
        ({"obs": "view", "dtype": "float64"}, "obs='view' needs dtype='float32'"),
        ({"arrays": "jax"}, "arrays='jax' must be one of"),
        ({"threads": 0}, "threads=0 must be"),
        ({"action_dtype": torch.float32}, "action_dtype=torch.float32 must be one of"),
        ({"preset": "moon"}, "preset='moon' is unknown; CartPole-v1 has 'original'"),
        ({"num_env": 3}, "CartPole-v1 has no parameter or option 'num_env'; did you mean 'num_envs'?"),
        ({"check_actions": "no"}, "check_actions='no' must be one of None, True, False"),
        ({"gravity": 10**400}, "must be a finite number"),
        ({"gravty": 1.0}, "CartPole-v1 has no parameter or option 'gravty'; did you mean 'gravity'?"),
        ({"gravity": float("nan")}, "gravity=nan must be a finite number"),
        ({"gravity": 1e39}, "gravity=1e+39 must be a finite number"),
        ({"gravity": "9.8"}, "gravity='9.8' must be a number"),
        ({"masspole": 1e-50}, "masspole=1e-50 must be positive"),
        ({"masspole": 0.0}, "masspole=0.0 must be positive"),
        ({"sutton_barto_reward": 1}, "sutton_barto_reward=1 must be True or False"),
        (
            {"kinematics_integrator": "heun"},
            "kinematics_integrator='heun' must be one of 'euler', 'semi_implicit_euler'",
        ),
        ({"theta_threshold_radians": 0.5}, "theta_threshold_radians=0.5 must be at most"),
    ],
)
def test_a_wrong_argument_is_named_with_what_is_allowed(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        envs.make("cartpole", **{"num_envs": 64} | options)


def test_an_unknown_environment_is_named_with_the_nearest():
    with pytest.raises(ValueError, match="no environment 'cart_pole'; did you mean 'cartpole'"):
        envs.make("cart_pole", 1)


@pytest.mark.skipif(envs.cuda_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_cuda_without_a_gpu_says_so(device):
    with pytest.raises(
        ValueError, match=f"device='{device}': this machine has no usable CUDA device; use device='cpu'"
    ):
        envs.make("cartpole", 8, device=device)


def test_a_batch_too_large_for_memory_says_how_many_would_fit():
    with pytest.raises(
        MemoryError, match=r"num_envs=2000000000 needs 129\.0 GiB on cpu, where .* GiB are free; about"
    ) as error:
        envs.make("cartpole", 2_000_000_000)
    fits = int(str(error.value).rsplit("about ", 1)[1].split(" ")[0].replace(",", ""))
    assert 0.8 < fits * 69 / available_memory(torch.device("cpu")) < 1.2


def test_a_trajectory_too_large_for_memory_says_how_many_steps_would_fit():
    with pytest.raises(MemoryError, match="a trajectory of steps=2000000 needs .* would fit"):
        make(num_envs=8192).rollout(2_000_000, store="trajectory")


def test_a_step_before_the_first_reset_is_refused():
    env = make(reset=False)
    for call in (lambda: env.step(env.random_actions()[0]), lambda: env.rollout(3)):
        with pytest.raises(ResetNeeded, match=r"call reset\(\) before"):
            call()


# ---- reset --------------------------------------------------------------------------------------


def test_the_first_reset_uses_the_seed_of_construction():
    assert torch.equal(make(seed=5).state()["state"], make(seed=0, reset=False).reset(seed=5)[0])


def test_reset_with_a_seed_begins_again_and_without_goes_on():
    env = make(seed=5)
    first = env.state()["state"]
    second = env.reset()[0].clone()
    assert not torch.equal(first, second)
    env.rollout(100)
    assert torch.equal(env.reset(seed=5)[0], first)
    assert torch.equal(env.reset()[0], second)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["numpy", "torch", "device"])
def test_a_masked_reset_touches_the_masked_rows_alone(device, mode, kind):
    env = make(num_envs=1000, device=device, autoreset_mode=mode, check_actions=False)
    for _ in range(40):
        env.step(env.random_actions()[0])
    mask = torch.arange(1000) % 3 == 0
    before = env.state()
    given = {"numpy": mask.numpy(), "torch": mask, "device": mask.to(device)}[kind]
    options = {"reset_mask": given}
    env.reset(options=options)
    after = env.state()
    assert list(options) == ["reset_mask"]
    for key in ("state", "elapsed", "episode", "terminated", "truncated"):
        old, new = before[key].cpu().numpy(), after[key].cpu().numpy()
        np.testing.assert_array_equal(old[~mask.numpy()], new[~mask.numpy()])
    assert (after["elapsed"].cpu().numpy()[mask] == 0).all()
    assert (after["episode"].cpu().numpy()[mask] == before["episode"].cpu().numpy()[mask] + 1).all()
    assert not (after["terminated"] | after["truncated"]).cpu()[mask].any()


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        (np.zeros(64, dtype=bool), ValueError, "at least one True"),
        (torch.zeros(64, dtype=torch.bool), ValueError, "at least one True"),
        (np.ones(63, dtype=bool), ValueError, r"shape \(64,\), got \(63,\)"),
        (np.ones(64, dtype=int), TypeError, "dtype bool, got int64"),
        ([True] * 64, TypeError, "NumPy or torch array, got list"),
    ],
)
def test_a_wrong_mask_is_refused_as_gymnasium_does(mask, error, message):
    with pytest.raises(error, match=message):
        make().reset(options={"reset_mask": mask})


@pytest.mark.parametrize("extra", [{"seed": 3}, {"options": {"low": -0.01}}])
def test_a_mask_with_a_seed_or_bounds_is_refused(extra):
    options = {"reset_mask": np.ones(64, dtype=bool)} | extra.get("options", {})
    with pytest.raises(ValueError, match="cannot be combined"):
        make().reset(seed=extra.get("seed"), options=options)


def test_bounds_hold_through_autoresets_until_the_next_full_reset():
    env = make(num_envs=500, reset=False)
    env.reset(options={"low": 0.1, "high": 0.2})
    for _ in range(60):
        obs, *_, info = env.step(env.random_actions()[0])
        first = obs[info["_final_obs"]]
        assert ((first >= 0.1) & (first <= 0.2)).all()
    assert (env.state()["episode"].numpy() > 0).any()
    assert (env.reset()[0].abs() <= 0.05).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"low": 0.1, "high": -0.1}, "low=0.1 must not exceed high=-0.1"),
        ({"low": "a"}, "must be a number"),
        ({"high": 0.5}, r"must lie in \[-0.418879, 0.418879\]"),
        ({"low": float("nan")}, "must lie in"),
        ({"hihg": 0.1}, "unknown reset option 'hihg'; did you mean 'high'"),
    ],
)
def test_wrong_bounds_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make().reset(options=options)


# ---- autoreset ----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_same_step_returns_the_next_episodes_first_observation(device):
    env = make(num_envs=200, device=device)
    obs = env.reset(seed=1)[0].clone()
    for _ in range(60):
        state = env.state()
        obs, reward, terminated, truncated, info = copies(env.step(env.random_actions()[0]))
        ended = terminated | truncated
        assert torch.equal(info["_final_obs"], ended)
        assert (env.state()["elapsed"].to(torch.int32)[ended] == 0).all()
        assert (obs[ended].abs() <= 0.05).all()
        assert (
            (info["final_obs"][ended].abs()[:, 2] > 0.2094).logical_or(info["final_obs"][ended].abs()[:, 0] > 2.4).all()
        )
        assert (reward == 1).all()
        lengths = state["elapsed"].to(torch.int32) + 1
        assert torch.equal(info["episode_length"][ended], lengths[ended])
        assert torch.equal(info["episode_return"][ended], lengths[ended].float())


@pytest.mark.parametrize("device", DEVICES)
def test_next_step_shows_the_last_observation_then_resets(device):
    env = make(num_envs=200, device=device, autoreset_mode=AutoresetMode.NEXT_STEP)
    ended = torch.zeros(200, dtype=torch.bool, device=device)
    for _ in range(80):
        was = ended
        state = env.state()
        obs, reward, terminated, truncated, info = copies(env.step(env.random_actions()[0]))
        ended = terminated | truncated
        assert torch.equal(info["is_reset"], was)
        assert (obs[was].abs() <= 0.05).all()
        assert (reward[was] == 0).all()
        assert not ended[was].any()
        assert torch.equal(info["final_obs"][ended], obs[ended])
        assert (env.state()["elapsed"].to(torch.int32)[was] == 0).all()
        assert (state["episode"].to(torch.int64) + was == env.state()["episode"].to(torch.int64)).all()


@pytest.mark.parametrize("device", DEVICES)
def test_disabled_leaves_an_ended_environment_inert(device):
    env = make(num_envs=200, device=device, autoreset_mode="Disabled", check_actions=False)
    for _ in range(40):
        before, ended = env.state(), env.state()["terminated"]
        obs, reward, terminated, _, info = env.step(env.random_actions()[0])
        after = env.state()
        assert torch.equal(after["state"][ended], before["state"][ended])
        assert torch.equal(after["elapsed"].to(torch.int32)[ended], before["elapsed"].to(torch.int32)[ended])
        assert terminated[ended].all()
        assert (reward[ended] == 0).all()
        assert torch.equal(info["final_obs"][terminated], obs[terminated])
    assert ended.sum() > 100


def test_disabled_and_checked_names_the_environment_that_needs_a_reset():
    env = make(num_envs=50, autoreset_mode="Disabled")
    right = torch.ones(50, dtype=torch.uint8)
    terminated = torch.zeros(50, dtype=torch.bool)
    while not terminated.any():
        terminated = env.step(right)[2].clone()
    first = int(terminated.nonzero()[0])
    with pytest.raises(ValueError, match=f"environment {first} has ended; with autoreset disabled it needs reset"):
        env.step(right)
    env.reset(options={"reset_mask": terminated})
    env.step(right)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", [1, 2, 9, 70_000])
def test_episodes_are_truncated_at_exactly_the_limit(name, mode, limit):
    env = make(name, 3, autoreset_mode=mode, max_episode_steps=limit, check_actions=False)
    elapsed = min(limit, 60_000) - 1  # far into the episode, but the state is a first one
    env.set_state({"elapsed": np.full(3, elapsed)})
    for step in range(elapsed + 1, min(limit, elapsed + 5) + 1):
        *_, truncated, info = env.step(env.random_actions()[0])
        assert truncated.tolist() == [step == limit] * 3
    if step == limit:
        assert info["episode_length"].tolist() == [limit] * 3


def test_both_flags_may_be_true():
    env = make(num_envs=1, max_episode_steps=10)
    env.set_state({"state": [[2.39, 5.0, 0.0, 0.0]], "elapsed": [9]})
    _, _, terminated, truncated, _ = env.step(torch.tensor([1]))
    assert terminated.item() and truncated.item()


# ---- many steps at once -------------------------------------------------------------------------


def twins(name, device, **options):
    """Two equal batches, some way into their episodes."""
    pair = [make(name, 70, device=device, seed=8, check_actions=False, **options) for _ in range(2)]
    for env in pair:
        env.rollout(13)
        env.statistics()
    return pair


def assert_fused_equals_single(fused, single, steps, policy="random"):
    obs = single.reset(options={"reset_mask": np.arange(70) == 0})[0].clone()
    fused.reset(options={"reset_mask": np.arange(70) == 0})
    rows = fused.rollout(steps, policy, store="trajectory")
    actions = single.random_actions(steps)
    for k in range(steps):
        assert torch.equal(rows["obs"][k], obs)
        if policy == "random":
            assert torch.equal(rows["action"][k], actions[k])
        obs, reward, terminated, truncated, _ = copies(single.step(rows["action"][k]))
        assert torch.equal(rows["reward"][k], reward)
        assert torch.equal(rows["terminated"][k], terminated)
        assert torch.equal(rows["truncated"][k], truncated)
    assert same(fused.state(), single.state(), but=INFO)  # those of episodes that ended on the way are not written
    counted = statistics(fused)
    np.testing.assert_equal(counted, statistics(single))  # NaN where no episode ended


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("steps", [1, 7, 8, 9, 500, 1000])
def test_a_fused_trajectory_equals_single_steps_bit_for_bit(name, device, steps):
    assert_fused_equals_single(*twins(name, device), steps)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("steps", [1, 7, 8, 9, 500, 1000])
def test_fused_statistics_equal_a_fused_trajectory(name, device, steps):
    plain, stored = twins(name, device)
    assert plain.rollout(steps) == {}
    stored.rollout(steps, store="trajectory")
    assert same(plain.state(), stored.state())
    assert torch.equal(plain.step(plain.random_actions()[0])[0], stored.step(stored.random_actions()[0])[0])
    np.testing.assert_equal(statistics(plain), statistics(stored))


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


@pytest.mark.parametrize("device", DEVICES)
def test_the_linear_policy_takes_the_highest_score_and_the_lowest_such_action(device):
    env = make(num_envs=300, device=device)
    weights = torch.tensor([[0.0, 0.1, 0.3, 0.0], [0.0, 0.0, 2.0, 1.0]])
    rows = env.rollout(50, envs.Linear(weights, [0.0, 0.01]), store="trajectory")
    scores = rows["obs"].cpu().double() @ weights.T.double() + torch.tensor([0.0, 0.01]).double()
    clear = (scores[..., 1] - scores[..., 0]).abs() > 1e-6
    assert torch.equal(rows["action"].cpu()[clear], (scores[..., 1] > scores[..., 0]).to(torch.uint8)[clear])
    ties = make(num_envs=300, device=device).rollout(5, envs.Linear(torch.zeros(2, 4), [1, 1]), store="trajectory")
    assert (ties["action"] == 0).all()
    assert_fused_equals_single(*twins("cartpole", device), 30, envs.Linear(weights, [0.0, 0.01]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps=0 must be"),
        ({"steps": 3, "policy": "greedy"}, "policy='greedy' must be one of 'random'"),
        ({"steps": 3, "store": "all"}, "store='all' must be one of 'statistics', 'trajectory'"),
        (
            {"steps": 3, "policy": envs.Linear([[0] * 3] * 2, [0, 0])},
            r"weights has shape \(2, 3\); CartPole-v1 needs \(2, 4\)",
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


def test_a_rollout_needs_same_step():
    with pytest.raises(ValueError, match="rollout needs autoreset_mode='SameStep', not 'NextStep'"):
        make(autoreset_mode="NextStep").rollout(3)


def test_a_graph_needs_cuda():
    with pytest.raises(ValueError, match="a CUDA graph needs device='cuda'; this environment is on cpu"):
        make().graph()


@pytest.mark.gpu
@pytest.mark.parametrize("policy", ["random", lambda obs: (2 * obs[:, 2] + obs[:, 3] > 0).to(torch.uint8)])
def test_a_graph_replays_single_steps_bit_for_bit(policy):
    captured, single = make(num_envs=3000, device="cuda"), make(num_envs=3000, device="cuda")
    graph = captured.graph(policy, steps=10)
    assert same(captured.state(), single.state())
    for _ in range(20):
        graph.replay()
        for _ in range(10):
            obs = single._outputs[0]
            single.step(single.random_actions()[0] if policy == "random" else policy(obs))
    assert same(captured.state(), single.state())
    assert statistics(captured) == statistics(single)


@pytest.mark.gpu
def test_a_masked_reset_can_be_captured():
    env, eager = make(device="cuda", autoreset_mode="Disabled"), make(device="cuda", autoreset_mode="Disabled")
    mask = torch.zeros(64, dtype=torch.bool, device="cuda")
    mask[::2] = True
    options = {"reset_mask": mask}
    env.reset(options=options)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        env.reset(options=options)
    graph.replay()
    for _ in range(2):
        eager.reset(options=options)
    assert same(env.state(), eager.state())


@pytest.mark.gpu
def test_a_step_never_synchronises():
    env = make(device="cuda")
    action = env.random_actions()[0]
    env.step(action)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            env.step(action)
    finally:
        torch.cuda.set_sync_debug_mode("default")


# ---- statistics and state -----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", DEVICES)
def test_statistics_count_every_episode_since_the_last_call(name, device):
    env = make(name, 700, device=device, max_episode_steps=30)
    returns, lengths = [], []
    for _ in range(65):
        *_, info = env.step(env.random_actions()[0])
        returns += info["episode_return"][info["_final_obs"]].tolist()
        lengths += info["episode_length"][info["_final_obs"]].tolist()
    found = statistics(env)
    assert found["episodes"] == len(lengths) > 700
    for key, values in (("return", returns), ("length", lengths)):
        assert found[f"{key}_mean"] == pytest.approx(np.mean(values), abs=1e-6)
        assert (found[f"{key}_min"], found[f"{key}_max"]) == (min(values), max(values))
    again = statistics(env)
    assert again.pop("episodes") == 0
    assert all(np.isnan(value) for value in again.values())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_saved_state_continues_bit_for_bit_in_another_batch(name, device, mode, dtype):
    options = {"device": device, "autoreset_mode": mode, "dtype": dtype, "check_actions": False}
    env = make(name, 90, seed=4, **options)
    for _ in range(25):
        env.step(env.random_actions()[0])
    saved = env.state()
    other = envs.make(name, 90, seed=99, **options)
    other.set_state(saved)
    assert same(saved, other.state())
    for _ in range(60):
        a, b = copies(env.step(env.random_actions()[0])), copies(other.step(other.random_actions()[0]))
        assert all(torch.equal(x, y) for x, y in zip(a[:4], b[:4], strict=True))
        assert same(a[4], b[4])
    assert same(env.state(), other.state())


def test_state_is_a_copy():
    env = make()
    saved = env.state()
    kept = saved["state"].clone()
    env.step(env.random_actions()[0])
    assert torch.equal(saved["state"], kept)


def test_set_state_with_a_mask_leaves_other_rows():
    env = make()
    before, mask = env.state(), np.arange(64) < 5
    env.set_state({"state": torch.full((64, 4), 0.2), "elapsed": np.full(64, 3), "episode": np.full(64, 7)}, mask)
    after = env.state()
    assert (after["state"][:5] == 0.2).all()
    assert torch.equal(after["state"][5:], before["state"][5:])
    assert after["elapsed"].tolist() == [3] * 5 + [0] * 59
    assert after["episode"].tolist() == [7] * 5 + [0] * 59
    assert torch.equal(env.reset(options={"reset_mask": mask})[0][5:], before["state"][5:])


@pytest.mark.parametrize(
    ("state", "mask", "message"),
    [
        ({"stat": 1}, None, "unknown key 'stat'; did you mean 'state'"),
        ({"state": torch.zeros(64, 3)}, None, r"state has shape \(64, 3\); needed: \(64, 4\)"),
        ({"state": [[0, 0, 0.5, 0]] * 64}, None, r"theta=0.5 of environment 0 must be in \[-0.418879, 0.418879\]"),
        ({"state": [[0, 0, 0, 0]] * 63 + [[0, np.nan, 0, 0]]}, None, "x_dot=nan of environment 63 must be finite"),
        ({"state": [[0, 1e300, 0, 0]] * 64}, None, "x_dot=inf of environment 0 must be finite in float32"),
        ({"elapsed": np.full(64, 501)}, None, "elapsed=501 of environment 0 must be in 0 .. 500"),
        ({"elapsed": np.full(64, 500)}, None, "elapsed=500 of environment 0 must be in 0 .. 499, its episode being"),
        ({"bounds": torch.tensor(7.0)}, None, r"bounds have shape \(\); needed: \(2,\)"),
        ({"bounds": [5.0, -5.0]}, None, r"must lie in \[-0.418879, 0.418879\]"),
        ({"bounds": [0.2, 0.1]}, None, "low=0.2 must not exceed high=0.1"),
        ({"episode": np.full(64, -1)}, None, "episode=-1 of environment 0 must be in"),
        ({"elapsed": np.full(64, 1.5)}, None, "elapsed must be integers, got float64"),
        ({"state": "x"}, None, "state must be an array of numbers, got 'x'"),
        ({"bounds": ["a", "b"]}, None, "bounds must be numbers"),
        ({"t": -1}, None, "t=-1 must be"),
        ({"seed": [1, 2]}, None, "seed has 2 values"),
        ({"t": 3}, np.ones(64, dtype=bool), "'t' belongs to the whole batch"),
    ],
)
def test_a_wrong_state_is_refused_and_nothing_changes(state, mask, message):
    env = make()
    before = env.state()
    with pytest.raises(ValueError, match=message):
        env.set_state({"state": torch.full((64, 4), 0.1), "t": 99} | state if mask is None else state, mask)
    assert same(before, env.state())


@pytest.mark.parametrize("device", DEVICES)
def test_an_ended_environment_put_in_from_outside_stays_inert(device):
    env = make(device=device, autoreset_mode="Disabled", check_actions=False)
    ended = torch.arange(64) < 5
    env.set_state({"truncated": ended, "elapsed": torch.where(ended, 500, 3)})
    before = env.state()
    _, reward, _, truncated, _ = env.step(env.random_actions()[0])
    assert torch.equal(truncated.cpu(), ended)
    assert torch.equal(env.state()["state"][:5], before["state"][:5])
    assert torch.equal(reward.cpu(), (~ended).float())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("limit", [65_535, 65_536, 2**31 - 1])
def test_the_longest_episodes_end_at_the_limit(device, limit):
    env = make(num_envs=3, device=device, max_episode_steps=limit)
    env.set_state({"elapsed": np.full(3, limit - 1)})
    *_, truncated, info = env.step(env.random_actions()[0])
    assert truncated.all()
    assert info["episode_length"].tolist() == [limit] * 3


def test_restored_bounds_hold():
    env = make(reset=False)
    env.reset(options={"low": 0.1, "high": 0.2})
    other = make()
    other.set_state(env.state())
    other.reset(options={"reset_mask": np.ones(64, dtype=bool)})
    assert ((other.state()["state"] >= 0.1) & (other.state()["state"] <= 0.2)).all()


def test_numbers_of_numpy_are_parameters_too():
    assert make(gravity=np.float64(1.5), force_mag=3).params == make(gravity=1.5, force_mag=3.0).params
    assert make(sutton_barto_reward=np.True_).params.sutton_barto_reward is True


def test_actions_may_be_a_reversed_view():
    env, other = make(), make()
    action = np.arange(64) % 2
    assert torch.equal(env.step(action[::-1])[0], other.step(action[::-1].copy())[0])


@pytest.mark.gpu
def test_a_graph_keeps_its_environment_alive():
    env = make(device="cuda")
    graph, alive = env.graph(steps=2), weakref.ref(env)
    del env
    gc.collect()
    graph.replay()
    assert alive() is not None


def test_closing_frees_nothing_that_is_still_in_use():
    env = make()
    obs, *_ = env.step(env.random_actions()[0])
    kept = obs.clone()
    env.close()
    assert env.closed
    del env
    gc.collect()
    assert torch.equal(obs, kept)
