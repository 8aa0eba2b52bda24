"""Scenario files: what is written is read, and what is none is refused."""

import json
import math
import re

import numpy as np
import pytest

from lockstep.envs.marine_navigation.original import get_state, make
from lockstep.envs.marine_navigation.scenario import load, published, save
from tests.envs.marine_navigation.worlds import params, scene

FIELDS = ("start", "goal", "heading", "speed", "core_centre", "clockwise", "edge_speed", "obstacle_centre", "radius")


def same(one, other):
    return one.version == other.version and one.blind == other.blind and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in FIELDS
    )  # fmt: skip


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


def test_a_file_s_first_velocity_always_has_the_current(tmp_path):
    save(tmp_path / "one.json", scene("kinematic", [(21, 20, 45, 45, 0, 1.0)], [(20, 20, True, 8.0)]))
    env = make("original", version="kinematic", scenario=tmp_path / "one.json")
    env.reset()
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


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (changed("version", "rowing"), "version='rowing' must be one of 'thruster', 'kinematic', 'sonar'"),
        (changed("version", "sonar"), "scenario 0: version='sonar' must be 'kinematic', as the parameters say"),
        (changed("robots", "goal", None), "robots.goal is missing"),
        (changed("cores", None), "cores.centre is missing"),
        (changed("robots", "start", [[5, 5], [6]]), "robots.start is ragged"),
        (changed("robots", "start", [[5, 5, 5]]), "robots.start has shape (1, 3), must have (1, ..) of 2 each"),
        (changed("robots", "goal", [[5, 5], [9, 9]]), "robots.goal has shape (2, 2), must have (1, ..) of 2 each"),
        (changed("robots", "heading", ["north"]), "robots.heading holds <U5, must hold numbers"),
        (changed("robots", "heading", [math.inf]), "scenario 0: heading[0] is inf, must be finite"),
        (changed("robots", "speed", [3.0]), "scenario 0: speed[0] is 3.0, must be from 0 to 2.0"),
        (changed("obstacles", "radius", [0]), "scenario 0: radius[0] is 0.0, must be positive"),
        (changed("obstacles", "centre", [[6, 5]]), "scenario 0: start[0] is in a collision with obstacle 0"),
        (changed("robots", "cooperative", [1, 0]), "robots.cooperative=[True, False] must be a flag per robot"),
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
    save(tmp_path / "good.npz", drawn())
    arrays = dict(np.load(tmp_path / "good.npz"))

    def written(**changed):
        left = {key: value for key, value in (arrays | changed).items() if value is not None}
        np.savez(tmp_path / "bad.npz", **left)
        return tmp_path / "bad.npz"

    table = [
        (lambda: load(tmp_path / "none.json"), "none.json cannot be read: No such file"),
        (lambda: load(tmp_path / "none.npz"), "none.npz: not an archive"),
        (lambda: load(tmp_path / "text.json"), "text.json: not JSON"),
        (lambda: load(tmp_path / "text.npz"), "text.npz: not an archive of arrays of numbers"),
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
        (lambda: make(scenario=[]), "scenario=[] must hold at least one"),
        (lambda: make(scenario=5), "scenario=5 must be a Scenario, a path of a scenario file, or a list of them"),
    ]
    for call, said in table:
        with pytest.raises(ValueError, match=re.escape(said)):
            call()
