"""Scenario files: what is written is read, and what is none is refused."""

import dataclasses
import json
import math
import re
import zipfile

import numpy as np
import pytest

from lockstep.envs.marine_navigation.scenario import Scenario, evaluation, load, pool_of, published, save
from tests.envs.marine_navigation.worlds import get_state, made, make, params, scene

FIELDS = ("start", "goal", "heading", "speed", "core_centre", "clockwise", "edge_speed", "obstacle_centre", "radius")


def same(one, other):
    single = ("version", "asked", "blind")
    return one.read and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in (*FIELDS, *single))


def drawn(version="kinematic"):
    settings = {"thruster": [(5, 8, 4, 30.0), (1, 0, 0, 30.0)], "kinematic": [(3, 4, 0, 30.0), (7, 8, 10, 40.0)]}
    return published(5, settings[version], params(version, "original"))


@pytest.mark.parametrize("version", ["thruster", "kinematic"])
def test_files_are_read_as_they_were_written(version, tmp_path):
    many = drawn(version)
    save(tmp_path / "many.npz", many)
    assert all(map(same, load(tmp_path / "many.npz"), many)) and len(load(tmp_path / "many.npz")) == 2
    save(tmp_path / "one.json", many[0])
    assert same(load(tmp_path / "one.json")[0], many[0])


def test_robots_that_found_no_place_are_counted(tmp_path):
    """Ids of shared noise are drawn of 5A, with the A asked for; texts written without it have what was placed."""
    crowded = dataclasses.replace(drawn()[0], asked=9)
    for name, many in (("one.json", [crowded]), ("many.npz", [drawn()[0], crowded])):
        save(tmp_path / name, many)
        assert [one.asked for one in load(tmp_path / name)] == [one.asked for one in many]
    text = json.loads((tmp_path / "one.json").read_text())
    assert text.pop("asked") == 9
    (tmp_path / "one.json").write_text(json.dumps(text))
    assert load(tmp_path / "one.json")[0].asked == 3
    arrays = dict(np.load(tmp_path / "many.npz"))
    del arrays["asked"]
    np.savez(tmp_path / "old.npz", **arrays)
    assert [one.asked for one in load(tmp_path / "old.npz")] == [3, 3]


def test_headings_lie_within_a_turn(tmp_path):
    (tmp_path / "one.json").write_text(json.dumps(changed("robots", "heading", [-7.0])))
    assert load(tmp_path / "one.json")[0].heading[0] == pytest.approx(4 * math.pi - 7.0, abs=1e-12)
    for given, expected in ((-1e-20, 0.0), (2 * math.pi, 0.0), (6.2, 6.2), (5e-324, 5e-324)):
        assert scene(robots=[(5, 5, 9, 9, given, 0)]).heading.tolist() == [expected]


def test_flags_of_cooperation_are_kept(tmp_path):
    blind = scene("kinematic", [(5, 5, 9, 9, 0, 0), (25, 25, 9, 9, 0, 0)], blind=1)
    for name, many in (("one.json", blind), ("many.npz", [blind, *drawn()])):
        save(tmp_path / name, many)
        assert [one.blind for one in load(tmp_path / name)] == [1, 0, 0][: len(load(tmp_path / name))]
    assert same(load(tmp_path / "many.npz")[2], drawn()[1])


def test_padding_of_an_archive_is_not_read(tmp_path):
    save(tmp_path / "many.npz", drawn())
    arrays = dict(np.load(tmp_path / "many.npz"))
    arrays["cores.centre"][0, 4:] = np.nan
    arrays["robots.start"][0, 3:] = np.inf
    np.savez(tmp_path / "padded.npz", **arrays)
    assert all(map(same, load(tmp_path / "padded.npz"), drawn()))


PUBLISHED = {
    "env": {
        "width": 55,
        "cores": {"positions": [[20.0, 20.0], [30.0, 12.0]], "clockwise": [1, 0], "Gamma": [3 * math.pi, 6 * math.pi]},
        "obstacles": {"positions": [[40.0, 20.0]], "r": [1.0]},
    },
    "robots": {"start": [[5.0, 5.0], [5.0, 30.0]], "goal": [[50.0, 5.0], [50.0, 30.0]], "init_theta": [0.5, 1.5]},
}


def as_published(**robots):
    return PUBLISHED | {"robots": PUBLISHED["robots"] | robots}


