"""Loaders of recorded traffic on short samples, the filling of gaps, and scenarios made of them."""

import hashlib
import time
from dataclasses import replace

import numpy as np
import pytest

from lockstep import envs
from lockstep.envs.vehicular_edge.params import PRESETS, Params
from lockstep.envs.vehicular_edge.scenario import Calibration, from_trace, gcj02, traces
from lockstep.envs.vehicular_edge.scenario.tracks import fill


def records(rows) -> traces.Records:
    """Records of (vehicle, second, x, y)."""
    vehicle, second, x, y = zip(*rows, strict=True)
    return traces.Records(np.array(vehicle), np.array(second, float), np.array(x, float), np.array(y, float))


def params_of(vehicles: int, slots: int, published: bool = False) -> Params:
    return Params(vehicles=vehicles, clients=1, slots=slots, edges=2, components=1, jumping_tracks=published)


def rows_of(found: traces.Records) -> list:
    return list(zip(found.vehicle.tolist(), found.utc_s.tolist(), found.x.tolist(), found.y.tolist(), strict=True))


# ---- loaders


NGSIM = """Vehicle_ID,Frame_ID,Global_Time,Local_X,Local_Y,Location
2,13,1118846980200,16.467,35.381,i-80
2,14,1118846980300,10,20,i-80
5,14,1118846980300,100,0,us-101
7,20,1118846999999,1,1,i-80
"""


def test_ngsim_is_read_in_metres_and_seconds(tmp_path):
    path = tmp_path / "ngsim.csv"
    path.write_text(NGSIM)
    found = traces.ngsim(path)
    assert rows_of(found)[1] == (2, 1118846980.3, pytest.approx(3.048), pytest.approx(6.096))
    assert len(found.vehicle) == 4
    assert found.source == {"file": "ngsim.csv", "sha256": hashlib.sha256(NGSIM.encode()).hexdigest()}


def test_a_window_and_a_location_are_cut_out(tmp_path):
    path = tmp_path / "ngsim.csv"
    path.write_text(NGSIM)
    found = traces.ngsim(path, start_s=1118846980.25, seconds=5, Location="i-80")
    assert rows_of(found) == [(2, 1118846980.3, pytest.approx(3.048), pytest.approx(6.096))]


def test_peachtree_counts_in_seconds(tmp_path):
    path = tmp_path / "peachtree.csv"
    path.write_text("Vehicle_ID,Global_Time,Local_X,Local_Y\n3,1163030500,0,10\n")
    assert rows_of(traces.ngsim(path)) == [(3, 1163030500.0, 0.0, pytest.approx(3.048))]


def test_a_long_file_is_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(traces, "ROWS", 7)
    path = tmp_path / "long.csv"
    rows = "".join(f"{k},{1118846980000 + 1000 * k},1,1\n" for k in range(100))
    path.write_text(f"Vehicle_ID,Global_Time,Local_X,Local_Y\n{rows}")
    assert traces.ngsim(path).vehicle.tolist() == list(range(100))
    assert traces.ngsim(path, start_s=1118847000, seconds=3).vehicle.tolist() == [20, 21, 22]


@pytest.mark.parametrize(("loader", "missing"), [(traces.ngsim, "Local_Y"), (traces.sumo_csv, "vehicle_y")])
def test_a_missing_column_is_named(tmp_path, loader, missing):
    path = tmp_path / "short.csv"
    path.write_text("Vehicle_ID,Global_Time,Local_X,timestep_time,vehicle_id,vehicle_x\n1,2,3,4,5,6\n")
    with pytest.raises(ValueError, match=rf"short\.csv: lacks the column {missing}; it has Vehicle_ID"):
        loader(path)


def test_a_file_without_rows_has_no_records(tmp_path):
    path = tmp_path / "none.csv"
    path.write_text("Vehicle_ID,Global_Time,Local_X,Local_Y\n")
    with pytest.raises(ValueError, match=r"none\.csv: has no record in the window, needs vehicles=2"):
        fill(traces.ngsim(path), params_of(2, 2))
    path.write_text("")
    with pytest.raises(ValueError, match=r"none\.csv: not a CSV file"):
        traces.ngsim(path)


