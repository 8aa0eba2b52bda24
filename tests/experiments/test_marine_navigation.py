"""Agents of marine navigation: every part of a training is measured, and both forms play alike."""

import dataclasses

import pandas as pd
import pytest

from lockstep.experiments import config
from lockstep.experiments.config import Settings
from lockstep.experiments.marine_navigation import navigation
from lockstep.experiments.marine_navigation.navigation import Group

NAME = "marine_navigation"


@pytest.fixture(scope="module")
def few():
    """Settings with a short training and short episodes, two of each setting."""
    plain = config.load(NAME, "full").plain()
    asked = plain["navigation"]
    asked |= {
        "settings": {"cpu": {"total_steps": 2400}},
        "points": 2,
        "episodes": {"curve": 1, "port": 2, "original": 1},
    }
    asked["versions"]["kinematic"] |= {"steps": 20}
    asked["versions"]["thruster"] |= {"steps": 20}
    return Settings(plain)


def test_every_agent_has_settings_that_are_its_own():
    settings = config.load(NAME, "full")
    found = navigation.groups(settings, ["cpu", "cuda"])
    assert len({group.label for group in found}) == len(found) and {group.device for group in found} == {"cuda"}
    assert [group.seed for group in found] == sorted(group.seed for group in found)
    configs = {group: navigation.config_of(NAME, group, settings) for group in found}
    assert len({(group.policy, group.version, *dataclasses.astuple(one)) for group, one in configs.items()}) == len(
        found
    )
    for group, one in configs.items():
        assert one.limit_ends == one.raw_obs == (group.variant == "faithful")
        assert one.epsilon_steps == one.total_steps // 4 and one.seed == group.seed
        assert f"version={group.version}, preset={group.preset}" in one.options


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "policy", "variant"),
    [("thruster", "ac_iqn", "corrected"), ("thruster", "rainbow", "faithful"), ("kinematic", "iqn", "corrected")],
)
def test_an_agent_is_trained_and_plays_the_same_episodes_in_both_forms(few, version, policy, variant):
    group = Group(version, "original", policy, variant, 0)
    rows = pd.DataFrame(navigation.measure(NAME, group, few), columns=navigation.COLUMNS)
    risks = list(navigation.risks(group, few))
    curve, final = rows[rows["part"] == "curve"], rows[rows["part"] == "final"]
    assert curve.groupby("env_steps").size().to_dict() == {1200: 3, 2400: 3} and (curve["form"] == "port").all()
    assert len(final[final["form"] == "port"]) == 6 * len(risks) and set(final["env_steps"]) == {2400}
    theirs = final[final["form"] == "original"].reset_index(drop=True)
    own = final["risk"].isna() if risks == [None] else final["risk"] == risks[0]
    ours = final[(final["form"] == "port") & own & (final["episode"] == 0)].reset_index(drop=True)
    exact = ["robots", "cores", "obstacles", "episode", "reached", "hit_robot", "hit_obstacle", "success"]
    assert len(theirs) == 3 and ours[exact].equals(theirs[exact])
    pd.testing.assert_frame_equal(ours[["time_s", "return"]], theirs[["time_s", "return"]], rtol=1e-2, atol=1e-2)
