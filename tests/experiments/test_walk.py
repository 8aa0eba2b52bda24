"""The comparison of any port with its original: it passes where they are the same, and names what differs."""

import itertools
import re

import numpy as np
import pytest

from lockstep import envs
from lockstep.experiments import config, correctness, originals, verdicts, walk
from lockstep.experiments.config import Settings
from tests.couriers import FOLDER, NAME, couriers  # noqa: F401 - a fixture

ASKED = {"states": 160, "episodes": 60}
SLOW = pytest.mark.slow
LEVELS = ["transition", "episode", "drift", "distribution"]


def settings_of(seed: int, **asked) -> Settings:
    return Settings({"seed": seed, "correctness": ASKED | asked})


@pytest.fixture
def rows_of(couriers, monkeypatch):  # noqa: F811
    """Makes every comparison on the cpu, in this process."""
    monkeypatch.setattr(originals, "on_all_cores", lambda task, *arrays, **same: lambda: task(*arrays, **same))

    def rows(**asked) -> list[dict]:
        found = correctness.comparisons(correctness.walks(NAME, settings_of(3, **asked)), ["cpu"])
        return [row for part in found.values() for row in part.rows()]

    return rows


def failed(rows) -> set[tuple[str, str]]:
    return {(row["level"], row["quantity"].split(" (")[0]) for row in rows if row["passed"] is False}


def test_every_field_and_output_passes_at_every_level(rows_of):
    rows = rows_of()
    assert not failed(rows) and {row["level"] for row in rows} == set(LEVELS)
    assert all(set(row) == set(verdicts.COLUMNS) - {"environment"} for row in rows)
    compared = {row["quantity"].split(" (")[0] for row in rows if row["level"] == "transition"}
    assert compared >= {"heading", "battery", "trips", "elapsed", "episode", "scenario", "active", *originals.OUTCOME}
    (parted,) = [row for row in rows if row["quantity"] == "episodes that come apart" and row["dtype"] == "float64"]
    assert parted["passed"] is True and parted["cases"] == 60
    exact = [row["error"] for row in rows if row["dtype"] == "float64" and row["quantity"].startswith("heading")]
    assert max(exact) < 1e-14


def test_states_of_both_forms_reach_the_ends_of_episodes(rows_of):
    ends = [row for row in rows_of() if row["quantity"].startswith("steps that end an episode")]
    assert len(ends) == 4 and all(row["value"] > 5 for row in ends)


