"""Rates and memory over sizes."""

import re
import sys

import pandas as pd
import pytest

from lockstep import envs
from lockstep.experiments import command, config, run, scaling, sizes
from lockstep.experiments.bench import ladder, timing
from lockstep.experiments.config import ConfigError, Settings
from lockstep.experiments.ledger import provenance, results

EDGE, SEA = "vehicular_edge", "marine_navigation"
ABOUT = {
    EDGE: {
        "over": "vehicles",
        "columns": ["vehicles", "clients", "servers", "edges", "gains"],
        "options": {"preset": "physical", "traffic": "city"},
    },
    SEA: {
        "over": "robots",
        "columns": ["version", "robots", "cores", "obstacles", "horizon"],
        "options": {"preset": "corrected"},
    },
}
TINY = {
    EDGE: {"vehicles": 20, "edges": 4, "slots": 8, "components": 3},
    SEA: {"robots": 2, "cores": 1, "obstacles": 1, "max_steps": 5},
}
GAINS = [{"gains": "stored"}, {"gains": "drawn"}]


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(provenance, "core_count", lambda: 2)


def asked(name, *sweeps, **about) -> Settings:
    return Settings({"seed": 0, "scaling": ABOUT[name] | {"blocks": 6, "sweeps": list(sweeps)} | about})


def cell(name, rung="port-cpu", num_envs=4, **own) -> scaling.Cell:
    return scaling.Cell(rung, "cpu", (*TINY[name].items(), *own.items()), num_envs, 1)


def test_a_sweep_is_all_combinations_of_its_lists_each_once():
    port = {"rungs": ["port-cpu"], "sizes": [{"vehicles": 30}, {"vehicles": 70}], "num_envs": [1, 64]}
    sweeps = [port | {"port_options": GAINS}, port | {"port_options": GAINS[:1]}]
    found = scaling.cells(asked(EDGE, *sweeps).scaling, ["cpu"])
    assert len(found) == len(set(found)) == len({cell.label for cell in found}) == 8
    assert {(cell.threads, cell.device) for cell in found} == {(2, "cpu")}
    assert {dict(cell.parameters)["gains"] for cell in found} == {"stored", "drawn"}


def test_the_port_runs_on_the_threads_that_are_asked_for_and_on_all_if_none_are():
    sweep = {"rungs": ["original", "port-cpu"], "sizes": [{"vehicles": 30}], "num_envs": [64]}

    def threads(**asked_for):
        return [(cell.rung, cell.threads) for cell in scaling.cells(asked(EDGE, sweep | asked_for).scaling, ["cpu"])]

    assert threads() == [("original", 1), ("port-cpu", 2)]
    assert threads(threads=[1]) == [("original", 1), ("port-cpu", 1)]
    assert threads(threads=[1, "all"]) == [("original", 1), ("port-cpu", 1), ("port-cpu", 2)]


def test_an_original_is_one_environment_and_knows_no_option_of_the_port():
    sweep = {"rungs": ["original", "arrays-numpy", "port-cuda-graph"], "sizes": [{"vehicles": 30}], "num_envs": [1, 64]}
    on_cpu = scaling.cells(asked(EDGE, sweep | {"port_options": GAINS}).scaling, ["cpu"])
    assert {cell.parameters for cell in on_cpu} == {(("vehicles", 30),)}
    found = [(cell.rung, cell.num_envs, cell.threads) for cell in on_cpu]
    assert found == [("original", 1, 1), ("arrays-numpy", 1, 1), ("arrays-numpy", 64, 1)]
    on_gpu = scaling.cells(asked(EDGE, sweep).scaling, ["cpu", "cuda"])
    assert [(cell.rung, cell.num_envs) for cell in on_gpu[3:]] == [("port-cuda-graph", 1), ("port-cuda-graph", 64)]


@pytest.mark.parametrize("scale", ["quick", "full"])
@pytest.mark.parametrize("name", [EDGE, SEA])
def test_the_settings_ask_for_cells_that_are_told_apart_and_that_there_are(name, scale):
    section = config.load(name, scale).scaling
    scaling.check(name, section)
    found = scaling.cells(section, ["cpu", "cuda"])
    assert len({cell.label for cell in found}) == len(found)


def test_the_edge_grows_to_500_vehicles_in_1024_environments_on_one_gpu():
    found = scaling.cells(config.load(EDGE, "full").scaling, ["cpu", "cuda"])
    assert {dict(cell.parameters)["vehicles"] for cell in found} == {30, 70, 150, 300, 500, 1000}
    assert any(cell.rung == "original-indexed" for cell in found)
    on_gpu = [cell.parameters for cell in found if (cell.rung, cell.num_envs) == ("port-cuda-graph", 1024)]
    assert (("vehicles", 500), ("edges", 25), ("gains", "drawn")) in on_gpu


