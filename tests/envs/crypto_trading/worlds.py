"""Small markets by hand and at random, and accounts on them."""

import numpy as np

from lockstep.envs.crypto_trading.original import CryptoTrading, get_state, make
from lockstep.envs.crypto_trading.scenario import Market


def market(close, feature=None, **more) -> Market:
    """A market of closes [T, N], or [T] of one asset, that opens at the close before; one feature, by default 0."""
    close = np.array(close, np.float64)
    close = close[:, None] if close.ndim == 1 else close
    T, N = close.shape
    opened = np.vstack([close[:1], close[:-1]])
    feature = np.zeros(T) if feature is None else np.asarray(feature)
    bars = {
        "open": opened,
        "high": np.maximum(opened, close),
        "low": np.minimum(opened, close),
        "close": close,
        "volume": np.full((T, N), 1000.0),
    }
    plain = {
        "features": feature.reshape(T, -1),
        "feature_names": [f"x{k}" for k in range(feature.reshape(T, -1).shape[1])],
    }
    symbols = [f"A{i}" for i in range(N)]
    return Market(**{"symbols": symbols} | bars | plain | {"mean": [0.0], "std": [1.0]} | more)


def random_market(seed: int, bars: int = 60, assets: int = 3, absent: float = 0.0, **more) -> Market:
    """Prices that change by some percent a bar, opens apart from closes; `absent` is the share of bars without trade,
    half of them at price 0."""
    rng = np.random.default_rng(seed)
    first = 10.0 ** rng.uniform(-1, 4, assets)
    close = first * np.exp(np.cumsum(rng.normal(0, 0.03, (bars, assets)), axis=0))
    tradable = rng.random((bars, assets)) >= absent
    close = np.where(tradable | (rng.random((bars, assets)) < 0.5), close, 0.0)
    tradable[0], close[0] = True, first
    opened = np.maximum(close, first / 2) * np.exp(rng.normal(0, 0.01, (bars, assets)))
    arrays = {
        "open": opened,
        "high": np.maximum(opened, close),
        "low": np.minimum(opened, close),
        "volume": rng.uniform(10, 1e5, (bars, assets)) / first,
        "tradable": tradable,
        "min_qty": 10.0 ** rng.uniform(-4, -2, assets) / first,
    }
    return market(close, rng.normal(size=bars), **arrays | more)


def opened(given: Market, preset=None, **single) -> CryptoTrading:
    """An environment in its first episode."""
    env = make(preset, given, **single)
    env.reset(seed=0)
    return env


def outcomes(env: CryptoTrading, actions) -> list[dict]:
    """States before and after each step, with reward, flags, info and observation, until an episode ends."""
    found = []
    for action in actions:
        before = get_state(env)
        observation, reward, terminated, truncated, info = env.step(np.array(action, np.float32))
        after = {name: array.copy() for name, array in get_state(env).items()}
        found.append(
            {"before": before, "after": after, "reward": reward, "terminated": terminated, "truncated": truncated}
            | {"info": info, "observation": observation, "action": action}
        )
        if terminated or truncated:
            break
    return found


def actions(seed: int, steps: int, assets: int, most: float = 1.0) -> np.ndarray:
    """Random actions [steps, N] float32, a third of them 0."""
    rng = np.random.default_rng([seed, 1])
    found = rng.uniform(-most, most, (steps, assets)) * (rng.random((steps, assets)) < 2 / 3)
    return found.astype(np.float32)
