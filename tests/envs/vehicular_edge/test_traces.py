"""Loaders of recorded traffic on short samples, the filling of gaps, and scenarios made of them."""

import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest

from lockstep import envs
from lockstep.envs.vehicular_edge.params import PRESETS, Params
from lockstep.envs.vehicular_edge.scenario import Calibration, from_trace, gcj02, traces
from lockstep.envs.vehicular_edge.scenario.tracks import fill

SIZES = {"vehicles": 12, "slots": 8, "edges": 3, "components": 3}


def records(rows) -> traces.Records:
    """Records of (vehicle, second, x, y)."""
    vehicle, second, x, y = zip(*rows, strict=True)
    return traces.Records(np.array(vehicle), np.array(second, float), np.array(x, float), np.array(y, float))


def params_of(vehicles: int, slots: int, published: bool = False) -> Params:
    return Params(vehicles=vehicles, clients=1, slots=slots, edges=2, components=1, jumping_tracks=published)


def rows_of(found: traces.Records) -> list:
    return list(zip(found.vehicle.tolist(), found.utc_s.tolist(), found.x.tolist(), found.y.tolist(), strict=True))


# ---- loaders

HEAD = "Vehicle_ID,Global_Time,Local_X,Local_Y\n"
SPACED = "Vehicle_ID, Global_Time, Local_X, Local_Y\n"  # spaces after the commas, as people write them
NGSIM = """Vehicle_ID,Frame_ID,Global_Time,Local_X,Local_Y,Location
2,13,1118846980200,16.467,35.381,i-80
2,14,1118846980300,10,20,i-80
5,14,1118846980300,100,0,us-101
7,20,1118846999999,1,1,i-80
"""
FCD = """<?xml version="1.0"?>
<fcd-export>
  <timestep time="0.00">
    <vehicle id="veh0" x="10.5" y="-2.0" angle="90" speed="3.0"/>
  </timestep>
  <timestep time="1.00">
    <vehicle id="veh0" x="13.5" y="-2.0" angle="90" speed="3.0"/>
    <vehicle id="veh1" x="0.0" y="1.0" angle="0" speed="0.0"/>
  </timestep>
</fcd-export>
"""
SUMO = "timestep_time;vehicle_angle;vehicle_id;vehicle_speed;vehicle_x;vehicle_y\n"
SUMO += "0.00;90;7;3;10.5;-2\n1.00;90;7;3;13.5;-2\n"
TRIP = "driver,order,1475277000,30.66,104.05\n"

