"""Presets, as README.md, 1 and 3, list them, and what parameters refuse."""

import dataclasses

import numpy as np
import pytest

from lockstep.envs.crypto_trading.layout import state_shapes
from lockstep.envs.crypto_trading.params import PRESETS, Params, make_params

# By preset: finrl-crypto, cappuccino, clean.
NUMBERS = {
    "capital": (1e6, 500.0, 1e6),
    "fee_buy": (0.003, 0.0025, 0.003),
    "fee_sell": (0.003, 0.0025, 0.003),
    "discount": (0.99, 0.99, 0.99),
    "spending": (0.9, 0.99, 0.99),
    "hold_limit": (48, 48, 48),
    "trim": (0.05, 0.05, 0.05),
    "norm_cash": (2**-12, 2**-12, 2**-12),
    "norm_stocks": (2**-8, 2**-8, 2**-8),
    "norm_tech": (2**-15, 2**-15, 2**-15),
    "norm_reward": (2**-10, 2**-10, 2**-10),
    "norm_action": (10_000, 100, 10_000),
    "lookback": (1, 5, 1),
    "min_margin": (1.1, 1.1, 1.0),
    "reachable": ("error", "warn", "error"),
    **dict.fromkeys(("stop", "reserve", "decay_floor", "concentration"), (0, 0, 0)),
}
ON = {  # switches
    "carry_over": (True, True, False),
    "terminal_sum": (True, True, False),
    "log_quotient": (True, False, False),
    "drop_tail": (True, True, False),
    "unguarded_trim": (True, True, False),
    "float32_holdings": (True, True, False),
    "published_benchmark": (True, True, False),
    "write_back": (False, False, False),
    "leak_features": (False, False, False),
    "parallel_budget": (False, False, False),
}


@pytest.mark.parametrize(("column", "preset"), [(0, "finrl-crypto"), (1, "cappuccino"), (2, "clean")])
def test_presets_are_those_of_the_table(column, preset):
    params = make_params(preset)
    for name, values in (NUMBERS | ON).items():
        assert getattr(params, name) == values[column], name
    assert {spec.name for spec in dataclasses.fields(Params) if spec.type is bool} == set(ON) and len(PRESETS) == 3


def test_the_clean_preset_is_the_default():
    assert make_params() == make_params("clean") == Params()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fee_buy": -0.1}, "fee_buy=-0.1 must be at least 0"),
        ({"fee_sell": 1.5}, "fee_sell=1.5 must be at most 1"),
        ({"spending": 0}, "spending=0 must be positive"),
        ({"spending": 1.1}, "spending=1.1 must be at most 1"),
        ({"spending": float("nan")}, "spending=nan must be a finite number"),
        ({"lookback": 0}, "lookback=0 must be at least 1"),
        ({"lookback": 1.5}, "lookback=1.5 must be an integer"),
        ({"stop": 1.0}, "stop=1.0 must be less than 1"),
        ({"orders": "dollars"}, "orders='dollars' must be one of 'notional', 'target_weight', 'units'"),
        ({"carry_over": True}, "carry_over=True must be False where rules='clean'"),
        ({"preset": "cappuccino", "log_quotient": True}, "log_quotient=True must be False where rules='two'"),
        ({"preset": "finrl-crypto", "stop": 0.1}, "stop=0.1 must be 0.0 where rules='one'"),
        ({"preset": "finrl-crypto", "orders": "units"}, "orders='units' must be 'notional' where rules='one'"),
        ({"preset": "finrl-crypto", "starts": "random"}, "starts='random' must be 'full' where carry_over=True"),
        ({"preset": "finrl-cripto"}, "preset='finrl-cripto' is unknown; did you mean 'finrl-crypto'?"),
        ({"slipage": 0.1}, "crypto_trading has no parameter or option 'slipage'; did you mean 'slippage'?"),
    ],
)
def test_what_is_refused_is_named(options, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        make_params(**options)


def test_lengths_of_windows():
    published, clean = make_params("cappuccino"), make_params(lookback=5)
    assert (published.steps(11), published.least_bars) == (1, 11)  # T - 2 L
    assert (clean.steps(11), clean.least_bars, clean.episode_window) == (6, 6, 2021)  # T - L
    assert (published.observed(7, 98), clean.observed(7, 98)) == (498, 1 + 21 + 490)
    assert make_params("finrl-crypto").observed(10, 70) == 81


def test_the_state_is_stored_as_the_switch_says():
    kinds = {name: kind.__name__ for name, (_, kind) in state_shapes(make_params("cappuccino"), 7).items()}
    assert kinds["holdings"] == kinds["peak"] == "float32" and kinds["cash"] == "float64" and kinds["age"] == "int32"
    plain = dataclasses.replace(make_params("cappuccino"), float32_holdings=False)
    assert state_shapes(plain, 7)["holdings"] == ((7,), np.float64)
