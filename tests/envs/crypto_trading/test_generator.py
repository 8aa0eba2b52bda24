"""The generator: golden values, streams by hand, ranges of its statistics (README.md, 4.1)."""

import math

import numpy as np
import pytest

from lockstep.envs.crypto_trading.scenario import SETS, generate
from lockstep.envs.crypto_trading.scenario.generator import CRASH, DRIFT, NORMAL, PRICES, drawn_path
from lockstep.envs.noise import philox

ARRAYS = ("open", "high", "low", "close", "volume", "tradable")


def test_golden_values():
    market = generate(bars=5001, assets=3)
    assert market.close[[1, 100, 5000], 0].tolist() == [169.694, 165.894, 141.105]
    assert market.close[[1, 100, 5000], 2].tolist() == [41977.7, 40888.3, 30690.9]
    assert market.volume[[1, 100, 5000], 0].tolist() == [3229.714, 9303.984, 2053.773]
    regime = drawn_path(0, 5001, 1).regime
    assert (np.flatnonzero(np.diff(regime))[:3] + 1).tolist() == [434, 1347, 2896] and regime[0] == NORMAL


def normals(seed, index, t, stream):
    u = [(int(word) + 0.5) / 2**32 for word in philox((index, 0, t, stream), seed)]
    radius = math.sqrt(-2 * math.log(u[0]))
    return radius * math.cos(2 * math.pi * u[1]), radius * math.sin(2 * math.pi * u[1]), u[2]


def test_the_first_bars_of_an_asset_by_hand():
    """Asset 3 of seed 9, as the page says it: one number after the other."""
    seed, i, price, log_price = 9, 3, 11.0, 0.0
    market, path = generate(seed=seed, bars=6, assets=4), drawn_path(seed, 6, 4)
    v_k, v_w = 0.12**2 / (1 - 0.985**2), 0.10**2 / (1 - 0.95**2)
    mean = (0.55 + 0.55 * 3 / 9) / math.sqrt(105_120)
    sizes = 2 / 2016 * (math.exp(-0.004 + 0.012**2 / 2) - 1) + 3 / 2016 * (math.exp(0.010**2 / 2) - 1)
    k = w = 0.0
    before = price
    for t in range(6):
        shocks = normals(seed, 0, t, 17)[0], normals(seed, i + 1, t, 17)[0]
        k = 0.985 * k + 0.12 * shocks[0] if t else math.sqrt(v_k) * shocks[0]
        w = 0.95 * w + 0.10 * shocks[1] if t else math.sqrt(v_w) * shocks[1]
        K = (0.6, 1.0, 2.5)[path.regime[t]]
        day = 1 + 0.25 * math.sin(2 * math.pi * t / 288 - 1.2)
        sigma = mean * math.exp(0.8 * (k + w) - 0.64 * (v_k + v_w)) * K * day
        r = (0.6, 0.0, -6.0)[path.regime[t]] / 105_120 - sigma**2 / 2 - sizes
        r += sigma * (math.sqrt(0.55) * normals(seed, 0, t, 18)[0] + math.sqrt(0.45) * normals(seed, i + 1, t, 18)[0])
        common, own = normals(seed, 0, t, 19), normals(seed, i + 1, t, 19)
        r += (-0.004 + 0.012 * common[0]) * (common[2] < 2 / 2016) + 0.010 * own[0] * (own[2] < 3 / 2016)
        r = r if t else 0.0
        assert [path.sigma[t, i], path.log_return[t, i]] == pytest.approx([sigma, r], rel=1e-12, abs=1e-18)
        log_price += r
        close = price * math.exp(log_price)
        ends = normals(seed, i + 1, t, 20)
        row = {
            "open": before,
            "close": close,
            "high": max(before, close) * math.exp(0.6 * sigma * abs(ends[0])),
            "low": min(before, close) * math.exp(-0.6 * sigma * abs(ends[1])),
        }
        for name, value in row.items():
            assert getattr(market, name)[t, i] == round(value * 1e4) / 1e4, name
        volume = 5e5 / 11 * math.exp(0.6 * normals(seed, i + 1, t, 21)[0] - 0.18)
        volume *= math.sqrt(sigma / mean) * (1 + 0.5 * abs(r) / sigma)
        assert market.volume[t, i] == round(volume * 100) / 100
        before = close
    assert market.tick[i] == 1e-4 and market.min_qty[i] == 0.1


def test_more_bars_or_assets_change_nothing_earlier():
    small, large = generate(seed=5, bars=300, assets=3), generate(seed=5, bars=500, assets=12)
    for name in ARRAYS:
        assert np.array_equal(getattr(small, name), getattr(large, name)[:300, :3]), name
    assert large.symbols[:3] == small.symbols == ("SYN00", "SYN01", "SYN02") and large.symbols[11] == "SYN11"
    assert not np.array_equal(small.close, generate(seed=6, bars=300, assets=3).close)
    assert large.min_qty[10] == large.min_qty[0] and large.close[0, 10] == PRICES[0]


@pytest.mark.parametrize(("name", "bars", "assets"), [("tiny", 400, 3), ("small", 2000, 10)])
def test_sets(name, bars, assets):
    assert generate(name).check().close.shape == (bars, assets)
    assert {name: tuple(size) for name, size in SETS.items()} == {
        "tiny": (400, 3, None, 0),
        "small": (2000, 10, None, 0),
        "paper": (41_704, 10, 20_000, 5_000),
        "large": (525_600, 10, None, 0),
        "wide": (25_000, 100, None, 0),
    }


