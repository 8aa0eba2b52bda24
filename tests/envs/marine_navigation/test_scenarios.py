"""Drawn scenarios against the rules, written a second time; and the published draws against a plain script."""

import itertools
import math
import re

import numpy as np
import pytest

from lockstep.envs.marine_navigation.params import Setting
from lockstep.envs.marine_navigation.scenario import (
    Scenario,
    drawing,
    evaluation,
    noise_ids,
    philox_scenario,
    published,
)
from lockstep.envs.marine_navigation.scenario.published import Published
from lockstep.envs.noise import philox
from tests.envs.marine_navigation.worlds import params, scene

SETTINGS = {
    "thruster": [(5, 0, 4, 40.0), (6, 8, 8, 30.0), (3, 12, 0, 0.0)],
    "kinematic": [(5, 6, 6, 40.0), (7, 8, 10, 40.0), (2, 12, 0, 0.0)],
    "sonar": [(1, 8, 10, 40.0), (1, 4, 6, 30.0)],
}


def far(one, other):
    return float(np.linalg.norm(np.asarray(one) - np.asarray(other)))


def violations(s, p, setting):
    """Rules of README.md, 4.1, that a scenario breaks by more than rounding."""
    found, W, tiny = [], p.width, 1e-9
    ends = [*s.start, *s.goal]
    found += [("range", end) for end in ends if min(end) < 2 or max(end) > W - 2]
    found += [("heading", a) for a in s.heading if not 0 <= a < 2 * math.pi]
    found += [("speed", v) for v in s.speed if not 0 <= v <= (0 if p.version == "thruster" else 2)]
    if p.version != "sonar":
        found += [("goal", i) for i, (a, b) in enumerate(zip(s.start, s.goal, strict=True))
                  if far(a, b) < setting.min_goal_distance]  # fmt: skip
    for group in (s.start, s.goal):
        found += [("clear", pair) for pair in itertools.combinations(group.tolist(), 2) if far(*pair) <= p.clear]
    low, high = (3, 3) if p.version == "thruster" else (5, 10)
    found += [("edge speed", v) for v in s.edge_speed if not low <= v <= high]
    cores = list(zip(s.core_centre, s.clockwise, s.edge_speed, strict=True))
    for c, *_ in cores:
        found += [("core in map", c)] * int(min(c) < 0.5 or max(c) > W - 0.5)
        found += [("core clear", c) for end in ends if far(c, end) < 0.5 + p.clear - tiny]
    for (c, flag, v), (c2, flag2, v2) in itertools.combinations(cores, 2):
        d, gammas = far(c, c2), sorted(2 * math.pi * 0.5 * speed for speed in (v, v2))
        if flag == flag2:
            right = d >= sum(gammas) / (2 * math.pi) - tiny
        elif d < 1.0:
            right = p.opposite_cores_overlap
        else:
            right = gammas[1] / (2 * math.pi * (d - 1.0)) <= 0.8 * gammas[0] / (2 * math.pi * 0.5) + tiny
        found += [("cores", d)] * int(not right)
    low, high = (1, 3) if p.version == "sonar" else (1, 1)
    for o, r in zip(s.obstacle_centre, s.radius, strict=True):
        found += [("obstacle", o)] * int(not low <= r <= high or min(o) < 5 or max(o) > W - 5)
        found += [("obstacle clear", o) for end in ends if far(o, end) < r + p.clear - tiny]
        found += [("obstacle at core", o) for c, *_ in cores if far(o, c) <= 0.5 + r]
    rocks = list(zip(s.obstacle_centre, s.radius, strict=True))
    found += [("obstacles", o) for (o, r), (o2, r2) in itertools.combinations(rocks, 2) if far(o, o2) <= r + r2]
    return found


def check_many(version, preset, episodes):
    p, placed = params(version, preset), []
    for episode in range(episodes):
        setting = Setting(*SETTINGS[version][episode % len(SETTINGS[version])])
        s = philox_scenario(p, setting, 11, 4, episode)
        assert violations(s, p, setting) == []
        assert all(count <= asked for count, asked in zip(s.counts, setting[:3], strict=True)) and s.counts[0] >= 1
        assert s.asked == setting.robots
        placed.append(s.counts == setting[:3])
    assert np.mean(placed) > 0.5


