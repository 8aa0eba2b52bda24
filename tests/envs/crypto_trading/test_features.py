"""Indicators: by hand, beside a plain restatement, and beside TA-Lib where that is installed."""

import dataclasses
import importlib.util
import math
import sys
import warnings

import numpy as np
import pytest

from lockstep.envs.crypto_trading import features
from lockstep.envs.crypto_trading.features import SETS, compute, indicators, prepared
from lockstep.envs.crypto_trading.original import make
from lockstep.envs.crypto_trading.params import make_params
from lockstep.envs.crypto_trading.scenario import generate
from tests.envs.crypto_trading.worlds import market

GENERATED = generate(seed=1, bars=700, assets=3)


def column(values) -> np.ndarray:
    return np.array(values, float)[:, None]


def plain(values):
    return [None if math.isnan(value) else value for value in values.ravel().tolist()]


def test_a_recursive_mean_begins_with_the_mean_of_the_first():
    x = column([math.nan, 1, 3, 5, 9, 1])
    assert plain(indicators.wilder(x, 2)) == [None, None, 2, 3.5, 6.25, 3.625]
    assert plain(indicators.ema(x, 3)) == [None, None, None, 3, 6, 3.5]


def test_returns_and_volatility_by_hand():
    x = column([1, math.e, math.e, 0, math.e**2])
    assert plain(indicators.log_return(x, 1)) == pytest.approx([None, 1, 0, 0, 0])  # no return to and from 0
    assert plain(indicators.volatility(column([1, math.e, 1, 1]), 2)) == pytest.approx([None, None, 1, math.sqrt(0.5)])


def test_rsi_by_hand():
    assert plain(indicators.rsi(column([10, 11, 13, 12, 12]), 2)) == pytest.approx([None, None, 100, 60, 60])
    assert plain(indicators.rsi(column([10, 10, 10]), 2)) == [None, None, 50]


def test_volumes_by_hand():
    volume, close = column([1, 3, 7, 0]), column([2, 3, 1, 1])
    assert plain(indicators.volume_share(volume, 2)) == pytest.approx(
        [None, math.log(4 / 3), math.log(8 / 6), math.log(1 / 4.5)]
    )
    assert plain(indicators.balance_share(close, volume, 2)) == pytest.approx([None, None, -0.4, -1])
    assert plain(indicators.balance(close, volume)) == [0, 3, -4, -4]
    assert plain(indicators.balance_share(close, column([0, 0, 0, 0]), 2)) == [None, None, 0, 0]


def bars(high, low, close, volume=None):
    return market(column(close), high=column(high), low=column(low), volume=column(volume or [1.0] * len(close)))


def test_true_range_and_directions_by_hand():
    given = bars([10, 12, 11, 15], [8, 9, 7, 12], [9, 11, 8, 14])
    assert plain(indicators.true_range(given)) == [None, 3, 4, 7]
    assert plain(indicators.atr(given, 2)) == [None, None, 3.5, 5.25]
    # up 2, -1, 4; down -1, 2, -5: DM+ 2, 0, 4; DM- 0, 2, 0; smoothed 1, 2.5 and 1, 0.5
    assert plain(indicators.dx(given, 2)) == pytest.approx([None, None, 0, 100 * 2 / 3])
    assert plain(indicators.adx(given, 2)) == pytest.approx([None, None, None, 100 / 3])


def test_cci_by_hand():
    given = bars([2, 5, 8], [0, 3, 6], [1, 4, 7])  # tp 1, 4, 7: mean 4, mean deviation 2
    assert plain(indicators.cci(given, 3)) == pytest.approx([None, None, 3 / (0.015 * 2)])
    assert plain(indicators.cci(bars([0.1] * 4, [0.1] * 4, [0.1] * 4), 3)) == [None, None, 0, 0]


def test_the_ultimate_oscillator_of_a_steady_rise():
    close = np.arange(1.0, 40.0)
    given = bars(close + 1, close - 1, close)  # pressure 1 of a true range of 2, and the close before is the low
    found = indicators.ultosc(given).ravel()
    assert np.isnan(found[:28]).all() and found[28:] == pytest.approx(50)


