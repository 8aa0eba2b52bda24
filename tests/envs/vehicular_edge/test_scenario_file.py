"""Scenario files: what is written returns, and what was changed or has no meaning is refused."""

import hashlib
import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from lockstep.envs.vehicular_edge.params import PRESETS, Params
from lockstep.envs.vehicular_edge.scenario import Calibration, Scenario, draw, file, load, under


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
    calibration = Calibration(np.arange(1, 9) / 3, 0.1, 0.7, 6.3, np.arange(1, 6) / 7, 4.9, 1e10, np.full(10, 1 / 9))
    scenario = replace(physical, calibration=calibration)
    scenario.save(tmp_path / "deep" / "one")
    for path in ("one", "one.npz", "one.json"):
        assert_equal(scenario, load(tmp_path / "deep" / path))


@pytest.mark.parametrize("given", ["one", "one.npz", "one.json", "v1.2"])  # a name with a dot is a name
def test_a_path_may_have_its_suffix(tmp_path, drawn, given):
    drawn.save(tmp_path / given)
    stem = given.removesuffix(".npz").removesuffix(".json")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{stem}.json", f"{stem}.npz"]
    assert_equal(drawn, load(tmp_path / stem))


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
    assert header["version"] == 2 and header["seed"] == 264 and header["source"] == {"traffic": "arterial"}
    assert header["params"]["vehicles"] == 20
    assert header["sha256_npz"] == hashlib.sha256((tmp_path / "one.npz").read_bytes()).hexdigest()


@pytest.mark.parametrize("preset", list(PRESETS))
def test_the_json_names_the_preset(tmp_path, preset):
    params = Params(**PRESETS[preset] | {"vehicles": 20, "slots": 12, "edges": 4, "components": 5})
    scenario = draw(params, "dense", calibration=Calibration.ones(params))
    for found, expected in (
        (scenario, preset),
        (under(scenario, replace(params, silent_ties=preset == "physical")), None),
    ):
        found.save(tmp_path / "one")
        assert json.loads((tmp_path / "one.json").read_text())["preset"] == expected


def test_arrays_of_other_numbers_are_converted(tmp_path, drawn):
    drawn.save(tmp_path / "one")
    rewrite(tmp_path / "one", task_count=drawn.task_count.astype(float), active_server=drawn.active_server.astype(int))
    assert_equal(drawn, load(tmp_path / "one"))


def test_a_zero_distance_is_refused_where_nothing_clamps_it(tmp_path, drawn):
    drawn.save(tmp_path / "one")
    place = drawn.xy_server.copy()
    place[2, 1] = drawn.xy_client[2, 0]
    rewrite(tmp_path / "one", xy_server=place)
    assert load(tmp_path / "one").distance_v2v[2, 0, 1] == 1.0
    rewrite(tmp_path / "one", lambda header: header["params"].update(jumping_tracks=True))
    with pytest.raises(ValueError, match=r"one: distance_v2v\[2, 0, 1\] is 0.0, must be positive"):
        load(tmp_path / "one")
    place[2, 1, 0] += 1e-12
    rewrite(tmp_path / "one", xy_server=place)
    with pytest.raises(ValueError, match=r"one: fading of up to .*, links of 1\.\d+e-12 m or more, .* at most 320 dB"):
        load(tmp_path / "one")


# ---- what is refused

