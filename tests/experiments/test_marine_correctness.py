"""The comparison of marine navigation: it passes where port and original are the same, and names what is not."""

import numpy as np
import pytest
import torch

from lockstep import envs
from lockstep.agents.run import evaluation
from lockstep.envs.marine_navigation.original import colregs, episode
from lockstep.envs.marine_navigation.params import make_params
from lockstep.envs.marine_navigation.scenario import published
from lockstep.experiments import config, correctness, originals, verdicts
from lockstep.experiments.marine_navigation.correctness import STAGES, Voyage, Voyages, crowded, walks

NAME = "marine_navigation"
EVERY = {"reached", "hit obstacle", "the limit", "a goal and a hit together", "a goal or a hit at the limit"}
AMONG_ROBOTS = {"hit robot", "inside a core", "outside all cores", "a robot in range that has ended"}
BRANCHES = {
    "thruster": EVERY | AMONG_ROBOTS | {
        "head-on", "crossing", "a turn that is asked for", "more than five neighbours",
        "a thrust clipped at its lowest", "a thrust clipped at its highest",
    },
    "kinematic": EVERY | AMONG_ROBOTS | {"more than five obstacles", "more than five robots"},
    "sonar": EVERY | {"inside a core", "outside all cores", "a beam that hits", "a beam that hits one behind another"},
}  # fmt: skip


@pytest.fixture(scope="module")
def few():
    """Settings with few states and episodes, which the original plays in this process."""

    def at_once(task, *cases, **same):
        found = task(*cases, **same)
        return lambda: found

    plain = config.load(NAME, "full").plain()
    plain["correctness"] |= {"states": 256, "episodes": 24}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(originals, "on_all_cores", at_once)
        yield config.Settings(plain)


@pytest.fixture(scope="module")
def of(few):
    made = {one.label: one for one in walks(NAME, few)}
    return made.__getitem__


def rows_of(walk: Voyages, *words: str) -> list[dict]:
    found = correctness.comparisons([walk], ["cpu"])
    return [row for label, one in found.items() if all(word in label for word in words) for row in one.rows()]


def failed(rows) -> set[str]:
    return {row["quantity"].split(" (")[0] for row in rows if row["passed"] is False}


@pytest.mark.parametrize(
    "label",
    ["thruster continuous, original", "kinematic, original", "sonar, original",
     *(pytest.param(label, marks=pytest.mark.long) for label in (
         "thruster continuous, corrected", "thruster discrete, original", "thruster discrete, corrected",
         "kinematic, corrected", "sonar, corrected"))],
)  # fmt: skip
def test_every_comparison_that_needs_no_gpu_passes(of, label):
    rows = rows_of(of(label))
    assert {row["level"] for row in rows} == {"transition", "episode", "drift", "distribution"}
    assert {row["pair"] for row in rows} == {"original-port", "arrays-port"}
    assert all(set(row) == set(verdicts.COLUMNS) - {"environment"} for row in rows)
    assert [row for row in rows if row["passed"] is False] == []
    near = [row for row in rows if "threshold" in row["quantity"]]
    assert {row["cases"] for row in near} == {256} and max(row["differing"] for row in near) < 26


@pytest.mark.parametrize(("scale", "presets", "least"), [("quick", 1, 10_000), ("full", 2, 100_000)])
def test_every_boat_is_compared_in_enough_states(scale, presets, least):
    settings = config.load(NAME, scale)
    if scale == "quick":
        settings = config.Settings(settings.plain() | {"correctness": correctness.fewer(settings.correctness.plain())})
    found = walks(NAME, settings)
    kinds = {(one.params.version, one.params.action_kind) for one in found}
    assert len(kinds) == 4 and len(found) == 4 * presets and {one.preset for one in found} == {"corrected", "original"}
    assert sum(len(one.index) for one in found) >= least
    assert settings.correctness.tolerances.plain() == {"float32": {"default": 1e-4}, "float64": {"default": 1e-9}}


@pytest.mark.parametrize("label", ["thruster continuous, original", "kinematic, corrected", "sonar, corrected"])
def test_the_states_reach_every_branch(of, label):
    walk = of(label)
    n, counts = walk.reached()
    assert n == 256 and min(counts.values()) > 0, counts
    stages = {f"resets with all {stage}" for stage in STAGES}
    assert counts.keys() >= stages | {f"steps with {branch}" for branch in BRANCHES[walk.params.version]}
    sonar = walk.params.version == "sonar"
    ends = {f"resets that find no place for all {stage}" for stage in STAGES[sonar:]}
    assert counts.keys() >= ends | ({"resets that find no goal far enough"} if sonar else set())


