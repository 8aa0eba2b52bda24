"""Batches of the port beside originals, one for each environment, and what may differ between them."""

import warnings

import numpy as np
import torch

from lockstep import envs
from lockstep.envs.crypto_trading.original import CryptoTrading, get_state, make
from tests.envs.crypto_trading.worlds import random_market

MARKET = random_market(5, bars=90, absent=0.06)
QUIET = random_market(8, bars=90)  # every bar has a price
UNBOUGHT = random_market(5, bars=90)  # of which one asset has no price at the first fill
UNBOUGHT.close[1, 1] = UNBOUGHT.low[1, 1] = 0.0
SEGMENTED = random_market(6, bars=120, segments=[[0, 40], [40, 90], [95, 120]])
LOTS = random_market(7, bars=90, qty_step=[0.01, 0.3, 0.0], fee_buy=[0.001, np.nan, 0.01])
PLANTED = random_market(9, bars=330, absent=0.06, signal=np.where(np.arange(330) // 25 % 2, -1, 1))
TOLERANCE = {"float64": 1e-9, "float32": 1e-5}
MONEY = ("cash", "value", "benchmark", "fees")


def pair(num_envs: int, preset=None, scenario=MARKET, dtype="float64", rule="none", **single):
    """A batch, and the original of each of its environments, in their first episodes."""
    rules = [rule] * num_envs if isinstance(rule, str) else rule
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # no action of some asset reaches its minimum
        given = {"preset": preset, "scenario": scenario, **single}
        batch = envs.make("crypto_trading", num_envs, dtype=dtype, rule=rule, check_actions=False, **given)
        originals = [make(seed=3, index=i, rule=own, **given) for i, own in enumerate(rules)]
    batch.reset(seed=3)
    for one in originals:
        one.reset()
    return batch, originals


def put(batch, originals: list[CryptoTrading]):
    """Puts the originals' states into the batch."""
    states = [get_state(one) for one in originals]
    names = (*batch.fields(), "elapsed", "episode")
    batch.set_state({name: np.stack([state[name] for state in states]) for name in names})


def difference(name: str, found, expected, one: CryptoTrading) -> float:
    """The largest difference of a field over its scale: C for money, worth over C for units, a price over itself."""
    price = np.maximum(one.market.close.max(axis=0), 1e-9)
    scales = {"holdings": one.params.capital / price, "benchmark_units": one.params.capital / price}
    scales |= {"average": price, "peak": price, "running": one.params.capital * one.params.norm_reward}
    scales |= dict.fromkeys(MONEY, one.params.capital)
    return float(np.max(np.abs(np.asarray(found, np.float64) - expected) / scales.get(name, 1.0)))


def reward_scale(params) -> float:
    return params.norm_reward * params.capital if params.published or params.reward == "excess_dollar" else 1.0


def compare(batch, outputs, i: int, one: CryptoTrading, expected, tolerance: float):
    """The outcome of a step of environment i, against the original's: flags and whole numbers exactly."""
    obs, reward, terminated, truncated, told = outputs
    last, wanted, down, late, info = expected
    assert (bool(terminated[i]), bool(truncated[i])) == (down, late)
    seen = told["final_obs"] if down or late else obs
    np.testing.assert_allclose(seen[i].numpy(), last, rtol=max(tolerance, 2e-7), atol=max(tolerance, 1e-7))
    # The batch rounds rewards and numbers of info to float32.
    assert abs(float(reward[i]) - wanted) <= tolerance * reward_scale(one.params) + 6e-8 * abs(wanted)
    for name in ("value", "benchmark", "fees", "turnover"):
        wanted = info[name]
        assert difference(name, float(told[name][i]), wanted, one) <= tolerance + difference(
            name, 6e-8 * wanted, 0, one
        )
    if down or late:
        return
    state = get_state(one)
    for name, field in batch.fields().items():
        if field.dtype == torch.int32:
            assert field[i].tolist() == state[name].tolist(), name
        else:
            assert difference(name, field[i].numpy(), state[name], one) <= tolerance, name
