import copy
import json
import pickle
import re
import shutil

import pytest
import yaml

from lockstep.experiments import ROOT, config

PPO = ("learning", "quick", "ppo")
RATE = {"settings": {}, "agents": ["lockstep"], "blocks": 6}


@pytest.fixture
def folder(tmp_path):
    """experiments/ with all settings, for a test to change."""
    shutil.copytree(
        ROOT / "experiments", tmp_path / "experiments", ignore=shutil.ignore_patterns("*.py", "[!_]*_workers")
    )
    return tmp_path / "experiments"


@pytest.fixture
def change(folder):
    """Set (or with None remove) one value, given by its keys, in an environment's settings, and load them."""

    def changed(*keys, value, name="cartpole"):
        file = config.file_of(name, folder)
        content = section = yaml.safe_load(file.read_text())
        for key in keys[:-1]:
            section = section[key]
        if value is None:
            del section[keys[-1]]
        else:
            section[keys[-1]] = value
        file.write_text(yaml.safe_dump(content))
        return config.load(name, "quick", folder)

    return changed


def test_every_environment_with_settings_loads_at_both_scales():
    for name in config.files():
        for scale, blocks in {"quick": 6, "full": 30}.items():
            assert config.load(name, scale).throughput.blocks == blocks


def test_the_scale_stands_in_its_sections_place():
    quick, full = config.load("cartpole", "quick"), config.load("cartpole", "full")
    assert max(quick.throughput.num_envs) == 65536
    assert max(full.throughput.num_envs) == 4194304
    assert not {"quick", "full"} & set(quick.throughput)
    assert quick.throughput.fixed_policy == full.throughput.fixed_policy


def test_targets_are_the_figures_aimed_at():
    """CartPole: 2,000x, 15x, 400 M and 1.2 G steps per CPU-second on the CPU; 3, 60, 150, 60 and 1.5 G/s on an H200.

    The others, one call per step: 300, 250, 150 and 40 M steps per CPU-second.
    """
    floors = [target.floor for target in config.load("cartpole", "quick").throughput.targets]
    assert floors == [2000, 15, 400e6, 1.2e9, 3e9, 60e9, 150e9, 60e9, 1.5e9]
    per_core = {"mountain_car": 300e6, "mountain_car_continuous": 250e6, "pendulum": 150e6, "acrobot": 40e6}
    for name, floor in per_core.items():
        targets = config.load(name, "quick").throughput.targets
        assert [target.floor for target in targets if target.per == "CPU-second"] == [floor]


def test_settings_are_frozen():
    settings = config.load("cartpole", "quick")
    with pytest.raises(AttributeError, match="frozen"):
        settings.seed = 1
    with pytest.raises(TypeError):
        settings["seed"] = 1
    with pytest.raises(AttributeError, match="no setting 'blokcs' here, only"):
        settings.throughput.blokcs  # noqa: B018


