"""The comparison of a block environment with its original: it passes where they are the same, and names what is not."""

import numpy as np
import pytest

from lockstep.experiments import config, originals, verdicts
from lockstep.experiments.vehicular_edge import cases as block_cases
from lockstep.experiments.vehicular_edge import correctness as block_correctness
from lockstep.experiments.vehicular_edge.cases import NUMBERS, POLICIES, Cases, Slots, settings_of

NAME = "vehicular_edge"
SIZE = {"vehicles": 20, "edges": 4, "slots": 8, "components": 3}
EXACT, CLOSE = {"queue": 1e-10, "cost": 1e-10, "reward": 1e-10, "observation": 1.2e-7}, 1e-4


@pytest.fixture(scope="module")
def in_this_process():
    """The original plays here: processes would take longer to start than its few episodes take."""
    with pytest.MonkeyPatch.context() as patch:

        def at_once(task, *arrays, **same):
            found = task(*arrays, **same)
            return lambda: found

        patch.setattr(originals, "on_all_cores", at_once)
        yield


@pytest.fixture(scope="module")
def few(in_this_process):
    """Settings with few episodes, of a small size only."""
    plain = config.load(NAME, "quick").plain()
    episodes = dict.fromkeys(POLICIES, 1) | {"uniform": 4}
    plain["correctness"] |= {"sizes": {"tiny": {"parameters": SIZE, "episodes": episodes}}, "played": 256}
    return config.Settings(plain)


@pytest.fixture(scope="module")
def cases_of(few):
    made = {setting.preset: Cases(setting) for setting in settings_of(NAME, few)}
    return made.__getitem__


def failed(rows) -> set[str]:
    return {row["quantity"].split(" (")[0] for row in rows if row["passed"] is False}


def test_every_comparison_that_needs_no_gpu_passes(few):
    plan = block_correctness.plan(NAME, few, ["cpu"])
    found = {label: list(compared.rows()) for label, compared in plan.items()}
    rows = [row for part in found.values() for row in part]
    assert {row["level"] for row in rows} == {"transition", "episode", "distribution"}
    assert {row["pair"] for row in rows} == {"original-port", "original-indexed", "arrays-port"}
    assert all(set(row) == set(verdicts.COLUMNS) - {"environment"} for row in rows)
    assert [row for row in rows if row["passed"] is False] == []
    double = {row["quantity"]: row for row in found["transition cpu float64 physical, tiny"]}
    assert double["admitted (physical, tiny)"]["cases"] == 4 * 8 * 8  # maps, episodes of 8 slots on each
    assert 0 < max(row["error"] for row in double.values() if row["quantity"].startswith("state")) < 1e-12


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_ten_thousand_transitions_of_each_pair_three_episodes_of_each_map(scale):
    settings = config.load(NAME, scale)
    found = settings_of(NAME, settings)
    slots = [50 * len(setting.maps) * sum(count for _, count in setting.episodes) for setting in found]
    assert sum(slots) >= 10_000
    assert {setting.preset for setting in found} == {"original", "physical"}
    for setting in found:
        assert set(setting.maps) == {"arterial", "city", "dense", "sparse"}
        assert dict(setting.episodes).keys() == set(POLICIES)
        assert sum(count for policy, count in setting.episodes if policy != "scattered") >= 3


def test_a_preset_that_is_not_there_is_named(few):
    plain = few.plain()
    plain["correctness"]["presets"] = ["orginal"]
    with pytest.raises(config.ConfigError, match="correctness.presets: unknown preset 'orginal'; did you mean 'origi"):
        settings_of(NAME, config.Settings(plain))


# ---- what is played ----------------------------------------------------------------------------------------------


def test_policies_do_what_they_say(cases_of):
    params = cases_of("physical").params
    raw = {policy: block_cases.raw_actions(params, policy, 0, 0) for policy in POLICIES}
    assert all(action.shape == (8, 2, params.action_length) and action.dtype == np.float32 for action in raw.values())
    assert 0 <= raw["uniform"].min() < 0.01 and 0.99 < raw["uniform"].max() < 1
    assert (raw["cloud"][:, 0] == 1).all() and (raw["cloud"][:, 1] < 1).all()
    assert (raw["zero"][:, 1] == 0).all() and (raw["zero"][:, 0] > 0).any()
    assert {len(np.unique(slot)) for slot in raw["clustered"][:, 0]} == {block_cases.TARGETS}
    assert (raw["clustered"][:, 0] == 1).any(axis=1).all()
    assert np.mean(raw["clustered"][:, 1] == 0) == pytest.approx(0.3, abs=0.05)
    again, other = (block_cases.raw_actions(params, "uniform", number, 0) for number in (0, 1))
    assert (again == raw["uniform"]).all() and not (other == again).any()


