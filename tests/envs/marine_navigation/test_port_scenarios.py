"""Scenarios that the port draws: those of the walker in Python bit for bit, by the rules, as often as stated."""

import math

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.envs.marine_navigation.params import Setting
from lockstep.envs.marine_navigation.scenario import Scenario, curriculum_of, evaluation, noise_ids, philox_scenario
from lockstep.envs.marine_navigation.streams import unit
from lockstep.envs.noise import philox
from tests.envs.marine_navigation.test_parity import fields
from tests.envs.marine_navigation.test_scenarios import SETTINGS, violations
from tests.envs.marine_navigation.worlds import params

SLOW = pytest.mark.slow
SEED, FIRST = 2**40 + 11, 1000
PRESETS = ["corrected", "original"]


def drawn(B: int, version: str, preset: str = "corrected", dtype: str = "float64", episode: int = 0, **options):
    """A batch in a given episode, and its fields."""
    options |= {"version": version, "preset": preset, "dtype": dtype, "seed": SEED, "first_index": FIRST}
    env = envs.make("marine_navigation", B, **options)
    env.reset()
    for _ in range(episode):
        env.reset()
    return env, fields(env)


def scenario(version: str, p, of: dict, b: int) -> Scenario:
    """The scenario that a batch's environment is in."""
    robots, cores, rocks = of["counts"][b]
    pose, core, rock = of["pose"][b, :robots], of["core"][b, :cores], of["obstacle"][b, :rocks]
    speed = np.zeros(robots) if version == "thruster" else of["speed"][b, :robots]
    return Scenario(
        version, pose[:, :2], of["goal"][b, :robots], pose[:, 2], speed, core[:, :2], core[:, 2] > 0,
        core[:, 3] / p.core_radius, rock[:, :2], rock[:, 2],
    )  # fmt: skip


@pytest.mark.parametrize(("B", "episode"), [(20, 0), (20, 1), pytest.param(3000, 0, marks=pytest.mark.long)])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("version", list(SETTINGS))
def test_first_states_are_those_of_the_walker_in_python(version, preset, B, episode):
    pairs = [(setting, weight) for weight, setting in enumerate(SETTINGS[version], 1)]
    env, of = drawn(B, version, preset, episode=episode, curriculum=pairs)
    p, mix = env.params, curriculum_of(pairs, params(version))
    for b in range(B):
        place = SEED, FIRST + b, episode
        setting = mix.setting(0, *place)
        s = philox_scenario(params(version, preset), setting, *place)
        assert tuple(of["counts"][b]) == s.counts and of["asked"][b] == setting.robots
        rows = {
            "pose": np.column_stack([s.start, s.heading]),
            "goal": s.goal,
            "core": np.column_stack([s.core_centre, np.where(s.clockwise, 1, -1), p.core_radius * s.edge_speed]),
            "obstacle": np.column_stack([s.obstacle_centre, s.radius]),
            "noise_id": noise_ids(setting.robots, len(s.start), *place),
        } | ({} if version == "thruster" else {"speed": s.speed})
        for name, expected in rows.items():
            np.testing.assert_array_equal(of[name][b, : len(expected)], expected, err_msg=name)
            assert not of[name][b, len(expected) :].any()


@pytest.mark.parametrize("version", list(SETTINGS))
def test_in_float32_first_states_are_those_of_float64_rounded(version):
    wide, narrow = (drawn(300, version, dtype=dtype)[1] for dtype in ("float64", "float32"))
    for name in ("pose", "goal", "core", "obstacle", "counts", "noise_id"):
        np.testing.assert_array_equal(narrow[name], wide[name].astype(narrow[name].dtype), err_msg=name)