def test_macd_is_the_lag_of_two_means():
    """Of a line of slope 1 an ema of n lags (n - 1) / 2."""
    line, signal, difference = indicators.macd(column(np.arange(400.0)))
    assert line[-1] == pytest.approx(7) and signal[-1] == pytest.approx(7) and difference[-1] == pytest.approx(0)
    assert [int(np.isnan(x).sum()) for x in (line, signal)] == [25, 33]


def test_what_the_published_breakout_is():
    found = indicators.breakout(GENERATED)
    assert not found.any() and not np.isnan(found).any()


def test_excess_of_the_true_range_by_hand():
    range_ = indicators.atr(GENERATED, 14)
    for t in (14, 40, 200):
        usual = range_[max(14, t - 49) : t + 1].mean(axis=0)
        expected = (range_[t] - usual) / (usual + 1e-8)
        assert indicators.atr_excess(GENERATED)[t] == pytest.approx(expected, rel=1e-12)


FIRST = {  # defined bar
    "ret_1": 1, "ret_12": 12, "ret_48": 48, "vol_48": 48, "rsi_14": 14, "volume_48": 47, "obv_48": 48, "macd": 25,
    "macd_signal": 33, "macd_difference": 33, "atr": 14, "dx": 14, "adx": 27, "cci": 13, "ultosc": 28, "obv": 0,
    "adx_bend": 29,
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST)
def test_first_defined_bars(name):
    there = ~np.isnan(compute(GENERATED, (name,)))
    assert there.argmax(axis=0).tolist() == [FIRST[name]] * 3 and there[FIRST[name] :].all()


# README.md, 4.3: bars that a value depends on, and until a recursive weight is below 1e-3.
WINDOWED = {"ret_1": 1, "ret_12": 12, "ret_48": 48, "vol_48": 48, "volume_48": 48, "obv_48": 48, "cci": 14,
            "ultosc": 28, "breakout": 20, "close": 0}  # fmt: skip
RECURSIVE = {
    "atr": (96, lambda x: indicators.wilder(x, 14)),
    "macd": (96, lambda x: indicators.ema(x, 26)),
    "adx": (192, lambda x: indicators.wilder(indicators.wilder(x, 14), 14)),
}


@pytest.mark.parametrize("name", WINDOWED)
def test_what_lies_before_the_memory_of_a_window_does_not_count(name):
    back, at, arrays = WINDOWED[name], 600, {}
    for kind in ("open", "high", "low", "close", "volume"):
        arrays[kind] = getattr(GENERATED, kind).copy()
        arrays[kind][: at - back] *= 3
    one, other = (compute(m, (name,))[at] for m in (GENERATED, dataclasses.replace(GENERATED, **arrays)))
    assert one.tolist() == other.tolist()


@pytest.mark.parametrize("name", RECURSIVE)
def test_what_lies_before_the_memory_of_a_recursion_weighs_less_than_a_thousandth(name):
    back, smoothed = RECURSIVE[name]
    found = smoothed(column([1.0] * 200 + [0.0] * 200))[200 + back - 1].item()
    assert 0 < found < 1e-3


def test_columns_go_by_asset_and_have_names():
    found = prepared(GENERATED, make_params())
    assert found.feature_names[:8] == (*(f"SYN00:{name}" for name in SETS["clean"]), "SYN01:ret_1")
    assert found.features.shape == (700, 21) and found.features.dtype == np.float32
    expected = np.log(GENERATED.close[5, 1] / GENERATED.close[4, 1])
    assert found.features[5, 7] == pytest.approx(expected, rel=1e-5)
    assert prepared(found, make_params()) is found
    assert [len(SETS[name]) for name in ("clean", "finrl-crypto", "cappuccino")] == [7, 7, 14]


def test_features_of_ones_own_are_standardised_by_the_train_bars():
    given = dataclasses.replace(market([100.0] * 9, feature=np.arange(9.0), train=[[0, 5]]), mean=None, std=None)
    env = make(scenario=given)
    assert (env.market.mean.tolist(), env.market.std.tolist()) == ([2.0], [math.sqrt(2)])
    assert env.observed.ravel().tolist() == pytest.approx(((np.arange(9) - 2) / math.sqrt(2)).tolist())


