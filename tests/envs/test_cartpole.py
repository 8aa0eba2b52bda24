"""CartPole against Gymnasium's class and against facts that were worked out elsewhere."""

import math
import shutil

import gymnasium
import numpy as np
import pytest
import torch

import envs
from envs.batch import BatchedEnv

BALANCE = envs.Linear([[0, 0, 0, 0], [0, 0, 2, 1]], [0, 0])  # push to the right if 2 theta + theta_dot > 0


def one_step(state, action, **options):
    """Next state of one environment, reward and terminated."""
    env = envs.make("cartpole", 1, autoreset_mode="Disabled", dtype="float64", **options)
    env.set_state({"state": [state], "elapsed": [0]})
    _, reward, terminated, _, _ = env.step(torch.tensor([action]))
    return env.state()["state"][0].tolist(), reward.item(), terminated.item()


def test_an_upright_pole_at_rest_is_pushed_as_worked_out_by_hand():
    # temp = 10/1.1; theta_acc = -temp / (0.5 (4/3 - 0.1/1.1)); x_acc = temp - 0.05 theta_acc / 1.1
    push = 10 / 1.1
    theta_acc = -push / (0.5 * (4 / 3 - 0.1 / 1.1))
    x_acc = push - 0.05 * theta_acc / 1.1
    state, reward, terminated = one_step([0.0, 0.0, 0.0, 0.0], 1)
    assert state == pytest.approx([0.0, 0.02 * x_acc, 0.0, 0.02 * theta_acc], abs=1e-15)
    assert (reward, terminated) == (1.0, False)
    mirrored, _, _ = one_step([0.0, 0.0, 0.0, 0.0], 0)
    assert mirrored == pytest.approx([-v for v in state], abs=1e-15)


def test_without_gravity_or_force_a_pole_at_rest_stays():
    state, _, _ = one_step([0.1, 0.5, 0.05, 0.0], 1, gravity=0.0, force_mag=0.0)
    assert state == pytest.approx([0.1 + 0.02 * 0.5, 0.5, 0.05, 0.0], abs=1e-15)


def test_semi_implicit_integration_moves_with_the_new_speeds():
    explicit, _, _ = one_step([0.0, 0.0, 0.0, 0.0], 1)
    implicit, _, _ = one_step([0.0, 0.0, 0.0, 0.0], 1, kinematics_integrator="semi_implicit_euler")
    expected = [0.02 * explicit[1], explicit[1], 0.02 * explicit[3], explicit[3]]
    assert implicit == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(("field", "threshold"), [(0, 2.4), (2, 12 * 2 * math.pi / 360)])
@pytest.mark.parametrize("side", [-1, 1])
def test_an_episode_ends_strictly_beyond_each_threshold(field, threshold, side):
    for offset, expected in ((-1e-9, False), (1e-9, True)):
        state = [0.0, 0.0, 0.0, 0.0]
        state[field] = side * (threshold + offset)  # at rest a field does not move in this step
        assert one_step(state, 1)[2] is expected


@pytest.mark.parametrize(("beyond", "reward"), [(False, 0.0), (True, -1.0)])
def test_the_reward_of_sutton_and_barto_is_minus_one_at_the_end(beyond, reward):
    assert one_step([2.5 if beyond else 0.0, 0.0, 0.0, 0.0], 1, sutton_barto_reward=True)[1] == reward


def test_the_return_of_sutton_and_barto_is_minus_one_or_zero():
    env = envs.make("cartpole", 300, sutton_barto_reward=True, max_episode_steps=20)
    env.reset()
    env.rollout(500)
    env.rollout(100, store="trajectory")
    for _ in range(30):
        *_, terminated, truncated, info = env.step(env.random_actions()[0])
        assert torch.equal(info["episode_return"][terminated], torch.full((int(terminated.sum()),), -1.0))
        only_truncated = truncated & ~terminated
        assert (info["episode_return"][only_truncated] == 0).all()
    found = env.statistics()
    assert (float(found["return_min"]), float(found["return_max"])) == (-1.0, 0.0)