NUMBERS = [  # an array, a place in it, what is put there, and the sentence
    ("fading_v2v", (2, 1, 0), np.nan, r"fading_v2v\[2, 1, 0\] is nan, must be finite"),
    ("xy_client", (1, 0, 1), np.inf, r"xy_client\[1, 0, 1\] is inf, must be finite"),
    ("task_size", (3, 2, 1), -1.0, r"task_size\[3, 2, 1\] is -1.0, must lie in \[0, 100000\]"),
    ("task_rate", (0, 0, 0), -0.5, r"task_rate\[0, 0, 0\] is -0.5, must lie in \[0, 100000\]"),
    ("task_count", (4, 1), -3, r"task_count\[4, 1\] is -3, must lie in \[0, 65535\]"),
    ("task_count", (4, 1), 65_536, r"task_count\[4, 1\] is 65536, must lie in \[0, 65535\]"),
    ("edge_range", (2,), -1.0, r"edge_range\[2\] is -1.0, must lie in \[0, 1e\+09\]"),
    ("task_cycles", (0, 0, 0), 0.0, r"task_cycles\[0, 0, 0\] is 0.0, must be at least 1e-09, as the slot holds a task"),
    ("client_cpu", (0,), 0.0, r"client_cpu\[0\] is 0.0, must lie in \[1e-09, 1e\+09\]"),
    ("client_power", (1,), 0.0, r"client_power\[1\] is 0.0, must lie in \[1e-09, 1e\+09\]"),
    ("server_cpu", (2,), 0.0, r"server_cpu\[2\] is 0.0, must lie in \[1e-09, 1e\+09\]"),
    ("edge_cpu", (3,), 0.0, r"edge_cpu\[3\] is 0.0, must lie in \[1e-09, 1e\+09\]"),
    ("xy_server", (0, 1, 0), -1e200, r"xy_server\[0, 1, 0\] is -1e\+200, must lie in \[-1e\+09, 1e\+09\]"),
    ("edge_xy", (0, 1), 1e200, r"edge_xy\[0, 1\] is 1e\+200, must lie in \[-1e\+09, 1e\+09\]"),
    ("fading_v2i", (0, 1, 2), 1e200, r"fading_v2i\[0, 1, 2\] is 1e\+200, must lie in \[0, 1e\+09\]"),
    ("task_size", (3, 2, 1), 1e300, r"task_size\[3, 2, 1\] is 1e\+300, must lie in \[0, 100000\]"),
    ("task_cycles", (3, 2, 1), 1e6, r"task_cycles\[3, 2, 1\] is 1000000.0, must lie in \[0, 100000\]"),
]
ARRAYS = [  # an array, what is written in its place, and the sentence
    ("edge_cpu", None, "one: array edge_cpu is missing"),
    ("edge_cpu", np.ones(5), r"array edge_cpu has shape \(5,\), must have \(4,\)"),
    ("edge_cpu", np.array(["fast"] * 4), "one: array edge_cpu holds <U4, must hold numbers"),
    ("edge_cpu", np.ones(4, complex), "one: array edge_cpu holds complex128, must hold numbers"),
    ("edge_cpu", np.array([None] * 4), r"one\.npz is not an archive of arrays of numbers"),  # objects are not unpickled
    ("task_count", np.full((12, 10), 1.5), r"one: task_count\[0, 0\] is 1.5, must be an integer"),
    ("task_count", np.full((12, 10), np.nan), r"one: task_count\[0, 0\] is nan, must be finite"),
    ("active_client", np.full((12, 10), 2), r"one: active_client\[0, 0\] is 2, must be a flag"),
    ("edge_cpus", np.ones(4), "one: has no array 'edge_cpus'; did you mean 'edge_cpu'"),
    ("running_max_lc", np.ones(10), "array running_max_lc is of no running scale"),  # without their switch
]
HEADERS = [  # a change of the header, and the sentence
    (lambda header: header.update(version=9), "version is 9, must be 2"),
    (lambda header: header.pop("calibration"), "lacks a field or has an unknown one: 'calibration'"),
    (
        lambda header: header["calibration"].pop("load"),
        "one: calibration in the JSON lacks load, must have every scale",
    ),
    (lambda header: header["params"].update(colour=1), "colour"),
    (lambda header: header["calibration"].update(size=0.0), r"calibration size is 0.0, must lie in \[1e-09, 1e\+30\]"),
    (lambda header: header["calibration"].update(drift=[1.0]), r"drift has shape \(1,\), must have \(5,\)"),
    (lambda header: header["calibration"].update(score_v2i=[1.0]), r"has shape \(1,\), must have \(5,\) as Params"),
    (lambda header: header["calibration"].update(work="much"), "calibration work holds no numbers"),
    (lambda header: header["params"].update(slots="12"), "slots='12' must be a number"),
    (lambda header: header.update(mean_density=0.0), r"mean_density is 0.0, must be a number in \[1e-09, 1e\+09\]"),
    (lambda header: header.update(mean_density="much"), "one: mean_density is 'much', must be a number in"),
    (lambda header: header.update(mean_density=None), "one: mean_density is None, must be a number in"),
    (lambda header: header.update(params=[1, 2]), r"one\.json: params is a list, must be a dict"),
    (lambda header: header.update(calibration=None), r"one\.json: calibration is a NoneType, must be a dict"),
    (lambda header: header.update(index=-5), "one: index=-5 must be an integer from 0 to 4294967295"),
    (lambda header: header.update(seed=-1), "one: seed=-1 must be an integer from 0 to 18446744073709551615"),
    (lambda header: header.update(seed=[1]), r"one: seed=\[1\] must be an integer from 0"),
    (lambda header: header.update(name=5), "one: name is 5, must be a string"),
    (lambda header: header.update(name=[0] * 10**5), r"one: name is \[0, 0[, 0]*, must be a string"),
    (lambda header: header["calibration"].update(drift=[0] * 10**5), r"calibration drift is \[0[, .0]*, must lie in"),
    (lambda header: header.update(colour=1), r"one\.json: has no field 'colour'"),
]
BYTES = [  # a file, how it is spoilt, and the sentence
    ("npz", lambda old: bytes([*old[:500], old[500] ^ 1, *old[501:]]), r"one\.npz: its SHA-256 is .* one\.json states"),
    ("json", lambda old: old.replace(b'"seed": 264', b'"seed": 265'), r"one\.json: its SHA-256 is"),
    ("json", lambda old: b"{", r"one\.json: not JSON"),
    ("json", lambda old: b"\xff\xfe\x80", r"one\.json: not JSON"),
    ("json", lambda old: b"[" * 10**5 + b"]" * 10**5, r"one\.json: not JSON"),
]


