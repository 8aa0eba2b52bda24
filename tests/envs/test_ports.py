"""What each port declares, against Gymnasium and against the physics."""

import dataclasses
import itertools
import math
import re

import gymnasium
import numpy as np
import pytest
import torch

from lockstep import envs
from tests.contract.batches import KNOWN

CARS = ["mountain_car", "mountain_car_continuous"]


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", KNOWN)
def test_spaces_and_limits_are_gymnasiums(name):
    port = envs.port(name)
    spec, original = gymnasium.spec(port.gymnasium_id), gymnasium.make(port.gymnasium_id)
    observation = port.observation(port.params())
    assert observation == original.observation_space
    assert same_bits(observation.low, original.observation_space.low)
    assert same_bits(observation.high, original.observation_space.high)
    assert port.action == original.action_space
    if isinstance(port.action, gymnasium.spaces.Box):
        assert same_bits(port.action.low, original.action_space.low)
        assert same_bits(port.action.high, original.action_space.high)
    assert (port.horizon, port.reward_threshold) == (spec.max_episode_steps, spec.reward_threshold)


@pytest.mark.parametrize("name", KNOWN)
def test_parameters_carry_gymnasiums_names_and_values(name):
    port = envs.port(name)
    original = gymnasium.make(port.gymnasium_id).unwrapped
    for field in dataclasses.fields(port.params):
        if field.name != "sutton_barto_reward":  # a keyword, kept under another name
            assert getattr(original, field.name) == field.default


@pytest.mark.parametrize("name", KNOWN)
def test_first_states_come_from_the_originals_box(name):
    """A thousand of Gymnasium's first states lie in the declared bounds, and come within a hundredth of each end."""
    port, original = envs.port(name), envs.make_original(name)
    states = []
    for seed in range(1000):
        original.reset(seed=seed)
        states.append(envs.original(name).get_state(original)[0])
    states, bounds = np.array(states), port.reset_bounds({})
    if name == "pendulum":
        low, high = -np.array(bounds), np.array(bounds)
    elif name in CARS:
        low, high = np.array([bounds[0], 0]), np.array([bounds[1], 0])
    else:
        low, high = np.full(4, bounds[0]), np.full(4, bounds[1])
    single = 1e-8  # Acrobot's first states are float32
    assert (states >= low - single).all() and (states <= high + single).all()
    np.testing.assert_allclose(states.min(axis=0), low, atol=0.01 * (high - low).max())
    np.testing.assert_allclose(states.max(axis=0), high, atol=0.01 * (high - low).max())