@pytest.mark.parametrize("preset", ["corrected", "original"])
@pytest.mark.parametrize("version", list(SETTINGS))
def test_drawn_scenarios_keep_the_rules(version, preset):
    check_many(version, preset, 60)


@pytest.mark.long
@pytest.mark.parametrize("version", list(SETTINGS))
def test_ten_thousand_scenarios_keep_the_rules(version):
    check_many(version, "corrected", 10_000)


@pytest.mark.parametrize(
    ("version", "expected"), [("thruster", (0.396, 0.271, 0.165)), ("kinematic", (0.313, 0.188, 0.092))]
)
def test_starts_and_goals_are_as_often_far_apart_as_uniform_points(version, expected):
    """Of 100,000 proposals; four standard errors, and half of the last digit stated."""
    p, apart = params(version), []
    for episode in range(200):
        proposals = drawing.Philox(p, 0, 0, episode)
        rows = np.array([proposals.robot(n) for n in range(500)])
        apart.append(np.hypot(rows[:, 2] - rows[:, 0], rows[:, 3] - rows[:, 1]))
    apart = np.concatenate(apart)
    for least, share in zip((30, 35, 40), expected, strict=True):
        assert (apart >= least).mean() == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 1e5) + 5e-4)


def test_proposals_are_philox_words_taken_in_turn():
    """The first robot of a thruster scenario by the words themselves."""
    p, key = params(), (7, 2, 5)
    for n in range(500):
        words = philox((2, 5, n, 0), 7) >> 8
        start, goal = 2 + 51 * (words[:2] * 2.0**-24), 2 + 51 * (words[2:] * 2.0**-24)
        if far(start, goal) >= 40:
            break
    s = philox_scenario(p, p.setting, *key)
    assert s.start[0].tolist() == start.tolist() and s.goal[0].tolist() == goal.tolist()
    assert s.heading[0] == 2 * math.pi * ((philox((2, 5, 0, 1), 7)[0] >> 8) * 2.0**-24)
    kinematic = params("kinematic")
    s = philox_scenario(kinematic, kinematic.setting, *key)
    assert s.speed[1] == 2 * ((philox((2, 5, 1, 1), 7)[1] >> 8) * 2.0**-24)
    words = philox((2, 5, np.arange(500), 3), 7).T >> 8
    places = [(5 + 40 * (row[:2] * 2.0**-24)).tolist() for row in words]
    assert [one in places for one in s.obstacle_centre.tolist()] == [True] * s.counts[2]
    words = philox((2, 5, np.arange(500), 2), 7).T
    found = {tuple(50 * ((row[:2] >> 8) * 2.0**-24)): (row[2] >> 31 == 1, 5 + 5 * (row[3] >> 8) * 2.0**-24)
             for row in words}  # fmt: skip
    for centre, flag, speed in zip(s.core_centre, s.clockwise, s.edge_speed, strict=True):
        assert found[tuple(centre)] == (flag, speed)


def test_noise_ids_are_drawn_from_five_times_the_robots_asked_for():
    ids = np.concatenate([noise_ids(3, 2, 0, 0, episode) for episode in range(400)])
    assert set(ids.tolist()) == set(range(15))
    assert noise_ids(3, 2, 0, 0, 9)[1] == int((int(philox((0, 9, 1, 1), 0)[2]) >> 8) * 15) >> 24


class Given:
    """Proposals by hand, the last one again and again."""

    def __init__(self, robots=(), cores=(), obstacles=()):
        self.rows = {"robot": robots, "core": cores, "obstacle": obstacles}

    def __getattr__(self, name):
        rows = self.rows[name]
        return lambda n: rows[min(n, len(rows) - 1)]

    def motion(self, i):
        return 0.1 * i, 0.0


def test_a_stage_that_finds_no_place_ends_with_fewer():
    p = params()
    here, there = (10.0, 10.0, 50.0, 50.0), (10.0, 15.0, 20.0, 50.0)  # 5 m from the first start; too near its goal
    s = drawing.draw(p, Setting(3, 2, 2, 40.0), Given([there, here], [(30.0, 30.0, True, 3.0)], [(30.0, 20.0, 1.0)]))
    assert s.counts == (1, 1, 1) and s.asked == 3


