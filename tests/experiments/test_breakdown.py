import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from lockstep import envs
from lockstep.experiments import command, config
from lockstep.experiments import run as command_line
from lockstep.experiments.config import Settings
from lockstep.experiments.ledger import results
from lockstep.experiments.vehicular_edge import breakdown
from lockstep.experiments.vehicular_edge.breakdown import Case, Form, Group, Laps, Seconds

NAME = "vehicular_edge"
BLOCKS = 6
ORIGINALS = ("original", "original-indexed")
PARTS = ["step", *breakdown.OPERATIONS, breakdown.FUSED]


@pytest.fixture
def settings():
    """An environment of ten clients, and blocks that are over soon."""
    section = {"preset": "original", "traffic": "dense", "slots": 2, "blocks": BLOCKS, "block_s": 0.002}
    return Settings({"seed": 0, "breakdown": {**section, "num_envs": [1, 3], "vehicles": [20]}})


def test_every_form_is_measured_at_every_size_and_the_original_alone(settings):
    found = breakdown.groups(settings, ["cpu"])
    assert [(group.form, group.num_envs) for group in found] == [
        *(("original", 1), ("original-indexed", 1), ("arrays-numpy", 1), ("arrays-numpy", 3)),
        *(("port-cpu", 1), ("port-cpu", 3)),
    ]
    both = breakdown.groups(settings, ["cpu", "cuda"])
    assert {group.form for group in both} == set(breakdown.FORMS)
    assert len({group.label for group in both}) == len(both)


def test_the_settings_have_room_for_the_slots_after_the_middle_of_an_episode():
    for scale in ("quick", "full"):
        section = config.load(NAME, scale).breakdown
        options = {"preset": section.preset, "traffic": section.traffic}
        for vehicles in section.vehicles:
            params = envs.make_original(NAME, **options, vehicles=vehicles).params
            assert params.slots // 2 + section.slots < params.slots
        assert params.clients == 10  # the size of the note's guess


def test_the_page_names_the_only_map_that_operations_are_timed_on():
    page = " ".join((envs.folder(NAME) / "README.md").read_text(encoding="utf-8").split())
    traffic = config.load(NAME, "full").breakdown.traffic
    assert f"The report's table of operations has their shares on `{traffic}` alone" in page


def test_a_case_is_the_middle_of_an_episode_that_the_original_reaches_as_well(settings):
    start = breakdown.case(NAME, Group("original", 20, 1), settings)
    assert start.t == 25
    assert start.actions.shape == (2, 1, 2, start.scenario.params.action_length)
    env, rng = envs.make_original(NAME, scenario=start.scenario), np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(25):
        action = rng.random((2, start.scenario.params.action_length), dtype=np.float32)
        env.step(dict(zip(env.possible_agents, action, strict=True)))
    for field, values in envs.original(NAME).get_state(env).items():
        np.testing.assert_allclose(start.state[field], values, rtol=1e-9, atol=1e-9)


def check_rows(rows, group, operations):
    """Every block has a row of each operation, of as many steps, and none takes longer than the whole by much."""
    assert len(rows) == BLOCKS * len(operations)
    frame = pd.DataFrame(rows)
    assert set(frame.columns) == {*breakdown.COLUMNS, "had"}
    assert (frame["form"] == group.form).all()
    assert (frame["steps"] % (2 * group.num_envs) == 0).all()
    assert frame["steps"].nunique() == 1
    # CPU seconds do not hold what other processes took; a GPU's work is in wall seconds alone.
    clock = "cpu_s" if group.device == "cpu" else "wall_s"
    least = frame.groupby("operation")[clock].min()
    assert set(least.index) == set(operations)
    assert (least > 0).all()
    assert least["noma"] + least[breakdown.FUSED] < 2 * least["step"]


@pytest.mark.parametrize("form", [*ORIGINALS, "arrays-numpy", pytest.param("arrays-cupy", marks=pytest.mark.gpu)])
def test_every_operation_has_its_rows(settings, form):
    group = Group(form, 20, 1 if form in ORIGINALS else 3)
    check_rows(breakdown.measure(NAME, group, settings), group, PARTS)


@pytest.mark.parametrize("form", ["port-cpu", pytest.param("port-cuda", marks=pytest.mark.gpu)])
def test_the_port_has_rows_of_what_its_kernel_keeps_apart(settings, form):
    group = Group(form, 20, 3)
    check_rows(breakdown.measure(NAME, group, settings), group, ["step", "noma", breakdown.FUSED])


