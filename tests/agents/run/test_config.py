"""Configurations: what is refused, with which words, and the options of a command line."""

import argparse
import dataclasses
import re

import pytest

from lockstep import agents
from lockstep.agents import ppo, recipes
from lockstep.agents.ppo import RECIPES, Config
from lockstep.agents.run import config
from tests.faults import files_of_at_most


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("gamma", 1.5, "gamma=1.5 must lie in [0, 1]"),
        ("gamma", -0.1, "gamma=-0.1 must lie in [0, 1]"),
        ("gae_lambda", 2.0, "gae_lambda=2.0 must lie in [0, 1]"),
        ("lr", float("nan"), "lr=nan must be finite"),
        ("lr", float("inf"), "lr=inf must be finite"),
        ("clip", -0.2, "clip=-0.2 must lie in [0, ...]"),
        ("num_envs", 0, "num_envs=0 must lie in [1, ...]"),
        ("num_envs", 4.0, "num_envs=4.0 must be an integer"),
        ("num_envs", True, "num_envs=True must be an integer"),
        ("horizon", "128", "horizon='128' must be an integer"),
        ("anneal_lr", 1, "anneal_lr=1 must be True or False"),
        ("target_kl", "no", "target_kl='no' must be a number or None"),
        ("target_kl", -1.0, "target_kl=-1.0 must lie in [0, ...]"),
        ("hidden", (64, 0), "hidden=(64, 0) must lie in [1, ...]"),
        ("hidden", (), "hidden=() must be a tuple of integers"),
        ("hidden", 64, "hidden=64 must be a tuple of integers"),
        ("hidden", (64, 6.4), "hidden=(64, 6.4) must be a tuple of integers"),
        ("ratio", "some", "ratio='some' must be one of 'action', 'component'"),
        ("precision", "fp16", "precision='fp16' must be one of 'fp32', 'tf32', 'bf16'"),
        ("rollout", "jax", "rollout='jax' must be one of 'auto', 'torch', 'kernel'"),
        ("gradient", "torch", "gradient='torch' must be one of 'auto', 'autograd', 'kernel'"),
        ("graph", "maybe", "graph='maybe' must be one of 'auto', 'on', 'off'"),
        ("threads", 0, "threads=0 must lie in [1, 1024]"),
        ("seed", -1, "seed=-1 must lie in [0, 9.22337e+18]"),
        ("lr", (1e-3, 1e-4), "lr has 2 values; population=1 needs one, or one for each"),
        ("gamma", (0.9, 1.1), "gamma=(0.9, 1.1) must lie in [0, 1]"),
        ("population", 3, "num_envs=4 must be divisible by population=3"),
        ("shards", 3, "num_envs=4 must be divisible by shards=3"),
        ("total_steps", 511, "total_steps=511 must be at least one iteration, num_envs x horizon = 512"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_what_is(field, value, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Config(**{field: value})


def test_members_and_shards_exclude_each_other():
    with pytest.raises(ValueError, match="shards=2 needs population=1, not 2"):
        Config(population=2, shards=2)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"gama": 0.9}, "Config has no field 'gama'; did you mean 'gamma'?"),
        ({"minibatch": 2}, "Config has no field 'minibatch'; did you mean 'minibatches'?"),
        ({"gamma": 2}, "gamma=2.0 must lie in [0, 1]"),
        ({"hidden": [64, "x"]}, "hidden=(64, 'x') must be a tuple of integers"),
        ({"recipe": "solved"}, "recipe='solved' must be one of 'cleanrl', 'continuous', 'solve', 'wide'"),
    ],
)
def test_a_recipe_takes_known_fields_only(changes, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ppo.config_of("cartpole", **{"recipe": "solve"} | changes)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "my.yaml cannot be read: No such file or directory"),
        ("gamma: 0.9", "my.yaml: unknown key 'gamma'"),
        ("pppo: {gamma: 0.9}", "my.yaml: unknown key 'pppo'; did you mean 'ppo'?"),
        ("ppo: {gama: 0.9}", "my.yaml: ppo: Config has no field 'gama'; did you mean 'gamma'?"),
        ("ppo: {gamma: 9}", "my.yaml: ppo: gamma=9.0 must lie in [0, 1]"),
        ("ppo: {recipe: solved}", "my.yaml: ppo: recipe='solved' must be one of 'cleanrl'"),
        ("ppo: {recipe: [solve]}", "my.yaml: ppo: recipe=['solve'] must be one of 'cleanrl'"),
    ],
)
def test_a_recipe_of_one_s_own_is_refused_with_file_and_key(tmp_path, text, sentence):
    if text is not None:
        (tmp_path / "my.yaml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path}/{sentence}")):
        ppo.config_of("cartpole", str(tmp_path / "my.yaml"), num_envs=8)


def test_a_recipe_of_one_s_own_says_what_differs_and_changes_come_last(tmp_path):
    (tmp_path / "my.yml").write_text("ppo: {recipe: solve, lr: [1.0e-3, 2.0e-3], population: 2, seed: 3}")
    found = ppo.config_of("cartpole", tmp_path / "my.yml", seed=4)
    assert found == dataclasses.replace(RECIPES["solve"], lr=(1e-3, 2e-3), population=2, seed=4)


