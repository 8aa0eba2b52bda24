import re

import pytest

from lockstep import agents, envs
from lockstep.agents import recipes
from lockstep.agents.run.config import config_of


@pytest.fixture
def written(tmp_path):
    """Loads a recipe for the pole with this text."""

    def load(text):
        (tmp_path / "pole.yaml").write_text(text)
        return recipes.load("pole", tmp_path)

    return load


def test_every_recipe_is_of_an_environment_and_can_be_trained_by():
    assert set(recipes.names()) <= set(envs.names())
    for name in recipes.names():
        for algorithm in recipes.load(name):
            assert config_of(agents.algorithm(algorithm), name).total_steps > 0


def test_what_a_file_says_is_what_is_loaded(written):
    assert written("ppo: {recipe: solve, lr: 1.0e-3}\ndqn: {}") == {"ppo": {"recipe": "solve", "lr": 0.001}, "dqn": {}}


def test_an_environment_without_a_recipe_is_told_the_nearest(tmp_path):
    (tmp_path / "pole.yaml").touch()
    with pytest.raises(ValueError, match=re.escape("no agents/recipes/poel.yaml; did you mean 'pole'?")):
        recipes.load("poel", tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", f"agents/recipes/pole.yaml: None must be settings by algorithm, of {', '.join(agents.names())}"),
        ("[ppo]", "pole.yaml: ['ppo'] must be settings by algorithm"),
        ("pppo: {}", "pole.yaml: unknown key 'pppo'; did you mean 'ppo'?"),
        ("1: {}", "pole.yaml: unknown key 1; known: "),
        ("ppo: [1]", "pole.yaml: ppo: [1] must be settings by name"),
        ("ppo: {1: 2}", "pole.yaml: ppo: {1: 2} must be settings by name"),
        ("ppo: {", "agents/recipes/pole.yaml is no YAML: while parsing"),
    ],
)
def test_a_mistake_is_named_by_file_key_and_what_would_be_right(written, text, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        written(text)


def test_an_algorithm_without_a_recipe_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"pole\.yaml: the key 'ppo' is missing"):
        recipes.section({"dqn": {}}, "ppo", "pole.yaml")


def test_text_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "pole.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"pole\.yaml is not UTF-8 text: invalid start byte at byte 0"):
        recipes.load("pole", tmp_path)
