"""The comparison of crypto trading: it passes where port and original are the same, in one piece or in several."""

import math

import numpy as np
import pytest
import torch

from lockstep.envs.crypto_trading import tables
from lockstep.experiments import config, originals, verdicts
from lockstep.experiments import correctness as general
from lockstep.experiments.config import Settings
from lockstep.experiments.crypto_trading import correctness

NAME = "crypto_trading"
RULES = config.load(NAME, "full").correctness["rules"]
PLACE = ("transition", "original-port", "cpu", "float64")


@pytest.fixture
def of(monkeypatch):
    """The walk of a set of rules over few states and episodes, which the original plays in this process."""

    def at_once(task, *cases, **same):
        found = task(*cases, **same)
        return lambda: found

    def walk(label: str, states: int = 80) -> correctness.Accounts:
        plain = config.load(NAME, "full").plain()
        plain["correctness"] |= {"states": states, "episodes": 4}
        return next(one for one in correctness.walks(NAME, Settings(plain)) if one.label == label)

    monkeypatch.setattr(originals, "on_all_cores", at_once)
    return walk


@pytest.mark.parametrize(
    "label", [pytest.param(label, marks=[pytest.mark.slow] * (label != "clean")) for label in RULES]
)
def test_every_comparison_that_needs_no_gpu_passes_in_pieces(of, monkeypatch, label):
    monkeypatch.setattr(correctness, "PIECE", 32)
    found = general.comparisons([of(label)], ["cpu"])
    rows = [row for name, one in found.items() if "coverage" not in name for row in one.rows()]
    assert {row["level"] for row in rows} == {"transition", "episode", "drift", "distribution"}
    assert [row for row in rows if row["passed"] is False] == []
    assert {row["cases"] for row in rows if row["level"] == "transition"} == {80}


@pytest.mark.slow
@pytest.mark.parametrize("label", RULES)
def test_the_states_of_quick_scale_reach_every_kind_of_step(of, label):
    n, counts = of(label, 2000).reached()
    assert n == 2000 and min(counts.values()) > 0, counts


def test_a_million_states_of_every_set_of_rules_are_compared_at_full_scale_and_as_ever_at_quick():
    full, quick = (config.load(NAME, scale).correctness for scale in ("full", "quick"))
    kinds = len(full.tolerances) * len(("port", "original"))
    assert kinds * full.states >= 10**6
    assert general.fewer(quick.plain())["states"] == 2000


@pytest.mark.parametrize("label", ["clean", "finrl-crypto"])
@pytest.mark.parametrize("visitor", ["port", "original"])
def test_every_piece_visits_states_of_its_own(of, monkeypatch, label, visitor):
    monkeypatch.setattr(correctness, "PIECE", 48)
    whole = of(label, 112)
    sizes, visited = [], []
    for piece in whole.pieces():
        before, actions, _ = piece.cases("cpu", "float64", visitor)
        sizes.append(len(actions))
        visited += [state.tobytes() for state in before["holdings"] if state.any()]
    assert sizes == [48, 48, 16] and len(visited) > 90 and len(set(visited)) == len(visited)


def test_states_that_fit_into_one_piece_are_the_walk_s_own(of):
    whole = of("clean")
    assert list(whole.pieces()) == [whole]


@pytest.mark.parametrize(
    ("units", "dtype", "passed"), [(1, "float32", True), (1, "float64", False), (0.5, "float32", False)]
)
def test_an_order_that_rounding_lets_reach_its_minimum_is_counted_and_no_other_difference_excused(
    of, units, dtype, passed
):
    walk, asset = of("clean"), 4
    _, _, theirs = walk.cases("cpu", dtype, "port")
    ours = {name: values.copy() for name, values in theirs.items()}
    n = units * tables.minimums(walk.one.params, walk.one.market)[asset]
    ours["holdings"][7, asset] += n
    ours["cash"][7] -= n * walk.one.market.close[0, asset]
    rows = list(walk.compared((*PLACE[:3], dtype), ours, theirs, walk.judged(dtype, "port")))
    assert all(row["passed"] for row in rows) == passed
    counted = [row for row in rows if row["quantity"].startswith("orders that rounding")]
    assert [row["differing"] for row in counted] == [int(units == 1)] * (dtype == "float32")


def test_an_account_below_the_floor_in_the_last_bar_is_terminated_in_both_forms(of):
    walk = of("clean")
    env, game = walk.batch(1, "cpu", "float64"), walk.game
    env.reset()
    before = walk.state(env)
    first = before["first"].item()
    earlier, later = env.market.close[first + 149 : first + 151]
    falls = int(np.where(earlier > 0, later - earlier, 0.0).argmin())
    before |= {"cash": np.zeros(1), "value": np.full(1, 1e5), "elapsed": np.array([149], np.int32)}
    before["holdings"][0, falls] = before["average"][0, falls] = 1e5 / earlier[falls]
    env.set_state(before)
    ours = walk.step(env, torch.zeros(1, 10))
    game.put(0, {name: value[0] for name, value in before.items()})
    *_, terminated, truncated, _ = game.step(np.zeros(10, np.float32))
    assert (terminated, truncated) == (ours["terminated"].item(), ours["truncated"].item()) == (True, False)


def test_rows_of_pieces_become_one():
    found = [
        correctness.joined(rows)
        for rows in (
            [verdicts.within(PLACE, "cash", np.array(errors), 1e-9) for errors in ([1e-12, 3e-10], [2e-10])],
            [verdicts.within(PLACE, "cash", np.array(errors), 1e-9) for errors in ([1e-12], [np.nan], [1e-8])],
            [verdicts.equal(PLACE, "age", np.array(different)) for different in ([False], [True, True])],
            [verdicts.row(PLACE, "steps that end an episode", n, None, value=float(n)) for n in (3, 4)],
        )
    ]
    assert [row["cases"] for row in found] == [3, 3, 3, 7]
    assert [row["passed"] for row in found] == [True, False, False, None]
    assert found[0]["error"] == 3e-10 and math.isnan(found[1]["error"])
    assert (found[2]["differing"], found[2]["allowed"], found[3]["value"]) == (2, 0, 7.0)
    assert {row["quantity"] for row in found} == {"cash", "age", "steps that end an episode"}
