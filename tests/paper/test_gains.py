import math

import pandas as pd
import pytest
from matplotlib.colors import to_hex

from lockstep import paper
from lockstep.paper import figures, tables
from lockstep.paper.common.tables import gains
from lockstep.paper.typeset import DASH, LESS, SPACE, TIMES
from tests.paper import handwritten
from tests.paper.handwritten import B, rates
from tests.paper.reading import seen


def run_of(tmp_path, *rows):
    """One throughput run with these rows."""
    handwritten.write(tmp_path, None, "throughput", [row for part in rows for row in part], handwritten.BIG)
    return paper.load(tmp_path)


CPU = (
    rates("original", 100, 1),
    rates("arrays-numpy", 5000),
    rates("port-cpu", 50_000) + rates("port-cpu", 40_000, threads=2),
    rates("port-cpu-fused", 150_000, fused_steps=8) + rates("port-cpu-fused", 200_000, fused_steps=128),
    rates("port-cpu-fused", 300_000, fused_steps=128, threads=2),
)
GPU = (
    rates("port-cuda-sync", 400_000, device="cuda"),
    rates("port-cuda", 1_000_000, device="cuda"),
    rates("port-cuda-graph", 500_000, device="cuda"),
    rates("port-cuda-fused", 10_000_000, device="cuda", fused_steps=128),
)


def test_each_step_multiplies_the_rate_by_what_divides_the_two(tmp_path):
    found = [(row["way"], row["step"], row["factor"]) for row in seen("breakdown", run_of(tmp_path, *CPU, *GPU))]
    assert found == [
        ("CPU", "batching", f"50.0{TIMES}"),
        ("CPU", "compiling", f"10.0{TIMES}"),  # on one thread, whatever two make
        ("CPU", "fusing", f"4.00{TIMES}"),  # the fastest number of steps
        ("CPU", "threads", f"1.50{TIMES}"),
        ("GPU", "batching on GPU + one kernel", f"4,000{TIMES}"),  # arrays-cupy was not run
        ("GPU", "not waiting", f"2.50{TIMES}"),
        ("GPU", "graph", f"0.500{TIMES}"),
        ("GPU", "fusing", f"20.0{TIMES}"),
    ]


def test_rungs_of_other_batch_sizes_are_not_compared(tmp_path):
    """A graph of many environments is no step towards fused steps of few."""
    many = rates("port-cuda-graph", 20_000_000, 4 * B, device="cuda")
    (row,) = seen("breakdown", run_of(tmp_path, CPU[0], many, GPU[3]))
    assert row["step"] == "batching on GPU + one kernel + not waiting + graph + fusing"
    assert (row["B"], row["factor"]) == (f"{B:,}", f"100,000{TIMES}")


def test_a_way_that_was_measured_elsewhere_alone_names_its_batch_size(tmp_path):
    many = rates("port-cuda-graph", 20_000_000, 4 * B, device="cuda")
    datasets = run_of(tmp_path, CPU[0], CPU[1], many)
    assert [row["B"] for row in seen("breakdown", datasets)] == [f"{B:,}", f"{4 * B:,}"]
    names = [label.get_text() for label in figures.draw("breakdown", datasets).axes[0].get_yticklabels()]
    assert names == ["cartpole, CPU", f"cartpole, GPU, B = {4 * B:,}"]


def test_the_factors_of_a_way_multiply_to_its_whole_gain(tmp_path):
    frame = tables.frame("breakdown", run_of(tmp_path, *CPU, *GPU))
    assert frame[frame["way"] == "CPU"]["factor"].prod() == pytest.approx(300_000 / 100)
    assert frame[frame["way"] == "GPU"]["factor"].prod() == pytest.approx(10_000_000 / 100)


def test_an_interval_holds_its_factor(tmp_path):
    noisy = rates("port-cpu", 50_000)
    for row, factor in zip(noisy, (0.9, 1, 1.1, 0.95, 1.05, 1), strict=True):
        row["steps"] = int(row["steps"] * factor)
    (row,) = seen("breakdown", run_of(tmp_path, CPU[0], noisy))
    frame = tables.frame("breakdown", paper.load(tmp_path)).iloc[0]
    assert 450 <= frame["low"] < frame["factor"] == 500 < frame["high"] <= 550
    assert row["95 % interval"] != DASH


def test_a_single_core_has_no_step_of_threads_and_no_gpu_no_way(tmp_path):
    found = seen("breakdown", run_of(tmp_path, CPU[0], CPU[2][: handwritten.BLOCKS], CPU[3]))
    assert [row["step"] for row in found] == ["batching + compiling", "fusing"]
    assert {row["way"] for row in found} == {"CPU"}