def test_scattered_states_are_float32_numbers_over_five_orders_of_magnitude():
    state = block_cases.scattered({"lc": (4000,), "drift_min_lc": (4000,)}, np.random.default_rng(0))
    assert (state["lc"].astype(np.float32) == state["lc"]).all()
    positive = state["lc"][state["lc"] > 0]
    assert positive.min() < 0.02 and positive.max() > 900 and len(positive) == pytest.approx(2800, rel=0.05)
    assert (state["drift_min_lc"] < 0).any() and np.isinf(state["drift_min_lc"]).any()
    assert not (state["drift_min_lc"] == 0).any()


def test_slots_of_an_episode_follow_from_one_another_but_for_scattered_states(cases_of):
    cases = cases_of("original")
    follows = (cases.played.after[:-1] == cases.played.before[1:]).all(axis=1)
    within = cases.t[1:] > 0
    scattered = np.repeat(np.array(cases.policies) == "scattered", cases.slots)[1:]
    assert follows[within & ~scattered].all()
    assert not follows[within & scattered].any()
    assert (cases.played.truncated == (cases.t == cases.slots - 1)).all()


def test_slots_are_in_the_order_of_the_episodes_however_processes_share_them(cases_of):
    """The last episode, played alone, is the last one of all."""
    cases = cases_of("physical")
    policy = np.array([POLICIES.index(cases.policies[-1])])
    same = {"name": NAME, "scenarios": cases.scenarios, "seed": 0}
    alone = Slots(*block_cases.play(cases.number[-1:], cases.scenario[-1:], policy, **same))
    for ours, theirs in zip(alone, cases.played, strict=True):
        np.testing.assert_array_equal(ours, theirs[-cases.slots :])


def test_what_is_not_reached_is_told(cases_of, monkeypatch):
    cases = cases_of("physical")
    rows = list(block_correctness.coverage(cases))
    assert all(row["passed"] and 0 < row["value"] <= row["cases"] == len(cases.t) for row in rows)
    monkeypatch.setattr(block_correctness, "reached", lambda cases: {"the end of the episode": 0})
    assert [row["passed"] for row in block_correctness.coverage(cases)] == [False]


@pytest.mark.parametrize("preset", ["original", "physical"])
def test_counts_of_what_is_reached_are_those_of_a_plain_loop(cases_of, preset):
    cases = cases_of(preset)
    params, played, found = cases.params, cases.played, block_cases.reached(cases)
    full_clients = rejected = last = short = 0
    for n, (t, place) in enumerate(zip(cases.t.tolist(), cases.place.tolist(), strict=True)):
        scenario = cases.scenarios[place]
        local = [
            sum(bool(a) and o == 0 for a, o in zip(played.admitted[n, i], played.target[n, i], strict=True))
            for i in range(params.clients)
        ]
        full_clients += params.cap_local in local
        rejected += played.dropped[n, 1] > 0
        last += t == params.slots - 1
        short += any(scenario.in_range[t, i].sum() < params.server_choices for i in range(params.clients))
    assert found["a client at its cap"] == full_clients
    assert found["a task rejected by a cap"] == rejected
    assert found["the end of the episode"] == last
    assert found["a client with fewer servers in range than choices"] == short


# ---- what is compared --------------------------------------------------------------------------------------------


def test_an_error_is_relative_to_the_larger_number_or_to_what_flows():
    relative = block_correctness.relative
    assert relative(np.array([[2.0]]), np.array([[1.0]]), 0.0)[0] == 0.5
    assert relative(np.array([[2.0]]), np.array([[1.0]]), 10.0)[0] == 0.1
    assert relative(np.array([[0.0, np.inf]]), np.array([[0.0, np.inf]]), 0.0)[0] == 0
    assert relative(np.array([[1.0, 3.0]]), np.array([[1.0, 4.0]]), np.array([[9.0, 8.0]]))[0] == 0.125
    for wrong in (np.nan, np.inf):
        row = verdicts.within(("", "", "", ""), "", relative(np.array([[wrong]]), np.array([[1.0]]), 1.0), 1e-4)
        assert row["passed"] is False


def spoiled(slots: Slots, field: str, index: tuple, by: float) -> Slots:
    """The same with one number of one slot off by so much, or flipped where it is a flag."""
    value = getattr(slots, field).copy()
    value[index] = ~value[index] if value.dtype == bool else value[index] + np.array(by, value.dtype)
    return slots._replace(**{field: value})


