"""Tasks of classic control worked out by hand: single steps of Gymnasium's classes and of the ports, whole motions."""

import dataclasses
import itertools
import math

import gymnasium
import numpy as np
import pytest
import torch

from lockstep import envs
from tests.envs import transitions
from tests.envs.batches import make, random_step, statistics

LEFT, NONE, RIGHT = 0, 1, 2
PI = math.pi
THIRD = PI / 6  # m: the mountain car's cos 3p is 0 there, so gravity does not pull
SLOPE = 0.000176843004169257  # m/s that it pulls at -0.5 m: 0.0025 cos(-1.5)
SIDEWAYS = PI / 2  # rad
NAN = (math.nan,) * 4  # not worked out
PUSH = 10 / 1.1  # N/kg, of a pole that stands upright at rest: force over total mass
INERTIA = 0.5 * (4 / 3 - 0.1 / 1.1)
X, THETA = 0.02 * (PUSH + 0.05 * PUSH / INERTIA / 1.1), -0.02 * PUSH / INERTIA  # its speeds after a step
SIDE = 0.05 * 3.0**2  # N, by which a level pole at 3 rad/s pulls: sin = 1, cos = 0
DOWN = 0.02 * 9.8 / (0.5 * 4 / 3)  # rad/s that a level pole gains
WIDTH = 12 * 2 * PI / 360  # rad, where an episode ends


def goals(still, push, others) -> list:
    """Of either car: how its episode ends, with `push` or without; what the reward is then."""
    after = (THIRD - 0.05, 0.04)  # about 0.04 m further after the step, and 0.0004 slower
    far = (0.3, 0.0)
    return [
        *(({}, (0.55, speed), push, NAN, None, speed >= 0) for speed in (0.0, *others)),
        *(({"goal_velocity": 0.04}, (0.55, speed), push, NAN, None, speed > 0.04) for speed in (0.03, 0.05)),
        *(({"goal_velocity": goal}, after, still, NAN, None, goal < 0.0395) for goal in (0.0398, 0.0390)),
        ({}, after, still, NAN, None, True),
        ({"goal_position": 0.52}, after, still, NAN, None, False),
        ({}, far, still, NAN, None, False),
        ({"goal_position": 0.2, "goal_velocity": -0.01}, far, still, NAN, None, True),
        ({"max_speed": 0.01}, (THIRD, 0.05), still, (THIRD + 0.01, 0.01), None, None),
        ({"min_position": 0.5}, (THIRD, -0.05), still, (0.5, 0.0), None, None),
        ({"max_position": 0.55}, (THIRD, 0.05), still, (0.55, 0.05), None, None),
        ({}, (0.0, 0.0), still, (-0.0025, -0.0025), None, False),
        ({}, (-PI / 3, 0.0699), push, (-PI / 3 + 0.07, 0.07), None, False),
    ]


