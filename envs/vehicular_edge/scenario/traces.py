"""Recorded traffic: loaders of three formats (README.md, 4.5).

Every loader reads its file in parts, so that it may be larger than memory, and yields `Records` in planar metres.
"""

import csv
import hashlib
import numbers
import sys
import time
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from lockstep.extras import extra

from ..params import Params
from . import gcj02
from .records import LATEST_S, Records

with extra("edge", of="reading traffic"):
    import pandas as pd

FOOT_M = 0.3048
CLOCK = "%Y-%m-%d %H:%M:%S"
PUBLISHED_SHIFT_S = 15 * 3600.0  # between clocks in China and in California in summer (Q16)
WINDOW_S = 100  # of the published windows on NGSIM
ROWS = 200_000  # of a file, read at once
NGSIM = {"Vehicle_ID": "vehicle", "Global_Time": "utc_s", "Local_X": "x", "Local_Y": "y"}
FCD = {"timestep_time": "utc_s", "vehicle_id": "vehicle", "vehicle_x": "x", "vehicle_y": "y"}
GAIA = ("driver", "order", "time", "lon", "lat")
IDS = ("Vehicle_ID", "vehicle_id", "driver", "order")
WHOLE_NUMBER = r"-?\d{1,18}(\.0*)?"  # that int64 holds


def ngsim(path, start_s: float | None = None, seconds: float = WINDOW_S, **equal) -> Records:
    """NGSIM CSV: `Vehicle_ID, Global_Time` in ms (Peachtree: s), `Local_X, Local_Y` in ft.

    Args:
        start_s, seconds: keeps start_s <= utc <= start_s + seconds; None keeps all.
        equal: keeps rows whose column has this value, as Location="i-80".
    """

    def metres(part: pd.DataFrame) -> pd.DataFrame:
        vehicle = part["vehicle"].str.replace(",", "")  # between thousands
        return part.assign(vehicle=vehicle, utc_s=_seconds(part["utc_s"]), x=part["x"] * FOOT_M, y=part["y"] * FOOT_M)

    return _csv(path, NGSIM, metres, start_s, seconds, equal, thousands=",")


def sumo_csv(path, start_s: float | None = None, seconds: float = WINDOW_S) -> Records:
    """SUMO floating car positions, converted to CSV: `timestep_time`, `vehicle_id`, `vehicle_x`, `vehicle_y`."""
    # A second without vehicles is a row without one.
    return _csv(path, FCD, lambda part: part, start_s, seconds, needs="vehicle_id", sep=None, engine="python")


def sumo_xml(path, start_s: float | None = None, seconds: float = WINDOW_S) -> Records:
    """SUMO floating car positions: `timestep@time`, `vehicle@id,x,y`; start_s and seconds as in `ngsim`."""
    _check_window(start_s, seconds)
    rows = []
    now = None
    try:
        for event, element in ElementTree.iterparse(path, events=("start", "end")):
            if event == "start" and element.tag == "timestep":
                now = float(element.attrib["time"])
            elif event == "end" and element.tag == "vehicle" and now is None:
                raise ValueError("a vehicle outside of a timestep")
            elif event == "end" and element.tag == "vehicle" and (start_s is None or 0 <= now - start_s <= seconds):
                rows.append((element.attrib["id"], now, float(element.attrib["x"]), float(element.attrib["y"])))
            if event == "end":
                element.clear()
    except KeyError as error:
        raise ValueError(f"{path}: a {element.tag} lacks the attribute {error}") from error
    except (ElementTree.ParseError, ValueError) as error:
        raise ValueError(f"{path}: not XML of positions: {error}") from error
    if now is None:
        raise ValueError(f"{path}: not XML of positions: it has no timestep")
    return _records(pd.DataFrame(rows, columns=["vehicle", "utc_s", "x", "y"]), path)


def gaia(
    path, start_s: float | None = None, seconds: float = WINDOW_S, origin: tuple[float, float] | None = None
) -> Records:
    """GAIA-like CSV: driver, order, unix time, longitude, latitude in GCJ-02; a trip is a vehicle.

    A first row of the names driver, order, time, lon, lat may be there or not.

    Args:
        start_s, seconds: as in `ngsim`.
        origin: longitude, latitude of x = y = 0 in WGS-84, None takes the smallest of the records.
    """
    place = np.zeros(2) if origin is None else np.asarray(origin)
    if place.shape != (2,) or place.dtype.kind not in "iuf" or not np.isfinite(place).all():
        raise ValueError(f"origin={origin!r:.60} must be a longitude and a latitude")
    with Path(path).open(errors="replace") as file:
        head = [name.strip() for name in file.readline().split(",")]
    header = 0 if head == list(GAIA) else None
    if len(head) != len(GAIA):
        raise ValueError(f"{path}: has {len(head)} columns, must have {len(GAIA)}: {', '.join(GAIA)}")

    def trips(part: pd.DataFrame) -> pd.DataFrame:
        for name, most in (("lon", 180.0), ("lat", 90.0)):
            beyond = part[name].abs() > most
            if beyond.any():
                row = beyond.idxmax()
                raise ValueError(f"{path}: {name} of row {row} is {part[name][row]}, must lie in [-{most}, {most}]")
        longitude, latitude = gcj02.to_wgs84(part["lon"].to_numpy(), part["lat"].to_numpy())
        vehicle = part["driver"].astype(str) + "/" + part["order"].astype(str)
        return pd.DataFrame({"vehicle": vehicle, "utc_s": _seconds(part["time"]), "x": longitude, "y": latitude})

    columns = {name: name for name in GAIA}
    found = _csv(path, columns, trips, start_s, seconds, header=header, names=list(GAIA))
    if origin is None:
        origin = (found.x.min(), found.y.min()) if len(found.x) else (0.0, 0.0)
    x, y = gcj02.local_metres(found.x, found.y, origin)
    return Records(found.vehicle, found.utc_s, x, y, found.source)