def test_the_edge_is_measured_on_the_sparse_map_under_both_presets_with_own_scenarios():
    section = config.load(EDGE, "full").scaling
    found = [cell for cell in scaling.cells(section, ["cpu"]) if dict(cell.parameters).get("traffic") == "sparse"]
    cells = {(dict(cell.parameters)["preset"], cell.rung, cell.num_envs, cell.threads) for cell in found}
    measured = {("original", 1, 1), ("port-cpu-scenarios", 1024, 1)}
    assert cells == {(preset, *cell) for preset in ("original", "physical") for cell in measured}
    assert {"preset", "traffic"} <= set(section.columns)


def test_the_sea_has_every_number_of_robots_with_and_without_cores_and_obstacles_and_resets():
    found = scaling.cells(config.load(SEA, "full").scaling, ["cpu", "cuda"])
    for rung in ("original", "arrays-numpy", "port-cpu", "port-cuda-graph"):
        of_rung = [dict(cell.parameters) for cell in found if cell.rung == rung]
        robots = {cores: {size["robots"] for size in of_rung if size.get("cores") == cores} for cores in (0, 8)}
        assert robots == {0: {1, 3, 5, 7, 20}, 8: {1, 3, 5, 7, 20}}
        assert {(size.get("cores"), size.get("obstacles")) for size in of_rung} >= {(0, 0), (0, 4), (8, 0), (8, 4)}
        assert {size.get("max_steps") for size in of_rung} == {None, 1}


@pytest.mark.parametrize(
    ("name", "rung", "own", "told"),
    [  # 20 vehicles are 10 clients and 10 servers (published drawing)
        (EDGE, "original-indexed", {}, {"clients": 10, "servers": 10, "edges": 4, "gains": "stored"}),
        (EDGE, "port-cpu", {"gains": "drawn"}, {"vehicles": 20, "clients": 10, "gains": "drawn", "traffic": "city"}),
        (SEA, "original", {}, {"version": "thruster", "robots": 2, "cores": 1, "horizon": 5}),
        (SEA, "arrays-numpy", {}, {"obstacles": 1, "preset": "corrected"}),
        (SEA, "port-cpu", {}, {"robots": 2, "horizon": 5}),
    ],
)
def test_the_rows_of_a_cell_name_its_size_and_count_its_bytes(monkeypatch, name, rung, own, told):
    monkeypatch.setattr(timing, "asked", lambda scale: (scale["blocks"], 0.005))
    settings = asked(name)
    rows = scaling.measure(name, cell(name, rung, 1 if rung.startswith("original") else 4, **own), settings)
    assert [row["block"] for row in rows] == list(range(6))
    for row in rows:
        assert list(row) == [*scaling.columns_of(settings.scaling), "had"]
        expected = told | {"rung": rung, "status": "measured"}
        expected |= {"dtype": "float64" if rung.startswith("original") else "float32"}
        assert expected.items() <= row.items()
        assert row["steps"] > 0 and row["wall_s"] >= 0.005
    counted = rows[0]["bytes_per_env"], rows[0]["bytes_per_scenario"]
    if rung != "port-cpu":
        assert counted == (None, None)
        return
    pool = {"scenarios": 1} if name == EDGE else {}
    env = envs.make(name, 1, **pool, **ABOUT[name]["options"], **TINY[name], **own)
    assert counted == (env.bytes_per_env, env.bytes_per_scenario if pool else None)


def test_a_cell_that_does_not_fit_says_so_in_one_row(monkeypatch):
    monkeypatch.setattr(ladder, "available_memory", lambda device: 2**10)
    (row,) = scaling.measure(SEA, cell(SEA, num_envs=4096), asked(SEA))
    assert list(row) == scaling.columns_of(asked(SEA).scaling)
    assert (row["status"], row["steps"]) == ("not measured", None)
    assert "GiB of the host's memory, 80% of 0.0 GiB free may be used" in row["reason"]


def test_a_cell_whose_environment_no_block_holds_says_so_in_one_row(monkeypatch):
    def refuse(*args, **options):
        raise MemoryError("an environment of these sizes needs 218,752 bytes of shared memory; a block has 166,912")

    monkeypatch.setattr(envs, "make", refuse)
    (row,) = scaling.measure(EDGE, cell(EDGE), asked(EDGE))
    assert (row["status"], row["vehicles"], row["bytes_per_env"]) == ("not measured", 20, None)
    assert "a block has 166,912" in row["reason"]


def test_a_rung_that_an_environment_has_not_says_so_in_one_row():
    (row,) = scaling.measure(SEA, cell(SEA, "original-indexed", 1), asked(SEA))
    assert (row["status"], row["reason"]) == ("not measured", "its original has one form only")


