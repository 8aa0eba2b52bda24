"""A market: bars of N assets, their rules of trading, and features."""

import functools
import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from numbers import Real

import numpy as np

from ...checks import find_device, require_memory

BARS = ("open", "high", "low", "close", "volume")  # columns of a table of bars, $ and units
PER_SYMBOL = ("min_qty", "qty_step", "tick", "fee_buy", "fee_sell")
SECONDS_A_YEAR = 365 * 86_400
SUFFIXES = (".csv", ".parquet")  # of a table of bars
MAX_GAP = 12  # bars that may lack between two rows of a table
LEAST_PRICE = 1e-24  # $, above 0: what is worth the capital still counts in float32
BYTES_DRAWN = 160  # of a bar of an asset, while a market is drawn
LAST_SECOND = 2**63 / 1e9  # since 1970, of a time in ns


def number(name: str, value, least: float = 1e-9, most: float = sys.float_info.max) -> float:
    """The value as a float; ValueError unless it is a number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, Real) or not least <= value <= most:
        raise ValueError(f"{name}={value!r:.60} must be a number from {least:g} to {most:g}")
    return float(value)


def instance(name: str, value, kind: type):
    """The value; ValueError unless it is of a class."""
    if not isinstance(value, kind):
        raise ValueError(f"{name}={' '.join(repr(value).split()):.60} must be a {kind.__name__}")
    return value


def bar_length(name: str, value) -> float:
    """Seconds of a bar; ValueError unless they are a number from 1e-9 to a year's."""
    return number(name, value, most=SECONDS_A_YEAR)


def require_market(bars: int, assets: int):
    """MemoryError where a market of this size cannot be drawn."""
    require_memory(BYTES_DRAWN * bars * (assets + 1), find_device("cpu"), "bars * assets", bars * assets)


