"""The comparison of the vehicular edge: it passes where port and original are the same, and names what is not."""

import numpy as np
import pytest

from lockstep.experiments import config, correctness, originals, verdicts, walk
from lockstep.experiments.vehicular_edge.correctness import (
    EXACT,
    FLOWS,
    NUMBERS,
    POLICIES,
    TARGETS,
    Slots,
    raw_actions,
    scattered,
    walks,
)  # fmt: skip

NAME = "vehicular_edge"
SIZE = {"vehicles": 20, "edges": 4, "slots": 8, "components": 3}
PLACE = ("transition", "original-port", "cpu", "float64")


@pytest.fixture(scope="module")
def few():
    """Settings with few episodes, of a small size only, which the original plays in this process."""

    def at_once(task, *cases, **same):
        found = task(*cases, **same)
        return lambda: found

    plain = config.load(NAME, "quick").plain()
    episodes = dict.fromkeys(POLICIES, 1) | {"uniform": 4}
    plain["correctness"] |= {"sizes": {"tiny": {"parameters": SIZE, "episodes": episodes}}, "played": 512}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(originals, "on_all_cores", at_once)
        yield config.Settings(plain)


@pytest.fixture(scope="module")
def slots_of(few):
    made = {one.preset: one for one in walks(NAME, few)}
    return made.__getitem__


def failed(rows) -> set[str]:
    return {row["quantity"].split(" (")[0] for row in rows if row["passed"] is False}


def test_every_comparison_that_needs_no_gpu_passes(slots_of):
    slots = [slots_of(preset) for preset in ("original", "physical")]
    found = {label: list(one.rows()) for label, one in correctness.comparisons(slots, ["cpu"]).items()}
    rows = [row for part in found.values() for row in part]
    assert {row["level"] for row in rows} == {"transition", "episode", "drift", "distribution"}
    assert {row["pair"] for row in rows} == {"original-port", "original-indexed", "arrays-port"}
    assert all(set(row) == set(verdicts.COLUMNS) - {"environment"} for row in rows)
    assert [row for row in rows if row["passed"] is False] == []
    double = {row["quantity"]: row for row in found["transition cpu float64 physical, tiny"]}
    assert double["admitted (physical, tiny)"]["cases"] == 4 * 8 * 8  # maps, episodes of 8 slots on each
    assert 0 < max(row["error"] for row in double.values() if row["quantity"].startswith("state")) < 1e-12
    (fair,) = found["distribution cpu random original, tiny"]
    assert fair["cases"] == 512 and fair["passed"] is True


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_ten_thousand_transitions_of_each_pair_three_episodes_of_each_map(scale):
    found = walks(NAME, config.load(NAME, scale))
    assert sum(50 * len(one.index) for one in found) >= 10_000
    assert {one.preset for one in found} == {"original", "physical"}
    for one in found:
        assert set(one.asked.maps) == {"arterial", "city", "dense", "sparse"}
        assert one.size.episodes.keys() == set(POLICIES)
        assert sum(count for policy, count in one.size.episodes.items() if policy != "scattered") >= 3


def test_a_preset_that_is_not_there_is_named(few):
    plain = few.plain()
    plain["correctness"]["presets"] = ["orginal"]
    with pytest.raises(config.ConfigError, match="correctness.presets: unknown preset 'orginal'; did you mean 'origi"):
        walks(NAME, config.Settings(plain))


# ---- what is played ----------------------------------------------------------------------------------------------


def test_policies_do_what_they_say(slots_of):
    params = slots_of("physical").scenarios[0].params
    raw = {policy: raw_actions(params, policy, 0, 0) for policy in POLICIES}
    assert all(action.shape == (8, 2, params.action_length) and action.dtype == np.float32 for action in raw.values())
    assert 0 <= raw["uniform"].min() < 0.01 and 0.99 < raw["uniform"].max() < 1
    assert (raw["cloud"][:, 0] == 1).all() and (raw["cloud"][:, 1] < 1).all()
    assert (raw["zero"][:, 1] == 0).all() and (raw["zero"][:, 0] > 0).any()
    assert {len(np.unique(slot)) for slot in raw["clustered"][:, 0]} == {TARGETS}
    assert (raw["clustered"][:, 0] == 1).any(axis=1).all()
    assert np.mean(raw["clustered"][:, 1] == 0) == pytest.approx(0.3, abs=0.05)
    again, other = (raw_actions(params, "uniform", number, 0) for number in (0, 1))
    assert (again == raw["uniform"]).all() and not (other == again).any()