# Parameters that are changed, state, action; the next state, reward and end as worked out by hand.
STEPS = {
    "cartpole": [
        ({}, (0, 0, 0, 0), 1, (0, X, 0, THETA), 1.0, False),
        ({}, (0, 0, 0, 0), 0, (0, -X, 0, -THETA), 1.0, False),
        ({"kinematics_integrator": "semi_implicit_euler"}, (0,) * 4, 1, (0.02 * X, X, 0.02 * THETA, THETA), 1.0, None),
        ({"gravity": 0.0, "force_mag": 0.0}, (0.1, 0.5, 0.05, 0), 1, (0.11, 0.5, 0.05, 0), 1.0, False),
        # at rest a field does not move in the step
        *(({}, (side * (2.4 + by), 0, 0, 0), 1, NAN, 1.0, by > 0) for side in (-1, 1) for by in (-1e-9, 1e-9)),
        *(({}, (0, 0, side * (WIDTH + by), 0), 1, NAN, 1.0, by > 0) for side in (-1, 1) for by in (-1e-9, 1e-9)),
        ({"x_threshold": 0.9}, (1.0, 0, 0, 0), 1, NAN, 1.0, True),
        ({"theta_threshold_radians": 0.09}, (0, 0, 0.1, 0), 1, NAN, 1.0, True),
        ({"sutton_barto_reward": True}, (2.5, 0, 0, 0), 1, NAN, -1.0, True),
        ({"sutton_barto_reward": True}, (0, 0, 0, 0), 1, NAN, 0.0, False),
        ({"gravity": 5.0}, (0, 0, SIDEWAYS, 0), 1, (0, 0.2 / 1.1, SIDEWAYS, DOWN * 5 / 9.8), None, None),
        ({"masscart": 3.9}, (0, 0, SIDEWAYS, 0), 1, (0, 0.2 / 4.0, SIDEWAYS, DOWN), None, None),
        ({"masspole": 1.0}, (0, 0, SIDEWAYS, 3), 1, (0, 0.02 * (10 + 4.5) / 2, SIDEWAYS + 0.06, 3 + DOWN), None, None),
        ({"length": 1.0}, (0, 0, SIDEWAYS, 0), 1, (0, 0.2 / 1.1, SIDEWAYS, DOWN / 2), None, None),
        ({"force_mag": 4.0}, (0, 0, SIDEWAYS, 3), 0, (0, (SIDE - 4) / 55, SIDEWAYS + 0.06, 3 + DOWN), None, None),
        ({"tau": 0.1}, (0, 2, SIDEWAYS, 0), 1, (0.2, 2 + 1 / 1.1, SIDEWAYS, 5 * DOWN), None, None),
    ],
    "mountain_car": [
        *goals(NONE, RIGHT, (-0.01,)),
        ({}, (-0.5, 0.0), LEFT, (-0.501 - SLOPE, -0.001 - SLOPE), -1.0, False),
        ({}, (-0.5, 0.0), NONE, (-0.5 - SLOPE, -SLOPE), -1.0, False),
        ({}, (-0.5, 0.0), RIGHT, (-0.499 - SLOPE, 0.001 - SLOPE), -1.0, False),
        ({}, (-THIRD, 0.0), NONE, (-THIRD, 0.0), -1.0, False),  # the bottom of the valley
        ({}, (THIRD, 0.05), RIGHT, (THIRD + 0.051, 0.051), -1.0, True),
        ({"force": 0.002}, (THIRD, 0.05), LEFT, (THIRD + 0.048, 0.048), None, None),
        ({"gravity": 0.005}, (0.0, 0.0), NONE, (-0.005, -0.005), None, None),
        ({}, (0.0, -0.0699), LEFT, (-0.07, -0.07), -1.0, False),
        ({}, (-1.19, -0.05), LEFT, (-1.2, 0.0), -1.0, False),  # the wall stops it
        ({}, (-1.2, 0.01), NONE, (-1.2 + 0.012241896040835, 0.012241896040835), -1.0, False),  # cos(-3.6) = -0.8967584
        ({}, (0.59, 0.06), RIGHT, (0.6, 0.061494722036523), -1.0, True),  # the end stops the position alone
        *(({}, (1.4 / 3, 0.1 / 3 + 0.0025 * math.cos(1.4) + by), NONE, NAN, -1.0, by > 0) for by in (-1e-9, 1e-9)),
        ({"goal_position": 0.6}, (0.59, 0.06), RIGHT, NAN, None, True),  # to be held there is enough
        ({"goal_position": 0.6}, (0.59, 0.0), NONE, NAN, None, False),
    ],
    "mountain_car_continuous": [
        *goals(0.0, 1.0, ()),
        ({}, (-0.5, 0.0), -1.0, (-0.5015 - SLOPE, -0.0015 - SLOPE), -0.1, False),
        ({}, (-0.5, 0.0), 0.5, (-0.49925 - SLOPE, 0.00075 - SLOPE), -0.025, False),
        ({}, (-0.5, 0.0), 0.0, (-0.5 - SLOPE, -SLOPE), 0.0, False),
        ({}, (-0.5, 0.0), 3.0, (-0.4985 - SLOPE, 0.0015 - SLOPE), -0.9, False),  # pushes no more, costs its square
        ({}, (THIRD, 0.05), -3.0, (THIRD + 0.0485, 0.0485), 99.1, True),
        ({}, (THIRD, 0.05), 0.5, (THIRD + 0.05075, 0.05075), None, True),
        ({"power": 0.003}, (THIRD, 0.05), 0.5, (THIRD + 0.0515, 0.0515), None, None),
        ({}, (0.44, 0.05), 1.0, NAN, 99.9, True),
        ({}, (0.44, 0.05), 0.0, NAN, 100.0, True),
        ({}, (0.47, -0.05), 0.0, NAN, 0.0, False),
        *(({}, (1.25 / 3, 0.1 / 3 + 0.0025 * math.cos(1.25) + by), 0.0, NAN, None, by > 0) for by in (-1e-9, 1e-9)),
        ({}, (-1.19, -0.05), -1.0, (-1.2, 0.0), -0.1, False),
        ({}, (0.59, 0.06), 1.0, (0.6, 0.061994722036523), 99.9, True),  # 0.06 + 0.0015 - 0.0025 cos(1.77)
        ({}, (0.0, -0.0699), -1.0, (-0.07, -0.07), -0.1, False),
    ],
    "pendulum": [  # a level one: theta_dot' = theta_dot + (3 g / 2 l + 3 u / m l^2) dt; rewards are of the state before
        ({}, (0.0, 0.0), 0.0, (0.0, 0.0), 0.0, False),
        ({}, (-PI, 0.0), 0.0, (-PI, 0.0), -(PI**2), False),
        ({}, (SIDEWAYS, 0.0), 1.0, (SIDEWAYS + 0.045, 0.9), -(SIDEWAYS**2 + 0.001), False),
        ({}, (0.1, 2.0), -2.0, NAN, -(0.01 + 0.4 + 0.004), False),
        ({}, (PI, 8.0), 2.0, NAN, -16.2736044, False),  # the highest cost, as published
        ({}, (SIDEWAYS, 1.0), 1.0, (SIDEWAYS + 0.05 * 1.9, 1.9), None, False),
        ({}, (SIDEWAYS, 1.0), 5.0, (SIDEWAYS + 0.05 * 2.05, 2.05), -(SIDEWAYS**2 + 0.104), False),
        ({}, (SIDEWAYS, 1.0), -5.0, (SIDEWAYS + 0.05 * 1.45, 1.45), -(SIDEWAYS**2 + 0.104), False),
        ({}, (SIDEWAYS + 8 * PI, 1.0), 5.0, NAN, -(SIDEWAYS**2 + 0.104), False),
        ({}, (SIDEWAYS, 7.9), 2.0, (SIDEWAYS + 0.4, 8.0), None, False),
        ({}, (-SIDEWAYS, -7.9), -2.0, (-SIDEWAYS - 0.4, -8.0), None, False),
        ({}, (3.1, 8.0), 2.0, (3.5, 8.0), None, False),
        ({}, (-3.1, -8.0), -2.0, (-3.5, -8.0), None, False),
        ({"g": 0.0}, (1.0, 2.0), 0.0, (1.1, 2.0), -1.4, False),
        ({"g": 4.0}, (SIDEWAYS, 1.0), 1.0, (SIDEWAYS + 0.05 * 1.45, 1.45), None, None),
        ({"m": 3.0}, (SIDEWAYS, 1.0), 1.0, (SIDEWAYS + 0.05 * 1.8, 1.8), None, None),
        ({"l": 2.0}, (SIDEWAYS, 1.0), 1.0, (SIDEWAYS + 0.05 * 1.4125, 1.4125), None, None),
        ({"dt": 0.1}, (SIDEWAYS, 1.0), 1.0, (SIDEWAYS + 0.1 * 2.8, 2.8), None, None),
        ({"max_speed": 1.5}, (SIDEWAYS, 1.0), 1.0, (SIDEWAYS + 0.05 * 1.5, 1.5), None, None),
    ],
    "acrobot": [
        ({}, (0, 0, 0, 0), NONE, (0, 0, 0, 0), -1.0, False),
        ({}, (PI, 0, 0, 0), NONE, NAN, 0.0, True),  # it stands upright
        # the tip is -cos(first) - cos(first + second) above the joint, an end more than 1; here they hardly move
        *(({"dt": 1e-3}, (first, second, 0, 0), NONE, NAN, high - 1.0, high)
          for first, second, high in ((PI, 0, True), (2 * PI / 3, 0, False), (PI, PI, False), (2.2, 0, True))),
        ({"MAX_VEL_1": 0.5}, (0, 0, 2, -3), NONE, (*NAN[:2], 0.5, math.nan), None, None),
        ({"MAX_VEL_2": 0.25}, (0, 0, 2, -3), NONE, (*NAN[:3], -0.25), None, None),
    ],
}  # fmt: skip
LINKS = (
    {},
    {"LINK_LENGTH_1": 1.5},
    {"LINK_MASS_1": 2.0},
    {"LINK_MASS_2": 0.5},
    {"LINK_COM_POS_1": 0.25},
    {"LINK_COM_POS_2": 0.75},
    {"LINK_MOI": 0.5},
    {"book_or_nips": "nips"},
    {"LINK_LENGTH_2": 0.1},  # is drawn, and changes no step
)


