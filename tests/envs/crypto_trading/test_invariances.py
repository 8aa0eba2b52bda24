"""Changes of a market that change no result."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.envs.crypto_trading.original import make
from lockstep.envs.crypto_trading.scenario.market import BARS, PER_SYMBOL
from tests.envs.crypto_trading.worlds import actions, opened, outcomes, random_market

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=10, deadline=None)
OPTIONS = st.fixed_dictionaries(
    {"orders": st.sampled_from(["notional", "target_weight"]), "stop": st.sampled_from([0.0, 0.05]),
     "slippage": st.sampled_from([0.0, 0.01]), "impact": st.sampled_from([0.0, 0.1]),
     "buy_order": st.sampled_from(["listed", "pro_rata"])}
)  # fmt: skip
MONEY = ("cash", "value", "benchmark", "benchmark_cash")


@FEW
@given(seed=SEEDS, power=st.integers(-6, 6), options=OPTIONS)
def test_prices_and_capital_by_a_power_of_two_scale_money_exactly(seed, power, options):
    market, scale = random_market(seed, absent=0.05), 2.0**power
    scaled = dataclasses.replace(market, **{name: getattr(market, name) * scale for name in BARS[:4]})
    steps = [
        outcomes(opened(m, capital=c, reachable="warn", **options), actions(seed, 60, 3))
        for m, c in ((market, 1e6), (scaled, 1e6 * scale))
    ]
    for one, other in zip(*steps, strict=True):
        for name, array in one["after"].items():
            by = scale if name in (*MONEY, "peak", "average") else 1.0
            assert (array * by).tolist() == other["after"][name].tolist(), name
        assert one["reward"] == other["reward"] and np.array_equal(one["observation"], other["observation"])


@FEW
@given(seed=SEEDS, power=st.integers(-6, 6), options=OPTIONS)
def test_units_of_an_asset_may_be_any(seed, power, options):
    market, scale = random_market(seed, absent=0.05, qty_step=[0.25, 0.0, 0.5]), np.array([2.0**power, 1.0, 1.0])
    arrays = {name: getattr(market, name) * scale for name in BARS[:4]}
    arrays |= {name: getattr(market, name) / scale for name in ("volume", "min_qty", "qty_step")}
    steps = [
        outcomes(opened(m, reachable="warn", **options), actions(seed, 60, 3))
        for m in (market, dataclasses.replace(market, **arrays))
    ]
    for one, other in zip(*steps, strict=True):
        for name in MONEY:
            assert one["after"][name] == other["after"][name], name
        assert np.array_equal(one["observation"], other["observation"])


@FEW
@given(seed=SEEDS, options=OPTIONS, order=st.permutations(range(4)))
def test_the_order_of_assets_does_not_matter_to_buys_pro_rata(seed, options, order):
    market = random_market(seed, absent=0.05, assets=4)
    moved = {name: getattr(market, name)[..., order] for name in (*BARS, "tradable", *PER_SYMBOL)}
    options |= {"buy_order": "pro_rata", "reachable": "warn"}
    moves = actions(seed, 60, 4)
    one = outcomes(opened(market, **options), moves)
    other = outcomes(opened(dataclasses.replace(market, **moved), **options), moves[:, order])
    for step, twin in zip(one, other, strict=True):
        assert twin["after"]["value"] == pytest.approx(step["after"]["value"], rel=1e-9)
        assert twin["after"]["holdings"] == pytest.approx(step["after"]["holdings"][order], rel=1e-9, abs=1e-12)
        assert twin["reward"] == pytest.approx(step["reward"], abs=1e-10)


@pytest.mark.parametrize("preset", ["clean", "finrl-crypto", "cappuccino"])
def test_a_window_is_the_environment_of_its_bars_alone(preset):
    market = random_market(5, bars=80)
    env = make(preset, market, window=(20, 60), reachable="warn", lookback=3)
    alone = make(preset, market.rows(20, 60), reachable="warn", lookback=3)
    assert np.array_equal(env.reset(seed=0)[0], alone.reset(seed=0)[0])
    pairs = zip(*(outcomes(e, actions(5, 60, 3)) for e in (env, alone)), strict=True)
    for one, other in pairs:
        assert one["reward"] == other["reward"] and np.array_equal(one["observation"], other["observation"])
        for name in set(one["after"]) - {"first", "last"}:
            assert np.array_equal(one["after"][name], other["after"][name]), name
    assert one["terminated"] or one["truncated"]
