"""The use of a batch: made, reset, drawn, closed; and the sentences about wrong input."""

import copy
import gc
import pickle
import re
import warnings
import weakref

import numpy as np
import pytest
import torch
from gymnasium.error import ClosedEnvironmentError, ResetNeeded

from lockstep import envs
from lockstep.envs.checks import available_memory
from tests.contract.batches import (
    DEVICES,
    DRAWN,
    LIMIT,
    MODES,
    copies,
    equal,
    having,
    make,
    one_lane,
    per_environment,
    played,
    port,
    random_step,
    spread,
)

VIEWED = having(lambda declared: declared.observes_state)
DRAWABLE = having(lambda declared: declared.render)


# ---- outputs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_outputs_have_the_documented_shapes_and_types(name, device):
    env, declared = make(name, device=device, autoreset_mode="NextStep"), port(name)
    B, n = env.num_envs, env.single_observation_space.shape[0]
    agents = (len(env.agents),) if env.agents else ()
    obs, reward, terminated, truncated, info = random_step(env)
    first, shown = env.reset()
    assert first is obs and list(shown) == (["active"] if agents else [])
    assert (obs.shape, obs.dtype) == ((B, *agents, n), torch.float32)
    for tensor, dtype in ((reward, torch.float32), (terminated, torch.bool), (truncated, torch.bool)):
        assert (tensor.shape, tensor.dtype) == ((B, *agents), dtype)
    assert obs.is_contiguous() or declared.joint
    documented = {
        "final_obs": ((B, *agents, n), torch.float32),
        "episode_return": ((B,), torch.float32),
        "episode_length": ((B,), torch.int32),
        "_final_obs": ((B,), torch.bool),
        "is_reset": ((B,), torch.bool),
    }
    documented |= {"active": ((B, *agents), torch.bool)} if agents else {}
    documented |= {key: ((B, *shape), torch.float32) for key, shape in env.metrics.items()}
    documented |= {key: ((B, *shape), torch.bool) for key, shape in env.flags.items()}
    documented |= {key: ((B, *shape), torch.int32) for key, shape in env.amounts.items()}
    assert {key: (tuple(value.shape), value.dtype) for key, value in info.items()} == documented
    assert {t.device.type for t in (obs, reward, terminated, truncated, *info.values())} == {device}


def test_agents_that_share_everything_share_the_memory():
    for name in having(lambda declared: declared.joint):
        env = make(name)
        *outputs, info = random_step(env)
        for tensor in (*outputs, info["final_obs"], info["active"]):
            assert (tensor == tensor[:, :1]).all()
        assert info["active"].all()
        assert all(tensor.stride(1) == 0 for tensor in outputs)


def test_observations_of_running_episodes_lie_in_their_space(name):
    env = make(name)
    space, numbers = env.single_observation_space, env.single_observation_space.shape
    for _ in range(30):
        rows = random_step(env)[0].reshape(-1, *numbers).numpy()
        assert ((rows >= space.low) & (rows <= space.high)).all()


def test_a_step_writes_into_the_same_buffers_and_numpy_arrays_are_views_of_them(name):
    env, other = make(name, arrays="numpy"), make(name)
    obs, *rest, info = env.step(env.random_actions()[0].numpy())
    assert all(isinstance(array, np.ndarray) for array in (obs, *rest, *info.values()))
    before = obs.copy()
    again = env.step(env.random_actions()[0].numpy())
    assert all(a is b or a.ctypes.data == b.ctypes.data for a, b in zip((obs, *rest), again[:4], strict=True))
    first, second = random_step(other), random_step(other)
    assert all(a.data_ptr() == b.data_ptr() for a, b in zip(first[:4], second[:4], strict=True))
    np.testing.assert_array_equal(obs, second[0].numpy())
    assert (obs != before).any()


def test_other_libraries_see_the_buffers_through_dlpack():
    env = make("cartpole")
    shared = np.from_dlpack(random_step(env)[0])
    np.testing.assert_array_equal(shared, random_step(env)[0].numpy())


def test_a_view_is_the_state_itself_where_that_is_what_is_observed(name):
    if name not in VIEWED:
        with pytest.raises(ValueError, match="obs='view' needs observations that are the state; those of"):
            make(name, obs="view")
        return
    env, other = (make(name, obs=obs, autoreset_mode="NextStep") for obs in ("view", "copy"))
    spread(env), spread(other)
    for _ in range(50):
        obs = random_step(env)[0]
        assert torch.equal(obs, random_step(other)[0])
        assert torch.equal(obs, env.state()["state"])
    assert env.bytes_per_env == other.bytes_per_env - 4 * obs.shape[1]


