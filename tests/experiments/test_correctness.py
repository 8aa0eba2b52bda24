"""Rows of comparisons and their report: what passes, what does not."""

import numpy as np
import pandas as pd
import pytest

from lockstep.experiments import correctness, verdicts
from lockstep.experiments.bench.statistics import ks_two_sample, mean_difference

PLACE = ("distribution", "original-port", "cpu", "float32")


def test_samples_that_never_vary_are_compared_value_by_value():
    always = np.full(500, 200.0)
    same = verdicts.alike(PLACE, "length", always, always)
    assert (same["quantity"], same["differing"], same["p_value"], same["passed"]) == (
        "length: always 200",
        0,
        None,
        True,
    )
    one = always.copy()
    one[3] = 199
    assert verdicts.alike(PLACE, "length", one, always)["passed"] is False
    assert verdicts.alike(PLACE, "length", always, one)["quantity"] == "length: difference of means"


def test_samples_of_two_distributions_differ():
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, 3000))
    assert verdicts.alike(PLACE, "return", a, b)["passed"] is True
    assert verdicts.alike(PLACE, "return", a + 0.2, b)["passed"] is False
    assert verdicts.alike(PLACE, "return", 1.3 * a, b)["passed"] is False


def test_the_report_names_what_failed():
    place = ("transition", "original-port", "cpu", "float32")
    good = verdicts.equal(place, "reward", np.zeros(5, dtype=bool))
    bad = verdicts.within(place, "x", np.array([0.0, 2e-6]), 1e-6)
    nan = verdicts.within(place, "theta", np.array([np.nan]), 1e-6)
    assert correctness.report(pd.DataFrame([good])) == "all 1 comparisons passed"
    assert correctness.report(pd.DataFrame([good, bad, nan])).splitlines() == [
        "FAILED transition original-port cpu float32 x",
        "FAILED transition original-port cpu float32 theta",
    ]


def test_the_interval_of_a_mean_difference():
    # variances 2/3 * 3/2 = 1 (ddof 1) of three values each: standard error sqrt(1/3 + 1/3)
    difference, low, high = mean_difference([1, 2, 3], [4, 5, 6], z=2.0)
    assert difference == -3
    assert (low, high) == pytest.approx((-3 - 2 * np.sqrt(2 / 3), -3 + 2 * np.sqrt(2 / 3)))


def test_the_kolmogorov_smirnov_test_keeps_equal_and_rejects_different_distributions():
    random = np.random.default_rng(0)
    p = [ks_two_sample(random.normal(size=400), random.normal(size=300)) for _ in range(300)]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.04)
    assert ks_two_sample(random.normal(size=400), random.normal(0.5, size=400)) < 1e-3
    assert ks_two_sample([1, 2, 3], [1, 2, 3]) == 1.0


def test_quick_compares_a_tenth_of_the_states_and_episodes_and_changes_nothing_else():
    asked = {
        "regions": {
            "uniform": {"states": 250_000, "box": {"x": [-3, 3]}},
            "few": {"states": 4, "of": ["random"]},
        },
        "episodes": {"replayed": {"random": 1000, "fixed": 25}},
        "sizes": {"small": {"parameters": {"vehicles": 18}, "episodes": {"uniform": 12}}},
        "played": 4096,
        "variants": [{"nips": True}],
    }
    assert correctness.fewer(asked) == {
        "regions": {"uniform": {"states": 25_000, "box": {"x": [-3, 3]}}, "few": {"states": 1, "of": ["random"]}},
        "episodes": {"replayed": {"random": 100, "fixed": 3}},
        "sizes": {"small": {"parameters": {"vehicles": 18}, "episodes": {"uniform": 2}}},
        "played": 410,
        "variants": [{"nips": True}],
    }
