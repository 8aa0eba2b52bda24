"""Faults put into the shared kernels, each of which a named test must notice."""

import shutil

import pytest

from envs.kernels import compile
from tests.envs import test_batch, test_noise


def truncation():
    test_batch.test_episodes_are_truncated_at_exactly_the_limit("cartpole", "SameStep", 9)


def same_step():
    test_batch.test_same_step_returns_the_next_episodes_first_observation("cpu")


def fused():
    test_batch.test_a_fused_trajectory_equals_single_steps_bit_for_bit("cartpole", "cpu", 500)


def short_episodes():
    test_batch.test_fused_steps_are_right_where_episodes_are_shorter_than_the_fetch_ahead("cpu")


def inert():
    test_batch.test_disabled_leaves_an_ended_environment_inert("cpu")


def numbers():
    test_noise.test_random_actions_are_those_of_the_numpy_form()


def split():
    test_noise.test_a_batch_can_be_split_by_first_index()


MUTANTS = [
    ("batch_cpu.cuh", "u8(length >= LIMIT)", "u8(0)", truncation),
    ("batch_cpu.cuh", "u8(length >= LIMIT)", "u8(length > LIMIT)", truncation),
    ("batch.cuh", "    b.elapsed[i] = 0;\n", "", same_step),  # the counter is kept over a reset
    ("batch.cuh", "observe(s, b.final_obs + i * OBS);", "observe(b.bounds, b.final_obs + i * OBS);", same_step),
    ("batch.cuh", "u32(b.first_index + begin)", "u32(b.first_index)", numbers),  # tiles share numbers
    ("batch.cuh", "u32(b.first_index + begin)", "u32(begin)", split),
    ("batch_cpu.cuh", "s[j] = live ? s[j] : before[j];", "(void)live;", inert),
    ("rollout_cpu.cuh", "if (!DEFAULT_BOUNDS && dry)", "if (false)", short_episodes),
    ("rollout_cpu.cuh", "k % FETCH_EVERY == 0", "k == 0", fused),
    ("rollout_cpu.cuh", "lane.steps = steps;", "lane.steps = 0;", fused),
]


@pytest.mark.parametrize(("file", "right", "wrong", "rung"), MUTANTS)
def test_a_mutant_of_the_batch_is_noticed(tmp_path, monkeypatch, file, right, wrong, rung):
    envs = tmp_path / "envs"
    shutil.copytree(compile.ENVS, envs, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    text = (envs / "kernels" / file).read_text()
    assert right in text
    (envs / "kernels" / file).write_text(text.replace(right, wrong))
    rung()  # passes without the fault
    monkeypatch.setattr(compile, "KERNELS", envs / "kernels")
    monkeypatch.setattr(compile, "ENVS", envs)
    with pytest.raises(AssertionError):
        rung()
