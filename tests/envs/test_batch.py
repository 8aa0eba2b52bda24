"""The contract of the batched environment, which every environment keeps: outputs, actions, resets, state."""

import copy
import gc
import pickle
import re
import warnings
import weakref

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs.checks import available_memory
from lockstep.envs.spaces import ClosedEnvironmentError, Discrete, ResetNeeded
from tests.envs.batches import DEVICES, MODES, NAMES, B, copies, make, random_step, same, spread, statistics

DISCRETE = [name for name in NAMES if isinstance(envs.port(name).action, Discrete)]
CONTINUOUS = [name for name in NAMES if name not in DISCRETE]
INTEGERS, FLOATS = (torch.uint8, torch.int32, torch.int64), (torch.float32, torch.float64)
ACTIONS = [(name, dtype) for name in NAMES for dtype in (INTEGERS if name in DISCRETE else FLOATS)]


# ---- outputs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_outputs_have_the_documented_shapes_and_types(name, device):
    env = make(name, device=device)
    n = env.single_observation_space.shape[0]
    obs, reward, terminated, truncated, info = random_step(env)
    assert (obs.shape, obs.dtype) == ((B, n), torch.float32)
    assert obs.is_contiguous()
    assert (reward.shape, reward.dtype) == ((B,), torch.float32)
    assert terminated.dtype == truncated.dtype == info["_final_obs"].dtype == torch.bool
    assert info["final_obs"].shape == (B, n)
    assert (info["episode_return"].dtype, info["episode_length"].dtype) == (torch.float32, torch.int32)
    assert {t.device.type for t in (obs, reward, terminated, truncated, *info.values())} == {device}


@pytest.mark.parametrize("name", NAMES)
def test_observations_stay_in_their_space_where_episodes_run(name):
    env = make(name)
    low, high = torch.from_numpy(env.single_observation_space.low), torch.from_numpy(env.single_observation_space.high)
    for _ in range(300):
        obs, *_ = random_step(env)
        assert ((obs >= low) & (obs <= high)).all()


@pytest.mark.parametrize("name", NAMES)
def test_step_writes_into_the_same_buffers(name):
    env = make(name)
    first, second = random_step(env), random_step(env)
    for a, b in zip(first[:4], second[:4], strict=True):
        assert a.data_ptr() == b.data_ptr()


@pytest.mark.parametrize("name", NAMES)
def test_numpy_arrays_are_views_of_the_same_buffers(name):
    env, other = make(name, arrays="numpy"), make(name)
    obs, reward, terminated, truncated, info = env.step(env.random_actions()[0].numpy())
    assert all(isinstance(a, np.ndarray) for a in (obs, reward, terminated, truncated, *info.values()))
    before = obs.copy()
    env.step(env.random_actions()[0].numpy())
    assert (obs != before).any()
    random_step(other)
    np.testing.assert_array_equal(obs, random_step(other)[0].numpy())


def test_other_libraries_see_the_buffers_through_dlpack():
    env = make()
    shared = np.from_dlpack(random_step(env)[0])
    np.testing.assert_array_equal(shared, random_step(env)[0].numpy())


@pytest.mark.parametrize("name", NAMES)
def test_a_view_is_the_state_itself_where_that_is_what_is_observed(name):
    copy = make(name, autoreset_mode="NextStep")
    n, k = copy.single_observation_space.shape[0], len(copy.port.state)
    if n != k:
        with pytest.raises(ValueError, match="obs='view'"):
            make(name, obs="view")
        return
    env = make(name, obs="view", autoreset_mode="NextStep")
    spread(env)
    spread(copy)
    for _ in range(50):
        obs = random_step(env)[0]
        assert torch.equal(obs, random_step(copy)[0])
        assert torch.equal(obs, env.state()["state"])
    assert env.bytes_per_env == copy.bytes_per_env - 4 * n


@pytest.mark.parametrize("num_envs", [1, 2, 3, 4, 1000])
def test_memory_per_environment_does_not_depend_on_their_number(num_envs):
    assert make("cartpole", num_envs).bytes_per_env == 69  # listed in test_cartpole.py


