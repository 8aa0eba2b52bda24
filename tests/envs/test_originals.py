"""Gymnasium's classes as originals: every parameter reaches the equations, states go in and out unchanged."""

import dataclasses
import math

import gymnasium
import numpy as np
import pytest

from lockstep import envs
from tests.contract.batches import KNOWN

LEFT, NONE, RIGHT = 0, 1, 2
THIRD = math.pi / 6  # m: the mountain car's cos 3p is 0 there, so gravity does not pull
SIDEWAYS = math.pi / 2  # rad

# With the default parameters and with one changed: state, action, and the next state as worked out by hand.
PUSH = 10 / 1.1  # N/kg, of a pole that stands upright at rest: force over total mass
INERTIA = 0.5 * (4 / 3 - 0.1 / 1.1)
SIDE = 0.05 * 3.0**2  # N, by which a level pole at 3 rad/s pulls: sin = 1, cos = 0
TRANSITIONS = {
    "cartpole": [
        ({}, (0, 0, 0, 0), 1, (0, 0.02 * (PUSH + 0.05 * PUSH / INERTIA / 1.1), 0, -0.02 * PUSH / INERTIA)),
        ({"gravity": 5.0}, (0, 0, SIDEWAYS, 0), 1, (0, 0.2 / 1.1, SIDEWAYS, 0.02 * 5 / (0.5 * 4 / 3))),
        ({"masscart": 3.9}, (0, 0, SIDEWAYS, 0), 1, (0, 0.2 / 4.0, SIDEWAYS, 0.02 * 9.8 / (0.5 * 4 / 3))),
        ({"masspole": 1.0}, (0, 0, SIDEWAYS, 3), 1, (0, 0.02 * (10 + 0.5 * 9) / 2, SIDEWAYS + 0.06, 3 + 0.294)),
        ({"length": 1.0}, (0, 0, SIDEWAYS, 0), 1, (0, 0.2 / 1.1, SIDEWAYS, 0.02 * 9.8 / (4 / 3))),
        ({"force_mag": 4.0}, (0, 0, SIDEWAYS, 3), 0, (0, 0.02 * (SIDE - 4) / 1.1, SIDEWAYS + 0.06, 3 + 0.294)),
        ({"tau": 0.1}, (0, 2, SIDEWAYS, 0), 1, (0.2, 2 + 1 / 1.1, SIDEWAYS, 0.1 * 9.8 / (0.5 * 4 / 3))),
        (
            {"kinematics_integrator": "semi_implicit_euler"},
            (0, 0, SIDEWAYS, 0),
            1,
            (0.02 * 0.2 / 1.1, 0.2 / 1.1, SIDEWAYS + 0.02 * 0.294, 0.294),
        ),
    ],
    "mountain_car": [
        ({}, (THIRD, 0.05), RIGHT, (THIRD + 0.051, 0.051)),
        ({}, (0.0, 0.0), NONE, (-0.0025, -0.0025)),
        ({"force": 0.002}, (THIRD, 0.05), LEFT, (THIRD + 0.048, 0.048)),
        ({"gravity": 0.005}, (0.0, 0.0), NONE, (-0.005, -0.005)),
        ({"max_speed": 0.01}, (THIRD, 0.05), NONE, (THIRD + 0.01, 0.01)),
        ({"min_position": 0.5}, (THIRD, -0.05), NONE, (0.5, 0.0)),
        ({"max_position": 0.55}, (THIRD, 0.05), NONE, (0.55, 0.05)),
    ],
    "mountain_car_continuous": [
        ({}, (THIRD, 0.05), 0.5, (THIRD + 0.05075, 0.05075)),
        ({}, (THIRD, 0.05), -3.0, (THIRD + 0.0485, 0.0485)),
        ({}, (0.0, 0.0), 0.0, (-0.0025, -0.0025)),
        ({"power": 0.003}, (THIRD, 0.05), 0.5, (THIRD + 0.0515, 0.0515)),
        ({"max_speed": 0.01}, (THIRD, 0.05), 0.0, (THIRD + 0.01, 0.01)),
        ({"min_position": 0.5}, (THIRD, -0.05), 0.0, (0.5, 0.0)),
        ({"max_position": 0.55}, (THIRD, 0.05), 0.0, (0.55, 0.05)),
    ],
    "pendulum": [  # a level pendulum: theta_dot' = theta_dot + (3 g / 2 l + 3 u / m l^2) dt
        ({}, (SIDEWAYS, 1.0), 1.0, (SIDEWAYS + 0.05 * 1.9, 1.9)),
        ({}, (SIDEWAYS, 1.0), 5.0, (SIDEWAYS + 0.05 * 2.05, 2.05)),
        ({"g": 4.0}, (SIDEWAYS, 1.0), 1.0, (SIDEWAYS + 0.05 * 1.45, 1.45)),
        ({"m": 3.0}, (SIDEWAYS, 1.0), 1.0, (SIDEWAYS + 0.05 * 1.8, 1.8)),
        ({"l": 2.0}, (SIDEWAYS, 1.0), 1.0, (SIDEWAYS + 0.05 * 1.4125, 1.4125)),
        ({"dt": 0.1}, (SIDEWAYS, 1.0), 1.0, (SIDEWAYS + 0.1 * 2.8, 2.8)),
        ({"max_speed": 1.5}, (SIDEWAYS, 1.0), 1.0, (SIDEWAYS + 0.05 * 1.5, 1.5)),
    ],
}
ACROBOT = (
    {},
    {"LINK_LENGTH_1": 1.5},
    {"LINK_MASS_1": 2.0},
    {"LINK_MASS_2": 0.5},
    {"LINK_COM_POS_1": 0.25},
    {"LINK_COM_POS_2": 0.75},
    {"LINK_MOI": 0.5},
    {"book_or_nips": "nips"},
)
ELSEWHERE = {  # fields that a test of their own covers
    "cartpole": {"theta_threshold_radians", "x_threshold", "sutton_barto_reward"},
    "mountain_car": {"goal_position", "goal_velocity"},
    "mountain_car_continuous": {"goal_position", "goal_velocity"},
    "pendulum": set(),
    "acrobot": {"dt", "MAX_VEL_1", "MAX_VEL_2", "LINK_LENGTH_2"},
}


