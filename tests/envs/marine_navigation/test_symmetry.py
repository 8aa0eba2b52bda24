"""Scenes that are turned, mirrored or numbered otherwise, without noise: the same happens."""

import dataclasses
import math

import numpy as np
import pytest

from tests.envs.marine_navigation.worlds import QUIET, opened, put, rounding, scene

pytestmark = pytest.mark.usefixtures("form")
W, STEPS = 50.0, 12
VERSIONS = ["thruster", "kinematic", "sonar"]


def crowd(version):
    """Robots that meet in the middle, among cores and obstacles."""
    speed = 0.0 if version == "thruster" else 1.3
    robots = []
    for a in (0.1, 1.4, 2.5, 4.2):
        c, s = math.cos(a), math.sin(a)
        robots.append((25 + 12 * c, 25 + 12 * s, 25 - 14 * c, 25 - 14 * s, a + 2.9, speed))
    return scene(version, robots[: 1 if version == "sonar" else 4], [(29, 24, True, 6.0), (20, 28, False, 5.0)],
                 [(25, 20, 1.0), (32, 31, 1.5), (16, 22, 1.2)])  # fmt: skip


def drawn(version, robots):
    random = np.random.default_rng(3)
    if version == "thruster":
        return random.uniform(-1, 1, (STEPS, robots, 2))
    return random.integers(0, 9, (STEPS, robots))


def played(given, actions, preset="corrected", **single):
    """Observations, rewards and flags of every step by robot; NaN where one has ended."""
    quiet = QUIET if given.version == "thruster" else {}
    env = opened(given, preset, shared_noise=False, **quiet, **single)
    found = np.full((STEPS, len(given.start), env.params.observed + 3), np.nan)
    for t in range(STEPS):
        if not env.agents:
            break
        outcome = env.step({agent: actions[t][int(agent[-1])] for agent in env.agents})
        for agent, seen in outcome[0].items():
            found[t, int(agent[-1])] = [*seen, *(float(part[agent]) for part in outcome[1:4])]
    assert np.isfinite(found[:6]).all()  # all play on for a while
    return found


def alike(found, expected, apart=1e-9):
    """Equal but for rounding, also that of what is shown, which may round to either side."""
    np.testing.assert_allclose(found, expected, rtol=2 * rounding(), atol=apart)


def turned(points, angle):
    c, s = math.cos(angle), math.sin(angle)
    return (points - W / 2) @ np.array([[c, s], [-s, c]]) + W / 2


def mirrored(points):
    return points * (1, -1) + (0, W)


def moved(given, move, heading, clockwise):
    places = {name: move(getattr(given, name)) for name in ("start", "goal", "core_centre", "obstacle_centre")}
    return dataclasses.replace(given, **places, heading=heading, clockwise=clockwise)


@pytest.mark.parametrize("preset", ["corrected", "original"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_turned_scene_looks_the_same_from_within(version, preset):
    given = crowd(version)
    actions = drawn(version, 4)
    there = moved(given, lambda points: turned(points, 2.3), (given.heading + 2.3) % (2 * math.pi), given.clockwise)
    alike(played(there, actions, preset), played(given, actions, preset))


@pytest.mark.parametrize("preset", ["corrected", "original"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_mirrored_scene_is_mirrored_but_for_the_rules_of_the_road(version, preset):
    given, actions = crowd(version), drawn(version, 4)
    there = moved(given, mirrored, -given.heading % (2 * math.pi), ~given.clockwise)
    swapped = actions[..., ::-1] if version == "thruster" else 3 * (actions // 3) + 2 - actions % 3
    free = {"colregs_weight": 0.0}
    here, there = played(given, actions, preset, **free), played(there, swapped, preset, **free)
    if version == "thruster":  # y and v of goal, velocity and neighbours, r; the thrusts change places
        odd = np.array([1, 3, 4, *(7 + 5 * k + part for k in range(5) for part in (1, 3))])
        there[..., [5, 6]] = there[..., [6, 5]]
    elif version == "kinematic":
        odd = np.array(
            [1, 3, *(5 + 3 * k for k in range(5)), *(19 + 4 * k + part for k in range(5) for part in (1, 3))]
        )
    else:
        odd = np.array([1, 3, *range(5, 26, 2)])
        there[..., 4:26] = there[..., 4:26].reshape(STEPS, -1, 11, 2)[:, :, ::-1].reshape(STEPS, -1, 22)
    there[..., odd] *= -1
    alike(there, here)


@pytest.mark.parametrize("version", ["thruster", "kinematic"])
def test_robots_numbered_otherwise_do_the_same(version):
    given, actions, order = crowd(version), drawn(version, 4), [2, 0, 3, 1]
    rows = {name: getattr(given, name)[order] for name in ("start", "goal", "heading", "speed")}
    there = played(dataclasses.replace(given, **rows), actions[:, order])
    alike(there, played(given, actions)[:, order], 1e-12)


@pytest.mark.parametrize("version", ["thruster", "kinematic"])
def test_a_robot_that_has_ended_has_no_influence(version):
    """Wherever it lies, also in the way of the others."""
    given, actions = crowd(version), drawn(version, 4)
    outcomes = []
    for place in ((25.0, 25.0), (1000.0, 1000.0)):
        quiet = QUIET if version == "thruster" else {}
        env = opened(given, **quiet)
        pose = [*zip(*given.start.T, given.heading, strict=True)]
        put(env, active=[True, True, True, False], pose=[*pose[:3], (*place, 0.0)])
        rows = []
        for t in range(STEPS):
            if env.agents:
                seen, reward, *_ = env.step({agent: actions[t][int(agent[-1])] for agent in env.agents})
                rows.append([{agent: row.tolist() for agent, row in seen.items()}, reward])
        outcomes.append(rows)
    assert outcomes[0] == outcomes[1] and len(outcomes[0]) > 5