# ---- actions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(B,), (B, 1)])
@pytest.mark.parametrize(("name", "dtype"), ACTIONS)
def test_every_allowed_action_type_and_shape_gives_the_same_step(name, dtype, shape):
    env, other = make(name), make(name)
    action = env.random_actions()[0]
    expected = copies(env.step(action))
    found = other.step(action.to(dtype).reshape(shape))
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (torch.zeros(199, dtype=torch.int64), r"action has shape \(199,\); allowed: \(200,\) or \(200, 1\)"),
        (torch.zeros(1, 200, dtype=torch.int64), r"action has shape \(1, 200\)"),
        (torch.zeros(200), r"action has dtype float32; allowed: uint8, int32, int64"),
        (torch.full((200,), torch.nan), r"action has dtype float32"),
        (np.zeros(200, dtype=np.float64), r"action must be an integer torch tensor or NumPy array, got float64"),
        (torch.tensor(1), r"action has shape \(\); allowed: \(200,\) or \(200, 1\)"),
        (0, r"action must be an integer torch tensor or NumPy array, got int"),
        ([0] * 200, r"got list"),
    ],
)
def test_a_discrete_action_of_the_wrong_form_is_refused(action, message):
    with pytest.raises(ValueError, match=message):
        make("cartpole").step(action)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (torch.zeros(199), r"action has shape \(199,\); allowed: \(200,\) or \(200, 1\)"),
        (torch.zeros(200, dtype=torch.int64), r"action has dtype int64; allowed: float32, float64"),
        (np.zeros(200, dtype=np.int32), r"action must be a floating-point torch tensor or NumPy array, got int32"),
        (0.5, r"action must be a floating-point torch tensor or NumPy array, got float"),
    ],
)
def test_a_continuous_action_of_the_wrong_form_is_refused(action, message):
    with pytest.raises(ValueError, match=message):
        make("pendulum").step(action)


def outside(name: str, dtype: torch.dtype) -> list:
    """Actions that lie outside the space, or are not numbers at all."""
    space = envs.port(name).action
    if name in CONTINUOUS:
        low, high = space.low.item(), space.high.item()
        return [np.nextafter(np.float32(low), np.float32(-9)).item(), 2 * high, torch.nan, torch.inf, -torch.inf]
    return [int(space.n), 255] if dtype == torch.uint8 else [-1, int(space.n), 255]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "dtype"), ACTIONS)
def test_an_action_outside_the_space_is_named_and_nothing_moves(device, name, dtype):
    env = make(name, device=device, check_actions=True)
    before = env.state()
    for value in outside(name, dtype):
        action = env.random_actions()[0].to(dtype)
        action[17] = value
        with pytest.raises(ValueError, match=rf"action\[17\]={value} of environment 17 is not in [\[0-9]"):
            env.step(action)
        assert same(before, env.state())


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_ends_of_the_space_belong_to_it(name):
    env = make(name)
    for end in (env.single_action_space.low, env.single_action_space.high):
        env.step(torch.full((B,), end.item()))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", DISCRETE)
def test_unchecked_a_discrete_action_outside_the_space_acts_as_the_nearest(name, device):
    env, other = make(name, device=device, check_actions=False), make(name, device=device)
    highest = int(env.single_action_space.n) - 1
    wrong, nearest = torch.tensor([-5, 9] * (B // 2)), torch.tensor([0, highest] * (B // 2))
    assert torch.equal(env.step(wrong.to(device))[0], other.step(nearest.to(device))[0])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_unchecked_not_a_number_acts_as_zero(name, device):
    env, other = make(name, device=device, check_actions=False), make(name, device=device)
    found, expected = env.step(torch.full((B,), torch.nan, device=device)), other.step(torch.zeros(B, device=device))
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])


def test_a_chosen_action_type_excludes_the_others():
    env = make("cartpole", action_dtype=torch.int32)
    with pytest.raises(ValueError, match="dtype uint8; allowed: int32"):
        env.step(torch.zeros(B, dtype=torch.uint8))


def test_actions_may_be_read_only():
    for env in (make(), make("pendulum"), make("vehicular_edge", 2)):
        action = env.random_actions()[0].numpy()
        action.flags.writeable = False
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            env.step(action)


def test_actions_may_be_a_reversed_view():
    env, other = make(), make()
    action = np.arange(B) % 2
    assert torch.equal(env.step(action[::-1])[0], other.step(action[::-1].copy())[0])


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
        ({"groups": 3}, "num_envs=200 must be divisible by groups=3"),
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
        ({"port": 3}, "CartPole-v1 has no parameter or option 'port'"),
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
        envs.make("cartpole", **{"num_envs": B} | options)


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