@pytest.mark.parametrize("cell", ["", "far", "inf"])
def test_a_number_that_is_none_is_named(tmp_path, cell):
    path = tmp_path / "gap.csv"
    path.write_text(f"Vehicle_ID,Global_Time,Local_X,Local_Y\n3,1000,0,10\n3,2000,{cell},10\n")
    with pytest.raises(ValueError, match=r"gap\.csv: Local_X of row 1 is no finite number"):
        traces.ngsim(path)


def test_ids_are_numbers_where_all_are(tmp_path):
    path = tmp_path / "ids.csv"
    head = "Vehicle_ID, Global_Time, Local_X, Local_Y\n"  # spaces after the commas, as people write them
    path.write_text(head + '9.0,1000,1,1\n"1,010",1000,1,1\n')
    assert traces.ngsim(path).vehicle.tolist() == [9, 1010]
    path.write_text(head + "9,1000,1,1\nbus,1000,1,1\n")
    assert traces.ngsim(path).vehicle.tolist() == ["9", "bus"]
    path.write_text(head + "9,1000,1,1\n,1000,1,1\n")
    with pytest.raises(ValueError, match=r"ids\.csv: Vehicle_ID of row 1 is missing"):
        traces.ngsim(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"Vehicle_ID,Global_Time,Local_X,Local_Y\n1,2,3\n1,2,3,4,5\n", "Expected 4 fields in line 3, saw 5"),
        (b"Vehicle_ID\n\xff\xfe\n", "can't decode byte"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, content, said):
    path = tmp_path / "odd.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"odd\.csv: not a CSV file: .*{said}"):
        traces.ngsim(path)


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ({"start_s": "2005-06-15"}, "start_s='2005-06-15' must be a finite number of seconds"),
        ({"start_s": np.nan}, "start_s=nan must be a finite number of seconds"),
        ({"start_s": 0, "seconds": 0}, "seconds=0 must be positive"),
    ],
)
@pytest.mark.parametrize("loader", [traces.ngsim, traces.sumo_xml])
def test_a_window_of_no_time_is_refused(tmp_path, loader, window, said):
    path = tmp_path / "any"
    path.write_text(NGSIM)
    with pytest.raises(ValueError, match=said):
        loader(path, **window)


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


def test_sumo_xml_is_read(tmp_path):
    path = tmp_path / "fcd.xml"
    path.write_text(FCD)
    assert rows_of(traces.sumo_xml(path)) == [("veh0", 0, 10.5, -2), ("veh0", 1, 13.5, -2), ("veh1", 1, 0, 1)]
    assert rows_of(traces.sumo_xml(path, start_s=1)) == [("veh0", 1, 13.5, -2), ("veh1", 1, 0, 1)]


@pytest.mark.parametrize("separator", [";", ","])
def test_sumo_csv_is_read_with_either_separator(tmp_path, separator):
    path = tmp_path / "fcd.csv"
    text = "timestep_time;vehicle_angle;vehicle_id;vehicle_speed;vehicle_x;vehicle_y\n"
    text += "0.00;90;7;3;10.5;-2\n1.00;90;7;3;13.5;-2\n"
    path.write_text(text.replace(";", separator))
    assert rows_of(traces.sumo_csv(path)) == [(7, 0, 10.5, -2), (7, 1, 13.5, -2)]


def test_a_second_without_vehicles_leaves_no_record(tmp_path):
    """SUMO's own converter writes a row of nothing for it."""
    path = tmp_path / "fcd.csv"
    path.write_text("timestep_time;vehicle_id;vehicle_x;vehicle_y\n0.00;;;\n1.00;a;2;3\n")
    assert rows_of(traces.sumo_csv(path)) == [("a", 1, 2, 3)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no element found"),
        ("<html><body/></html>", "it has no timestep"),
        ("<fcd><vehicle id='1' x='1' y='1'/></fcd>", "a vehicle outside of a timestep"),
    ],
)
def test_xml_of_other_things_is_refused(tmp_path, text, said):
    path = tmp_path / "other.xml"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"other\.xml: not XML of positions: {said}"):
        traces.sumo_xml(path)