@pytest.mark.parametrize(
    ("about", "sweep", "message"),
    [
        ({"over": "boats"}, {}, "scaling.over: 'boats' is none of the columns, version, robots, cores, obstacles"),
        (
            {"columns": ["robots", "core"]},
            {},
            "scaling.columns: 'core' is no parameter, no option.*mean 'cores'",
        ),
        ({}, {"sizes": [{"robot": 3}]}, r"scaling.sweeps\[0\]: .*'robot'.* did you mean 'robots'"),
        ({}, {"port_options": [{"gains": "drawn"}]}, r"scaling.sweeps\[0\]: .*'gains'"),
    ],
)
def test_a_section_that_does_not_fit_the_environment_is_refused(about, sweep, message):
    wrong = asked(SEA, {"rungs": ["port-cpu"], "sizes": [{"robots": 3}]} | sweep, **about)
    with pytest.raises(ConfigError, match=f"^experiments/marine_navigation/marine_navigation.yaml: {message}"):
        scaling.check(SEA, wrong.scaling)


def by_hand(name=EDGE, **cell) -> list[dict]:
    """Six blocks of half a second, 100 to 105 steps each."""
    same = {"rung": "port-cpu", "device": "cpu", "preset": "physical", "traffic": "city", "vehicles": 30, "edges": 9}
    if name == SEA:
        same = {"rung": "port-cpu", "device": "cpu", "version": "thruster", "cores": 0, "obstacles": 4, "horizon": 1000}
    same |= {"num_envs": 64, "threads": 2, "bytes_per_env": 2048}
    same |= {"wall_s": 0.5, "cpu_s": 1.0, "first_call_s": 2.0, "status": "measured"}
    empty = dict.fromkeys(scaling.columns_of(asked(name).scaling))
    return [empty | same | {"block": number, "steps": 100 + number} | cell for number in range(6)]


def test_steps_of_single_vehicles_are_environment_steps_times_vehicles():
    missing = [by_hand(vehicles=500)[0] | {"status": "not measured", "steps": None, "wall_s": None, "reason": "large"}]
    frame = pd.DataFrame(by_hand() + by_hand(vehicles=70) + missing)
    found = sizes.summary(frame, asked(EDGE).scaling)
    assert found["vehicles"].tolist() == [30, 70, 500] and found["reason"].fillna("").tolist() == ["", "", "large"]
    measured = found.dropna(subset=["rate"])
    assert measured["rate"].tolist() == [205, 205] and measured["cpu_rate"].tolist() == [102.5, 102.5]
    assert measured["counted_rate"].tolist() == [30 * 205, 70 * 205]
    assert (measured["rate_low"] == 200).all() and (measured["rate_high"] == 210).all()
    assert re.search(r"port-cpu +B=64 +205.0 \[200.0, 210.0\] +6,150 ", scaling.report(frame, asked(EDGE)))


def test_a_ratio_is_to_the_original_of_the_same_size_whatever_the_port_s_own_options():
    rows = by_hand(rung="original", num_envs=1, gains="stored", steps=10) + by_hand(gains="drawn", steps=50)
    found = sizes.summary(pd.DataFrame(rows + by_hand(vehicles=70)), asked(EDGE, {"port_options": GAINS}).scaling)
    assert found["ratio"].fillna(0).tolist() == [1, 5, 0]


def test_a_reset_costs_what_a_step_takes_longer_if_every_step_begins_an_episode():
    """1 ms and 5 ms a step: 4 ms; of a size that is measured with short episodes alone it is not known."""
    asked_for = [(5, 1000, 1.0), (5, 1, 5.0), (7, 1, 9.0)]
    rows = [row for A, T, s in asked_for for row in by_hand(SEA, robots=A, horizon=T, steps=1000, wall_s=s)]
    found = sizes.summary(pd.DataFrame(rows), asked(SEA).scaling)
    assert found["rate"].tolist() == pytest.approx([1000.0, 200.0, 1000 / 9])
    assert found["counted_rate"].tolist() == pytest.approx([5000.0, 1000.0, 7000 / 9])
    assert found["reset_s"].isna().tolist() == [True, False, True] and found["reset_s"][1] == pytest.approx(0.004)
    assert scaling.report(pd.DataFrame(rows), asked(SEA)).splitlines()[2].endswith("    4000")


def test_the_command_line_writes_rows_and_goes_on_where_it_was_killed(monkeypatch, tmp_path, capsys):
    measured = []

    def fake(name, cell, settings):
        measured.append(cell.label)
        return by_hand(environment=name, rung=cell.rung, vehicles=dict(cell.parameters)["vehicles"])

    monkeypatch.setattr(scaling, "measure", fake)
    output = tmp_path / "scaling.csv"
    monkeypatch.setattr(sys, "argv", ["run", "scaling", EDGE, "--devices", "cpu", "--output", str(output)])
    command.run(run.main)
    frame, described = results.read(output)
    assert list(frame.columns) == scaling.columns_of(config.load(EDGE, "quick").scaling)
    assert len(frame) == 6 * len(measured) and len(measured) == len(set(measured))
    assert described["config"]["asked"] == {"devices": ["cpu"]}
    assert "the same times vehicles" in capsys.readouterr().out