def test_numbers_of_numpy_are_parameters_too():
    make_params = envs.port("cartpole").make_params
    assert make_params(None, {"gravity": np.float64(1.5)}) == make_params(None, {"gravity": 1.5})
    assert make_params(None, {"force_mag": 3}).force_mag == 3.0
    assert make_params(None, {"sutton_barto_reward": np.True_}).sutton_barto_reward is True


@pytest.mark.parametrize("name", NAMES)
def test_a_step_before_the_first_reset_is_refused(name):
    env = make(name, reset=False)
    for call in (lambda: random_step(env), lambda: env.rollout(3)):
        with pytest.raises(ResetNeeded, match=r"call reset\(\) before"):
            call()


# ---- reset --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_first_reset_uses_the_seed_of_construction(name):
    env, other = make(name, seed=5), make(name, seed=0, reset=False)
    other.reset(seed=5)
    assert same(env.state(), other.state())


@pytest.mark.parametrize("name", NAMES)
def test_reset_with_a_seed_begins_again_and_without_goes_on(name):
    env = make(name, seed=5)
    first = env.state()["state"]
    second = env.reset()[0].clone()
    assert (first != env.state()["state"]).any(dim=1).all()
    env.rollout(100)
    env.reset(seed=5)
    assert torch.equal(env.state()["state"], first)
    assert torch.equal(env.reset()[0], second)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["numpy", "torch", "device"])
@pytest.mark.parametrize("name", NAMES)
def test_a_masked_reset_touches_the_masked_rows_alone(name, device, mode, kind):
    env = make(name, 1000, device=device, autoreset_mode=mode, check_actions=False)
    spread(env)
    for _ in range(40):
        random_step(env)
    mask = torch.arange(1000) % 3 == 0
    before = env.state()
    given = {"numpy": mask.numpy(), "torch": mask, "device": mask.to(device)}[kind]
    options = {"reset_mask": given}
    env.reset(options=options)
    after = env.state()
    assert list(options) == ["reset_mask"]
    before, after = ({k: v.cpu().numpy() for k, v in s.items() if k not in ("t", "seed")} for s in (before, after))
    for key in set(before) - {"bounds"}:
        np.testing.assert_array_equal(before[key][~mask.numpy()], after[key][~mask.numpy()])
    assert (after["elapsed"][mask] == 0).all()
    assert (after["episode"][mask] == before["episode"][mask] + 1).all()
    assert not (after["terminated"] | after["truncated"])[mask].any()


@pytest.mark.parametrize("name", envs.names())
def test_a_state_holds_no_type_that_a_mask_cannot_index_on_a_gpu(name):
    unsigned = {torch.uint16, torch.uint32, torch.uint64}
    assert not unsigned & {value.dtype for value in envs.make(name, 2).state().values() if torch.is_tensor(value)}


def test_a_mask_may_be_read_only_or_a_view():
    env, other = make(), make()
    mask = np.arange(B) % 3 == 0
    mask.flags.writeable = False
    for given in (mask, mask[::-1]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            env.reset(options={"reset_mask": given})
        other.reset(options={"reset_mask": torch.tensor(given.tolist())})
    assert same(env.state(), other.state())


@pytest.mark.parametrize("name", NAMES)
def test_a_masked_reset_draws_what_a_full_one_draws(name):
    env, other = make(name), make(name)
    mask = torch.arange(B) % 2 == 0
    env.reset(options={"reset_mask": mask})
    other.reset()
    assert torch.equal(env.state()["state"][mask], other.state()["state"][mask])


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        (np.zeros(B, dtype=bool), ValueError, "at least one True"),
        (torch.zeros(B, dtype=torch.bool), ValueError, "at least one True"),
        (np.ones(B - 1, dtype=bool), ValueError, r"shape \(200,\), got \(199,\)"),
        (np.ones(B, dtype=int), TypeError, "dtype bool, got int64"),
        ([True] * B, TypeError, "NumPy or torch array, got list"),
    ],
)
def test_a_wrong_mask_is_refused_as_gymnasium_does(mask, error, message):
    with pytest.raises(error, match=message):
        make().reset(options={"reset_mask": mask})


@pytest.mark.parametrize("extra", [{"seed": 3}, {"options": {"low": -0.01}}])
def test_a_mask_with_a_seed_or_bounds_is_refused(extra):
    options = {"reset_mask": np.ones(B, dtype=bool)} | extra.get("options", {})
    with pytest.raises(ValueError, match="cannot be combined"):
        make().reset(seed=extra.get("seed"), options=options)


