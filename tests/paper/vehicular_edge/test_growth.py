"""The environments with large states: figures worked out in the head from tests/paper/handwritten.py."""

import pytest

from lockstep import paper
from lockstep.paper import families, figures, tables
from lockstep.paper.typeset import DASH, TIMES
from tests.paper import handwritten, reading
from tests.paper.reading import seen

EDGE = handwritten.EDGE
ORIGINAL = {"rung": "original", "num_envs": 1}
PRESETS = ("original", "physical")


def find(*asked, **select):
    return [found.value for found in reading.find(*asked, **select)]


def test_an_environment_is_told_at_a_size_of_its_own(edge):
    assert families.told_at(EDGE) == families.about(EDGE)["headline"]["num_envs"] == 1024
    assert families.told_at("cartpole") == families.told_at("anything") == handwritten.B
    rows = {row["environment"]: row for row in seen("family", edge) if row["status"] == "measured here"}
    assert (rows[EDGE]["B"], rows["cartpole"]["B"]) == ("1,024", "8,192")
    assert rows[EDGE]["CPU, call per step"] == f"36.0\u00a0k\u00a0(720{TIMES})"  # 36,000 over 50
    assert rows[EDGE]["Gymnasium's vector class"] == DASH


def test_the_way_passes_the_indexed_original_where_there_is_one(edge):
    steps = {
        name: [row["step"] for row in seen("breakdown", edge) if row["environment"] == name and row["way"] == "CPU"]
        for name in (EDGE, "cartpole")
    }
    assert steps[EDGE] == ["indexing", "batching + compiling", "fusing"]  # arrays were run at another size
    assert steps["cartpole"][0] == "batching + compiling"  # and nothing was indexed
    factors = tables.frame("breakdown", edge).query("environment == @EDGE and way == 'CPU'")["factor"]
    assert list(factors) == pytest.approx([80 / 50, 20_000 / 80, 2])


def test_break_even_against_both_originals(edge):
    (row,) = [row for row in seen("break_even", edge) if row["environment"] == EDGE]
    assert row["CPU over the original"] == row["CPU over the indexed original"] == "\u2264\u00a01"
    assert row["CPU over Gymnasium's vector class"] == DASH


def test_operations_over_the_original(edge):
    rows = {(row["operation"], row["form"]): row for row in seen("operations", edge)}
    queues = rows["queues", paper.rung("port-cpu").label]
    assert queues[f"{TIMES} original"] == f"400{TIMES}"  # 8 ms over 20 us
    assert (queues["time per slot"], queues["share"]) == ("20.0\u00a0\u00b5s", "20\u00a0%")  # of 100 us
    assert queues["expected"] == f"50 {DASH} 100{TIMES}"
    assert rows["queues", paper.rung("original").label]["share"] == "40\u00a0%"  # of 20 ms
    assert rows[DASH, DASH]["remark"] == "not measured: needs a GPU"
    assert seen("operations", edge)[0]["operation"] == "rates with interference cancelled"


def test_fleets_and_what_did_not_fit(edge):
    rows = seen("vehicular_edge_scaling", edge)
    (drawn,) = [row for row in rows if row["gains"] == "drawn"]
    assert (drawn["slots/s times vehicles"], drawn["KiB per scenario"]) == ("150\u00a0k", "128")
    (large,) = [row for row in rows if row["vehicles"] == "500"]
    assert (large["rate, slots/s"], large["remark"]) == ("not measured", "it needs 9.0 GiB")
    assert rows[-1]["remark"] == "not measured: needs a GPU"


def test_quantities_of_operations_and_fleets(edge):
    select = {"experiment": "breakdown", "operation": "queue_update"}
    assert find(edge, "operation_ratio", **select) == [pytest.approx(400)]
    assert find(edge, "operation_ratio", **select, form="arrays-numpy") == [pytest.approx(4)]
    assert find(edge, "operation_time", **select, form="original") == [pytest.approx(8e-3)]
    assert find(edge, "operation_share", **select, form="original") == [pytest.approx(0.4)]
    assert find(edge, "operation_ratio", **select, form="port-cuda") == []
    assert find(edge, "size_rate", experiment="scaling", vehicles=30, num_envs=1024) == [20_000]
    assert find(edge, "counted_rate", experiment="scaling", vehicles=30, num_envs=1024) == [600_000]
    assert find(edge, "size_rate", experiment="scaling", vehicles=500) == []