@pytest.mark.parametrize("preset", ["original", "physical"])
def test_one_number_that_is_off_fails_its_row_and_no_other(cases_of, preset):
    cases, place = cases_of(preset), ("transition", "original-port", "cpu", "float64")
    theirs = cases.played
    columns = block_correctness.slices(cases)
    spoilers = {f"state {field}": ("after", (3, where.start), 1e-3) for field, where in columns.items()}
    spoilers |= {
        f"{part} of every queue": ("flows", (3, k, 0), 1e-3) for k, part in enumerate(("in", "out", "departed"))
    }
    spoilers |= {name: ("numbers", (3, k), 1e-3) for k, name in enumerate(NUMBERS)}
    spoilers["observation"] = ("observation", (3, 0), 1e-3)
    spoilers |= {name: (name, (3,), 1) for name in ("truncated",)}
    spoilers |= {name: (name, (3, 0), 1) for name in ("admitted", "target", "dropped")}
    assert not failed(block_correctness.compared(place, cases, theirs, theirs, EXACT))
    for quantity, (field, index, by) in spoilers.items():
        ours = spoiled(theirs, field, index, by)
        assert failed(block_correctness.compared(place, cases, ours, theirs, EXACT)) == {quantity}, quantity


FLIPPED = {  # of the preset `original`: a row that must fail, and rows that must not
    "interference_in_mw": ("out of every queue", {"admitted", "success", "state delay"}),
    "rate_weighted_bits": ("in of every queue", {"admitted", "success"}),
    "silent_overflow": ("success", {"admitted", "cost", "drift", "state lc"}),
    "fixed_priority": ("admitted", {"target"}),
    "idle_power_paid": ("cost", {"admitted", "drift", "state v2v"}),
    "unsigned_drift": ("reward", {"admitted", "cost", "success", "state lc"}),
}


@pytest.mark.parametrize("switch", FLIPPED)
def test_a_port_with_one_switch_the_other_way_fails_where_it_should(cases_of, monkeypatch, switch):
    cases, made = cases_of("original"), block_correctness.made

    def other(cases, *arguments, **options):
        return made(cases, *arguments, **options, **{switch: False})

    monkeypatch.setattr(block_correctness, "made", other)
    monkeypatch.setattr(block_correctness, "port_steps", block_correctness.port_steps.__wrapped__)
    found = failed(block_correctness.transition(cases, "cpu", "float64", EXACT))
    wrong, right = FLIPPED[switch]
    assert wrong in found and not right & found


def test_episodes_that_come_apart_are_counted_with_the_slot(cases_of, monkeypatch):
    """One reward of the sixth slot is off: each episode is apart from there on, and the first such slot is told."""
    cases, observed = cases_of("physical"), block_correctness.observed

    def off(env, before, outputs):
        ours = observed(env, before, outputs)
        return spoiled(ours, "numbers", (0, NUMBERS.index("reward")), 1e-3) if env.state()["elapsed"][0] == 6 else ours

    monkeypatch.setattr(block_correctness, "observed", off)
    queue, reward, apart, first = block_correctness.episode(cases, "cpu", "float64", EXACT)
    assert queue["passed"] and not reward["passed"]
    assert (apart["differing"], apart["cases"], apart["passed"]) == (1, 28, False)
    assert (first["value"], first["passed"]) == (6, None)


def test_a_biased_return_is_found(cases_of, monkeypatch):
    cases = cases_of("original")
    fair = next(block_correctness.distribution(cases, "cpu", 512))
    assert fair["passed"] is True
    played = cases.played
    numbers = played.numbers.copy()
    numbers[:, NUMBERS.index("reward")] += 0.2
    monkeypatch.setattr(Cases, "played", property(lambda self: played._replace(numbers=numbers)))
    assert next(block_correctness.distribution(cases, "cpu", 512))["passed"] is False


@pytest.mark.parametrize("devices", [("cpu", "cpu"), pytest.param(("cpu", "cuda"), marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_two_devices_live_the_same_steps(cases_of, few, dtype, devices):
    most = few.correctness.tolerances[dtype]
    rows = list(block_correctness.devices_agree(cases_of("physical"), dtype, most, devices))
    names = [row["quantity"].split(" (")[0] for row in rows]
    assert names == ["random action", "truncated", "state", "reward", "observation"]
    assert all(row["passed"] is True and row["cases"] == 256 * 120 for row in rows)