def test_an_unknown_feature_is_named_with_the_nearest():
    with pytest.raises(ValueError, match=r"no feature is called 'rsi_15'; did you mean 'rsi_14'\?"):
        compute(GENERATED, ("close", "rsi_15"))
    for names in ((), "close", None):
        with pytest.raises(ValueError, match="names=.* must be a tuple of one feature or more"):
            compute(GENERATED, names)
    for use in (lambda: compute(None, ("close",)), lambda: prepared(None, make_params())):
        with pytest.raises(ValueError, match="market=None must be a Market"):
            use()
    with pytest.raises(ValueError, match="params=None must be a Params"):
        prepared(GENERATED, None)


def test_a_visible_signal_is_the_last_column():
    given = generate("tiny", signal="momentum", visible=True)
    found = prepared(given, make_params())
    assert found.feature_names[-1] == "signal" and found.features[:, -1].tolist() == given.signal.tolist()
    assert generate("tiny", signal="momentum").signal is not None


def test_a_constant_feature_is_not_blown_up():
    found = features.statistics(np.full((1000, 1), 0.1, np.float32), np.array([[0, 1000]]))
    assert found[0].item() == pytest.approx(0.1) and found[1].item() == 1.0
    nothing = features.statistics(np.full((10, 1), np.nan, np.float32), np.array([[0, 10]]))
    assert (nothing[0].item(), nothing[1].item()) == (0.0, 1.0)


def test_without_talib_the_phase_is_0_with_a_warning(monkeypatch):
    monkeypatch.setitem(sys.modules, "talib", None)
    with pytest.warns(UserWarning, match="ht_dcphase is 0: TA-Lib is not installed"):
        assert not indicators.ht_dcphase(GENERATED.close).any()


if importlib.util.find_spec("talib"):

    def beside(function, names, *numbers):
        """TA-Lib's function of columns of asset 2."""
        library = importlib.import_module("talib")
        return getattr(library, function)(
            *(np.ascontiguousarray(getattr(GENERATED, name)[:, 2]) for name in names), *numbers
        )

    AGREE = [
        ("RSI", ["close"], lambda m: indicators.rsi(m.close, 14), [14], 1e-10, 0),
        ("ATR", ["high", "low", "close"], lambda m: indicators.atr(m, 14), [14], 1e-10, 0),
        ("CCI", ["high", "low", "close"], lambda m: indicators.cci(m, 14), [14], 1e-10, 0),
        ("ULTOSC", ["high", "low", "close"], indicators.ultosc, [], 1e-10, 0),
        ("DX", ["high", "low", "close"], lambda m: indicators.dx(m, 14), [14], 1e-4, 192),
        ("ADX", ["high", "low", "close"], lambda m: indicators.adx(m, 14), [14], 1e-4, 192),
        ("MACD", ["close"], lambda m: indicators.macd(m.close), [], 1e-4, 192),
    ]

    @pytest.mark.parametrize(("function", "names", "ours", "numbers", "tolerance", "after"), AGREE)
    def test_talib_agrees(function, names, ours, numbers, tolerance, after):
        expected, found = beside(function, names, *numbers), ours(GENERATED)
        if not isinstance(expected, tuple):
            expected, found = (expected,), (found,)
        for theirs, column in zip(expected, found, strict=True):
            there = ~np.isnan(theirs[after:])
            assert there.sum() > 400
            apart = np.abs(column[after:, 2] - theirs[after:])[there].max()
            assert apart <= tolerance * np.abs(theirs[after:][there]).max()

    def test_talibs_balance_begins_with_the_first_volume():
        expected = beside("OBV", ["close", "volume"])
        found = indicators.balance(GENERATED.close, GENERATED.volume)[:, 2]
        assert found == pytest.approx(expected - GENERATED.volume[0, 2], rel=1e-12, abs=1e-6)

    def test_the_phase_is_talibs():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = indicators.ht_dcphase(GENERATED.close)
        assert np.isnan(found[:63]).all() and found[63:, 2].tolist() == beside("HT_DCPHASE", ["close"])[63:].tolist()
