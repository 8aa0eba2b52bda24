"""Rows of a table of bars, one per (time, symbol): reading, checks, and the market that they make (README.md, 4.2)."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lockstep.extras import extra

from ...checks import integer
from .market import BARS, MAX_GAP, Market, bar_length

with extra("trading", of="a table of bars"):
    import pyarrow
    import pyarrow.compute
    import pyarrow.csv
    import pyarrow.parquet

FLAGS = {"0": 0.0, "1": 1.0, "false": 0.0, "true": 1.0}


class Rows(NamedTuple):
    """Columns [R] of one or several files."""

    files: tuple[tuple[str, int], ...]  # name and number of rows
    time: np.ndarray  # int64, ns since 1970 (UTC)
    symbol: np.ndarray  # text
    columns: dict[str, np.ndarray]  # float64: `BARS`, and "tradable", 0 or 1

    def place(self, row: int) -> str:
        """File, row (the first is 1) and symbol."""
        ends = np.cumsum([count for _, count in self.files])
        k = int(np.searchsorted(ends, row, side="right"))
        name, count = self.files[k]
        return f"{name}, row {row - ends[k] + count + 1}, {self.symbol[row]}"

    def refuse(self, wrong: np.ndarray, name: str, rule: str):
        """Raises ValueError at the first row that is wrong."""
        if wrong.any():
            row = int(wrong.argmax())
            value = self.time[row].astype("M8[ns]") if name == "timestamp" else self.columns[name][row]
            raise ValueError(f"{self.place(row)}: {name} is {value}, {rule}")


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of several files."""
    return Rows(
        tuple(file for part in parts for file in part.files),
        np.concatenate([part.time for part in parts]),
        np.concatenate([part.symbol for part in parts]),
        {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns},
    )


def read_table(path: Path, names: Sequence[str] | None = None) -> "pyarrow.Table":
    """The table of a CSV file, all text, or of a Parquet file, by its suffix.

    Args:
        names: of the columns of a CSV file without a header.

    Raises:
        ValueError: not such a file; names it.
    """
    try:
        if path.suffix == ".parquet":
            return pyarrow.parquet.ParquetFile(path).read()
        reading = pyarrow.csv.ReadOptions(column_names=names, use_threads=False)  # threads know no row numbers
        head = names or pyarrow.csv.open_csv(path).schema.names
        text = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(head, pyarrow.string()), strings_can_be_null=False)
        return pyarrow.csv.read_csv(path, reading, convert_options=text)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a table: {error}") from error


def rows_of(path: Path, table: "pyarrow.Table", time: str = "timestamp", symbol: str | None = None) -> Rows:
    """The rows of a table.

    Args:
        time: name of the column of times: ISO-8601 (UTC where no zone is given), or whole numbers.
        symbol: of all rows, whose times are whole numbers; None: column "symbol".

    Raises:
        ValueError: a column is missing or there twice, or holds what is no time, name or number; names file, row,
            symbol and value.
    """
    needed = (time, *(["symbol"] if symbol is None else []), *BARS)
    for name in (*needed, "tradable"):
        count = table.column_names.count(name)
        if count == 0 and name in needed:
            raise ValueError(f"{path}: column {name!r} is missing, must have {', '.join(needed)}")
        if count > 1:
            raise ValueError(f"{path}: column {name!r} is there {count} times, must be there once")
    count = table.num_rows
    if not count:
        raise ValueError(f"{path}: has no rows")
    symbols = _symbols(path, table["symbol"]) if symbol is None else np.full(count, symbol)
    found = Rows(((str(path), count),), np.zeros(count, np.int64), symbols, {})
    for name in BARS:
        found.columns[name] = _numbers(found, name, table[name])
    flags = table["tradable"] if "tradable" in table.column_names else None
    found.columns["tradable"] = np.ones(count) if flags is None else _flags(found, flags)
    return found._replace(time=_times(found, time, table[time], symbol is None))


