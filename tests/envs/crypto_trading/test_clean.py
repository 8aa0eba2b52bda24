"""The rule set `clean`: each option by hand."""

import math

import numpy as np
import pytest

from lockstep.envs.crypto_trading.original import get_state, set_state
from tests.envs.crypto_trading.worlds import market, opened, outcomes

FREE = {"fee_buy": 0.0, "fee_sell": 0.0}


def first(given, action, **options) -> dict:
    """State after the first step."""
    return outcomes(opened(given, **options), [action])[0]["after"]


def test_notional_orders_are_shares_of_the_value():
    found = outcomes(opened(market([100.0] * 4)), [[0.5], [-0.25]])
    assert found[0]["after"]["holdings"].tolist() == [500.0]  # 0.5 * 0.1 * 1e6 / 100
    value = 1e6 - 150
    assert found[0]["after"]["value"] == pytest.approx(value, rel=1e-15)
    assert found[1]["after"]["holdings"].item() == pytest.approx(500 - 0.25 * 0.1 * value / 100, rel=1e-14)
    assert found[1]["info"]["fees"] == pytest.approx(0.25 * 0.1 * value * 0.003, rel=1e-12)
    assert found[1]["info"]["turnover"] == pytest.approx(0.025, rel=1e-12)


@pytest.mark.parametrize(
    ("action", "weights"),
    [([-1, -1], [0, 0]), ([-0.5, 0], [0.25, 0.5]), ([1, 1], [0.5, 0.5]), ([0.5, 0.0], [0.6, 0.4])],
)
def test_target_weights_are_at_most_the_whole_value(action, weights):
    state = first(market([[100, 10]] * 4), action, orders="target_weight", spending=1.0, **FREE)
    assert (state["holdings"] * [100, 10] / 1e6).tolist() == pytest.approx(weights, abs=1e-12)


def test_target_weights_sell_what_is_too_much():
    env = opened(market([[100, 10]] * 6), orders="target_weight", spending=1.0, **FREE)
    state = outcomes(env, [[1, -1], [-0.5, -0.5]])[1]["after"]
    assert (state["holdings"] * [100, 10] / 1e6).tolist() == pytest.approx([0.25, 0.25])


def test_orders_in_units_are_those_of_rule_one_with_exact_decades():
    state = first(market([[1000, 150]] * 4), [0.5, 0.5], orders="units")
    assert state["holdings"].tolist() == [5.0, 50.0]


def test_orders_are_sized_before_the_stop():
    env = opened(market([100, 100, 80, 80]), stop=0.1, order_share=1.0, spending=0.5, slippage=0.5, **FREE)
    found = outcomes(env, [[1.0], [0.125]])
    held = 0.5 * 1e6 / 150  # of what costs 150 $, with slippage
    value = 5e5 + held * 80
    cash = 5e5 + held * 40 - 0.125 * value * 1.5
    assert found[1]["after"]["holdings"].item() == pytest.approx(0.125 * value / 80, rel=1e-12)
    assert found[1]["after"]["cash"] == pytest.approx(cash, rel=1e-12)
    assert found[1]["after"]["average"].item() == pytest.approx(120.0) and found[1]["after"]["peak"].item() == 80.0


@pytest.mark.parametrize(("order", "full"), [("listed", [0, 0]), ("rotating", [1, 0])])
def test_buys_in_turn_leave_less_to_the_next(order, full):
    env = opened(market([[100, 100]] * 5), buy_order=order, order_share=2.0, spending=0.9, **FREE)
    for bar, begins in enumerate(full):
        fresh = get_state(env) | {"cash": np.float64(1e6), "value": np.float64(1e6), "holdings": np.zeros(2)}
        set_state(env, fresh | {"bar": np.int32(bar)})
        after = outcomes(env, [[1.0, 1.0]])[0]["after"]
        expected = [900.0 * 10, 90.0 * 10]
        assert after["holdings"].tolist() == pytest.approx(expected[::-1] if begins else expected)


def test_pro_rata_buys_shrink_by_one_factor():
    state = first(
        market([[100, 50, 100]] * 4, min_qty=[0, 0, 2000]), [1.0, 0.5, 0.25], buy_order="pro_rata", order_share=2.0,
        spending=0.9, min_margin=1.0,
    )  # fmt: skip
    cost = (2e6 + 1e6 + 5e5) * 1.003
    factor = 0.9 * 1e6 / cost
    assert state["holdings"].tolist() == pytest.approx([factor * 20_000, factor * 20_000, 0])  # then the minimum
    assert state["cash"] == pytest.approx(1e6 - factor * 3e6 * 1.003, rel=1e-12)


def test_pro_rata_buys_that_fit_are_not_changed():
    state = first(market([[100, 50]] * 4), [1.0, 0.5], buy_order="pro_rata")
    assert state["holdings"].tolist() == pytest.approx([1000, 1000])