@pytest.mark.parametrize(("d", "overlap", "accepted"), [
    (0.5, False, False), (0.5, True, True), (1.0, True, False), (1.624, True, False), (1.626, False, True),
])  # fmt: skip
def test_opposite_cores_overlap_on_request(d, overlap, accepted):
    p = params(opposite_cores_overlap=overlap)
    assert drawing.apart(p, 20.0, 20.0, True, 1.5, (20.0 + d, 20.0, False, 3.0)) == accepted


@pytest.mark.parametrize(("d", "accepted"), [(2.999, False), (3.001, True)])
def test_cores_that_turn_alike_stand_three_metres_apart(d, accepted):
    assert drawing.apart(params(), 20.0, 20.0, True, 1.5, (20.0 + d, 20.0, True, 3.0)) == accepted


def test_a_sonars_start_and_goal_are_the_farthest_pair_so_far():
    near, farther, far_enough = (5.0, 5.0, 10.0, 5.0), (5.0, 5.0, 30.0, 5.0), (5.0, 5.0, 46.0, 5.0)
    assert drawing.farthest(40.0, Given([near, farther, near, far_enough, near])) == far_enough
    assert drawing.farthest(40.0, Given([near, farther, near])) == farther


# ---- the published draws


def script(version, seed, episodes):
    """The published drawing in the order of README.md, 4.3, number by number; lists of starts, cores, obstacles."""
    random, W = np.random.RandomState(seed), 55.0 if version == "thruster" else 50.0
    clear, low, high = {"thruster": (10, 3, 3), "kinematic": (5, 5, 10), "sonar": (10, 5, 10)}[version]
    if version == "thruster":
        [random.randint(0, 30) for _ in range(6)]
    out = []
    for A, C, rocks_asked, D in episodes:
        best, robots, heading, speed, cores, rocks = None, [], [], [], [], []
        for n in range(500):
            if len(robots) == A:
                break
            a = [random.uniform(2, W - 2), random.uniform(2, W - 2)]
            b = [random.uniform(2, W - 2), random.uniform(2, W - 2)]
            if version == "sonar":
                best = (a, b) if best is None or far(a, b) > far(*best) else best
                if far(*best) > D or n == 499:
                    robots.append(best)
                continue
            if far(a, b) >= D and all(far(a, s) > clear and far(b, g) > clear for s, g in robots):
                if version == "thruster":
                    random.randint(0, 5 * A)
                heading.append(random.uniform(0, 2 * np.pi))
                speed.append(random.uniform(0, 2) if version == "kinematic" else 0.0)
                robots.append((a, b))
        ends = [end for pair in robots for end in pair]
        for _ in range(500):
            if len(cores) == C:
                break
            c, flag = [random.uniform(0, W), random.uniform(0, W)], random.binomial(1, 0.5)
            v = random.uniform(low, high)
            right = min(c) >= 0.5 and max(c) <= W - 0.5 and all(far(c, end) >= 0.5 + clear for end in ends)
            for c2, flag2, v2 in cores:
                d, small, big = far(c, c2), 0.5 * min(v, v2), 0.5 * max(v, v2)
                right &= d >= small + big if flag == flag2 else d < 1 or (d > 1 and big / (d - 1) <= 1.6 * small)
            if right:
                cores.append((c, flag, v))
        for _ in range(500):
            if len(rocks) == rocks_asked:
                break
            o = [random.uniform(5, W - 5), random.uniform(5, W - 5)]
            r = random.uniform(1, 3 if version == "sonar" else 1)
            right = all(far(o, end) >= r + clear for end in ends) and all(far(o, c) > 0.5 + r for c, *_ in cores)
            if right and all(far(o, o2) > r + r2 for o2, r2 in rocks):
                rocks.append((o, r))
        if version == "sonar":
            heading, speed = [random.uniform(0, 2 * np.pi)], [random.uniform(0, 2)]
        out.append((robots, heading, speed, cores, rocks))
    return out


