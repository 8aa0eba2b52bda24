"""Rules without learning."""

import dataclasses

import numpy as np
import pytest

from lockstep.envs.crypto_trading import streams
from lockstep.envs.crypto_trading.original import make
from lockstep.envs.crypto_trading.params import make_params
from lockstep.envs.crypto_trading.policies import play
from lockstep.envs.crypto_trading.scenario import generate
from tests.envs.crypto_trading.worlds import market, outcomes, random_market

PLAIN = make_params(hold_limit=0)


def test_cash_stays_cash():
    for preset in ("clean", "finrl-crypto", "cappuccino"):
        params = make_params(preset, lookback=2)
        values = play("cash", params, market([100.0 + k for k in range(20)]))
        assert values.tolist() == [params.capital] * (1 + params.steps(20))


def test_holding_by_hand():
    given = market([[50, 20], [100, 10], [110, 20], [121, 30]])
    share = 0.99e6 / 2
    cash = 1e6 - 2 * share * 1.003
    units = share / 100, share / 10
    expected = [1e6, *(cash + units[0] * a + units[1] * b for a, b in ((100, 10), (110, 20), (121, 30)))]
    assert play("hold", PLAIN, given).tolist() == pytest.approx(expected, rel=1e-13)


def test_a_holder_of_one_asset_is_bound_by_its_cash():
    units = 0.99e6 / 1.003 / 100  # κ C of the whole cash, the fee included
    assert play("hold", PLAIN, market([100.0, 100.0, 200.0]))[-1] == pytest.approx(1e4 + units * 200, rel=1e-12)


def test_equal_weights_come_back_every_288_bars():
    close = np.full((600, 2), 100.0)
    close[100:, 0] = 200.0
    env = make(scenario=market(close), hold_limit=0, rule="equal_weight")
    env.reset()
    steps = outcomes(env, np.zeros((599, 2)))
    held = [(step["after"]["holdings"] * price).tolist() for step, price in zip(steps, close[1:], strict=True)]
    assert held[287] == pytest.approx([2 * 495_000, 495_000]) and held[0] == pytest.approx([495_000] * 2)
    value = 1e6 - 2 * 495_000 * 0.003 + 495_000
    assert held[288] == pytest.approx([0.495 * value] * 2, rel=1e-12)
    assert held[288] == held[575] and held[576] == pytest.approx(held[575], rel=0.01) and held[576] != held[575]
    assert play("equal_weight", PLAIN, market(close)).tolist() == [1e6, *(step["info"]["value"] for step in steps)]


def test_the_reference_is_in_the_market_while_the_sign_is_1():
    signal = np.array([1, 1, -1, -1, 1, 1, 1, -1])
    given = dataclasses.replace(market([100.0, 100, 110, 121, 100, 200, 100, 100]), signal=signal)
    values = play("reference", make_params(fee_buy=0.0, fee_sell=0.0), given)
    # bought at bar 1 (seen at 0), sold at 3 (seen at 2), bought at 5 (seen at 4), held to the end
    first = 1e4 + 0.99e6 * 1.21
    assert values.tolist() == pytest.approx(
        [
            1e6,
            1e6,
            1e4 + 0.99e6 * 1.1,
            first,
            first,
            first,
            0.01 * first + 0.99 * first / 2,
            0.01 * first + 0.99 * first / 2,
        ]
    )


def test_a_market_without_a_sign_has_no_reference():
    with pytest.raises(ValueError, match="rule=.reference. needs a market with a planted sign, as generate"):
        play("reference", PLAIN, random_market(4))


def test_the_reference_earns_what_was_planted():
    """It beats the holder in each of three markets."""
    for seed in range(3):
        given = generate(seed=seed, bars=5000, assets=3, signal="momentum")
        found = {name: np.log(play(name, PLAIN, given)[-1] / 1e6) for name in ("reference", "hold")}
        assert found["reference"] > found["hold"]


@pytest.mark.parametrize("preset", ["clean", "finrl-crypto"])
def test_the_random_rule_takes_the_actions_of_its_stream(preset):
    given = random_market(6)
    params = make_params(preset, reachable="warn")
    values = play("random", params, given, seed=5, lane=2)
    env = make(preset, given, reachable="warn")
    env.reset()
    first = params.lookback - 1
    steps = outcomes(env, [streams.random_rule(5, 2, first + k, 3) for k in range(60)])
    assert values[1:].tolist() == [float(step["after"]["value"]) for step in steps]
    assert values.tolist() != play("random", params, given, seed=5, lane=3).tolist()


def test_a_window_is_played_alone():
    given = random_market(7)
    params = dataclasses.replace(PLAIN, reachable="warn")
    assert np.array_equal(play("hold", params, given, window=(10, 40)), play("hold", params, given.rows(10, 40)))
    drawn = dataclasses.replace(params, starts="random", episode_bars=9)
    assert np.array_equal(play("hold", drawn, given), play("hold", params, given))


def test_an_unknown_rule_is_refused():
    with pytest.raises(
        ValueError, match="rule='buy' must be one of 'hold', 'equal_weight', 'cash', 'reference', 'random'"
    ):
        play("buy", PLAIN, random_market(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed=-1 must be an integer from 0"),
        ({"seed": 1.5}, "seed=1.5 must be an integer from 0"),
        ({"lane": 2**40}, "lane=1099511627776 must be an integer from 0"),
        ({"window": ()}, r"window=\(\) must be two bars"),
        ({"window": 0}, "window=0 must be two bars"),
        ({"params": None}, "params=None must be a Params"),
        ({"market": "tiny"}, "market='tiny' must be a Market"),
    ],
)
def test_arguments_of_no_episode_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        play("random", **{"params": PLAIN, "market": random_market(1)} | options)