def test_orders_at_the_next_open_are_marked_at_its_close():
    given = market([100, 110, 121], open=[[100], [104], [110]], high=[[200]] * 3, low=[[1]] * 3)
    step = outcomes(opened(given, fill="next_open"), [[1.0]])[0]
    units = 1e5 / 104
    assert step["after"]["value"] == pytest.approx(1e6 - 1e5 * 1.003 + units * 110, rel=1e-13)
    assert step["after"]["benchmark"] == pytest.approx(1e6 / 1.003 / 104 * 110, rel=1e-13)
    assert step["after"]["average"].tolist() == [104.0]


def test_slippage_and_impact_move_prices_against_the_order():
    given = market([100.0] * 4, volume=np.full((4, 1), 4000.0))
    found = outcomes(opened(given, slippage=0.01, impact=0.1, **FREE), [[1.0], [-1.0]])
    paid = 100 * (1 + 0.01 + 0.1 * math.sqrt(1000 / 4000))
    assert found[0]["after"]["cash"] == pytest.approx(1e6 - 1000 * paid, rel=1e-13)
    sold = 0.1 * found[0]["after"]["value"] / 100
    price = 100 * (1 - 0.01 - 0.1 * math.sqrt(sold / 4000))
    assert found[1]["after"]["cash"] == pytest.approx(found[0]["after"]["cash"] + sold * price, rel=1e-13)


def test_what_a_buy_may_cost_goes_by_the_price_at_the_ordered_size():
    given = market([100.0] * 4, volume=np.full((4, 1), 1e4))
    state = first(given, [1.0], impact=1.0, order_share=2.0, **FREE)
    ordered = 20_000
    n = 0.99 * 1e6 / (100 * (1 + math.sqrt(ordered / 1e4)))
    assert state["holdings"].item() == pytest.approx(n, rel=1e-13)
    assert state["cash"] == pytest.approx(1e6 - n * 100 * (1 + math.sqrt(n / 1e4)), rel=1e-12)


def test_a_price_never_falls_below_0():
    given = market([100.0] * 4, volume=np.full((4, 1), 1.0))
    env = opened(given, impact=0.25, order_share=0.5, **FREE)
    found = outcomes(env, [[0.01], [-1.0]])  # some 50 units: 1 - 0.25 sqrt(50) is below 0
    assert found[1]["after"]["holdings"].tolist() == [0.0]
    assert found[1]["after"]["cash"] == found[0]["after"]["cash"]


def test_orders_are_whole_lots():
    found = outcomes(opened(market([100.0] * 5), order_share=1.0, **FREE), [[0.0107], [-0.0052]])
    assert found[0]["after"]["holdings"].item() == pytest.approx(107)
    lots = opened(market([100.0] * 5, qty_step=[10.0]), order_share=1.0, **FREE)
    found = outcomes(lots, [[0.0107], [-0.0052]])
    assert [step["after"]["holdings"].item() for step in found] == [100.0, 50.0]


def test_a_sale_of_a_part_needs_the_minimum_and_one_of_all_does_not():
    given = market([100.0] * 8, min_qty=[10.0])
    env = opened(given, order_share=1.0, **FREE)
    found = outcomes(env, [[0.0012], [0.00099], [-0.00099], [-0.0011], [-0.0002]])
    held = [step["after"]["holdings"].item() for step in found]
    assert held == pytest.approx([12, 12, 12, 1, 0], rel=1e-5)


def test_a_trim_sells_whole_lots_and_takes_the_age_even_if_there_is_none():
    env = opened(market([100.0] * 9, qty_step=[10.0]), hold_limit=3, order_share=1.0, **FREE)
    found = outcomes(env, [[0.05]] + [[0.0]] * 6)
    assert [step["after"]["holdings"].item() for step in found[:4]] == [500, 500, 500, 480]
    assert [step["after"]["age"].item() for step in found] == [0, 1, 2, 0, 1, 2, 0]
    env = opened(market([100.0] * 9, qty_step=[10.0]), hold_limit=3, order_share=1.0, **FREE)
    found = outcomes(env, [[0.0105]] + [[0.0]] * 4)
    assert [step["after"]["holdings"].item() for step in found] == [100] * 5
    assert [step["after"]["age"].item() for step in found] == [0, 1, 2, 0, 1]


def ordered(env, *orders) -> list[tuple[float, int]]:
    """Units of asset 0 and their age after orders in units."""
    found = []
    for x in orders:
        env.rules.trade(env.account, [x], env.rules.next_bar(env.account))
        found.append((env.account.holdings[0], env.account.age[0]))
    return found


