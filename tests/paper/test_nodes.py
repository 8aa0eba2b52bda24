"""The table and the figure of nodes, and what is said of them, from rows that can be worked out in the head."""

import pytest

from lockstep import paper
from lockstep.experiments.config import Settings
from lockstep.paper import figures, sentences, tables
from lockstep.paper.common.tables import nodes
from lockstep.paper.report import Report
from lockstep.paper.typeset import DASH, SPACE, TIMES
from tests.paper import handwritten
from tests.paper.reading import seen

LINKS = [{"gbit_per_s": 8, "latency_s": 1e-3}]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Ranks of this machine; a recording of 100 s, of which one job takes 40 s."""
    monkeypatch.setattr(nodes, "section", lambda name: Settings({"links": LINKS, "nodes": [4]}))
    handwritten.write(tmp_path, None, "weak_scaling", handwritten.RANKS, handwritten.HERE)
    throughput = handwritten.rates("original", 100, 1)
    for name, seconds in (("throughput", 40), ("correctness", 30), ("compilation", 20), ("ceilings", 10)):
        rows = {"correctness": handwritten.CHECKS, "compilation": handwritten.KERNELS}.get(name, throughput)
        rows = handwritten.ceiling("fp32", 1e9) if name == "ceilings" else rows
        handwritten.write(tmp_path, "big", name, rows, handwritten.BIG, wall_s=float(seconds), scale="full")
    return tmp_path


def rows(tree, start):
    return [row for row in seen("nodes", paper.load(tree)) if row["work"].startswith(start)]


def test_processes_as_measured_stand_beside_the_model(tree):
    one, two, four = rows(tree, "training")[:3]
    assert one["work"] == "training, cartpole PPO, B = 10 in each process"
    assert (one["n"], one["time"], one["by the model"]) == ("1", f"100{SPACE}ms", f"100{SPACE}ms")
    assert (two["between processes"], two["time"], two["by the model"]) == (
        "loopback",
        f"125{SPACE}ms",
        f"112{SPACE}ms",
    )
    assert (two["in sums"], two["sums alone"]) == (f"25.0{SPACE}ms", f"12.0{SPACE}ms")
    assert (two["steps/s"], two["speed-up"], two["efficiency"]) == (f"1.60{SPACE}k", f"1.60{TIMES}", f"80{SPACE}%")
    assert two["remark"] == DASH
    assert four["remark"] == f"4 processes on 2 cores; with a core each at most 80{SPACE}% efficient, by their CPU time"


def test_nodes_through_a_link_are_modelled(tree):
    """0.1 s and 6 (4 x 2 ms + 1,000 x 1.001 us), 154 ms: 65 % of four times the rate of one."""
    modelled = rows(tree, "training")[3]
    assert (modelled["between processes"], modelled["n"]) == (f"8{SPACE}Gbit/s, 1.00{SPACE}ms", "4")
    assert (modelled["time"], modelled["by the model"]) == (DASH, f"154{SPACE}ms")
    assert (modelled["speed-up"], modelled["efficiency"]) == (f"2.60{TIMES}", f"65{SPACE}%")
    assert modelled["steps/s"] == f"2.60{SPACE}k"


def test_the_jobs_of_a_recording_are_packed_onto_nodes(tree):
    """40 + 10 and 30 + 20; from three nodes on the longest bounds it."""
    found = rows(tree, "recording, 4 jobs at full scale")
    times = [(row["n"], row["time"], row["speed-up"]) for row in found]
    assert times == [
        ("1", f"1{SPACE}min{SPACE}40{SPACE}s", f"1.00{TIMES}"),
        ("2", f"50{SPACE}s", f"2.00{TIMES}"),
        ("4", f"40{SPACE}s", f"2.50{TIMES}"),
        ("8", f"40{SPACE}s", f"2.50{TIMES}"),
    ]
    assert {row["status"] for row in found} == {"recorded on big, 2026-01-02"}
    assert found[0]["remark"] == f"the longest job, throughput of cartpole, takes 40{SPACE}s"


def test_jobs_of_which_one_is_of_older_code_are_of_older_code(tmp_path):
    for experiment, changed in (("throughput", False), ("correctness", True)):
        rows_of = handwritten.rates("original", 10, 1) if experiment == "throughput" else handwritten.CHECKS
        handwritten.write(tmp_path, None, experiment, rows_of, handwritten.HERE, changed=changed)
    found = rows(tmp_path, "recording")
    assert {row["status"] for row in found} == {"measured here, code changed since"}


def test_one_job_is_no_recording_and_nothing_measured_is_said(tree, nothing):
    assert not [row for row in rows(tree, "recording") if row["status"] == "measured here"]
    (row,) = seen("nodes", nothing)
    assert (row["status"], row["time"]) == ("not measured", DASH)


def test_the_figure_has_a_panel_for_training_and_one_for_the_recording(tree):
    training, recording = figures.draw("nodes", paper.load(tree)).axes
    assert [panel.get_title(loc="left") for panel in (training, recording)] == [
        "training, cartpole, here",
        "recording, full scale, big",
    ]
    drawn = {line.get_label(): line.get_ydata().tolist() for line in training.lines}
    assert drawn["measured, loopback"] == pytest.approx([1, 1.6])
    (hollow,) = [line for line in training.lines if line.get_markerfacecolor() == figures.PAGE]
    assert hollow.get_ydata().tolist() == pytest.approx([1.6])
    (packed,) = [line for line in recording.lines if line.get_marker() == "s"]
    assert packed.get_ydata().tolist() == pytest.approx([1, 2, 2.5, 2.5])


def test_the_sentences_are_of_the_most_processes_with_a_core_each(tree, tmp_path):
    report = Report(tree, tmp_path / "out")
    assert sentences.on_nodes(report, "here") == (
        f"Here, 2 processes train CartPole-v1 by PPO at 1.60{TIMES} the rate of one, and 20{SPACE}% of an iteration "
        f"goes by in sums; by the model 4 nodes train at 2.60{TIMES} through links of 8{SPACE}Gbit/s, 1.00{SPACE}ms."
    )
    assert sentences.on_nodes(report, "big").endswith(
        f"the 4 jobs of a recording at full scale took 1{SPACE}min{SPACE}40{SPACE}s; 8 such nodes would take "
        f"40{SPACE}s, and no number of them less than the longest job, throughput of cartpole, 40{SPACE}s."
    )


def test_a_run_whose_environment_no_longer_asks_has_no_model_of_links(tree, monkeypatch):
    monkeypatch.setattr(nodes, "section", lambda name: None)
    found = tables.frame("nodes", paper.load(tree))
    assert found.loc[found["work"] == "training", "nodes"].tolist() == [1, 2, 4]