def originals_step(name, state, action, **params):
    """Next state, reward and terminated of the original."""
    original, module = envs.make_original(name, **params), envs.original(name)
    original.reset(seed=0)
    module.set_state(original, state)
    continuous = isinstance(original.action_space, gymnasium.spaces.Box)
    _, reward, terminated, _, _ = original.step(np.array([action]) if continuous else action)
    return module.get_state(original)[0], reward, terminated


def rows():
    """Every step of both; cartpole's kernel knows no level pole, and each change of a parameter is compiled."""
    for name, steps in STEPS.items():
        for k, row in enumerate(steps):
            yield pytest.param(originals_step, name, *row, id=f"{name} {k} in Gymnasium")
            if not (name == "cartpole" and row[1][2] == SIDEWAYS):
                slow = [pytest.mark.slow] * bool(row[0])
                yield pytest.param(transitions.one, name, *row, id=f"{name} {k} on the port", marks=slow)


@pytest.mark.parametrize(
    ("step", "name", "params", "state", "action", "expected", "reward", "terminated"), list(rows())
)
def test_a_step_is_as_worked_out_by_hand(step, name, params, state, action, expected, reward, terminated):
    found, earned, ended = step(name, state, action, **params)
    expected = np.array(expected[: len(state)], float)
    apart = transitions.apart(name, np.array([found]), expected[None])[0]
    single = name == "mountain_car_continuous" and step is originals_step  # rounds its state to float32
    assert (apart[np.isfinite(expected)] <= (6e-8 if single else 1e-14 if params else 1e-15)).all()
    assert reward is None or earned == pytest.approx(reward, rel=1.5e-7)  # is float32
    assert terminated is None or ended is terminated