def test_memory_per_environment_does_not_depend_on_their_number(name):
    counts = [1, 2, 3, 150] if one_lane(port(name)) else [1, 3]
    batches = [make(name, count, reset=False) for count in counts]
    assert len({env.bytes_per_env for env in batches}) == 1
    parts = batches[-1].memory()
    assert set(parts) == {"state", "observations", "record", "outputs", "tables", "scratch"}
    assert parts["state"] == counts[-1] * sum(rows.nbytes // counts[-1] for rows in batches[-1].fields().values())


@pytest.mark.parametrize("name", having(lambda declared: declared.record))
def test_a_record_is_kept_where_it_is_asked_for(name):
    env, other = make(name, trace=True), make(name)
    assert env.memory()["record"] > 0 == other.memory()["record"]
    assert equal(copies(random_step(env)), copies(random_step(other)))


# ---- construction ---------------------------------------------------------------------------------------------------


def wrong_options(name: str) -> list[tuple]:
    """Options that every environment refuses, and the sentence."""
    B = make(name).num_envs
    declared = port(name)
    several = not one_lane(declared)
    return [
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
        ({"groups": 7}, f"num_envs={B} must be divisible by groups=7"),
        ({"groups": 0}, "groups=0 must be"),
        ({"first_index": 2**32}, "first_index=4294967296 must be"),
        ({"first_index": -1}, "first_index=-1 must be"),
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
        ({"chunk": 0}, "chunk=0 must be"),
        *([] if several else [({"chunk": 3}, f"chunk=3: environments of {declared.title} are launched together")]),
        ({"trace": "yes"}, "trace='yes' must be one of True, False"),
        *([] if declared.record else [({"trace": True}, "keeps no record of its steps")]),
        ({"check_actions": "no"}, "check_actions='no' must be one of None, True, False"),
        ({"render_mode": "human"}, "render_mode='human' must be one of None"),
        ({"preset": "moon"}, "preset='moon' is unknown"),
        *([({"scenarios": 0}, "scenarios=0 must be")] if name in DRAWN else []),
    ]


def test_a_wrong_argument_is_named_with_what_is_allowed(name):
    for options, message in wrong_options(name):
        with pytest.raises(ValueError, match=re.escape(message)):
            make(name, **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cartpole", {"num_env": 3}, "CartPole-v1 has no parameter or option 'num_env'; did you mean 'num_envs'?"),
        ("cartpole", {"port": 3}, "CartPole-v1 has no parameter or option 'port'"),
        ("cartpole", {"gravty": 1.0}, "CartPole-v1 has no parameter or option 'gravty'; did you mean 'gravity'?"),
        ("cartpole", {"gravity": 10**400}, "must be from -3.40282e+38 to 3.40282e+38"),
        ("cartpole", {"gravity": float("nan")}, "gravity=nan must be a finite number"),
        ("cartpole", {"gravity": 1e39}, "gravity=1e+39 must be from -3.40282e+38 to 3.40282e+38"),
        ("cartpole", {"gravity": "9.8"}, "gravity='9.8' must be a number"),
        ("cartpole", {"masspole": 1e-50}, "masspole=1e-50 must be at least 1.17549e-38"),
        ("cartpole", {"masspole": 0.0}, "masspole=0.0 must be positive"),
        ("cartpole", {"sutton_barto_reward": 1}, "sutton_barto_reward=1 must be True or False"),
        (
            "cartpole",
            {"kinematics_integrator": "heun"},
            "kinematics_integrator='heun' must be one of 'euler', 'semi_implicit_euler'",
        ),
        ("cartpole", {"theta_threshold_radians": 0.5}, "theta_threshold_radians=0.5 must be at most"),
        ("vehicular_edge", {"gains": "none"}, "gains='none'"),
        ("vehicular_edge", {"vehicels": 3}, "'vehicels'; did you mean 'vehicles'"),
        ("vehicular_edge", {"thread": 2}, "no parameter or option 'thread'; did you mean 'threads'"),
        ("cart_pole", {}, "no environment 'cart_pole'; did you mean 'cartpole'"),
        (7, {}, "an environment is named by a string, got 7"),
    ],
)
def test_a_wrong_parameter_or_name_is_answered_with_the_nearest(name, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        envs.make(name, 8, **options)


def test_a_batch_made_in_inference_mode_serves_outside(name):
    with torch.inference_mode():
        env = make(name)
        random_step(env)
        kept = env.state()
        rows = env.rollout(2, store="trajectory") if one_lane(port(name)) else {}
    env.reset(seed=3)
    env.set_state(kept)
    assert equal(env.state(), kept)
    env.statistics()
    assert all(tensor.zero_().sum() == 0 for tensor in rows.values())


def test_numbers_of_numpy_are_parameters_too():
    make_params = envs.port("cartpole").make_params
    assert make_params(None, {"gravity": np.float64(1.5)}) == make_params(None, {"gravity": 1.5})
    assert make_params(None, {"force_mag": 3}).force_mag == 3.0
    assert make_params(None, {"sutton_barto_reward": np.True_}).sutton_barto_reward is True


@pytest.mark.skipif(envs.cuda_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_cuda_without_a_gpu_says_so(name, device):
    message = f"device='{device}': this machine has no usable CUDA device; use device='cpu'"
    with pytest.raises(ValueError, match=message):
        make(name, device=device)


def test_a_batch_too_large_for_memory_says_how_many_would_fit(name):
    each = make(name).bytes_per_env
    with pytest.raises(MemoryError, match=r"num_envs=2000000000 needs .* GiB on cpu, where .* GiB are free") as error:
        make(name, 2_000_000_000)
    fits = int(str(error.value).rsplit("about ", 1)[1].split(" ")[0].replace(",", ""))
    if name not in DRAWN:  # scenarios take memory too
        assert 0.8 < fits * each / available_memory(torch.device("cpu")) < 1.2


# ---- reset ----------------------------------------------------------------------------------------------------------


def test_what_needs_a_reset_says_so(name):
    env = make(name, reset=False)
    mask = {"reset_mask": np.ones(env.num_envs, dtype=bool)}
    for call in (lambda: random_step(env), lambda: env.rollout(3), lambda: env.reset(options=mask)):
        with pytest.raises(ResetNeeded, match=r"call reset\(\) before"):
            call()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", MODES)
def test_a_masked_reset_touches_the_masked_rows_alone(name, device, mode):
    env = played(name, device=device, autoreset_mode=mode, check_actions=False)
    mask = torch.arange(env.num_envs) % 3 == 0
    backwards = mask.numpy()[::-1].copy()[::-1]
    backwards.flags.writeable = False
    for given in (mask.numpy(), backwards, mask, mask.to(device)):
        before = env.state()
        options = {"reset_mask": given}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            env.reset(options=options)
        after = env.state()
        assert list(options) == ["reset_mask"]
        for key, rows in per_environment(before).items():
            assert equal(rows[~mask], after[key][~mask]), key
        assert not after["elapsed"][mask].any()
        assert equal(after["episode"][mask], before["episode"][mask] + 1)
        assert not (after["terminated"] | after["truncated"])[mask].any()
        assert after.get("active", torch.ones(1, dtype=torch.bool)).any()
        random_step(env)


def test_a_wrong_reset_is_refused(name):
    env = make(name)
    B, before = env.num_envs, env.state()
    table = [
        (np.zeros(B, dtype=bool), ValueError, "must contain at least one True"),
        (torch.zeros(B, dtype=torch.bool), ValueError, "must contain at least one True"),
        (np.ones(B - 1, dtype=bool), ValueError, rf"shape \({B},\), got \({B - 1},\)"),
        (np.ones(B, dtype=int), TypeError, "dtype bool, got int64"),
        ([True] * B, TypeError, "NumPy or torch array, got list"),
    ]
    for mask, error, message in table:
        with pytest.raises(error, match=message):
            env.reset(options={"reset_mask": mask})
    with pytest.raises(ValueError, match="cannot be combined with a seed"):
        env.reset(seed=3, options={"reset_mask": np.ones(B, dtype=bool)})
    with pytest.raises(ValueError, match="unknown reset option 'reset_maks'; did you mean 'reset_mask'"):
        env.reset(options={"reset_maks": None})
    with pytest.raises(TypeError, match="options must be a mapping, got list"):
        env.reset(options=[1])
    with pytest.raises(ValueError, match="seed=-1 must be"):
        env.reset(seed=-1)
    assert equal(before, env.state())


@pytest.mark.parametrize("name", having(lambda declared: declared.reset_options))
def test_the_default_bounds_given_change_nothing(name):
    env, other, declared = make(name), make(name, reset=False), port(name)
    other.reset(options=dict(zip(declared.reset_options, declared.reset_bounds({}), strict=True)))
    assert equal(env.state(), other.state())
    bounds = {declared.reset_options[0]: 0.0}
    with pytest.raises(ValueError, match="cannot be combined with a seed or with reset bounds"):
        env.reset(options={"reset_mask": np.ones(env.num_envs, dtype=bool)} | bounds)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"low": 0.1, "high": -0.1}, "low=0.1 must not exceed high=-0.1"),
        ({"low": "a"}, "must be a number"),
        ({"low": torch.tensor(1j)}, "must be a number"),
        ({"high": 10**400}, "must be a number"),
        ({"high": 0.5}, r"must lie in \[-0.418879, 0.418879\]"),
        ({"low": float("nan")}, "must lie in"),
        ({"hihg": 0.1}, "unknown reset option 'hihg'; did you mean 'high'"),
        ({3: 0.1}, "unknown reset option 3; known: low, high, reset_mask"),
    ],
)
def test_wrong_bounds_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make("cartpole").reset(options=options)