@pytest.mark.parametrize("B", [60, pytest.param(10_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("version", list(SETTINGS))
def test_drawn_scenarios_keep_the_rules(version, preset, B):
    setting = Setting(*SETTINGS[version][1])
    numbers = {"robots": setting.robots, "cores": setting.cores, "obstacles": setting.obstacles}
    env, of = drawn(B, version, preset, min_goal_distance=setting.min_goal_distance, **numbers)
    assert (of["counts"] <= setting[:3]).all() and (of["counts"] == setting[:3]).all(axis=1).mean() > 0.5
    for b in range(B):
        assert violations(scenario(version, env.params, of, b), params(version, preset), setting) == []


@pytest.mark.parametrize(
    ("version", "expected"), [("thruster", (0.396, 0.271, 0.165)), ("kinematic", (0.313, 0.188, 0.092))]
)
def test_starts_and_goals_are_as_often_far_apart_as_uniform_points(version, expected):
    """Of 20,000 first proposals, which D_min = 0 accepts; four standard errors, and half of the last digit stated."""
    _, of = drawn(20_000, version, robots=1, cores=0, obstacles=0, min_goal_distance=0.0)
    apart = np.linalg.norm(of["pose"][:, 0, :2] - of["goal"][:, 0], axis=1)
    for least, share in zip((30, 35, 40), expected, strict=True):
        assert (apart >= least).mean() == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 20_000) + 5e-4)


def taken(of: dict, name: str, asked: int, column: int, stream: int, low: float, high: float) -> np.ndarray:
    """Proposals [B] that a stage took, by which of the 500 its last row came from; all where it is not full."""
    B, count, used = len(of["counts"]), of["counts"][:, column], []
    for b in range(0, B if asked else 0, 1000):
        some = slice(b, b + 1000)
        index = np.arange(FIRST, FIRST + B)[some, None]
        xy = low + (high - low) * unit(philox((index, 0, np.arange(500), stream), SEED)[:2])
        last = np.take_along_axis(of[name][some, :, :2], (count[some] - 1)[:, None, None], axis=1)[:, 0]
        found = (xy == last.T[:, :, None]).all(axis=0)
        assert found.any(axis=1).all()
        used.append(np.where(count[some] == asked, found.argmax(axis=1) + 1, 500))
    return np.concatenate(used) if used else np.zeros(B)


@pytest.mark.parametrize("B", [500, pytest.param(16_000, marks=SLOW)])
@pytest.mark.parametrize(
    ("setting", "means", "errors"),
    [
        (Setting(5, 0, 4, 40.0), (52.1, 0.0, 12.83), (0.2, 0.0, 0.05)),
        (Setting(6, 8, 8, 30.0), (28.7, 41.6, 74.3), (0.1, 0.14, 0.5)),
    ],
)
def test_stages_take_as_many_proposals_as_published_ones(setting, means, errors, B):
    """Stated means of 16,000 episodes with their standard errors; three of these of the difference."""
    A, C, rocks, apart = setting
    _, of = drawn(B, "thruster", "original", robots=A, cores=C, obstacles=rocks, min_goal_distance=apart)
    W = params("thruster").width
    found = (
        taken(of, "pose", A, 0, 0, 2.0, W - 2.0),
        taken(of, "core", C, 1, 2, 0.0, W),
        taken(of, "obstacle", rocks, 2, 3, 5.0, W - 5.0),
    )
    for used, mean, error in zip(found, means, errors, strict=True):
        assert used.mean() == pytest.approx(mean, abs=3 * error * math.sqrt(1 + 16_000 / B))


@pytest.mark.parametrize("version", list(SETTINGS))
def test_an_evaluation_set_is_played_in_turn(version):
    """Environment b begins with number (first index + b) mod N, and goes on to the next."""
    p = params(version, "original")
    many = evaluation(p)
    env = envs.make("marine_navigation", len(many), version=version, preset="original", scenarios=many,
                    dtype="float64", first_index=7)  # fmt: skip
    for episode in range(2):
        env.reset()
        of = fields(env)
        for b in range(len(many)):
            s = many[(7 + b + episode) % len(many)]
            assert tuple(of["counts"][b]) == s.counts
            found = scenario(version, p, of, b)
            for name in ("start", "goal", "heading", "speed", "core_centre", "clockwise", "obstacle_centre", "radius"):
                np.testing.assert_array_equal(getattr(found, name), getattr(s, name), err_msg=name)
            np.testing.assert_allclose(found.edge_speed, s.edge_speed, rtol=1e-15)
    assert torch.equal(env.state()["scenario"], (torch.arange(len(many)) + 8).to(torch.int32) % len(many))