def test_every_parameter_is_changed_here():
    for name, steps in STEPS.items():
        changed = set().union(*(row[0] for row in steps), *(LINKS if name == "acrobot" else ()))
        fields = {field.name for field in dataclasses.fields(envs.port(name).params)}
        assert changed == fields


def acceleration(state, torque, changed):
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


@pytest.mark.parametrize("changed", LINKS)
@pytest.mark.parametrize("step", [originals_step, pytest.param(transitions.one, marks=pytest.mark.slow)])
def test_acrobots_links_accelerate_as_their_mass_matrix_says(step, changed):
    state, dt = np.array([0.3, 0.7, 1.0, -2.0]), 1e-5
    for action in (LEFT, NONE, RIGHT):
        moved = (np.array(step("acrobot", state, action, dt=dt, **changed)[0]) - state) / dt
        expected = acceleration(state, action - 1, changed)
        assert moved[2:] == pytest.approx(expected, abs=1e-3)  # the next order in dt
        assert moved[:2] == pytest.approx(state[2:], abs=1e-3)
        if changed.keys() == {"LINK_LENGTH_2"}:
            assert envs.make_original("acrobot", **changed).unwrapped.LINK_LENGTH_2 == 0.1
        elif changed:
            assert np.abs(expected - acceleration(state, action - 1, {})).max() > 0.01


