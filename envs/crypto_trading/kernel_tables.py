"""Tables that the kernel reads (`struct Tables` in layout.cuh)."""

from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np

from ..presets import bounded
from .original import ruled
from .params import Params
from .scenario import Market
from .tables import admissible, check, fees, minimums, observed, order_scale, scaled

SPECS = {spec.name: spec for spec in fields(Params)}
RATES = ("fee_buy", "fee_sell", "slippage", "spending", "order_share")  # of a lane, in the order of layout.cuh
NONE = np.zeros((1, 1))


def tables(
    params: Params,
    market: Market,
    windows: np.ndarray | None,
    lanes: Mapping[str, np.ndarray],
    rules: np.ndarray,
    replay: np.ndarray | None,
    num_envs: int,
) -> dict[str, np.ndarray]:
    """All tables; one row of zeros where no step reads one.

    Args:
        windows: [B, 2] or [1, 2] bars of the environments' windows; None: the market's segments.
        lanes: numbers [B] of each environment by name.
        rules, replay: as `rules_of` and `replay_of` give them.

    Raises:
        ValueError: windows, numbers, rules or actions of another batch size.
    """
    X = observed(params, market)[::-1]
    if replay is not None and len(replay) > 1:
        replay = rows("replay", replay, num_envs)
    by_window = market.segments if windows is None else rows("window", windows, num_envs)
    opens = params.fill == "next_open"
    fee_buy, fee_sell = fees(params, market)
    return {
        "price": market.close if params.published else signed(params, market, market.close),
        "opening": signed(params, market, market.open) if opens else NONE,
        "volume": market.volume if params.impact else NONE,
        "scale": scales(params, market, by_window),
        "minimum": minimums(params, market),
        "lot": market.qty_step,
        "fee_buy": fee_buy,
        "fee_sell": fee_sell,
        "rates": np.column_stack([rows(name, lanes[name], num_envs) for name in RATES]) if lanes else NONE,
        "features": NONE.astype(np.float32) if params.indexed else X,
        "windows": by_window.astype(np.int32),
        "places": np.append(0, np.cumsum(admissible(params, market))).astype(np.int64),
        "rule": rows("rule", rules, num_envs) if len(rules) != 1 or rules.any() else rules,
        "signal": signs(market) if rules.any() else NONE[0].astype(np.int32),
        "replay": NONE.astype(np.float32) if replay is None else replay,
    }


def signed(params: Params, market: Market, price: np.ndarray) -> np.ndarray:
    """Prices [T, N], negative where an asset cannot be traded (README.md, 2.4)."""
    traded = market.tradable & (price > 0)
    if params.impact:
        traded &= market.volume > 0
    return np.where(traded, price, -price)


def signs(market: Market) -> np.ndarray:
    """The planted sign [T] int32, 1 where the market has none."""
    return np.ones(market.bars, np.int32) if market.signal is None else market.signal.astype(np.int32)


def scales(params: Params, market: Market, windows: np.ndarray) -> np.ndarray:
    """Order scales [T, N] in the rows where a window may begin."""
    if not scaled(params):
        return NONE
    found = np.zeros(market.close.shape)
    begins = slice(None) if params.starts == "random" else np.unique(windows[:, 0])
    found[begins] = order_scale(params, market.close[begins])
    return found


def rows(name: str, given: np.ndarray, num_envs: int) -> np.ndarray:
    """Rows of all environments; ValueError where they are of another number."""
    if len(given) not in (1, num_envs):
        raise ValueError(f"{name} has {len(given)} rows; a batch of {num_envs} needs one, or one for each")
    return np.array(np.broadcast_to(given, (num_envs, *given.shape[1:])), order="C")


