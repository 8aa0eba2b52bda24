"""Policies without learning, by hand and in play."""

import math

import numpy as np
import pytest
import torch

from lockstep.envs.marine_navigation import policies
from lockstep.envs.marine_navigation.original import MarineNavigation
from lockstep.envs.marine_navigation.scenario import published
from lockstep.envs.noise import RANDOM_POLICY, philox
from tests.envs.marine_navigation.worlds import params

P = params("kinematic")
LEFT, AHEAD, RIGHT = 6, 7, 8  # at +0.4 m/s²: turn to -y, straight on, to +y


def row(goal=(20.0, 0.0), velocity=(1.0, 0.0), rocks=(), boats=()):
    """An observation of the kinematic version [1, 39]."""
    found = np.zeros(39)
    found[:2], found[2:4] = goal, velocity
    for k, rock in enumerate(rocks):
        found[4 + 3 * k : 7 + 3 * k] = rock
    for k, boat in enumerate(boats):
        found[19 + 4 * k : 23 + 4 * k] = boat
    return found[None]


def one(policy, *given, **fields):
    return policy(row(*given, **fields), P).tolist()[0]


@pytest.mark.parametrize("policy", [policies.apf, policies.rvo, policies.straight])
def test_nothing_in_the_way_all_turn_towards_the_goal(policy):
    """To the nearest of three turn rates, π/6 rad/s either way."""
    for degrees, turn in ((0, AHEAD), (14, AHEAD), (16, RIGHT), (-16, LEFT), (179, RIGHT), (-179, LEFT)):
        goal = (20 * math.cos(math.radians(degrees)), 20 * math.sin(math.radians(degrees)))
        assert one(policy, goal, (0.5, 0.0)) == turn
    assert one(policy, (0.0, 20.0), (0.0, 0.9)) == AHEAD  # the course is the velocity's, not the heading
    assert one(policy, (0.0, 20.0), (0.0, 0.0005)) == RIGHT  # which stands in for it at rest


def test_a_potential_field_is_the_sum_of_its_forces():
    """Goal 20 m ahead, a rock of 1 m ahead: F/500 = 2 - 400 q/G² - 20 q², which is -0.2 at a gap G of 5.18238 m and 0.2
    at 5.48942 m, where a boat that brakes coasts, and one that coasts speeds up."""
    for G, wanted in ((5.182, 0), (5.183, 1), (5.489, 1), (5.490, 2)):
        rock = (G + 1.0 + 0.8, 0.0, 1.0)
        assert one(policies.apf, velocity=(1.5, 0.0), rocks=[rock]) // 3 == wanted
        assert one(policies.apf, velocity=(0.9, 0.0), rocks=[rock]) // 3 == 2  # slow boats speed up


def test_a_potential_field_minds_robots_that_come_nearer():
    boat = (5.0, 1.0)
    assert one(policies.apf, velocity=(1.5, 0.0), boats=[(*boat, -1.0, 0.0)]) != AHEAD
    assert one(policies.apf, velocity=(1.5, 0.0), boats=[(*boat, 2.0, 0.0)]) == AHEAD  # it draws away
    assert one(policies.apf, velocity=(1.5, 0.0), rocks=[(*boat, 0.8)]) != AHEAD


def test_velocity_obstacles_pass_a_rock_on_the_nearer_side():
    assert one(policies.rvo, velocity=(1.5, 0.0), rocks=[(8.0, 1.0, 1.0)]) % 3 == 0
    assert one(policies.rvo, velocity=(1.5, 0.0), rocks=[(8.0, -1.0, 1.0)]) % 3 == 2
    assert one(policies.rvo, velocity=(1.5, 0.0), rocks=[(8.0, 7.0, 1.0)]) == AHEAD


def test_velocity_obstacles_of_robots_are_halfway_between_both_velocities():
    """Head on at 12 m the straight course lies in the cone; a robot that draws away leaves it free."""
    assert one(policies.rvo, velocity=(2.0, 0.0), boats=[(12.0, 0.3, -2.0, 0.0)]) % 3 == 0
    assert one(policies.rvo, velocity=(2.0, 0.0), boats=[(12.0, 0.3, 3.0, 0.0)]) % 3 == 1
    # One that comes on 14° aside has a cone of 22.8° to each side. Its edge is 8.8° off the course about the apex 0
    # halfway, and about the other's velocity twice that, which is nearer to a turn of 30°/s than to none.
    assert one(policies.rvo, velocity=(2.0, 0.0), boats=[(8.0, 2.0, -2.0, 0.0)]) % 3 == 1


