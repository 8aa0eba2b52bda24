"""Scenario files, records of episodes, and readers of published files."""

import dataclasses
import itertools
import json
import re
import sys

import numpy as np
import pytest

from lockstep.envs import reading
from lockstep.envs.vehicle_routing.oracles import make_oracle
from lockstep.envs.vehicle_routing.original import get_state
from lockstep.envs.vehicle_routing.params import Params, make_params
from lockstep.envs.vehicle_routing.scenario import Scenario, city, li_lim, load, save, save_episodes, solomon
from tests.envs.vehicle_routing.worlds import RIDE, TRIANGLE, make, opened, scene

P = Params(requests=4)
cities, scenarios = (sys.modules[f"{Scenario.__module__.rpartition('.')[0]}.{name}"] for name in ("city", "scenario"))
FIELDS = [field.name for field in dataclasses.fields(Scenario)]


def same(one: Scenario, other: Scenario) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in FIELDS)


# ---- our own


def test_a_city_is_read_as_it_was_written(tmp_path):
    given = city(3, P, zones=5, trips=6)
    save(tmp_path / "days" / "small.json", given)
    for name in ("small", "small.npz", "small.json"):
        assert same(load(tmp_path / "days" / name), given)
    header = json.loads((tmp_path / "days" / "small.json").read_text())
    assert header["params"] == {"mode": "darp", "Q": 8, "H": 14_400, "K": 5} and header["seed"] == 3
    with np.load(tmp_path / "days" / "small.npz") as stored:
        assert stored["trip"].shape == (4, 6, 6) and stored["threshold"].shape == (4, 6, 2)
        assert stored["travel"].dtype == np.int32 and stored["zone_xy"].dtype == np.float64


def test_fixed_instances_are_stored_by_instance(tmp_path):
    rows = np.array([[RIDE, RIDE, RIDE], [RIDE, RIDE, RIDE]])
    given = Scenario(
        travel=TRIANGLE, trip=rows, type=[0, 3], service=np.arange(12).reshape(2, 3, 2), fixed=True,
        demand=np.arange(1, 7).reshape(2, 3), horizon=10_000, capacity=9, fleet_size=2, mode="darp",
    )  # fmt: skip
    save(tmp_path / "fixed", given)
    assert same(load(tmp_path / "fixed"), given)
    with np.load(tmp_path / "fixed.npz") as stored:
        assert stored["instance"].shape == (3, 2, 6) and stored["service"].shape == (3, 2, 2)
        assert stored["demand"].tolist() == [[1, 4], [2, 5], [3, 6]] and "trip" not in stored


def test_service_of_drawn_trips_has_no_place_in_a_file(tmp_path):
    given = dataclasses.replace(city(3, P, zones=5, trips=6), service=np.ones((4, 6, 2)))
    with pytest.raises(ValueError, match="service of trips that are not fixed must be 0 in a file"):
        save(tmp_path / "a", given)


def test_a_path_that_is_none_and_a_place_that_holds_no_file_are_named(tmp_path):
    for path in (5, None, b"a", ""):
        with pytest.raises(ValueError, match=re.escape(f"path={path!r} must be that of a scenario file")):
            load(path)
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "file").touch()
    for path, place in (("folder", "folder.npz"), ("file/a", "file")):
        with pytest.raises(ValueError, match=f"{place} cannot be written: "):
            save(tmp_path / path, scene())


def test_a_file_that_was_changed_is_refused(tmp_path):
    save(tmp_path / "a", scene())
    text, binary = tmp_path / "a.json", tmp_path / "a.npz"
    kept = text.read_text(), binary.read_bytes()

    def refused(said):
        with pytest.raises(ValueError, match=re.escape(said)):
            load(tmp_path / "a")
        text.write_text(kept[0])
        binary.write_bytes(kept[1])

    text.write_text(kept[0].replace('"Q": 8', '"Q": 9'))
    refused("a.json: its SHA-256 is")
    binary.write_bytes(kept[1][:-1] + b"x")
    refused("a.npz: its SHA-256 is")
    for broken in ("{", "[" * 100_000):
        text.write_text(broken)
        refused("a.json: not JSON")
    text.write_text('{"version": 2}')
    refused("a.json: version is 2, must be 1")
    with pytest.raises(ValueError, match="nowhere.json cannot be read"):
        load(tmp_path / "nowhere")


