"""Tables of bars: what is written is read, importers, the command, and every error by file, row, symbol and value."""

import dataclasses
import datetime
import hashlib
import json
import re

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from lockstep.envs.crypto_trading.original import make
from lockstep.envs.crypto_trading.scenario import alpaca, binance, generate, load, save, with_rules
from lockstep.envs.crypto_trading.scenario.__main__ import main
from lockstep.envs.crypto_trading.scenario.market import BARS, PER_SYMBOL

TINY = generate("tiny", bars=5, assets=2)
HEADER = "timestamp,symbol,open,high,low,close,volume"
ROWS = [
    "2024-01-31T12:00:00Z,A,10,12,9,11,5",
    "2024-01-31T12:00:00Z,B,1,1,1,1,0",
    "2024-01-31T12:05:00Z,A,11,11,10,10,6",
    "2024-01-31T12:05:00Z,B,1,2,1,2,7",
]
NOON = 1_706_702_400 * 10**9  # ns


def written(folder, rows=ROWS, header=HEADER, name="bars.csv", **meta):
    """A table and its meta.json."""
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n")
    content = {"bar_seconds": 300, "symbols": {"A": {}, "B": {}}}
    content["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "meta.json").write_text(json.dumps(content | meta))
    return path


# ---- our own


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_market_is_read_as_it_was_written(tmp_path, suffix):
    given = dataclasses.replace(
        generate("tiny", gaps=[(1, 5, 20)]), fee_buy=[0.001, np.nan, 0.002], qty_step=[0.5, 0, 0], source="drawn",
        licence="free", bars_per_year=1000.0, timestamp=NOON + np.arange(400) * 300 * 10**9,
    )  # fmt: skip
    path = tmp_path / "deep" / f"bars.{suffix}"
    save(path, given)
    found = load(path)
    for name in (*BARS, "tradable", "timestamp", *PER_SYMBOL):
        assert np.array_equal(getattr(found, name), getattr(given, name), equal_nan=name in PER_SYMBOL), name
    for name in ("symbols", "bar_seconds", "bars_per_year", "source", "licence"):
        assert getattr(found, name) == getattr(given, name), name
    meta = json.loads((path.parent / "meta.json").read_text())
    assert found.sha256 == meta["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert meta["symbols"]["SYN00"] == {"min_qty": 0.01, "qty_step": 0.5, "tick": 0.001, "fee_buy": 0.001}
    assert make(scenario=path).market.bars == 400


def test_times_may_be_iso_or_nanoseconds(tmp_path):
    expected = [NOON, NOON + 300 * 10**9]
    for k, style in enumerate(("{}Z", "{}", "{}+00:00", None)):
        times = [
            style.format(t) if style else str(ns)
            for t, ns in zip(("2024-01-31T12:00:00", "2024-01-31T12:05:00"), expected, strict=True)
        ]
        rows = [f"{times[i // 2]},{row.partition(',')[2]}" for i, row in enumerate(ROWS)]
        (tmp_path / str(k)).mkdir()
        assert load(written(tmp_path / str(k), rows)).timestamp.tolist() == expected


def test_times_between_seconds_are_written_as_nanoseconds(tmp_path):
    given = dataclasses.replace(TINY, timestamp=NOON + 5 + np.arange(5) * 300 * 10**9)
    save(tmp_path / "bars.csv", given)
    assert load(tmp_path / "bars.csv").timestamp.tolist() == given.timestamp.tolist()


def test_a_missing_bar_carries_the_close(tmp_path):
    rows = [ROWS[0], "2024-01-31T12:05:00Z,B,3,4,3,4,7", "2024-01-31T12:10:00Z,A,12,13,12,13,8"]
    found = load(written(tmp_path, rows))
    assert found.close.tolist() == [[11, 3], [11, 4], [13, 4]] and found.open.tolist() == [[10, 3], [11, 3], [12, 4]]
    assert found.volume.tolist() == [[5, 0], [0, 7], [8, 0]]
    assert found.tradable.tolist() == [[True, False], [False, True], [True, False]]


def test_rows_say_themselves_what_is_not_tradable(tmp_path):
    rows = [f"{row},{flag}" for row, flag in zip(ROWS, ("1", "0", "true", "False"), strict=True)]
    found = load(written(tmp_path, rows, f"{HEADER},tradable"))
    assert found.tradable.tolist() == [[True, False], [True, False]]


def edited(row: int, column: str, value: str) -> list[str]:
    cells = ROWS[row - 1].split(",")
    cells[HEADER.split(",").index(column)] = value
    return [*ROWS[: row - 1], ",".join(cells), *ROWS[row:]]


def later(minutes: int) -> str:
    return f"2024-01-31T{12 + minutes // 60}:{minutes % 60:02d}:00Z,A,1,1,1,1,1"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (edited(3, "close", "ten"), "bars.csv, row 3, A: close is 'ten', must be a number"),
        (edited(3, "close", ""), "bars.csv, row 3, A: close is '', must be a number"),
        (edited(3, "close", "nan"), "bars.csv, row 3, A: close is nan, must be finite"),
        (edited(2, "volume", "inf"), "bars.csv, row 2, B: volume is inf, must be finite"),
        (edited(4, "open", "0"), "bars.csv, row 4, B: open is 0.0, must be positive"),
        (edited(4, "low", "-1"), "bars.csv, row 4, B: low is -1.0, must be positive"),
        (edited(1, "high", "10.5"), "bars.csv, row 1, A: high is 10.5, must not be below open, close and low"),
        (edited(1, "low", "10.5"), "bars.csv, row 1, A: low is 10.5, must not be above open and close"),
        (edited(2, "volume", "-3"), "bars.csv, row 2, B: volume is -3.0, must not be negative"),
        (edited(2, "symbol", "C"), "bars.csv, row 2, C: the symbol is unknown, must be one of A, B"),
        (edited(4, "symbol", "A"), "bars.csv, row 4, A: timestamp is 2024-01-31T12:05:00.000000000, is there twice"),
        ([*ROWS[2:], *ROWS[:2]], "row 3, A: timestamp is 2024-01-31T12:00:00.000000000, must not be before the"),
        (edited(4, "timestamp", "2024-01-31T12:05:01Z"), "05:01.000000000, must be whole bars of 300 s from that of"),
        (edited(4, "timestamp", "noon"), "bars.csv, row 4, B: timestamp is 'noon', must be a time as 2024-01-31"),
        ([*ROWS, later(75)], "row 5, A: timestamp is 2024-01-31T13:15:00.000000000, comes after a gap of more"),
        ([ROWS[0], ROWS[2]], "bars.csv: has no row of B"),
        ([], "has no rows"),
    ],
)  # fmt: skip
def test_wrong_rows_are_named(tmp_path, rows, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        load(written(tmp_path, rows))


def test_gaps_may_be_as_long_as_is_said(tmp_path):
    assert load(written(tmp_path, [*ROWS, later(70)])).bars == 3
    assert load(written(tmp_path, [*ROWS, later(75)]), max_gap=13).bars == 3


def test_a_flag_that_is_none_is_named(tmp_path):
    rows = [f"{row},{flag}" for row, flag in zip(ROWS, ("1", "0", "yes", "1"), strict=True)]
    with pytest.raises(ValueError, match="bars.csv, row 3, A: tradable is 'yes', must be 0 or 1"):
        load(written(tmp_path, rows, f"{HEADER},tradable"))


@pytest.mark.parametrize("column", HEADER.split(","))
def test_a_missing_column_is_named(tmp_path, column):
    with pytest.raises(ValueError, match=f"bars.csv: column '{column}' is missing, must have timestamp, symbol, open"):
        load(written(tmp_path, header=HEADER.replace(column, "other")))


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"sha256": "0" * 64}, "bars.csv: its SHA-256 is .*, meta.json beside it states 0{64}$"),
        ({"bar_seconds": 0}, "meta.json: bar_seconds=0 must be a number from"),
        ({"bars_per_year": "many"}, "meta.json: bars_per_year='many' must be a number"),
        ({"source": 3}, "meta.json: source=3 must be text"),
        ({"symbols": []}, "meta.json: symbols must be an object of one symbol or more"),
        ({"symbols": {"A": 1, "B": {}}}, "symbols: 'A' is 1, must be an object"),
        ({"symbols": {"A": {"fee": 1}, "B": {}}}, "symbols: 'A' has 'fee', known: min_qty"),
        ({"symbols": {"A": {"tick": -1}, "B": {}}}, "symbols: 'A': tick=-1 must be a number from 0"),
        ({"symbols": {"A": {"fee_buy": 2}, "B": {}}}, r"fee_buy\[0\] is 2.0, must be from 0 to 1"),
    ],
)
def test_a_wrong_meta_file_is_named(tmp_path, meta, message):
    with pytest.raises(ValueError, match=message):
        load(written(tmp_path, **meta))


