"""Host tables: minimums, fees, order scale, features as observed, windows."""

import dataclasses
import warnings

import numpy as np
import pytest

from lockstep.envs.crypto_trading import streams, tables
from lockstep.envs.crypto_trading.original import make
from lockstep.envs.crypto_trading.params import make_params
from lockstep.envs.noise import philox
from tests.envs.crypto_trading.worlds import market

PLAIN = market([100.0] * 50)


@pytest.mark.parametrize(
    ("symbol", "base"),
    [
        ("BTC/USD", "BTC"),
        ("BTCUSDT", "BTC"),
        ("eth-usd", "ETH"),
        ("ETHBTC", "ETH"),
        ("BTC", "BTC"),
        ("SYN00", "SYN00"),
        ("BTCFDUSD", "BTC"),
        ("BTCBUSD", "BTC"),
        ("WBTC/USD", "WBTC"),
        ("WBTC-USD", "WBTC"),
    ],
)
def test_base_assets(symbol, base):
    assert tables.base_asset(symbol) == base


def test_minimums_are_those_of_the_rule_set_or_of_the_market():
    given = market([[1.0, 1.0]] * 9, symbols=["BTC/USD", "SYN01"], min_qty=[5.0, 0.5])
    expected = {"finrl-crypto": [0.00011, 0.55], "cappuccino": [0.000011, 0.55], "clean": [5.0, 0.5]}
    for preset, q in expected.items():
        assert tables.minimums(make_params(preset), given).tolist() == pytest.approx(q, rel=1e-12)


def test_fees_of_a_market_are_those_of_clean_only():
    given = market([[1.0, 1.0]] * 9, fee_buy=[0.01, np.nan], fee_sell=[np.nan, 0.02])
    assert [fee.tolist() for fee in tables.fees(make_params(), given)] == [[0.01, 0.003], [0.003, 0.02]]
    assert [fee.tolist() for fee in tables.fees(make_params("cappuccino"), given)] == [[0.0025] * 2] * 2


@pytest.mark.parametrize(
    ("price", "quotient", "decade"),
    [(0.005, 1e7, 1e7), (1.0, 1e4, 1e4), (9.99, 1e4, 1e4), (10.0, 1e3, 1e3), (1000.0, 100.0, 10.0), (1e6, 1e-1, 1e-2)],
)
def test_order_scale_of_rule_one(price, quotient, decade):
    """ln 1000 / ln 10 and ln 10^6 / ln 10 fall short of 3 and 6 in floating point."""
    one = make_params("finrl-crypto")
    assert tables.order_scale(one, np.array([price])).item() == pytest.approx(quotient, rel=1e-12)
    exact = dataclasses.replace(one, log_quotient=False)
    assert tables.order_scale(exact, np.array([price])).item() == pytest.approx(decade, rel=1e-12)
    below = np.nextafter(1000.0, 0)
    assert tables.order_scale(exact, np.array([below])).item() == pytest.approx(100.0)


def test_order_scale_of_rule_two_and_where_there_is_no_price():
    scale = tables.order_scale(make_params("cappuccino"), np.array([[50.0, 0.0]]))
    assert scale.dtype == np.float32 and scale[0, 0] == np.float32(0.1) and np.isnan(scale[0, 1])
    assert np.isnan(tables.order_scale(make_params("finrl-crypto"), np.array([0.0]))).all()


def test_features_as_observed():
    given = market([1.0] * 4, feature=[np.nan, 3.0, 100.0, -100.0], mean=[1.0], std=[4.0])
    assert tables.observed(make_params(), given).ravel().tolist() == [0.0, 0.5, 10.0, -10.0]
    found = tables.observed(make_params("finrl-crypto"), given).ravel().tolist()
    assert found == [0.0, 3 / 32768, 100 / 32768, -100 / 32768]


# ---- windows


def test_full_windows_go_round_the_segments():
    given = dataclasses.replace(PLAIN, segments=[[0, 10], [12, 30], [30, 50]])
    found = [
        tables.window(make_params(), given, 7, lane, episode) for lane, episode in ((0, 0), (0, 1), (1, 1), (2, 1))
    ]
    assert found == [(0, 10), (12, 30), (30, 50), (0, 10)]


def test_random_windows_are_drawn_among_all_places():
    given = dataclasses.replace(PLAIN, segments=[[0, 10], [12, 17], [20, 50]])
    params = make_params(starts="random", episode_bars=8, lookback=2)
    assert tables.admissible(params, given).tolist() == [1, 0, 21]
    firsts = [0, *range(20, 41)]
    seen = set()
    for episode in range(300):
        word = int(philox((3, episode, 0, 1), 9)[0])
        window = tables.window(params, given, 9, 3, episode)
        first = firsts[word * 22 // 2**32]
        assert window == (first, first + 10)
        seen.add(first)
    assert seen == set(firsts)


def test_the_random_rule_draws_by_lane_bar_and_asset():
    found = streams.random_rule(5, 2, 40, 6)
    words = [*philox((2, 0, 40, 23), 5), *philox((2, 1, 40, 23), 5)[:2]]
    assert found.tolist() == [np.float32((int(word) >> 8) * 2.0**-23 - 1) for word in words]


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({}, {"segments": [[0, 1]]}, r"window \[0, 1\) has 1 bars, must have at least 2"),
        ({"preset": "cappuccino"}, {"segments": [[0, 10]]}, r"window \[0, 10\) has 10 bars, must have at least 11"),
        ({"window": 5}, {}, "window=5 must be two bars, the first and the one after the last"),
        ({"window": (5, 51)}, {}, "window: end=51 must be an integer from 6 to 50"),
        ({"window": (-1, 5)}, {}, "window: first bar=-1 must be an integer from 0 to 49"),
        ({"window": (5, 30), "starts": "random"}, {}, "window must be None where starts='random', which draws them"),
        ({"preset": "finrl-crypto"}, {"segments": [[0, 20], [20, 50]]}, "has 2 segments, must have 1 where carry_over"),
        ({"starts": "random"}, {}, "episode_bars=2016 needs a segment of 2017 bars, the longest of market has 50"),
        ({}, {"min_qty": [1000.0]}, "an action of 1 orders 1000 of A0, must be more than its minimum 1000"),
        ({"orders": "target_weight"}, {"min_qty": [1e4]}, "orders 10000 of A0, must be more than its minimum 10000"),
        ({"preset": "finrl-crypto"}, {"min_qty": [100.0]}, "orders 100 of A0, must be more than its minimum 110"),
    ],
)  # fmt: skip
def test_what_cannot_be_played_is_named(options, change, message):
    with pytest.raises(ValueError, match=message):
        make(scenario=dataclasses.replace(PLAIN, **change), **options)


