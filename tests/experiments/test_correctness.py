"""The comparison of port and original: it passes where they are the same and fails where they are not."""

import shutil

import numpy as np
import pandas as pd
import pytest

from lockstep import envs
from lockstep.experiments import config, correctness, originals, verdicts
from lockstep.experiments.bench.statistics import ks_two_sample, mean_difference
from lockstep.experiments.classic_control import correctness as thread_correctness
from lockstep.experiments.classic_control.cases import Cases
from tests.envs.batches import NAMES

EPISODES = {"random": 40, "fixed": 40}
BOTH_TYPES = ["float32", "float64"]
PLACE = ("distribution", "original-port", "cpu", "float32")


@pytest.fixture(scope="module")
def cases_of():
    """The cases of an environment, few of them."""

    def few(name: str) -> Cases:
        plain = config.load(name, "quick").plain()
        for region in plain["correctness"]["regions"].values():
            region["states"] = 2000
        plain["correctness"]["episodes"] = {"replayed": EPISODES, "played": EPISODES}
        return Cases(name, config.Settings(plain))

    made = {}
    return lambda name: made.setdefault(name, few(name))


@pytest.mark.parametrize("name", NAMES)
def test_every_comparison_that_needs_no_gpu_passes(cases_of, name):
    cases = cases_of(name)
    found = {label: list(compared.rows()) for label, compared in thread_correctness.comparisons(cases, ["cpu"]).items()}
    rows = [row for part in found.values() for row in part]
    assert {row["level"] for row in rows} == {"transition", "episode", "distribution"}
    assert all(set(row) == set(verdicts.COLUMNS) - {"environment"} for row in rows)
    assert [row for row in rows if row["passed"] is False] == []
    double = {row["quantity"]: row for row in found["transition cpu float64"]}
    assert double["truncated"]["cases"] >= 6000
    errors = [double[field]["error"] for field in cases.fields]
    assert 0 < max(errors) <= (1e-7 if name == "mountain_car_continuous" else 1e-12)


@pytest.mark.parametrize(
    ("name", "right", "wrong", "quantity", "dtypes"),
    [
        ("cartpole", "fused(tau, x_dot, x)", "fused(tau, x_dot, x) + real(3e-6)", "x", BOTH_TYPES),
        ("cartpole", "real(4.0 / 3.0)", "real(1.3332)", "theta_dot", BOTH_TYPES),
        ("cartpole", "magnitude(theta) > ", "magnitude(theta) > real(1.01) * ", "terminated", BOTH_TYPES),
        ("cartpole", "-1.0f : 0.0f) : 1.0f", "-1.0f : 0.0f) : (terminated ? 0.0f : 1.0f)", "reward", BOTH_TYPES),
        (
            "mountain_car",
            "(velocity < 0) ? real(0) : velocity",
            "(velocity < 0) ? -velocity : velocity",
            "velocity",
            BOTH_TYPES,
        ),
        ("mountain_car", " & (velocity >= Params::goal_velocity)", "", "terminated", BOTH_TYPES),
        ("mountain_car_continuous", "clipped(action, LOW, HIGH)", "action", "velocity", BOTH_TYPES),
        ("mountain_car_continuous", "action * action", "clipped(action, LOW, HIGH) * action", "reward", BOTH_TYPES),
        ("pendulum", "theta = wrapped(fused(", "theta = real(0.99999) * wrapped(fused(", "theta", BOTH_TYPES),
        ("pendulum", "        theta = wrapped(theta);\n", "", "reward", BOTH_TYPES),
        ("acrobot", "terminated ? 0.0f : -1.0f", "-1.0f", "reward", BOTH_TYPES),
        ("acrobot", "-Params::MAX_VEL_2, Params::MAX_VEL_2", "-real(29), real(29)", "theta2_dot", ["float64"]),
    ],
)
def test_a_mutant_fails_in_the_quantity_it_spoils(
    cases_of, tmp_path, monkeypatch, name, right, wrong, quantity, dtypes
):
    folder = tmp_path / name
    shutil.copytree(envs.folder(name), folder)
    text = (folder / "kernel.cuh").read_text()
    assert right in text
    (folder / "kernel.cuh").write_text(text.replace(right, wrong, 1))
    cases = cases_of(name)
    cases.reference()  # the original's part first: it does not look at the kernel
    declared = envs.port(name)
    monkeypatch.setattr(envs, "port", lambda name: declared)
    monkeypatch.setattr(envs, "folder", lambda name: folder)
    for dtype in dtypes:
        rows = thread_correctness.transition(cases, "cpu", dtype, ())
        assert quantity in [row["quantity"].split(" (")[0] for row in rows if row["passed"] is False]


