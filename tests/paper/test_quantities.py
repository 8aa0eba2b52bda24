import dataclasses
import math

import pandas as pd
import pytest

from lockstep import paper
from lockstep.paper import quantities
from tests.paper import handwritten
from tests.paper.handwritten import B
from tests.paper.reading import find

CORRECTNESS, COMPILATION = {"experiment": "correctness"}, {"experiment": "compilation"}
CALLS = {"rung": "port-cuda-constant", "num_envs": B}  # 819,200 steps/s: a batch takes 10 ms
BOTH = {"rung": "port-cpu", "num_envs": B}  # 200,000 steps/s on one thread, 300,000 on two
FIRST = [  # quantity, select, against, and the first finding: its machine and what is said
    # On big 1,000,000 / 50. The reader's original is faster and would give 10,000; bare has none at all.
    ("ratio", {"rung": "port-cuda-graph"}, {"rung": "original", "num_envs": 1}, "big", 20_000),
    ("rate", {"rung": "port-cpu"}, None, "here", 300_000),  # of several rows the fastest
    ("rate", BOTH | {"threads": 1}, None, "here", 200_000),
    ("rate", BOTH | {"threads": "all"}, None, "here", 300_000),
    ("cpu_rate", BOTH, None, "here", 200_000),  # a second core is no speed per CPU-second
    ("threads", BOTH, None, "here", "2 threads"),
    ("threads", BOTH | {"num_envs": 1}, None, "here", "1 thread"),
    ("call_time", CALLS, None, "bare", 0.01),
    ("step_time", CALLS, None, "bare", 1 / 819_200),
    ("bandwidth_share", {"rung": "port-cpu"}, None, "here", 0.75),  # 10 B x 300,000 of 4,000,000 B/s
    ("tolerance_share", CORRECTNESS | {"level": "transition"}, None, "here", 0.5),
    ("cases", CORRECTNESS | {"level": "transition"}, None, "here", 1_000_000),
    ("checks_held", CORRECTNESS, None, "here", "4 of 5"),
    ("environments_held", CORRECTNESS, None, "here", "0 of 1"),
    ("spilled_bytes", COMPILATION, None, "here", 8),
    ("checks_told", CORRECTNESS, None, "here", "1"),
    ("divergence", CORRECTNESS, None, "here", "at step 113 in the median (5\u201395\u00a0%: 99 \u2013 146)"),
]


@pytest.mark.parametrize(("quantity", "select", "against", "machine", "answer"), FIRST)
def test_figures_that_can_be_worked_out_in_the_head(datasets, quantity, select, against, machine, answer):
    first = find(datasets, quantity, against, **select)[0]
    said = first.shown if isinstance(answer, str) else first.value
    assert (first.machine, said) == (machine, answer if isinstance(answer, str) else pytest.approx(answer))


def test_what_was_measured_here_comes_first_and_a_ratio_stays_on_its_machine(datasets):
    assert [finding.machine for finding in find(datasets, "rate")] == ["here", "bare", "big"]
    ratios = find(datasets, "ratio", {"rung": "original", "num_envs": 1}, rung="port-cuda-graph")
    assert [finding.machine for finding in ratios] == ["big"]
    assert [finding.machine for finding in find(datasets, "bandwidth_share", rung="port-cpu")] == ["here"]
    (parting,) = find(datasets, "divergence", experiment="correctness")
    assert (parting.value, parting.low, parting.high) == (113, 99, 146)


def a_piece(datasets, *missing):
    """The runs of the reader's machine, as one that ended with these groups missing leaves them."""
    return [
        dataclasses.replace(run, provenance=run.provenance | {"missing": ["a group"], "missing_groups": list(missing)})
        for run in datasets
        if run.origin == "here"
    ]


@pytest.mark.parametrize("quantity", ["rate", "cpu_rate", "threads", "step_time", "call_time", "bandwidth_share"])
def test_while_a_row_that_is_asked_for_is_missing_there_is_no_answer(datasets, quantity):
    both = {"rung": "port-cpu", "num_envs": B, "threads": 2}
    select = {"environment": "cartpole", "rung": "port-cpu", "num_envs": B}
    assert find(a_piece(datasets, both | {"num_envs": 1}), quantity, **select)
    assert find(a_piece(datasets, both), quantity, **select, threads=1)
    assert not find(a_piece(datasets, both), quantity, **select)
    assert not find(a_piece(datasets, {}), quantity, **select)


@pytest.mark.parametrize("quantity", ["ratio", "cpu_ratio"])
def test_a_ratio_waits_for_either_side(datasets, quantity):
    select, against = {"rung": "port-cpu", "num_envs": B}, {"rung": "original", "num_envs": 1}
    assert find(a_piece(datasets, {"rung": "port-cpu", "num_envs": 1}), quantity, against, **select)
    for name, num_envs in (("port-cpu", B), ("original", 1)):
        assert not find(a_piece(datasets, {"rung": name, "num_envs": num_envs}), quantity, against, **select)


def test_an_original_under_a_policy_that_is_missing_is_not_replaced_by_another(datasets):
    (run,) = quantities.of(a_piece(datasets, {"rung": "original", "policy": "fixed"}), {})
    ratios = quantities.rates(run).groupby("policy")["ratio"].count()
    assert ratios["random"] > 0 and ratios.get("fixed", 0) == 0