def test_a_sale_of_a_part_must_exceed_the_minimum_and_its_lots_reach_it():
    env = opened(market([100.0] * 9, min_qty=[10.0], qty_step=[7.0]))
    assert ordered(env, 70.0, -10.0, -13.9, -14.0) == [(70, 0), (70, 1), (70, 2), (56, 0)]
    env = opened(market([100.0] * 9, min_qty=[10.0]))
    assert ordered(env, 70.0, -10.0, -10.5) == [(70, 0), (70, 1), (59.5, 0)]


def test_less_than_a_lot_is_no_sale():
    env = opened(market([100.0] * 9, qty_step=[7.0]))
    assert ordered(env, 70.0, -6.9, 6.9) == [(70, 0), (70, 1), (70, 2)]


def test_the_reserve_is_left_in_cash_by_buys():
    for order in ("listed", "pro_rata"):
        state = first(market([100.0] * 4), [1.0], reserve=0.25, order_share=2.0, buy_order=order)
        assert state["cash"] == pytest.approx(1e6 - 0.99 * 0.75e6, rel=1e-12)


def test_rounding_of_lots_never_sells_more_than_is_held():
    env = opened(market([100.0] * 6, qty_step=[1.0], min_qty=[0.1]), order_share=1.0, hold_limit=0)
    held = 3 - 2**-40  # a hair less than three lots
    set_state(env, {"holdings": np.array([held]), "average": np.array([100.0])})
    env.rules.trade(env.account, [-np.nextafter(held, 0)], env.rules.next_bar(env.account))
    assert env.account.holdings == [0.0]
    env = opened(market([100.0] * 6, qty_step=[1.0]), hold_limit=1, trim=1.0, order_share=1.0)
    set_state(env, {"holdings": np.array([held]), "average": np.array([100.0]), "age": np.array([5])})
    assert outcomes(env, [[0.0]])[0]["after"]["holdings"].item() == 0.0


def test_without_a_hold_limit_nothing_is_trimmed():
    found = outcomes(opened(market([100.0] * 60), hold_limit=0), [[1.0]] + [[0.0]] * 57)
    assert found[-1]["after"]["holdings"].item() == 1000 and found[-1]["after"]["age"].item() == 57


@pytest.mark.parametrize("absent", ["mask", "price", "volume"])
def test_what_is_not_tradable_is_neither_bought_nor_sold_nor_trimmed(absent):
    T, at = 9, 3
    more, price, options = {}, np.full((T, 1), 100.0), {}
    if absent == "mask":
        more["tradable"] = np.arange(T)[:, None] != at
    elif absent == "price":
        price[at] = 0.0
    else:
        more["volume"], options = np.where(np.arange(T)[:, None] == at, 0.0, 1e9), {"impact": 1e-9}
    for last in (-1.0, 1.0, 0.0):
        env = opened(market(price, **more), hold_limit=2, stop=0.5, **options, **FREE)
        found = outcomes(env, [[1.0], [0.0], [last], [0.0]])
        states = [step["after"] for step in found]
        assert states[2]["holdings"] == states[1]["holdings"] and states[2]["cash"] == states[1]["cash"]
        assert [state["age"].item() for state in states] == [0, 1, 2, 0]  # trimmed at the next bar
        assert states[3]["holdings"].item() == pytest.approx(950.0)


def test_a_stop_waits_for_a_tradable_bar():
    tradable = np.arange(7)[:, None] != 3
    env = opened(market([100, 100, 200, 150, 190, 150, 150], tradable=tradable), stop=0.2)
    found = outcomes(env, [[1.0]] + [[0.0]] * 4)
    assert [step["after"]["holdings"].item() > 0 for step in found] == [True, True, True, True, False]
    assert [step["after"]["peak"].item() for step in found] == [100, 200, 200, 200, 0]


def test_a_stop_is_a_fall_by_more_than_its_share():
    env = opened(market([100, 100, 75, 74.9, 80]), stop=0.25)
    assert ordered(env, 70.0, 0.0, 0.0) == [(70, 0), (70, 1), (0, 0)]


def test_a_stop_goes_by_prices_that_orders_are_filled_at():
    given = market([100, 150, 150, 150, 150], open=[[100], [100], [100], [76], [74]], high=[[200]] * 5, low=[[1]] * 5)
    env = opened(given, stop=0.25, fill="next_open")
    assert ordered(env, 70.0, 0.0, 0.0, 0.0) == [(70, 0), (70, 1), (70, 2), (0, 0)]


def test_a_fair_holder_that_could_buy_nothing_keeps_its_cash():
    env = opened(market([100, 100, 200, 300], tradable=np.array([[1], [0], [1], [1]], bool)))
    assert [step["after"]["benchmark"] for step in outcomes(env, [[0.0]] * 3)] == [1e6] * 3