def test_settings_survive_json_pickle_and_copy():
    settings = config.load("cartpole", "quick")
    assert config.Settings(json.loads(json.dumps(settings.plain()))) == settings
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert copy.deepcopy(settings) == settings


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (
            ["throughput", "quick", "num_env"],
            [1],
            "classic_control/cartpole.yaml: throughput.quick: unknown key 'num_env'; did you mean 'num_envs'?",
        ),
        (
            ["sede"],
            1,
            "cartpole.yaml: unknown key 'sede'; did you mean 'seed'?",
        ),
        (
            ["wibble"],
            1,
            "cartpole.yaml: unknown key 'wibble'; known: seed, correctness, crossing, learning, scaling, throughput, "
            "transfer, weak_scaling",
        ),
        (
            ["throughput", "full", "rungs", "port-cdua"],
            [],
            "unknown key 'port-cdua'; did you mean 'port-cuda'?",
        ),
        (
            ["throughput", "quick", "rungs", "original"],
            [{"policies": ["randum"]}],
            "throughput.quick.rungs.original[0].policies[0]: 'randum' is not allowed; allowed: random, fixed",
        ),
        (
            ["throughput", "quick", "blocks"],
            5,
            "throughput.quick.blocks: 5 is not allowed: must be at least 6",
        ),
        (["throughput", "quick", "blocks"], "ten", "'ten' is not allowed: must be of type integer"),
        (["throughput", "quick", "num_envs"], [0], "num_envs[0]: 0 is not allowed: must be at least 1"),
        (["throughput", "quick", "num_envs"], [8, 8], "[8, 8] has non-unique elements"),
        (["correctness", "tolerances", "float32", "default"], 0, "0 is not allowed: must be above 0"),
        (["breakdown"], {}, "cartpole.yaml: unknown key 'breakdown'"),  # of another family
        (["learning", "sovled"], 1, "cartpole.yaml: learning: unknown key 'sovled'; did you mean 'solved'?"),
        (["learning", "solved"], True, "learning.solved: True is not allowed: must be of type number"),
        (["learning", "full"], None, "learning: the key 'full' is missing"),
        ([*PPO, "curves", "seeds"], 0, "learning.quick.ppo.curves.seeds: 0 is not allowed: must be at least 1"),
        ([*PPO, "solve"], {"cold": 1}, "learning.quick.ppo.solve: the key 'warm' is missing"),
        ([*PPO, "together"], [], "learning.quick.ppo.together: [] should be non-empty"),
        ([*PPO, "rates"], [RATE | {"agents": []}], "learning.quick.ppo.rates[0].agents: [] should be non-empty"),
        ([*PPO, "rates"], [RATE | {"agents": ["sb4"]}], "'sb4' is not allowed; allowed: lockstep, sb3, "),
        ([*PPO, "rates"], [RATE | {"devices": ["gpu"]}], "devices[0]: 'gpu' is not allowed; allowed: cpu, cuda"),
        ([*PPO, "rates"], [RATE | {"settings": [1]}], "settings: [1] is not allowed: must be of type object"),
        ([*PPO, "rates"], [RATE | {"settings": {1: 2}}], "settings: 1 is not allowed: must be of type string"),
        ([*PPO, "ablation"], [], "learning.quick.ppo: unknown key 'ablation'; did you mean 'ablations'?"),
        (["seed"], None, "experiments/classic_control/cartpole.yaml: the key 'seed' is missing"),
        (["correctness", "episodes", "played", "full"], None, "episodes.played: 'full' must stand beside 'quick'"),
        (["correctness", "regions", "thresholds", "box"], None, "regions.thresholds: 'box' must stand beside 'bands'"),
    ],
)
def test_a_mistake_is_named_with_file_key_and_what_would_be_right(change, keys, value, message):
    with pytest.raises(config.ConfigError, match=re.escape(message)):
        change(*keys, value=value)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (
            ["kind"],
            "block",
            "unknown key 'kind'; known: seed, correctness, crossing, learning, scaling, throughput, transfer, "
            "weak_scaling, breakdown",
        ),
        (["throughput", "options"], [1], "throughput.options: [1] is not allowed: must be of type object"),
        (
            ["throughput", "quick", "rungs", "port-cpo"],
            [],
            "quick.rungs: unknown key 'port-cpo'; did you mean 'port-cpu'",
        ),
        (
            ["scaling", "full", "sweeps"],
            [{"rungs": ["port-cpu"]}],
            "scaling.full.sweeps[0]: the key 'sizes' is missing",
        ),
        (["correctness", "sizes", "small", "episodes", "zeros"], 1, "unknown key 'zeros'; did you mean 'zero'?"),
        (["correctness"], {}, "correctness: the key 'presets' is missing"),
        (["correctness", "map"], [], "correctness: unknown key 'map'; did you mean 'maps'?"),
    ],
)
def test_mistakes_in_settings_of_the_vehicular_edge_are_named(change, keys, value, message):
    with pytest.raises(config.ConfigError, match=re.escape(message)):
        change(*keys, value=value, name="vehicular_edge")


def test_broken_yaml_names_the_file_and_the_line(folder):
    config.file_of("cartpole", folder).write_text("seed: 0\nthroughput: [1\n")
    with pytest.raises(config.ConfigError, match=r"experiments/classic_control/cartpole.yaml is no YAML: .*line 3"):
        config.load("cartpole", "quick", folder)


def test_an_empty_file_is_no_settings(folder):
    config.file_of("cartpole", folder).write_text("")
    with pytest.raises(config.ConfigError, match="cartpole.yaml is empty; throughput, correctness, seed are missing"):
        config.load("cartpole", "quick", folder)


def test_an_environment_without_settings_is_named_with_the_nearest():
    with pytest.raises(config.ConfigError, match=r"no experiments/\*/cartpol.yaml; did you mean 'cartpole'\?"):
        config.load("cartpol", "quick")


def test_the_general_comparison_is_that_of_a_family_without_one_of_its_own(folder):
    (folder / "quay").mkdir()
    content = yaml.safe_load(config.file_of("cartpole", folder).read_text())
    content["correctness"] = {"states": 9, "episode": 9}
    (folder / "quay" / "barges.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(config.ConfigError, match="correctness: unknown key 'episode'; did you mean 'episodes'?"):
        config.load("barges", "quick", folder)


@pytest.mark.parametrize("name", ["schema", "throughput.schema", "../cartpole"])
def test_no_other_file_is_taken_for_settings(name):
    with pytest.raises(config.ConfigError, match="unknown environment"):
        config.load(name, "quick")


def test_a_schema_that_is_edited_counts_at_once(folder):
    schema = folder / "transfer.schema.yaml"
    config.load("cartpole", "quick", folder)
    schema.write_text(schema.read_text().replace("required: [quick, full]", "required: [quick, full, more]"))
    with pytest.raises(config.ConfigError, match="cartpole.yaml: transfer: the key 'more' is missing"):
        config.load("cartpole", "quick", folder)


def test_unknown_scale():
    with pytest.raises(config.ConfigError, match="scale 'fast' is not one of quick, full"):
        config.load("cartpole", "fast")


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("weights",), [[0, 0, 2, 1]], "fixed_policy.weights: 2 rows of 4 numbers are needed, found rows of [4]"),
        (("weights",), [[0, 0, 2], [0, 0, 2, 1]], "2 rows of 4 numbers are needed, found rows of [3, 4]"),
        (("bias",), [0], "fixed_policy.bias: 2 numbers are needed, found 1"),
    ],
)
def test_a_fixed_policy_of_the_wrong_shape_is_named(change, keys, value, message):
    settings = change("throughput", "fixed_policy", *keys, value=value)
    with pytest.raises(config.ConfigError, match=re.escape(message)):
        config.check_policy("cartpole", settings, 2, 4)
