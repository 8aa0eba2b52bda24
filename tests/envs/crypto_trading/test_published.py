"""Rule sets one and two: steps by hand, and whole episodes beside a restatement."""

import numpy as np
import pytest

from lockstep.envs.crypto_trading.original import get_state, set_state
from lockstep.envs.crypto_trading.original.published import spread_of
from tests.envs.crypto_trading.restated import Restated
from tests.envs.crypto_trading.worlds import actions, market, opened, outcomes, random_market

ONE = {"rule": 1, "L": 1, "C": 1e6, "f": 0.003, "kappa": 0.9, "A": 10_000}
TWO = {"rule": 2, "L": 5, "C": 500.0, "f": 0.0025, "kappa": 0.99, "A": 100}


def test_a_buy_of_rule_one_by_hand():
    env = opened(market([100, 100, 110, 110]), "finrl-crypto")
    bought = outcomes(env, [[0.5], [0.0]])
    # k = 2: s = 10,000 / 100 = 100, x = 50 units at 100 $ and 0.3 %
    assert bought[0]["after"]["holdings"].tolist() == [50.0]
    assert bought[0]["after"]["cash"] == pytest.approx(1e6 - 5_000 - 15, rel=1e-15)
    assert bought[0]["reward"] == pytest.approx(-15 / 1024, rel=1e-12)  # the fee; prices stand
    # 50 units gain 500 $, the holder's 10,000 units gain 100,000 $; then the end: G = 0.99 r1 + r2
    last = (500 - 100_000) / 1024
    assert bought[1]["reward"] == pytest.approx(0.99 * -15 / 1024 + last, rel=1e-12)
    assert bought[1]["terminated"] and not bought[1]["truncated"]


def test_a_price_of_exactly_1000_has_the_exponent_of_three_digits():
    env = opened(market([1000, 1000, 1000, 1000]), "finrl-crypto", capital=1e9)
    assert outcomes(env, [[1.0]])[0]["after"]["holdings"].tolist() == [100.0]  # 10,000 / 10^2
    env = opened(market([1000, 1000, 1000, 1000]), "finrl-crypto", capital=1e9, log_quotient=False)
    assert outcomes(env, [[1.0]])[0]["after"]["holdings"].tolist() == [10.0]


def test_buys_see_the_cash_that_the_ones_before_have_left():
    env = opened(market([[100, 100]] * 4), "finrl-crypto", capital=1000.0)
    after = outcomes(env, [[1.0, 1.0]])[0]["after"]
    most = 0.9 * 1000 / 1.003 / 100, 0.9 * 100 / 1.003 / 100
    assert after["holdings"].tolist() == pytest.approx(most, rel=1e-7)
    assert after["cash"] == pytest.approx(1000 * 0.1**2, rel=1e-12)


def test_an_order_must_exceed_1_1_times_the_minimum():
    flat = market([100.0] * 6, min_qty=[10.0])
    assert outcomes(opened(flat, "finrl-crypto"), [[0.11]])[0]["after"]["holdings"].tolist() == [0.0]
    held = opened(flat, "finrl-crypto")
    found = outcomes(held, [[0.1101], [-0.11], [-0.1101]])
    assert [step["after"]["holdings"].item() for step in found] == pytest.approx([11.01, 11.01, 0.0], rel=1e-6)


def test_symbols_of_the_published_table_bring_their_minimum():
    env = opened(market([100.0] * 4, symbols=["MATICUSDT"]), "finrl-crypto")
    found = outcomes(env, [[0.11], [0.12]])  # 11 units are not more than 1.1 * 10
    assert [step["after"]["holdings"].item() for step in found] == pytest.approx([0.0, 12.0], rel=1e-6)


