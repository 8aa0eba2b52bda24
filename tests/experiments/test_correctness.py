"""The comparison of port and original: it passes where they are the same and fails where they are not."""

import shutil

import numpy as np
import pytest

import envs
from experiments import config, correctness, originals
from experiments.statistics import ks_two_sample, mean_difference


@pytest.fixture(scope="module")
def cases():
    plain = config.load("cartpole", "quick").plain()
    plain["correctness"] |= {"transitions": 10_000, "episodes": {"replayed": 60, "balanced": 10, "played": 300}}
    return correctness.Cases("cartpole", config.Settings(plain))


def test_every_comparison_that_needs_no_gpu_passes(cases):
    groups = correctness.groups(cases, ["cpu"])
    rows = {name: list(compare()) for name, compare in groups.items()}
    assert {row["level"] for found in rows.values() for row in found} == {"transition", "episode", "distribution"}
    failed = [row for found in rows.values() for row in found if row["passed"] is False]
    assert failed == []
    compared = [row for row in rows["transition cpu float64"] if row["quantity"] == "theta_dot"]
    assert compared[0]["cases"] == 10_000
    assert 0 < compared[0]["error"] <= 1e-12
    assert set(rows["arrays cpu"][-1]) == set(correctness.COLUMNS) - {"environment"}


@pytest.mark.parametrize(
    ("section", "value", "message"),
    [
        ("box", {"x": [0, 1], "xdot": [0, 1]}, "correctness.box: unknown field 'xdot'; did you mean 'x_dot'?"),
        ("box", {"x": [0, 1]}, "correctness.box: the field 'x_dot' is missing"),
        ("thresholds", {"angle": {"at": 1, "width": 1}}, "correctness.thresholds: unknown field 'angle'"),
        ("variants", [{"gravty": 1}], "correctness.variants: CartPole-v1 has no parameter or option 'gravty'"),
    ],
)
def test_a_yaml_that_does_not_fit_the_environment_is_named(section, value, message):
    plain = config.load("cartpole", "quick").plain()
    plain["correctness"][section] = value
    with pytest.raises(config.ConfigError, match=message.replace("?", r"\?")):
        correctness.Cases("cartpole", config.Settings(plain))


def test_cases_lie_on_both_sides_of_every_threshold(cases):
    following = cases.reference()[0]
    for field, at in ((0, 2.4), (2, 12 * 2 * np.pi / 360)):
        for side in (-1, 1):
            distance = side * following[:, field] - at
            assert np.sum((distance > 0) & (distance < 0.02)) > 20
            assert np.sum((distance < 0) & (distance > -0.02)) > 20


def test_cases_are_float32_numbers_within_the_kernels_range(cases):
    assert cases.states.dtype == np.float32
    assert np.abs(cases.states[:, 2]).max() <= 0.418879
    assert set(np.unique(cases.actions)) == {0, 1}


@pytest.mark.parametrize(
    ("right", "wrong", "quantity"),
    [
        ("fused(tau, x_dot, x)", "fused(tau, x_dot, x) + real(3e-6)", "x"),
        ("real(4.0 / 3.0)", "real(1.3332)", "theta_dot"),
        ("magnitude(theta) > ", "magnitude(theta) > real(1.01) * ", "terminated"),
        ("-1.0f : 0.0f) : 1.0f", "-1.0f : 0.0f) : (terminated ? 0.0f : 1.0f)", "reward"),
    ],
)
def test_a_mutant_fails_in_the_quantity_it_spoils(cases, tmp_path, monkeypatch, right, wrong, quantity):
    folder = tmp_path / "cartpole"
    shutil.copytree(envs.folder("cartpole"), folder)
    text = (folder / "kernel.cuh").read_text()
    assert right in text
    (folder / "kernel.cuh").write_text(text.replace(right, wrong, 1))
    cases.reference()  # the original's part first: it does not look at the kernel
    monkeypatch.setattr(envs, "folder", lambda name: folder)
    for dtype in ("float32", "float64"):
        rows = list(correctness.transition(cases, "cpu", dtype, ()))
        assert quantity in [row["quantity"] for row in rows if row["passed"] is False]


@pytest.mark.parametrize("devices", [("cpu", "cpu"), pytest.param(("cpu", "cuda"), marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_two_devices_live_the_same_steps(cases, dtype, devices):
    rows = list(correctness.devices_agree(cases, dtype, devices))
    assert [row["quantity"] for row in rows] == ["state", "reward", "terminated", "truncated", "random action"]
    assert all(set(row) == set(correctness.COLUMNS) - {"environment"} for row in rows)
    assert all(row["passed"] is True and row["cases"] == 4_096_000 for row in rows)


def test_the_report_names_what_failed():
    place = ("transition", "original-port", "cpu", "float32")
    good = correctness.equal(place, "reward", np.zeros(5, dtype=bool))
    bad = correctness.within(place, "x", np.array([0.0, 2e-6]), 1e-6)
    nan = correctness.within(place, "theta", np.array([np.nan]), 1e-6)
    assert correctness.report([good]) == "all 1 comparisons passed"
    assert correctness.report([good, bad, nan]).splitlines() == [
        "FAILED transition original-port cpu float32 x",
        "FAILED transition original-port cpu float32 theta",
    ]


def test_original_episodes_repeat_and_reach_the_limit_when_balanced():
    seeds = np.arange(5)
    first = originals.episodes(seeds, name="cartpole", policy=None)
    again = originals.episodes(seeds, name="cartpole", policy=None)
    np.testing.assert_array_equal(first, again)
    balanced = originals.episodes(seeds[:2], name="cartpole", policy=envs.Linear([[0] * 4, [0, 0, 2, 1]], [0, 0]))
    assert balanced[0].tolist() == [500, 500]


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
