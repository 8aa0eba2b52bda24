import re

import pytest

from lockstep import agents, envs
from lockstep.agents import recipes
from lockstep.agents.recipes import RecipeError

SCALES = "quick: {}, full: {}"


@pytest.fixture
def written(tmp_path):
    """Loads a recipe for the pole with this text."""

    def load(text):
        (tmp_path / "pole.yaml").write_text(text)
        return recipes.load("pole", tmp_path)

    return load


def test_every_recipe_is_of_an_environment_and_follows_the_layout():
    assert set(recipes.names()) <= set(envs.names())
    for name in recipes.names():
        found = set(recipes.load(name))
        assert found.intersection(agents.names()) and found <= {*agents.names(), "learning"}
        assert "learning" in found or not envs.port(name).gymnasium_id


def test_cartpole_is_solved_at_gymnasium_s_own_threshold():
    learning = recipes.load("cartpole")["learning"]
    assert learning["solved"] == envs.port("cartpole").reward_threshold == 475
    assert learning["full"]["ppo"]["solve"]["warm"] == 20


def test_what_a_file_says_is_what_is_loaded(written):
    text = (
        "ppo: {recipe: solve, lr: 1.0e-3}\n"
        "learning: {solved: 475, quick: {ppo: {curves: {seeds: 5, points: 4, episodes: 10}}}, full: {}}"
    )
    assert written(text) == {
        "ppo": {"recipe": "solve", "lr": 0.001},
        "learning": {
            "solved": 475,
            "quick": {"ppo": {"curves": {"seeds": 5, "points": 4, "episodes": 10}}},
            "full": {},
        },
    }


def test_an_environment_without_a_recipe_is_told_the_nearest(tmp_path):
    (tmp_path / "pole.yaml").touch()
    with pytest.raises(RecipeError, match=re.escape("no agents/recipes/poel.yaml; did you mean 'pole'? Known: pole")):
        recipes.load("poel", tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", f"agents/recipes/pole.yaml: None must have the keys {', '.join(agents.names())}, learning"),
        ("ppo: [1]\nlearning: {" + SCALES + "}", "pole.yaml: ppo: [1] must be settings by name"),
        ("ppo: {}\nlearning: {" + SCALES + ", sovled: 1}", "learning: unknown key 'sovled'; did you mean 'solved'?"),
        ("ppo: {}\nlearning: {" + SCALES + ", solved: 1e-3}", "'1e-3' must be a number; YAML takes it for text"),
        ("ppo: {}\nlearning: {" + SCALES + ", solved: true}", "learning.solved: True must be a number"),
        ("ppo: {}\nlearning: {quick: {}}", "learning: the key 'full' is missing"),
        (
            "ppo: {}\nlearning: {full: {}, quick: {ppo: {curves: {seeds: 0, points: 1, episodes: 1}}}}",
            "learning.quick.ppo.curves.seeds: 0 must be a whole number of at least 1",
        ),
        (
            "ppo: {}\nlearning: {full: {}, quick: {ppo: {rates: [{settings: {}, agents: [], blocks: 6}]}}}",
            "learning.quick.ppo.rates[0].agents: [] must be a list with something in it",
        ),
        ("ppo: {", "agents/recipes/pole.yaml is no YAML: while parsing"),
    ],
)
def test_a_mistake_is_named_by_file_key_and_what_would_be_right(written, text, sentence):
    with pytest.raises(RecipeError, match=re.escape(sentence)):
        written(text)


def test_an_algorithm_without_a_recipe_is_told(tmp_path):
    with pytest.raises(RecipeError, match=r"pole\.yaml: the key 'ppo' is missing"):
        recipes.section({"learning": {}}, "ppo", "pole.yaml")


def test_text_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "pole.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(RecipeError, match=r"pole\.yaml is not UTF-8 text: invalid start byte at byte 0"):
        recipes.load("pole", tmp_path)