@pytest.mark.parametrize("name", RECIPES)
def test_what_is_written_as_a_recipe_is_read_as_one(tmp_path, name):
    written = dataclasses.replace(RECIPES[name], lr=1e-5, gamma=(0.9, 0.8), population=2, num_envs=64, target_kl=None)
    recipes.write(tmp_path / "config.yaml", "ppo", dataclasses.asdict(written), "Of nothing.")
    assert ppo.config_of("cartpole", tmp_path / "config.yaml") == written


def test_a_full_disk_leaves_the_recipe_that_was_there(tmp_path):
    path, settings = tmp_path / "config.yaml", dataclasses.asdict(RECIPES["solve"])
    recipes.write(path, "ppo", settings, "Of nothing.")
    before = path.read_text()
    with files_of_at_most(10), pytest.raises(OSError, match="File too large"):
        recipes.write(path, "ppo", settings | {"seed": 5}, "Of nothing.")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("config.yaml", before)]


def test_yaml_s_integers_and_lists_stand_for_floats_and_tuples():
    found = ppo.config_of("cartpole", "solve", lr=1, hidden=[32, 32], gamma=[0.9, 0.95], population=2, target_kl=None)
    assert found.lr == 1.0 and isinstance(found.lr, float)
    assert found.hidden == (32, 32) and found.gamma == (0.9, 0.95) and found.target_kl is None


EVERY = [(name, algorithm) for name in recipes.names() for algorithm in recipes.load(name)]


@pytest.mark.parametrize(("name", "algorithm"), EVERY)
def test_without_a_recipe_an_environment_s_own_file_decides(name, algorithm):
    kind, given = agents.algorithm(algorithm), recipes.of(name, algorithm)
    base, found = kind.RECIPES[given.pop("recipe")], config.config_of(kind, name)
    fields = [field.name for field in dataclasses.fields(kind.Config)]
    changed = {field for field in fields if getattr(found, field) != getattr(base, field)}
    assert changed <= set(given)
    assert all(
        getattr(found, key) == (tuple(value) if isinstance(value, list) else value) for key, value in given.items()
    )


def test_recipes_are_those_published():
    """CleanRL's ppo.py and ppo_continuous_action.py (Huang et al., JMLR 2022)."""
    common = {
        "gamma": 0.99, "gae_lambda": 0.95, "clip": 0.2, "clip_value": True, "vf_coef": 0.5, "max_grad_norm": 0.5,
        "norm_adv": True, "anneal_lr": True, "target_kl": None, "hidden": (64, 64),
    }  # fmt: skip
    discrete = {
        "num_envs": 4, "horizon": 128, "total_steps": 500_000, "epochs": 4, "minibatches": 4, "lr": 2.5e-4,
        "ent_coef": 0.01,
    }  # fmt: skip
    continuous = {
        "num_envs": 1, "horizon": 2048, "total_steps": 1_000_000, "epochs": 10, "minibatches": 32, "lr": 3e-4,
        "ent_coef": 0.0, "norm_obs": True, "norm_reward": True,
    }  # fmt: skip
    for recipe, fields in (("cleanrl", discrete), ("continuous", continuous)):
        for name, value in (common | fields).items():
            assert getattr(RECIPES[recipe], name) == value, (recipe, name)


def parsed(*arguments: str) -> dict:
    parser = argparse.ArgumentParser()
    config.add_options(parser, Config)
    return vars(parser.parse_args(arguments))


def test_options_that_are_not_given_are_absent():
    assert parsed() == {}


def test_every_field_is_an_option_and_reaches_the_configuration():
    given = {
        "--num-envs": "8", "--lr": "1e-3", "--hidden": "32 16", "--target-kl": "0.02", "--ratio": "component",
    }  # fmt: skip
    words = [word for option, value in given.items() for word in (option, *value.split())]
    found = ppo.config_of("cartpole", "cleanrl", **parsed(*words, "--no-anneal-lr", "--norm-obs"))
    assert found == Config(
        num_envs=8, lr=1e-3, hidden=(32, 16), target_kl=0.02, ratio="component", anneal_lr=False, norm_obs=True
    )
    parser = argparse.ArgumentParser()
    config.add_options(parser, Config)
    told = parser.format_help()
    for field in dataclasses.fields(Config):
        assert "--" + field.name.replace("_", "-") in told


@pytest.mark.parametrize("field", ["target_kl", "critic_lr", "threads", "shards"])
def test_what_may_be_none_is_given_as_none_and_refused_by_its_kind(field, capsys):
    option, kind = "--" + field.replace("_", "-"), "int" if field in ("threads", "shards") else "float"
    assert parsed(option, "none") == {field: None} and parsed(option, "2") == {field: 2}
    assert ppo.config_of("cartpole", "solve", **{field: 2} | parsed(option, "none")) == RECIPES["solve"]
    with pytest.raises(SystemExit):
        parsed(option, "nothing")
    assert f"argument {option}: invalid {kind} value: 'nothing'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parsed("--epochs", "none")


def test_a_number_may_be_given_for_each_member():
    assert parsed("--lr", "1e-3", "1e-4") == {"lr": (1e-3, 1e-4)}
    assert parsed("--lr", "1e-3") == {"lr": 1e-3}
