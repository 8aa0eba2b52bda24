"""Rules without learning: accounts that are known by hand, measures by their formulas, and rows."""

import math

import numpy as np
import pandas as pd
import pytest

from lockstep import envs
from lockstep.envs.crypto_trading import policies
from lockstep.envs.crypto_trading.original import make
from lockstep.envs.crypto_trading.params import make_params
from lockstep.envs.crypto_trading.scenario import SETS, generate
from lockstep.experiments import config, originals
from lockstep.experiments.config import Settings
from lockstep.experiments.crypto_trading import baselines
from lockstep.experiments.crypto_trading.baselines import COLUMNS, Episode, Group
from lockstep.experiments.crypto_trading.measures import drawdown, sharpe
from tests.envs.crypto_trading.worlds import market

NAME, YEAR = "crypto_trading", 105_120


@pytest.fixture(scope="module")
def few():
    """Two seeds of a small set."""
    plain = config.load(NAME, "quick").plain()
    plain["baselines"] |= {"set": "tiny", "seeds": 2, "points": 5}
    return Settings(plain)


@pytest.fixture(scope="module")
def planted(few):
    return pd.DataFrame(baselines.measure(NAME, Group("planted signal", 0), few), columns=COLUMNS)


def test_a_doubled_price_by_hand():
    """κ C buys at 100 with a fee of 0.3 %; the fair holder puts all of C there, fee included; then the price is 200."""
    given = market([100.0, 100.0, 200.0])
    (found,) = baselines.play(NAME, [given], ["hold"], 0)["hold"]
    units, fair = 0.99e6 / 1.003 / 100, 1e6 / 1.003 / 100
    value = [1e6, 1e4 + 100 * units, 1e4 + 200 * units]
    assert found.value.tolist() == pytest.approx(value, rel=1e-7)
    assert found.benchmark.tolist() == pytest.approx([1e6, 100 * fair, 200 * fair], rel=1e-7)
    assert found.idle.tolist() == pytest.approx([1, 1e4 / value[1], 1e4 / value[2]])
    assert found.notional.tolist() == pytest.approx([100 * units, 0], rel=1e-6, abs=20)
    assert found.fees.tolist() == pytest.approx([0.3 * units, 0], rel=1e-6, abs=0.06)  # rounded shares of a move of C
    row = baselines.told(found, YEAR)
    assert row["gain"] == pytest.approx(math.log((1e4 + 200 * units) / (200 * fair)))
    assert row["growth"] == pytest.approx(math.log(1e-2 + 200e-6 * units))
    assert (row["bars"], row["invested"]) == (2, 1.0)
    assert row["fees"] == pytest.approx(0.3e-6 * units, abs=1e-7)


def of_accounts(accounts) -> Episode:
    """The episode of an original's accounts, bar by bar."""
    rows = np.array([(a.value, a.benchmark, a.cash / a.value, a.fees, a.notional) for a in accounts])
    return Episode(*rows[:, :3].T, *rows[1:, 3:].T)


@pytest.mark.parametrize("hold_limit", [0, 48])
def test_episodes_are_those_of_the_originals(hold_limit):
    """A roll-out tells rewards and shares in float32; the rows are the same to six digits and more."""
    params, rules = make_params(hold_limit=hold_limit), [rule for rule in policies.NAMES if rule != "random"]
    markets = [generate("tiny", seed, signal="momentum").rows(20, 400) for seed in range(3)]
    found = baselines.play(NAME, markets, rules, hold_limit)
    assert [*found] == rules
    for rule, every in found.items():
        for ours, given in zip(every, markets, strict=True):
            theirs = of_accounts(policies.played(rule, params, given))
            np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-8)
            np.testing.assert_allclose(ours.benchmark, theirs.benchmark, rtol=1e-8)
            np.testing.assert_allclose(ours.idle, theirs.idle, rtol=1e-6)
            assert baselines.told(ours, YEAR) == pytest.approx(baselines.told(theirs, YEAR), rel=1e-5, abs=1e-7)


def test_random_episodes_are_those_of_the_actions_of_a_roll_out():
    given = generate("tiny", 5).rows(0, 120)
    (ours,) = baselines.play(NAME, [given], ["random"], 48)["random"]
    env = envs.make(NAME, 2, scenario=given)
    env.reset(seed=0)
    one = make(scenario=given, hold_limit=48)
    one.reset()
    told = [one.step(action)[-1] for action in env.random_actions(119)[:, 1].numpy()]  # beside an account in cash
    np.testing.assert_allclose(ours.value, [1e6, *(info["value"] for info in told)], rtol=1e-8)
    np.testing.assert_allclose(ours.fees, [info["fees"] for info in told], atol=0.01)


def test_an_account_that_falls_below_the_floor_is_played_to_there():
    given = market([100.0, 100.0, 50.0, 4.0, 4.0, 4.0])
    (ours,) = baselines.play(NAME, [given], ["hold"], 0)["hold"]
    theirs = of_accounts(policies.played("hold", make_params(hold_limit=0), given))
    assert len(ours.value) == 4 and ours.value.tolist() == pytest.approx(theirs.value.tolist(), rel=1e-6)
    assert ours.idle.tolist() == pytest.approx(theirs.idle.tolist()[:3])
    assert baselines.told(ours, YEAR)["invested"] == 1


def test_turnover_and_fees_are_counted_over_a_year():
    """Two bars in which half of the account is bought and sold at fees of 1 % in all."""
    money = [np.array(column, float) for column in ([100, 100, 100], [100, 100, 100], [1, 0.5, 1], [1, 1], [50, 50])]
    row = baselines.told(Episode(*money), 365.0)
    assert row["turnover"] == 365.0 / 2 and row["fees"] == 0.02 and row["invested"] == 0.5
    assert (row["gain"], row["sharpe"], row["drawdown"]) == (0.0, 0.0, 0.0)