# ---- motions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "high", "turned"),
    [
        ("cartpole", (3, 4, 0.4, 4), lambda action: 1 - action),
        ("acrobot", (3, 3, 6, 12), lambda action: 2 - action),
        ("pendulum", (3, 8), lambda action: -action),
    ],
)
def test_the_mirror_image_moves_as_the_mirror_image(name, high, turned):
    random, n = np.random.default_rng(0), 1000
    states = random.uniform(-np.array(high), high, (n, len(high)))
    actions = random.uniform(-2, 2, n) if name == "pendulum" else random.integers(2 + (name == "acrobot"), size=n)
    there, back = transitions.port(name, states, actions), transitions.port(name, -states, turned(actions))
    assert transitions.apart(name, there.following, -back.following).max() <= 1e-9
    np.testing.assert_array_equal(there.terminated, back.terminated)
    np.testing.assert_allclose(there.reward, back.reward, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "start", "action", "omega"),
    [
        # v' = v - 0.0075 q, q' = q + v' about the bottom turns by 2 asin(sqrt(0.0075) / 2) a step
        ("mountain_car", [-THIRD + 1e-3, 0.0], NONE, 2 * math.asin(math.sqrt(0.0075) / 2)),
        # w' = w - 15 h q, q' = q + h w' about hanging, with h = 0.05, turns by 2 asin(sqrt(15) h / 2) a step
        ("pendulum", [PI - 0.01, 0.0], 0.0, 2 * math.asin(math.sqrt(15) * 0.05 / 2)),
    ],
)
def test_it_swings_with_the_period_of_its_linear_equation(name, start, action, omega):
    """From rest its speed goes as -sin(omega n) and changes its sign every pi / omega steps."""
    states = transitions.path(name, start, action, 190)
    signs = np.sign(states[1:, 1])
    changes = np.flatnonzero(signs[1:] != signs[:-1]) + 2
    expected = [math.ceil(m * PI / omega) for m in range(1, len(changes) + 2)]
    assert changes.tolist() == expected[:-1] and len(changes) >= 5 and expected[-1] > 190


def test_without_torque_a_pendulums_energy_is_kept_to_the_order_of_the_integrator():
    # The equation w' = 15 sin(q) keeps w^2 / 2 + 15 cos(q). A symplectic Euler step of h keeps that plus
    # h / 2 * 15 w sin(q), up to terms in h^2, and without a drift.
    angle, speed = transitions.path("pendulum", [2.0, 0.0], 0.0, 199).T
    energy = speed**2 / 2 + 15 * np.cos(angle)
    shifted = energy + 15 * 0.05 / 2 * speed * np.sin(angle)
    assert np.ptp(energy) > 1.0
    assert np.ptp(shifted) < 0.03
    assert abs(shifted[100:].mean() - shifted[:100].mean()) < 0.003


def energy(states: np.ndarray) -> np.ndarray:
    """Energy (J) of acrobots in states [n, 4] above that of hanging at rest: two links of 1 kg, 1 m and 1 kg m^2."""
    theta1, theta2, speed1, speed2 = states.T
    both = 1.25 + 0.5 * np.cos(theta2)
    kinetic = 0.5 * ((3.5 + np.cos(theta2)) * speed1**2 + 2 * both * speed1 * speed2 + 1.25 * speed2**2)
    return kinetic + 14.7 * (1 - np.cos(theta1)) + 4.9 * (1 - np.cos(theta1 + theta2))