def test_after_48_bars_a_twentieth_is_sold_and_the_age_begins_anew():
    env = opened(market([100.0] * 120), "finrl-crypto")
    found = outcomes(env, [[1.0]] + [[0.0]] * 20 + [[1.0]] + [[0.0]] * 30)
    ages = [step["after"]["age"].item() for step in found]
    assert ages[:49] == [*range(48), 0] and ages[49] == 1  # buying more at step 21 does not reset it
    assert found[47]["after"]["holdings"].item() == 200.0
    assert found[48]["after"]["holdings"].item() == pytest.approx(190.0, rel=1e-6)


def test_a_trim_at_price_0_gives_units_away():
    prices = [100.0] * 49 + [0.0] + [100.0] * 3
    found = outcomes(opened(market(prices), "finrl-crypto"), [[1.0]] + [[0.0]] * 48)
    assert found[-1]["after"]["holdings"].item() == pytest.approx(95.0, rel=1e-6)
    assert found[-1]["after"]["cash"] == found[-2]["after"]["cash"]


def test_a_stop_sells_all_and_the_asset_may_be_bought_again_in_the_same_step():
    env = opened(market([100, 100, 120, 107.9, 107.9, 100, 100]), "cappuccino", lookback=1, stop=0.1, norm_action=10.0)
    found = outcomes(env, [[0.5], [0.0], [0.1]])
    # 500 / (100 * 10) = 0.5 units per 1; the peak is 120 and 107.9 lies below 0.9 * 120 = 108
    assert found[1]["after"]["peak"].tolist() == [120.0]
    last = found[2]["after"]
    assert last["holdings"].item() == pytest.approx(0.05) and last["peak"].item() == np.float32(107.9)
    cash = found[1]["after"]["cash"] + 0.25 * 107.9 * 0.9975 - 0.05 * 107.9 * 1.0025
    assert last["cash"] == pytest.approx(cash, rel=1e-8) and last["age"].item() == 0


def test_the_reserve_is_left_in_cash_by_buys():
    env = opened(market([100.0] * 5), "cappuccino", lookback=1, reserve=0.2, norm_action=1.0)
    after = outcomes(env, [[1.0]])[0]["after"]
    assert after["cash"] == pytest.approx(500 - 0.99 * 400, rel=1e-12)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([0.0, 0.0], -1.5),
        ([0.5, 0.3], -0.10 - 0.5),
        ([0.3, 0.3, 0.3], 0.04),  # equal shares: Gini 0
        ([0.6, 0.2, 0.1], -0.2 + 0.1 * (0.4 - (2 * (0.1 + 0.4 + 1.8) / (3 * 0.9) - 4 / 3))),
    ],
)
def test_concentration_by_hand(shares, expected):
    assert spread_of(shares) == pytest.approx(expected, rel=1e-12)


def test_reward_of_rule_two_by_hand():
    env = opened(market([100, 100, 90, 90, 90]), "cappuccino", lookback=1, reserve=0.999, decay_floor=0.5)
    # nothing is bought: V stays 500, E falls by a tenth, H = 3, delta = 2/3, v = 1, m = -1/10 at the second step
    second = outcomes(env, [[0.0], [0.0]])[1]
    k, delta, E = 2.0**-10, 0.5, 500 / 1.0025
    expected = 0.5 * k * delta * 0.1 * E + 0.2 * 0.1 * k * 0.1
    assert second["reward"] == pytest.approx(expected, rel=1e-12)


def test_actions_of_rule_two_are_clipped_before_anything_else():
    env = opened(market([100.0] * 6), "cappuccino", lookback=1)
    assert outcomes(env, [[np.inf]])[0]["after"]["cash"] == pytest.approx(5.0, rel=1e-9)
    with pytest.raises(ValueError, match=r"action\[0\] \(A0\) is nan, must be a number"):
        env.step(np.array([np.nan], np.float32))


def test_actions_of_rule_two_count_1000_at_most():
    env = opened(market([100.0] * 12), "cappuccino", norm_action=1e6)
    assert outcomes(env, [[5000.0]])[0]["after"]["holdings"].item() == pytest.approx(1000 * 500 / (100 * 1e6), rel=1e-6)