def test_files_that_are_none_are_named(tmp_path):
    with pytest.raises(ValueError, match="path=5 must be that of a table of bars, .csv or .parquet"):
        load(5)
    with pytest.raises(ValueError, match="bars.csv is missing, must lie beside meta.json"):
        load(tmp_path / "bars.csv")
    path = written(tmp_path)
    (tmp_path / "meta.json").unlink()
    with pytest.raises(ValueError, match="meta.json is missing, must lie beside bars.csv"):
        load(path)
    path = written(tmp_path)
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(ValueError, match="folder.parquet cannot be read"):
        load(tmp_path / "folder.parquet")
    (tmp_path / "meta.json").write_text("{")
    with pytest.raises(ValueError, match="meta.json: not JSON"):
        load(path)
    (tmp_path / "meta.json").write_text("[]")
    with pytest.raises(ValueError, match="meta.json: is list, must be an object"):
        load(path)
    (tmp_path / "meta.json").write_text('{"bar_seconds": 300, "symbols": {}}')
    with pytest.raises(ValueError, match="meta.json: sha256 is missing"):
        load(path)
    written(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match="bars.csv cannot be read"):
        load(path)
    with pytest.raises(ValueError, match="bars.txt: the suffix must be .csv or .parquet"):
        load(tmp_path / "bars.txt")
    with pytest.raises(ValueError, match="bars.txt: the suffix must be .csv or .parquet"):
        save(tmp_path / "bars.txt", TINY)
    with pytest.raises(ValueError, match="bars.parquet: not a table"):
        load(written(tmp_path, name="bars.parquet"))