def test_without_torque_an_acrobots_energy_is_kept_to_the_order_of_runge_and_kutta():
    start, errors = np.array([[1.0, -0.7, 0.5, -0.8]]), []
    for dt in (0.2, 0.1):
        after = np.array([transitions.one("acrobot", start[0], NONE, dt=dt)[0]])
        errors.append(abs(energy(after) - energy(start))[0])
    assert errors[0] < 1e-3
    assert 20 < errors[0] / errors[1] < 50  # one step of order four is wrong by dt^5: 32 times less at half of it


def test_cartpoles_sine_and_cosine_are_right_to_less_than_an_ulp_and_a_half():
    # With gravity alone and no speed: theta_dot' = tau g sin(theta) / (l (4/3 - m cos^2 / M)); both functions enter.
    angles = np.linspace(-0.4188, 0.4188, 200_001).astype(np.float32)
    states = np.zeros((len(angles), 4), dtype=np.float32)
    states[:, 2] = angles
    found = transitions.port("cartpole", states, np.zeros(len(angles), dtype=np.uint8), "float32", force_mag=0.0)
    x = angles.astype(np.float64)
    exact = 0.02 * 9.8 * np.sin(x) / (0.5 * (4 / 3 - 0.1 * np.cos(x) ** 2 / 1.1))
    relative = np.abs(found.following[:, 3] - exact) / np.maximum(np.abs(exact), 1e-30)
    assert np.max(relative[exact != 0]) < 4 * 2.0**-23  # sine, product, quotient and sum each round once


# ---- whole episodes -------------------------------------------------------------------------------------------------

BALANCE = envs.Linear([[0, 0, 0, 0], [0, 0, 2, 1]], [0, 0])  # push to the right if 2 theta + theta_dot > 0
BANG_BANG = envs.Linear([[0, -1], [0, 0], [0, 1]], [0, 0, 1e-9])  # push the way it moves, to the right at rest
FULL_FORCE = envs.Linear([[0, 1e9]], [1])  # the same
PUMP = envs.Linear([[0, 0, 0, 0, 1, 0], [0] * 6, [0, 0, 0, 0, -1, 0]], [0, 0, 0])  # against the first link's speed


@pytest.mark.parametrize(
    ("name", "policy", "steps", "expected", "mean_length"),
    [
        ("cartpole", BALANCE, 1500, {"episodes": 15_000, "length_min": 500, "return_max": 500}, 500),
        ("mountain_car", BANG_BANG, 125, {"episodes": 5000, "length_max": 125}, 119.4),
        ("mountain_car", "random", 400, {"episodes": 10_000, "return_min": -200, "return_max": -200}, 200),
        ("mountain_car_continuous", FULL_FORCE, 111, {"episodes": 5000, "length_max": 111}, 106.5),
        ("mountain_car_continuous", envs.Linear([[0, 0]], [0]), 999, {"episodes": 5000, "return_mean": 0}, 999),
        ("pendulum", "random", 600, {"episodes": 15_000, "length_min": 200}, 200),
    ],
)  # fmt: skip
def test_episodes_under_a_policy_last_as_long_as_they_must(name, policy, steps, expected, mean_length):
    env = make(name, 5000, seed=2)
    env.rollout(steps, policy)
    found = statistics(env)
    assert {key: found[key] for key in expected} == expected
    assert found["length_mean"] == pytest.approx(mean_length, abs=0.2)
    assert found["length_min"] >= env.port.shortest_episode
    if policy is BANG_BANG:
        assert found["return_mean"] == -found["length_mean"]
    if policy is FULL_FORCE:
        assert found["return_mean"] == pytest.approx(100 - 0.1 * found["length_mean"], abs=1e-4)