@pytest.mark.parametrize(
    ("name", "state", "observation", "running", "action"),  # bytes; returns run along where they follow from no length
    [
        ("cartpole", 16, 16, 0, 1),
        ("mountain_car", 8, 8, 0, 1),
        ("mountain_car_continuous", 8, 8, 4, 4),
        ("pendulum", 8, 12, 4, 4),
        ("acrobot", 16, 24, 0, 1),
    ],
)
def test_memory_per_environment_is_what_the_tables_say(name, state, observation, running, action):
    env = envs.make(name, 200)
    # two observations, 4 reward, 3 flags, 2 elapsed, 4 episode, 4 return, 4 length
    assert env.bytes_per_env == state + 2 * observation + running + 4 + 3 + 2 + 4 + 4 + 4
    # what is read and written twice, observation, reward, flags and action once
    assert env.bytes_per_step == 2 * (state + running + 2) + observation + 4 + 3 + action


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        *((car, {"min_position": -33.1}, "must be in order and lie in [-33.0, 33.0]") for car in CARS),
        *((car, {"max_position": 34.0}, "must be in order and lie in [-33.0, 33.0]") for car in CARS),
        *((car, {"min_position": 0.6}, "min_position=0.6, max_position=0.6 must be in order") for car in CARS),
        *((car, {"max_speed": 0.0}, "max_speed=0.0 must be positive") for car in CARS),
        ("pendulum", {"l": -1.0}, "l=-1.0 must be positive"),
        ("pendulum", {"m": 0.0}, "m=0.0 must be positive"),
        ("pendulum", {"max_speed": 2000.0}, "max_speed=2000.0 times dt=0.05 must be at most 96.0 rad"),
        ("acrobot", {"dt": 0.25}, "dt=0.25 must be at most 0.2"),
        ("acrobot", {"MAX_VEL_1": 13.0}, "MAX_VEL_1=13.0 must be at most 12.56"),
        ("acrobot", {"MAX_VEL_2": 30.0}, "MAX_VEL_2=30.0 must be at most 28.27"),
        ("acrobot", {"LINK_MOI": 0.0}, "LINK_MOI=0.0 must be positive"),
        ("acrobot", {"book_or_nips": "paper"}, "book_or_nips='paper' must be one of 'book', 'nips'"),
    ],
)
def test_a_parameter_the_kernel_is_not_written_for_is_refused(name, params, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        envs.port(name).make_params(None, params)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        *((car, {"low": -34}, "options['low']=-34 must lie in [-33.0, 33.0]") for car in CARS),
        *((car, {"low": -0.3}, "low=-0.3 must not exceed high=-0.4") for car in CARS),
        ("acrobot", {"high": 13.0}, "options['high']=13.0 must lie in [-12.56"),
        ("pendulum", {"x_init": -1.0}, "options['x_init']=-1.0 must lie in [0, 100.0]"),
        ("pendulum", {"x_init": 101}, "options['x_init']=101 must lie in [0, 100.0]"),
        ("pendulum", {"y_init": math.nan}, "options['y_init']=nan must lie in [0, 100.0]"),
        ("pendulum", {"y_init": "fast"}, "options['y_init']='fast' must be a number"),
    ],
)
def test_reset_bounds_the_kernel_is_not_written_for_are_refused(name, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        envs.port(name).reset_bounds(options)


def test_the_pendulums_bounds_are_an_angle_and_a_speed():
    bounds = envs.port("pendulum").reset_bounds
    assert bounds({}) == (math.pi, 1.0)
    assert bounds({"x_init": 0.5}) == (0.5, 1.0)
    assert bounds({"y_init": 0}) == (math.pi, 0.0)


# ---- no episode is shorter than declared ----------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "drive"), [("mountain_car", 0.001), ("mountain_car_continuous", 0.0015)])
def test_a_car_that_always_falls_forwards_needs_as_long_as_the_shortest_episode(name, drive):
    port = envs.port(name)
    goal = port.params().goal_position
    position, velocity, steps = port.reset_bounds({})[1], 0.0, 0
    while position < goal:
        velocity = min(velocity + drive + 0.0025, 0.07)  # full force and the whole of gravity, whatever the slope
        position += velocity
        steps += 1
    assert steps == port.shortest_episode


def energy(state):
    """Energy (J) of acrobots in states [n, 4] above that of hanging at rest."""
    theta1, theta2, speed1, speed2 = state.T
    both = 1.25 + 0.5 * np.cos(theta2)
    kinetic = 0.5 * ((3.5 + np.cos(theta2)) * speed1**2 + 2 * both * speed1 * speed2 + 1.25 * speed2**2)
    return kinetic + 14.7 * (1 - np.cos(theta1)) + 4.9 * (1 - np.cos(theta1 + theta2))


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
    env = envs.make("acrobot", len(states), dtype="float64", autoreset_mode="Disabled")
    env.set_state({"state": states, "elapsed": np.zeros(len(states), dtype=int)})
    env.step(torch.from_numpy(random.integers(3, size=len(states))))
    gains = np.sqrt(energy(env.state()["state"].numpy())) - np.sqrt(energy(states))
    assert len(states) > 100_000 and 0.15 < gains.max() < 0.23
    assert start + 0.23 * (envs.port("acrobot").shortest_episode - 1) < needed