def test_a_parquet_file_that_was_cut_is_named(tmp_path):
    path = tmp_path / "bars.parquet"
    save(path, TINY)
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 9):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="bars.parquet(: not a table| cannot be read)"):
            load(path)


def test_a_market_that_could_not_be_read_again_is_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"bars.csv: volume\[0, 0\] is nan, must be finite"):
        save(tmp_path / "bars.csv", dataclasses.replace(TINY, volume=np.full((5, 2), np.nan)))
    assert not (tmp_path / "bars.csv").exists()


def test_a_place_that_holds_no_file_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="file/bars.csv cannot be written: "):
        save(tmp_path / "file" / "bars.csv", generate("tiny", bars=5, assets=2))


def test_a_folder_has_one_table(tmp_path):
    save(tmp_path / "one.csv", TINY)
    save(tmp_path / "one.csv", TINY)
    with pytest.raises(ValueError, match="two.csv: meta.json beside it is of 'one.csv', must be of one table"):
        save(tmp_path / "two.csv", TINY)
    assert load(tmp_path / "one.csv").bars == 5
    (tmp_path / "two.csv").write_bytes((tmp_path / "one.csv").read_bytes() + b"\n")
    with pytest.raises(ValueError, match="two.csv: its SHA-256 is .* beside it states .* of 'one.csv'"):
        load(tmp_path / "two.csv")
    (tmp_path / "one.csv").unlink()
    (tmp_path / "two.csv").unlink()
    save(tmp_path / "two.csv", TINY)
    assert load(tmp_path / "two.csv").bars == 5


def columns(**other) -> dict:
    """Columns of a Parquet file with the rows of ROWS, some of them others."""
    rows = list(zip(*(row.split(",") for row in ROWS), strict=True))
    found = {name: [float(cell) for cell in row] for name, row in zip(HEADER.split(",")[2:], rows[2:], strict=True)}
    return {"timestamp": rows[0], "symbol": rows[1]} | found | other


def parquet(folder, **other):
    """A Parquet file of these columns, and its meta.json."""
    path = written(folder, name="bars.parquet")
    pyarrow.parquet.write_table(pyarrow.table(columns(**other)), path)
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}))
    return path


MOMENTS = [datetime.datetime(2024, 1, 31, 12, minute, tzinfo=datetime.UTC) for minute in (0, 0, 5, 5)]