@pytest.mark.slow
def test_returns_that_follow_from_lengths_are_right_where_episodes_end():
    """Acrobot's is minus one for every step but the one that ends up; Sutton and Barto's minus one or zero."""
    env, ended = make("acrobot", seed=2), 0
    for actions in env.rollout(300, PUMP, store="trajectory")["action"].clone():
        _, _, terminated, _, info = env.step(actions)
        lengths, returns = info["episode_length"][terminated], info["episode_return"][terminated]
        assert (returns == 1 - lengths).all() and (lengths >= env.port.shortest_episode).all()
        ended += int(terminated.sum())
    assert ended > 0
    env = make("cartpole", 300, sutton_barto_reward=True, max_episode_steps=20)
    env.rollout(500)
    env.rollout(100, store="trajectory")
    for _ in range(30):
        *_, terminated, truncated, info = random_step(env)
        assert (info["episode_return"][terminated] == -1).all()
        assert (info["episode_return"][truncated & ~terminated] == 0).all()
    found = statistics(env)
    assert (found["return_min"], found["return_max"]) == (-1.0, 0.0)


# ---- no episode is shorter than declared ----------------------------------------------------------------------------


def test_no_action_sequence_ends_a_cartpoles_episode_within_seven_steps():
    """From the 16 corners of the box of first states."""
    corners = np.array(list(itertools.product([-0.05, 0.05], repeat=4)))
    states = np.repeat(corners, 2**7, axis=0)
    actions = np.tile((np.arange(2**7)[:, None] >> np.arange(7)) & 1, (16, 1))
    env = envs.make("cartpole", len(states), dtype="float64", autoreset_mode="Disabled")
    env.set_state({"state": states, "elapsed": np.zeros(len(states), dtype=int)})
    assert not any(env.step(torch.from_numpy(actions[:, t].copy()))[2].any() for t in range(7))
    assert env.port.shortest_episode == 8


@pytest.mark.parametrize(("name", "drive"), [("mountain_car", 0.001), ("mountain_car_continuous", 0.0015)])
def test_a_car_that_always_falls_forwards_needs_as_long_as_the_shortest_episode(name, drive):
    port = envs.port(name)
    position, velocity, steps = port.reset_bounds({})[1], 0.0, 0
    while position < port.params().goal_position:
        velocity = min(velocity + drive + 0.0025, 0.07)  # full force and the whole of gravity, whatever the slope
        position += velocity
        steps += 1
    assert steps == port.shortest_episode


def test_an_acrobot_gains_energy_too_slowly_to_end_before_its_shortest_episode():
    """An end needs cos theta1 + cos(theta1 + theta2) < -1, hence at least 14.7 + 2 * 4.9 J, the first link level.

    In a second the square root of the energy grows by at most sqrt(1 / (2 * 0.57)) = 0.94: power is torque times speed,
    and at speed w of the second joint the links hold at least 0.57 w^2 / 2. The coarse Runge-Kutta step adds some.
    """
    needed = math.sqrt(14.7 + 2 * 4.9)
    corners = np.array(list(itertools.product([-0.1, 0.1], repeat=4)))  # energy is largest at a corner of the box
    start = math.sqrt(energy(corners).max())
    random = np.random.default_rng(0)
    states = random.normal(size=(400_000, 4)) * [1.5, 1.5, 3, 6] * random.uniform(0, 1, (400_000, 1))
    states[:, :2] = (states[:, :2] + np.pi) % (2 * np.pi) - np.pi
    states = states[energy(states) < needed**2]
    actions = random.integers(3, size=len(states))
    gains = np.sqrt(energy(transitions.port("acrobot", states, actions).following)) - np.sqrt(energy(states))
    assert len(states) > 100_000 and 0.15 < gains.max() < 0.23
    assert start + 0.23 * (envs.port("acrobot").shortest_episode - 1) < needed