def test_velocity_obstacles_all_round_weigh_contact_against_the_way():
    """Robots on all sides, in contact whatever is chosen: 0.2/t is the same, and straight on the nearest. With rocks of
    1 m all round, whose cones of 4.6 m cover every course, straight on at 2 m/s meets the one 4.7 m ahead in 0.05 s,
    which costs 4; hardly to move costs 2."""
    ring = [(2.5 * math.cos(a), 2.5 * math.sin(a), 0.0, 0.0) for a in 2 * math.pi * np.arange(5) / 5]
    assert one(policies.rvo, velocity=(1.5, 0.0), boats=ring) == AHEAD
    rocks = [(6 * math.cos(a), 6 * math.sin(a), 1.0) for a in 2 * math.pi * np.arange(1, 5) / 5]
    assert one(policies.rvo, velocity=(1.5, 0.0), rocks=[(4.7, 0.0, 1.0), *rocks]) // 3 == 0


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
def test_straight_brings_a_thruster_boat_to_its_goal(kind):
    p = params(action_kind=kind, robots=1, obstacles=0)
    for seed in range(5):
        env = MarineNavigation(p, seed=seed)
        seen, _ = env.reset()
        while env.agents:
            action = policies.straight(np.array([seen["robot_0"]]), p).numpy()[0]
            seen, _, terminated, _, infos = env.step({"robot_0": action})
        assert terminated["robot_0"] and infos["robot_0"]["reached"] and infos["robot_0"]["time"] < 60


@pytest.mark.parametrize("version", ["kinematic", "sonar"])
def test_straight_brings_a_kinematic_boat_to_its_goal(version):
    p = params(version, robots=1, cores=0, obstacles=0)
    env = MarineNavigation(p, seed=1)
    seen, _ = env.reset()
    while env.agents:
        seen, *_, infos = env.step({"robot_0": int(policies.straight(np.array([seen["robot_0"]]), p)[0])})
    assert infos["robot_0"]["success"]


def test_random_actions_are_those_of_the_port():
    """Number k of an environment is word k of its block at that clock."""
    words = np.stack([philox((np.array([4, 9]), block, 7, RANDOM_POLICY), 3) for block in (0, 1)])
    words = np.moveaxis(words, 2, 0).reshape(2, 8)  # [environments, numbers]
    noise = policies.Noise(3, np.array([4, 9]), 7)
    found = policies.random(np.zeros((6, 37)), params(), noise)
    assert found.shape == (6, 2) and found.dtype == torch.float32
    np.testing.assert_allclose(found.reshape(2, 6), -1 + 2 * (words[:, :6] >> 8) * 2.0**-24, atol=1e-7)
    found = policies.random(np.zeros((6, 39)), P, noise)
    assert found.tolist() == (words[:, :3].astype(np.uint64) * 9 >> 32).ravel().tolist()


def test_names_are_those_that_read_a_version():
    assert policies.names(P) == ["apf", "rvo", "straight", "random"] and policies.names(params()) == [
        "straight",
        "random",
    ]
    for name in ("apf", "rvo"):
        with pytest.raises(ValueError, match="version='thruster' must be 'kinematic', whose observations"):
            policies.acting(name, params())(np.zeros((1, 37)))
        with pytest.raises(ValueError, match=r"observation has shape \(2, 37\), must have \(..., 39\)"):
            policies.acting(name, P)(np.zeros((2, 37)))


@pytest.mark.parametrize("version", ["thruster", "kinematic", "sonar"])
def test_a_row_s_action_depends_on_no_other_and_on_no_shape(version):
    p = params(version)
    rows = np.random.default_rng(4).normal(0, 5, (2, 3, p.observed))
    for name in set(policies.names(p)) - {"random"}:
        policy = policies.acting(name, p)
        together, tensor = policy(rows), policy(torch.from_numpy(rows))
        alone = torch.stack([policy(row) for row in rows.reshape(6, -1)])
        assert together.shape[:2] == (2, 3) and (together == tensor).all()
        torch.testing.assert_close(together.reshape(alone.shape), alone)