@pytest.mark.parametrize("version", list(SETTINGS))
def test_published_draws_are_those_of_a_plain_script(version):
    settings = SETTINGS[version][:2] * 10
    found = published(253, settings, params(version, "original"))
    for s, (robots, heading, speed, cores, rocks) in zip(found, script(version, 253, settings), strict=True):
        assert list(zip(s.start.tolist(), s.goal.tolist(), strict=True)) == [tuple(pair) for pair in robots]
        assert (s.heading.tolist(), s.speed.tolist()) == (heading, speed)
        assert s.core_centre.tolist() == [c for c, *_ in cores] and s.edge_speed.tolist() == [v for *_, v in cores]
        assert s.clockwise.tolist() == [bool(flag) for _, flag, _ in cores]
        assert s.obstacle_centre.tolist() == [o for o, _ in rocks] and s.radius.tolist() == [r for _, r in rocks]


class Counted(Published):
    """Published proposals, counted."""

    def __init__(self, p, seed):
        super().__init__(p, seed)
        self.counts = dict.fromkeys(("robot", "core", "obstacle"), 0)

    def robot(self, n):
        self.counts["robot"] += 1
        return super().robot(n)

    def core(self, n):
        self.counts["core"] += 1
        return super().core(n)

    def obstacle(self, n):
        self.counts["obstacle"] += 1
        return super().obstacle(n)