@pytest.mark.parametrize(
    "times",
    [
        pyarrow.array(columns()["timestamp"], pyarrow.large_string()),
        pyarrow.array(MOMENTS, pyarrow.timestamp("us", "UTC")),
        pyarrow.array(MOMENTS, pyarrow.timestamp("ns", "America/New_York")),
        pyarrow.array([moment.replace(tzinfo=None) for moment in MOMENTS], pyarrow.timestamp("ms")),
        pyarrow.array([NOON, NOON, NOON + 300 * 10**9, NOON + 300 * 10**9], pyarrow.uint64()),
    ],
    ids=lambda times: str(times.type),
)
def test_times_of_parquet_files_are_one_moment_in_every_type(tmp_path, times):
    assert load(parquet(tmp_path, timestamp=times)).timestamp.tolist() == [NOON, NOON + 300 * 10**9]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"close": [11.0, 1.0, None, 2.0]}, "bars.parquet, row 3, A: close is nan, must be finite"),
        ({"close": [[11.0], [1.0], [10.0], [2.0]]}, r"row 1, A: close is \[11.0\], must be a number"),
        ({"close": [True, True, False, True]}, "row 1, A: close is True, must be a number"),
        ({"volume": MOMENTS}, "row 1, A: volume is .*2024.*, must be a number"),
        ({"symbol": ["A", "B", None, "B"]}, "bars.parquet, row 3: symbol is None, must be a name"),
        ({"symbol": [["A"]] * 4}, "bars.parquet: column 'symbol' holds list.*, must hold names"),
        ({"timestamp": [NOON, NOON, None, NOON]}, "row 3, A: timestamp is None, must be a time as 2024-01-31"),
        ({"timestamp": [float(NOON), NOON + 0.0, 0.5, 1.0]}, "row 3, A: timestamp is 0.5, must be a time as 2024"),
        ({"timestamp": pyarrow.array([2**64 - 1] * 4, pyarrow.uint64())}, "A: timestamp is 18446744073709551615, must"),
    ],
)  # fmt: skip
def test_wrong_types_of_parquet_files_are_named(tmp_path, other, message):
    with pytest.raises(ValueError, match=message):
        load(parquet(tmp_path, **other))


@pytest.mark.parametrize(("column", "count"), [("close", 2), ("tradable", 3)])
def test_a_column_that_is_there_twice_is_named(tmp_path, column, count):
    header = HEADER + f",{column}" * (count - HEADER.count(column))
    rows = [row + ",1" * (count - HEADER.count(column)) for row in ROWS]
    with pytest.raises(ValueError, match=f"bars.csv: column '{column}' is there {count} times, must be there once"):
        load(written(tmp_path, rows, header))


def test_a_price_of_zero_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="bars.csv, row 8, SYN01: low is 0.0, must be positive"):
        save(tmp_path / "bars.csv", generate("tiny", zero=[(1, 2, 1)]))


# ---- published tables


def test_bars_of_alpaca(tmp_path):
    lines = [
        "timestamp,symbol,open,high,low,close,volume,trade_count,vwap",
        "2024-01-31 12:00:00+00:00,BTC/USD,40000,40100,39900,40050,1.5,10,40000.5",
        "2024-01-31 12:05:00+00:00,BTC/USD,40050,40060,40000,40010,0.5,4,40020",
        "2024-01-31 12:05:00+00:00,AAVE/USD,90,91,89,90,20,3,90",
    ]
    (tmp_path / "alpaca.csv").write_text("\n".join(lines))
    found = alpaca(tmp_path / "alpaca.csv")
    assert found.symbols == ("AAVE/USD", "BTC/USD") and found.timestamp.tolist() == [NOON, NOON + 300 * 10**9]
    assert found.close.tolist() == [[90, 40050], [90, 40010]] and found.volume.tolist() == [[0, 1.5], [20, 0.5]]
    assert found.tradable.tolist() == [[False, True], [True, True]] and found.source == "Alpaca: alpaca.csv"