READ = {  # loader and its options, what is in the file, and vehicles, seconds and metres of it
    "a window and a location, in milliseconds and feet": (
        traces.ngsim, {"start_s": 1118846980.25, "seconds": 5, "Location": "i-80"}, NGSIM,
        [(2, 1118846980.3, pytest.approx(3.048), pytest.approx(6.096))],
    ),
    "Peachtree, which counts in seconds": (
        traces.ngsim, {}, HEAD + "3,1163030500,0,10\n", [(3, 1163030500.0, 0.0, pytest.approx(3.048))],
    ),
    "ids that are numbers": (
        traces.ngsim, {}, SPACED + '9.0,1000,0,0\n"1,010",1000,0,0\n', [(9, 1000, 0, 0), (1010, 1000, 0, 0)],
    ),
    "ids of which one is a name": (
        traces.ngsim, {}, SPACED + "9,1000,0,0\nbus,1000,0,0\n", [("9", 1000, 0, 0), ("bus", 1000, 0, 0)],
    ),
    "XML of SUMO": (traces.sumo_xml, {}, FCD, [("veh0", 0, 10.5, -2), ("veh0", 1, 13.5, -2), ("veh1", 1, 0, 1)]),
    "a window of it": (traces.sumo_xml, {"start_s": 1}, FCD, [("veh0", 1, 13.5, -2), ("veh1", 1, 0, 1)]),
    "CSV of SUMO": (traces.sumo_csv, {}, SUMO, [(7, 0, 10.5, -2), (7, 1, 13.5, -2)]),
    "CSV with commas": (traces.sumo_csv, {}, SUMO.replace(";", ","), [(7, 0, 10.5, -2), (7, 1, 13.5, -2)]),
    "a second without vehicles, for which SUMO's converter writes a row of nothing": (
        traces.sumo_csv, {}, "timestep_time;vehicle_id;vehicle_x;vehicle_y\n0.00;;;\n1.00;a;2;3\n", [("a", 1, 2, 3)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", READ)
def test_a_file_is_read(tmp_path, what):
    loader, options, text, expected = READ[what]
    path = tmp_path / "trace"
    path.write_text(text)
    found = loader(path, **options)
    assert rows_of(found) == expected
    assert found.source == {"file": "trace", "sha256": hashlib.sha256(text.encode()).hexdigest()}


def test_a_long_file_is_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(traces, "ROWS", 7)
    path = tmp_path / "long.csv"
    path.write_text(HEAD + "".join(f"{k},{1118846980000 + 1000 * k},1,1\n" for k in range(100)))
    assert traces.ngsim(path).vehicle.tolist() == list(range(100))
    assert traces.ngsim(path, start_s=1118847000, seconds=3).vehicle.tolist() == [
        20,
        21,
        22,
        23,
    ]  # the end belongs to it


def test_gaia_trips_become_local_metres(tmp_path):
    """Two points a thousandth of a degree of latitude and of longitude apart, shifted to GCJ-02 for the file."""
    rows = []
    for second, (longitude, latitude) in enumerate([(104.05, 30.66), (104.051, 30.661)]):
        east, north = gcj02.shift(longitude, latitude)
        rows.append(f"driver,order,{1475277000 + second},{longitude + east:.17g},{latitude + north:.17g}\n")
    path = tmp_path / "gaia.csv"
    path.write_text("".join(rows))
    found = traces.gaia(path)
    assert found.vehicle.tolist() == ["driver/order"] * 2
    assert found.utc_s.tolist() == [1475277000, 1475277001]
    np.testing.assert_allclose(found.x, [0, 6371008.8 * np.radians(0.001) * np.cos(np.radians(30.66))], atol=1e-6)
    np.testing.assert_allclose(found.y, [0, 111.19508], atol=1e-4)  # a thousandth of a degree of the mean earth
    path.write_text("driver,order,time,lon,lat\n" + "".join(rows))
    assert len(traces.gaia(path, origin=(104.0, 30.0)).x) == 2


@pytest.mark.parametrize(
    ("wgs84", "shifted"),  # latitude, longitude: points that many converters are tested with
    [
        ((31.1774276, 121.5272106), (31.17530398364597, 121.531541859215)),
        ((22.543847, 113.912316), (22.540796131694766, 113.9171764808363)),
        ((39.911954, 116.377817), (39.91334545536069, 116.38404722455657)),
    ],
)
def test_known_points_return_from_gcj02(wgs84, shifted):
    longitude, latitude = gcj02.to_wgs84(np.array(shifted[1]), np.array(shifted[0]))
    assert (latitude, longitude) == pytest.approx(wgs84, abs=1e-10)


REFUSED = [  # loader and its options, what is in the file, and the sentence
    *((traces.ngsim, {}, HEAD + f"3,1000,0,10\n3,2000,{cell},10\n", "Local_X of row 1 is no finite number")
      for cell in ("", "far", "inf")),
    (traces.ngsim, {}, SPACED + "9,1000,1,1\n,1000,1,1\n", "Vehicle_ID of row 1 is missing"),
    (traces.ngsim, {}, "Vehicle_ID,Global_Time,Local_X\n1,2,3\n", "lacks the column Local_Y; it has Vehicle_ID"),
    (traces.sumo_csv, {}, "timestep_time,vehicle_id,vehicle_x\n4,5,6\n", "lacks the column vehicle_y; it has timestep"),
    (traces.ngsim, {}, "", "not a CSV file: it is empty"),
    (traces.ngsim, {}, HEAD + "1,2,3\n1,2,3,4,5\n", "not a CSV file: .*Expected 4 fields in line 3, saw 5"),
    (traces.ngsim, {}, b"Vehicle_ID\n\xff\xfe\n", "not a CSV file: .*can't decode byte"),
    (traces.sumo_xml, {}, "", "not XML of positions: no element found"),
    (traces.sumo_xml, {}, "<html><body/></html>", "not XML of positions: it has no timestep"),
    (traces.sumo_xml, {}, "<fcd><vehicle id='1' x='1' y='1'/></fcd>", "not XML of .* a vehicle outside of a timestep"),
    (traces.sumo_xml, {}, FCD[:150], "not XML"),
    (traces.sumo_xml, {}, FCD.replace("13.5", "far"), "not XML of positions.*'far'"),
    (traces.sumo_xml, {}, FCD.replace('x="13.5" ', ""), "a vehicle lacks the attribute 'x'"),
    (traces.gaia, {}, "driver,order,1475277000,104.05\n", "has 4 columns, must have 5"),
    (traces.gaia, {}, TRIP, r"lat of row 0 is 104.05, must lie in \[-90.0, 90.0\]"),
]  # fmt: skip
WINDOWS = [
    ({"start_s": "2005-06-15"}, "start_s='2005-06-15' must be a finite number of seconds"),
    ({"start_s": np.nan}, "start_s=nan must be a finite number of seconds"),
    ({"start_s": 10**400}, "start_s=10+ must be a finite number of seconds"),
    ({"start_s": 0, "seconds": 0}, "seconds=0 must be positive"),
]


@pytest.mark.parametrize(("loader", "options", "content", "said"), REFUSED)
def test_a_file_of_other_things_is_refused(tmp_path, loader, options, content, said):
    path = tmp_path / "odd"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=f"odd: {said}"):
        loader(path, **options)


@pytest.mark.parametrize(("window", "said"), WINDOWS)
@pytest.mark.parametrize("loader", [traces.ngsim, traces.sumo_xml])
def test_a_window_of_no_time_is_refused(tmp_path, loader, window, said):
    (tmp_path / "any").write_text(NGSIM)
    with pytest.raises(ValueError, match=said):
        loader(tmp_path / "any", **window)


def test_what_is_no_place_time_or_record_is_named(tmp_path):
    trip, none, start = tmp_path / "trip", tmp_path / "none.csv", "2005-06-15 07:50:00"
    trip.write_text(TRIP)
    none.write_text(HEAD)
    two, three = params_of(2, 2), params_of(3, 2)
    table = [
        (lambda: traces.gaia(trip, origin=(104,)), r"origin=\(104,\) must be a longitude and a latitude"),
        (lambda: traces.gaia(trip, origin=("a", "b")), r"origin=\('a', 'b'\) must be a longitude and a latitude"),
        (lambda: traces.window_start(start[:10], Params(), "UTC"), "text='2005-06-15' must be a time as 2005-06-15 07"),
        (
            lambda: traces.Records([1, 2], [0.0] * 2, [0.0], [0.0] * 2),
            r"records: x has shape \(1,\), must be a vector as",
        ),
        (
            lambda: traces.Records([1, 2], [0.0] * 2, [0.0] * 2, [0.0, np.nan]),
            r"records: y\[1\] is nan, must lie in \[-1e\+09, 1e\+09\]",
        ),
        (lambda: traces.Records([1], [0.0], [1e200], [0.0]), r"records: x\[0\] is 1e\+200, must lie in \[-1e\+09"),
        (lambda: traces.Records([1], [-5.0], [0.0], [0.0]), r"records: utc_s\[0\] is -5.0, must lie in \[0, 1e\+11\]"),
        (lambda: traces.Records([1], [2e11], [0.0], [0.0]), r"records: utc_s\[0\] is 2.*, must lie in \[0, 1e\+11\]"),
        (lambda: traces.Records([{}], [0.0], [0.0], [0.0]), "records: vehicle holds object, must hold integers or str"),
        (lambda: traces.Records([1], ["noon"], [0.0], [0.0]), "records: utc_s holds no numbers"),
        (lambda: fill([], two), "records must be of traces.Records, not list"),
        (lambda: fill(traces.ngsim(none), two), r"none\.csv: has no record in the window, needs vehicles=2"),
        (
            lambda: fill(records([(1, 0, 0, 0), (2, 0, 1, 1)]), three),
            "records: has 2 vehicles in the window, needs .*=3",
        ),
    ]
    for zone in ("Los Angeles", "", None):
        said = f"zone={zone!r} must be a time zone as 'America/Los_Angeles'"
        table.append((lambda zone=zone: traces.window_start(start, Params(), zone), said))
    for call, said in table:
        with pytest.raises(ValueError, match=said):
            call()


# ---- choice and filling


def test_vehicles_with_most_records_are_taken_in_the_order_of_ids():
    rows = [(9, t, t, 0) for t in range(3)] + [(4, t, t, 5) for t in range(2)] + [(2, t, t, 7) for t in range(2)]
    xy, active, box = fill(records([*rows, (1, 0, 99, 99)]), params_of(2, 3))
    assert xy[0, :, 1].tolist() == [7, 0]  # vehicle 2 before vehicle 4 at a tie, then vehicle 9
    assert active[:, 0].tolist() == [True, True, False]
    assert box == (0, 0, 2, 7)


def test_the_map_holds_what_was_recorded_between_whole_seconds():
    """Vehicle 1 is farthest at 0.5 s and at 2.25 s, after its last whole second; vehicle 3 is not taken."""
    rows = [(1, 0, 0, 0), (1, 0.5, 30, -4), (1, 1, 5, 5), (1, 2, 6, 6), (1, 2.25, 6.5, 40)]
    rows += [(2, 0, 1, 1), (2, 1, 2, 2), (3, 0, -99, -99)]
    assert fill(records(rows), params_of(2, 3))[2] == (0, -4, 30, 40)


FILLED = {  # records, slots, if as published; of each vehicle x, y (or the one of all slots) and where it is active
    "whole seconds after the earliest record alone count": (
        [(1, 10.2 + k / 10, k, 0) for k in range(21)] + [(2, 10.7 + k / 10, -k, 0) for k in range(21)], 4, False,
        [([0, 10, 20, 20], 0, [1, 1, 1, 0]), ([-5, -5, -15, -15], 0, [0, 1, 1, 0])],  # seen at 11.2 and 12.2
    ),
    "gaps linearly, ends held": (
        [(1, 0, 0, 0), (1, 4, 8, -4), (2, 2, 1, 1), (2, 3, 2, 2)], 6, False,
        [
            ([0, 2, 4, 6, 8, 8], [0, -1, -2, -3, -4, -4], [1, 1, 1, 1, 1, 0]),
            ([1, 1, 1, 2, 2, 2], [1, 1, 1, 2, 2, 2], [0, 0, 1, 1, 0, 0]),
        ],
    ),
    "records beyond the episode still bend the track": (
        [(1, 0, 0, 0), (1, 10, 100, 0), (2, 0, 0, 0), (2, 10, 0, 0)], 3, False, [([0, 10, 20], 0, 1), (0, 0, 1)],
    ),
    "of two records of a second the first counts": (
        [(1, 0, 0, 0), (1, 1, 5, 0), (1, 1, 7, 0), (2, 0, 0, 0)], 2, False, [([0, 5], 0, 1), (0, 0, [1, 0])],
    ),
    "published gaps arrive a second early and stop": (
        [(1, 0, 0, 0), (1, 4, 9, 0), (2, 0, 5, 5)], 7, True,
        [([0, 3, 6, 9, 9, 9, 9], 0, 1), (5, 5, 1)],  # the last record ends a gap: velocity 0
    ),
    "published vehicles go on with their last velocity": (
        [(1, 0, 0, 0), (1, 1, 2, 1), (1, 2, 5, 3), (2, 0, 0, 0)], 5, True,
        [([0, 2, 5, 8, 11], [0, 1, 3, 5, 7], 1), (0, 0, 1)],
    ),
    "published vehicles seen again after three thousand years": (
        [(1, 0, 5, 0), (1, 9e10, 5, 0), (2, 0, 0, 0)], 3, True, [(5, 0, 1), (0, 0, 1)],
    ),
    "published vehicles that come late jump back": (
        [(1, 3, 10, 0), (1, 4, 12, 0), (2, 0, 0, 0)], 6, True,
        # x0 + v, then x0 + (q + 2) v at q = 1 and 2, then the records, then the last velocity.
        [([12, 16, 18, 10, 12, 14], 0, 1), (0, 0, 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", FILLED)
def test_gaps_are_filled(how):
    rows, slots, published, vehicles = FILLED[how]
    xy, active, _ = fill(records(rows), params_of(2, slots, published))
    for number, (x, y, seen) in enumerate(vehicles):
        for found, expected in ((xy[:, number, 0], x), (xy[:, number, 1], y), (active[:, number], seen)):
            np.testing.assert_array_equal(found, np.broadcast_to(expected, slots))


# ---- scenarios


@pytest.fixture
def crossing() -> traces.Records:
    """Twelve vehicles on lines of their own; vehicle 3 leaves in second 5."""
    rows = [(v, t, 10.0 * v + t, 4.0 * t * (-1) ** v) for v in range(12) for t in range(10) if v != 3 or t < 5]
    return records(rows)


def made(crossing, traced=(), **params):
    """The scenario of the twelve vehicles, on scales of one."""
    params = Params(**SIZES | params)
    return from_trace(crossing, params, calibration=Calibration.ones(params), **dict(traced))


def test_a_trace_makes_a_scenario(crossing):
    scenario = made(crossing)
    everybody = np.concatenate([scenario.xy_client, scenario.xy_server], axis=1)
    assert sorted(everybody[0, :, 0]) == [10.0 * v for v in range(12)]
    x0, y0, x1, y1 = 0, -36, 119, 36
    assert ((scenario.edge_xy >= (x0, y0)) & (scenario.edge_xy <= (x1, y1))).all()
    assert scenario.cloud_xy.tolist() == [59.5, 0]
    active = np.concatenate([scenario.active_client, scenario.active_server], axis=1)
    assert (~active).sum() == 3  # vehicle 3 in slots 5, 6 and 7
    assert (scenario.task_count[~scenario.active_client] == 0).all()


def test_edge_nodes_stand_where_they_are_put(crossing):
    places = [[0.0, 0.0], [50.0, 1.0], [100.0, 0.0]]
    scenario = made(crossing, {"edge_xy": places})
    assert scenario.edge_xy.tolist() == places
    assert scenario.pca_v2i_mean.reshape(-1, 3)[:, 1] == pytest.approx(
        np.hypot(*(scenario.xy_client - places[1]).transpose(2, 0, 1)).clip(1.0).mean(axis=0)
    )
    for wrong in (places[:2], "nowhere", [[1e200, 0.0]] * 3):
        said = re.escape(f"edge_xy {np.shape(wrong)} must be numbers (3, 2) in [-1e+09, 1e+09]")
        with pytest.raises(ValueError, match=said):
            made(crossing, {"edge_xy": wrong})
    together = replace(crossing, x=crossing.x * 0, y=crossing.y * 0 + crossing.utc_s)
    with pytest.raises(ValueError, match=r"trace: distance_v2v\[0, 0, 0\] is 0.0"):  # where nothing clamps distances
        made(together, jumping_tracks=True)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_a_file_becomes_episodes(tmp_path, preset):
    """From a recording of ten records a second to both forms of the environment, over a scenario file."""
    rows = [(v, 1118847000000 + 100 * k, 40.0 * v + 3.0 * k, 11.0 * v) for v in range(12) for k in range(100)]
    path = tmp_path / "ngsim.csv"
    path.write_text(HEAD + "".join("{},{},{},{}\n".format(*row) for row in rows))
    params = Params(**PRESETS[preset] | SIZES)
    start = traces.window_start("2005-06-15 07:50:00", Params(), "America/Los_Angeles")
    assert start == 1118847000  # 14:50 UTC in June
    scenario = from_trace(traces.ngsim(path, start_s=start), params, name="mine")
    scenario.save(tmp_path / "mine")
    original = envs.make_original("vehicular_edge", scenario=tmp_path / "mine")
    form = envs.make_arrays("vehicular_edge", 2, scenarios=original.scenarios, dtype="float64")
    observations, _ = original.reset()
    np.testing.assert_allclose(form.reset()[1], observations["allocation"], rtol=1e-6)
    for action in form.random_actions(params.slots):
        vectors = dict(zip(original.possible_agents, action[1], strict=True))
        _, rewards, _, truncated, _ = original.step(vectors)
        assert form.step(action)[1][1] == pytest.approx(rewards["offloading"], rel=1e-9)
    assert truncated["offloading"] and original.scenarios[0].source["file"] == "ngsim.csv"


def test_a_trace_has_scales_of_its_own_and_of_the_original_preset_all_vehicles_stay(crossing):
    own = from_trace(crossing, Params(**SIZES)).calibration
    assert own.size == made(crossing).task_size.max() and own.backlog.min() > 0
    scenario = from_trace(crossing, Params(**PRESETS["original"] | SIZES))
    assert scenario.active_client.all() and scenario.running["max_lc"].max() > 0
