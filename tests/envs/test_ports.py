"""The declarations of each port, against Gymnasium and against the physics."""

import dataclasses
import math
import re

import gymnasium
import numpy as np
import pytest

from lockstep import envs
from lockstep.envs import checks
from lockstep.envs.batch.port import checked_constant
from tests.contract.batches import KNOWN

CARS = ["mountain_car", "mountain_car_continuous"]


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", KNOWN)
def test_spaces_and_limits_are_gymnasiums(name):
    port, original = envs.port(name), gymnasium.make(envs.port(name).gymnasium_id)
    for ours, theirs in ((port.of("observation"), original.observation_space), (port.action, original.action_space)):
        assert ours == theirs
        if isinstance(ours, gymnasium.spaces.Box):
            assert same_bits(ours.low, theirs.low) and same_bits(ours.high, theirs.high)
    assert (port.horizon, port.reward_threshold) == (original.spec.max_episode_steps, original.spec.reward_threshold)


@pytest.mark.parametrize("name", KNOWN)
def test_parameters_carry_gymnasiums_names_and_values(name):
    port = envs.port(name)
    original = gymnasium.make(port.gymnasium_id).unwrapped
    for field in dataclasses.fields(port.params):
        if field.name != "sutton_barto_reward":  # a keyword, kept under another name
            assert getattr(original, field.name) == field.default


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


@dataclasses.dataclass(frozen=True)
class Whole:
    steps: int = 3
    seed: int = dataclasses.field(default=3, metadata={"least": 0, "most": 2**32 - 1})


@pytest.mark.parametrize("value", [2**31, 2**32 + 3, -(2**31) - 1, 1e12])
def test_an_integer_that_a_kernel_would_take_for_another_is_refused(value):
    steps, seed = dataclasses.fields(Whole)
    with pytest.raises(ValueError, match=f"steps={int(value)} must be an integer from -2147483648 to 2147483647"):
        checked_constant("steps", value, steps)
    assert [checked_constant("steps", most, steps) for most in (-(2**31), 2**31 - 1)] == [-(2**31), 2**31 - 1]
    assert checked_constant("seed", 2**32 - 1, seed) == 2**32 - 1  # a port that keeps it from the kernel may have more


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


# ---- no episode is shorter than declared ----------------------------------------------------------------------------


# ---- memory ---------------------------------------------------------------------------------------------------------


def test_the_least_that_a_limit_leaves_counts_and_cached_files_are_free(tmp_path):
    """As in a job of Slurm: its own group has no limit, one around it has, and so has the container."""
    job, own = tmp_path / "system.slice" / "job_7", tmp_path / "own"
    (job / "step_0").mkdir(parents=True)
    own.write_text("4:memory:/elsewhere\n0::/system.slice/job_7/step_0\n")
    for folder, limit, used, cached in (
        (job / "step_0", "max", 900, 0),
        (job, "2000", 1500, 700),
        (tmp_path, "90000", 3000, 1000),
    ):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\nfile 9\ninactive_file {cached}\nactive_file 3\n")
    assert checks._container_memory(tmp_path, own) == 2000 - (1500 - 700)
    (job / "memory.max").write_text("500\n")
    assert checks._container_memory(tmp_path, own) == 0
    own.write_text("0::/\n")
    assert checks._container_memory(tmp_path, own) == 90000 - (3000 - 1000)
    assert checks._container_memory(tmp_path / "none", tmp_path / "none") == math.inf