def test_a_clock_between_the_operations_changes_nothing_that_is_played(settings, monkeypatch):
    made, make = [], envs.make_original
    monkeypatch.setattr(envs, "make_original", lambda *args, **kwargs: made.append(make(*args, **kwargs)) or made[-1])
    group = Group("original", 20, 1)
    start = breakdown.case(NAME, group, settings)
    made.clear()
    with breakdown.original(NAME, group, start) as form:
        form.whole(Laps())
        after = envs.original(NAME).get_state(made[0])
        laps = Laps()
        form.parts(laps)
        assert list(laps.spent) == list(breakdown.OPERATIONS)
        assert not set(breakdown.OPERATIONS) & set(vars(made[0]))
        for field, values in envs.original(NAME).get_state(made[0]).items():
            np.testing.assert_array_equal(values, after[field])
    assert made[0].t == start.t + 2


def test_laps_add_up_what_passes_between_readings():
    laps = Laps()
    for _ in range(2):
        laps.start()
        time.sleep(0.01)
        laps.lap("sleeping")
        laps.lap("nothing")
    assert laps.spent["sleeping"].wall >= 0.02
    assert laps.spent["sleeping"].cpu < 0.02
    assert laps.spent["nothing"].cpu < 0.02


def test_the_clock_waits_for_the_device():
    waited = []
    laps = Laps(lambda: waited.append(len(laps.spent)))
    laps.start()
    laps.lap("noma")
    assert waited == [0, 0]  # before the first reading and before the operation is over


def test_shares_divide_the_whole_step():
    def whole(laps):
        laps.spent["step"] = Seconds(laps.spent.get("step", Seconds(0.0, 0.0)).wall + 2.0, 1.0)

    form = Form(whole, None, "float32", {"noma": 0.25, "cost": 0.5})
    found = breakdown.clock_block(form, 3, lambda: None)
    assert found == {"step": (6.0, 1.0), "noma": (1.5, 0.25), "cost": (3.0, 0.5)}


def test_shares_are_of_the_cycles_of_an_undisturbed_step():
    counted = {"decide": 2.0, "noma": 3.0, "queues": 4.0, "rest": 1.0}
    late = iter(range(10**6))

    def cycles():
        spent = {stage: torch.full((100,), value) for stage, value in counted.items()}
        spent["noma"][next(late) % 100] = 1e9  # another process had its turn
        return spent

    env = SimpleNamespace(
        device="cpu", num_envs=100, step=lambda action: None, set_state=lambda state: None, cycles=cycles
    )
    start = Case(None, 25, {}, np.zeros((2, 100, 2, 4), dtype=np.float32))
    expected = {"noma": 0.3, breakdown.FUSED: 0.6}
    assert breakdown.shares(env, start) == pytest.approx(expected)


def test_the_report_divides_the_original_by_every_form():
    rows = [
        {"vehicles": 70, "operation": "noma", "form": form, "num_envs": num_envs, "steps": steps, "wall_s": wall_s}
        for form, num_envs, steps, wall_s in (("original", 1, 10, 0.02), ("arrays-numpy", 64, 640, 0.064))
        for _ in range(BLOCKS)
    ]
    original, arrays = breakdown.report(pd.DataFrame(rows)).splitlines()[1:]
    assert original.split("  ")[-1].strip() == "noma 2000.0"
    assert arrays.split("  ")[-1].strip() == "noma 100.0 20.0x"


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["run", "breakdown", *arguments])
    command_line.main()
    return capsys.readouterr().out


def test_the_command_writes_rows_and_their_provenance(tmp_path, monkeypatch, capsys, settings):
    few = [Group("original", 20, 1), Group("arrays-numpy", 20, 3)]
    monkeypatch.setattr(config, "load", lambda *of: settings)
    monkeypatch.setattr(breakdown, "groups", lambda *of: few)
    out = run(monkeypatch, capsys, NAME, "--devices", "cpu", "--output", str(tmp_path / "b.csv"))
    assert "arrays-numpy vehicles=20 B=3" in out
    frame, described = results.read(tmp_path / "b.csv")
    assert list(frame.columns) == breakdown.COLUMNS
    assert len(frame) == 2 * BLOCKS * len(PARTS)
    assert described["experiment"] == "breakdown"
    assert command.output_path("breakdown", NAME).name == "breakdown.csv"
