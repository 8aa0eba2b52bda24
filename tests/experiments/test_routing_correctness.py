"""The comparison of vehicle routing: it passes where port and original are the same, and names what is not."""

from collections.abc import Iterable

import pytest

from lockstep.envs.vehicle_routing.oracles.attention import decode
from lockstep.envs.vehicle_routing.original import episode
from lockstep.envs.vehicle_routing.params import SWITCHES, Params
from lockstep.experiments import config, correctness, originals
from lockstep.experiments.config import ConfigError, Settings
from lockstep.experiments.vehicle_routing.correctness import walks

NAME = "vehicle_routing"
KINDS = {"that are shifted", "that refuse a shift", "that take a further vehicle", "that join others", "last requests"}


def asked(scale: str = "full", **changes) -> Settings:
    plain = config.load(NAME, scale).plain()
    plain["correctness"] |= changes
    return Settings(plain)


@pytest.fixture
def few(monkeypatch) -> dict:
    """Few states and episodes of every setting, which the original plays in this process."""

    def at_once(task, *cases, **same):
        found = task(*cases, **same)
        return lambda: found

    monkeypatch.setattr(originals, "on_all_cores", at_once)
    return {one.label: one for one in walks(NAME, asked(states=128, episodes=8))}


def rows_of(walk, *words: str) -> list[dict]:
    found = correctness.comparisons([walk], ["cpu"])
    return [row for label, one in found.items() if all(word in label for word in words) for row in one.rows()]


def failed(rows: Iterable[dict]) -> set[str]:
    return {row["quantity"].split(" (")[0] for row in rows if row["passed"] is False}


@pytest.mark.parametrize(
    "label",
    [pytest.param(label, marks=[pytest.mark.long] * (label != "hard fleet"))
     for label in asked().correctness["names"]],
)  # fmt: skip
def test_every_comparison_that_needs_no_gpu_passes(few, label):
    rows = rows_of(few[label])
    assert {row["level"] for row in rows} >= {"transition", "episode", "distribution"}
    learned = {"fused-torch"} if label == asked().correctness["names"][0] else set()
    assert {row["pair"] for row in rows} == {"original-port"} | learned
    assert failed(row for row in rows if row["device"]) == set()  # so few states do not reach every kind of step
    found = {row["quantity"].split(" (")[0] for row in rows_of(few[label], "coverage")}
    expected = {kind if kind == "last requests" else f"requests {kind}" for kind in KINDS}
    assert found - expected == (
        {"requests for which the fleet does not suffice"} if few[label].options.get("fleet") == "hard" else set()
    )


def test_what_differs_is_named(few, monkeypatch):
    """An original that forgets the penalty of what it accepts."""
    right = episode.Episode.gain
    monkeypatch.setattr(episode.Episode, "gain", lambda self, *before: right(self, *before) + 1.0)
    assert failed(rows_of(few["soft fleet"], "transition")) == {"reward", "returns"}
    assert "episodes that come apart" in failed(rows_of(few["soft fleet"], "episode"))


def test_decodings_that_differ_are_counted(few, monkeypatch):
    def decoded_in_float32() -> tuple[int, int]:
        (found,) = rows_of(few["insertion"], "decoded alike", "float32")
        return found["cases"], found["differing"]

    assert decoded_in_float32() == (6, 0)
    right = decode.decode

    def wrong(*given):
        found = right(*given)
        return found._replace(walk=found.walk.roll(1, dims=1))

    monkeypatch.setattr(decode, "decode", wrong)
    assert decoded_in_float32() == (6, 6)


def test_settings_have_both_values_of_every_switch_that_a_kernel_minds():
    settings, plain = asked().correctness, asked("quick").correctness["names"]
    assert set(settings["names"]) == set(settings.settings) >= set(plain)
    made = [Params(), *(config.params_of(one.port, one.options) for one in walks(NAME, asked()))]
    minded = ("one_obligation", "early_end", "threshold_acceptance", "stuck_after_failure", "raw_observation")
    for name in (*minded, "lookahead_mask", "shrinking_windows"):
        assert name in SWITCHES and {getattr(one, name) for one in made} == {False, True}, name
    assert {one.mode for one in made} == {"darp", "vrptw"} and {one.reward for one in made} == {
        "growth",
        "twin",
        "percent",
    }
    assert {one.fleet for one in made} == {"unlimited", "soft", "hard"}


def test_a_setting_that_is_none_is_named():
    with pytest.raises(
        ConfigError, match=r"correctness.names: unknown setting 'hard fleets'; did you mean 'hard fleet'"
    ):
        walks(NAME, asked(names=["hard fleets"]))