@pytest.mark.parametrize("devices", [("cpu", "cpu"), pytest.param(("cpu", "cuda"), marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_two_devices_live_the_same_steps(cases_of, name, dtype, devices):
    rows = list(thread_correctness.devices_agree(cases_of(name), dtype, devices))
    stepped = ["state", "observation", "reward", "terminated", "truncated", "random action"]
    stored = ["obs", "action", "reward", "terminated", "truncated"]
    fused = [f"{name} of fused steps, {policy} policy" for policy in ("random", "fixed") for name in stored]
    assert [row["quantity"] for row in rows] == stepped + (fused if dtype == "float32" else [])
    assert all(set(row) == set(verdicts.COLUMNS) - {"environment"} for row in rows)
    assert all(row["passed"] is True for row in rows)
    assert all(row["cases"] == 4_096_000 for row in rows[: len(stepped)])


def test_an_episode_that_ends_early_while_together_is_found(cases_of, monkeypatch):
    """The original is played with a limit of 150 steps in place of 200; no episode of MountainCar is apart by then."""
    replays = originals.replays

    def cut(starts, actions, *, name):
        lengths, ends, path = replays(starts, actions, name=name)
        path[:, 150:] = np.nan
        return np.minimum(lengths, 150), ends & (lengths <= 150), path

    monkeypatch.setattr(originals, "on_all_cores", lambda task, *arrays, **same: lambda: cut(*arrays, **same))
    rows = list(thread_correctness.episode(cases_of("mountain_car"), "cpu", "random"))
    assert (rows[0]["quantity"], rows[0]["differing"]) == ("end of an episode, random policy, if not apart before", 40)
    assert rows[0]["passed"] is False


def test_an_episode_that_is_apart_may_end_differently(cases_of):
    """A balanced pole falls in every copy, in the median at step 231, while Gymnasium's stands (spec sheet)."""
    ends, apart, first = thread_correctness.episode(cases_of("cartpole"), "cpu", "fixed")
    assert (ends["differing"], ends["allowed"], ends["passed"]) == (0, 0, True)
    assert (apart["value"], apart["cases"], apart["passed"]) == (40, 40, None)
    assert first["value"] == pytest.approx(113, abs=12)


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


@pytest.mark.parametrize("name", NAMES)
def test_original_episodes_repeat(name):
    seeds = np.arange(2)
    first = originals.episodes(seeds, name=name, policy=None)
    again = originals.episodes(seeds, name=name, policy=None)
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize(
    ("name", "shortest", "longest"),
    [
        ("cartpole", 500, 500),
        ("mountain_car", 113, 125),
        ("mountain_car_continuous", 105, 111),
        ("pendulum", 200, 200),
        ("acrobot", 65, 300),
    ],
)
def test_the_fixed_policy_solves_or_swings_the_original(cases_of, name, shortest, longest):
    lengths, _ = originals.episodes(np.arange(20), name=name, policy=cases_of(name).policy)
    assert shortest <= lengths.min() <= lengths.max() <= longest


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_acts_alike_on_originals_and_ports(cases_of, name):
    cases = cases_of(name)
    env = envs.make(name, 500)
    env.reset()
    env.rollout(50)
    obs = env.step(env.random_actions()[0])[0]
    theirs = originals.actor(cases.policy, env.single_action_space)
    expected = np.array([theirs(row) for row in obs.numpy()]).reshape(-1)
    np.testing.assert_allclose(env.actor(cases.policy)(obs).numpy().reshape(-1), expected, atol=1e-6)


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