def rewritten(path, change):
    """A file whose arrays and header were changed, hashes and all."""
    import hashlib

    with np.load(path.with_suffix(".npz")) as stored:
        arrays = dict(stored)
    header = json.loads(path.with_suffix(".json").read_text())
    header.pop("sha256")
    change(arrays, header["params"])
    np.savez(path.with_suffix(".npz"), **arrays)
    header["sha256_npz"] = hashlib.sha256(path.with_suffix(".npz").read_bytes()).hexdigest()
    header["sha256"] = hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()
    path.with_suffix(".json").write_text(json.dumps(header))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda arrays, params: arrays.pop("travel"), "a.npz: travel is missing"),
        (lambda arrays, params: arrays.pop("demand"), "a.npz: demand is missing"),
        (lambda arrays, params: params.pop("Q"), "a.json: params.Q is missing"),
        (lambda arrays, params: params.update(H=0), "a.json: params.H=0 must be an integer from 1"),
        (lambda arrays, params: params.update(mode="vrp"), "a.json: params.mode='vrp' must be one of 'darp', 'vrptw'"),
        (lambda arrays, params: arrays.update(demand=np.ones(2)), "a.npz: demand has shape (2,), must have 2 axes"),
        (
            lambda arrays, params: arrays.update(depot=np.zeros(2, int)),
            "a.npz: depot is int64 (2,), must be one whole number",
        ),
        (lambda arrays, params: arrays.update(depot=0.5), "a.npz: depot is float64 (), must be one whole number"),
        (
            lambda arrays, params: arrays.update(zone_xy=np.array([["a", "b"]] * 3)),
            "zone_xy is <U1 (3, 2), must hold numbers in 2 axes",
        ),
        (
            lambda arrays, params: arrays.update(type=np.array(["both"])),
            "type is <U4 (1,), must hold numbers in 1 axes",
        ),
    ],
)
def test_a_file_without_a_part_is_refused(tmp_path, change, said):
    save(tmp_path / "a", scene())
    rewritten(tmp_path / "a", change)
    with pytest.raises(ValueError, match=re.escape(said)):
        load(tmp_path / "a")


def test_optional_parts_have_defaults(tmp_path):
    save(tmp_path / "a", scene())
    rewritten(tmp_path / "a", lambda arrays, params: [arrays.pop(name) for name in ("zone_xy", "threshold")])
    found = load(tmp_path / "a")
    assert not found.threshold.any() and found.zone_xy.shape == (3, 2)
    assert np.hypot(*(found.zone_xy[1] - found.zone_xy[2])) == pytest.approx(120)