def _symbols(path: Path, column) -> np.ndarray:
    try:
        names = column.cast(pyarrow.string()).to_pylist()
    except pyarrow.ArrowException:
        raise ValueError(f"{path}: column 'symbol' holds {column.type}, must hold names") from None
    for row, name in enumerate(names):
        if not name:
            raise ValueError(f"{path}, row {row + 1}: symbol is {name!r}, must be a name")
    return np.array(names)


def _numbers(rows: Rows, name: str, column) -> np.ndarray:
    try:
        if pyarrow.types.is_boolean(column.type):
            raise pyarrow.ArrowTypeError("a flag is no number")
        return column.cast(pyarrow.float64()).to_numpy().astype(np.float64)
    except pyarrow.ArrowException:
        row = next((k for k, value in enumerate(column.to_pylist()) if not _castable(value, pyarrow.float64())), 0)
        raise ValueError(f"{rows.place(row)}: {name} is {column[row].as_py()!r}, must be a number") from None


def _castable(value, kind) -> bool:
    if isinstance(value, bool):
        return False
    try:
        pyarrow.array([value]).cast(kind)
    except (pyarrow.ArrowException, OverflowError):
        return False
    return value is not None


def _flags(rows: Rows, column) -> np.ndarray:
    words = [str(value).lower() for value in column.to_pylist()]
    for row, word in enumerate(words):
        if word not in FLAGS:
            raise ValueError(f"{rows.place(row)}: tradable is {word!r}, must be 0 or 1")
    return np.array([FLAGS[word] for word in words])


def _times(rows: Rows, name: str, column, text: bool) -> np.ndarray:
    """Times [R] of a column; of text ones in ns, of whole numbers as they are."""
    whole, aware, naive = pyarrow.int64(), pyarrow.timestamp("ns", "UTC"), pyarrow.timestamp("ns")
    kinds = (whole,)
    if text:
        dated = pyarrow.types.is_temporal(column.type) or pyarrow.types.is_integer(column.type)
        kinds = (naive, whole) if dated else (whole, aware, naive)
    for kind in kinds if column.null_count == 0 else ():
        try:
            return column.cast(kind).cast(whole).to_numpy().astype(np.int64)
        except pyarrow.ArrowException:
            continue
    values = column.to_pylist()
    first = next((kind for kind in kinds if _castable(values[0], kind)), whole)
    row = next((k for k, value in enumerate(values) if not _castable(value, first)), 0)
    rule = "a time as 2024-01-31T12:00:00Z or whole ns, as the other rows" if text else "a whole number of ms or µs"
    raise ValueError(f"{rows.place(row)}: {name} is {values[row]!r}, must be {rule}")