def window_start(text: str, params: Params, zone: str) -> float:
    """Unix time of a wall-clock time "YYYY-MM-DD HH:MM:SS" at the site (Q16), for `start_s`.

    Args:
        zone: of the site, as "America/Los_Angeles". The published code takes this machine's zone and adds 15 h, which
            is the site's time on a machine in China in summer.

    Raises:
        ValueError: no such time or zone.
    """
    try:
        moment = datetime.strptime(text, CLOCK)
    except (TypeError, ValueError) as error:
        raise ValueError(f"text={text!r} must be a time as {datetime(2005, 6, 15, 7, 50):{CLOCK}}") from error
    if params.local_time_window:
        return time.mktime(moment.timetuple()) + PUBLISHED_SHIFT_S
    try:
        return moment.replace(tzinfo=ZoneInfo(zone)).timestamp()
    except (TypeError, ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise ValueError(f"zone={zone!r} must be a time zone as 'America/Los_Angeles'") from error


def _seconds(time: pd.Series) -> np.ndarray:
    return np.where(time > LATEST_S, time / 1000.0, time)


def _csv(
    path, columns: dict, convert, start_s, seconds: float, equal=None, needs=None, header=0, names=None, **options
) -> Records:
    """Reads a CSV in parts, checks its columns, converts and keeps the rows of the window.

    Args:
        equal: values that columns must have, others' rows are left out.
        needs: column without which a row is left out.
    """
    _check_window(start_s, seconds)
    equal = equal or {}
    parts = []
    if Path(path).stat().st_size == 0:
        raise ValueError(f"{path}: not a CSV file: it is empty")
    identifiers = dict.fromkeys(IDS, str)  # as they stand there: 007 and 1.0 stay what they are
    try:
        with pd.read_csv(
            path, chunksize=ROWS, header=header, names=names, dtype=identifiers, skipinitialspace=True, **options
        ) as reader:
            for part in reader:
                part = part.rename(columns=str.strip)
                missing = [name for name in (*columns, *equal) if name not in part]
                if missing:
                    raise ValueError(f"{path}: lacks the column {missing[0]}; it has {', '.join(map(str, part))}")
                for name, value in equal.items():
                    part = part[part[name] == value]
                part = part if needs is None else part[part[needs].notna()]
                part = convert(_numbers(part[list(columns)], path).rename(columns=columns))
                since = part["utc_s"] - (start_s or 0.0)
                parts.append(part if start_s is None else part[(since >= 0) & (since <= seconds)])
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError, csv.Error, OSError, EOFError) as error:
        raise ValueError(f"{path}: not a CSV file: {str(error).strip()}") from error
    return _records(pd.concat(parts, ignore_index=True), path)


def _check_window(start_s: float | None, seconds: float):
    for name, value in (("start_s", 0.0 if start_s is None else start_s), ("seconds", seconds)):
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not abs(value) <= sys.float_info.max:
            raise ValueError(f"{name}={value!r:.60} must be a finite number of seconds")
    if seconds <= 0:
        raise ValueError(f"seconds={seconds!r} must be positive")


def _numbers(part: pd.DataFrame, path) -> pd.DataFrame:
    """The part with numbers in all columns but those of ids, where nothing may be missing."""
    part = part.copy()
    for name in part.columns.intersection(IDS):
        if part[name].isna().any():
            raise ValueError(f"{path}: {name} of row {part[name].isna().idxmax()} is missing")
    for name in part.columns.difference(IDS):
        part[name] = pd.to_numeric(part[name], errors="coerce").astype(np.float64)
        wrong = ~np.isfinite(part[name])
        if wrong.any():
            raise ValueError(f"{path}: {name} of row {wrong.idxmax()} is no finite number")
    return part


def _records(rows: pd.DataFrame, path) -> Records:
    with Path(path).open("rb") as file:
        source = {"file": Path(path).name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    vehicle = rows["vehicle"].to_numpy(str)
    numeric = pd.Series(vehicle).str.fullmatch(WHOLE_NUMBER).all()
    if numeric:  # so that 9 is lower than 10
        vehicle = np.array([number.partition(".")[0] for number in vehicle.tolist()], dtype=np.int64)
    return Records(vehicle, *(rows[name].to_numpy(np.float64) for name in ("utc_s", "x", "y")), source)
