"""Scenes of marine navigation: whatever is drawn lies where it is."""

import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from lockstep.envs.marine_navigation.original import MarineNavigation, colregs, get_state
from lockstep.envs.marine_navigation.params import make_params
from lockstep.envs.marine_navigation.scenario import Scenario
from lockstep.paper import figures
from lockstep.paper.marine_navigation import scenes
from lockstep.paper.marine_navigation.figures import scene


@pytest.fixture(scope="module")
def into_a_rock():
    """Two boats under full thrust: one runs into an obstacle ten metres ahead, the other finds nothing in its way."""
    start, goal = [(5.0, 10.0), (5.0, 40.0)], [(50.0, 10.0), (50.0, 40.0)]
    fields = {"core_centre": [(25.0, 25.0)], "clockwise": [True], "edge_speed": [3.0]}
    given = Scenario(
        "thruster", start, goal, [0.0, 0.0], [0.0, 0.0], obstacle_centre=[(15.0, 10.0)], radius=[1.0], **fields
    )
    env = MarineNavigation(make_params(max_steps=12), given)
    env.reset()
    states = [get_state(env)]
    while env.agents:
        env.step({agent: np.ones(2) for agent in env.agents})
        states.append(get_state(env))
    return scenes.Trajectory.of(env.params, env.episode.scenario, states)


def test_a_trajectory_has_every_moment(into_a_rock):
    assert into_a_rock.pose.shape == (13, 2, 3) and into_a_rock.pose[0, :, 0].tolist() == [5.0, 5.0]
    assert into_a_rock.hit.tolist() == [True, False]
    assert into_a_rock.active[0].all() and not into_a_rock.active[-1, 0]


def test_a_map_has_its_obstacle_goals_and_core(into_a_rock):
    panel = Figure().subplots()
    scenes.scene(panel, into_a_rock)
    p = into_a_rock.params
    discs = {(*patch.center, patch.radius) for patch in panel.patches if hasattr(patch, "center")}
    goals = {(50.0, 10.0, p.goal_radius), (50.0, 40.0, p.goal_radius)}
    assert discs == {(15.0, 10.0, 1.0), (25.0, 25.0, p.core_radius)} | goals
    assert panel.get_xlim() == (0, p.width)


def test_stream_lines_turn_as_the_water_does(into_a_rock):
    """Clockwise with x to the right and y up: north of the core to the east."""
    panel = Figure().subplots()
    scenes.scene(panel, into_a_rock)
    lines = np.concatenate([np.diff(path.vertices[:2], axis=0) for path in panel.collections[0].get_paths()])
    at = np.array([path.vertices[0] for path in panel.collections[0].get_paths()])
    north = (np.abs(at[:, 0] - 25) < 4) & (at[:, 1] > 27)
    assert north.any() and (lines[north, 0] >= 0).all()


def test_a_hull_is_drawn_while_a_robot_sails_and_a_cross_where_it_was_stopped(into_a_rock):
    panel, last = Figure().subplots(), len(into_a_rock.pose) - 1
    assert [len(scenes.hulls(panel, into_a_rock, moment)) for moment in (0, last)] == [2, 1]
    bow = scenes.hulls(panel, into_a_rock, 0)[0].get_xy()[2]
    assert bow.tolist() == pytest.approx([7.5, 10.0])
    crosses = [line for line in scenes.sailed(panel, into_a_rock, last) if line.get_marker() == "x"]
    assert [line.get_xydata()[0].tolist() for line in crosses] == [into_a_rock.pose[-1, 0, :2].tolist()]
    assert not [line for line in scenes.sailed(panel, into_a_rock, 0) if line.get_marker() == "x"]


def test_an_animation_has_a_picture_after_so_many_steps_and_the_end(into_a_rock):
    drawn = list(scenes.animate(into_a_rock, 5))
    assert [picture.shape for picture in drawn] == [(scenes.PIXELS, scenes.PIXELS, 3)] * 4  # after 0, 5, 10 and 12
    assert not np.array_equal(drawn[0], drawn[-1])


@pytest.mark.parametrize(("name", "holds"), [("head-on", colregs.head_on), ("crossing", colregs.crossing)])
def test_the_shaded_area_is_where_the_rule_holds(name, holds):
    """Just within each corner it holds on the course of the encounter, just without it does not."""
    place, course = map(np.array, scene.ENCOUNTERS[name])
    ahead = scene.turned(np.array([1.0, 0.0]), course * [1, -1])  # the own course in the other's axes
    corners = scene.area(name)
    for corner in corners:
        inward = corners.mean(axis=0) - corner
        assert holds(*(corner + 1e-3 * inward), *ahead) and not holds(*(corner - 1e-3 * inward), *ahead)
    assert holds(*scene.turned(-place, course * [1, -1]), *ahead)


def test_the_course_asked_for_lies_to_starboard():
    (_, *panels) = figures.draw("marine_scene", []).axes
    for panel, name in zip(panels, scene.ENCOUNTERS, strict=True):
        (line,) = [line for line in panel.lines if line.get_linestyle() == "--"]
        assert panel.get_title(loc="left") == name
        assert line.get_xydata()[1][0] > 0.0 and math.hypot(*line.get_xydata()[1]) == pytest.approx(9.0)