def test_a_first_price_of_zero_is_refused():
    price = np.full((50, 1), 100.0)
    price[7] = 0.0
    with pytest.raises(ValueError, match=r"the first price of A0 is 0.0, must be positive"):
        make(scenario=market(price), window=(7, 30))
    with pytest.raises(
        ValueError, match=r"close\[7, 0\] \(A0\) is 0.0, must be positive in the first row of segment 1"
    ):
        make(scenario=market(price, segments=[[0, 7], [7, 50]]))
    options = {"starts": "random", "episode_bars": 5}
    make(scenario=market(price), **options)
    with pytest.raises(ValueError, match=r"close\[7, 0\] is 0, must be positive where random starts"):
        make(scenario=market(price), orders="units", **options)


def test_an_asset_that_cannot_be_ordered_is_a_warning_in_the_published_preset():
    """500 $ / 1,000 are half a dollar, 1.1 times the minimum of 0.005 at 160 $ is 0.88 $."""
    given = market([160.0] * 20, symbols=["AAVE/USD"])
    with pytest.warns(UserWarning, match="orders 0.003125 of AAVE/USD, must be more than its minimum 0.0055"):
        make("cappuccino", given, norm_action=1000.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make("cappuccino", given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"volume": np.full((50, 1), np.nan)}, r"volume\[0, 0\] is nan, must be finite"),
        ({"open": np.full((50, 1), -1.0)}, r"open\[0, 0\] is -1.0, must be finite and not negative"),
        ({"fee_buy": [2.0]}, r"fee_buy\[0\] is 2.0, must be from 0 to 1"),
        ({"high": np.ones((49, 1))}, r"high has shape \(49, 1\), must have \(50, 1\)"),
        ({"features": np.full((50, 1), np.inf)}, r"features\[0, 0\] is inf, must be finite, or NaN"),
        ({"features": np.zeros((49, 1))}, r"features has shape \(49, 1\), must have \(50, 1\)"),
        ({"close": np.full((50, 1), 1e-33), "low": np.full((50, 1), 1e-33)}, "low.* must be 0, or 1e-24 at least"),
        ({"std": [0.0]}, r"std\[0\] is 0.0, must be positive"),
        ({"timestamp": np.zeros(50, int)}, r"timestamp\[1\] is 0, must increase"),
        ({"segments": [[0, 30], [20, 50]]}, r"segments\[1\] is \[20, 50\), must lie in \[30, 50\)"),
        ({"segments": np.zeros((0, 2))}, "has no segment"),
        ({"symbols": ("A", "B")}, r"open has shape \(50, 1\), must have \(50, 2\)"),
        ({"symbols": ("A", "A")}, r"symbols=\('A', 'A'\) must differ"),
        ({"close": np.zeros((0, 1))}, "has 0 bars of 1 assets, must have at least one of each"),
        ({"train": [[0, 60]]}, r"train\[0\] is \[0, 60\), must lie in \[0, 50\)"),
        ({"feature_names": ("x0", "x1")}, r"feature_names=\('x0', 'x1'\) must name 1"),
        ({"symbols": "BTC"}, "symbols=.BTC. must be a tuple of names"),
        ({"symbols": None}, "symbols=None must be a tuple of names"),
        ({"mean": None}, "mean and std must both be given, or neither"),
        ({"signal": np.arange(50)}, r"signal\[0\] is 0, must be 1 or -1"),
        ({"train": np.zeros((0, 2))}, "has no train bars, must have at least one"),
        ({"bar_seconds": 0}, "bar_seconds=0 must be a number from"),
        ({"bars_per_year": -1.0}, "bars_per_year=-1.0 must be a number from"),
        ({"volume": [["many"]] * 50}, "volume holds <U4, must hold numbers"),
        ({"close": [[1.0], [1.0, 2.0]]}, "close must be an array of numbers: .*inhomogeneous"),
    ],
)
def test_a_market_that_does_not_fit_together_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(PLAIN, **change).check()


def test_a_market_is_known_by_its_digest():
    other = dataclasses.replace(PLAIN, source="elsewhere")
    assert PLAIN.digest == other.digest
    assert PLAIN.digest != dataclasses.replace(PLAIN, close=PLAIN.close + 1).digest
    assert PLAIN.digest != dataclasses.replace(PLAIN, bar_seconds=60.0).digest
