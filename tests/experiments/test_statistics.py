import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from lockstep.experiments.bench import statistics

POSITIVE = st.floats(1e-3, 1e12)


@pytest.mark.parametrize(
    # Hahn & Meeker, Statistical Intervals, and the tables of the sign test: n, lower and upper rank.
    ("n", "ranks"),
    [
        (6, (1, 6)),
        (8, (1, 8)),
        (9, (2, 8)),
        (10, (2, 9)),
        (20, (6, 15)),
        (30, (10, 21)),
        (100, (40, 61)),
    ],
)
def test_ranks_of_the_median_are_the_tables(n, ranks):
    assert statistics.summarise(range(1, n + 1))[1:3] == ranks


def test_summary_of_ten_values_by_hand():
    """1 .. 10: median 5.5, interval the 2nd to the 9th value, 5 % and 95 % between the outer pairs."""
    summary = statistics.summarise([10, 1, 9, 2, 8, 3, 7, 4, 6, 5])
    assert summary == pytest.approx((5.5, 2, 9, 1.45, 9.55))


def test_interval_holds_the_median_of_a_skewed_distribution_in_95_percent():
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(2000):
        _, low, high, _, _ = statistics.summarise(rng.exponential(size=30))
        held += low <= math.log(2) <= high
    # Exactly 95.7 % for ranks 10 and 21 of 30; 2000 draws have a standard error of 0.45 %.
    assert 0.943 < held / 2000 < 0.971


def test_the_bootstrap_is_scipy_s():
    rng = np.random.default_rng(2)
    samples = [rng.exponential(size=size) for size in (7, 12)]

    def statistic(*drawn, axis=-1):
        return np.concatenate(drawn, axis=axis).mean(axis=axis)

    told = {"method": "percentile", "n_resamples": 500, "rng": np.random.default_rng(3), "vectorized": True}
    theirs = scipy.stats.bootstrap(samples, statistic, **told).confidence_interval
    assert statistics.resampled(statistic, *samples, draws=500, seed=3) == tuple(theirs)
    assert statistics.resampled(np.mean, np.array([4.0]), draws=50) == (4, 4)


def test_five_values_have_no_interval():
    summary = statistics.summarise([1, 2, 3, 4, 5])
    assert summary.median == 3
    assert np.isnan([summary.low, summary.high]).all()


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_values_that_no_clock_gives_are_refused(values):
    with pytest.raises(ValueError, match="finite"):
        statistics.summarise(values)


@given(st.lists(POSITIVE, min_size=6, max_size=40))
def test_summary_is_ordered_and_made_of_the_values(values):
    median, low, high, p5, p95 = statistics.summarise(values)
    assert min(values) <= low <= median <= high <= max(values)
    assert p5 <= median <= p95
    assert {low, high} <= set(values)


def test_ratio_of_constants_is_exact():
    assert statistics.ratio([6.0] * 10, [2.0] * 10) == (3, 3, 3)


@given(st.lists(st.floats(1, 100), min_size=6, max_size=12), st.sampled_from([0.25, 2, 1024]))
def test_ratio_scales_with_its_numerator_and_its_interval_holds_it(values, factor):
    ones = [1.0] * 6
    ratio = statistics.ratio(values, ones)
    assert ratio.low <= ratio.ratio <= ratio.high
    assert statistics.ratio([factor * value for value in values], ones) == pytest.approx(
        tuple(factor * part for part in ratio)
    )


def test_ratio_interval_holds_the_true_ratio():
    """Lognormal blocks whose medians are 12 and 3: 4 is inside in about 95 of 100 cases."""
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(100):
        _, low, high = statistics.ratio(12 * rng.lognormal(0, 0.1, 30), 3 * rng.lognormal(0, 0.1, 30))
        held += low <= 4 <= high
    assert held >= 88


def test_ratio_is_the_same_in_every_run():
    values = np.random.default_rng(3).uniform(1, 2, (2, 30))
    assert statistics.ratio(*values) == statistics.ratio(*values)


@pytest.mark.parametrize(("numerator", "denominator"), [([], [1.0]), ([1.0], []), ([1.0], [0.0])])
def test_ratio_without_a_denominator_is_refused(numerator, denominator):
    with pytest.raises(ValueError, match="denominator above 0"):
        statistics.ratio(numerator, denominator)


def rows(rung, rates, *, num_envs=1, threads=1, bytes_per_step=None, cores=1.0, **other):
    """Blocks of one second at these rates."""
    return [
        {
            "environment": "cartpole",
            "rung": rung,
            "device": "cpu",
            "num_envs": num_envs,
            "threads": threads,
            "fused_steps": 1,
            "policy": "random",
            "obs": "copy",
            "dtype": "float32",
            "bytes_per_step": bytes_per_step,
            "block": block,
            "steps": rate,
            "wall_s": 1.0,
            "cpu_s": cores,
            "first_call_s": 0.5,
        }
        | other
        for block, rate in enumerate(rates)
    ]


