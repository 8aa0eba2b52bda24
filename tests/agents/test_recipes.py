import re
import sys

import pytest

from lockstep import agents, envs
from lockstep.agents import recipes
from lockstep.agents.run import command_line, training
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


@pytest.mark.parametrize("name", recipes.load("crypto_trading"))
def test_every_agent_with_numbers_as_actions_trades(name, monkeypatch, tmp_path):
    """As a command, on ten generated assets, with the recipe's settings but for its size."""
    small = {"num_envs": 8, "horizon": 4, "total_steps": 128, "minibatches": 2, "capacity": 1024, "batch_size": 16}
    small |= {"learning_starts": 64, "replay_ratio": 0.25, "target_every": 8, "episodes": 0}
    algorithm = agents.algorithm(name)
    known = {"episodes", *algorithm.Config.__dataclass_fields__}
    words = [
        word for key, value in small.items() if key in known for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    monkeypatch.setattr(sys, "argv", [name, "crypto_trading", "--quiet", "--output", str(tmp_path), *words])
    command_line.main(name)
    run = training.load(algorithm, tmp_path)
    assert run.iteration == run.iterations == 4 and run.config.reward_scale == 100
    assert all(part.isfinite().all() for part in run.weights().values() if not isinstance(part, dict))
