"""Readers of published tables of bars: Alpaca's, and Binance's klines (README.md, 4.2)."""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ... import reading
from .market import MAX_GAP, SUFFIXES, Market

KLINES = ("open_time", "open", "high", "low", "close", "volume", "close_time", "quote_volume", "trades", "taker_base",
          "taker_quote", "ignore")  # fmt: skip
MICROSECONDS = 10**14  # a larger open time is in µs, else in ms
LATEST = 2**63 - 1  # ns


def alpaca(paths: Iterable, bar_seconds: float = 300.0, max_gap: int = MAX_GAP) -> Market:
    """The market of Alpaca's bars: timestamp, symbol, open, high, low, close, volume, and columns that are not read.

    Args:
        paths: of one file or more, CSV or Parquet, rows in any order.
        max_gap: bars that may lack between two rows of a symbol, and between two times.

    Raises:
        ValueError: names file, row, symbol, value and what is allowed.
        ImportError: pyarrow is not installed.
    """
    from .rows import assembled, joined, read_table, rows_of

    files = _files(paths)
    rows = joined([rows_of(path, read_table(path)) for path in files])
    return _market(assembled(rows, bar_seconds, max_gap=max_gap, ordered=False), bar_seconds, "Alpaca", files)


def binance(paths: Iterable, bar_seconds: float = 300.0, max_gap: int = MAX_GAP) -> Market:
    """The market of Binance's klines: 12 columns without a header, open time in ms, or in µs if above 1e14.

    Args:
        paths: of one file or more; the symbol is the file's name up to the first "-", as in BTCUSDT-5m-2024-01.csv.
        max_gap: bars that may lack between two rows of a symbol, and between two times.

    Raises:
        ValueError: names file, row, symbol, value and what is allowed.
        ImportError: pyarrow is not installed.
    """
    from .rows import assembled, joined, read_table, rows_of

    files, parts = _files(paths), []
    for path in files:
        symbol = path.stem.partition("-")[0]
        if not symbol:
            raise ValueError(f"{path}: the name must begin with a symbol, as BTCUSDT-5m-2024-01.csv")
        rows = rows_of(path, read_table(path, KLINES), "open_time", symbol)
        unit = np.where(rows.time > MICROSECONDS, 10**3, 10**6)  # ns
        wrong = (rows.time < 0) | (rows.time > LATEST // unit)
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(f"{rows.place(row)}: open_time is {rows.time[row]}, must be ms or µs since 1970")
        parts.append(rows._replace(time=rows.time * unit))
    found = assembled(joined(parts), bar_seconds, max_gap=max_gap, ordered=False)
    return _market(found, bar_seconds, "Binance", files)


def _files(paths: Iterable) -> list[Path]:
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    if isinstance(paths, bytes) or not isinstance(paths, Iterable):
        raise ValueError(f"paths={paths!r:.60} must be those of tables of bars, .csv or .parquet")
    found = [reading.path_of(path, "a table of bars, .csv or .parquet", SUFFIXES) for path in paths]
    if not found:
        raise ValueError("paths: no file is given")
    return found


def _market(arrays: dict, bar_seconds: float, name: str, files: list[Path]) -> Market:
    source = f"{name}: {', '.join(path.name for path in files)}"
    return Market(**arrays, bar_seconds=bar_seconds, source=source, licence="see the source").check(name)


IMPORTERS = {"alpaca": alpaca, "binance": binance}
