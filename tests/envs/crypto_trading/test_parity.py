"""The port against the original: single steps from the original's states, and whole episodes on the same numbers."""

import numpy as np
import pytest
import torch

from lockstep.envs.crypto_trading.original import get_state
from tests.envs.crypto_trading.batches import LOTS, MARKET, QUIET, SEGMENTED, TOLERANCE, UNBOUGHT, compare, pair, put
from tests.envs.crypto_trading.worlds import random_market

PUBLISHED = ("finrl-crypto", "cappuccino")
LARGE = {"min_margin": 1e6}  # the average price of a few $ beside 1e6 $ hangs on the last bits of these
STOPPED = {"preset": "cappuccino", "stop": 0.04, "reserve": 0.1, "concentration": 1e-3, "decay_floor": 0.2}
RICH = {
    "orders": "target_weight",
    "stop": 0.04,
    "slippage": 1e-3,
    "impact": 0.1,
    "fill": "next_open",
    "reserve": 0.1,
} | LARGE
UNITS = {"orders": "units", "buy_order": "rotating", "reward": "excess_dollar", "norm_action": 3e5}
RANDOM = {
    "buy_order": "pro_rata",
    "order_share": 0.6,
    "reward": "log",
    "starts": "random",
    "episode_bars": 15,
    "lookback": 3,
}
CASES = {
    "clean": {},
    **{preset: {"preset": preset} for preset in PUBLISHED},
    "two with a stop": STOPPED,
    "forty assets": {"scenario": random_market(12, bars=40, assets=40, absent=0.06), "order_share": 0.01} | LARGE,
    "target weights": RICH,
    "units": UNITS | LARGE | {"scenario": SEGMENTED},
    "random starts": RANDOM | {"scenario": SEGMENTED},
    "lots": {"scenario": LOTS, "order_share": 0.3, "spending": 1.0, "hold_limit": 9} | LARGE,
    "absent": {"window": (5, 30)},
    "short holds": {"hold_limit": 5},
    "published short holds": {"preset": "finrl-crypto", "hold_limit": 5},
    "segments": {"scenario": SEGMENTED, "hold_limit": 5, "trim": 0.5},
    "window": {"window": (10, 50), "leak_features": True, "parallel_budget": True},
    "a floor": {"value_floor": 0.98, "order_share": 3.0, "scenario": QUIET} | LARGE,
    **{
        f"{preset} without {switch}": {"preset": preset, switch: False}
        for preset in PUBLISHED
        for switch in ("carry_over", "terminal_sum", "drop_tail", "unguarded_trim", "float32_holdings",
                       "published_benchmark", *(["log_quotient"] if preset == "finrl-crypto" else []))
    },
    **{f"{preset}, {control}": {"preset": preset, control: True}
       for preset in PUBLISHED for control in ("leak_features", "parallel_budget")},
    **{f"{preset}, a fair holder that cannot buy all": {"preset": preset, "published_benchmark": False, "lookback": 1,
                                                        "scenario": UNBOUGHT}
       for preset in PUBLISHED},
}  # fmt: skip
AT_ONCE = ("clean", *PUBLISHED, "target weights", "random starts", "finrl-crypto, a fair holder that cannot buy all")
ALL = [pytest.param(case, marks=[] if case in AT_ONCE else [pytest.mark.slow]) for case in CASES]
B, STEPS = 4, 130


def walked(case: str, dtype: str, restarted: bool, steps: int = STEPS):
    """Steps of a batch and of its originals on random actions, a third of which are 0; how many episodes ended."""
    return walk(*pair(B, dtype=dtype, **CASES[case]), dtype, restarted, steps)


def walk(batch, originals, dtype: str, restarted: bool, steps: int):
    """The same of a batch and its originals."""
    rng, ends = np.random.default_rng(11), 0
    shape = batch.num_envs, originals[0].market.assets
    for _ in range(steps):
        if restarted:
            put(batch, originals)
        action = (rng.uniform(-1, 1, shape) * (rng.random(shape) < 2 / 3)).astype(np.float32)
        outputs = batch.step(torch.from_numpy(action))
        for i, one in enumerate(originals):
            expected = one.step(action[i])
            compare(batch, outputs, i, one, expected, TOLERANCE[dtype])
            if one.over:
                first, _ = one.reset()
                np.testing.assert_allclose(outputs[0][i].numpy(), first, rtol=2e-7, atol=1e-7)
                ends += 1
    return ends


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", ALL)
def test_episodes_on_the_same_numbers_are_the_originals(case, dtype):
    assert walked(case, dtype, restarted=False) >= B


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", ALL)
def test_steps_from_the_originals_states_are_the_originals(case, dtype):
    assert walked(case, dtype, restarted=True) >= B


def test_a_holder_carried_over_keeps_its_units_and_the_next_first_reward_holds_its_jump_back():
    """Worked by hand from the closes: E' is that of the second bar, E that of the last before."""
    batch, (one,) = pair(1, "finrl-crypto")
    nothing = torch.zeros(1, 3)
    while not batch.step(nothing)[2]:
        pass
    before = float(batch.fields()["benchmark"][0])
    _, reward, *_ = batch.step(nothing)
    C, close = 1e6, MARKET.close
    value = np.mean(C * close / close[0], axis=1)
    assert before == pytest.approx(value[len(close) - 2], rel=1e-12)
    assert float(reward[0]) == pytest.approx(-(2.0**-10) * (value[1] - value[len(close) - 2]), rel=1e-6)
    assert get_state(one)["benchmark"] == pytest.approx(value[0])