def one_step(name, state, action, **params):
    """Next state, reward and terminated of the original."""
    original, module = envs.make_original(name, **params), envs.original(name)
    original.reset(seed=0)
    module.set_state(original, state)
    continuous = isinstance(original.action_space, gymnasium.spaces.Box)
    _, reward, terminated, _, _ = original.step(np.array([action]) if continuous else action)
    return module.get_state(original)[0], reward, terminated


def changes():
    cases = {**TRANSITIONS, "acrobot": [(params,) for params in ACROBOT]}
    return {name: set().union(*(case[0] for case in rows)) for name, rows in cases.items()}


def test_every_parameter_is_tested_here():
    for name, tested in changes().items():
        fields = {field.name for field in dataclasses.fields(envs.port(name).params)}
        assert tested | ELSEWHERE[name] == fields


@pytest.mark.parametrize(
    ("name", "params", "state", "action", "expected"),
    [(name, *case) for name, cases in TRANSITIONS.items() for case in cases],
)
def test_a_parameter_changes_the_step_as_worked_out_by_hand(name, params, state, action, expected):
    single = name == "mountain_car_continuous"  # rounds its state to float32
    assert one_step(name, state, action, **params)[0] == pytest.approx(expected, abs=3e-8 if single else 1e-14)


def acrobot_acceleration(state, torque, changed):
    """theta1, theta2 double dot of Sutton and Barto's acrobot, from the mass matrix of its two links."""
    p = envs.port("acrobot").params(**changed)
    theta1, theta2, theta1_dot, theta2_dot = state
    far = p.LINK_MASS_2 * p.LINK_LENGTH_1 * p.LINK_COM_POS_2  # kg m^2, what couples the links
    own = p.LINK_MASS_2 * p.LINK_COM_POS_2**2 + p.LINK_MOI
    whole = p.LINK_MASS_1 * p.LINK_COM_POS_1**2 + p.LINK_MOI + p.LINK_MASS_2 * p.LINK_LENGTH_1**2 + own
    both = own + far * math.cos(theta2)
    masses = [[whole + 2 * far * math.cos(theta2), both], [both, own]]
    weight2 = 9.8 * p.LINK_MASS_2 * p.LINK_COM_POS_2 * math.sin(theta1 + theta2)
    weight1 = 9.8 * (p.LINK_MASS_1 * p.LINK_COM_POS_1 + p.LINK_MASS_2 * p.LINK_LENGTH_1) * math.sin(theta1)
    turning = far * math.sin(theta2)
    forces = [
        turning * theta2_dot * (theta2_dot + 2 * theta1_dot) - weight1 - weight2,
        torque - weight2 - (turning * theta1_dot**2 if p.book_or_nips == "book" else 0.0),
    ]
    return np.linalg.solve(masses, forces)