@pytest.mark.parametrize("listed", [True, False])
def test_published_files_are_read(listed, tmp_path):
    still = as_published(init_velocity_r=[[0.0, 0.0, 0.0]] * 2)
    moving = as_published(init_speed=[0.5, 1.0], cooperative=[True, False])
    (tmp_path / "still.json").write_text(json.dumps([still] if listed else still))
    (tmp_path / "moving.json").write_text(json.dumps([moving, moving] if listed else moving))
    cores, rocks = [(20, 20, 1, 3.0), (30, 12, 0, 6.0)], [(40, 20, 1.0)]
    robots = [(5, 5, 50, 5, 0.5, 0), (5, 30, 50, 30, 1.5, 0)]
    assert same(load(tmp_path / "still.json")[0], scene("thruster", robots, cores, rocks))
    robots = [(5, 5, 50, 5, 0.5, 0.5), (5, 30, 50, 30, 1.5, 1.0)]
    found = load(tmp_path / "moving.json")
    assert same(found[-1], scene("kinematic", robots, cores, rocks, blind=1)) and len(found) == 1 + listed


SONAR = {  # the first of the published evaluation
    "env": {
        "r": 0.5, "start": [5.0, 5.0], "goal": [45.0, 45.0],
        "cores": {
            "positions": [[13.64289014508875, 19.214190726517373], [22.31529942008853, 38.16694678899807],
                          [25.181922699670906, 41.44580330490804], [17.480341524573902, 9.865865868208928]],
            "clockwise": [0, 1, 0, 0],
            "Gamma": [31.00119397817679, 28.24244432828032, 26.026929333889555, 28.016252942788746],
        },
        "obstacles": {
            "positions": [[20.80634259929965, 31.602849835670376], [21.57943693458889, 35.91085993893015],
                          [18.022863448410135, 28.456733187948625], [42.49186410033174, 7.052948980747731],
                          [32.0493404126419, 14.224214875846958], [35.57464363527437, 34.534151589277045]],
            "r": [1.1397464333038938, 1.3955998251135915, 1.4493030188095941, 2.9418241123936797,
                  2.275584766017751, 1.2213233588715118],
        },
    },
    "robot": {"init_theta": 6.216914141553118, "init_speed": 0.447518602398828},
}  # fmt: skip


def test_the_sonar_s_published_evaluation_is_read_and_drawn(tmp_path):
    """Named scenarios go by their numbers; the first is the first that seed 348 draws."""
    other = SONAR | {"robot": {"init_theta": 1.0, "init_speed": 0.0}}
    (tmp_path / "all.json").write_text(json.dumps({"env_10": other, "env_2": SONAR, "env_0": SONAR}))
    (tmp_path / "one.json").write_text(json.dumps(SONAR))
    p = params("sonar", "original")
    first, second, last = load(tmp_path / "all.json")
    assert same(first, second) and same(load(tmp_path / "one.json")[0], first) and last.heading.tolist() == [1.0]
    (alone,) = published(348, [(1, 4, 6, 30.0)], p, fixed=True)
    for found in (alone, evaluation(p)[0]):
        np.testing.assert_allclose(found.edge_speed, first.edge_speed, rtol=1e-15)
        assert same(first, dataclasses.replace(found, edge_speed=first.edge_speed))


@pytest.mark.parametrize(("r", "speed"), [(0.5, 3.0), (0.25, 6.0)])
def test_circulations_are_those_of_a_published_file(r, speed, tmp_path):
    """Γ = 3π of a core is 2π r v; with another radius, or the edge speed alone, it would be another one."""
    content = PUBLISHED | {"env": PUBLISHED["env"] | {"r": r}}
    (tmp_path / "one.json").write_text(json.dumps(content))
    (found,) = load(tmp_path / "one.json")
    assert found.edge_speed[0] == pytest.approx(speed, rel=1e-15)
    for name in ("again.json", "again.npz"):
        save(tmp_path / name, found)
        env = make(scenario=tmp_path / name, core_radius=r)
        env.reset()
        assert get_state(env)["core"][:, 3] == pytest.approx([1.5, 3.0], rel=1e-15)
        with pytest.raises(ValueError, match=f"core_radius={r}, by which its circulations are .* parameters, 0.75"):
            make(scenario=tmp_path / name, core_radius=0.75)


def test_environments_play_a_file_s_scenarios_in_turn(tmp_path):
    save(tmp_path / "many.npz", drawn())
    env = make(version="kinematic", scenario=tmp_path / "many.npz", index=3)
    for number in (1, 0, 1):
        env.reset()
        assert get_state(env)["scenario"] == number and len(env.agents) == (3, 7)[number]
        assert get_state(env)["pose"][:3, :2].tolist() == drawn()[number].start[:3].tolist()
    assert len(env.possible_agents) == 7
    one = make(version="kinematic", scenario=[drawn()[0]])
    assert [one.reset()[0]["robot_0"].tolist() for _ in range(2)] == [one.reset()[0]["robot_0"].tolist()] * 2