def test_sharpe_of_two_returns():
    """10 % and -10 %+: mean 0.05 and deviation 0.05 sqrt(2) of returns 0.1 and 0, 10,000 bars a year."""
    assert sharpe(np.array([100.0, 110.0, 110.0]), 10_000) == pytest.approx(100 / math.sqrt(2))
    assert sharpe(np.array([100.0, 90.0, 90.0]), 10_000) == pytest.approx(-100 / math.sqrt(2))


@pytest.mark.parametrize("value", [[1.0, 1.0, 1.0], [1.0, 2.0, 4.0], [5.0, 6.0], [0.1 * 1.1**k for k in range(9)]])
def test_equal_returns_have_no_sharpe_ratio(value):
    assert sharpe(np.array(value), YEAR) == 0.0


def test_drawdown_is_from_the_highest_value_so_far():
    assert drawdown(np.array([100.0, 80.0, 200.0, 150.0, 190.0])) == 0.25
    assert drawdown(np.array([1.0, 2.0, 3.0])) == 0.0


def test_curves_have_the_first_seeds_money_and_the_band_of_all():
    every = [Episode(*np.tile(value, (5, 5))) for value in (1.0, 2.0, 3.0)]
    every = [episode._replace(value=np.full(5, k), benchmark=np.full(5, 2.0)) for k, episode in enumerate(every, 1)]
    rows = list(baselines.curve(every, 3))
    assert [row["bar"] for row in rows] == [0, 2, 4]
    assert all((row["value"], row["benchmark"]) == (1.0, 2.0) for row in rows)
    assert [rows[0][name] for name in ("over_low", "over", "over_high")] == [0.6, 1.0, 1.4]
    assert [row["bar"] for row in baselines.curve(every, 200)] == [0, 1, 2, 3, 4]


def test_rows_of_every_rule_and_seed(few, planted):
    episodes, curves = (planted[planted["level"] == level] for level in ("episode", "curve"))
    assert episodes[["rule", "seed"]].apply(tuple, axis=1).tolist() == [
        (rule, seed) for rule in few.baselines.rules for seed in (0, 1)
    ]
    assert set(episodes["bars"]) == {399} and set(curves["bar"]) == {0, 100, 200, 299, 399}
    assert (episodes.loc[episodes["rule"] == "cash", "growth"] == 0).all()
    last = curves[(curves["rule"] == "cash") & (curves["bar"] == 399)].iloc[0]
    assert -math.log(last["benchmark"] / 1e6) == pytest.approx(episodes.loc[episodes["rule"] == "cash", "gain"].iloc[0])


def test_the_reference_needs_a_sign_and_curves_the_first_hold_limit(few):
    rows = pd.DataFrame(baselines.measure(NAME, Group("no signal", 48), few))
    assert set(rows["rule"]) == {"hold", "equal_weight", "cash", "random"} and set(rows["level"]) == {"episode"}


def test_processes_play_what_one_plays(few, planted, monkeypatch):
    monkeypatch.setattr(baselines, "MANY", 2)
    monkeypatch.setattr(originals, "cores", lambda: 2)

    class Workers:
        imap = staticmethod(map)

    monkeypatch.setattr(originals, "workers", Workers)
    baselines.drawn.cache_clear()
    again = pd.DataFrame(baselines.measure(NAME, Group("planted signal", 0), few), columns=COLUMNS)
    assert again.equals(planted)


def test_bars_of_training_and_validation_are_not_played(monkeypatch):
    """Of a set of 400 bars that keeps 250 and 50 of them, 100 are left, which is 99 steps."""
    monkeypatch.setitem(SETS, "tiny", SETS["tiny"]._replace(train=250, validation=50))
    left = baselines.of_seed(baselines.Job("tiny", {}, 0))
    prices = generate("tiny", 0).close[300:]
    assert np.array_equal(left.close, prices)
    (found,) = baselines.play(NAME, [left], ["hold"], 0)["hold"]
    fair = (1e6 / 3 / 1.003 / prices[1] * prices[-1]).sum()
    assert len(found.value) == 100 and found.benchmark[-1] == pytest.approx(fair, rel=1e-7)


def test_all_markets_and_hold_limits_are_asked_for():
    settings = config.load(NAME, "full")
    assert [group.label for group in baselines.groups(settings)] == [
        f"{market} hold_limit={limit}" for market in ("no signal", "planted signal") for limit in (0, 48)
    ]
    assert settings.baselines.seeds >= 5 and settings.baselines.set == "paper"


@pytest.mark.slow
def test_the_reference_gains_what_was_planted():
    """It is in cash while the sign takes a tenth of the assets' mean deviation a bar, .825/sqrt(year), from a holder.

    Besides it pays more fees; what prices do meanwhile by themselves is a fifteenth either way in a mean of 8 weeks.
    """
    settings = config.load(NAME, "quick")
    rows = pd.DataFrame(baselines.measure(NAME, Group("planted signal", 0), settings), columns=COLUMNS)
    episodes = rows[rows["level"] == "episode"].groupby("rule")
    mean = episodes[["gain", "bars", "invested", "fees"]].agg(lambda column: column.astype(float).mean())
    reference, holder = mean.loc["reference"], mean.loc["hold"]
    lost = 0.1 * 0.825 / math.sqrt(YEAR) * (1 - reference["invested"]) * reference["bars"]
    assert reference["gain"] == pytest.approx(lost - (reference["fees"] - holder["fees"]), abs=0.065)
    assert reference["gain"] > 0.1 and abs(holder["gain"]) < 0.005