@pytest.mark.parametrize("changed", ACROBOT)
@pytest.mark.parametrize("action", [LEFT, NONE, RIGHT])
def test_acrobots_links_accelerate_as_their_mass_matrix_says(changed, action):
    state, dt = np.array([0.3, 0.7, 1.0, -2.0]), 1e-5
    following = one_step("acrobot", state, action, dt=dt, **changed)[0]
    expected = acrobot_acceleration(state, action - 1, changed)
    assert (following - state)[2:] / dt == pytest.approx(expected, abs=1e-3)  # the next order in dt
    assert (following - state)[:2] / dt == pytest.approx(state[2:], abs=1e-3)
    if changed:
        assert np.abs(expected - acrobot_acceleration(state, action - 1, {})).max() > 0.01


def test_acrobots_speeds_are_clipped_each_at_its_own_limit():
    state = [0.0, 0.0, 2.0, -3.0]
    assert one_step("acrobot", state, NONE, MAX_VEL_1=0.5)[0][2] == 0.5
    assert one_step("acrobot", state, NONE, MAX_VEL_2=0.25)[0][3] == -0.25


def test_acrobots_outer_link_is_as_long_as_drawn_and_changes_no_step():
    state = [0.3, 0.7, 1.0, -2.0]
    np.testing.assert_array_equal(
        one_step("acrobot", state, RIGHT, LINK_LENGTH_2=0.1)[0], one_step("acrobot", state, RIGHT)[0]
    )
    assert envs.make_original("acrobot", LINK_LENGTH_2=0.1).unwrapped.LINK_LENGTH_2 == 0.1


@pytest.mark.parametrize("name", ["mountain_car", "mountain_car_continuous"])
def test_the_goal_is_a_position_and_a_velocity(name):
    still = {"mountain_car": NONE, "mountain_car_continuous": 0.0}[name]
    state = (THIRD - 0.05, 0.04)  # about 0.04 m further after the step, and 0.0004 slower
    assert one_step(name, state, still)[2] is True
    assert one_step(name, state, still, goal_position=0.52)[2] is False
    assert one_step(name, state, still, goal_velocity=0.0398)[2] is False
    assert one_step(name, state, still, goal_velocity=0.0390)[2] is True
    assert one_step(name, (0.3, 0.0), still)[2] is False
    assert one_step(name, (0.3, 0.0), still, goal_position=0.2, goal_velocity=-0.01)[2] is True


def test_the_pole_falls_where_the_thresholds_say():
    assert one_step("cartpole", (1.0, 0, 0, 0), 1)[2] is False
    assert one_step("cartpole", (1.0, 0, 0, 0), 1, x_threshold=0.9)[2] is True
    assert one_step("cartpole", (0, 0, 0.1, 0), 1)[2] is False
    assert one_step("cartpole", (0, 0, 0.1, 0), 1, theta_threshold_radians=0.09)[2] is True


def test_rewards_are_those_of_the_papers():
    assert one_step("cartpole", (2.5, 0, 0, 0), 1)[1] == 1.0
    assert one_step("cartpole", (2.5, 0, 0, 0), 1, sutton_barto_reward=True)[1] == -1.0
    assert one_step("cartpole", (0, 0, 0, 0), 1, sutton_barto_reward=True)[1] == 0.0
    assert one_step("mountain_car", (THIRD, 0.05), NONE)[1:] == (-1.0, True)
    assert one_step("mountain_car_continuous", (THIRD, 0.05), -3.0)[1] == pytest.approx(100 - 0.1 * 9)
    assert one_step("mountain_car_continuous", (0.0, 0.0), 0.5)[1] == pytest.approx(-0.025)
    # of the old state, its angle on the circle: pi/2 - 2 pi k, and of the clipped torque
    assert one_step("pendulum", (SIDEWAYS + 8 * math.pi, 1.0), 5.0)[1] == pytest.approx(
        -(SIDEWAYS**2 + 0.1 + 0.001 * 2**2)
    )
    assert one_step("acrobot", (math.pi, 0, 0, 0), NONE)[1:] == (0.0, True)  # it stands upright
    assert one_step("acrobot", (0, 0, 0, 0), NONE)[1:] == (-1.0, False)


@pytest.mark.parametrize("name", KNOWN)
def test_a_state_put_in_is_read_back_to_the_last_bit(name):
    original, module = envs.make_original(name), envs.original(name)
    original.reset(seed=0)
    for state in np.random.default_rng(0).normal(size=(20, len(envs.port(name).state))):
        given = state.copy()
        module.set_state(original, given, 7)
        given[:] = 0  # the original keeps a copy
        found, elapsed = module.get_state(original)
        assert found.dtype == np.float64 and elapsed == 7
        np.testing.assert_array_equal(found, state)


