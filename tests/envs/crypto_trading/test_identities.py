"""Facts that hold for any prices and actions, up to rounding (README.md, 2.6)."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.envs.crypto_trading.worlds import actions, market, opened, outcomes, random_market

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=25, deadline=None)
PUBLISHED = ("finrl-crypto", "cappuccino")
CLEAN = {"orders": st.sampled_from(["notional", "target_weight"]), "fill": st.sampled_from(["next_close", "next_open"]),
         "buy_order": st.sampled_from(["listed", "rotating", "pro_rata"]), "stop": st.sampled_from([0.0, 0.05]),
         "hold_limit": st.sampled_from([0, 7, 48]), "reserve": st.sampled_from([0.0, 0.2])}  # fmt: skip
MOVED = {"slippage": st.sampled_from([0.0, 0.01]), "impact": st.sampled_from([0.0, 0.1])}


def accounted(env, steps, fees, tolerance):
    """Checks the gain of each step: that of prices, minus fees, plus what units bought at F gain by the close."""
    capital, P, F = env.params.capital, env.market.close, env.market.close
    if env.params.fill == "next_open":
        F = env.market.open
    for step in steps:
        t, h = step["before"]["bar"] + 1, step["before"]["holdings"].astype(np.float64)
        traded = step["after"]["holdings"].astype(np.float64) - h
        gain = (h * (P[t] - P[t - 1])).sum() - step["info"]["fees"] + (traded * (P[t] - F[t])).sum()
        assert step["after"]["value"] - step["before"]["value"] == pytest.approx(gain, abs=tolerance * capital)
        bought = step["info"]["fees"] / fees
        assert bought == pytest.approx(step["info"]["notional"], rel=1e-9, abs=1e-9)


@FEW
@given(seed=SEEDS, which=st.integers(0, 1), stop=st.sampled_from([0.0, 0.04]), absent=st.sampled_from([0.0, 0.1]))
def test_the_account_of_published_rules_adds_up(seed, which, stop, absent):
    preset = PUBLISHED[which]
    options = {"stop": stop} if which else {}
    env = opened(random_market(seed, 70, absent=absent), preset, lookback=1, reachable="warn", **options)
    steps = outcomes(env, actions(seed, 80, 3, most=2.0))
    if absent:  # a trim at price 0 loses what it gives away, which the sum of prices does not know
        steps = [step for step in steps if (env.market.close[step["after"]["bar"]] > 0).all()]
    accounted(env, steps, env.params.fee_buy, 1e-7)  # holdings are float32
    assert all(step["after"]["cash"] >= 0 and (step["after"]["holdings"] >= 0).all() for step in steps)


@FEW
@given(seed=SEEDS, absent=st.sampled_from([0.0, 0.1]), options=st.fixed_dictionaries(CLEAN))
def test_the_account_of_clean_adds_up(seed, absent, options):
    env = opened(random_market(seed, 70, absent=absent), reachable="warn", **options)
    steps = outcomes(env, actions(seed, 80, 3))
    accounted(env, steps, 0.003, 1e-9)


@FEW
@given(seed=SEEDS, absent=st.sampled_from([0.0, 0.1]), options=st.fixed_dictionaries(CLEAN | MOVED))
def test_cash_and_holdings_are_never_negative(seed, absent, options):
    env = opened(random_market(seed, 70, absent=absent), reachable="warn", **options)
    for step in outcomes(env, actions(seed, 80, 3)):
        state = step["after"]
        assert state["cash"] >= 0 and (state["holdings"] >= 0).all() and (state["peak"] >= 0).all()
        assert ((state["average"] > 0) == (state["holdings"] > 0)).all()
        assert math.isfinite(step["reward"]) and np.isfinite(step["observation"]).all()


@FEW
@given(seed=SEEDS)
def test_excess_log_telescopes(seed):
    env = opened(random_market(seed, 70), reachable="warn", value_floor=0.0)
    steps = outcomes(env, actions(seed, 80, 3))
    last, capital = steps[-1]["after"], env.params.capital
    expected = math.log(last["value"] / capital) - math.log(last["benchmark"] / capital)
    assert sum(step["reward"] for step in steps) == pytest.approx(expected, abs=1e-12)


@FEW
@given(seed=SEEDS)
def test_rewards_of_rule_one_sum_to_the_gain_over_the_holder(seed):
    env = opened(random_market(seed, 70), "finrl-crypto", terminal_sum=False)
    steps = outcomes(env, actions(seed, 80, 3, most=2.0))
    gains = [(step["value"] - step["benchmark"]) for step in (steps[0]["before"], steps[-1]["after"])]
    assert sum(step["reward"] for step in steps) == pytest.approx((gains[1] - gains[0]) / 1024, abs=1e-9)


@FEW
@given(seed=SEEDS)
def test_who_never_trades_keeps_the_capital_and_is_paid_by_the_holder(seed):
    env = opened(random_market(seed, 40), "finrl-crypto")
    for step in outcomes(env, np.zeros((40, 3)))[:-1]:
        assert step["after"]["value"] == 1e6
        expected = -(step["after"]["benchmark"] - step["before"]["benchmark"]) / 1024
        assert step["reward"] == pytest.approx(expected, abs=1e-12)


@FEW
@given(units=st.integers(1, 100), price=st.floats(1.0, 1e4))
def test_buying_and_selling_at_one_price_costs_two_fees(units, price):
    env = opened(
        market([price] * 6), capital=1e9, orders="units", norm_action=1e3 * 10.0 ** math.floor(math.log10(price))
    )
    u = units / 1000
    after = outcomes(env, [[u], [-1.0]])[1]["after"]
    n = np.float32(u) * np.float64(env.rules.scale[0])
    assert after["cash"] - 1e9 == pytest.approx(-price * n * 0.006, abs=1e-6)


@pytest.mark.parametrize(("preset", "kappa"), [("finrl-crypto", 0.9), ("cappuccino", 0.99), (None, 0.99)])
def test_saturated_buys_leave_powers_of_what_is_not_spent(preset, kappa):
    options = {"capital": 1000.0} | ({"orders": "units", "norm_action": 1e4} if preset is None else {})
    if preset == "cappuccino":
        options |= {"norm_action": 0.5}
    env = opened(market([[10.0] * 4] * 14), preset, lookback=1, **options)
    after = outcomes(env, [[1.0] * 4])[0]["after"]
    assert after["cash"] == pytest.approx(1000 * (1 - kappa) ** 4, rel=1e-8)


@pytest.mark.parametrize(("preset", "options"), [("finrl-crypto", {}), ("clean", {"order_share": 1.0})])
def test_a_parallel_budget_breaks_the_sign_of_cash(preset, options):
    for parallel in (False, True):
        env = opened(market([[10.0] * 4] * 4), preset, capital=1000.0, parallel_budget=parallel, **options)
        assert (outcomes(env, [[1.0] * 4])[0]["after"]["cash"] < 0) == parallel