def test_a_boat_or_preset_that_is_not_there_is_named(few):
    plain = few.plain()
    for presets, boats, said in (
        ({"sonar": ["orginal"]}, {}, "presets.sonar: unknown preset 'orginal'; did you mean 'original'"),
        ({"sonic": ["original"]}, {}, "presets: unknown boat 'sonic'; did you mean 'sonar'"),
        (
            {"sonar": ["original"]},
            {"sonar": {"version": "sonar", "robots": 2}},
            "boats.sonar: robots=2 must be 1 where",
        ),
    ):
        asked = plain["correctness"] | {"presets": presets, "boats": plain["correctness"]["boats"] | boats}
        with pytest.raises(config.ConfigError, match=f"correctness.{said}"):
            walks(NAME, config.Settings(plain | {"correctness": asked}))


def without_noise(self, boats):
    things = len(self.obstacles) + len(boats)
    return [[[0.0] * 4] * things] * len(boats), [[0.0] * things] * len(boats)


# ---- what differs is named -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "name", "value", "seen"),
    [
        (colregs, "HEAD_ON", (0.0, 17.0, 5.5), "reward"),
        (colregs, "CROSSING", (-9.0, 12.0, -14.0, 7 / 12), "reward"),
        (episode.Episode, "noise", without_noise, "observation"),
    ],
)
def test_another_model_fails(few, monkeypatch, place, name, value, seen):
    """The original with other boxes of COLREGs, or without noise."""
    monkeypatch.setattr(place, name, value)
    (walk,) = (one for one in walks(NAME, few) if one.label == "thruster continuous, original")
    assert seen in failed(rows_of(walk, "transition", "float64"))


def test_headings_a_turn_apart_are_one_and_places_are_not(of):
    walk = of("sonar, original")
    pose = np.array([[[3.0, 4.0, 1e-12]]])
    round_once, beside = (pose + np.array(turn) for turn in ([0, 0, 2 * np.pi - 2e-12], [2 * np.pi, 0, 0]))
    assert walk.errors("pose", {"pose": round_once}, {"pose": pose}).max() < 1e-11
    assert walk.errors("pose", {"pose": beside}, {"pose": pose}).max() > 0.5


def test_a_case_near_a_threshold_is_counted_and_not_compared(of):
    walk, place = of("sonar, original"), ("transition", "original-port", "cpu", "float64")
    ours = {"reward": np.array([1.0, 2.0, 3.0]), "terminated": np.array([[True], [False], [False]])}
    theirs = {"reward": np.array([1.0, 2.0, 9.0]), "terminated": np.array([[True], [False], [True]])}
    groups = list(walk.judged("float64", ()))
    rows = list(walk.compared(place, ours, theirs | {"apart": np.array([1.0, 2e-9, 1e-10])}, groups))
    assert [row["passed"] for row in rows] == [False, True, True]  # one in three is too many
    assert rows[0]["differing"] == 1 and {row["cases"] for row in rows[1:]} == {2}
    assert failed(walk.compared(place, ours, theirs | {"apart": np.full(3, 2e-9)}, groups)) == {"reward", "terminated"}


def test_crowded_states_hold_what_their_episodes_have(of):
    walk = of("kinematic, original")
    states = {name: rows.copy() for name, rows in walk.before.items()}
    made = crowded(states, walk.params, np.random.default_rng(1))
    for name, rows in made.items():
        assert rows.shape == states[name].shape
    there = np.arange(walk.params.robots) < made["counts"][:, :1]
    assert (there < 1).any() and not made["pose"][~there].any() and not made["active"][~there].any()
    assert made["active"].any(axis=1).all()
    assert ((made["core"][..., 3] > 0) == (states["core"][..., 3] > 0)).all()


def test_the_return_of_an_episode_is_the_mean_of_those_who_are_there():
    """Two robots where another episode has three."""
    params = make_params("kinematic", max_steps=4)
    scenes = published(3, [(3, 0, 0, 30.0), (2, 0, 0, 30.0)], params)
    game = Voyage(NAME, 0, version="kinematic", max_steps=4, scenario=scenes)
    for index, robots in enumerate((3, 2)):
        found = originals.episodes(np.array([index]), game=game)["return"]
        assert len(game.agents) == 3 and game.read()["counts"][0] == robots
        assert found[0] == pytest.approx(game.read()["returns"].sum() / robots)
        original = envs.make_original(NAME, version="kinematic", max_steps=4, scenario=scenes, index=index)
        played = evaluation.play([original], lambda obs: torch.full(obs.shape[:2], 4), first_seed=0)
        assert played.returns[0] == pytest.approx(game.module.get_state(original)["returns"].sum() / robots)
