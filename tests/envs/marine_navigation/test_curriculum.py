"""Settings of episodes by steps and by weight."""

import math
import re

import numpy as np
import pytest

from lockstep.envs.marine_navigation.params import Setting
from lockstep.envs.marine_navigation.scenario import CURRICULA, Mix, Stages, curriculum_of
from tests.envs.marine_navigation.worlds import make, params

SMALL, LARGE = Setting(1, 0, 0, 10.0), Setting(3, 2, 1, 20.0)


def test_published_stages_begin_every_million_steps():
    stages = CURRICULA["thruster"]["published"]
    for steps, expected in (
        (0, (3, 0, 0, 30)), (999_999, (3, 0, 0, 30)), (1_000_000, (4, 0, 0, 35)), (2_500_000, (5, 0, 0, 40)),
        (5_000_000, (5, 0, 4, 40)), (10**9, (5, 0, 4, 40)),
    ):  # fmt: skip
        assert stages.setting(steps, 0, 0, 0) == expected
    assert [one.cores for one in CURRICULA["thruster"]["vortices"].settings] == [4, 6, 8, 8, 8, 8]
    kinematic = CURRICULA["kinematic"]["published"].settings
    assert kinematic[0] == (3, 4, 0, 30) and kinematic[5] == (7, 8, 10, 40)
    assert CURRICULA["sonar"]["published"].settings == ((1, 4, 6, 30), (1, 6, 8, 35), (1, 8, 10, 40))


@pytest.mark.parametrize(("batch", "resets"), [(1, 3), (5, 1)])
def test_steps_of_all_environments_count(batch, resets):
    """Stage 2 begins at step 10: after 4 steps of one environment, or of five, which are 20."""
    env = make(curriculum=Stages((0, 10), (SMALL, LARGE)), batch=batch, max_steps=4)
    counts = []
    for _ in range(resets + 1):
        env.reset(seed=3) if not counts else env.reset()
        counts.append((len(env.agents), len(env.episode.cores), len(env.episode.obstacles)))
        while env.agents:
            env.step({agent: np.zeros(2) for agent in env.agents})
    assert counts == [(1, 0, 0)] * resets + [(3, 2, 1)]
    assert env.possible_agents == ["robot_0", "robot_1", "robot_2"]
    assert env.reset(seed=3) and len(env.agents) == 1  # a seed begins anew


def test_a_mix_draws_settings_by_weight():
    mix = curriculum_of([(SMALL, 3), (LARGE, 1.0)], params())
    assert mix == Mix((3, 1.0), (SMALL, LARGE))
    drawn = [mix.setting(0, 5, environment, 0) == LARGE for environment in range(2000)]
    assert np.mean(drawn) == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 2000) ** 0.5)
    assert [mix.setting(s, 5, 3, 7) for s in (0, 10**7)] == [mix.setting(0, 5, 3, 7)] * 2


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("given", [Stages((0,), ((2, 0, 1, 10.0),)), Mix([1], [[2, 0, 1, 10]])])
def test_settings_may_be_plain_rows(given):
    env = make(curriculum=given)
    env.reset()
    p = params()
    assert p.check_setting((2, 0, 1, 10)) == Setting(2, 0, 1, 10.0) == curriculum_of(given, p).settings[0]


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("publishd", "curriculum='publishd' is unknown where version='thruster'; did you mean 'published'?"),
        (Stages((5,), (SMALL,)), "curriculum: starts=(5,) must begin with 0 and increase"),
        (Stages((0, 7, 7), (SMALL,) * 3), "curriculum: starts=(0, 7, 7) must begin with 0 and increase"),
        (Stages((0, 7), (SMALL,)), "curriculum has 1 settings and 2 starts or weights"),
        (Stages((), ()), "curriculum has 0 settings and 0 starts or weights"),
        ([(SMALL, 0)], "curriculum: weight=0 must be positive and finite"),
        ([(SMALL, float("nan"))], "curriculum: weight=nan must be positive and finite"),
        ([((33, 0, 0, 40.0), 1)], "curriculum[0]: robots=33 must be at most 32"),
        ([(SMALL, 1), ((1, 0, 0, 90.0), 1)], "curriculum[1]: min_goal_distance=90.0 must be less than 72.1249"),
        (7, "curriculum=7 must be a name, Stages, Mix, or pairs of a setting (A, C, O, D_min) and a weight"),
        ([(1, 2)], "curriculum=[(1, 2)] must be a name"),
        (Stages((0, "a"), (SMALL,) * 2), "curriculum: starts[1]='a' must be an integer from 0 to 9223372036854775807"),
        (Stages((0, 2**70), (SMALL,) * 2), "curriculum: starts[1]=1180591620717411303424 must be an integer from 0"),
        (Stages((0, math.inf), (SMALL,) * 2), "curriculum: starts[1]=inf must be an integer from 0"),
        (Stages((0, 1.5), (SMALL,) * 2), "curriculum: starts[1]=1.5 must be an integer from 0"),
        (Stages(None, (SMALL,)), "curriculum: starts=None must be a tuple"),
        (Mix((1.0,), None), "curriculum: settings=None must be a tuple"),
        (Stages((0,), (None,)), "curriculum[0]: None must be four numbers (A, C, O, D_min)"),
        (Mix((1.0,), ((1, 0, 0),)), "curriculum[0]: (1, 0, 0) must be four numbers (A, C, O, D_min)"),
        (Mix((1.0,), ((1, 0, "a", 10.0),)), "curriculum[0]: obstacles='a' must be a number"),
        (Mix((True,), (SMALL,)), "curriculum: weight=True must be positive and finite"),
        (Mix((10**400,), (SMALL,)), "must be positive and finite"),
        (Mix((1e308, 1e308), (SMALL,) * 2), "curriculum: weights=(1e+308, 1e+308) must have a finite sum"),
    ],
)
def test_a_curriculum_that_is_none_is_refused(given, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        make(curriculum=given)