@pytest.mark.parametrize("name", KNOWN)
def test_an_episode_goes_on_from_a_state_read_and_put_back(name):
    module = envs.original(name)
    first, second = envs.make_original(name), envs.make_original(name)
    first.reset(seed=1)
    second.reset(seed=2)
    first.action_space.seed(3)
    action = first.action_space.sample()
    module.set_state(second, *module.get_state(first))
    np.testing.assert_array_equal(second.step(action)[0], first.step(action)[0])
    assert module.get_state(second)[1] == 1
    np.testing.assert_array_equal(module.get_state(second)[0], module.get_state(first)[0])


@pytest.mark.parametrize("name", KNOWN)
def test_an_episode_is_truncated_at_the_limit_and_not_before(name):
    original, module = envs.make_original(name), envs.original(name)
    original.reset(seed=1)
    horizon = gymnasium.spec(envs.port(name).gymnasium_id).max_episode_steps
    module.set_state(original, np.zeros(len(envs.port(name).state)), horizon - 2)
    action = np.zeros(1) if isinstance(original.action_space, gymnasium.spaces.Box) else 0
    assert original.step(action)[3] is False
    assert original.step(action)[3] is True


@pytest.mark.parametrize("name", KNOWN)
def test_the_margin_says_whether_an_episode_ended(name):
    original, module = envs.make_original(name), envs.original(name)
    original.reset(seed=1)
    original.action_space.seed(2)
    scale = {"cartpole": [2, 1, 0.2, 1], "pendulum": [3, 8], "acrobot": [3, 3, 1, 1]}.get(name, [0.7, 0.03])
    ended = []
    for state in np.random.default_rng(0).normal(size=(500, len(scale))) * scale:
        module.set_state(original, state)
        ended.append(original.step(original.action_space.sample())[2])
        assert (module.margin(original, module.get_state(original)[0][None]) > 0).tolist() == ended[-1:]
    assert any(ended) == (name != "pendulum") and not all(ended)


def test_the_continuous_mountain_cars_state_is_rounded_to_float32():
    original, module = envs.make_original("mountain_car_continuous"), envs.original("mountain_car_continuous")
    original.reset(seed=0)
    module.set_state(original, [-0.5, 0.01])
    observation = original.step(np.array([0.3]))[0]
    velocity = 0.01 + 0.0015 * 0.3 - 0.0025 * math.cos(-1.5)
    expected = np.array([-0.5 + velocity, velocity], dtype=np.float32)
    np.testing.assert_array_equal(observation, expected)
    np.testing.assert_array_equal(module.get_state(original)[0], expected.astype(np.float64))


def test_the_pendulums_angle_is_not_wrapped():
    original, module = envs.make_original("pendulum"), envs.original("pendulum")
    original.reset(seed=0)
    module.set_state(original, [0.1, 8.0])
    for _ in range(40):  # two seconds at up to 8 rad/s under the largest torque
        original.step(np.array([2.0]))
    assert 4 * math.pi < module.get_state(original)[0][0] <= 0.1 + 2 * 8


@pytest.mark.parametrize(
    ("name", "params", "low", "high"),
    [
        ("cartpole", {"x_threshold": 3.0}, [-6, -np.inf, -math.pi / 7.5, -np.inf], [6, np.inf, math.pi / 7.5, np.inf]),
        ("mountain_car", {"min_position": -2.0, "max_speed": 0.5}, [-2.0, -0.5], [0.6, 0.5]),
        ("mountain_car_continuous", {"max_position": 0.8}, [-1.2, -0.07], [0.8, 0.07]),
        ("pendulum", {"max_speed": 3.0}, [-1, -1, -3], [1, 1, 3]),
        ("acrobot", {"MAX_VEL_2": 5.0}, [-1] * 4 + [-4 * math.pi, -5], [1] * 4 + [4 * math.pi, 5]),
    ],
)
def test_the_observation_space_follows_the_parameters(name, params, low, high):
    space = envs.make_original(name, **params).observation_space
    np.testing.assert_array_equal(space.low, np.array(low, dtype=np.float32))
    np.testing.assert_array_equal(space.high, np.array(high, dtype=np.float32))


def test_an_unknown_parameter_of_an_original_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="Pendulum-v1 has no parameter or option 'max_sped'; did you mean 'max_speed'"):
        envs.make_original("pendulum", max_sped=3.0)