def windows_of(params: Params, market: Market, given) -> np.ndarray:
    """Windows [B, 2] or [1, 2]; ValueError where an episode cannot be played on one."""
    try:
        windows = np.atleast_2d(np.asarray(given))
    except ValueError as error:  # rows that differ in length
        raise ValueError(f"window={given!r:.60} must be integers [B, 2] or [2]") from error
    if windows.shape[1:] != (2,) or not len(windows) or not np.issubdtype(windows.dtype, np.integer):
        raise ValueError(f"window has shape {np.shape(given)} and type {windows.dtype}; needed: integers [B, 2] or [2]")
    for row, window in enumerate(windows.tolist()):
        check(params, market, tuple(window), where=f"window[{row}]")
    return windows


def rules_of(market: Market, given: str | Sequence[str]) -> np.ndarray:
    """Numbers [B] or [1] int32 of rules by name; ValueError where one is unknown, or the market lacks its signal."""
    names = [given] if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray) else given
    return np.array([ruled.NAMES.index(ruled.check(name, market)) for name in names], np.int32)


def replay_of(params: Params, market: Market, bars: int, given) -> np.ndarray | None:
    """Actions [B, K, N] or [1, K, N] float32 of the K steps of an episode on so many bars; None where none are given.

    Raises:
        ValueError: another shape, fewer steps, or a number outside the box; names the first.
    """
    if given is None:
        return None
    steps, form = params.steps(bars), f"numbers [K, {market.assets}] or [B, K, {market.assets}]"
    found = numbers("replay", given, form)
    found = found[None] if found.ndim == 2 else found
    if found.ndim != 3 or not len(found) or found.shape[2] != market.assets or found.shape[1] < steps:
        raise ValueError(f"replay has shape {np.shape(given)}, must be {form}, K at least {steps}, an episode's steps")
    outside = ~(np.abs(found) <= 1)
    if outside.any():
        place = tuple(np.argwhere(outside)[0].tolist())
        raise ValueError(f"replay[{', '.join(map(str, place))}]={found[place]} must be from -1 to 1")
    return np.ascontiguousarray(found[:, :steps], np.float32)


def numbers(name: str, given, form: str) -> np.ndarray:
    """The array that was given; ValueError where there is none, or one of something else than numbers."""
    try:
        found = np.asarray(given)
    except (TypeError, ValueError) as error:  # rows that differ in length
        raise ValueError(f"{name}={given!r:.60} must be {form}") from error
    if found.dtype.kind not in "iuf":
        raise ValueError(f"{name} holds {found.dtype}, must be {form}")
    return found


def lanes_of(params: Params, market: Market, given: Mapping[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """Numbers [B] or [1] by name, those of the parameters and of the market where none are given; nothing where nothing
    is given.

    Raises:
        ValueError: an unknown name, published rules, another shape, a number out of range, or fees that differ by
            symbol; names it.
    """
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"per_lane={given!r:.60} must be numbers [B] by name, as {{'slippage': [0.0, 0.001]}}")
    if not given:
        return {}
    if params.published:
        raise ValueError(f"per_lane={list(given)} needs rules='clean', not {params.rules!r}")
    found = {name: np.array([getattr(params, name)]) for name in RATES}
    for name, own in zip(RATES[:2], fees(params, market), strict=True):
        if name not in given and (own != own[0]).any():
            raise ValueError(f"per_lane must have {name!r} as well: the market's {name} differs by symbol")
        found[name] = own[:1]
    for name, own in given.items():
        if name not in RATES:
            raise ValueError(f"per_lane has no {name!r}; allowed: {', '.join(RATES)}")
        found[name] = np.atleast_1d(numbers(f"per_lane: {name}", own, "numbers [B]").astype(np.float64))
        if found[name].ndim > 1 or not found[name].size:
            raise ValueError(f"per_lane: {name} has shape {found[name].shape}, must have [B]")
        for row in (int(found[name].argmin()), int(found[name].argmax())):
            try:
                bounded(SPECS[name], float(found[name][row]))
            except ValueError as error:
                raise ValueError(f"per_lane: {name}[{row}]{str(error).removeprefix(name)}") from None
    return found
