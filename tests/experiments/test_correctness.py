"""Rows of comparisons and their report: what passes, what does not."""

import numpy as np
import pandas as pd
import pytest

from lockstep.envs.kernels import compile
from lockstep.experiments import correctness, verdicts

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


def test_a_value_that_is_always_the_same_by_chance_may_differ_as_rarely():
    """All k rare values lie in the first of two equal samples with probability 2^-k, about: up to nine of them."""
    always, rare = np.full(500, 41.0), np.full(500, 41.0)
    rare[:9] = 40
    assert verdicts.alike(PLACE, "length", rare, always, fixed=False)["passed"] is True
    assert verdicts.alike(PLACE, "length", rare, always)["passed"] is False
    rare[9] = 40
    assert verdicts.alike(PLACE, "length", rare, always, fixed=False)["passed"] is False
    assert verdicts.rarely(1, 999) == 1 and verdicts.rarely(1, 1000) == 0


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
    told = good | {"passed": None}
    assert correctness.report(pd.DataFrame([good])) == "all 1 comparisons passed"
    assert correctness.report(pd.DataFrame([good, told])) == (
        "all 1 comparisons passed; 1 rows report a value without judging it"
    )
    assert correctness.report(pd.DataFrame([good, bad, nan])).splitlines() == [
        "FAILED transition original-port cpu float32 x",
        "FAILED transition original-port cpu float32 theta",
    ]


def alike(ours, theirs) -> dict:
    return verdicts.alike(PLACE, "x", np.array(ours), np.array(theirs))


def test_the_interval_of_a_mean_difference():
    # Standard errors sqrt(1/3 + 1/3) with 4 degrees of freedom; Student's table: t = 8.610 for two-sided 99.9 %.
    found = alike([1, 2, 3], [4, 5, 6])
    assert found["value"] == -3
    half = 8.610 * np.sqrt(2 / 3)
    assert (found["low"], found["high"]) == pytest.approx((-3 - half, -3 + half), rel=1e-4)


def test_the_kolmogorov_smirnov_test_keeps_equal_and_rejects_different_distributions():
    random = np.random.default_rng(0)
    p = [alike(random.normal(size=400), random.normal(size=300))["p_value"] for _ in range(300)]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.04)
    wider = alike(random.normal(size=400), random.normal(0, 1.6, size=400))  # of which the means tell nothing
    assert wider["low"] < 0 < wider["high"] and wider["p_value"] < 1e-3 and not wider["passed"]
    # The smallest of 6!/(3! 3!) = 20 orders on either side: 2 of 20 have the greatest distance.
    assert alike([1, 2, 3], [4, 5, 6])["p_value"] == pytest.approx(0.1)
    assert alike([1, 2, 3], [1, 2, 3])["p_value"] == 1.0


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


@pytest.mark.parametrize(("quick", "flags"), [(True, ("-O2",)), (False, ())])
def test_quick_compiles_the_port_sooner_and_full_as_it_is_timed(monkeypatch, quick, flags):
    monkeypatch.setattr(compile, "SOONER", ("-O2",))
    monkeypatch.setattr(compile, "library", lambda text, *more: more)
    one = correctness.Comparison(lambda: iter([{"flags": compile.of_batch("")}]), None)
    with correctness.compared("cartpole", quick, []) as rows_of:
        assert rows_of(one) == [{"environment": "cartpole", "flags": flags}]
    assert compile.of_batch("") == ()