def test_sumo_xml_without_a_position_names_the_attribute(tmp_path):
    path = tmp_path / "fcd.xml"
    path.write_text(FCD.replace('x="13.5" ', ""))
    with pytest.raises(ValueError, match=r"fcd\.xml: a vehicle lacks the attribute 'x'"):
        traces.sumo_xml(path)
    path.write_text(FCD[:150])
    with pytest.raises(ValueError, match=r"fcd\.xml: not XML"):
        traces.sumo_xml(path)
    path.write_text(FCD.replace("13.5", "far"))
    with pytest.raises(ValueError, match=r"fcd\.xml: not XML of positions.*'far'"):
        traces.sumo_xml(path)


def test_gaia_trips_become_local_metres(tmp_path):
    """Two points a thousandth of a degree of latitude and of longitude apart, shifted to GCJ-02 for the file."""
    points = [(104.05, 30.66), (104.051, 30.661)]
    rows = []
    for second, (longitude, latitude) in enumerate(points):
        east, north = gcj02.shift(longitude, latitude)
        rows.append(f"driver,order,{1475277000 + second},{longitude + east:.17g},{latitude + north:.17g}")
    path = tmp_path / "gaia.csv"
    path.write_text("\n".join(rows) + "\n")
    found = traces.gaia(path)
    assert found.vehicle.tolist() == ["driver/order"] * 2
    assert found.utc_s.tolist() == [1475277000, 1475277001]
    np.testing.assert_allclose(found.x, [0, 6371008.8 * np.radians(0.001) * np.cos(np.radians(30.66))], atol=1e-6)
    np.testing.assert_allclose(found.y, [0, 111.19508], atol=1e-4)  # a thousandth of a degree of the mean earth
    path.write_text("driver,order,time,lon,lat\n" + "\n".join(rows) + "\n")
    assert len(traces.gaia(path, origin=(104.0, 30.0)).x) == 2


def test_gaia_of_another_width_is_refused(tmp_path):
    path = tmp_path / "gaia.csv"
    path.write_text("driver,order,1475277000,104.05\n")
    with pytest.raises(ValueError, match=r"gaia\.csv: has 4 columns, must have 5"):
        traces.gaia(path)
    path.write_text("driver,order,1475277000,30.66,104.05\n")
    with pytest.raises(ValueError, match=r"gaia\.csv: lat of row 0 is 104.05, must lie in \[-90.0, 90.0\]"):
        traces.gaia(path)
    with pytest.raises(ValueError, match=r"origin=\(104,\) must be a longitude and a latitude"):
        traces.gaia(path, origin=(104,))


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


# ---- windows


def test_a_window_starts_at_the_site_s_time():
    """07:50 in Los Angeles in June is 14:50 UTC."""
    start = traces.window_start("2005-06-15 07:50:00", Params(), "America/Los_Angeles")
    assert start == 1118847000


def test_a_time_or_zone_that_is_none_is_named():
    with pytest.raises(ValueError, match="text='2005-06-15' must be a time as 2005-06-15 07:50:00"):
        traces.window_start("2005-06-15", Params(), "UTC")
    for zone in ("Los Angeles", "", None):
        with pytest.raises(ValueError, match=f"zone={zone!r} must be a time zone as 'America/Los_Angeles'"):
            traces.window_start("2005-06-15 07:50:00", Params(), zone)