def assembled(
    rows: Rows, bar_seconds: float, symbols: Sequence[str] | None = None, max_gap: int = MAX_GAP, ordered: bool = True
) -> dict:
    """Arrays [T, N] of a market by field: the union of times, oldest first; a missing bar carries the close (the first
    open where there was none, `Market.listed`), with volume 0, and is not tradable.

    Args:
        symbols: N; None: those of the rows, by the alphabet.
        max_gap: bars that may lack between two rows of a symbol, and between two times.
        ordered: times of rows must not decrease.

    Raises:
        ValueError: names file, row, symbol, value and what is allowed.
    """
    for name in BARS:
        rows.refuse(~np.isfinite(rows.columns[name]), name, "must be finite")
    for name in BARS[:4]:
        rows.refuse(rows.columns[name] <= 0, name, "must be positive")
    o, h, low, c, volume = (rows.columns[name] for name in BARS)
    rows.refuse(h < np.maximum(np.maximum(o, c), low), "high", "must not be below open, close and low")
    rows.refuse(low > np.minimum(o, c), "low", "must not be above open and close")
    rows.refuse(volume < 0, "volume", "must not be negative")
    names = sorted(set(rows.symbol.tolist())) if symbols is None else list(symbols)
    places = {name: i for i, name in enumerate(names)}
    asset = np.array([places.get(name, -1) for name in rows.symbol.tolist()])
    if (asset < 0).any():
        row = int((asset < 0).argmax())
        raise ValueError(f"{rows.place(row)}: the symbol is unknown, must be one of {', '.join(names)}")
    if len(set(asset.tolist())) < len(names):
        missing = sorted(set(range(len(names))) - set(asset.tolist()))
        raise ValueError(f"{rows.files[0][0]}: has no row of {names[missing[0]]}")
    if ordered:
        rows.refuse(np.diff(rows.time, prepend=rows.time[0]) < 0, "timestamp", "must not be before the row above")
    step, max_gap = round(bar_length("bar_seconds", bar_seconds) * 1e9), integer("max_gap", max_gap, 0, 2**31 - 1)
    off = (rows.time - rows.time[0]) % step != 0
    rows.refuse(off, "timestamp", f"must be whole bars of {bar_seconds:g} s from that of the first row")
    order = np.lexsort((rows.time, asset))
    same = asset[order[1:]] == asset[order[:-1]]
    apart = np.where(same, np.diff(rows.time[order]), step)
    for wrong, rule in (
        (apart == 0, "is there twice"),
        (apart // step > max_gap + 1, f"comes after a gap of more than {max_gap} bars"),
    ):
        late = np.zeros(len(order), bool)
        late[order[1:][wrong]] = True
        rows.refuse(late, "timestamp", rule)
    times, bar = np.unique(rows.time, return_inverse=True)
    wide = times[1:][np.diff(times) // step > max_gap + 1]
    rows.refuse(np.isin(rows.time, wide), "timestamp", f"comes after a gap of more than {max_gap} bars of all symbols")
    if len(times) > 1 and (closest := np.diff(times).min()) != step:
        raise ValueError(
            f"{rows.files[0][0]}: times are {closest / 1e9:g} s apart or more, must be bars of {bar_seconds:g} s"
        )
    return {"symbols": tuple(names), "timestamp": times} | _filled(rows, bar, asset, (len(times), len(names)))


def _filled(rows: Rows, bar: np.ndarray, asset: np.ndarray, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    there = np.zeros(shape, bool)
    there[bar, asset] = True
    found = {}
    for name in (*BARS, "tradable"):
        found[name] = np.zeros(shape)
        found[name][bar, asset] = rows.columns[name]
    latest = np.maximum.accumulate(np.where(there, np.arange(shape[0])[:, None], -1), axis=0)
    carried = np.take_along_axis(found["close"], np.maximum(latest, 0), axis=0)
    first = np.take_along_axis(found["open"], there.argmax(axis=0)[None], axis=0)
    carried = np.where(latest < 0, first, carried)
    for name in BARS[:4]:
        found[name] = np.where(there, found[name], carried)
    return found | {"tradable": found["tradable"] > 0}


def table_of(market: Market) -> "pyarrow.Table":
    """The table of a market, sorted by time and symbol."""
    T, N = market.close.shape
    columns = {
        "timestamp": pyarrow.array(np.repeat(market.timestamp, N)).cast(pyarrow.timestamp("ns", "UTC")),
        "symbol": pyarrow.array(list(market.symbols) * T),
    }
    columns |= {name: pyarrow.array(getattr(market, name).ravel()) for name in BARS}
    return pyarrow.table(columns | {"tradable": pyarrow.array(market.tradable.ravel().astype(np.int8))})


def write_table(path: Path, table: "pyarrow.Table"):
    """Writes a table as CSV, with times as ISO-8601, or as Parquet."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        text = pyarrow.compute.strftime(table["timestamp"], "%Y-%m-%dT%H:%M:%SZ")
        whole = pyarrow.compute.all(pyarrow.compute.equal(pyarrow.compute.nanosecond(table["timestamp"]), 0)).as_py()
        table = table.set_column(0, "timestamp", text if whole else table["timestamp"].cast(pyarrow.int64()))
        pyarrow.csv.write_csv(table, path)