def test_copy_bandwidth_between_sizes_follows_the_logarithm(datasets):
    run = quantities.of(datasets, {"experiment": "ceilings"})[0]
    frame = run.frame[run.frame["quantity"] == "copy"]
    larger = frame.assign(size_bytes=frame["size_bytes"] * 100, amount=frame["amount"] / 2)
    both = [dataclasses.replace(run, frame=pd.concat([frame, larger]))]
    assert quantities.copy_bandwidth(both, run, "cpu", 81920 * 10) == pytest.approx(3e6)
    assert quantities.copy_bandwidth(both, run, "cpu", 1) == pytest.approx(4e6)
    assert math.isnan(quantities.copy_bandwidth(both, run, "cuda", 81920))


def test_bandwidth_share_is_of_the_largest_batch(datasets):
    run = quantities.of(datasets, {})[0]
    smaller = run.frame[run.frame["num_envs"] == 1].assign(steps=10**9, bytes_per_step=10.0)
    others = [dataset for dataset in datasets if dataset is not run]
    faster = dataclasses.replace(run, frame=pd.concat([run.frame[run.frame["num_envs"] > 1], smaller]))
    assert find([faster, *others], "bandwidth_share", rung="port-cpu")[0].value == pytest.approx(0.75)


def blocks(count=6, **row):
    return [row | {"block": block} for block in range(count)]


def test_shares_of_transfer_by_hand(tmp_path):
    """A real loop of 1 us up, 5 of policy, 1 down and 3 of step: two tenths are copies. Apart 6 over a step of 3."""
    common = {"environment": "cartpole", "num_envs": B, "threads": 1, "calls": 1, "copies": "", "source": "port-cpu"}
    real = common | {"loop": "real", "device": "cuda", "memory": "pageable"}
    rows = []
    for part, seconds in {"up": 1e-6, "policy": 5e-6, "down": 1e-6, "step": 3e-6, "loop": 1e-5}.items():
        rows += blocks(**real, part=part, clock="host", wall_s=seconds)
    note = common | {"loop": "note", "clock": "host"}
    for part, seconds in {"up": 4e-6, "down": 2e-6}.items():
        rows += blocks(
            **note | {"source": "copy", "threads": ""}, device="cuda", memory="pageable", part=part, wall_s=seconds
        )
    rows += blocks(**note, device="cpu", memory="none", part="step", wall_s=3e-6)
    handwritten.write(tmp_path, None, "transfer", rows, handwritten.BIG)
    found = paper.load(tmp_path)
    select = {"experiment": "transfer", "num_envs": B, "memory": "pageable"}
    assert find(found, "transfer_share", **select, loop="real")[0].value == pytest.approx(0.2)
    assert find(found, "copies_over_step", **select, loop="note")[0].value == pytest.approx(2)
    assert find(found, "transfer_share", **select, loop="resident") == []


def test_the_port_over_the_fastest_of_the_peers_that_fit(tmp_path):
    row = {"environment": "cartpole", "version": "1", "num_envs": B, "threads": 1, "fused_steps": 1, "wall_s": 1.0}
    row |= {"mode": "step", "status": "measured", "live_share": 1.0, "cpu_s": 1.0, "device": "cpu"}
    rates = {"A": 10, "B": 40, "Lockstep": 200}
    rows = [line for peer, rate in rates.items() for line in blocks(**row, peer=peer, steps=rate)]
    handwritten.write(tmp_path, None, "peers", rows, handwritten.HERE)
    found = paper.load(tmp_path)
    assert find(found, "peer_ratio", experiment="peers", num_envs=B)[0].value == 5
    assert find(found, "peer_ratio", experiment="peers", peer="A")[0].value == 20
    assert find(found, "peer_ratio", experiment="peers", peer="C") == []


def test_cases_are_added_over_regions_and_not_over_variants(tmp_path):
    compared = {"x": 100, "x (fast)": 50, "x (slow, wraps)": 25, "x (g=9.81; fast)": 1000, "terminated": 175}
    about = {"error": 0.0, "tolerance": 1.0, "passed": True}
    rows = [handwritten.check("transition", name, cases, **about) for name, cases in compared.items()]
    rows += [row | {"dtype": "float64", "cases": row["cases"] + 1} for row in rows]
    handwritten.write(tmp_path, None, "correctness", rows, handwritten.HERE)
    assert find(paper.load(tmp_path), "cases", experiment="correctness", level="transition")[0].value == 175


def test_a_finding_names_its_environment(tmp_path):
    for name, rate in (("cartpole", 100), ("pendulum", 50)):
        rows = [row | {"environment": name} for row in handwritten.rates("original", rate, 1)]
        handwritten.write(tmp_path, None, "throughput", rows, handwritten.HERE, environment=name)
    found = find(paper.load(tmp_path), "rate", rung="original")
    assert [(finding.environment, finding.value) for finding in found] == [("cartpole", 100), ("pendulum", 50)]


def test_without_such_rows_nothing_is_told(datasets):
    judged = [
        dataclasses.replace(run, frame=run.frame[run.frame["level"] != "episode"])
        for run in quantities.of(datasets, {"experiment": "correctness"})
    ]
    for name in ("checks_told", "divergence"):
        assert find(judged, name, experiment="correctness") == []


def test_what_nobody_measured_has_no_answer(datasets):
    assert find(datasets, "rate", experiment="transfer") == []
    assert find(datasets, "rate", rung="arrays-cupy") == []


def test_an_unknown_quantity_or_column_is_named(datasets):
    with pytest.raises(ValueError, match="'speed' is unknown; there are .*rate, "):
        find(datasets, "speed")
    with pytest.raises(ValueError, match="the column 'rungs'; there are environment, rung, "):
        find(datasets, "rate", rungs="original")
