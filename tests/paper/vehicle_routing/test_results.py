"""Oracles of vehicle routing, from rows written by hand."""

import pytest

from lockstep import paper
from lockstep.experiments.vehicle_routing import oracles
from lockstep.paper import figures, tables
from lockstep.paper.common.tables.environments import traits
from lockstep.paper.typeset import SPACE, TIMES
from lockstep.paper.vehicle_routing import summaries
from tests.paper import handwritten
from tests.paper.reading import find, seen

NAME = summaries.NAME


def answered(oracle, costs, requests=30, part="gap", others=(), **columns):
    """Rows of problems, in vehicles of their own."""
    row = {"environment": NAME, "part": part, "oracle": oracle, "requests": requests, "batch": 1}
    row |= {"batch_statistics": False, "vehicles": 4, "status": "measured"} | columns
    found = [row | {"problem": number, "cost_min": cost} for number, cost in enumerate(costs)]
    return [one | {"among_others_min": cost} for one, cost in zip(found, others, strict=True)] if others else found


ROWS = [
    *answered("greedy:nearest", [150, 250]),
    *answered("insertion", [110, 220]),
    *answered("pyvrp:0.1", [100, 210]),
    *answered("ortools:0.1", [120, 220]),
    *answered("pyvrp:2", [100, 200]),
    *answered("am", [""], status="not measured", reason="there is no small.npz", problem="", vehicles=""),
    *answered("published", [10, 20, 30, 40], 15, "neighbours", [10, 24, 28, 40], batch=2, batch_statistics=True),
    *answered("published", [10, 20, 30, 40], 15, "neighbours", [10, 20, 30, 40], batch=2),
]


def size(rung, rate, num_envs=1, cpu_s=1.0, oracle="am"):
    """Blocks of a second each."""
    row = {"environment": NAME, "rung": rung, "device": "cpu", "preset": "corrected", "oracle": oracle}
    row |= {"lookahead_mask": False, "requests": 30, "num_envs": num_envs, "threads": 1, "bytes_per_env": 5000}
    row |= {"steps": rate, "wall_s": 1.0, "cpu_s": cpu_s, "status": "measured"}
    return [row | {"block": block} for block in range(handwritten.BLOCKS)]


SIZES = [*size("original", 50), *size("port-cpu", 100), *size("port-cpu", 800, 64, cpu_s=2.0)]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    root = tmp_path_factory.mktemp("routing")
    for experiment, rows in (("oracles", ROWS), ("scaling", SIZES)):
        handwritten.write(root, None, experiment, rows, handwritten.HERE, environment=NAME)
    return paper.load(root)


def test_rows_by_hand_have_the_columns_of_the_experiment():
    assert handwritten.COLUMNS["oracles"].split() == oracles.COLUMNS


def test_an_episode_is_a_decision_of_each_of_thirty_travellers():
    assert traits(NAME)["longest"] == 30


def test_gaps_are_to_the_longest_run_of_pyvrp(datasets):
    rows = {row["oracle"]: row for row in seen("routing_oracles", datasets)}
    solvers = ["OR-Tools, 0.1 s", "PyVRP, 0.1 s", "PyVRP, 2 s"]
    assert list(rows) == ["insertion", "attention model, greedy", "greedy, nearest", *solvers]
    assert rows["OR-Tools, 0.1 s"]["over PyVRP"].startswith(f"15{SPACE}% [")  # 20 and 10 %
    assert rows["insertion"]["over PyVRP"] == f"10{SPACE}% [10{SPACE}%, 10{SPACE}%]"  # 110/100 and 220/200
    assert rows["greedy, nearest"]["over PyVRP"].startswith(f"38{SPACE}% [")  # 50 and 25 %
    assert rows["PyVRP, 0.1 s"]["over PyVRP"].startswith(f"2.5{SPACE}% [")
    assert rows["PyVRP, 2 s"]["over PyVRP"] == rows["attention model, greedy"]["over PyVRP"] == "\N{EN DASH}"
    assert (rows["PyVRP, 2 s"]["cost, min"], rows["insertion"]["days"]) == ("150", "2")
    assert rows["attention model, greedy"]["remark"] == "there is no small.npz"