@pytest.mark.parametrize("unit", [10**6, 10**3])
def test_klines_of_binance_in_milliseconds_and_microseconds(tmp_path, unit):
    def kline(k: int, price: float) -> str:
        return f"{(NOON + k * 300 * 10**9) // unit},{price},{price + 1},{price - 1},{price + 0.5},7,0,0,3,0,0,0"

    (tmp_path / "BTCUSDT-5m-2024-01.csv").write_text(f"{kline(0, 100)}\n{kline(1, 101)}\n")
    (tmp_path / "BTCUSDT-5m-2024-02.csv").write_text(f"{kline(2, 102)}\n")
    (tmp_path / "ETHUSDT-5m-2024-01.csv").write_text(f"{kline(0, 10)}\n{kline(2, 11)}\n")
    found = binance(sorted(tmp_path.glob("*.csv")))
    assert found.symbols == ("BTCUSDT", "ETHUSDT")
    assert found.timestamp.tolist() == [NOON + k * 300 * 10**9 for k in range(3)]
    assert found.close.tolist() == [[100.5, 10.5], [101.5, 10.5], [102.5, 11.5]]
    assert found.tradable.tolist() == [[True, True], [True, False], [True, True]]
    (tmp_path / "ETHUSDT-5m-2024-02.csv").write_text(f"{kline(3, 10)}\n{kline(3, 11)}\n")
    with pytest.raises(ValueError, match="ETHUSDT-5m-2024-02.csv, row 2, ETHUSDT: timestamp is .*, is there twice"):
        binance(sorted(tmp_path.glob("*.csv")))
    with pytest.raises(ValueError, match="paths: no file is given"):
        binance([])


@pytest.mark.parametrize("paths", [None, 5, b"a.csv", [5], ["a.csv", None], "bars.txt"])
def test_paths_of_no_tables_are_named(paths):
    with pytest.raises(ValueError, match="must be (that of a table|those of tables) of bars|suffix must"):
        alpaca(paths)


def test_a_file_without_a_symbol_in_its_name_is_named(tmp_path):
    (tmp_path / "-5m.csv").write_text("0,1,1,1,1,1,0,0,0,0,0,0\n")
    with pytest.raises(ValueError, match="-5m.csv: the name must begin with a symbol, as BTCUSDT-5m-2024-01.csv"):
        binance(tmp_path / "-5m.csv")


def test_files_of_one_name_are_told_apart(tmp_path):
    for folder, close in (("one", "100.5"), ("two", "nan")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "BTCUSDT.csv").write_text(f"{NOON // 10**6},100,101,99,{close},7,0,0,3,0,0,0\n")
    with pytest.raises(ValueError, match="two/BTCUSDT.csv, row 1, BTCUSDT: close is nan, must be finite"):
        binance([tmp_path / "one" / "BTCUSDT.csv", tmp_path / "two" / "BTCUSDT.csv"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"{HEADER},\xe9\n".encode("latin-1"), "bars.csv: not a table: .*utf-8"),
        (f"{HEADER}\n{ROWS[0]}\n{ROWS[1]},7\n".encode(), r"bars.csv: not a table: .*Row #3"),
        (b"\x1f\x8b\x08\x00" + bytes(range(200)), "bars.csv: "),
    ],
)
def test_bytes_of_no_table_are_named(tmp_path, content, message):
    path = written(tmp_path)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load(path)


ALPACA = [
    "timestamp,symbol,open,high,low,close,volume,trade_count,vwap",
    "2024-01-31 12:00:00+00:00,BTC/USD,40000,40100,39900,40050,1.5,10,40000.5",
    "2024-01-31 13:00:00+00:00,BTC/USD,40050,40060,40000,40010,0.5,4,40020",
]


def test_bars_of_another_length_are_not_taken_for_gaps(tmp_path):
    path = tmp_path / "hourly.csv"
    path.write_text("\n".join(ALPACA))
    with pytest.raises(ValueError, match="hourly.csv: times are 3600 s apart or more, must be bars of 300 s"):
        alpaca(path)
    assert alpaca(path, bar_seconds=3600).bars_per_year == 365 * 24


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bar_seconds": 0}, "bar_seconds=0 must be a number from 1e-09 to"),
        ({"bar_seconds": "5m"}, "bar_seconds='5m' must be a number"),
        ({"max_gap": -1}, "max_gap=-1 must be an integer from 0"),
    ],
)
def test_wrong_numbers_of_an_import_are_named(tmp_path, options, message):
    path = tmp_path / "hourly.csv"
    path.write_text("\n".join(ALPACA))
    with pytest.raises(ValueError, match=message):
        alpaca(path, **options)


