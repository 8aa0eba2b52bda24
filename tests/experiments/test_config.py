import copy
import json
import pickle
import re
import sys

import pytest
import yaml

from lockstep.experiments import ROOT, config


@pytest.fixture
def folder(tmp_path):
    """experiments/ with CartPole's settings, for a test to change."""
    for name in ("schema.yaml", "cartpole.yaml"):
        (tmp_path / name).write_text((ROOT / "experiments" / name).read_text())
    return tmp_path


@pytest.fixture
def change(folder):
    """Set (or with None remove) one value, given by its keys, in the settings of CartPole, and load them."""

    def changed(*keys, value):
        content = yaml.safe_load((folder / "cartpole.yaml").read_text())
        section = content
        for key in keys[:-1]:
            section = section[key]
        if value is None:
            del section[keys[-1]]
        else:
            section[keys[-1]] = value
        (folder / "cartpole.yaml").write_text(yaml.safe_dump(content))
        return config.load("cartpole", "quick", folder)

    return changed


def test_every_environment_with_settings_loads_at_both_scales():
    for file in (ROOT / "experiments").glob("*.yaml"):
        if file.stem != "schema":
            for scale in ("quick", "full"):
                assert config.load(file.stem, scale).throughput.blocks == {"quick": 10, "full": 30}[scale]


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
            "experiments/cartpole.yaml: throughput.quick: unknown key 'num_env'; did you mean 'num_envs'?",
        ),
        (
            ["sede"],
            1,
            "experiments/cartpole.yaml: unknown key 'sede'; did you mean 'seed'? Known: breakdown, correctness",
        ),
        (
            ["wibble"],
            1,
            "experiments/cartpole.yaml: unknown key 'wibble'. Known: breakdown, correctness",
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
        (["correctness", "threshold_band"], "1e-6", "'1e-6' is text to YAML; write the number as in 1.0e-6"),
        (["seed"], None, "experiments/cartpole.yaml: the key 'seed' is missing"),
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
        (["kind"], "block", "unknown key 'kind'. Known: breakdown, correctness, offloading, scaling, seed, throughput"),
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
        (["correctness"], {}, "correctness: the key 'states' is missing"),
        (["correctness"], {"states": 9, "episode": 9}, "correctness: unknown key 'episode'; did you mean 'episodes'?"),
    ],
)
def test_mistakes_in_settings_of_the_vehicular_edge_are_named(tmp_path, keys, value, message):
    for name in ("schema.yaml", "vehicular_edge.yaml"):
        (tmp_path / name).write_text((ROOT / "experiments" / name).read_text())
    content = section = yaml.safe_load((tmp_path / "vehicular_edge.yaml").read_text())
    for key in keys[:-1]:
        section = section[key]
    section.pop(keys[-1], None) if value is None else section.update({keys[-1]: value})
    (tmp_path / "vehicular_edge.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(config.ConfigError, match=re.escape(message)):
        config.load("vehicular_edge", "quick", tmp_path)


def test_broken_yaml_names_the_file_and_the_line(folder):
    (folder / "cartpole.yaml").write_text("seed: 0\nthroughput: [1\n")
    with pytest.raises(config.ConfigError, match=r"experiments/cartpole.yaml is no YAML: .*line 3"):
        config.load("cartpole", "quick", folder)


def test_an_empty_file_is_no_settings(folder):
    (folder / "cartpole.yaml").write_text("")
    with pytest.raises(config.ConfigError, match="is empty; schema.yaml says what it may hold"):
        config.load("cartpole", "quick", folder)


def test_an_environment_without_settings_is_named_with_the_nearest():
    with pytest.raises(config.ConfigError, match=r"no experiments/cartpol.yaml; did you mean 'cartpole'\? Known: "):
        config.load("cartpol", "quick")


@pytest.mark.parametrize("name", ["schema", "../cartpole"])
def test_no_other_file_is_taken_for_settings(name):
    with pytest.raises(config.ConfigError, match="there is no experiments"):
        config.load(name, "quick")


def test_unknown_scale():
    with pytest.raises(config.ConfigError, match="scale 'fast' is not one of quick, full"):
        config.load("cartpole", "fast")


def test_a_machine_without_jsonschema_goes_on_and_says_so(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    assert config.load("cartpole", "quick").seed == 0
    assert "experiments/cartpole.yaml is used unchecked" in capsys.readouterr().err


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
