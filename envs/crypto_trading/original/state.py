"""State of the original in the names, shapes and units that all forms share (`layout.state_shapes`)."""

import numpy as np
from gymnasium.error import ResetNeeded

from ...checks import integer, state_fields
from ..layout import state_shapes
from .account import Account
from .environment import CryptoTrading


def get_state(env: CryptoTrading) -> dict[str, np.ndarray]:
    """Every field of `layout.state_shapes`, `elapsed`, `episode`, and `scenario`, 0, where markets came as a list.

    Raises:
        ResetNeeded: there was no episode yet.
    """
    account = _opened(env)
    shapes = state_shapes(env.params, env.market.assets)
    found = {name: np.array(getattr(account, name), kind) for name, (_, kind) in shapes.items()}
    found |= {"elapsed": np.int64(account.bar - env.params.lookback + 1), "episode": np.int64(env.number)}
    return found | ({"scenario": np.int64(0)} if env.pooled else {})


def set_state(env: CryptoTrading, state: dict):
    """Puts the environment into a state; fields that it lacks stay as they are.

    `elapsed` is `bar` - L + 1; either may be left out.

    Raises:
        ValueError: an unknown field, another shape, a number that is not finite or means nothing; names the field.
        ResetNeeded: there was no episode yet.
    """
    p, T, given = env.params, env.market.bars, _checked(env, state)
    fields = get_state(env) | given
    if "elapsed" in given:
        bar = fields["elapsed"] + p.lookback - 1
        if "bar" in given and given["bar"] != bar:
            raise ValueError(f"state field 'elapsed' is {given['elapsed']}, must be bar - {p.lookback - 1}")
        fields["bar"] = bar
    plain = {name: array.tolist() for name, array in fields.items()}
    first = integer("state field 'first'", plain["first"], 0, T - p.least_bars)
    last = integer("state field 'last'", plain["last"], first + p.least_bars, T)
    end = p.lookback - 1 + p.steps(last - first)
    bar = integer("state field 'bar'", plain["bar"], p.lookback - 1, end)
    env.number = plain["episode"]
    env.account = Account(**{name: plain[name] for name in state_shapes(p, env.market.assets)})
    env.rules.set_window(first)
    below = not p.published and plain["value"] < p.value_floor * p.capital
    env.over = bar == end or below


def _opened(env: CryptoTrading) -> Account:
    if env.account is None:
        raise ResetNeeded("no episode is open: call reset() first")
    return env.account


def _checked(env: CryptoTrading, state: dict) -> dict[str, np.ndarray]:
    shapes = state_shapes(env.params, env.market.assets)
    shapes |= dict.fromkeys(("elapsed", "episode"), ((), np.int64))
    if env.pooled:
        shapes["scenario"] = ((), np.int64)
    most, found = {"episode": 2**32 - 1, "scenario": 0}, {}
    for name, kind, array in state_fields(state, shapes):
        if np.issubdtype(kind, np.integer):
            for value in array.ravel().tolist():
                whole = int(value) if value == int(value) else value
                integer(f"state field {name!r}", whole, 0, most.get(name, 2**31 - 1))
        rounding = 1e-9 * env.params.capital if name in ("cash", "value") else 0.0
        free = name == "running" or (env.params.parallel_budget and name in ("cash", "value"))
        if not free and (array < -rounding).any():
            raise ValueError(f"state field {name!r} holds {array.min()}, must not be negative")
        found[name] = array.astype(kind)
    return found