@pytest.fixture
def frame():
    return pd.DataFrame(
        rows("original", range(95, 105))  # median 99.5
        + rows("port-cpu", [4000] * 10, num_envs=64, bytes_per_step=62)
        + rows("port-cpu", [6000] * 10, num_envs=64, threads=2, bytes_per_step=62, cores=2.0)
        + rows("port-cpu", [9000] * 10, num_envs=8, bytes_per_step=62)
        + rows("arrays-numpy", [500] * 10, num_envs=64, threads=16)
    )


def test_summary_has_one_row_per_group_in_order(frame):
    summary = statistics.throughput_summary(frame)
    assert list(summary["rung"]) == ["original", "port-cpu", "port-cpu", "port-cpu", "arrays-numpy"]
    first, _, both = summary.iloc[0], summary.iloc[1], summary.iloc[2]
    assert (first["rate"], first["rate_low"], first["rate_high"]) == (99.5, 96, 103)
    assert (first["rate_p5"], first["rate_p95"]) == pytest.approx((95.45, 103.55))
    assert math.isnan(first["bytes_per_step"])  # a group without counted bytes is a group all the same
    assert (both["rate"], both["cpu_rate"], both["cpu_rate_low"]) == (6000, 3000, 3000)
    assert (both["first_call_s"], both["blocks"]) == (0.5, 10)


def target(**changes):
    return {
        "name": "port over original",
        "per": "second",
        "numerator": {"rung": "port-cpu", "num_envs": 64, "threads": "all"},
        "denominator": {"rung": "original"},
        "floor": 50,
    } | changes


def test_target_reached(frame):
    (row,) = statistics.targets(frame, [target()]).to_dict("records")
    assert row["value"] == pytest.approx(6000 / 99.5)
    assert row["low"] <= row["value"] <= row["high"]
    assert (row["unit"], row["status"]) == ("x", "reached")


def test_target_missed(frame):
    (row,) = statistics.targets(frame, [target(floor=61)]).to_dict("records")
    assert row["status"] == "missed"


def test_target_per_cpu_second_without_denominator(frame):
    wanted = {"name": "per core", "per": "CPU-second", "numerator": target()["numerator"], "floor": 3000}
    (row,) = statistics.targets(frame, [wanted]).to_dict("records")
    assert (row["value"], row["unit"], row["status"]) == (3000, "steps per CPU-second", "reached")


def test_target_left_open_takes_the_fastest_group(frame):
    (row,) = statistics.targets(frame, [target(numerator={"rung": "port-cpu"})]).to_dict("records")
    assert row["value"] == pytest.approx(9000 / 99.5)


@pytest.mark.parametrize("side", ["numerator", "denominator"])
def test_target_whose_rows_are_missing_is_not_measured(frame, side):
    (row,) = statistics.targets(frame, [target(**{side: {"rung": "port-cuda-graph"}})]).to_dict("records")
    assert row["status"] == "not measured"
    assert math.isnan(row["value"])


NUMERATOR = {"rung": "port-cpu", "num_envs": 64, "threads": 2}


@pytest.mark.parametrize(
    ("wanted", "missing", "status"),
    [
        (target(), [NUMERATOR], "not measured"),
        (target(), [NUMERATOR | {"threads": 16}], "not measured"),  # then "all" would be those
        (target(), [NUMERATOR | {"threads": 1}], "reached"),
        (target(), [NUMERATOR | {"num_envs": 8}], "reached"),
        (target(numerator={"rung": "port-cpu"}), [NUMERATOR | {"num_envs": 8}], "not measured"),
        (target(), [{"rung": "original", "num_envs": 1, "threads": 1}], "not measured"),
        (target(), [{}], "not measured"),  # of which nothing is told
    ],
)
def test_a_target_is_open_while_a_group_that_it_names_is_missing(frame, wanted, missing, status):
    (row,) = statistics.targets(frame, [wanted], missing).to_dict("records")
    assert row["status"] == status
    assert math.isnan(row["value"]) == (status == "not measured")


def test_a_piece_without_the_rows_of_all_cores_is_not_judged_on_the_others(frame):
    (row,) = statistics.targets(frame[frame["threads"] == 1], [target()], [NUMERATOR]).to_dict("records")
    assert row["status"] == "not measured"


def test_a_selector_with_an_unknown_column_is_an_error(frame):
    with pytest.raises(ValueError, match="a selector names the column 'sheds'; there are environment, rung"):
        statistics.fitting(frame, {"rung": "port-cpu", "sheds": 1})


def test_all_threads_are_the_most_among_the_rows_that_fit(frame):
    """arrays-numpy has 16 threads in the frame, port-cpu 2, whatever the order of the selector's keys."""
    wanted = target(numerator={"threads": "all", "rung": "port-cpu", "num_envs": 64})
    (row,) = statistics.targets(frame, [wanted]).to_dict("records")
    assert row["value"] == pytest.approx(6000 / 99.5)