def test_what_the_cash_allows_below_the_minimum_is_not_bought():
    env = opened(market([[100, 100]] * 4, min_qty=[0, 5]), "finrl-crypto", capital=1000.0)
    after = outcomes(env, [[1.0, 1.0]])[0]["after"]
    assert after["holdings"][1] == 0 and after["cash"] == pytest.approx(100.0, rel=1e-12)


def test_a_buy_of_nothing_has_no_peak():
    env = opened(market([100.0] * 12), "cappuccino", reserve=1.0)
    after = outcomes(env, [[1.0]])[0]["after"]
    assert after["peak"].tolist() == after["holdings"].tolist() == [0.0]


def test_the_share_of_a_trim_is_a_float32():
    env = opened(market([1.0] * 9), "finrl-crypto", hold_limit=1)
    units = next(np.float32(h) for h in range(1, 99) if np.float32(0.05) * np.float32(h) != np.float32(0.05 * h))
    set_state(env, {"holdings": np.array([units])})
    assert outcomes(env, [[0.0]])[0]["info"]["notional"] == float(np.float32(0.05) * units)  # at a price of 1


def test_the_price_of_a_stop_is_a_float32():
    kept = np.float32(0.9)
    peak = next(np.float32(p) for p in range(100, 999) if float(np.float32(p) * kept) > float(p) * float(kept))
    price = np.nextafter(float(peak * kept), 0)  # between the product that is rounded and the one that is not
    for last, held in ((price, 0.0), (float(peak * kept), 1.0)):
        env = opened(market([100.0, last, last, last]), "cappuccino", lookback=1, stop=0.1)
        set_state(env, {"holdings": np.array([1.0]), "peak": np.array([peak])})
        assert outcomes(env, [[0.0]])[0]["after"]["holdings"].tolist() == [held]


def test_observation_of_rule_one_by_hand():
    env = opened(market([[100, 50]] * 6, feature=np.arange(6.0)), "finrl-crypto", lookback=2, norm_tech=0.5)
    seen = outcomes(env, [[0.0, 0.5]])[0]
    cash = 1e6 - 500 * 50 * 1.003  # s = 1,000 of a price of 50
    assert seen["observation"].tolist() == pytest.approx([cash / 4096, 0, 500 / 256, 1.0, 0.5], rel=1e-6)


@pytest.mark.parametrize("zero", [0.0, 0.05])
@pytest.mark.parametrize(
    ("preset", "numbers", "options", "own"),
    [
        ("finrl-crypto", ONE, {}, {}),
        ("cappuccino", TWO, {}, {}),
        ("cappuccino", TWO, {"stop": 0.05, "reserve": 0.1, "concentration": 0.3, "decay_floor": 0.2},
         {"rho": 0.05, "R": 0.1, "z": 0.3, "decay": 0.2}),
    ],
)  # fmt: skip
def test_episodes_are_those_of_the_restatement(preset, numbers, options, own, zero):
    for seed in range(4):
        given = random_market(seed, 160, absent=zero)
        env = opened(given, preset, reachable="warn", **options)
        other = Restated(**numbers, P=given.close, q=1.1 * given.min_qty, **own)
        for episode in range(2):
            for step in outcomes(env, actions(seed + episode, 200, 3, most=3.0 if episode else 0.3)):
                reward, over = other.step(step["action"])
                state = step["after"]
                for name, array in (("holdings", other.h), ("age", other.a), ("peak", other.peak)):
                    assert state[name].tolist() == array.tolist(), name
                C = numbers["C"]
                assert [state["cash"], state["value"], state["benchmark"]] == pytest.approx(
                    [other.c, other.V, other.E], rel=1e-12, abs=1e-12 * C
                )
                assert step["reward"] == pytest.approx(reward, rel=1e-9, abs=1e-12 * C)
                assert step["terminated"] == over
            env.reset()
            other.reset()
            state = get_state(env)
            assert (state["running"], state["benchmark"]) == pytest.approx((other.G, other.E), rel=1e-9)
