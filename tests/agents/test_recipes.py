import re
import sys
from pathlib import Path

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


def test_agents_trade_with_the_settings_that_were_chosen_for_them():
    """Those that all have in common, and each agent's own; the share of random actions at first is left free."""
    common = {"reward_scale": 100, "norm_obs": True, "max_grad_norm": 0.5, "gamma": 0.99, "num_envs": 1024}
    own = {"squash": "tanh", "log_std": -0.5, "lr": 3e-4, "critic_lr": 1e-3, "ent_coef": 1e-3, "gae_lambda": 0.95}
    own |= {"hidden": (128, 128), "norm_adv": True}
    stored = {"hidden": (128, 128), "tau": 0.005, "n_step": 3, "capacity": 2**20, "batch_size": 1024}
    stored |= {"replay_ratio": 1 / 256, "squash": "tanh"}
    noise = {"noise": 0.1, "epsilon_end": 0}
    expected = {
        "ppo": own | {"horizon": 64, "epochs": 4, "minibatches": 8, "clip": 0.2, "target_kl": 0.02},
        "a2c": own | {"horizon": 16, "optimizer": "adam"},
        "sac": stored | {"learn_alpha": True, "target_actor": False},
        "td3": stored | noise | {"target_noise": 0.2, "target_noise_limit": 0.5, "policy_delay": 2},
        "ddpg": stored | noise,
    }
    for name, settings in expected.items():
        found = config_of(agents.algorithm(name), "crypto_trading")
        assert {key: getattr(found, key) for key in common | settings} == common | settings, name


@pytest.mark.parametrize("page", ["docs/marine.md", "envs/marine_navigation/README.md"])
def test_the_command_for_the_sonar_has_the_published_settings(page, monkeypatch):
    """Learning from step 10,000, 32 rows, epsilon from 1 to 0.05 over a tenth of all steps."""
    text = (Path(__file__).parents[2] / page).read_text()
    (line,) = re.findall(r"^python -m lockstep.agents.iqn (marine_navigation .*version=sonar.*)$", text, re.MULTILINE)
    made = []
    monkeypatch.setattr(sys, "argv", ["iqn", *line.split()])
    monkeypatch.setattr(training, "train", lambda *given, **options: made.append(given) or sys.exit(0))
    with pytest.raises(SystemExit):
        command_line.main("iqn")
    ((kind, environment, settings, device),) = made
    assert (settings.learning_starts, settings.batch_size) == (10_000, 32)
    assert (settings.epsilon_start, settings.epsilon_end) == (1.0, 0.05)
    assert settings.epsilon_steps == settings.total_steps // 10
    run = kind(environment, kind.to_act(settings), device)
    assert run.env.params.version == "sonar" and settings.encoding == "linear"
    # 2 -> 16, 2 -> 16, 22 -> 176 without flags; 64 -> 208; 208 -> 64 -> 64 -> 9
    layers = [(2, 16), (2, 16), (22, 176), (64, 208), (208, 64), (64, 64), (64, 9)]
    assert run.parameter_count == sum((inputs + 1) * outputs for inputs, outputs in layers)


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
