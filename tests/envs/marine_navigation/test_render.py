"""Pictures of scenes."""

import math

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from lockstep.envs.marine_navigation.original import make
from lockstep.envs.marine_navigation.original.render import hull
from tests.envs.marine_navigation.worlds import put, scene


def test_a_hull_has_its_bow_ahead():
    corners = hull(10.0, 20.0, math.pi / 2, 5.0, 2.5)
    np.testing.assert_allclose(corners[2], [10.0, 22.5], atol=1e-12)
    np.testing.assert_allclose(corners[[0, 4]], [[11.25, 17.5], [8.75, 17.5]], atol=1e-12)


def test_a_picture_shows_what_there_is_where_it_is():
    given = scene(robots=[(12.0, 12.0, 45.0, 45.0, 0.0, 0.0)], obstacles=[(40.0, 15.0, 4.0)])
    env = make(scenario=given, render_mode="rgb_array")
    with pytest.raises(ResetNeeded):
        env.render()
    env.reset()
    first = env.render()
    assert first.shape == (600, 600, 3) and first.dtype == np.uint8

    def colour(picture, x, y):
        return picture[int((1 - y / 55) * 585) + 7, int(x / 55 * 585) + 7].tolist()

    assert colour(first, 40.0, 15.0) == [105, 105, 105] and colour(first, 25.0, 30.0) == [255, 255, 255]
    assert colour(first, 12.0, 12.0) != [255, 255, 255]
    moved = put(env, pose=[25.0, 30.0, 1.0]).render()
    assert colour(moved, 25.0, 30.0) == colour(first, 12.0, 12.0) and colour(moved, 12.0, 12.0) == [255, 255, 255]
    ended = put(env, active=[False]).render()
    assert colour(ended, 25.0, 30.0) == [211, 211, 211]


def test_a_picture_shows_currents():
    env = make(scenario=scene(robots=[(5, 5, 50, 50, 0, 0)], cores=[(27.5, 27.5, 1, 3.0)]), render_mode="rgb_array")
    env.reset()
    with_core = (env.render()[200:400, 200:400] != 255).any(axis=-1).sum()
    without = (put(env, counts=[1, 0, 0]).render()[200:400, 200:400] != 255).any(axis=-1).sum()
    assert with_core > 500 and without == 0
    assert make().render() is None