@pytest.mark.parametrize("name", NAMES)
def test_the_default_bounds_given_change_nothing(name):
    env, other, port = make(name), make(name, reset=False), envs.port(name)
    other.reset(options=dict(zip(port.reset_options, port.reset_bounds({}), strict=True)))
    assert same(env.state(), other.state())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"low": 0.1, "high": -0.1}, "low=0.1 must not exceed high=-0.1"),
        ({"low": "a"}, "must be a number"),
        ({"high": 0.5}, r"must lie in \[-0.418879, 0.418879\]"),
        ({"low": float("nan")}, "must lie in"),
        ({"hihg": 0.1}, "unknown reset option 'hihg'; did you mean 'high'"),
        ({3: 0.1}, "unknown reset option 3; known: low, high, reset_mask"),
    ],
)
def test_wrong_bounds_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make().reset(options=options)


# ---- statistics and state -----------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_statistics_count_every_episode_since_the_last_call(name, device):
    env = make(name, 700, device=device)
    spread(env)
    sums, returns, lengths = np.zeros(700), [], []
    for step in range(env.max_episode_steps + 65):
        _, reward, terminated, truncated, info = random_step(env)
        sums += reward.double().cpu().numpy()
        ended = (terminated | truncated).cpu().numpy()
        found, length = (info[key].cpu().numpy()[ended] for key in ("episode_return", "episode_length"))
        whole = length <= step  # other episodes began before the first step
        np.testing.assert_allclose(found[whole], sums[ended][whole], rtol=1e-4, atol=1e-4)
        sums[ended] = 0
        returns += found.tolist()
        lengths += length.tolist()
    counted = statistics(env)
    assert counted["episodes"] == len(lengths) > 700
    for key, values in (("return", returns), ("length", lengths)):
        assert counted[f"{key}_mean"] == pytest.approx(np.mean(values), rel=1e-9, abs=1e-6)
        assert (counted[f"{key}_min"], counted[f"{key}_max"]) == (min(values), max(values))
    again = statistics(env)
    assert again.pop("episodes") == 0
    assert all(np.isnan(value) for value in again.values())


def test_returns_too_large_to_be_summed_have_no_mean():
    env = make("mountain_car_continuous", check_actions=False)
    env.set_state({"elapsed": np.full(B, env.max_episode_steps - 1)})
    *_, info = env.step(torch.full((B,), 1e18))
    assert info["episode_return"].tolist() == pytest.approx([-1e35] * B)
    counted = statistics(env)
    assert counted["episodes"] == B
    assert np.isnan(counted["return_mean"])
    assert counted["return_min"] == pytest.approx(-1e35)


def test_state_is_a_copy():
    env = make()
    saved = env.state()
    kept = saved["state"].clone()
    random_step(env)
    assert torch.equal(saved["state"], kept)


@pytest.mark.parametrize("name", NAMES)
def test_set_state_with_a_mask_leaves_other_rows(name):
    env = make(name)
    before, mask, k = env.state(), np.arange(B) < 5, len(env.port.state)
    env.set_state({"state": torch.full((B, k), 0.2), "elapsed": np.full(B, 3), "episode": np.full(B, 7)}, mask)
    after = env.state()
    assert (after["state"][:5] == 0.2).all()
    assert torch.equal(after["state"][5:], before["state"][5:])
    assert after["elapsed"].tolist() == [3] * 5 + [0] * (B - 5)
    assert after["episode"].tolist() == [7] * 5 + [0] * (B - 5)


@pytest.mark.parametrize("name", NAMES)
def test_a_state_put_in_is_observed(name):
    env, other = make(name, seed=1), make(name, seed=2)
    obs, _ = other.reset(seed=3)
    assert not torch.equal(obs, env.reset(seed=1)[0])
    other.set_state({"state": env.state()["state"]})
    assert torch.equal(obs, env.reset(seed=1)[0])  # the buffer that reset returned


@pytest.mark.parametrize("name", NAMES)
def test_a_state_that_the_kernel_is_not_written_for_is_refused(name):
    env, port = make(name), envs.port(name)
    for column, (field, limit) in enumerate(zip(port.state, port.state_limit, strict=True)):
        for value in [np.nan, np.inf, *([1.01 * limit, -1.01 * limit] if np.isfinite(limit) else [])]:
            state = np.zeros((B, len(port.state)))
            state[3, column] = value
            with pytest.raises(ValueError, match=f"{field}=.* of environment 3 must be"):
                env.set_state({"state": state})
        if np.isfinite(limit):
            state[3, column] = np.float32(limit)
            env.set_state({"state": state})