def test_a_random_policy_lasts_22_steps_on_average_and_never_less_than_8():
    env = envs.make("cartpole", 10_000, seed=2)
    env.reset()
    env.rollout(300)  # until episodes end at a steady rate, so that short ones are not over-represented
    env.statistics()
    env.rollout(1000)
    found = env.statistics()
    assert float(found["length_mean"]) == pytest.approx(22.26, abs=0.1)
    assert float(found["length_min"]) == 8


def test_the_balancing_policy_always_reaches_the_limit():
    env = envs.make("cartpole", 1000, seed=2)
    env.reset()
    env.rollout(1500, BALANCE)
    found = env.statistics()
    assert [float(found[k]) for k in ("episodes", "length_min", "length_max")] == [3000, 500, 500]


def corners(bound):
    """The 16 corners of the reset box."""
    return np.array(np.meshgrid(*[[-bound, bound]] * 4)).reshape(4, -1).T


def test_no_action_sequence_ends_an_episode_within_seven_steps():
    states = np.repeat(corners(0.05), 2**7, axis=0)
    actions = np.tile((np.arange(2**7)[:, None] >> np.arange(7)) & 1, (16, 1))
    env = envs.make("cartpole", len(states), dtype="float64", autoreset_mode="Disabled")
    env.set_state({"state": states, "elapsed": np.zeros(len(states), dtype=int)})
    for t in range(7):
        _, _, terminated, _, _ = env.step(torch.from_numpy(actions[:, t].copy()))
        assert not terminated.any()


def test_the_declared_constants_are_gymnasiums():
    original, params = envs.make_original("cartpole").unwrapped, envs.port("cartpole").params()
    for name in ("gravity", "masscart", "masspole", "length", "force_mag", "tau", "kinematics_integrator"):
        assert getattr(params, name) == getattr(original, name)
    assert params.theta_threshold_radians == original.theta_threshold_radians
    assert params.x_threshold == original.x_threshold
    spec = gymnasium.spec("CartPole-v1")
    assert envs.port("cartpole").horizon == spec.max_episode_steps
    assert envs.port("cartpole").reward_threshold == spec.reward_threshold
    env = envs.make("cartpole", 1)
    assert env.single_observation_space == original.observation_space
    assert env.single_action_space == original.action_space


def test_the_originals_state_can_be_read_and_put_back():
    original, module = envs.make_original("cartpole"), envs.original("cartpole")
    original.reset(seed=1)
    for _ in range(5):
        original.step(1)
    state, elapsed = module.get_state(original)
    assert elapsed == 5
    after = original.step(0)[0]
    other = envs.make_original("cartpole")
    other.reset(seed=2)
    module.set_state(other, state, elapsed)
    np.testing.assert_array_equal(other.step(0)[0], after)
    assert module.get_state(other)[1] == 6


def test_the_original_is_truncated_at_500_steps_from_a_state_put_in():
    original, module = envs.make_original("cartpole"), envs.original("cartpole")
    original.reset(seed=1)
    module.set_state(original, [0.0, 0.0, 0.0, 0.0], 498)
    assert original.step(1)[3] is False
    assert original.step(0)[3] is True


# ---- single transitions against Gymnasium, and mutants of the kernel that this must tell apart ----


@pytest.fixture(scope="module")
def transitions():
    """20,000 states, actions, and what Gymnasium makes of them."""
    random = np.random.default_rng(0)
    states = random.uniform([-2.6, -3, -0.25, -4], [2.6, 3, 0.25, 4], (20_000, 4)).astype(np.float32)
    actions = random.integers(2, size=20_000)
    original, module = envs.make_original("cartpole", sutton_barto_reward=True), envs.original("cartpole")
    original.reset(seed=0)
    rows = []
    for state, action in zip(states.astype(np.float64), actions.tolist(), strict=True):
        module.set_state(original, state)
        _, reward, terminated, _, _ = original.step(action)
        rows.append((*module.get_state(original)[0], reward, terminated))
    return states, actions, np.array(rows)