@pytest.mark.parametrize(("zone", "hours"), [("Asia/Shanghai", 0), ("UTC", 8)])
def test_the_published_window_depends_on_the_machine(monkeypatch, zone, hours):
    """15 h after local time: right on a machine in China, 8 h late on one that counts in UTC."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    params = Params(local_time_window=True)
    start = traces.window_start("2005-06-15 07:50:00", params, "America/Los_Angeles")
    monkeypatch.undo()
    time.tzset()
    assert start == 1118847000 + 3600 * hours


# ---- choice and filling


def test_vehicles_with_most_records_are_taken_in_the_order_of_ids():
    rows = [(9, t, t, 0) for t in range(3)] + [(4, t, t, 5) for t in range(2)] + [(2, t, t, 7) for t in range(2)]
    xy, active, box = fill(records([*rows, (1, 0, 99, 99)]), params_of(2, 3))
    assert xy[0, :, 1].tolist() == [7, 0]  # vehicle 2 before vehicle 4 at a tie, then vehicle 9
    assert active[:, 0].tolist() == [True, True, False]
    assert box == (0, 0, 2, 7)


def test_only_whole_seconds_after_the_earliest_record_count():
    rows = [(1, 10.2 + k / 10, k, 0) for k in range(21)] + [(2, 10.7 + k / 10, -k, 0) for k in range(21)]
    xy, active, _ = fill(records(rows), params_of(2, 4))
    assert xy[:3, 0, 0].tolist() == [0, 10, 20]
    assert active[:, 0].tolist() == [True, True, True, False]
    assert xy[:, 1, 0].tolist() == [-5, -5, -15, -15]  # seen at 11.2 and 12.2
    assert active[:, 1].tolist() == [False, True, True, False]


def test_gaps_are_filled_linearly_and_ends_held():
    rows = [(1, 0, 0, 0), (1, 4, 8, -4), (2, 2, 1, 1), (2, 3, 2, 2)]
    xy, active, _ = fill(records(rows), params_of(2, 6))
    assert xy[:, 0].tolist() == [[0, 0], [2, -1], [4, -2], [6, -3], [8, -4], [8, -4]]
    assert xy[:, 1, 0].tolist() == [1, 1, 1, 2, 2, 2]
    assert active[:, 0].tolist() == [True] * 5 + [False]
    assert active[:, 1].tolist() == [False, False, True, True, False, False]


def test_published_gaps_arrive_a_second_early_and_stop():
    rows = [(1, 0, 0, 0), (1, 4, 9, 0), (2, 0, 5, 5)]
    xy, active, _ = fill(records(rows), params_of(2, 7, published=True))
    assert xy[:, 0, 0].tolist() == [0, 3, 6, 9, 9, 9, 9]  # the last record ends a gap: velocity 0
    assert xy[:, 1, 0].tolist() == [5] * 7
    assert active.all()


def test_published_vehicles_go_on_with_their_last_velocity():
    rows = [(1, 0, 0, 0), (1, 1, 2, 1), (1, 2, 5, 3), (2, 0, 0, 0)]
    xy, _, _ = fill(records(rows), params_of(2, 5, published=True))
    assert xy[:, 0].tolist() == [[0, 0], [2, 1], [5, 3], [8, 5], [11, 7]]


def test_published_vehicles_that_come_late_jump_back():
    rows = [(1, 3, 10, 0), (1, 4, 12, 0), (2, 0, 0, 0)]
    xy, active, _ = fill(records(rows), params_of(2, 6, published=True))
    # x0 + v, then x0 + (q + 2) v at q = 1 and 2, then the records, then the last velocity.
    assert xy[:, 0, 0].tolist() == [12, 16, 18, 10, 12, 14]
    assert active.all()


def test_records_beyond_the_episode_still_bend_the_track():
    rows = [(1, 0, 0, 0), (1, 10, 100, 0), (2, 0, 0, 0), (2, 10, 0, 0)]
    xy, active, _ = fill(records(rows), params_of(2, 3))
    assert xy[:, 0, 0].tolist() == [0, 10, 20]
    assert active.all()


def test_of_two_records_of_a_second_the_first_counts():
    rows = [(1, 0, 0, 0), (1, 1, 5, 0), (1, 1, 7, 0), (2, 0, 0, 0)]
    xy, *_ = fill(records(rows), params_of(2, 2))
    assert xy[1, 0, 0] == 5


def test_records_are_vectors_of_finite_numbers():
    with pytest.raises(ValueError, match=r"records: x has shape \(1,\), must be a vector as long as vehicle's"):
        traces.Records([1, 2], [0.0, 0.0], [0.0], [0.0, 0.0])
    with pytest.raises(ValueError, match=r"records: y\[1\] is nan, must be finite"):
        traces.Records([1, 2], [0.0, 0.0], [0.0, 0.0], [0.0, np.nan])
    with pytest.raises(ValueError, match="records: utc_s holds no numbers"):
        traces.Records([1], ["noon"], [0.0], [0.0])
    with pytest.raises(ValueError, match="records must be of traces.Records, not list"):
        fill([], params_of(2, 2))


def test_too_few_vehicles_are_counted():
    with pytest.raises(ValueError, match="records: has 2 vehicles in the window, needs vehicles=3"):
        fill(records([(1, 0, 0, 0), (2, 0, 1, 1)]), params_of(3, 2))
    empty = traces.Records(np.array([], int), np.array([]), np.array([]), np.array([]), {"file": "far.csv"})
    with pytest.raises(ValueError, match=r"far\.csv: has no record in the window"):
        fill(empty, params_of(3, 2))


# ---- scenarios


@pytest.fixture
def crossing() -> traces.Records:
    """Twelve vehicles on lines of their own; vehicle 3 leaves in second 5."""
    rows = [(v, t, 10.0 * v + t, 4.0 * t * (-1) ** v) for v in range(12) for t in range(10) if v != 3 or t < 5]
    return records(rows)


def test_a_trace_makes_a_scenario(crossing):
    params = Params(vehicles=12, slots=8, edges=3, components=3)
    scenario = from_trace(crossing, params, calibration=Calibration.ones(params))
    everybody = np.concatenate([scenario.xy_client, scenario.xy_server], axis=1)
    assert sorted(everybody[0, :, 0]) == [10.0 * v for v in range(12)]
    x0, y0, x1, y1 = 0, -36, 119, 36
    assert ((scenario.edge_xy >= (x0, y0)) & (scenario.edge_xy <= (x1, y1))).all()
    assert scenario.cloud_xy.tolist() == [59.5, 0]
    active = np.concatenate([scenario.active_client, scenario.active_server], axis=1)
    assert (~active).sum() == 3  # vehicle 3 in slots 5, 6 and 7
    assert (scenario.task_count[~scenario.active_client] == 0).all()


def test_edge_nodes_stand_where_they_are_put(crossing):
    params = Params(vehicles=12, slots=8, edges=3, components=3)
    places = [[0.0, 0.0], [50.0, 1.0], [100.0, 0.0]]
    scenario = from_trace(crossing, params, calibration=Calibration.ones(params), edge_xy=places)
    assert scenario.edge_xy.tolist() == places
    assert scenario.pca_v2i_mean.reshape(-1, 3)[:, 1] == pytest.approx(
        np.hypot(*(scenario.xy_client - places[1]).transpose(2, 0, 1)).clip(1.0).mean(axis=0)
    )
    with pytest.raises(ValueError, match=r"edge_xy \(2, 2\) must be finite numbers \(3, 2\)"):
        from_trace(crossing, params, edge_xy=places[:2])


@pytest.mark.parametrize("preset", list(PRESETS))
def test_a_file_becomes_episodes(tmp_path, preset):
    """From a recording of ten records a second to both forms of the environment, over a scenario file."""
    rows = [(v, 1118847000000 + 100 * k, 40.0 * v + 3.0 * k, 11.0 * v) for v in range(12) for k in range(100)]
    path = tmp_path / "ngsim.csv"
    path.write_text("Vehicle_ID,Global_Time,Local_X,Local_Y\n" + "".join("{},{},{},{}\n".format(*row) for row in rows))
    params = Params(**PRESETS[preset] | {"vehicles": 12, "slots": 8, "edges": 3, "components": 3})
    start = traces.window_start("2005-06-15 07:50:00", Params(), "America/Los_Angeles")
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


def test_a_trace_is_calibrated_on_itself(crossing):
    params = Params(vehicles=12, slots=8, edges=3, components=3)
    calibration = from_trace(crossing, params).calibration
    assert calibration.size == from_trace(crossing, params, calibration=calibration).task_size.max()
    assert calibration.backlog.min() > 0


def test_a_trace_plays_in_the_original_preset(crossing):
    params = Params(**PRESETS["original"] | {"vehicles": 12, "slots": 8, "edges": 3, "components": 3})
    scenario = from_trace(crossing, params)
    assert scenario.active_client.all() and scenario.running["max_lc"].max() > 0


def test_vehicles_in_one_place_are_refused_where_nothing_clamps_distances(crossing):
    params = Params(vehicles=12, slots=8, edges=3, components=3, jumping_tracks=True)
    together = replace(crossing, x=crossing.x * 0, y=crossing.y * 0 + crossing.utc_s)
    with pytest.raises(ValueError, match=r"trace: distance_v2v\[0, 0, 0\] is 0.0"):
        from_trace(together, params, calibration=Calibration.ones(params))