@pytest.mark.slow
def test_large_sets():
    paper = generate("paper").check()
    assert paper.close.shape == (41_704, 10) and paper.train.tolist() == [[0, 20_000]]
    assert generate("wide").check().close.shape == (25_000, 100)


def autocorrelation(x):
    x = x - x.mean()
    return (x[1:] * x[:-1]).sum() / (x**2).sum()


@pytest.mark.slow
def test_statistics_of_twenty_markets():
    """Ranges of a control over 400 markets."""
    found = []
    for seed in range(20):
        path = drawn_path(seed, 50_000, 6)
        r, other = path.log_return[1:, 0], path.log_return[1:, 5]
        z = (r - r.mean()) / r.std()
        found.append(
            [r.std() * math.sqrt(105_120), (z**4).mean(), autocorrelation(r), autocorrelation(np.abs(r)),
             np.corrcoef(r, other)[0, 1], (path.regime == CRASH).mean()]
        )  # fmt: skip
    mean, middle = np.mean(found, axis=0), np.median(found, axis=0)
    assert 0.53 <= mean[0] <= 0.61 and 28 <= middle[1] <= 42 and abs(mean[2]) <= 0.01
    assert 0.34 <= mean[3] <= 0.39 and 0.50 <= mean[4] <= 0.52 and 0.03 <= mean[5] <= 0.055


def test_without_drift_returns_lose_the_regimes_mean_only():
    one, other = drawn_path(3, 3000, 2), drawn_path(3, 3000, 2, drift="none")
    difference = (one.log_return - other.log_return)[1:]
    assert difference == pytest.approx(np.repeat((DRIFT[one.regime] / 105_120)[1:, None], 2, axis=1), abs=1e-15)


def test_a_planted_signal_moves_every_return():
    plain, planted = drawn_path(3, 3000, 2), drawn_path(3, 3000, 2, signal="momentum")
    difference = (planted.log_return - plain.log_return)[1:]
    mean = np.array([0.55, 0.55 + 0.55 / 9]) / math.sqrt(105_120)
    assert difference == pytest.approx(0.1 * mean * planted.signal[1:, None], abs=1e-15)
    flips = [t for t in range(1, 3000) if normals(3, 0, t, 22)[2] < 1 / 500]
    assert planted.signal[0] == 1 and (np.flatnonzero(np.diff(planted.signal)) + 1).tolist() == flips


def test_gaps_listing_dates_frozen_and_zero_prices():
    plain = generate(bars=50, assets=4)
    market = generate(
        bars=50, assets=4, gaps=[(0, 10, 5)], unlisted=[(1, 0, 7)], frozen=[(2, 20, 3)], zero=[(3, 30, 2)]
    )
    assert (market.close[10:15, 0] == plain.close[9, 0]).all() and (market.high[10:15, 0] == plain.close[9, 0]).all()
    assert (market.close[:7, 1] == 82.0).all() and (market.close[20:23, 2] == plain.close[19, 2]).all()
    assert (market.close[30:32, 3] == 0).all()
    untradable = np.zeros((50, 4), bool)
    untradable[10:15, 0] = untradable[:7, 1] = untradable[30:32, 3] = True
    assert np.array_equal(~market.tradable, untradable)
    empty = untradable.copy()
    empty[30:32, 3] = False
    assert np.array_equal(market.volume == 0, empty)
    touched = untradable.copy()
    touched[20:23, 2] = True
    for name in ARRAYS:
        assert np.array_equal(getattr(market, name)[~touched], getattr(plain, name)[~touched]), name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "huge"}, "name='huge' must be one of 'tiny'"),
        ({"seed": -1}, "seed=-1 must be an integer from 0"),
        ({"bars": 0}, "bars=0 must be an integer from 1"),
        ({"drift": "up"}, "drift='up' must be one of 'regimes', 'none'"),
        ({"signal": "momentum", "drift": "none"}, "signal='momentum' must be 'none' where drift='none'"),
        ({"visible": True}, "visible=True must be False where signal='none'"),
        ({"visible": "no", "signal": "momentum"}, "visible='no' must be one of False, True"),
        ({"gaps": 5}, r"gaps=5 must be a list of \(asset, first bar, bars\)"),
        ({"gaps": [(0, 1)]}, r"gaps\[0\]=\(0, 1\) must be \(asset, first bar, bars\)"),
        ({"zero": [(10, 1, 1)]}, r"zero\[0\]: asset=10 must be an integer from 0 to 9"),
        ({"frozen": [(0, 1990, 11)]}, r"frozen\[0\]: bars=11 must be an integer from 1 to 10"),
    ],
)
def test_what_is_refused_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        generate(**options)


@pytest.mark.parametrize("size", [{"bars": 2**31 - 1, "assets": 1}, {"bars": 10, "assets": 2**31 - 2}])
def test_a_market_that_does_not_fit_is_refused_before_it_is_drawn(size):
    with pytest.raises(MemoryError, match=r"bars \* assets=.* GiB are free; about .* would fit"):
        generate("small", **size)


def test_train_bars_of_a_set_hold_for_more_bars():
    assert generate("paper", bars=20_001, assets=1).train.tolist() == [[0, 20_000]]