@pytest.mark.parametrize(
    ("state", "mask", "message"),
    [
        ({"stat": 1}, None, "unknown key 'stat'; did you mean 'state'"),
        ({"state": torch.zeros(B, 3)}, None, r"state has shape \(200, 3\); needed: \(200, 4\)"),
        ({"state": [[0, 0, 0.5, 0]] * B}, None, r"theta=0.5 of environment 0 must be in \[-0.418879, 0.418879\]"),
        ({"state": [[0, 0, 0, 0]] * 199 + [[0, np.nan, 0, 0]]}, None, "x_dot=nan of environment 199 must be finite"),
        ({"state": [[0, 1e300, 0, 0]] * B}, None, "x_dot=inf of environment 0 must be finite in float32"),
        ({"elapsed": np.full(B, 501)}, None, "elapsed=501 of environment 0 must be in 0 .. 500"),
        ({"elapsed": np.full(B, 500)}, None, "elapsed=500 of environment 0 must be in 0 .. 499, its episode being"),
        ({"bounds": torch.tensor(7.0)}, None, r"bounds have shape \(\); needed: \(2,\)"),
        ({"bounds": [5.0, -5.0]}, None, r"must lie in \[-0.418879, 0.418879\]"),
        ({"bounds": [0.2, 0.1]}, None, "low=0.2 must not exceed high=0.1"),
        ({"episode": np.full(B, -1)}, None, "episode=-1 of environment 0 must be in"),
        ({"elapsed": np.full(B, 1.5)}, None, "elapsed must be integers, got float64"),
        ({"state": "x"}, None, "state must be an array of numbers, got 'x'"),
        ({"bounds": ["a", "b"]}, None, "bounds must be numbers"),
        ({"t": -1}, None, "t=-1 must be"),
        ({"seed": [1, 2]}, None, "seed has 2 values"),
        ({"t": 3}, np.ones(B, dtype=bool), "'t' belongs to the whole batch"),
    ],
)
def test_a_wrong_state_is_refused_and_nothing_changes(state, mask, message):
    env = make()
    before = env.state()
    with pytest.raises(ValueError, match=message):
        env.set_state({"state": torch.full((B, 4), 0.1), "t": 99} | state if mask is None else state, mask)
    assert same(before, env.state())


@pytest.mark.parametrize("name", NAMES)
def test_restored_bounds_hold(name):
    port = envs.port(name)
    env, other, third = make(name, reset=False), make(name), make(name, reset=False)
    low, high = port.reset_bounds({})
    narrow = (0.5 * low, 0.5 * high) if name == "pendulum" else (0.75 * low + 0.25 * high, 0.25 * low + 0.75 * high)
    env.reset(options=dict(zip(port.reset_options, narrow, strict=True)))
    other.set_state(env.state())
    everyone = {"reset_mask": np.ones(B, dtype=bool)}
    first = other.reset(options=everyone)[0].clone()
    assert torch.equal(first, env.reset(options=everyone)[0])
    third.reset()
    assert not torch.equal(first, third.reset()[0])


@pytest.mark.gpu
def test_a_graph_keeps_its_environment_alive():
    env = make(device="cuda")
    graph, alive = env.graph(steps=2), weakref.ref(env)
    del env
    gc.collect()
    graph.replay()
    assert alive() is not None


@pytest.mark.parametrize("name", envs.names())
def test_a_closed_batch_says_so(name):
    env = envs.make(name, 2)
    env.reset()
    state = env.state()
    env.close()
    env.close()
    uses = (
        lambda: random_step(env),
        lambda: env.reset(seed=1),
        lambda: env.reset(options={"reset_mask": np.ones(2, dtype=bool)}),
        lambda: env.rollout(3),
        lambda: env.set_state(state),
        lambda: env.graph(),
    )
    for use in uses:
        with pytest.raises(ClosedEnvironmentError, match=f"batch of {name} is closed; make another with envs.make"):
            use()
    assert same(state, env.state())


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("name", envs.names())
def test_a_batch_says_how_to_have_it_in_another_process(name, copied):
    env = envs.make(name, 2)
    with pytest.raises(TypeError, match=f"a batch of {name} .* cannot be pickled .*: call envs.make.* set_state"):
        copied(env)


def test_closing_frees_nothing_that_is_still_in_use():
    env = make()
    obs, *_ = random_step(env)
    kept = obs.clone()
    env.close()
    assert env.closed
    del env
    gc.collect()
    assert torch.equal(obs, kept)


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
