"""Each switch does what README.md, 3, says, and the faults that are not built are absent."""

import dataclasses

import numpy as np
import pytest

from lockstep.envs.crypto_trading.params import make_params
from tests.envs.crypto_trading.worlds import actions, market, opened, outcomes, random_market

RISING = market([100, 100, 110, 121, 133.1])


def two_episodes(**options):
    env = opened(RISING, "finrl-crypto", **options)
    first = outcomes(env, np.zeros((9, 1)))
    env.reset()
    return first, outcomes(env, np.zeros((9, 1)))


def test_carry_over_keeps_the_holder_and_the_sum():
    first, second = two_episodes(terminal_sum=False)
    # E ends at 1.21e6; the next first reward holds the jump back to 1e6
    assert [step["reward"] for step in first] == pytest.approx([0, -1e5 / 1024, -1.1e5 / 1024], abs=1e-9)
    assert second[0]["reward"] == pytest.approx(2.1e5 / 1024, rel=1e-12)
    assert second[0]["before"]["running"] == first[-1]["after"]["running"] != 0
    first, second = two_episodes(terminal_sum=False, carry_over=False)
    assert [step["reward"] for step in first] == [step["reward"] for step in second]
    assert second[0]["before"]["running"] == 0 and second[0]["before"]["benchmark"] == 1e6


def test_terminal_sum_is_the_last_reward():
    (on, _), (off, _) = two_episodes(), two_episodes(terminal_sum=False)
    rewards = [step["reward"] for step in off]
    assert [step["reward"] for step in on[:-1]] == rewards[:-1]
    assert on[-1]["reward"] == pytest.approx(0.99**2 * rewards[0] + 0.99 * rewards[1] + rewards[2], rel=1e-12)


def test_without_the_dropped_tail_the_last_bars_are_priced():
    (on, _), (off, _) = two_episodes(), two_episodes(drop_tail=False)
    assert [len(on), len(off)] == [3, 4]
    assert off[-1]["after"]["bar"] == 4 and off[-1]["terminated"]


def test_a_guarded_trim_waits_for_a_price():
    prices = [100.0] * 49 + [0.0] + [100.0] * 4
    found = outcomes(opened(market(prices), "finrl-crypto", unguarded_trim=False), [[1.0]] + [[0.0]] * 49)
    held = [step["after"]["holdings"].item() for step in found]
    assert held[48] == held[0] and held[49] == pytest.approx(0.95 * held[0], rel=1e-6)
    assert [step["after"]["age"].item() for step in found[47:]] == [47, 48, 0]


def test_holdings_are_rounded_to_float32_or_not():
    given = market([3.0] * 6)
    for on in (True, False):
        after = outcomes(opened(given, "finrl-crypto", float32_holdings=on, capital=100.0), [[1.0]])[0]["after"]
        exact = 100 * 0.9 / 1.003 / 3
        assert after["holdings"].item() == (float(np.float32(exact)) if on else exact)
        assert after["cash"] == pytest.approx(10.0, rel=1e-12)


def test_the_published_holder_counts_first_row_prices_and_the_fair_one_its_first_fill():
    given = market([100, 200, 400, 400, 400])
    for preset, fee in (("finrl-crypto", 1.0), ("cappuccino", 1.0025)):
        env = opened(given, preset, lookback=1)
        C = env.params.capital
        assert outcomes(env, [[0.0]])[0]["after"]["benchmark"] == pytest.approx(2 * C / fee, rel=1e-12)
        env = opened(given, preset, lookback=1, published_benchmark=False)
        fees = 1 + env.params.fee_buy
        found = outcomes(env, [[0.0]] * 2)
        values = [found[0]["before"]["benchmark"], *(step["after"]["benchmark"] for step in found)]
        assert values == pytest.approx([C, C / fees, 2 * C / fees], rel=1e-12)


def test_a_fair_holder_that_is_carried_over_buys_once():
    first, second = two_episodes(published_benchmark=False)
    assert second[0]["after"]["benchmark_units"].tolist() == first[0]["after"]["benchmark_units"].tolist()


def test_write_back_overwrites_the_action_with_its_order():
    env = opened(RISING, "finrl-crypto", write_back=True)
    action = np.array([0.5], np.float32)
    env.step(action)
    assert action.tolist() == [50.0]
    with pytest.raises(ValueError, match="action is list, must be a float32 array where write_back=True"):
        env.step([0.5])
    action = np.array([0.5], np.float32)
    opened(RISING, "finrl-crypto").step(action)
    assert action.tolist() == [0.5]


@pytest.mark.parametrize(
    ("preset", "switch"),
    [
        *(("finrl-crypto", name) for name in ("carry_over", "log_quotient", "unguarded_trim", "write_back")),
        *(("cappuccino", name) for name in ("carry_over", "unguarded_trim")),
    ],
)
def test_a_switch_changes_nothing_where_its_case_does_not_arise(preset, switch):
    given = random_market(8, 70)  # no price is 0 or a power of ten
    params = make_params(preset, reachable="warn")
    twin = dataclasses.replace(params, **{switch: not getattr(params, switch)})
    options = [{name.name: getattr(p, name.name) for name in dataclasses.fields(p)} for p in (params, twin)]
    found = [outcomes(opened(given, preset, **chosen), actions(8, 70, 3)) for chosen in options]
    for one, other in zip(*found, strict=True):
        assert one["reward"] == other["reward"] and np.array_equal(one["observation"], other["observation"])
        assert all(np.array_equal(one["after"][name], other["after"][name]) for name in one["after"])


def test_clean_has_no_fault_of_the_published_models():
    env = opened(RISING)
    first = outcomes(env, np.zeros((9, 1)))
    env.reset()
    second = outcomes(env, np.zeros((9, 1)))
    assert [step["reward"] for step in first] == [step["reward"] for step in second]
    assert len(first) == 4 and not first[-1]["terminated"]  # to the last bar
    assert first[1]["reward"] == pytest.approx(-np.log(1.1), rel=1e-12)  # the holder's gain, with the right sign
