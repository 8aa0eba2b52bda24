"""Scenario files: what is written returns, and what was changed or has no meaning is refused."""

import hashlib
import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from lockstep.envs.vehicular_edge.params import PRESETS, Params
from lockstep.envs.vehicular_edge.scenario import Calibration, Scenario, draw, file, load


@pytest.fixture
def drawn(small) -> Scenario:
    return draw(small, "arterial", calibration=Calibration.ones(small))


def rewrite(path, change_header=lambda header: None, **arrays):
    """Writes other content with the right hashes, as whoever makes a file by hand would."""
    stored, header = file.read(path)
    header.pop("sha256_npz")
    change_header(header)
    stored |= arrays
    file.write(path, {name: array for name, array in stored.items() if array is not None}, header)


def assert_equal(one: Scenario, other: Scenario):
    for name, value in vars(one).items():
        if isinstance(value, np.ndarray):
            found = getattr(other, name)
            assert found.dtype == value.dtype
            np.testing.assert_array_equal(found, value)
    assert asdict(one.params) == asdict(other.params)
    for name, value in vars(one.calibration).items():
        np.testing.assert_array_equal(getattr(other.calibration, name), value)
    for name in ("name", "source", "index", "seed", "mean_density"):
        assert getattr(one, name) == getattr(other, name)


def test_a_scenario_returns_bit_for_bit(tmp_path, physical):
    calibration = Calibration(np.arange(1, 9) / 3, 0.1, 0.7, np.arange(1, 6) / 7, 4.9, 1e10, np.full(10, 1 / 9))
    scenario = replace(physical, calibration=calibration)
    scenario.save(tmp_path / "deep" / "one")
    for path in ("one", "one.npz", "one.json"):
        assert_equal(scenario, load(tmp_path / "deep" / path))


def test_a_name_with_a_dot_is_a_name(tmp_path, drawn):
    drawn.save(tmp_path / "v1.2")
    assert (tmp_path / "v1.2.npz").exists()
    assert_equal(drawn, load(tmp_path / "v1.2"))


def test_running_scales_return_bit_for_bit(tmp_path):
    scenario = draw(Params(**PRESETS["original"] | {"vehicles": 20, "slots": 12, "edges": 4, "components": 5}))
    scenario.save(tmp_path / "original")
    found = load(tmp_path / "original")
    assert_equal(scenario, found)
    assert scenario.running.keys() == found.running.keys()
    for name, value in scenario.running.items():
        np.testing.assert_array_equal(found.running[name], value)


def test_the_json_states_what_the_file_is(tmp_path, drawn):
    drawn.save(tmp_path / "one")
    header = json.loads((tmp_path / "one.json").read_text())
    assert header["version"] == 1 and header["seed"] == 264 and header["source"] == {"traffic": "arterial"}
    assert header["params"]["vehicles"] == 20
    assert header["sha256_npz"] == hashlib.sha256((tmp_path / "one.npz").read_bytes()).hexdigest()


@pytest.mark.parametrize("preset", list(PRESETS))
def test_the_json_names_the_preset(tmp_path, preset):
    params = Params(**PRESETS[preset] | {"vehicles": 20, "slots": 12, "edges": 4, "components": 5})
    scenario = draw(params, "dense", calibration=Calibration.ones(params))
    for found, expected in (
        (scenario, preset),
        (scenario.under(replace(params, silent_ties=preset == "physical")), None),
    ):
        found.save(tmp_path / "one")
        assert json.loads((tmp_path / "one.json").read_text())["preset"] == expected


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_a_path_may_have_its_suffix(tmp_path, drawn, suffix):
    drawn.save(tmp_path / f"one{suffix}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.json", "one.npz"]
    assert_equal(drawn, load(tmp_path / "one"))


def test_a_file_that_is_not_there_is_named(tmp_path, drawn):
    with pytest.raises(FileNotFoundError, match=r"one\.json"):
        load(tmp_path / "one")
    drawn.save(tmp_path / "one")
    (tmp_path / "one.npz").unlink()
    with pytest.raises(FileNotFoundError, match=r"one\.npz"):
        load(tmp_path / "one")


def test_a_changed_array_file_is_refused(tmp_path, drawn):
    drawn.save(tmp_path / "one")
    content = bytearray((tmp_path / "one.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "one.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"one\.npz: its SHA-256 is .* one\.json states"):
        load(tmp_path / "one")


def test_a_changed_header_is_refused(tmp_path, drawn):
    drawn.save(tmp_path / "one")
    text = (tmp_path / "one.json").read_text()
    (tmp_path / "one.json").write_text(text.replace('"seed": 264', '"seed": 265'))
    with pytest.raises(ValueError, match=r"one\.json: its SHA-256 is"):
        load(tmp_path / "one")


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("fading_v2v", (2, 1, 0), np.nan, r"fading_v2v\[2, 1, 0\] is nan, must be finite"),
        ("xy_client", (1, 0, 1), np.inf, r"xy_client\[1, 0, 1\] is inf, must be finite"),
        ("task_size", (3, 2, 1), -1.0, r"task_size\[3, 2, 1\] is -1.0, must not be negative"),
        ("task_rate", (0, 0, 0), -0.5, r"task_rate\[0, 0, 0\] is -0.5, must not be negative"),
        ("task_count", (4, 1), -3, r"task_count\[4, 1\] is -3, must not be negative"),
        ("edge_range", (2,), -1.0, r"edge_range\[2\] is -1.0, must not be negative"),
        ("task_cycles", (0, 0, 0), 0.0, r"task_cycles\[0, 0, 0\] is 0.0, must be positive"),
    ],
)
def test_a_number_without_meaning_is_refused(tmp_path, drawn, name, index, value, message):
    drawn.save(tmp_path / "one")
    array = getattr(drawn, name).copy()
    array[index] = value
    rewrite(tmp_path / "one", **{name: array})
    with pytest.raises(ValueError, match=f"one: {message}"):
        load(tmp_path / "one")


