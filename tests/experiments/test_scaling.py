"""Rates and memory over the number of vehicles."""

import functools
import sys

import pandas as pd
import pytest

from lockstep import envs
from lockstep.experiments import command, config, run
from lockstep.experiments.bench import ladder, timing
from lockstep.experiments.config import Settings
from lockstep.experiments.ledger import provenance, results
from lockstep.experiments.vehicular_edge import scaling

NAME = "vehicular_edge"
TINY = {"vehicles": 20, "edges": 4, "slots": 8, "components": 3}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(provenance, "core_count", lambda: 2)


def asked(*sweeps, blocks=6) -> Settings:
    section = {"options": {"preset": "physical", "traffic": "city"}, "blocks": blocks, "sweeps": list(sweeps)}
    return Settings({"seed": 0, "scaling": section})


def test_a_sweep_is_all_combinations_of_its_lists_each_once():
    port = {"rungs": ["port-cpu"], "sizes": [{"vehicles": 30}, {"vehicles": 70}], "num_envs": [1, 64]}
    found = scaling.cells(asked(port | {"gains": ["stored", "drawn"]}, port).scaling, ["cpu"])
    assert len(found) == len(set(found)) == 8
    assert {(cell.threads, cell.device) for cell in found} == {(2, "cpu")}
    assert {cell.gains for cell in found} == {"stored", "drawn"}


def test_an_original_is_one_environment_and_rungs_of_absent_devices_are_left_out():
    sweep = {"rungs": ["original", "port-cuda-graph"], "sizes": [{"vehicles": 30}], "num_envs": [1, 64]}
    (only,) = scaling.cells(asked(sweep | {"gains": ["stored", "drawn"]}).scaling, ["cpu"])
    assert (only.rung, only.num_envs, only.threads, only.gains) == ("original", 1, 1, "stored")
    on_gpu = scaling.cells(asked(sweep).scaling, ["cpu", "cuda"])
    assert [(cell.rung, cell.num_envs) for cell in on_gpu[1:]] == [("port-cuda-graph", 1), ("port-cuda-graph", 64)]


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_the_settings_ask_for_cells_that_are_told_apart(scale):
    found = scaling.cells(config.load(NAME, scale).scaling, ["cpu", "cuda"])
    labels = [cell.label for cell in found]
    assert len(set(labels)) == len(labels)
    vehicles = {dict(cell.parameters)["vehicles"] for cell in found}
    assert vehicles == ({30, 150} if scale == "quick" else {30, 70, 150, 300, 500, 1000})
    assert any(cell.rung == "original-indexed" for cell in found)
    if scale == "full":  # 500 vehicles x 1024 environments on one GPU
        wanted = {"rung": "port-cuda-graph", "num_envs": 1024, "gains": "drawn"}
        assert any(wanted.items() <= vars(cell).items() and ("vehicles", 500) in cell.parameters for cell in found)


@pytest.mark.parametrize(("rung", "gains"), [("original-indexed", "stored"), ("port-cpu", "drawn")])
def test_the_rows_of_a_cell_name_its_size_and_count_its_bytes(monkeypatch, rung, gains):
    """20 vehicles are 10 clients and 10 servers (published drawing)."""
    monkeypatch.setattr(timing, "measure", functools.partial(timing.measure, min_block_s=0.005))
    cell = scaling.Cell(rung, "cpu", tuple(TINY.items()), 4 if rung == "port-cpu" else 1, 1, gains)
    rows = scaling.measure(NAME, cell, asked())
    assert len(rows) == 6
    for number, row in enumerate(rows):
        assert list(row) == [*scaling.COLUMNS, "had"]
        assert (row["vehicles"], row["clients"], row["servers"], row["edges"]) == (20, 10, 10, 4)
        assert (row["rung"], row["gains"], row["block"], row["status"]) == (rung, gains, number, "measured")
        assert row["steps"] > 0 and row["wall_s"] >= 0.005
    if rung == "port-cpu":
        env = envs.make(NAME, 1, scenarios=1, preset="physical", traffic="city", gains="drawn", **TINY)
        assert (rows[0]["bytes_per_env"], rows[0]["bytes_per_scenario"]) == (env.bytes_per_env, env.bytes_per_scenario)
    else:
        assert rows[0]["bytes_per_env"] is rows[0]["bytes_per_scenario"] is None