def test_episodes_are_recorded_in_order_of_arrival(tmp_path):
    env, states = make(requests=5, seed=4), []
    for _ in range(2):
        env.reset()
        for action in (0, 3, 12, 15, 5):
            env.step(action)
        states.append(get_state(env))
    path = save_episodes(tmp_path / "days" / "episodes.1", env.scenario, env.params, states)
    assert path == tmp_path / "days" / "episodes.1.npz"
    with np.load(path) as stored:
        shapes = {"zone": (2, 5, 2), "offered": (2, 5, 4), "kept": (2, 5, 4), "type": (2, 5), "threshold": (2, 5, 2)}
        shapes |= {"action": (2, 5), "accepted": (2, 5), "walk": (2, 16), "cost": (2,), "travel": (31, 31), "Q": ()}
        assert all(stored[name].shape == shape for name, shape in shapes.items())
        assert (stored["Q"], stored["H"], stored["depot"]) == (8, 14_400, env.scenario.depot)
        assert stored["action"].tolist() == [[0, 3, 12, 15, 5]] * 2
        moved = (stored["kept"] - stored["offered"])[:, :, [0, 2]]
        assert (moved[stored["accepted"] == 0] == 0).all() and stored["accepted"][:, 2].all()
        order = [env.scenario.type[state["order"]].tolist() for state in states]
        assert stored["type"].tolist() == order and stored["cost"].tolist() == [int(s["cost"]) for s in states]
    for wrong, said in (
        ([], "states=[] must hold one"),
        ([{name: value for name, value in states[0].items() if name != "walk"}], "states[0] has no 'walk', must be"),
        ([get_state(opened())], "states[0] is of an episode after 0 of"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            save_episodes(tmp_path / "none", env.scenario, env.params, wrong)


# ---- published formats

SOLOMON = """R1

VEHICLE
NUMBER     CAPACITY
  25         200

CUSTOMER
CUST NO.  XCOORD.   YCOORD.    DEMAND   READY TIME  DUE DATE   SERVICE   TIME

    0      35         35          0          0       230          0
    1      41         49         10        161       171         10
    2      35         17          7         50        60         10
"""
LI_LIM = """2 30 1
0 0 0 0 0 1000 0 0 0
1 3 4 10 0 500 5 0 3
2 6 8 -20 20 600 6 4 0
3 0 5 -10 10 600 7 1 0
4 1 1 20 0 500 8 0 2
"""


def written(tmp_path, text: str):
    path = tmp_path / "file.txt"
    path.write_text(text)
    return path


def test_solomons_file_by_hand(tmp_path):
    found = solomon(written(tmp_path, SOLOMON))
    assert found.travel.tolist() == [[0, 152, 180], [152, 0, 325], [180, 325, 0]]  # sqrt 232, 18, sqrt 1060
    assert found.trip[:, 0].tolist() == [[1, 1610, 1710] * 2, [2, 500, 600] * 2]
    assert found.service[:, 0].tolist() == [[100, 100]] * 2 and found.demand[:, 0].tolist() == [10, 7]
    assert (found.capacity, found.fleet_size, found.horizon, found.mode, found.fixed) == (200, 25, 2300, "vrptw", True)
    assert solomon(str(written(tmp_path, SOLOMON)), 1000, rounded=True).travel[0].tolist() == [0, 15_232, 18_000]
    env = make(scenario=found)
    assert env.params == make_params(requests=2, capacity=200, fleet_size=25, horizon=230.0, mode="vrptw")
    env.reset()
    env.step(12)
    assert env.step(12)[4]["cost"] == 152 + 325 + 180


def test_li_and_lims_file_by_hand(tmp_path):
    found = li_lim(written(tmp_path, LI_LIM), types="none")
    assert found.travel[0].tolist() == [0, 50, 100, 50, 14]
    assert found.trip[:, 0].tolist() == [[1, 0, 5000, 3, 100, 6000], [4, 0, 5000, 2, 200, 6000]]
    assert found.service[:, 0].tolist() == [[50, 70], [80, 60]] and found.demand[:, 0].tolist() == [10, 20]
    assert (found.capacity, found.fleet_size, found.horizon, found.mode) == (30, 2, 10_000, "darp")
    assert found.type.tolist() == [2, 2]
    env = make(scenario=found, oracle="brute")
    env.reset()
    env.step(12)
    info = env.step(12)[4]
    zones = [[0, 1, 3, 4, 2][node] for node in info["walk"]]
    assert info["cost"] == sum(int(found.travel[a, b]) for a, b in itertools.pairwise(zones))


def test_times_are_whole_numbers_of_ticks(tmp_path):
    """1.1 units are 11 ticks, though 10 * 1.1 is none as a float."""
    found = li_lim(written(tmp_path, LI_LIM.replace("1 3 4 10 0 500 5", "1 3 4 10 0 1.1 1.1")), types="none")
    assert found.trip[0, 0].tolist() == [1, 0, 11, 3, 100, 6000] and found.service[0, 0].tolist() == [11, 70]


def test_types_and_thresholds_of_readers(tmp_path):
    path = written(tmp_path, LI_LIM)
    assert li_lim(str(path), types=[1, 3]).type.tolist() == [1, 3]
    drawn = np.concatenate([li_lim(path, seed=seed).type for seed in range(300)])
    assert np.bincount(drawn).min() > 100
    assert set(np.unique(li_lim(path).threshold)) <= set(range(0, 301, 50))
    for types, said in (("uniforn", "types='uniforn' must be one of 'uniform', 'late'"), ([1], "or 2 numbers")):
        with pytest.raises(ValueError, match=re.escape(said)):
            li_lim(path, types=types)
    with pytest.raises(ValueError, match="seed=-1 must be an integer from 0"):
        li_lim(path, seed=-1)


def test_distances_that_were_cut_off_can_be_closed(tmp_path):
    """1, 1 and 2.0 units: 14 + 14 < 28.28 cut to 28 holds; 1.96, 1.96, 3.92 give 19 + 19 < 39."""
    text = "2 30 1\n0 0 0 0 0 100 0 0 0\n1 1.96 0 1 0 50 0 0 2\n2 3.92 0 -1 0 90 0 1 0\n"
    found = li_lim(written(tmp_path, text), types="none")
    assert found.travel.tolist() == [[0, 19, 39], [19, 0, 19], [39, 19, 0]]
    with pytest.warns(
        UserWarning, match=re.escape("2 of travel's triangles are violated, worst 0 -> 1 -> 2, which is 1 ticks")
    ):
        make(scenario=found)
    assert li_lim(written(tmp_path, text), types="none", closure=True).travel[0, 2] == 38


@pytest.mark.parametrize(
    ("reader", "old", "new", "said"),
    [
        (solomon, "  25         200\n", "  25\n", "must have a line of two numbers"),
        (solomon, "CUST NO.", "NO.", "before one of CUST NO."),
        (solomon, "         10\n    2", "\n    2", "line 11: '1 41 49 10 161 171' must be 7 numbers: number, x"),
        (solomon, "    2      35", "    2      3x5", "line 12: '2 3x5 17 7 50 60 10' must be 7 numbers"),
        (solomon, "    2      35", "    1      35", "line 12: number 1 stands in line 11 already"),
        (solomon, "    2      35", "    5      35", "line 12: number 5 must be 2"),
        (solomon, "0          0       230", "3          0       230", "line 10: demand, ready time and service"),
        (solomon, "    2      35", "    2      inf", "line 12: '2 inf 17 7 50 60 10' must be finite"),
        (li_lim, "2 30 1\n", "2 30\n", "line 1: '2 30' must be 3 numbers: vehicles, capacity, speed"),
        (li_lim, "500 5 0 3", "500 5 0 0", "line 3: pickup=0, delivery=0: one of them must be 0"),
        (li_lim, "500 5 0 3", "500 5 0 9", "line 3: partner 9 must be from 1 to 4"),
        (li_lim, "500 5 0 3", "500 5 0 2", "line 3: partner 2 must point back to 1"),
        (li_lim, "3 0 5 -10", "3 0 5 -11", "line 3: demand=10 must be 11"),
        (li_lim, "1 3 4 10", "1 3 4 -10", "line 3: demand=-10 must be 10"),
        (solomon, "  25         200\n", "  25         0\n", "line 5: capacity=0 must be an integer from 1 to 1000000"),
        (solomon, "  25         200\n", "  25         9.5\n", "line 5: capacity=9.5 must be an integer from 1"),
        (li_lim, "2 30 1\n", "0 30 1\n", "line 1: vehicles=0 must be an integer from 1 to 1000000"),
        (solomon, "41         49         10", "41         49         0", "line 11: demand=0 must be an integer from 1"),
        (li_lim, "1 3 4 10 0 500 5", "1 3 4 10 -5 500 5", "line 3: ready time=-5 must be from 0 to 1000"),
        (li_lim, "1 3 4 10 0 500 5", "1 3 4 10 600 500 5", "line 3: due date=500 must be from 600 to 1000"),
        (li_lim, "1 3 4 10 0 500 5", "1 3 4 10 0 1001 5", "line 3: due date=1001 must be from 0 to 1000"),
        (li_lim, "1 3 4 10 0 500 5", "1 3 4 10 0 500.25 5", "line 3: due date=500.25 must be a multiple of 0.1"),
        (li_lim, "1 3 4 10 0 500 5", "1 3 4 10 0 500 -5", "line 3: service time=-5 must be from 0 to 1000"),
        (li_lim, "0 0 0 0 0 1000 0", "0 0 0 0 0 0 0", "line 2: due date=0 must be from 0.1 to"),
    ],
)  # fmt: skip
def test_a_broken_file_is_named_by_its_line(tmp_path, reader, old, new, said):
    text = SOLOMON if reader is solomon else LI_LIM
    assert text.count(old) == 1
    with pytest.raises(ValueError, match="file.txt.*" + re.escape(said)):
        reader(written(tmp_path, text.replace(old, new)))


def test_a_file_without_lines_is_refused(tmp_path):
    for reader in (solomon, li_lim):
        with pytest.raises(ValueError, match=r"file.txt: is empty"):
            reader(written(tmp_path, "\n"))
        with pytest.raises(ValueError, match="cannot be read"):
            reader(tmp_path / "nowhere.txt")
    with pytest.raises(ValueError, match="must have a line of the depot and one of each customer, has 1"):
        li_lim(written(tmp_path, "2 30 1\n0 0 0 0 0 1000 0 0 0\n"))


@pytest.mark.parametrize("reader", [load, solomon, li_lim])
@pytest.mark.parametrize("path", [None, 5, b"x", "", "."])
def test_a_path_that_is_none_is_named_by_every_reader(reader, path):
    with pytest.raises(ValueError, match=re.escape(f"path={path!r} must be that of a ")):
        reader(path)


def test_flags_and_units_that_are_none_are_refused(tmp_path):
    with pytest.raises(ValueError, match="rounded='yes' must be one of False, True"):
        li_lim(written(tmp_path, LI_LIM), rounded="yes")
    with pytest.raises(ValueError, match="closure='x' must be one of False, True"):
        solomon(written(tmp_path, SOLOMON), closure="x")
    save(tmp_path / "a", city(3, P, zones=5, trips=6))
    with pytest.raises(ValueError, match="closure='x' must be one of False, True"):
        load(tmp_path / "a", closure="x")
    for name, wrong, said in (
        ("units", "miles", "units is 'miles', must be {'time'"),
        ("version", True, "version is True, must be 1"),
    ):
        header = json.loads((tmp_path / "a.json").read_text()) | {name: wrong}
        (tmp_path / "b.json").write_text(json.dumps(header))
        (tmp_path / "b.npz").touch()
        with pytest.raises(ValueError, match=f"b.json: {re.escape(said)}"):
            load(tmp_path / "b")


def test_speeds_that_times_do_not_mean_are_refused(tmp_path):
    head, rest = LI_LIM.split("\n", 1)
    wrong = "\n".join([" ".join([*head.split()[:2], "-7"]), rest])
    with pytest.raises(ValueError, match="line 1: speed=-7 must be 1, so that times are distances"):
        li_lim(written(tmp_path, wrong))


def test_files_that_are_no_files_or_too_large_are_refused_at_once(tmp_path, monkeypatch):
    endless = tmp_path / "endless"
    for suffix in (".json", ".txt"):
        endless.with_suffix(suffix).symlink_to("/dev/zero")
    for ask in (lambda: load(endless), lambda: li_lim(endless.with_suffix(".txt"))):
        with pytest.raises(ValueError, match=r"endless\.\w+ cannot be read: no regular file"):
            ask()
    monkeypatch.setattr(reading, "MOST", 10)
    with pytest.raises(ValueError, match="file.txt has more than 10 bytes, which is the most"):
        li_lim(written(tmp_path, LI_LIM))


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    save(tmp_path / "a", city(3, P, zones=5, trips=6))
    before = (tmp_path / "a.npz").read_bytes()

    def fill(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", fill)
    with pytest.raises(ValueError, match="a.npz cannot be written: No space left on device"):
        save(tmp_path / "a", city(2, P, zones=5, trips=6))
    assert (tmp_path / "a.npz").read_bytes() == before
    assert same(load(tmp_path / "a"), city(3, P, zones=5, trips=6))


def test_objects_of_another_kind_are_refused_in_a_sentence(tmp_path):
    for ask, said in (
        (lambda: city(types=[1]), "types=[1] must be one of"),
        (lambda: city(params={}), "params={} must be Params, or None"),
        (lambda: city(params=3), "params=3 must be Params, or None"),
        (lambda: make_oracle("insertion", 3, TRIANGLE), "params=3 must be Params"),
        (lambda: save(tmp_path / "a", 3), "scenario=3 must be a Scenario"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            ask()


def test_many_trips_are_looked_at_in_parts(monkeypatch):
    """The same trips as at once, and the same of them is named."""
    whole = city(5, P, zones=5, trips=9)
    for module in (cities, scenarios):
        monkeypatch.setattr(module, "CHUNK", 7)
    again = cities._city.__wrapped__(P, "census", 5, 5, 9)
    assert np.array_equal(whole.trip, again.trip)
    late = again.trip.copy()
    late[3, 8] = [1, 0, 1, 2, 2, 3]
    with pytest.raises(ValueError, match="trip 8 of traveller 3 under"):
        dataclasses.replace(again, trip=late).check(P)


# ---- what a scenario refuses


NO_TRIPS = {"trip": np.zeros((2, 0, 6)), **dict.fromkeys(("trip_count", "threshold", "service", "demand"))}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"travel": np.zeros((2, 3))}, "travel has shape (2, 3), must be square"),
        ({"travel": [[0, -1, 1], [1, 0, 1], [1, 1, 0]]}, "travel[0, 1] is -1, must not be negative"),
        ({"travel": [[0, 1, 1], [1, 5, 1], [1, 1, 0]]}, "travel[1, 1] is 5, must be 0, from a zone to itself"),
        ({"travel": [[0, 1, 1], [1, 0, 1], [1, 20_000, 0]]}, "travel[2, 1] is 20000, must be at most 14400"),
        ({"depot": 3}, "depot=3 must be an integer from 0 to 2"),
        ({"type": [0, 4]}, "type of traveller 1=4 must be an integer from 0 to 3"),
        ({"type": [0]}, "type has shape (1,), must have (2,)"),
        ({"trip_count": [1, 0], "fixed": False}, "trips of traveller 1=0 must be an integer from 1 to 1"),
        (NO_TRIPS, "trips of traveller 0=0 must be an integer from 1 to 1"),
        ({"threshold": np.zeros((2, 3, 2))}, "threshold has shape (2, 3, 2), must have (2, 1, 2)"),
        ({"demand": [[1], [9]]}, "demand=9 of trip 0 of traveller 1 must be from 1 to 8"),
        ({"demand": [[0], [1]]}, "demand=0 of trip 0 of traveller 0 must be from 1 to 8"),
        ({"trip": [[[3, 0, 9, 1, 0, 9]]] * 2}, "zone=3 of trip 0 of traveller 0 must be from 0 to 2"),
        ({"trip": [[RIDE], [[1, 6000, 5999, 2, 6120, 6420]]]}, "l=5999 of trip 0 of traveller 1 must be from 6000"),
        ({"trip": [[RIDE], [[1, -5, 5999, 2, 6120, 6420]]]}, "e=-5 of trip 0 of traveller 1 must be from 0 to 14400"),
        ({"trip": [[RIDE], [[1, 0, 5999, 2, 0, 14_401]]]}, "l'=14401 of trip 0 of traveller 1 must be from 0 to 14400"),
        ({"service": [[[0, 0]], [[0, -1]]]}, "service'=-1 of trip 0 of traveller 1 must be from 0 to 14400"),
        ({"zone_xy": [[0, 0], [0, np.nan], [1, 1]]}, "zone_xy must be finite"),
        ({"zone_xy": [[0, 0], [0, 1e308], [1, -1e308]]}, "zone_xy must be finite, from -1e+09 to 1e+09 km"),
    ],
)  # fmt: skip
def test_a_scenario_without_meaning_is_refused(change, said):
    given = dataclasses.replace(scene(), **change)
    with pytest.raises(ValueError, match=re.escape(said)):
        given.check(Params(requests=2))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"travel": [[0, 0.5], [1, 0]]}, "travel[0, 1] is 0.5, must be a whole number of int32"),
        ({"travel": [[0, np.inf], [1, 0]]}, "travel[0, 1] is inf, must be a whole number of int32"),
        ({"type": ["both"]}, "type is <U4 (1,), must hold numbers in 1 axes"),
        ({"trip": [1, 2]}, "trip is int64 (2,), must hold numbers in 3 axes"),
        ({"trip": [[RIDE], [RIDE, RIDE]]}, "trip has rows of different lengths, must hold numbers in 3 axes"),
        ({"zone_xy": [[0, 1], [2]]}, "zone_xy has rows of different lengths, must hold numbers in 2 axes"),
        ({"travel": None}, "travel is object (), must hold numbers in 2 axes"),
        ({"fixed": "yes"}, "fixed='yes' must be one of False, True"),
        ({"mode": "vrp"}, "mode='vrp' must be one of 'darp', 'vrptw'"),
        ({"horizon": "x"}, "horizon='x' must be an integer from 1 to 10000000"),
        ({"horizon": None}, "horizon=None must be an integer from 1 to 10000000"),
        ({"capacity": 0}, "capacity=0 must be an integer from 1 to 1000000"),
        ({"seed": "x"}, "seed='x' must be an integer from 0 to"),
    ],
)
def test_arrays_hold_whole_numbers(change, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Scenario(**{"travel": TRIANGLE, "trip": [[RIDE]], "type": [0]} | change)


def test_costs_stay_within_int32():
    """Walks over n requests have 3n + 1 places: 1000 of them 3001 legs, of at most 4,900,000 ticks."""
    far = {"travel": [[0, 4_900_000], [4_900_000, 0]], "horizon": 10**7, "mode": "vrptw", "fixed": True}
    for n, said in (
        (1000, "scenario: walks over 1000 requests may cost 14705400000 ticks, must be at most"),
        (100, None),
    ):
        given = Scenario(**far, trip=np.tile([1, 0, 10**7, 1, 0, 10**7], (n, 1, 1)), type=[2] * n)
        params = Params(requests=n, mode="vrptw", horizon=1e6)
        if said:
            with pytest.raises(ValueError, match=said):
                given.check(params)
        else:
            assert given.check(params) is given


def test_a_trip_that_cannot_be_served_alone_is_named():
    """A pickup at 5 min that is 10 min away; one that only an accepted shift makes too late; a late return."""
    early = [1, 50, 50, 2, 200, 300]
    with pytest.raises(
        ValueError, match=re.escape("trip 0 of traveller 1 under shift (0, 0) min: depot to pickup is 5.0")
    ):
        scene([RIDE, early], [2, 2]).check(Params(requests=2))
    soon = [1, 300, 350, 2, 500, 700]
    assert scene([soon], [0]).check(Params(requests=1))
    with pytest.raises(
        ValueError, match=re.escape("of traveller 0 under shift (-30, 0) min: depot to pickup is 5.0 min")
    ):
        scene([soon], [1]).check(Params(requests=1))
    p = Params(requests=1, threshold_acceptance=True)
    assert scene([soon], [1], threshold=[[[200, 0]]]).check(p)
    with pytest.raises(ValueError, match=re.escape("under shift (-30, 0) min")):
        scene([soon], [0], threshold=[[[300, 0]]]).check(p)
    late = [1, 6000, 6300, 2, 14_190, 14_250]
    with pytest.raises(ValueError, match=re.escape("under shift (0, 10) min: drop-off to depot is 9.0 min late")):
        scene([late], [0]).check(Params(requests=1))
    drawn = dataclasses.replace(scene([soon], [2]), fixed=False)
    with pytest.raises(
        ValueError, match=re.escape("under pre-shift (30, 10) min and shift (0, 0) min: depot to pickup")
    ):
        drawn.check(Params(requests=1))
    assert drawn.check(Params(requests=1, preshift=False))


def test_rides_shorter_than_shifts_need_are_refused():
    c = city(params=P)
    rides = c.trip[:, :, 4] - c.trip[:, :, 1]
    for preshift, more in ((True, 900), (False, 300)):
        least = (rides.max() + more) / 10
        assert c.check(Params(requests=4, preshift=preshift, max_ride=least))
        with pytest.raises(
            ValueError, match=re.escape(f"max_ride={least - 1} must be at least {least}, or 0 for none")
        ):
            c.check(Params(requests=4, preshift=preshift, max_ride=least - 1))


def test_parameters_must_be_the_scenarios():
    with pytest.raises(ValueError, match="requests=3 must be 2, the travellers of the scenario"):
        make(scenario=scene(), requests=3)
    with pytest.raises(ValueError, match="mode='vrptw' must be 'darp', as the scenario has it"):
        make(scenario=scene(), mode="vrptw")
    with pytest.raises(ValueError, match="scenario=3 must be a Scenario, a path of a scenario file, or None"):
        make(scenario=3)