def test_a_row_without_a_symbol_is_named(tmp_path):
    path = tmp_path / "alpaca.csv"
    path.write_text("\n".join([*ALPACA[:2], ALPACA[2].replace("BTC/USD", "")]))
    with pytest.raises(ValueError, match="alpaca.csv, row 2: symbol is '', must be a name"):
        alpaca(path, bar_seconds=3600)


@pytest.mark.parametrize(
    ("time", "message"),
    [
        ("2024-01-31T12:00:00Z", "open_time is '2024-01-31T12:00:00Z', must be a whole number of ms or µs"),
        (str(NOON), f"open_time is {NOON}, must be ms or µs since 1970"),
        ("-300000", "open_time is -300000, must be ms or µs since 1970"),
        ("90000000000000", "open_time is 90000000000000, must be ms or µs since 1970"),
    ],
)
def test_wrong_times_of_klines_are_named(tmp_path, time, message):
    path = tmp_path / "BTCUSDT-5m-2024-01.csv"
    path.write_text(f"{NOON // 10**6},1,1,1,1,1,0,0,3,0,0,0\n{time},1,1,1,1,1,0,0,3,0,0,0\n")
    with pytest.raises(ValueError, match=f"BTCUSDT-5m-2024-01.csv, row 2, BTCUSDT: {message}"):
        binance(path)


def test_klines_of_another_number_of_columns_or_with_a_header_are_named(tmp_path):
    path = tmp_path / "BTCUSDT-5m-2024-01.csv"
    path.write_text(f"{NOON // 10**6},1,1,1,1,1,0\n")
    with pytest.raises(ValueError, match="BTCUSDT-5m-2024-01.csv: not a table: .*Expected 12 columns, got 7"):
        binance(path)
    path.write_text(f"open_time,{','.join('abcdefghijk')}\n{NOON // 10**6},1,1,1,1,1,0,0,3,0,0,0\n")
    with pytest.raises(ValueError, match="BTCUSDT-5m-2024-01.csv, row 1, BTCUSDT: open is 'a', must be a number"):
        binance(path)


def test_rules_of_trading_are_added_to_what_was_imported():
    found = with_rules(TINY, {"SYN01": {"fee_buy": 0.001, "qty_step": 0.1}})
    assert found.qty_step.tolist() == [0, 0.1] and found.fee_buy[1] == 0.001 and np.isnan(found.fee_buy[0])
    assert found.min_qty.tolist() == TINY.min_qty.tolist()
    with pytest.raises(ValueError, match="symbols: 'BTC' is unknown, must be one of SYN00, SYN01"):
        with_rules(TINY, {"BTC": {}})


# ---- the command


def test_the_command_generates_imports_and_checks(tmp_path, capsys):
    path = tmp_path / "made" / "bars.csv"
    assert main(["generate", str(path), "--set", "tiny", "--bars", "30", "--seed", "4"]) == 0
    said = "bars.csv: 30 bars of 3 assets (SYN00, SYN01, SYN02), 300 s each, 1970-01-01T00:00:00Z to"
    assert said in capsys.readouterr().out
    assert np.array_equal(load(path).close, generate("tiny", 4, bars=30).close)
    rules = tmp_path / "rules.json"
    rules.write_text('{"SYN02": {"min_qty": 3}}')
    other = tmp_path / "imported" / "bars.parquet"
    assert main(["import", "alpaca", str(other), str(path), "--rules", str(rules)]) == 0
    assert load(other).min_qty.tolist() == [0, 0, 3]
    assert main(["check", str(other), "--lookback", "14"]) == 0
    assert capsys.readouterr().out.count("30 bars of 3 assets") == 2
    assert main(["check", str(other), "--lookback", "15"]) == 2
    assert "has 30 bars, must have at least 31 for lookback=15" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "none.csv")]) == 2
    assert "error: " in capsys.readouterr().err
    rules.write_text("{")
    assert main(["import", "alpaca", str(other), str(path), "--rules", str(rules)]) == 2
    assert "rules.json: not JSON" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["generate", str(path), "--set", "huge"])