def test_a_missing_array_is_refused(tmp_path, drawn):
    drawn.save(tmp_path / "one")
    rewrite(tmp_path / "one", edge_cpu=None)
    with pytest.raises(ValueError, match="one: array edge_cpu is missing"):
        load(tmp_path / "one")


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("edge_cpu", np.array(["fast"] * 4), "array edge_cpu holds <U4, must hold numbers"),
        ("edge_cpu", np.ones(4, complex), "array edge_cpu holds complex128, must hold numbers"),
        ("task_count", np.full((12, 10), 1.5), r"task_count\[0, 0\] is 1.5, must be an integer"),
        ("task_count", np.full((12, 10), np.nan), r"task_count\[0, 0\] is nan, must be finite"),
        ("active_client", np.full((12, 10), 2), r"active_client\[0, 0\] is 2, must be a flag"),
    ],
)
def test_an_array_of_another_kind_is_refused(tmp_path, drawn, name, array, message):
    drawn.save(tmp_path / "one")
    rewrite(tmp_path / "one", **{name: array})
    with pytest.raises(ValueError, match=f"one: {message}"):
        load(tmp_path / "one")


def test_arrays_of_other_numbers_are_converted(tmp_path, drawn):
    drawn.save(tmp_path / "one")
    rewrite(tmp_path / "one", task_count=drawn.task_count.astype(float), active_server=drawn.active_server.astype(int))
    assert_equal(drawn, load(tmp_path / "one"))


def test_objects_are_not_unpickled(tmp_path, drawn):
    drawn.save(tmp_path / "one")
    rewrite(tmp_path / "one", edge_cpu=np.array([None] * 4))
    with pytest.raises(ValueError, match=r"one\.npz: not an archive of arrays of numbers"):
        load(tmp_path / "one")


def test_a_wrong_shape_is_refused(tmp_path, drawn):
    drawn.save(tmp_path / "one")
    rewrite(tmp_path / "one", edge_cpu=np.ones(5))
    with pytest.raises(ValueError, match=r"array edge_cpu has shape \(5,\), must have \(4,\)"):
        load(tmp_path / "one")


def test_running_scales_without_their_switch_are_refused(tmp_path, drawn):
    drawn.save(tmp_path / "one")
    rewrite(tmp_path / "one", running_max_lc=np.ones(10))
    with pytest.raises(ValueError, match="array running_max_lc is of no running scale"):
        load(tmp_path / "one")


def test_a_zero_distance_is_refused_where_nothing_clamps_it(tmp_path, drawn):
    drawn.save(tmp_path / "one")
    place = drawn.xy_server.copy()
    place[2, 1] = drawn.xy_client[2, 0]
    rewrite(tmp_path / "one", xy_server=place)
    assert load(tmp_path / "one").distance_v2v[2, 0, 1] == 1.0
    rewrite(tmp_path / "one", lambda header: header["params"].update(jumping_tracks=True))
    with pytest.raises(ValueError, match=r"one: distance_v2v\[2, 0, 1\] is 0.0, must be positive"):
        load(tmp_path / "one")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: header.update(version=9), "version is 9, must be 1"),
        (lambda header: header.pop("calibration"), "lacks a field or has an unknown one: 'calibration'"),
        (lambda header: header["params"].update(colour=1), "colour"),
        (lambda header: header["calibration"].update(size=0.0), "calibration size is 0.0, must be finite and positive"),
        (lambda header: header["calibration"].update(drift=[1.0]), r"drift has shape \(1,\), must have \(5,\)"),
        (lambda header: header["calibration"].update(score_v2i=[1.0]), r"has shape \(1,\), must have \(5,\) as Params"),
        (lambda header: header["calibration"].update(work="much"), "calibration work holds no numbers"),
        (lambda header: header["params"].update(slots="12"), "slots='12' must be a number"),
        (lambda header: header.update(mean_density=0.0), "one: mean_density is 0.0, must be finite and positive"),
    ],
)
def test_a_header_without_meaning_is_refused(tmp_path, drawn, change, message):
    drawn.save(tmp_path / "one")
    rewrite(tmp_path / "one", change)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "one")


def test_what_is_not_json_is_refused(tmp_path, drawn):
    drawn.save(tmp_path / "one")
    (tmp_path / "one.json").write_text("{")
    with pytest.raises(ValueError, match=r"one\.json: not JSON"):
        load(tmp_path / "one")
    (tmp_path / "one.json").write_bytes(b"\xff\xfe\x80")
    with pytest.raises(ValueError, match=r"one\.json: not JSON"):
        load(tmp_path / "one")


def test_sizes_unlike_the_parameters_are_refused(tmp_path, drawn, small):
    drawn.save(tmp_path / "one")
    with pytest.raises(ValueError, match="one: edges is 4, Params has 9"):
        load(tmp_path / "one", Params(vehicles=20, slots=12, components=5))
    other = replace(small, penalty_weight=2.0)
    assert load(tmp_path / "one", other).params == other
