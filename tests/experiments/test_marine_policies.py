"""Policies of marine navigation in the original and in the port: the same episodes, the same rows."""

import functools

import numpy as np
import pandas as pd
import pytest

from lockstep.envs.marine_navigation.params import make_params
from lockstep.envs.marine_navigation.scenario import published
from lockstep.experiments import config, originals
from lockstep.experiments.config import Settings
from lockstep.experiments.marine_navigation import episodes, policies
from lockstep.experiments.marine_navigation.policies import Group

NAME = "marine_navigation"


@pytest.fixture(scope="module")
def few():
    """Settings with short episodes, two of each setting."""
    plain = config.load(NAME, "quick").plain()
    plain["policies"]["episodes"] = [2, 2]
    plain["policies"]["versions"]["kinematic"]["steps"] = 25
    plain["policies"]["versions"]["thruster"]["steps"] = 25
    return Settings(plain)


def rows_of(few, *given) -> pd.DataFrame:
    return pd.DataFrame(policies.measure(NAME, Group(*given), few), columns=policies.COLUMNS)


def test_every_policy_is_played_in_both_forms_under_every_preset():
    settings = config.load(NAME, "full")
    found = policies.groups(settings, ["cpu", "cuda"])
    assert len({group.label for group in found}) == len(found) == 2 * (2 + 4) * 3
    assert settings.policies.seed == 3 and min(settings.policies.episodes) >= 200
    for version, steps in (("thruster", 400), ("kinematic", 361)):
        for preset in ("original", "corrected"):
            assert episodes.parameters(version, preset, settings.policies.versions[version]).limit == steps


@pytest.mark.parametrize(
    ("version", "policy"), [("kinematic", "apf"), ("kinematic", "random"), ("thruster", "straight")]
)
def test_both_forms_play_the_same_episodes(few, version, policy):
    ours, theirs = (rows_of(few, form, version, "original", policy) for form in ("port", "original"))
    assert len(ours) == len(theirs) == 6
    exact = ["robots", "cores", "obstacles", "episode", "reached", "hit_robot", "hit_obstacle", "success"]
    assert ours[exact].equals(theirs[exact])
    for column in ("episode_length", "return", "time_s", "energy"):
        np.testing.assert_allclose(ours[column], theirs[column], rtol=1e-3, atol=1e-3)
    settings = few.policies.versions[version].settings
    assert ours[["robots", "cores", "obstacles"]].drop_duplicates().to_numpy().tolist() == [
        list(setting[:3]) for setting in settings
    ]


def test_both_forms_play_under_the_parameters_given():
    """Whichever of them differs from the preset: goals of 8 m end episodes sooner."""
    p = make_params("kinematic", "original", goal_radius=8.0, max_steps=60, velocity_lag=False)
    played = episodes.Evaluation(NAME, p, [(3, 0, 0, 30.0)], 3, 3, 0)
    player = functools.partial(policies.acting, "straight", p, 0)
    lengths = [rows["episode_length"].tolist() for rows in (played.in_port(player), played.in_original(player, 3))]
    assert lengths[0] == lengths[1] and max(lengths[0]) < 60


def test_processes_play_what_one_plays(few, monkeypatch):
    alone = rows_of(few, "original", "kinematic", "original", "random")
    monkeypatch.setattr(episodes, "ALONE", 2)
    monkeypatch.setattr(originals, "cores", lambda: 2)

    def in_parts(task, index, *cases, **same):
        parts = [task(index[part], *(case[part] for case in cases), **same) for part in (slice(0, 4), slice(4, None))]
        return lambda: {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    monkeypatch.setattr(originals, "on_all_cores", in_parts)
    assert rows_of(few, "original", "kinematic", "original", "random").equals(alone)


def test_an_episode_counts_robots_and_means_of_those_there():
    """Two of three robots there: one at its goal after 4 s, one in a collision after 2 s."""
    fields = {
        "counts": np.array([[2, 0, 0]]), "steps": np.array([[8, 4, 0]]), "returns": np.array([[6.0, -2.0, 9.0]]),
        "energy": np.array([[10.0, 4.0, 9.0]]), "reached": np.array([[1, 0, 1]]),
        "hit_robot": np.array([[0, 1, 1]]), "hit_obstacle": np.array([[0, 0, 1]]),
    }  # fmt: skip
    found = {name: column.tolist() for name, column in episodes.told(fields, make_params("kinematic")).items()}
    assert found == {
        "success": [0], "episode_length": [8], "return": [2.0], "time_s": [3.0], "energy": [7.0],
        "reached": [1], "hit_robot": [1], "hit_obstacle": [0], "reached_time_s": [4.0], "reached_energy": [10.0],
    }  # fmt: skip
    fields["counts"][:], fields["reached"][:, 1], fields["hit_robot"][:, 1] = [[2, 0, 0]], 1, 0
    assert episodes.told(fields, make_params("kinematic"))["success"].tolist() == [1]


def test_the_original_goes_as_far_as_published():
    """Its episodes are those of the published list, whichever of them are played."""
    p = make_params("kinematic", "original", max_steps=20)
    pool = published(3, [(3, 4, 4, 40.0)] * 3, p)
    player = functools.partial(policies.acting, "straight", p, 0)
    arguments = {"name": NAME, "player": player, "params": p, "seed": 0, "robots": 3}
    every = episodes.in_original(np.arange(3), pool, **arguments)
    last = episodes.in_original(np.array([2]), pool[2:], **arguments)
    for name, rows in last.items():
        np.testing.assert_array_equal(rows[0], every[name][2])
    assert (every["steps"] <= 21).all() and every["steps"].max() == 21