# ---- pictures, copies and the end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_pictures_are_drawn_where_they_are_declared(name, mode):
    if name not in DRAWABLE:
        assert make(name).metadata["render_modes"] == []
        with pytest.raises(NotImplementedError, match=f"{make(name).name} has no pictures"):
            make(name).render()
        return
    pytest.importorskip("pygame", reason="rendering needs pygame: pip install pygame-ce")
    env = played(name, autoreset_mode=mode, check_actions=False, render_mode="rgb_array")
    before, pictures = env.state(), env.render([0, 1, 2, 3])
    assert [(picture.dtype, picture.shape[2]) for picture in pictures] == [(np.uint8, 3)] * 4
    assert (pictures[0] != pictures[1]).any()
    for asked, expected in (([3, 0, 3], [3, 0, 3]), (2, [2]), (np.array([1, 3]), [1, 3]), ([], [])):
        for picture, i in zip(env.render(asked), expected, strict=True):
            np.testing.assert_array_equal(picture, pictures[i])
    assert equal(before, env.state())
    for index in (-1, env.num_envs):
        with pytest.raises(
            ValueError, match=f"no environment {index} to render: the batch has 0 .. {env.num_envs - 1}"
        ):
            env.render([0, index])
    with pytest.raises(ResetNeeded, match=r"call reset\(\) before render\(\)"):
        make(name, reset=False).render()