@pytest.fixture
def saved(tmp_path, drawn):
    drawn.save(tmp_path / "one")
    return tmp_path / "one"


def refused(path, message: str, *params):
    with pytest.raises(ValueError, match=message):
        load(path, *params)


@pytest.mark.parametrize(("name", "index", "value", "message"), NUMBERS)
def test_a_number_without_meaning_is_refused(saved, drawn, name, index, value, message):
    array = getattr(drawn, name).astype(np.int64 if name == "task_count" else np.float64)
    array[index] = value
    rewrite(saved, **{name: array})
    refused(saved, f"one: {message}")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max_lc", -1.0, r"running_max_lc\[0\] is -1.0, must be finite and not negative"),
        ("max_lc", np.inf, r"running_max_lc\[0\] is inf, must be finite and not negative"),
        ("cost_ec", np.nan, r"running_cost_ec\[0\] is nan, must be finite and not negative"),
        ("drift_min_lc", np.nan, r"running_drift_min_lc\[0\] is nan, must be a number"),
    ],
)
def test_a_running_scale_without_meaning_is_refused(tmp_path, name, value, message):
    params = Params(**PRESETS["original"] | {"vehicles": 20, "slots": 12, "edges": 4, "components": 5})
    scenario = draw(params, calibration=Calibration.ones(params))
    array = scenario.running[name].copy()
    array[0] = value
    scenario.save(tmp_path / "one")
    rewrite(tmp_path / "one", **{file.RUNNING + name: array})
    refused(tmp_path / "one", f"one: {message}")
    with pytest.raises(ValueError, match=f"scenario: {message}"):
        replace(scenario, running=scenario.running | {name: array}).check()


def test_running_scales_without_a_use_are_not_written(tmp_path):
    params = Params(**PRESETS["original"] | {"vehicles": 20, "slots": 12, "edges": 4, "components": 5})
    scenario = draw(params, calibration=Calibration.ones(params))
    replace(scenario, params=replace(params, running_scales=False)).save(tmp_path / "one")
    assert load(tmp_path / "one").running is None


@pytest.mark.parametrize(("name", "array", "message"), ARRAYS)
def test_an_array_of_another_kind_is_refused(saved, name, array, message):
    rewrite(saved, **{name: array})
    refused(saved, message)


@pytest.mark.parametrize(("change", "message"), HEADERS)
def test_a_header_without_meaning_is_refused(saved, change, message):
    rewrite(saved, change)
    refused(saved, message)


@pytest.mark.parametrize(("ending", "spoil", "message"), BYTES)
def test_a_changed_file_is_refused(saved, ending, spoil, message):
    file = saved.with_suffix(f".{ending}")
    file.write_bytes(spoil(file.read_bytes()))
    refused(saved, message)


def test_sizes_unlike_the_parameters_are_refused(saved, small):
    refused(saved, "one: edges is 4, Params has 9", Params(vehicles=20, slots=12, components=5))
    other = replace(small, penalty_weight=2.0)
    assert load(saved, other).params == other


@pytest.mark.parametrize("given", [".", "", "..", None, 5])
def test_a_path_that_names_no_file_is_refused(drawn, given):
    for use in (load, drawn.save):
        with pytest.raises(ValueError, match=rf"path='?{given}'? must be that of a scenario file"):
            use(given)


def test_a_file_that_is_not_there_is_named(saved):
    for ending in ("npz", "json"):
        saved.with_suffix(f".{ending}").unlink()
        with pytest.raises(ValueError, match=rf"one\.{ending} cannot be read: No such file"):
            load(saved)