def test_scattered_states_are_float32_numbers_over_five_orders_of_magnitude():
    state = scattered({"lc": (4000,), "drift_min_lc": (4000,)}, np.random.default_rng(0))
    assert (state["lc"].astype(np.float32) == state["lc"]).all()
    positive = state["lc"][state["lc"] > 0]
    assert positive.min() < 0.02 and positive.max() > 900 and len(positive) == pytest.approx(2800, rel=0.05)
    assert (state["drift_min_lc"] < 0).any() and np.isinf(state["drift_min_lc"]).any()
    assert not (state["drift_min_lc"] == 0).any()


def test_slots_of_an_episode_follow_from_one_another_but_for_scattered_states(slots_of):
    slots = slots_of("original")
    follows = np.ones((len(slots.index), SIZE["slots"] - 1), dtype=bool)
    for name in slots.declared:
        same = slots.played[name][:, :-1] == slots.played[f"before {name}"][:, 1:]
        follows &= same.reshape(*follows.shape, -1).all(axis=2)
    scattered = np.array(slots.policies) == "scattered"
    assert follows[~scattered].all() and not follows[scattered].any()
    assert (slots.played["truncated"].all(axis=2) == (slots.played["before elapsed"] == SIZE["slots"] - 1)).all()


def test_an_episode_is_the_same_whatever_was_played_before_it(slots_of):
    slots = slots_of("physical")
    alone = originals.lives(slots.index[-1:], slots.raw[-1:], {}, game=slots.game_of(indexed=True))
    for name, value in alone.items():
        np.testing.assert_array_equal(value[0], slots.played[name][-1])


def test_what_is_not_reached_is_told(slots_of, monkeypatch):
    slots = slots_of("physical")
    rows = list(walk.coverage(slots))
    assert all(row["passed"] and 0 < row["value"] <= row["cases"] == 256 for row in rows)
    monkeypatch.setattr(slots, "reached", lambda: (256, {"slots with the end of the episode": 0}))
    assert [row["passed"] for row in walk.coverage(slots)] == [False]


@pytest.mark.parametrize("preset", ["original", "physical"])
def test_counts_of_what_is_reached_are_those_of_a_plain_loop(slots_of, preset):
    slots = slots_of(preset)
    _, _, played = slots.cases("cpu", "float64", ())
    params, (n, found) = slots.scenarios[0].params, slots.reached()
    full_clients = rejected = last = short = 0
    for k in range(n):
        scenario, t = slots.scenarios[played["before scenario"][k]], played["before elapsed"][k]
        local = [
            sum(bool(a) and o == 0 for a, o in zip(played["admitted"][k, i], played["target"][k, i], strict=True))
            for i in range(params.clients)
        ]
        full_clients += params.cap_local in local
        rejected += played["dropped"][k, 1] > 0
        last += t == params.slots - 1
        short += any(scenario.in_range[t, i].sum() < params.server_choices for i in range(params.clients))
    assert found["slots with a client at its cap"] == full_clients
    assert found["slots with a task rejected by a cap"] == rejected
    assert found["slots with the end of the episode"] == last
    assert found["slots with a client with fewer servers in range than choices"] == short


# ---- what is compared --------------------------------------------------------------------------------------------


def test_an_error_is_relative_to_the_larger_number_or_to_what_flows(slots_of, monkeypatch):
    slots = slots_of("physical")

    def relative(ours: list, theirs: list, least) -> list:
        monkeypatch.setattr(slots, "least", lambda name, theirs: np.array(least))
        return slots.errors("cost", {"cost": np.array([ours])}, {"cost": np.array([theirs]), "flow": 0})[0].tolist()

    assert relative([2.0], [1.0], 0.0) == [0.5]
    assert relative([2.0], [1.0], 10.0) == [0.1]
    assert relative([0.0, np.inf], [0.0, np.inf], 0.0) == [0, 0]
    assert relative([1.0, 3.0], [1.0, 4.0], [9.0, 8.0]) == [0, 0.125]
    for wrong in (np.nan, np.inf):
        assert verdicts.within(PLACE, "", relative([wrong], [1.0], 1.0), 1e-4)["passed"] is False