def test_a_closed_batch_says_so(name):
    env = make(name)
    state, mask = env.state(), {"reset_mask": np.ones(env.num_envs, dtype=bool)}
    env.close()
    env.close()
    uses = (
        lambda: random_step(env),
        lambda: env.reset(seed=1),
        lambda: env.reset(options=mask),
        lambda: env.rollout(3),
        lambda: env.set_state(state),
        lambda: env.graph(),
    )
    for use in uses:
        with pytest.raises(ClosedEnvironmentError, match=f"batch of {env.name} is closed; make another with envs.make"):
            use()
    assert equal(state, env.state())


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_batch_says_how_to_have_it_in_another_process(name, copied):
    env = make(name)
    with pytest.raises(TypeError, match=f"a batch of {env.name} .* cannot be pickled .*: call envs.make.* set_state"):
        copied(env)


def test_closing_frees_nothing_that_is_still_in_use(name):
    env = make(name)
    obs, *_ = random_step(env)
    kept = obs.clone()
    env.close()
    assert env.closed
    del env
    gc.collect()
    assert torch.equal(obs, kept)


@pytest.mark.gpu
def test_a_graph_keeps_its_environment_alive(name):
    env = make(name, device="cuda")
    graph, alive = env.graph(steps=2), weakref.ref(env)
    del env
    gc.collect()
    graph.replay()
    assert alive() is not None


@pytest.mark.gpu
def test_a_step_and_a_masked_reset_never_wait_for_the_device(name):
    options = {} if one_lane(port(name)) else {"chunk": 3}
    env = make(name, device="cuda", max_episode_steps=LIMIT // 4, **options)
    action, mask = env.random_actions()[0], torch.arange(env.num_envs, device="cuda") < 3
    env.step(action), env.reset(options={"reset_mask": mask})
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(LIMIT):
            env.step(action)
        env.reset(options={"reset_mask": mask})
    finally:
        torch.cuda.set_sync_debug_mode("default")