def test_a_cell_that_does_not_fit_says_so_in_one_row(monkeypatch):
    monkeypatch.setattr(ladder, "available_memory", lambda device: 2**20)
    cell = scaling.Cell("port-cpu", "cpu", tuple(TINY.items()), 4096, 1, "stored")
    (row,) = scaling.measure(NAME, cell, asked())
    assert list(row) == scaling.COLUMNS
    assert (
        row["status"] == "not measured" and "GiB of the host's memory, 80% of 0.0 GiB free may be used" in row["reason"]
    )
    assert row["steps"] is None


def test_a_cell_whose_environment_no_block_holds_says_so_in_one_row(monkeypatch):
    def refuse(*args, **options):
        raise MemoryError("an environment of these sizes needs 218,752 bytes of shared memory; a block has 166,912")

    monkeypatch.setattr(envs, "make", refuse)
    (row,) = scaling.measure(NAME, scaling.Cell("port-cpu", "cpu", tuple(TINY.items()), 4, 1, "stored"), asked())
    assert list(row) == scaling.COLUMNS
    assert (row["status"], row["vehicles"], row["bytes_per_env"]) == ("not measured", 20, None)
    assert "a block has 166,912" in row["reason"]


def by_hand(**cell) -> list[dict]:
    """Six blocks of half a second, 100 to 105 steps each."""
    same = {"rung": "port-cpu", "device": "cpu", "preset": "physical", "traffic": "city", "vehicles": 30, "edges": 9}
    same |= {"gains": "stored", "num_envs": 64, "threads": 2, "bytes_per_env": 2048, "bytes_per_scenario": 4096}
    timed = {"wall_s": 0.5, "cpu_s": 1.0, "first_call_s": 2.0, "status": "measured"}
    empty = dict.fromkeys(scaling.COLUMNS)
    return [empty | same | timed | cell | {"block": number, "steps": 100 + number} for number in range(6)]


def test_vehicle_steps_are_environment_steps_times_vehicles():
    missing = [by_hand(vehicles=500)[0] | {"status": "not measured", "steps": None, "wall_s": None}]
    frame = pd.DataFrame(by_hand() + by_hand(vehicles=70) + missing)
    found = scaling.summary(frame)
    assert found["vehicles"].tolist() == [30, 70]
    assert found["rate"].tolist() == [205, 205]
    assert found["vehicle_rate"].tolist() == [30 * 205, 70 * 205]
    assert (found["rate_low"] == 200).all() and (found["rate_high"] == 210).all()
    assert "30 port-cpu         stored B=64           " in scaling.report(frame)


def test_the_command_line_writes_rows_and_goes_on_where_it_was_killed(monkeypatch, tmp_path, capsys):
    measured = []

    def fake(name, cell, settings):
        measured.append(cell.label)
        return by_hand(environment=name, rung=cell.rung, vehicles=dict(cell.parameters)["vehicles"])

    monkeypatch.setattr(scaling, "measure", fake)
    output = tmp_path / "scaling.csv"
    monkeypatch.setattr(sys, "argv", ["run", "scaling", NAME, "--devices", "cpu", "--output", str(output)])
    command.run(run.main)
    frame, described = results.read(output)
    assert list(frame.columns) == scaling.COLUMNS
    assert len(frame) == 6 * len(measured) and len(measured) == len(set(measured))
    assert described["config"]["asked"] == {"devices": ["cpu"]}
    assert "vehicle-steps/s" in capsys.readouterr().out