def _array(name: str, given, kind) -> np.ndarray:
    """The array in a type that holds every number of it as it is, but for rounding; ValueError where there is none."""
    try:
        found = np.asarray(given)
        if name == "timestamp" and found.dtype.kind == "M":
            found = found.astype("M8[ns]").astype(np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from error
    whole = np.issubdtype(kind, np.integer)
    if found.size and found.dtype.kind not in ("iu" if whole else "biuf" if kind is bool else "iuf"):
        raise ValueError(f"{name} holds {found.dtype}, must hold {'whole ' if whole else ''}numbers")
    with np.errstate(over="ignore"):  # of features, which `Market.check` refuses
        stored = np.ascontiguousarray(found, kind)
    if (whole or kind is bool) and not np.array_equal(stored, found):
        raise ValueError(f"{name} holds {found[stored != found][0]}, must hold numbers of {np.dtype(kind)}")
    return stored


@dataclass(frozen=True, eq=False)
class Market:
    """Arrays of T bars, oldest first, and N assets; float64 unless another type stands beside them.

    What is None gets its default: all bars tradable, no minimum and no step, fees of the parameters, one segment of all
    bars, features that are not computed yet (`features.prepared`).
    """

    symbols: tuple[str, ...]  # N
    open: np.ndarray  # [T, N] $
    high: np.ndarray  # [T, N] $
    low: np.ndarray  # [T, N] $
    close: np.ndarray  # [T, N] $, P
    volume: np.ndarray  # [T, N] units
    tradable: np.ndarray = None  # [T, N] bool
    timestamp: np.ndarray = None  # [T] int64, ns since 1970 (UTC) of the bar's open; None: counted from 0
    bar_seconds: float = 300.0
    bars_per_year: float = None  # None: 365 days of bars
    min_qty: np.ndarray = None  # [N] q, units
    qty_step: np.ndarray = None  # [N] units, of which orders are multiples; 0: off
    tick: np.ndarray = None  # [N] $, of which prices are multiples; 0: unknown
    fee_buy: np.ndarray = None  # [N] share; NaN: that of the parameters
    fee_sell: np.ndarray = None  # [N] share
    segments: np.ndarray = None  # [S, 2] int64, bars [a, b) without a seam
    train: np.ndarray = None  # [K, 2] int64, bars [a, b) that features are standardised by; None: all
    signal: np.ndarray = None  # [T] int8, planted g, 1 or -1
    visible: bool = False  # the signal is the last feature
    features: np.ndarray = None  # [T, F] float32, X; NaN where not defined
    feature_names: tuple[str, ...] = ()  # F
    mean: np.ndarray = None  # [F] of the bars that features are standardised by
    std: np.ndarray = None  # [F]
    source: str = ""
    licence: str = ""
    sha256: str = ""  # of the file that the table was read from

    def __post_init__(self):
        object.__setattr__(self, "bar_seconds", bar_length("bar_seconds", self.bar_seconds))
        year = SECONDS_A_YEAR / self.bar_seconds if self.bars_per_year is None else self.bars_per_year
        object.__setattr__(self, "bars_per_year", number("bars_per_year", year))
        close = _array("close", self.close, np.float64)
        T, N = close.shape if close.ndim == 2 else (0, 0)
        if self.timestamp is None and T * self.bar_seconds >= LAST_SECOND:
            raise ValueError(
                f"timestamp=None must be given where {T} bars of {self.bar_seconds:g} s reach beyond int64"
            )
        kinds = {"tradable": bool, "signal": np.int8, "features": np.float32}
        kinds |= dict.fromkeys(("timestamp", "segments", "train"), np.int64)
        defaults = {
            "tradable": np.ones((T, N), bool),
            "timestamp": np.round(np.arange(T) * self.bar_seconds * 1e9).astype(np.int64),
            "segments": [[0, T]],
            "train": [[0, T]],
            **dict.fromkeys(PER_SYMBOL[:3], np.zeros(N)),
            **dict.fromkeys(PER_SYMBOL[3:], np.full(N, np.nan)),
        }
        for spec in fields(self):
            value = getattr(self, spec.name)
            value = defaults.get(spec.name) if value is None else value
            if spec.type is np.ndarray and value is not None:
                value = _array(spec.name, value, kinds.get(spec.name, np.float64))
            object.__setattr__(self, spec.name, value)
        for name in ("symbols", "feature_names"):
            names = getattr(self, name)
            if isinstance(names, str) or not isinstance(names, Iterable):
                raise ValueError(f"{name}={names!r} must be a tuple of names")
            object.__setattr__(self, name, tuple(names))

    @property
    def bars(self) -> int:
        """T."""
        return len(self.close)

    @property
    def assets(self) -> int:
        """N."""
        return len(self.symbols)

    @property
    def listed(self) -> np.ndarray:
        """First tradable bar of each asset [N], T where there is none; what is before it is filled in, not traded."""
        return np.where(self.tradable.any(axis=0), self.tradable.argmax(axis=0), self.bars)

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of everything that an episode depends on."""
        found = hashlib.sha256()
        for spec in fields(self):
            value = getattr(self, spec.name)
            if spec.name not in ("source", "licence", "sha256"):
                found.update(f"{spec.name} {getattr(value, 'shape', value)}".encode())
                found.update(value.tobytes() if isinstance(value, np.ndarray) else b"")
        return found.hexdigest()

    def rows(self, first: int, last: int) -> "Market":
        """The market of bars [first, last) alone, one segment; features stay as they are."""
        by_bar = (*BARS, "tradable", "timestamp", "signal", "features")
        cut = {name: getattr(self, name)[first:last] for name in by_bar if getattr(self, name) is not None}
        return replace(self, segments=None, train=None, **cut)

    def check(self, where: str = "market") -> "Market":
        """The market itself.

        Raises:
            ValueError: arrays whose shapes do not fit, numbers that are not finite or out of range, or segments that
                leave the bars or overlap; names the array, the first index, the value and what is allowed.
        """
        T, N = self.bars, self.assets
        if not T or not N:
            raise ValueError(f"{where}: has {T} bars of {N} assets, must have at least one of each")
        for name, given in [("symbols", symbol) for symbol in self.symbols] + [
            (name, getattr(self, name)) for name in ("source", "licence", "sha256")
        ]:
            if not isinstance(given, str) or (name == "symbols" and not (given and given.isprintable())):
                raise ValueError(f"{where}: {name} has {given!r:.60}, must have text")
        if len(set(self.symbols)) < N:
            raise ValueError(f"{where}: symbols={self.symbols} must differ")
        shapes = dict.fromkeys((*BARS, "tradable"), (T, N)) | dict.fromkeys(PER_SYMBOL, (N,)) | {"timestamp": (T,)}
        shapes["segments"] = (len(self.segments), 2)
        shapes["train"] = (len(self.train), 2)
        if self.signal is not None:
            shapes["signal"] = (T,)
        if (self.mean is None) != (self.std is None):
            raise ValueError(f"{where}: mean and std must both be given, or neither")
        if not isinstance(self.visible, bool | np.bool_) or (self.visible and self.signal is None):
            raise ValueError(f"{where}: visible={self.visible!r:.60} must be False, or True where there is a signal")
        if self.features is None and (self.mean is not None or self.feature_names):
            raise ValueError(f"{where}: features must be given where mean, std or feature_names are")
        if self.features is not None:
            F = len(self.feature_names)
            if self.features.ndim == 2 and self.features.shape[1] != F:
                raise ValueError(
                    f"{where}: feature_names={self.feature_names!r:.60} must name {self.features.shape[1]}"
                )
            shapes |= {"features": (T, F)} | dict.fromkeys(() if self.mean is None else ("mean", "std"), (F,))
        for name, shape in shapes.items():
            found = np.shape(getattr(self, name))
            if found != shape:
                raise ValueError(f"{where}: {name} has shape {found}, must have {shape}")
        for name in (*BARS, *PER_SYMBOL[:3]):
            array = getattr(self, name)
            self.refuse(~np.isfinite(array) | (array < 0), name, where, "must be finite and not negative")
        for name in BARS[:4]:
            array = getattr(self, name)
            small = (array > 0) & (array < LEAST_PRICE)
            self.refuse(small, name, where, f"must be 0, or {LEAST_PRICE:g} at least")
        for name, wrong, rule in (
            ("high", self.high < np.maximum(self.open, self.close), "must not be below open and close"),
            ("low", self.low > np.minimum(self.open, self.close), "must not be above open and close"),
        ):
            self.refuse(wrong, name, where, rule)
        for name in PER_SYMBOL[3:]:
            array = getattr(self, name)
            self.refuse((array < 0) | (array > 1), name, where, "must be from 0 to 1, or NaN for the parameters'")
        self.refuse(np.diff(self.timestamp, prepend=self.timestamp[0] - 1) <= 0, "timestamp", where, "must increase")
        if self.signal is not None:
            self.refuse(np.abs(self.signal) != 1, "signal", where, "must be 1 or -1")
        if self.features is not None:
            self.refuse(np.isinf(self.features), "features", where, "must be finite, or NaN where not defined")
        if self.mean is not None:
            self.refuse(~np.isfinite(self.mean), "mean", where, "must be finite")
            self.refuse(~((self.std > 0) & np.isfinite(self.std)), "std", where, "must be positive")
        if not len(self.train):
            raise ValueError(f"{where}: has no train bars, must have at least one")
        for k, (first, last) in enumerate(self.train.tolist()):
            if not 0 <= first < last <= T:
                raise ValueError(f"{where}: train[{k}] is [{first}, {last}), must lie in [0, {T}) and not be empty")
        self._check_segments(where)
        return self

    def _check_segments(self, where: str):
        before = 0
        if not len(self.segments):
            raise ValueError(f"{where}: has no segment, must have at least one")
        for k, (first, last) in enumerate(self.segments.tolist()):
            if not before <= first < last <= self.bars:
                raise ValueError(
                    f"{where}: segments[{k}] is [{first}, {last}), must lie in [{before}, {self.bars}) and not be empty"
                )
            before = last
            price = self.close[first]
            if price.min() <= 0:
                i = int(price.argmin())
                raise ValueError(
                    f"{where}: close[{first}, {i}] ({self.symbols[i]}) is {price[i]}, must be positive "
                    f"in the first row of segment {k}"
                )

    def refuse(self, wrong: np.ndarray, name: str, where: str, rule: str):
        """Raises ValueError at the first number of an array that is wrong."""
        if wrong.any():
            index = tuple(np.argwhere(wrong)[0].tolist())
            value = getattr(self, name)[index]
            raise ValueError(f"{where}: {name}[{', '.join(map(str, index))}] is {value}, {rule}")