def test_where_pyvrp_has_no_answer_there_is_no_gap(tmp_path):
    rows = [*answered("insertion", [110], 10), *answered("insertion", [110]), *answered("pyvrp:1", [100])]
    handwritten.write(tmp_path, None, "oracles", rows, handwritten.HERE, environment=NAME)
    gaps = [row["over PyVRP"][:2] for row in seen("routing_oracles", paper.load(tmp_path))]
    assert gaps == ["\N{EN DASH}", "10", "\N{EN DASH}"]


def test_costs_that_neighbours_change_are_counted(datasets):
    rows = {row["statistics of the batch"]: row for row in seen("routing_neighbours", datasets)}
    assert rows["yes"]["costs that change"].startswith(f"50{SPACE}% [") and rows["no"]["costs that change"][:1] == "0"
    assert (rows["yes"]["mean change, min"], rows["yes"]["largest, min"]) == ("1.50", "4.00")  # of 0, 4, 2, 0


def test_quantities_by_hand(datasets):
    assert find(datasets, "oracle_gap", experiment="oracles", oracle="insertion")[0].value == pytest.approx(0.1)
    assert find(datasets, "day_cost", experiment="oracles", oracle="pyvrp:2")[0].shown == f"150{SPACE}min"
    assert find(datasets, "cost_changed", experiment="oracles", batch_statistics=True)[0].value == 0.5
    assert find(datasets, "cost_change", experiment="oracles", batch_statistics=True)[0].value == 1.5
    assert find(datasets, "cost_changed", experiment="oracles", batch_statistics=False)[0].value == 0
    select = {"experiment": "scaling", "rung": "port-cpu", "num_envs": 64}
    assert find(datasets, "batch_ratio", {"num_envs": 1}, **select)[0].shown == f"8.00{TIMES}"
    assert find(datasets, "batch_cpu_ratio", {"num_envs": 1}, **select)[0].value == 4  # two CPU-seconds a block
    assert find(datasets, "batch_ratio", {"rung": "original", "num_envs": 1}, **select)[0].value == 16
    assert find(datasets, "batch_bytes", **select)[0].shown == f"320{SPACE}kB"


def test_claims_and_targets_are_answered_where_they_can_be(datasets):
    rows = {row["question"]: row["this work"] for row in seen("vehicle_routing_claims", datasets)}
    assert rows["64 environments over one, port on the CPU, attention model"] == f"8.00{TIMES}"
    assert rows["64 environments over one, port on the CPU, per CPU-second"] == f"4.00{TIMES}"
    assert rows["cost of a day here, by insertion"] == f"165{SPACE}min"
    assert rows["costs that other neighbours change, stored statistics"] == f"0{SPACE}%"
    aims = {row["target"]: row["met"] for row in seen("targets", datasets) if row["environment"] == NAME}
    assert aims["Costs that other neighbours in a batch change, with stored statistics"] == "yes"
    assert aims["CPU time of a step of the original with the attention model"] == "yes"  # 1/50 s
    assert aims["Attention model at 64 environments over the original, per CPU-second"] == "no"  # 8


def test_gaps_and_changes_are_drawn(datasets):
    (panel,) = figures.draw("routing_gap", datasets).axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in panel.lines}
    assert lines["insertion"] == [[30, pytest.approx(0.1)]] and lines["PyVRP, 0.1 s"] == [[30, pytest.approx(0.025)]]
    assert not {"PyVRP, 2 s", "attention model, greedy"} & set(lines)
    (panel,) = figures.draw("routing_neighbours", datasets).axes
    ends = {line.get_label(): line.get_xydata().tolist() for line in panel.lines if line.get_marker() == "o"}
    assert ends == {
        "stored statistics, batches of 2": [[0, 1]],
        "the batch's statistics, batches of 2": [[4, 1]],
    }
    steps = [line for line in panel.lines if line.get_marker() != "o"][1]
    assert steps.get_xydata().tolist() == [[0, 0], [0, 0.25], [0, 0.5], [2, 0.75], [4, 1], [4, 1]]


def test_nothing_measured_is_said(nothing):
    for name in ("routing_ladder", "routing_gap", "routing_neighbours", "vehicle_routing_scaling"):
        (panel,) = figures.draw(name, nothing).axes
        assert [text.get_text() for text in panel.texts] == ["not measured yet"]
    assert {row["status"] for row in seen("vehicle_routing_claims", nothing)} == {"not measured"}
    assert tables.frame("routing_oracles", nothing).empty