def differences(transitions, folder=None, dtype="float64"):
    """Largest error of each state field, and the number of differing rewards and flags."""
    states, actions, expected = transitions
    port = envs.port("cartpole")
    options = {"autoreset_mode": "Disabled", "dtype": dtype, "sutton_barto_reward": True}
    env = BatchedEnv(port, folder or envs.folder("cartpole"), len(states), **options)
    env.set_state({"state": states, "elapsed": np.zeros(len(states), dtype=int)})
    _, reward, terminated, _, _ = env.step(torch.from_numpy(actions))
    errors = np.abs(env.state()["state"].numpy() - expected[:, :4]).max(axis=0)
    flags = int((terminated.numpy() != expected[:, 5].astype(bool)).sum())
    return [*errors, int((reward.numpy() != expected[:, 4]).sum()), flags]


def test_one_step_equals_gymnasiums(transitions):
    *errors, rewards, flags = differences(transitions)
    assert max(errors) <= 1e-12
    assert rewards == flags == 0


def test_one_step_in_float32_is_within_a_millionth(transitions):
    *errors, rewards, flags = differences(transitions, dtype="float32")
    assert max(errors[:3]) <= 1e-6
    assert errors[3] <= 2e-6
    assert rewards == flags == 0  # none of these 20,000 states ends within 1e-6 of a threshold


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("real(4.0 / 3.0)", "real(1.0)"),  # the pole's inertia
        ("action ? Params::force_mag : -Params::force_mag", "action ? -Params::force_mag : Params::force_mag"),
        ("if (Params::kinematics_integrator_is_euler)", "if (!Params::kinematics_integrator_is_euler)"),
        ("terminated ? -1.0f : 0.0f) : 1.0f", "terminated ? 0.0f : 0.0f) : 1.0f"),
        ("| (magnitude(theta) > Params::theta_threshold_radians)", ""),
        ("magnitude(x) > Params::x_threshold", "x > Params::x_threshold"),
        ("polemass_length * theta_dot * theta_dot", "polemass_length * theta_dot"),
    ],
)
def test_a_mutant_of_the_kernel_is_told_apart(transitions, tmp_path, right, wrong):
    folder = tmp_path / "cartpole"
    shutil.copytree(envs.folder("cartpole"), folder)
    kernel = folder / "kernel.cuh"
    text = kernel.read_text()
    assert text.count(right) >= 1
    kernel.write_text(text.replace(right, wrong, 1))
    *errors, rewards, flags = differences(transitions, folder)
    assert max(errors) > 1e-6 or rewards > 0 or flags > 0


# ---- sine and cosine ----------------------------------------------------------------------------


def test_sine_and_cosine_are_right_to_less_than_an_ulp_and_a_half():
    # With gravity alone and no speed: theta_dot' = tau g sin(theta) / (l (4/3 - m cos^2 / M)); both functions enter.
    angles = np.linspace(-0.4188, 0.4188, 200_001).astype(np.float32)
    states = np.zeros((len(angles), 4), dtype=np.float32)
    states[:, 2] = angles
    env = envs.make("cartpole", len(angles), autoreset_mode="Disabled", force_mag=0.0)
    env.set_state({"state": states, "elapsed": np.zeros(len(angles), dtype=int)})
    env.step(torch.zeros(len(angles), dtype=torch.uint8))
    x = angles.astype(np.float64)
    push = 0.0
    exact = 0.02 * (9.8 * np.sin(x) - np.cos(x) * push) / (0.5 * (4 / 3 - 0.1 * np.cos(x) ** 2 / 1.1))
    relative = np.abs(env.state()["state"].numpy()[:, 3] - exact) / np.maximum(np.abs(exact), 1e-30)
    assert np.nanmax(relative[exact != 0]) < 4 * 2.0**-23  # sine, product, quotient and sum each round once