def test_the_port_over_the_original_on_the_sparse_map_per_core(edge):
    rows = {(row["preset"], row["traffic"], row["rung"]): row for row in seen("vehicular_edge_scaling", edge)}
    own = paper.rung("port-cpu-scenarios").label
    assert rows["original", "sparse", own][f"{TIMES} original"] == f"500{TIMES}"  # on two cores
    assert rows["physical", "sparse", own][f"{TIMES} original"] == f"300{TIMES}"
    select = {"experiment": "scaling", "rung": "port-cpu-scenarios", "traffic": "sparse", "threads": 1}
    ratios = {preset: find(edge, "batch_cpu_ratio", ORIGINAL, **select, preset=preset) for preset in PRESETS}
    assert ratios == {"original": [200], "physical": [300]}
    select |= {"threads": 2, "preset": "original"}
    assert find(edge, "batch_ratio", ORIGINAL | {"threads": 1}, **select) == [500]
    assert find(edge, "batch_cpu_ratio", ORIGINAL | {"threads": 1}, **select) == [250]
    aims = [row for row in seen("targets", edge) if "sparse map" in row["target"]]
    reached = {row["target"].rpartition(" ")[2]: (row["reached"], row["met"]) for row in aims}
    assert reached == {"original": (f"200{TIMES}", "no"), "physical": (f"300{TIMES}", "yes")}


def test_a_map_measured_at_one_number_of_environments_takes_no_line_from_the_others(edge):
    over_environments, over_vehicles, memory = figures.draw("vehicular_edge_scaling", edge).axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in over_environments.lines}
    assert lines == {"30 vehicles": [[1, 5000], [1024, 20_000]], "150 vehicles": [[1, 600], [1024, 2000]]}
    lines = {line.get_label(): line.get_xydata().tolist() for line in over_vehicles.lines}
    indexed, port = (paper.rung(name).label for name in ("original-indexed", "port-cpu"))
    assert lines == {indexed: [[30, 50]], port: [[30, 20_000], [150, 2000]]}
    assert {size for line in memory.lines for size in line.get_xdata()} == {30, 150}
    for panel in (over_vehicles, memory):
        assert [label.get_text() for label in panel.get_xticklabels()] == ["30", "150"]


def test_per_cpu_second_two_threads_are_no_gain(edge):
    select = {"environment": EDGE, "rung": "port-cpu", "num_envs": 1024}
    assert find(edge, "cpu_ratio", {"rung": "original", "num_envs": 1}, **select) == [pytest.approx(20_000 / 50)]
    assert find(edge, "step_cpu_time", environment=EDGE, rung="original") == [pytest.approx(0.02)]


def test_the_largest_difference_of_a_type(edge):
    select = {"experiment": "correctness", "environment": EDGE}
    assert find(edge, "largest_difference", **select, dtype="float64") == [3e-12]
    assert find(edge, "largest_difference", **select, dtype="float32") == [2e-6]


def test_bars_stand_beside_what_was_expected(edge):
    (panel,) = figures.draw("edge_operations", edge).axes
    factors = [bar.get_width() + 1 for bar in panel.patches if bar.get_hatch() is None]
    assert factors == pytest.approx([8, 4, 400, 5, 200])
    bands = [(box.get_x(), box.get_x() + box.get_width()) for box in panel.patches if box.get_hatch()]
    assert bands == [(40, 60), (50, 100), (20, 50)]


def test_axes_have_the_family_s_word_for_steps(edge):
    words = {
        name: figures.draw(name, edge).axes[-1].get_xlabel().partition(" per")[0] for name in ("ladder", "edge_ladder")
    }
    assert words == {"ladder": "steps", "edge_ladder": "slots"}


def test_nothing_measured_is_said(nothing):
    for name in ("edge_ladder", "edge_operations", "vehicular_edge_scaling", "edge_parity"):
        (panel,) = figures.draw(name, nothing).axes
        assert [text.get_text() for text in panel.texts] == ["not measured yet"]
    assert {row["status"] for row in seen("vehicular_edge_claims", nothing)} == {"not measured"}


def test_an_environment_with_a_large_state_that_nobody_measured(nothing, monkeypatch):
    monkeypatch.setattr(paper, "environments", lambda: ["cartpole", EDGE])
    unmeasured = nothing
    of_all = ("family", "ladder", "breakdown", "break_even", "correctness")
    for name in (*of_all, "operations", "vehicular_edge_scaling", "offloading"):
        (row,) = [row for row in seen(name, unmeasured) if row["environment"] == EDGE]
        assert row["status"] == "not measured"
    assert [row["environment"] for row in seen("operations", unmeasured)] == [EDGE]  # nobody asks it of cartpole
    assert [row["environment"] for row in seen("peers", unmeasured)] == ["cartpole"]  # no peer has the other


def test_policies_by_hand(edge):
    rows = {(row["policy"], row["map"]): row for row in seen("offloading", edge)}
    greedy = rows["greedy", "arterial"]
    assert (greedy["episodes"], greedy["on time"]) == ("6", "75\u00a0% [75\u00a0%, 75\u00a0%]")
    assert greedy["energy, kJ"] == "200 [200, 200]"
    assert rows["PPO, trained on many scenarios", "arterial"]["on time"] == "85\u00a0%"  # one seed has no interval
    played = [(row["policy"], row["played on"]) for row in seen("generalisation", edge)]
    assert ("PPO, trained on one scenario", "seen") in played and ("PPO, trained on one scenario", "unseen") in played
    assert [row["penalty weight"] for row in seen("penalty_weights", edge)] == ["1", "10"]
