"""A page of measurements on a busy machine: they are told of once and count for nothing."""

import json

import pytest

from lockstep import paper
from lockstep.paper import figures, sentences, tables
from lockstep.paper.quantities import find
from lockstep.paper.report import Report
from tests.paper import handwritten

FUSED = {"rung": "port-cpu-fused", "num_envs": handwritten.B}


def disturb(root, experiment, *places):
    """Marks groups of rows, each the blocks of one setting, as measured with a third of a core."""
    file = next(root.glob(f"results/**/{experiment}.json"))
    busy = [
        {"group": "a setting", "had": 0.34, "first": first, "rows": handwritten.BLOCKS, "fields": fields}
        for first, fields in places
    ]
    file.write_text(json.dumps(json.loads(file.read_text()) | {"busy": busy}))


@pytest.fixture
def fused_was_disturbed(tmp_path):
    handwritten.here(tmp_path)
    rungs = [row["rung"] for row in paper.load(tmp_path)[-1].frame.to_dict("records")]
    disturb(tmp_path, "throughput", (rungs.index("port-cpu-fused"), FUSED))
    return Report(tmp_path, tmp_path)


def asked(report, quantity, against=None, **select):
    return find(report.datasets, {"quantity": quantity, "select": select, "against": against})


def test_a_busy_group_gives_no_number_and_the_page_says_so(fused_was_disturbed):
    report = fused_was_disturbed
    assert asked(report, "rate", rung="port-cpu") and not asked(report, "rate", **FUSED)
    assert not asked(report, "ratio", {"rung": "original", "num_envs": 1}, **FUSED)
    assert not asked(report, "rate")  # the fastest of all may be the one that was disturbed
    assert "port-cpu-fused" not in set(tables.frame("ladder", report.datasets)["rung"])
    words = sentences.busy(report)
    assert "1 group of measurements" in words and "at worst 34% (cartpole, throughput, a setting)" in words


def test_a_page_of_nothing_but_busy_groups_is_one_of_nothing_measured(tmp_path):
    handwritten.here(tmp_path)
    blocks = len(paper.load(tmp_path)[-1].frame) // handwritten.BLOCKS
    disturb(tmp_path, "throughput", *((handwritten.BLOCKS * number, {}) for number in range(blocks)))
    report = Report(tmp_path, tmp_path)
    assert "throughput" not in {dataset.provenance["experiment"] for dataset in report.datasets}
    assert sentences.measured(report, "here") == ""
    for name in tables.every():
        report.table(name)
    for name in ("ladder", "throughput", "family"):
        figures.draw(name, report.datasets)


def test_a_quiet_machine_is_not_spoken_of(tmp_path):
    handwritten.here(tmp_path)
    assert sentences.busy(Report(tmp_path, tmp_path)) == ""