@pytest.mark.usefixtures("rows_of")
def test_visited_states_are_those_of_a_batch_that_resets_itself():
    ours = walk.Walk(NAME, settings_of(3))
    before, actions, _ = ours.cases("cpu", "float32", "port")
    batch = ours.batch(walk.BATCH, "cpu", "float32", "SameStep")
    batch.reset()
    for visit in np.split(np.arange(160), 160 // walk.BATCH):
        for _ in range(walk.APART):
            batch.step(batch.random_actions()[0])
        assert all(np.array_equal(rows, before[name][visit]) for name, rows in ours.state(batch).items())
        assert np.array_equal(walk.on_host(batch.random_actions()[0]), actions[visit])
    assert before["episode"].max() > 0


@pytest.mark.parametrize(
    ("right", "wrong", "quantity"),
    [
        ("+ at.tables.wind[at.scenario]", "+ at.tables.wind[0]", "heading"),
        pytest.param("turned > pi ? turned - 2 * pi", "turned > pi ? turned - real(6.283)", "heading", marks=SLOW),
        ("s.doubles[a] <= 0.0", "s.doubles[a] <= 0.02", "terminated"),
        pytest.param("+= s.action[a] == 2", "+= s.action[a] == 1", "trips", marks=SLOW),
        pytest.param("double(uniform(words[a]", "double(uniform(words[0]", "battery", marks=SLOW),
        pytest.param("+ float(s.integers[a])", "+ 0.999f * float(s.integers[a])", "reward", marks=SLOW),
        pytest.param("= float(s.doubles[a])", "= float(s.doubles[0])", "observation", marks=SLOW),
        pytest.param("at.noise(1, words)", "at.noise(3, words)", "heading", marks=SLOW),
    ],
)
def test_a_mutant_fails_in_the_quantity_it_spoils(rows_of, monkeypatch, tmp_path, right, wrong, quantity):
    text = (FOLDER / "kernel.cuh").read_text()
    assert text.count(right) == 1
    (tmp_path / "kernel.cuh").write_text(text.replace(right, wrong))
    monkeypatch.setattr(envs, "folder", lambda name: tmp_path)
    ours = walk.Walk(NAME, settings_of(3))
    found = failed(walk.transition(ours, "cpu", "float32", "port"))
    found |= failed(walk.episode(ours, "cpu", "float32", "random"))
    level = "episode" if "noise" in right else "transition"  # a first state is no step
    assert (level, quantity) in found


def test_the_error_after_some_steps_is_that_of_the_episodes_still_going(couriers):  # noqa: F811
    """Of three episodes the second is 0.25 of 2 apart at its tenth step, and the third is over after five."""
    ours = walk.Walk(NAME, settings_of(0))
    theirs = {name: np.full((3, 12, 2), 2.0) for name in ours.drifting("float64")}
    apart, going = {name: value.copy() for name, value in theirs.items()}, np.ones((3, 12), dtype=bool)
    apart["battery"][1, 9] = 1.75
    apart["battery"][2, 5:], going[2, 5:] = 0.0, False
    place = ("episode", "original-port", "cpu", "float64")
    rows = list(walk.drift(ours, place, "random", apart, theirs, going))
    assert [(row["value"], row["cases"], row["error"], row["low"]) for row in rows] == [
        (1, 3, 0, 0),
        (2, 3, 0, 0),
        (5, 3, 0, 0),
        (10, 2, 0.125, 0.0625),
    ]
    assert {(row["level"], row["passed"]) for row in rows} == {("drift", None)}


def test_an_angle_may_differ_by_whole_turns(couriers):  # noqa: F811
    ours = walk.Walk(NAME, settings_of(0))
    turned = np.array([[3.0, 1.0], [-3.0, 0.0]])
    other = turned + 2 * np.pi * np.array([[1, -1], [0, 2]])
    pair = [dict.fromkeys(("heading", "battery"), value) for value in (turned, other)]
    assert ours.errors("heading", *pair).max() < 1e-14
    largest = ours.errors("battery", *pair).max(axis=1)
    assert largest.tolist() == pytest.approx([2 * np.pi / (2 * np.pi - 1), 1.0])


def test_not_a_number_is_an_error_and_equal_infinities_are_none(couriers):  # noqa: F811
    ours = walk.Walk(NAME, settings_of(0))
    found = ours.errors(
        "battery", {"battery": np.array([np.inf, np.nan, 1.0])}, {"battery": np.array([np.inf, 1.0, np.inf])}
    )
    assert found[0] == 0 and not found[1] <= 1e-5 and not found[2] <= 1e-5
    assert ours.errors("trips", {"trips": np.array([[1, 2]])}, {"trips": np.array([[1, 3]])}).tolist() == [[0, np.inf]]


def test_tolerances_are_of_a_field_or_the_default_s(couriers):  # noqa: F811
    given = {"float64": {"default": 1e-9, "battery": 1e-3, "reward": 1e-4}}
    ours = walk.Walk(NAME, settings_of(0, tolerances=given))
    found = {name: ours.tolerance("float64", name) for name in ("heading", "battery", "reward", "observation")}
    assert found == {"heading": 1e-9, "battery": 1e-3, "reward": 1e-4, "observation": 1.2e-7}
    assert ours.tolerance("float32", "battery") == 1e-5


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"tolerances": {"float32": {"batery": 1e-3}}},
            "tolerances.float32: unknown field 'batery'; did you mean 'batt",
        ),
        ({"options": {"drian": 1.0}}, "options: Couriers has no parameter or option 'drian'; did you mean 'drain'?"),
    ],
)
def test_what_does_not_fit_the_port_is_named(rows_of, asked, message):
    with pytest.raises(config.ConfigError, match=re.escape(f"experiments/{NAME}/{NAME}.yaml: correctness.{message}")):
        rows_of(**asked)


def test_options_reach_both_forms(rows_of):
    rows = rows_of(options={"drain": 0.25, "scenarios": 2})
    assert not failed(rows)


@pytest.mark.parametrize("devices", [("cpu", "cpu"), pytest.param(("cpu", "cuda"), marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", walk.DTYPES)
def test_two_devices_make_the_same_steps(couriers, dtype, devices):  # noqa: F811
    rows = list(walk.devices_agree(walk.Walk(NAME, settings_of(0)), dtype, devices))
    assert not failed(rows) and [row["quantity"] for row in rows][:3] == ["random action", "heading", "battery"]


@pytest.mark.parametrize(("quantity", "by"), [("heading", 0.1), ("trips", 1), ("reward", np.nan), ("random action", 1)])
def test_two_devices_that_differ_are_told_by_the_quantity(couriers, monkeypatch, quantity, by):  # noqa: F811
    """The second of two batches on the cpu is off in the seventh step, of one agent."""
    ours, step, steps = walk.Walk(NAME, settings_of(0)), walk.Walk.step, []

    def off(self, env, action):
        steps.append(step(self, env, action))
        if len(steps) == 14 and quantity != "random action":
            steps[-1][quantity][3, 1] += np.asarray(by, steps[-1][quantity].dtype)
        return steps[-1]

    monkeypatch.setattr(walk.Walk, "step", off)
    if quantity == "random action":
        seeds = itertools.count()
        monkeypatch.setattr(ours, "batch", lambda *given: walk.Walk.batch(ours, *given, seed=next(seeds)))
    assert ("episode", quantity) in failed(walk.devices_agree(ours, "float64", ("cpu", "cpu")))