@pytest.mark.parametrize("episodes", [300, pytest.param(16_000, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("setting", "means", "errors"),
    [
        ((5, 0, 4, 40.0), (52.1, 0.0, 12.83), (0.2, 0.0, 0.05)),
        ((6, 8, 8, 30.0), (28.7, 41.6, 74.3), (0.1, 0.14, 0.5)),
    ],
)
def test_published_draws_take_so_many_proposals(setting, means, errors, episodes):
    """Stated means of 16,000 episodes with their standard errors; three of these of the difference."""
    p = params("thruster", "original")
    source = Counted(p, 1)
    source.asked = setting[0]
    for _ in range(episodes):
        drawing.draw(p, Setting(*setting), source)
    for count, mean, error in zip(source.counts.values(), means, errors, strict=True):
        assert count / episodes == pytest.approx(mean, abs=3 * error * math.sqrt(1 + 16_000 / episodes))


@pytest.mark.parametrize(("version", "count"), [("thruster", 60), ("kinematic", 60), ("sonar", 30)])
def test_evaluation_sets_have_ten_scenarios_of_each_stage(version, count):
    found = evaluation(params(version, "original"))
    sizes = [s.counts for s in found]
    assert len(found) == count and found[0].version == version
    stages = {
        "thruster": [(3, 0, 0), (4, 0, 0), (5, 0, 0), (5, 0, 2), (5, 0, 3), (5, 0, 4)],
        "kinematic": [(3, 4, 0), (5, 6, 0), (7, 8, 0), (3, 4, 6), (5, 6, 8), (7, 8, 10)],
        "sonar": [(1, 4, 6), (1, 6, 8), (1, 8, 10)],
    }[version]
    assert [max(sizes[10 * k : 10 * k + 10]) for k in range(count // 10)] == stages
    if version == "sonar":
        assert all(s.start.tolist() == [[5, 5]] and s.goal.tolist() == [[45, 45]] for s in found)


# ---- bad input


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": "kinematic"}, "scenario: version='kinematic' must be 'thruster', as the parameters say"),
        ({"version": "boat"}, "scenario: version='boat' must be one of 'thruster', 'kinematic', 'sonar'"),
        ({"robots": ()}, "scenario: robots=0 must be from 1 to 32"),
        ({"robots": [(float(i), 0, 1, 1, 0, 0) for i in range(33)]}, "scenario: robots=33 must be from 1 to 32"),
        ({"obstacles": [(40, float(i), 1) for i in range(33)]}, "scenario: obstacles=33 must be from 0 to 32"),
        ({"cores": [(40, float(i), 1, 1) for i in range(65)]}, "scenario: cores=65 must be from 0 to 64"),
        ({"cores": [(1, math.nan, 1, 1)]}, "scenario: core_centre[0, 1] is nan, must be finite"),
        ({"cores": [(1, 1, 1, 1e300)]}, "scenario: edge_speed[0] is 1e+300, must be at most 1e+06"),
        ({"cores": [(1, 1, 1, 0.0)]}, "scenario: edge_speed[0] is 0.0, must be positive"),
        ({"obstacles": [(40, 40, -1.0)]}, "scenario: radius[0] is -1.0, must be positive"),
        ({"robots": [(5, 5, 9, 9, 0, 1.0)]}, "speed[0] is 1.0, must be 0, since thruster boats start at rest"),
        ({"blind": 1}, "scenario: blind=1 must be 0 where version='thruster'"),
        ({"obstacles": [(8, 5, 1.0)]}, "start[0] is in a collision with obstacle 0, must be over 3.79508 m away"),
        ({"robots": [(5, 5, 9, 9, 0, 0), (9, 5, 9, 9, 0, 0)]}, "start[1] is in a collision with robot 0, must be over"),
    ],
)  # fmt: skip
def test_a_scenario_that_cannot_be_played_is_refused(changed, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        scene(**changed).check(params())


def test_a_list_of_published_settings_names_the_one_that_is_none():
    with pytest.raises(ValueError, match=r"settings\[1\]: robots=33 must be at most 32"):
        published(1, [(5, 0, 4, 40.0), (33, 0, 0, 40.0)])
    with pytest.raises(ValueError, match="seed=-1 must be an integer from 0 to 4294967295"):
        published(-1, [])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: published(1, [(3, 0, 0)]), "settings[0]: (3, 0, 0) must be four numbers (A, C, O, D_min)"),
        (lambda: published(1, [5]), "settings[0]: 5 must be four numbers (A, C, O, D_min)"),
        (lambda: published(1, 5), "settings=5 must be a list of (A, C, O, D_min)"),
        (lambda: published(1, [], {"robots": 3}), "params={'robots': 3} must be Params, as make_params makes them"),
        (lambda: published(1, [], fixed=True), "fixed=True must be False where version='thruster'"),
        (lambda: published(1, [], params("kinematic"), True), "fixed=True must be False where version='kinematic'"),
        (
            lambda: published(1, [], params("sonar", width=44.0, min_goal_distance=9.0), True),
            "width=44.0 is too small for",
        ),
        (lambda: evaluation(None), "params=None must be Params, as make_params makes them"),
        (lambda: scene(asked=1.5), "scenario: asked=1.5 must be an integer from 0 to 32"),
        (lambda: scene(asked=33), "scenario: asked=33 must be an integer from 0 to 32"),
        (lambda: scene(blind=None), "scenario: blind=None must be an integer from 0 to 32"),
        (lambda: scene(read=1), "scenario: read=1 must be one of True, False"),
        *(
            (lambda r=r: scene(core_radius=r), f"scenario: core_radius={r!r} must be a number from 0 to 1e+06")
            for r in (math.nan, "x", -1, True)
        ),
        (lambda: scene(3), "scenario: version=3 must be one of 'thruster', 'kinematic', 'sonar'"),
        (lambda: parts(start=[[1, 2], [3, 4]], goal=[[1, 2]]), "scenario: goal has 1 rows, must have 2"),
        (lambda: scene("kinematic").check("kinematic"), "params='kinematic' must be Params"),
        (lambda: parts(start=[[1, 2, 3], [4, 5, 6]]), "scenario: start has shape (2, 3), must have (n, 2)"),
        (lambda: parts(heading=[[1.0, 2.0]]), "scenario: heading has shape (1, 2), must have (n,)"),
        (lambda: parts(speed=1.0), "scenario: speed has shape (), must have (n,)"),
        (lambda: parts(goal=[[1, 2], [3]]), "scenario: goal is ragged"),
        (lambda: parts(radius=["a"]), "scenario: radius holds <U1, must hold numbers"),
        (lambda: parts(clockwise=[-1, 1]), "scenario: clockwise=[-1, 1] must hold flags"),
    ],
)
def test_what_makes_no_scenario_is_refused(call, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        call()


def parts(**arrays):
    """A scenario of nothing but these."""
    names = ("start", "goal", "heading", "speed", "core_centre", "clockwise", "edge_speed", "obstacle_centre", "radius")
    return Scenario("thruster", **dict.fromkeys(names, ()) | arrays)