def test_without_an_original_a_way_starts_at_the_first_rung_that_was_run(tmp_path):
    found = seen("breakdown", run_of(tmp_path, *GPU))
    assert [row["step"] for row in found] == ["not waiting", "graph", "fusing"]


def test_a_run_of_one_rung_has_no_steps(tmp_path):
    assert [row["step"] for row in seen("breakdown", run_of(tmp_path, CPU[0]))] == [DASH]


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        # Through one halfway between the logarithms: 10^1.
        ({1: 0.1, 100: 10.0}, (10, 1, 100)),
        ({1: 0.25, 16: 4.0, 256: 8.0}, (4, 1, 16)),
        # The last size at which it is behind counts.
        ({1: 2.0, 4: 0.5, 16: 2.0}, (8, 4, 16)),
        ({8: 1.0, 64: 3.0}, (8, 8, 8)),
        ({8: 2.0, 64: 0.5}, (math.inf, 64, math.inf)),
    ],
)
def test_crossings_by_hand(curve, expected):
    assert gains.crossing(pd.Series(curve)) == pytest.approx(expected)


def test_nothing_measured_crosses_nowhere():
    assert all(math.isnan(part) for part in gains.crossing(pd.Series(dtype=float)))


def at_sizes(rung, by_size, **columns):
    return [row for num_envs, rate in by_size.items() for row in rates(rung, rate, num_envs, **columns)]


def test_break_even_sizes(tmp_path):
    """The port crosses 100 steps/s at B = 10 and the vector class nowhere, the GPU the port at the 1,000 between."""
    (row,) = seen(
        "break_even",
        run_of(
            tmp_path,
            rates("original", 100, 1),
            at_sizes("gymnasium-vector", {1: 5, B: 4000}),
            at_sizes("port-cpu", {1: 10, 100: 1000, 10_000: 10_000})
            + at_sizes("port-cpu", {10_000: 100_000}, threads=2),
            at_sizes("port-cuda", {100: 100, 10_000: 1_000_000}, device="cuda"),
        ),
    )
    assert row["CPU over the original"] == f"10 (1 {DASH} 100)"
    assert row["CPU over Gymnasium's vector class"] == f"{LESS}{SPACE}1"  # the one size that both ran
    assert row["GPU over the original"] == f"{LESS}{SPACE}100"
    assert row["GPU over CPU"] == f"1,000 (100 {DASH} 10,000)"  # a tenth at 100, ten times the two threads at 10,000
    assert row["GPU, graph, over CPU"] == DASH  # no graph was run


def test_a_port_that_never_catches_up_says_up_to_where(tmp_path):
    (row,) = seen("break_even", run_of(tmp_path, rates("original", 100, 1), at_sizes("port-cpu", {1: 10, 64: 90})))
    assert row["CPU over the original"] == "above 64"
    assert row["CPU over Gymnasium's vector class"] == DASH  # no such class was run
    assert row["GPU over CPU"] == DASH


def test_nothing_measured_is_said(nothing):
    (row,) = seen("break_even", nothing)
    assert set(row.values()) == {"cartpole", "not measured", DASH}
    (row,) = seen("breakdown", nothing)
    assert row["status"] == "not measured"


def test_the_picture_has_bars_for_both_ways_and_a_diamond_where_a_gpu_catches_up(tmp_path):
    small = at_sizes("port-cpu", {64: 50_000}) + at_sizes("port-cuda", {64: 5000}, device="cuda")
    drawn = figures.draw("breakdown", run_of(tmp_path, *CPU, *GPU, small))
    bars, curves = drawn.axes
    assert [label.get_text() for label in bars.get_yticklabels()] == ["cartpole, CPU", "cartpole, GPU"]
    drawn_bars = [bar for bar in bars.patches if bar.get_width()]
    hollow = [bar for bar in drawn_bars if to_hex(bar.get_facecolor()) == figures.PAGE]
    assert len(drawn_bars) == 8 and len(hollow) == 1  # the graph loses here
    (diamond,) = [line for line in curves.lines if line.get_marker() == "D" and line.get_color() == "black"]
    assert 64 < diamond.get_xdata()[0] < B
    assert {line.get_label() for line in curves.lines} >= {rung_label("port-cpu"), rung_label("port-cuda")}


def rung_label(name):
    return paper.rung(name).label
