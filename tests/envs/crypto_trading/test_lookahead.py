"""Nothing depends on a later bar."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.envs.crypto_trading.features import INDICATORS, compute, prepared
from lockstep.envs.crypto_trading.original import make
from lockstep.envs.crypto_trading.params import make_params
from lockstep.envs.crypto_trading.scenario import generate
from tests.envs.crypto_trading.worlds import actions, outcomes, random_market

CUT = 30
PRESETS = ["clean", "finrl-crypto", "cappuccino"]


def changed(market, after: int, only=("open", "high", "low", "close", "volume", "features")):
    """The market with other numbers after a bar."""
    arrays = {}
    for name in only:
        if getattr(market, name) is None:
            continue
        arrays[name] = getattr(market, name).copy()
        arrays[name][after + 1 :] *= 1.37
    return dataclasses.replace(market, **arrays)


def seen(market, preset, seed, **options):
    env = make(preset, market, reachable="warn", lookback=2, **options)
    first = env.reset(seed=0)[0]
    return first, outcomes(env, actions(seed, market.bars, market.assets))


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_later_bars_change_nothing_up_to_now(preset, seed):
    market = random_market(seed)
    (first, one), (other_first, other) = seen(market, preset, seed), seen(changed(market, CUT), preset, seed)
    assert np.array_equal(first, other_first)
    assert one[CUT - 2]["after"]["bar"] == CUT
    for step, twin in zip(one[: CUT - 1], other, strict=False):
        assert np.array_equal(step["observation"], twin["observation"]) and step["reward"] == twin["reward"]
        for name, array in step["after"].items():
            assert np.array_equal(array, twin["after"][name]), name
    assert one[CUT - 1]["reward"] != other[CUT - 1]["reward"]


def test_features_of_this_bar_are_in_this_observation():
    market = random_market(1)
    for preset in PRESETS:
        (_, one), (_, other) = seen(market, preset, 1), seen(changed(market, CUT - 1, ("features",)), preset, 1)
        differ = [not np.array_equal(a["observation"], b["observation"]) for a, b in zip(one, other, strict=True)]
        assert differ.index(True) == CUT - 2 and one[CUT - 2]["after"]["bar"] == CUT


def test_leaking_features_are_found():
    market = random_market(1)
    (first, _), (other, _) = (seen(m, "clean", 1, leak_features=True) for m in (market, changed(market, CUT)))
    assert not np.array_equal(first, other)
    features = market.features.ravel()  # of the last two bars, newest first
    assert first[-2:].tolist() == np.clip(features[[-1, -2]], -10, 10).tolist()


@pytest.mark.filterwarnings("ignore:ht_dcphase is 0")  # without TA-Lib
@pytest.mark.parametrize("name", INDICATORS)
def test_indicators_look_back_only(name):
    market = generate(bars=320, assets=2)
    at = 250
    one, other = (compute(m, (name,)) for m in (market, changed(market, at)))
    assert np.array_equal(one[: at + 1], other[: at + 1], equal_nan=True)


def test_statistics_are_those_of_the_train_bars():
    market = dataclasses.replace(generate(bars=320, assets=2), train=[[0, 100], [150, 200]])
    params = make_params()
    one, other = prepared(market, params), prepared(changed(market, 200), params)
    assert np.array_equal(one.mean, other.mean) and np.array_equal(one.std, other.std)
    rows = np.concatenate([one.features[48:100], one.features[150:200]]).astype(float)
    assert one.mean[2] == pytest.approx(rows[:, 2].mean(), rel=1e-12)
    assert one.std[2] == pytest.approx(rows[:, 2].std(), rel=1e-12)