def test_a_value_at_the_floor_is_not_below_it():
    env = opened(market([1, 1, 0.5, 0.4]), capital=2.0**20, order_share=1.0, spending=1.0, value_floor=0.5, **FREE)
    assert [step["terminated"] for step in outcomes(env, [[1.0], [0.0], [0.0]])] == [False, False, True]


def test_the_fair_holder_pays_fees_and_keeps_what_it_could_not_buy():
    tradable = np.array([[1, 1], [1, 0], [1, 1], [1, 1]], bool)
    env = opened(market([[100, 10], [100, 10], [110, 20], [121, 40]], tradable=tradable, fee_buy=[0.25, 0.5]))
    assert get_state(env)["benchmark"] == 1e6
    found = outcomes(env, [[0, 0]] * 3)
    units = 5e5 / 1.25 / 100
    assert [step["after"]["benchmark"] for step in found] == pytest.approx(
        [5e5 + units * p for p in (100, 110, 121)], rel=1e-14
    )


def test_fees_are_those_of_the_symbol_where_a_market_has_them():
    step = outcomes(opened(market([[100, 100]] * 4, fee_buy=[np.nan, 0.01])), [[1.0, 1.0]])[0]
    assert step["info"]["fees"] == pytest.approx(1e5 * 0.003 + 1e5 * 0.01, rel=1e-12)


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ("log", math.log((1e6 + 1e4 - 300) / (1e6 - 300))),
        ("excess_log", math.log((1e6 + 1e4 - 300) / (1e6 - 300)) - math.log(1.1)),
        ("excess_dollar", (1e4 - 1e5 / 1.003) / 1024),
    ],
)
def test_rewards_by_hand(reward, expected):
    found = outcomes(opened(market([100, 100, 110, 110]), reward=reward), [[1.0], [0.0]])
    assert found[1]["reward"] == pytest.approx(expected, rel=1e-9)


def test_an_account_below_the_floor_is_terminated_and_the_end_of_a_window_is_truncated():
    env = opened(market([100, 100, 19, 10, 10]), order_share=1.0, spending=1.0, value_floor=0.2, **FREE)
    found = outcomes(env, [[1.0], [0.0], [0.0]])
    assert [(step["terminated"], step["truncated"]) for step in found] == [(False, False), (True, False)]
    env = opened(market([100, 100, 21, 21]), order_share=1.0, spending=1.0, value_floor=0.2, **FREE)
    found = outcomes(env, [[1.0], [0.0], [0.0]])
    assert [(step["terminated"], step["truncated"]) for step in found] == [(False, False)] * 2 + [(False, True)]
    env = opened(market([100, 100, 19]), order_share=1.0, spending=1.0, value_floor=0.2, **FREE)
    assert [(step["terminated"], step["truncated"]) for step in outcomes(env, [[1.0], [0.0]])][-1] == (True, False)


def test_a_total_loss_has_a_finite_reward():
    env = opened(market([100, 100, 0]), order_share=1.0, spending=1.0, reward="log", **FREE)
    assert outcomes(env, [[1.0], [0.0]])[1]["reward"] == pytest.approx(math.log(1e-12), rel=1e-9)
    assert env.observe()[:2].tolist() == [0.0, 0.0]


def test_observation_by_hand():
    given = market([[100, 10], [100, 10], [120, 10], [150, 10]], feature=[0, 4, 6, 1000], mean=[2.0], std=[4.0])
    env = opened(given, lookback=2, order_share=0.5, hold_limit=4, **FREE)
    assert env.observe().tolist() == [1, 0, 0, 0, 0, 0, 0, 0.5, -0.5]
    found = outcomes(env, [[1.0, 0.0], [0.2, 0.0]])
    assert found[0]["observation"].tolist() == pytest.approx([0.5, 0.5, 0, 0, 0, 0, 0, 1.0, 0.5])
    held = 5e5 / 120
    more = 0.2 * 0.5 * (5e5 + held * 150) / 150
    average = (held * 120 + more * 150) / (held + more)
    value = 5e5 + held * 150
    share = (held + more) * 150 / value
    expected = [1 - share, share, 0, 0.25, 0, 150 / average - 1, 0, 10.0, 1.0]  # clipped at 10
    assert found[1]["observation"].tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("hold_limit", "age"), [(0, 60 / 48), (80, 60 / 80), (40, 20 / 40)])
def test_ages_are_shares_of_the_hold_limit_and_without_one_of_48_bars(hold_limit, age):
    """Sixty bars after a purchase; a limit of 40 has brought one trim, after 40."""
    env = opened(market(np.full(70, 100.0)), hold_limit=hold_limit)
    found = outcomes(env, [[0.5], *[[0.0]] * 60])
    assert found[-1]["observation"][2] == pytest.approx(age, rel=1e-7)
