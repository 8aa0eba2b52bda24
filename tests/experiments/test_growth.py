"""The model of sums over processes, and jobs on nodes, beside what can be worked out by hand."""

import math

import pandas as pd
import pytest

from lockstep.experiments import growth
from lockstep.experiments.growth import Model, Ring
from tests.paper import handwritten

RING = Ring(latency_s=1e-3, byte_s=1e-6)


@pytest.mark.parametrize(
    ("ranks", "calls", "size", "seconds"),
    [
        (1, 7, 10_000, 0.0),  # nobody to wait for
        (2, 1, 0, 2e-3),  # there and back
        (2, 1, 1_000_000, 1.002),  # half of the bytes each time
        (4, 1, 1_000_000, 1.506),  # six messages of a quarter
        (4, 4, 4000, 0.03),  # 6 (4 x 1 ms + 1 ms)
    ],
)
def test_a_ring_sends_two_messages_for_each_other_rank(ranks, calls, size, seconds):
    assert RING.seconds(ranks, calls, size) == pytest.approx(seconds)


def test_bytes_cost_twice_their_time_at_most_and_latency_has_no_bound():
    assert RING.seconds(10**6, 0, 1_000_000) == pytest.approx(2.0, rel=1e-5)
    assert RING.seconds(1001, 1, 0) == pytest.approx(2.0)


def test_a_link_adds_its_time_to_that_of_the_software():
    """8 Gbit/s are a GB/s: a nanosecond for each byte."""
    assert RING.through(8, 5e-4) == Ring(pytest.approx(1.5e-3), pytest.approx(1.001e-6))


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_ring_is_found_again_in_its_own_times(ranks):
    sizes = [24, 36_688, 1_000_000, 16_000_000]
    found = growth.ring_of(ranks, sizes, [RING.seconds(ranks, 1, size) for size in sizes])
    assert (found.latency_s, found.byte_s) == pytest.approx((RING.latency_s, RING.byte_s))


def test_a_ring_has_no_cost_below_nothing():
    assert growth.ring_of(2, [8, 1_000_000], [2e-3, 1e-3]).byte_s == 0.0


def test_an_iteration_is_compute_and_sums():
    model = Model(compute_s=0.1, calls=4, size=4000, ring=RING)
    assert [model.iteration_s(ranks) for ranks in (1, 2, 4)] == pytest.approx([0.1, 0.112, 0.13])
    link = {"gbit_per_s": 8, "latency_s": 1e-3}  # latency twice as long
    assert model.iteration_s(4, link) == pytest.approx(0.1 + 6 * (4 * 2e-3 + 1000 * 1.001e-6))


def test_a_run_summed_up_and_modelled():
    found = growth.summary(pd.DataFrame(handwritten.RANKS)).set_index("ranks")
    assert found["rate"].tolist() == pytest.approx([1000, 1600, 1600])
    assert found["iteration_s"].tolist() == pytest.approx([0.1, 0.125, 0.25])
    assert found["efficiency"].tolist() == pytest.approx([1, 0.8, 0.4])
    assert found["cpu_efficiency"].tolist() == pytest.approx([1, 1, 0.8])
    assert found["sum_s"].tolist() == pytest.approx([math.nan, 0.025, 0.1], nan_ok=True)
    assert found["lone_s"].tolist() == pytest.approx([math.nan, 0.012, 0.12], nan_ok=True)
    assert found["crowded"].tolist() == [False, False, True]
    model = growth.model_of(pd.DataFrame(handwritten.RANKS))
    assert (model.compute_s, model.calls, model.size) == pytest.approx((0.1, 4, 4000))
    assert (model.ring.latency_s, model.ring.byte_s) == pytest.approx((1e-3, 1e-6))


def test_ranks_of_a_block_count_with_their_mean():
    rows = handwritten.iterations(2, 0.1)
    for row in rows:
        row["cpu_s"], row["sum_s"] = (0.2, 0.0) if row["rank"] == 0 else (0.1, 0.1)
    (found,) = growth.summary(pd.DataFrame(rows)).to_dict("records")
    assert (found["cpu_s"], found["sum_s"]) == pytest.approx((0.075, 0.025))
    assert math.isnan(found["efficiency"])  # of one rank nothing is known


@pytest.mark.parametrize("left_out", [1, 2])
def test_without_one_rank_or_sums_of_ranks_with_a_core_each_there_is_no_model(left_out):
    rows = [row for row in handwritten.RANKS if row["ranks"] != left_out]
    assert growth.model_of(pd.DataFrame(rows)) is None


@pytest.mark.parametrize(
    ("jobs", "nodes", "seconds"),
    [
        ([3, 1, 2], 1, 6),
        ([3, 3, 5, 4, 3], 2, 10),  # 5 + 3 and 4 + 3 + 3; 5 + 4 and 3 + 3 + 3 would take 9
        ([2, 2, 2, 2], 4, 2),
        ([7, 1, 1], 8, 7),  # no node is faster than the longest
    ],
)
def test_the_longest_job_is_taken_first(jobs, nodes, seconds):
    assert growth.packed_s(jobs, nodes) == seconds
