"""Every task of classic control: steps are Gymnasium's, first states the documented numbers."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from lockstep import envs
from tests.envs import draws, transitions
from tests.envs.batches import DEVICES, make, random_step

PI = math.pi
SPEEDS = (4 * PI, 9 * PI)  # rad/s, the largest of acrobot's links
DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Task:
    """Facts of one task; states in the order of its fields."""

    first: tuple  # the interval of each field of a first state, or None: 0
    wide: tuple  # the lowest and the highest states of a step that is compared with Gymnasium's
    reached: Callable  # what those steps must reach, of transitions.Steps
    tolerances: dict  # of a state, by type
    observed: tuple  # relative and absolute tolerance of an observation
    ends: tuple | None  # a state and an action that end an episode, and a state in which it goes on
    bounds: tuple  # options of a reset, and the interval of each field then
    beyond: float = 0.0  # actions of a box are compared up to here
    variants: tuple = ()  # parameters under which steps are compared as well


def symmetric(high) -> tuple:
    return tuple(-value for value in high), tuple(high)


def at_ends(steps) -> list:
    """Of a car: at the wall, at the other end, at the largest speed, at the goal."""
    (position, velocity), single = steps.following.T, np.float32
    fastest = np.isclose(np.abs(velocity), 0.07, rtol=0, atol=1e-9)
    return [single(position) == single(-1.2), single(position) == single(0.6), fastest, steps.terminated]


CAR = {
    "first": ((-0.6, -0.4), None),
    "wide": ((-1.2, -0.07), (0.6, 0.07)),
    "reached": at_ends,
    "observed": (0, 2e-7),
    "bounds": ({"low": -0.9, "high": -0.8}, ((-0.9, -0.8), None)),
    "variants": ({"goal_velocity": 0.04},),
}
TASKS = {
    "cartpole": Task(
        first=((-0.05, 0.05),) * 4,
        wide=symmetric((2.6, 3, 0.25, 4)),
        reached=lambda steps: [steps.terminated, ~steps.terminated],
        tolerances={"float32": 1e-6, "float64": 1e-12},
        observed=(1e-6, 1e-6),
        ends=([2.39, 5.0, 0.0, 0.0], 1, [0.0] * 4),
        bounds=({"low": 0.1, "high": 0.2}, ((0.1, 0.2),) * 4),
        variants=({"sutton_barto_reward": True}, {"kinematics_integrator": "semi_implicit_euler"}),
    ),
    "mountain_car": Task(
        **CAR,
        tolerances={"float32": (2e-7, 2e-8), "float64": 1e-12},
        ends=([0.49, 0.05], 2, [-0.5, 0.0]),
    ),
    "mountain_car_continuous": Task(
        **CAR,
        tolerances={"float32": (2e-7, 2e-8), "float64": (1e-7, 1e-8)},  # Gymnasium rounds its states to float32
        ends=([0.44, 0.05], 1.0, [-0.5, 0.0]),
        beyond=2.0,
    ),
    "pendulum": Task(
        first=((-PI, PI), (-1, 1)),
        wide=symmetric((PI, 8)),
        reached=lambda steps: [np.abs(steps.following[:, 1]) == 8, np.abs(steps.following[:, 0]) > PI],
        tolerances={"float32": 1e-6, "float64": 1e-12},
        observed=(0, 1e-6),
        ends=None,
        bounds=({"x_init": 0.1, "y_init": 0.2}, ((-0.1, 0.1), (-0.2, 0.2))),
        beyond=3.0,
        variants=({"g": 9.81},),
    ),
    "acrobot": Task(
        first=((-0.1, 0.1),) * 4,
        wide=symmetric((PI, PI, SPEEDS[0] / 4, SPEEDS[1] / 4)),
        reached=lambda steps: [steps.terminated, ~steps.terminated],
        tolerances={"float32": 5e-6, "float64": 1e-12},
        observed=(1e-6, 1e-6),
        ends=([3.0, 0.0, 0.0, 0.0], 1, [0.0] * 4),
        bounds=({"low": -0.3, "high": -0.2}, ((-0.3, -0.2),) * 4),
        variants=({"book_or_nips": "nips"},),
    ),
}
TOLERANCES = {("acrobot", "visited", "float32"): 2e-6, ("acrobot", "fast", "float64"): 1e-9}  # other than the task's
# At full speed acrobot's Runge-Kutta step is stiff, and float32 says nothing.
CASES = [(name, where, dtype) for name in TASKS for where in ("visited", "wide") for dtype in DTYPES]
CASES += [("pendulum", "round and round", dtype) for dtype in DTYPES] + [("acrobot", "fast", "float64")]


@functools.cache
def cases(name: str, where: str):
    """States, actions, beyond their range too, and what Gymnasium makes of them."""
    task, random, space = TASKS[name], np.random.default_rng(0), envs.port(name).of("action")
    low, high = {"fast": symmetric((PI, PI, *SPEEDS)), "round and round": symmetric((100, 8))}.get(where, task.wide)
    if where == "visited":
        states, actions = transitions.visited(name, 5000)
    else:
        n = 2000 if "round" in where else 20_000
        states = random.uniform(low, high, (n, len(low))).astype(np.float32)
        beyond = task.beyond
        actions = random.uniform(-beyond, beyond, n).astype(np.float32) if beyond else random.integers(space.n, size=n)
    return states, actions, transitions.original(name, states, actions)


def compare(name: str, found, expected, dtype: str, tolerance):
    """None of the states ends within 1e-6 of a threshold, where rounding would decide."""
    task = TASKS[name]
    assert (transitions.differences(name, found, expected) <= tolerance).all()
    rtol, atol = task.observed
    np.testing.assert_allclose(found.observation, expected.observation, rtol=rtol, atol=max(atol, np.max(tolerance)))
    np.testing.assert_array_equal(found.terminated, expected.terminated)
    np.testing.assert_allclose(found.reward, expected.reward, rtol=0, atol=1e-5 if task.beyond else 0)
    for column, field in enumerate(envs.port(name).fields().values()):
        assert not field.angle or np.abs(found.following[:, column]).max() <= np.dtype(dtype).type(PI)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "where", "dtype"), CASES)
def test_one_step_equals_gymnasiums(name, where, dtype, device):
    states, actions, expected = cases(name, where)
    found = transitions.port(name, states, actions, dtype, device=device)
    compare(name, found, expected, dtype, TOLERANCES.get((name, where, dtype), TASKS[name].tolerances[dtype]))
    if where == "wide":
        assert min(np.sum(reached) for reached in TASKS[name].reached(expected)) > 100
    if where == "fast":
        assert min((np.abs(expected.following[:, 2:]) == SPEEDS).sum(axis=0)) > 500


@pytest.mark.parametrize(("name", "params"), [(name, params) for name in TASKS for params in TASKS[name].variants])
def test_one_step_of_a_variant_equals_gymnasiums(name, params):
    states, actions = (rows[::10] for rows in cases(name, "wide")[:2])
    expected, found = (steps(name, states, actions, **params) for steps in (transitions.original, transitions.port))
    compare(name, found, expected, "float64", TASKS[name].tolerances["float64"])


@pytest.mark.parametrize("name", [name for name in TASKS if TASKS[name].ends])
def test_an_end_at_the_last_step_sets_both_flags(name):
    near, action, far = TASKS[name].ends
    last = envs.port(name).of("horizon") - 1
    assert transitions.ends(name, near, action, elapsed=last - 1) == (True, False)
    assert transitions.ends(name, near, action, elapsed=last) == (True, True)
    assert transitions.ends(name, far, action, elapsed=last) == (False, True)


# ---- first states ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", TASKS)
def test_first_states_are_made_of_numbers_in_order(name, device):
    first = TASKS[name].first
    draws.assert_made_of(
        name, lambda uniform: [uniform(j, *span) if span else 0.0 for j, span in enumerate(first)], device
    )


@pytest.mark.parametrize("name", TASKS)
def test_first_states_are_uniform_and_uncorrelated(name):
    spans = [span for span in TASKS[name].first if span]
    states = draws.first_states(make(name, 10_000, seed=3), 100 // len(spans))[..., : len(spans)]  # a million numbers
    low, high = np.array(spans).T
    draws.assert_uniform((states - low) / (high - low), 0, 1)
    for field, span in enumerate(spans):
        draws.assert_uniform(states[..., field], *span)
    draws.assert_uncorrelated(states)


@pytest.mark.parametrize("name", TASKS)
def test_bounds_hold_through_autoresets_until_the_next_full_reset(name):
    options, spans = TASKS[name].bounds
    low, high = (torch.tensor([span[k] if span else 0.0 for span in spans]) for k in (0, 1))

    def inside() -> torch.Tensor:
        states = env.state()["state"]
        return ((states >= low) & (states <= high)).all(dim=1)

    env = make(name, 500, reset=False)
    env.reset(options=options)
    assert inside().all() and (env.state()["state"].amax(dim=0) >= high - 0.1 * (high - low)).all()
    first = env.state()["state"]
    env.set_state({"elapsed": env.max_episode_steps - 1})
    random_step(env)
    assert inside().all() and (env.state()["episode"] == 1).all() and not torch.equal(first, env.state()["state"])
    env.reset()
    assert not inside().all()


def test_a_return_that_is_no_number_has_no_mean_and_is_no_state():
    env = envs.make("mountain_car_continuous", 300)
    env.reset(seed=0)
    for key in ("running_return", "episode_return"):
        with pytest.raises(ValueError, match=f"set_state: {key}=nan of environment 7 must be a number"):
            env.set_state({key: np.where(np.arange(300) == 7, np.nan, 0.0)})
    env.set_state({"elapsed": 998})
    env._buffers["running_return"][7] = torch.nan
    env.step(torch.zeros(300))
    assert torch.isnan(env.statistics()["return_mean"]) and int(env._buffers["episode_length"][0]) == 999