def spoiled(step: dict, name: str, index: tuple, by: float) -> dict:
    """The same with one number of one slot off by so much, or flipped where it is a flag."""
    value = step[name].copy()
    value[index] = ~value[index] if value.dtype == bool else value[index] + np.array(by, value.dtype)
    return step | {name: value}


@pytest.mark.parametrize("preset", ["original", "physical"])
def test_one_number_that_is_off_fails_its_row_and_no_other(slots_of, preset):
    slots = slots_of(preset)
    (_, _, theirs), groups = slots.cases("cpu", "float64", ()), list(slots.judged("float64", ()))
    assert not failed(slots.compared(PLACE, theirs, theirs, groups))
    for name in slots.quantities:
        ours = spoiled(theirs, name, (3, *[0] * (theirs[name].ndim - 1)), 1 if name in EXACT else 1e-3)
        assert failed(slots.compared(PLACE, ours, theirs, groups)) == {slots.titled(name).split(" (")[0]}
    titles = {slots.titled(name).split(" (")[0] for name in slots.quantities}
    assert titles > {*(f"{flow} of every queue" for flow in FLOWS), *NUMBERS, *EXACT, "state lc"}


FLIPPED = {  # of the preset `original`: a row that must fail, and rows that must not
    "interference_in_mw": ("out of every queue", {"admitted", "success", "state delay"}),
    "rate_weighted_bits": ("in of every queue", {"admitted", "success"}),
    "silent_overflow": ("success", {"admitted", "cost", "drift", "state lc"}),
    "fixed_priority": ("admitted", {"target"}),
    "idle_power_paid": ("cost", {"admitted", "drift", "state v2v"}),
}


@pytest.mark.parametrize("switch", FLIPPED)
def test_a_port_with_one_switch_the_other_way_fails_where_it_should(slots_of, monkeypatch, switch):
    slots = slots_of("original")
    monkeypatch.setattr(slots, "options", {switch: False})
    found = failed(walk.transition(slots, "cpu", "float64", ()))
    wrong, right = FLIPPED[switch]
    assert wrong in found and not right & found


def test_episodes_that_come_apart_are_counted_with_the_slot(slots_of, monkeypatch):
    """One reward of the sixth slot is off: each episode is apart from there on, and the first such slot is told."""
    slots, step = slots_of("physical"), Slots.step

    def off(self, env, action):
        found = step(self, env, action)
        return spoiled(found, "reward", (0,), 1e-3) if found["elapsed"][0] == 6 else found

    monkeypatch.setattr(Slots, "step", off)
    queue, reward, apart, first, *_ = walk.episode(slots, "cpu", "float64", "replayed")
    assert queue["passed"] and not reward["passed"]
    assert (apart["differing"], apart["cases"], apart["passed"]) == (1, 28, False)
    assert (first["value"], first["passed"]) == (6, None)


def test_a_biased_return_is_found(slots_of, monkeypatch):
    slots = slots_of("original")
    biased = slots.played | {"reward": slots.played["reward"] + 0.2}
    monkeypatch.setattr(Slots, "played", property(lambda self: biased))
    assert next(walk.distribution(slots, "cpu", "random"))["passed"] is False


@pytest.mark.parametrize("devices", [("cpu", "cpu"), pytest.param(("cpu", "cuda"), marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_two_devices_live_the_same_steps(slots_of, dtype, devices):
    rows = list(walk.devices_agree(slots_of("original"), dtype, devices))
    found = {row["quantity"].split(" (")[0] for row in rows}
    assert {"random action", "truncated", "reward", "observation", "state lc", "state drift_max_cc"} <= found
    assert all(row["passed"] is True and row["cases"] == 256 * 120 for row in rows)
