"""Files of a market: a table of bars, CSV or Parquet, and `meta.json` beside it (README.md, 4.2)."""

import dataclasses
import hashlib
import json
import math
import os
from pathlib import Path

import numpy as np

from ... import reading
from .market import MAX_GAP, PER_SYMBOL, SECONDS_A_YEAR, SUFFIXES, Market, bar_length, instance, number

META = "meta.json"
KEYS = ("bar_seconds", "symbols", "sha256")  # that it must have


def save(path, market: Market, max_gap: int = MAX_GAP):
    """Writes a market's bars and `meta.json` beside them; neither features nor signal nor segments.

    A table that `save` has written is replaced, no other file.

    Args:
        max_gap: bars that may lack between two times, as in `load`.

    Raises:
        ValueError: another suffix than .csv and .parquet, what `Market.check` or `load` refuses, as a price that is not
            positive, another file that the folder holds, or one that cannot be written; names it.
        ImportError: pyarrow is not installed.
    """
    from .rows import assembled, rows_of, table_of, write_table

    path = _path(path)
    instance("market", market, Market).check(str(path))
    table = table_of(market)
    assembled(rows_of(path, table), market.bar_seconds, market.symbols, max_gap)
    try:
        _refuse_foreign(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(path, table)
        _write_meta(path, market)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}") from error


def _path(given) -> Path:
    return reading.path_of(given, "a table of bars, .csv or .parquet", SUFFIXES)


def _refuse_foreign(path: Path):
    """Raises ValueError where `save` would replace a file that it has not written."""
    meta = path.parent / META
    content = read_json(meta) if meta.exists() else {"table": None} | dict.fromkeys(KEYS)
    if not isinstance(content, dict) or not content.keys() >= {"table", *KEYS}:
        raise ValueError(f"{path}: {META} beside it is none of a table written here: take a folder of its own")
    other = content["table"]
    if isinstance(other, str) and other != path.name and (path.parent / other).exists():
        raise ValueError(f"{path}: {META} beside it is of {other!r}, must be of one table: take a folder of its own")
    if other != path.name and path.exists():
        raise ValueError(f"{path} is there and no table written here, must be a new file")


def _write_meta(path: Path, market: Market):
    symbols = {
        symbol: {name: getattr(market, name)[i].item() for name in PER_SYMBOL if not np.isnan(getattr(market, name)[i])}
        for i, symbol in enumerate(market.symbols)
    }
    content = {
        "bar_seconds": market.bar_seconds,
        "bars_per_year": market.bars_per_year,
        "source": market.source,
        "licence": market.licence,
        "symbols": symbols,
        "table": path.name,
        "sha256": _sha256(path),
    }
    (path.parent / META).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load(path, max_gap: int = MAX_GAP) -> Market:
    """The market of a table of bars and of `meta.json` beside it.

    Args:
        max_gap: bars that may lack between two rows of a symbol, and between two times.

    Raises:
        ValueError: not what was written, or rows that are wrong; names file, row, symbol, value and what is allowed.
        ImportError: pyarrow is not installed.
    """
    from .rows import assembled, read_table, rows_of

    path = _path(path)
    content, table = _meta(path), read_table(path)
    found = _sha256(path)
    if content["sha256"] != found:
        of = f" of {content['table']!r}" if "table" in content else ""
        raise ValueError(f"{path}: its SHA-256 is {found}, {META} beside it states {content['sha256']}{of}")
    arrays = assembled(rows_of(path, table), content["bar_seconds"], tuple(content["symbols"]), max_gap)
    rows = content["symbols"].values()
    plain = dict.fromkeys(PER_SYMBOL[:3], 0.0) | dict.fromkeys(PER_SYMBOL[3:], math.nan)
    arrays |= {name: np.array([row.get(name, plain[name]) for row in rows]) for name in PER_SYMBOL}
    stated = {name: content[name] for name in ("bar_seconds", "bars_per_year", "source", "licence", "sha256")}
    return Market(**arrays, **stated).check(str(path))


def with_rules(market: Market, symbols: dict[str, dict[str, float]]) -> Market:
    """The market with numbers of `PER_SYMBOL` by symbol; what is not given stays.

    Raises:
        ValueError: an unknown symbol, or numbers that are not; names it.
    """
    known = {symbol: i for i, symbol in enumerate(instance("market", market, Market).symbols)}
    arrays = {name: getattr(market, name).copy() for name in PER_SYMBOL}
    for symbol, row in _checked_rules("symbols", symbols).items():
        if symbol not in known:
            raise ValueError(f"symbols: {symbol!r} is unknown, must be one of {', '.join(known)}")
        for name, value in row.items():
            arrays[name][known[symbol]] = value
    return dataclasses.replace(market, **arrays).check()


def read_json(path: Path):
    """The object of a JSON file; ValueError where it cannot be read, or names a field twice."""
    return reading.parsed(reading.content(path), path)


def _meta(table: Path) -> dict:
    path = table.parent / META
    try:
        missing = None if os.path.lexists(path) else path if table.exists() else table
    except OSError as error:  # a name that is too long
        raise ValueError(f"{table} cannot be read: {error.strerror}") from error
    if missing:
        raise ValueError(f"{missing} is missing, must lie beside {META if missing is table else table.name}")
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path}: is {type(content).__name__}, must be an object")
    for name in KEYS:
        if name not in content:
            raise ValueError(f"{path}: {name} is missing")
    bar = bar_length(f"{path}: bar_seconds", content["bar_seconds"])
    content = {"source": "", "licence": "", "bars_per_year": SECONDS_A_YEAR / bar} | content
    number(f"{path}: bars_per_year", content["bars_per_year"])
    for name in ("source", "licence", "sha256"):
        if not isinstance(content[name], str):
            raise ValueError(f"{path}: {name}={content[name]!r} must be text")
    _checked_rules(f"{path}: symbols", content["symbols"])
    return content


def _checked_rules(name: str, symbols) -> dict:
    if not isinstance(symbols, dict) or not symbols:
        raise ValueError(f"{name} must be an object of one symbol or more")
    for symbol, row in symbols.items():
        if not isinstance(row, dict):
            raise ValueError(f"{name}: {symbol!r} is {row!r:.40}, must be an object")
        for rule, value in row.items():
            if rule not in PER_SYMBOL:
                raise ValueError(f"{name}: {symbol!r} has {rule!r}, known: {', '.join(PER_SYMBOL)}")
            number(f"{name}: {symbol!r}: {rule}", value, 0.0)
    return symbols


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