def test_what_a_policy_cannot_read_is_refused():
    kinematic, thruster = params("kinematic"), params()
    for call, said in (
        (lambda: policies.straight(np.zeros((2, 39)), thruster), r"shape \(2, 39\), must have \(..., 37\)"),
        (lambda: policies.straight(np.zeros((2, 37)), kinematic), r"shape \(2, 37\), must have \(..., 39\)"),
        (lambda: policies.apf(0.0, kinematic), r"shape \(\), must have \(..., 39\)"),
        (lambda: policies.apf(np.zeros(39), thruster), "version='thruster' must be 'kinematic'"),
        (lambda: policies.random(np.zeros(37), thruster), "noise=None must be Noise"),
        (lambda: policies.acting("strait", thruster), "policy='strait' is unknown; did you mean 'straight'?"),
        (lambda: policies.acting("apf", "x"), "params='x' must be Params"),
        (lambda: policies.apf(np.zeros(39), "kinematic"), "params='kinematic' must be Params"),
        *(
            (
                lambda given=given: policies.apf(given, kinematic),
                "observation=.* must be an array of numbers",
            )
            for given in (None, "x", [("a",) * 39])
        ),
        (lambda: policies.Noise(-1, [0], 0), "noise: seed=-1 must be an integer from 0"),
        (lambda: policies.Noise("a", [0], 0), "noise: seed='a' must be an integer from 0"),
        (lambda: policies.Noise(0, [0], -1), "noise: clock=-1 must be an integer from 0"),
        *(
            (lambda given=given: policies.Noise(0, given, 0), r"noise: environment=.* must be integers \[B\] from 0")
            for given in ([], 3, torch.zeros(0), np.arange(4) * 1.5, [-1], [[1, 2]])
        ),
        (
            lambda: policies.random(np.zeros((4, 5, 37)), thruster, policies.Noise(0, np.arange(40), 0)),
            "has 40 numbers",
        ),
        (lambda: policies.random(np.zeros((4, 5, 37)), thruster, policies.Noise(0, np.arange(2), 0)), "has 2 numbers"),
        (lambda: policies.random(np.zeros((4, 5, 17)), thruster, policies.Noise(0, np.arange(4), 0)), r"\(4, 5, 17\)"),
    ):
        with pytest.raises(ValueError, match=said):
            call()


def test_what_is_not_known_moves_no_thruster():
    assert policies.straight(np.full(37, np.nan), params()).tolist() == [0.0, 0.0]


def successes(name, setting, episodes):
    p, found = params("kinematic", "original", max_steps=360), []
    for scenario in published(3, [setting] * episodes, p):
        env = MarineNavigation(p, scenario)
        seen, _ = env.reset()
        while env.agents:
            chosen = policies.acting(name, p)(np.array([seen[agent] for agent in env.agents]))
            seen, *_ = env.step(dict(zip(env.agents, chosen.tolist(), strict=True)))
        found.append(env.success)
    return np.mean(found)


@pytest.mark.slow
def test_a_potential_field_succeeds_as_often_as_published():
    """37 of the first fifty scenarios with three robots, four cores and four obstacles."""
    assert successes("apf", (3, 4, 4, 40.0), 50) == 0.74


@pytest.mark.parametrize(
    ("name", "setting", "share"),
    [pytest.param("rvo", (3, 4, 4, 40.0), 0.62, marks=pytest.mark.slow),
     *(pytest.param(*published, marks=pytest.mark.long) for published in (
         ("apf", (5, 6, 6, 40.0), 0.36), ("apf", (7, 8, 8, 40.0), 0.16),
         ("rvo", (5, 6, 6, 40.0), 0.18), ("rvo", (7, 8, 8, 40.0), 0.08),
     ))],
)  # fmt: skip
def test_baselines_succeed_about_as_often_as_published(name, setting, share):
    """Of 100 scenarios; three standard errors of that and of the fifty that were published."""
    error = math.sqrt(share * (1 - share) * (1 / 50 + 1 / 100))
    assert successes(name, setting, 100) == pytest.approx(share, abs=3 * error)