@pytest.mark.usefixtures("form")
def test_a_file_s_first_velocity_always_has_the_current(tmp_path):
    save(tmp_path / "one.json", scene("kinematic", [(21, 20, 45, 45, 0, 1.0)], [(20, 20, True, 8.0)]))
    env = made(preset="original", version="kinematic", scenario=tmp_path / "one.json")
    assert env.params.start_without_current
    assert get_state(env)["ground_velocity"][0] == pytest.approx([1.0, -4.0], abs=1e-12)


# ---- bad input

OWN = {
    "version": "kinematic",
    "robots": {"start": [[5, 5]], "goal": [[45, 45]], "heading": [0], "speed": [1]},
    "cores": {"centre": [], "clockwise": [], "edge_speed": []},
    "obstacles": {"centre": [[20, 20]], "radius": [1]},
}


def changed(*path_and_value):
    *path, last, value = path_and_value
    text = json.loads(json.dumps(OWN))
    inner = text
    for key in path:
        inner = inner[key]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return text


def nested() -> list:
    """Lists in lists, as deep as JSON is read."""
    return json.loads("[" * 900 + "]" * 900)


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (changed("version", "rowing"), "version='rowing' must be one of 'thruster', 'kinematic', 'sonar'"),
        (changed("version", "sonar"), "scenario 0: version='sonar' must be 'kinematic', as the parameters say"),
        (changed("robots", "goal", None), "robots.goal is missing"),
        (changed("cores", None), "cores.centre is missing"),
        (changed("robots", "start", [[5, 5], [6]]), "robots.start is ragged"),
        (changed("robots", "start", [[5, 5, 5]]), "robots.start has shape (1, 3), must have (1, 2)"),
        (changed("robots", "goal", [[5, 5], [9, 9]]), "robots.goal has shape (2, 2), must have (1, 2)"),
        (changed("robots", "heading", ["north"]), "robots.heading holds <U5, must hold numbers"),
        (changed("robots", "heading", [math.inf]), "scenario 0: heading[0] is inf, must be finite"),
        (changed("robots", "speed", [3.0]), "scenario 0: speed[0] is 3.0, must be from 0 to 2.0"),
        (changed("obstacles", "radius", [0]), "scenario 0: radius[0] is 0.0, must be positive"),
        (changed("obstacles", "centre", [[6, 5]]), "scenario 0: start[0] is in a collision with obstacle 0"),
        (changed("robots", "cooperative", [1, 0]), "robots.cooperative=[1, 0] must be a flag per robot"),
        (changed("robots", "cooperative", [2]), "robots.cooperative=[2] must be a flag per robot"),
        (changed("robots", "heading", [True]), "robots.heading holds bool, must hold numbers"),
        (changed("robots", "start", [[5, True]]), "robots.start holds true or false, must hold numbers"),
        (changed("robots", "start", [[2e6, 5]]), "scenario 0: start[0, 0] is 2000000.0, must be at most 1e+06"),
        (changed("robots", {"start": [], "goal": [], "heading": [], "speed": []}), "robots.start holds no robot"),
        (changed("robots", "headings", [0]), "robots.headings is unknown; did you mean 'robots.heading'?"),
        (changed("obstacle", {"centre": []}), "obstacle.centre is unknown; did you mean 'obstacles.centre'?"),
        (changed("askd", 3), "askd is unknown; did you mean 'asked'?"),
        (changed("asked", 0), "asked=0 must be an integer from 1 to 32"),
        (changed("asked", 1.5), "asked=1.5 must be an integer from 1 to 32"),
        (changed("core_radius", -1), "core_radius=-1 must be a number from 0 to 1e+06"),
        (changed("version", nested()), "one.json: version=<class 'list'> must be one of 'thruster'"),
        (changed("asked", nested()), "one.json: asked=<class 'list'> must be an integer from 1 to 32"),
        (changed("robots", "start", nested()), "one.json: robots.start is ragged"),
        (changed("robots", "start", 3), "robots.start has shape (), must have (n, 2)"),
        (changed("robots", "start", [[5, 5]] * 40), "robots.start has 40 rows, must have at most 32"),
        (PUBLISHED | {"env": PUBLISHED["env"] | {"r": 10**400}}, "env.r=1000"),
        (PUBLISHED | {"env": PUBLISHED["env"] | {"r": 1e-320}}, "env.r=1e-320 must be a positive number from 1e-06"),
        (
            PUBLISHED | {"env": PUBLISHED["env"] | {"cores": PUBLISHED["env"]["cores"] | {"Gamma": [1, -20]}}},
            "env.cores.Gamma[1] is -20, must be positive and finite",
        ),
        ({"env_0": SONAR, "env_1": {"robot": {}}}, "one.json: env_1: robots.start is missing"),
        ({"env_0": SONAR | {"env": {}}}, "one.json: env_0: env.start is missing"),
        (PUBLISHED | {"env": PUBLISHED["env"] | {"r": "half"}}, "env.r='half' must be a positive number"),
        ([], "holds no scenario, must hold at least one"),
        ([OWN, 7], "[1]: is int, must be an object"),
        (as_published(init_velocity_r=[[0, 0, 0], [0, 0.1, 0]]), "robots.init_velocity_r must be 0, since boats start"),
        (as_published(init_left_thrust=[0, 5]), "robots.init_left_thrust must be 0, since boats start at rest"),
        (as_published(init_speed=[1, 1], cooperative=[False, True]), "robots.cooperative=[False, True] must be a flag"),
        (PUBLISHED | {"robots": {}}, "robots.start is missing"),
        (PUBLISHED | {"env": {"cores": PUBLISHED["env"]["cores"]}}, "env.obstacles.positions is missing"),
    ],
)
def test_a_text_that_holds_no_scenario_is_refused(content, said, tmp_path):
    (tmp_path / "one.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=re.escape(said)):
        make(version="kinematic", scenario=tmp_path / "one.json")


def test_cores_have_flags(tmp_path):
    text = changed("cores", {"centre": [[30, 30]], "clockwise": [2], "edge_speed": [3]})
    (tmp_path / "one.json").write_text(json.dumps(text))
    with pytest.raises(ValueError, match=r"cores.clockwise holds \[2\], must hold flags"):
        load(tmp_path / "one.json")


def test_a_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "text.json").write_text("{")
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "deep.json").write_text("[" * 10**5)
    with open(tmp_path / "array.npz", "wb") as file:
        np.save(file, np.zeros(3))
    (tmp_path / "empty.npz").touch()
    with zipfile.ZipFile(tmp_path / "members.npz", "w") as archive:
        archive.writestr("version", "kinematic")
    with zipfile.ZipFile(tmp_path / "broken.npz", "w") as archive:
        archive.writestr("version.npy", b"\x93NUMPY\x01\x00" + bytes(20))
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    save(tmp_path / "good.npz", drawn())
    arrays = dict(np.load(tmp_path / "good.npz"))

    def written(**changed):
        left = {key: value for key, value in (arrays | changed).items() if value is not None}
        np.savez(tmp_path / "bad.npz", **left)
        return tmp_path / "bad.npz"

    table = [
        (lambda: load(tmp_path / "none.json"), "none.json cannot be read: No such file"),
        (lambda: load(tmp_path / "none.npz"), "none.npz cannot be read: No such file"),
        (lambda: load(tmp_path / "text.json"), "text.json: not JSON"),
        (lambda: load(tmp_path / "text.npz"), "text.npz is not an archive of arrays of numbers"),
        (lambda: load(tmp_path / "one.yaml"), "one.yaml: the suffix must be .json or .npz"),
        (lambda: load(written(n_cores=None)), "bad.npz: n_cores is missing"),
        (lambda: load(written(n_cores=np.array([4.0, 8.0]))), "n_robots, n_cores and n_obstacles must be integers [N]"),
        (lambda: load(written(n_cores=np.array([4]))), "n_robots, n_cores and n_obstacles must be integers [N] of one"),
        (lambda: load(written(n_cores=np.array([4, 9]))), "cores.centre has shape (2, 8, 2), must have (2, at least 9"),
        (lambda: load(written(**{"robots.goal": np.zeros((1, 7, 2))})), "robots.goal has shape (1, 7, 2), must have"),
        (lambda: load(written(**{"robots.goal": np.zeros((2, 7, 3))})), "bad.npz[0]: robots.goal has shape (3, 3)"),
        (lambda: save(tmp_path / "one.txt", drawn()), "one.txt: the suffix must be .json or .npz"),
        (lambda: save(tmp_path / "one.json", drawn()), "one.json: JSON holds one scenario, not 2; save as .npz"),
        (lambda: save(tmp_path / "one.npz", []), "one.npz: scenarios must be of one version, not none"),
        (
            lambda: save(tmp_path / "one.npz", drawn() + drawn("thruster")),
            "one.npz: scenarios must be of one version, not kinematic, thruster",
        ),
        (lambda: load(None), "path=None must be that of a scenario file, .json or .npz"),
        (lambda: load(5), "path=5 must be that of a scenario file"),
        (lambda: load(tmp_path / "array.npz"), "array.npz is not an archive of arrays of numbers"),
        (lambda: load(tmp_path / "empty.npz"), "empty.npz is not an archive of arrays of numbers"),
        (
            lambda: load(tmp_path / "members.npz"),
            "members.npz is not an archive of arrays of numbers: version is no array",
        ),
        (lambda: load(tmp_path / "broken.npz"), "broken.npz is not an archive of arrays of numbers"),
        (lambda: load(tmp_path / "deep.json"), "deep.json: not JSON"),
        (lambda: load(written(**{"robots.cooperativ": np.ones((2, 7))})), "did you mean 'robots.cooperative'?"),
        (lambda: load(written(asked=np.array([3]))), "bad.npz: asked has shape (1,), must have (2,)"),
        (lambda: load(written(asked=np.array([2, 7]))), "bad.npz[0]: asked=2 must be an integer from 3 to 32"),
        (lambda: save(tmp_path / "no" / "one.npz", drawn()), "one.npz cannot be written: No such file or directory"),
        (lambda: save(tmp_path / "no" / "one.json", drawn()[0]), "one.json cannot be written: No such file"),
        (lambda: save(tmp_path / "one.npz", 5), "one.npz: scenarios=5 must be a Scenario or a list of them"),
        (lambda: save(tmp_path / "one.npz", [1, 2]), "one.npz: scenarios[0]=1 must be a Scenario"),
        (lambda: save(None, drawn()), "path=None must be that of a scenario file"),
        (lambda: load(written(n_robots=np.array([-1, 7]))), "bad.npz: n_robots[0]=-1 must be an integer from 1 to 32"),
        (lambda: load(written(n_robots=np.array([2**63, 7], np.uint64))), "n_robots[0]=-9223372036854775808 must be"),
        (lambda: load(written(colour=np.zeros(2))), "bad.npz: colour is unknown"),
        (lambda: load(tmp_path / "zero.json"), "zero.json cannot be read: no regular file"),
        (lambda: load(tmp_path), "the suffix must be .json or .npz"),
        (lambda: load("a\0b.json"), "path='a\\x00b.json' must be that of a scenario file"),
        (lambda: save(tmp_path / "one.npz", scene(robots=[])), "scenarios[0] has no robot, must have at least one"),
        (lambda: make(scenario=[]), "scenario=[] must hold at least one"),
        (lambda: make(scenario=5), "scenario=5 must be a Scenario, a path of a scenario file, or a list of them"),
    ]
    for call, said in table:
        with pytest.raises(ValueError, match=re.escape(said)):
            call()
    assert all(map(same, load(written(n_robots=np.array([3, 7], np.uint64))), drawn()))
    save(tmp_path / "narrow.json", dataclasses.replace(drawn()[0], core_radius=np.float32(0.5), blind=np.int64(0)))
    assert load(tmp_path / "narrow.json")[0].core_radius == 0.5
    with pytest.raises(ValueError, match=r"text\.npz is not an archive of arrays of numbers: File is not a zip file$"):
        load(tmp_path / "text.npz")


@pytest.mark.usefixtures("form")
def test_the_file_of_a_scenario_that_does_not_fit_is_named(tmp_path):
    save(tmp_path / "good.npz", drawn())
    save(tmp_path / "bad.npz", [drawn()[0], scene("kinematic", cores=[(20, 20, True, 1e7)])])
    with pytest.raises(ValueError, match=r"bad\.npz: scenario 1: edge_speed\[0\] is 10000000.0, must be at most"):
        make(version="kinematic", scenario=[tmp_path / "good.npz", tmp_path / "bad.npz"])


def test_a_scenario_that_is_handed_over_often_is_checked_once(monkeypatch):
    checks, check = [], Scenario.check
    monkeypatch.setattr(Scenario, "check", lambda self, *given: checks.append(given[1]) or check(self, *given))
    assert len(pool_of([scene()] * 2 + [scene()] * 3, params())) == 5
    assert checks == ["scenario 0", "scenario 2"]