def test_the_command_says_what_is_wrong_with_its_arguments(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for words, message in (
        (["generate", str(tmp_path / "file" / "bars.csv"), "--set", "tiny"], "file"),
        (["generate", str(tmp_path / "bars.csv"), "--bars", "0"], "bars=0 must be an integer from 1"),
        (["check", str(tmp_path / "bars.csv"), "--lookback", "0"], "lookback=0 must be an integer from 1 to 1000"),
    ):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: ") and message in said and said.count("\n") == 1


# ---- what a review found


def late(price: float):
    """A market of 12 bars of A, and of B from bar 6 on, where it opens at this price."""
    time = NOON + np.arange(12) * 300 * 10**9
    ones, own = np.ones(12), np.where(np.arange(12) < 6, price, price + np.arange(12) % 3)
    close = np.column_stack([ones, own])
    there = np.column_stack([ones > 0, np.arange(12) >= 6])
    return dataclasses.replace(
        TINY, symbols=("A", "B"), timestamp=time, open=close, high=close, low=close, close=close, tradable=there,
        volume=close * there, segments=None, train=None,
    )  # fmt: skip


@pytest.mark.parametrize("features", ["clean", "cappuccino"])
def test_nothing_shows_the_price_of_an_asset_before_it_is_listed(features):
    one, other = (make(scenario=late(price), features=features) for price in (106.0, 250.0))
    for t in range(6):
        found = [env.reset(seed=0)[0] if t == 0 else env.step(np.ones(2))[0] for env in (one, other)]
        if t < 5:
            assert np.array_equal(one.market.features[t], other.market.features[t], equal_nan=True)
            assert one.account == other.account, t
    assert np.isnan(one.market.features[:6, one.market.features.shape[1] // 2 :]).all() and len(found) == 2


@pytest.mark.parametrize("preset", ["finrl-crypto", "cappuccino"])
def test_a_window_that_begins_before_an_asset_is_listed_sets_no_order_scale(preset):
    options = {"scenario": late(106.0), "lookback": 1, "reachable": "warn"}
    with pytest.raises(ValueError, match="B trades from bar 6 on, must do so from bar 0, the first of a window"):
        make(preset, **options)


def test_a_file_that_is_not_ours_is_not_replaced(tmp_path):
    raw = tmp_path / "raw.csv"
    raw.write_text("\n".join(ALPACA))
    words = ["import", "alpaca", str(raw), str(raw), "--bar-seconds", "3600"]
    assert main(words) == 2 and raw.read_text() == "\n".join(ALPACA)
    with pytest.raises(ValueError, match="raw.csv is there and no table written here, must be a new file"):
        save(raw, TINY)
    (tmp_path / "meta.json").write_text('{"mine": 1}')
    with pytest.raises(ValueError, match="b.csv: meta.json beside it is none of a table written here"):
        save(tmp_path / "b.csv", TINY)
    assert (tmp_path / "meta.json").read_text() == '{"mine": 1}'


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"high": TINY.low / 2}, r"high\[0, 0\] is .*, must not be below open and close"),
        ({"timestamp": [0, 300 * 10**9, 600 * 10**9, 900 * 10**9, 10**12]}, "must be whole bars of 300 s"),
        ({"timestamp": np.array([0, 1, 2, 3, 104]) * 300 * 10**9}, "comes after a gap of more than 12 bars"),
        ({"symbols": ("A", "")}, "symbols has '', must have text"),
        ({"symbols": (None, "B")}, "symbols has None, must have text"),
        ({"source": 5}, "source has 5, must have text"),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(tmp_path, other, message):
    with pytest.raises(ValueError, match=message):
        save(tmp_path / "bars.csv", dataclasses.replace(TINY, **other))
    assert not list(tmp_path.iterdir())


def test_times_are_nanoseconds_whatever_their_type():
    for unit in ("s", "us", "ns"):
        given = np.datetime64("2024-01-31T12:00:00", unit) + np.arange(5) * np.timedelta64(300, "s").astype(
            f"m8[{unit}]"
        )
        assert dataclasses.replace(TINY, timestamp=given).timestamp[0] == NOON
    with pytest.raises(ValueError, match="timestamp holds float64, must hold whole numbers"):
        dataclasses.replace(TINY, timestamp=np.arange(5.0))


def test_a_gap_of_all_symbols_is_named(tmp_path):
    rows = [*ROWS[:1], "2024-03-31T12:00:00Z,B,1,1,1,1,0"]
    with pytest.raises(ValueError, match="row 2, B: timestamp is .*, comes after a gap of more than 12 bars of all"):
        load(written(tmp_path, rows))
