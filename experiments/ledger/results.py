"""Rows on disk: a journal that survives a kill, and the measured and recorded results of a machine."""

import contextlib
import csv
import hashlib
import io
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lockstep import files
from lockstep.experiments import ROOT, UserError
from lockstep.experiments.bench.timing import ENOUGH, cpu_seconds
from lockstep.experiments.command import writing
from lockstep.experiments.ledger import fingerprint, provenance, sources
from lockstep.experiments.ledger.checksums import verify

HERE, RECORDED = "measured here", "recorded"
CHANGED_HERE, CHANGED = (f"{status}, code changed since" for status in (HERE, RECORDED))
FAILED = ".failed.csv"  # rows that are not to take a result's place
BOOKKEEPING = ["_group", "_rows", "_wall_s", "_cpu_s", "_had"]  # columns of the partial file before the rows' own


class Journal:
    """The rows of one experiment while it runs: X.partial.csv, until `finish` makes X.csv and X.json of it.

    A group of rows is added in one piece and is then on disk; a run that is killed loses the group it was in,
    and the next one with an equal key (see `current_key`) goes on after the last group:

        journal = Journal(path, columns, "throughput", "cartpole", "quick", config)
        for group in groups:
            if group not in journal:
                journal.add(group, rows)
        journal.finish()

    A run that ends on purpose before all is measured says so in `finish`, and what it leaves is a whole result whose
    provenance names the groups that are missing; the next such run goes on from there. Groups that were measured on a
    busy machine by an earlier run are not `in` the journal, and stay until they are measured again.

    columns: of the CSV, in order. config: what provenance shows, a mapping that JSON can hold. conditions: see
    `current_key`.
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        experiment: str,
        environment: str | None,
        scale: str | None,
        config: Mapping,
        commit: str | None = None,
        conditions: Mapping | None = None,
    ):
        self.path, self.columns, self.commit, self.config = Path(path), list(columns), commit, config
        self.partial = self.path.with_suffix(".partial.csv")
        self.partial_key = self.path.with_suffix(".partial.json")
        paths = sources.of_experiment(experiment, environment)
        self._stamps = {path: stamp(ROOT / path) for path in paths}  # first: what is edited from now on is seen
        self.key = current_key(experiment, environment, scale, conditions or {})
        self.section = fingerprint.section_of(experiment, environment, scale)
        self.sources = provenance.hashes(paths)
        self._gpu = fingerprint.counts_gpu(experiment, self.key["machine"]["gpu"] is not None)
        self._meanings = {path: meaning_of(ROOT / path, self._gpu) for path in paths}
        self._checkout = provenance.git_commit(paths)
        self.started = provenance.now()
        self.groups: dict[str, list[list[str]]] = {}
        self._hold = contextlib.ExitStack()
        with self._writing():
            files.make_room(self.path)
            try:
                self._hold.enter_context(files.hold(self.path.with_suffix(".lock")))
            except files.HeldElsewhere as error:
                raise UserError(f"{self.path} is being written by another run ({error.holder})") from None
            self._take_over()
        self._start, self._group_start = clocks(), clocks()

    def _writing(self) -> contextlib.AbstractContextManager:
        kept = "; finished groups are kept, and the same command continues from there"
        return writing(self.path, lambda: kept if self.groups else "")

    def _take_over(self) -> None:
        """Load the groups of a run that was killed, if it was the same run; begin the partial file."""
        if self.partial.exists():
            old = read_json(self.partial_key) or {}
            if old.get("key") == self.key:
                self.groups = complete_groups(self.partial.read_bytes(), BOOKKEEPING + self.columns)
                self.started = old["started"]
                if self.groups:
                    say(f"{self.path}: continuing after {len(self.groups)} finished groups")
            else:
                say(f"{self.partial} is of another code, other settings, other libraries or another machine: discarded")
                self.partial.unlink()  # at once: a kill must not leave it beside the new key
        if not self.groups:
            self._take_over_piece()
        self.again = {name for name, rows in self.groups.items() if is_busy(rows)}
        write_whole(self.partial_key, json.dumps({"key": self.key, "started": self.started}))
        self._write_partial(self.groups)
        spent = [(float(group[0][2]), float(group[0][3])) for group in self.groups.values()]
        self._earlier = [sum(seconds) for seconds in zip(*spent, strict=True)] or [0.0, 0.0]  # wall, CPU

    def _take_over_piece(self) -> None:
        """Load the groups of the same run where it ended with groups missing."""
        described = read_json(self.path.with_suffix(".json")) or {}
        about = described | {"libraries": libraries_of(described)}
        if "groups" not in described or {name: about.get(name) for name in self.key} != self.key:
            return
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return
        if hashlib.sha256(content).hexdigest() != described["rows_sha256"]:
            return
        rows = list(csv.reader(io.StringIO(content.decode(), newline="")))[1:]
        for name, count, *spent in described["groups"]:
            head = [name, str(count), *spent, *[""] * (len(BOOKKEEPING) - 2 - len(spent))]
            self.groups[name] = [[*head, *row] for row in rows[:count]]
            rows = rows[count:]
        self.started = described["started"]
        left = len(described.get("missing", ())), len(described.get("busy", ()))
        words = [
            f"{number} {what}" for number, what in zip(left, ("are missing", "were disturbed"), strict=True) if number
        ]
        say(f"{self.path}: continuing after {len(self.groups)} groups, {' and '.join(words)}")

    def keep(self, planned: Collection[str]) -> None:
        """Forget groups that are no longer asked for."""
        self.groups = {name: rows for name, rows in self.groups.items() if name in planned}

    def __contains__(self, group: str) -> bool:
        return group in self.groups and group not in self.again

    def add(self, group: str, rows: Sequence[Mapping]) -> None:
        """Put a finished group on disk; its rows have the journal's columns, None is an empty cell.

        They may have `had` besides: the share of a core that threads had while they could run, see bench/timing.py.
        """
        for row in rows:
            if set(row) - {"had"} != set(self.columns):
                raise ValueError(f"group {group}: columns {sorted(row)}, expected {sorted(self.columns)}")
        if not rows or group in self:
            raise ValueError(f"group {group} has no rows or is there already")
        self._require_same_code()
        now = clocks()
        spent = [f"{end - start:.3f}" for start, end in zip(self._group_start, now, strict=True)]
        self._group_start = now
        shares = [row["had"] for row in rows if not math.isnan(row.get("had", math.nan))]
        spent.append(f"{sum(shares) / len(shares):.3f}" if shares else "")
        lines = [[group, str(len(rows)), *spent, *(cell(row[column]) for column in self.columns)] for row in rows]
        with self._writing():
            if group in self.again:  # in one step, so that a kill leaves the earlier rows or these
                self._write_partial(self.groups | {group: lines})
            else:
                with open(self.partial, "a", newline="") as file:
                    file.write(csv_text(lines))
                    file.flush()
                    os.fsync(file.fileno())
        self.groups[group] = lines
        self.again.discard(group)

    def _write_partial(self, groups: Mapping[str, list[list[str]]]) -> None:
        rows = [row for group in groups.values() for row in group]
        write_whole(self.partial, csv_text([BOOKKEEPING + self.columns, *rows]))

    def _require_same_code(self) -> None:
        """UserError where the code that measures has been edited since the journal was opened; names the first file."""
        now = {path: stamp(ROOT / path) for path in self._stamps}
        if now == self._stamps:
            return
        about = self.key["experiment"], self.key["environment"]
        try:
            same = fingerprint.of(*about, ROOT, self._gpu) == self.key["fingerprint"]
        except (SyntaxError, OSError, ValueError):  # it is being edited, or gone
            same = False
        if not same:
            touched = [
                path for path in now if now[path] != self._stamps[path] and not path.startswith(fingerprint.ASIDE)
            ]
            edited = (path for path in touched if meaning_of(ROOT / path, self._gpu) != self._meanings[path])
            raise UserError(
                f"{next(edited, 'what is measured')} was edited since this run began, which would give rows of two "
                "versions; finished groups are kept, and the same command goes on from them while the file is as it was"
            )
        self._stamps = now

    def frame(self) -> pd.DataFrame:
        """The rows so far."""
        return table_of(self._text().encode())

    def _text(self) -> str:
        rows = [row[len(BOOKKEEPING) :] for group in self.groups.values() for row in group]
        return csv_text([self.columns, *rows])

    def finish(
        self,
        timing: Mapping | None = None,
        passed: bool | None = None,
        planned: Sequence[str] | Mapping[str, Mapping] | None = None,
        aside: bool = False,
    ) -> Path:
        """Write the CSV and its provenance, each by rename, and remove the partial file; gives the CSV's place.

        passed: the verdict of an experiment that has one; a failed result is never kept as current.
        planned: all groups that there should be, in the order of their rows, perhaps with the fields of each, which
            the provenance then has of those that are missing; None is the groups that there are.
        aside: write X.failed.csv and X.failed.json, and leave the result that is there; else such files go.
        """
        self._require_same_code()
        planned = self.groups if planned is None else planned
        missing = [group for group in planned if group not in self.groups]
        self.groups = {group: self.groups[group] for group in planned if group in self.groups} | self.groups
        wall_s, cpu_s = (
            round(earlier + end - start, 2)
            for earlier, start, end in zip(self._earlier, self._start, clocks(), strict=True)
        )
        about = {name: self.key[name] for name in ("experiment", "environment", "scale")}
        about |= {"config": self.config, "sources": self.sources, "commit": self.commit, "started": self.started}
        described = provenance.collect(**about, wall_s=wall_s, cpu_s=cpu_s, timing=timing, checkout=self._checkout)
        collected = self.key | {"section": self.section} | described
        if passed is not None:
            collected["passed"] = passed
        if missing:
            collected["missing"] = missing
            if isinstance(planned, Mapping):
                collected["missing_groups"] = [planned[name] for name in missing]
        if busy := self.busy(planned):
            collected["busy"] = busy
        if missing or busy:
            collected["groups"] = [[name, len(rows), *rows[0][2:5]] for name, rows in self.groups.items()]
        collected["rows_sha256"] = hashlib.sha256(self._text().encode()).hexdigest()
        failed = self.path.with_suffix(FAILED)
        path = failed if aside else self.path
        with self._writing():
            for old in {path.with_suffix(".json"), failed.with_suffix(".json"), failed} - {path}:
                old.unlink(missing_ok=True)  # first: old rows must never stand beside new provenance
            write_whole(path, self._text())
            write_whole(path.with_suffix(".json"), json.dumps(collected, indent=1) + "\n")
            # The rows first: a key without rows starts afresh, rows without a key would look foreign.
            self.partial.unlink()
            self.partial_key.unlink()
        self.close()
        return path

    def busy(self, planned: Sequence[str] | Mapping[str, Mapping]) -> list[dict]:
        """Groups whose threads had less of the cores than ENOUGH, with the places of their rows and their fields."""
        found, first = [], 0
        for name, rows in self.groups.items():
            if is_busy(rows):
                had = rows[0][BOOKKEEPING.index("_had")]
                fields = planned[name] if isinstance(planned, Mapping) else {}
                found.append({"group": name, "had": float(had), "first": first, "rows": len(rows), "fields": fields})
            first += len(rows)
        return found

    def close(self) -> None:
        """Let another run write here; what is on disk stays for it to go on from."""
        self._hold.close()


def stamp(file: Path) -> tuple[int, int] | None:
    """A number that changes where a file is written, and its size; None where it is gone."""
    try:
        about = file.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


def meaning_of(file: Path, gpu: bool = True) -> str | None:
    """The digest of what a source means, as fingerprints take it; None where it cannot be read."""
    try:
        if file.suffix in sources.DATA:
            return fingerprint.digest_of_content(file)
        return fingerprint.digest_of_meaning(file.suffix, file.read_text(), gpu)
    except (SyntaxError, OSError, ValueError):
        return None


def is_busy(group: list[list[str]]) -> bool:
    """Tells of a group's rows that its threads had less of the cores than ENOUGH."""
    had = group[0][BOOKKEEPING.index("_had")]
    return bool(had) and float(had) < ENOUGH


def disturbed_groups(described: Mapping) -> list[str]:
    """Names of groups that a provenance says were measured on a busy machine, where a run can go on from the others."""
    return [group["group"] for group in described.get("busy", ())] if "groups" in described else []


def current_key(experiment: str, environment: str | None, scale: str, conditions: Mapping) -> dict:
    """The key of a run's rows: those of runs with equal keys may stand together.

    conditions: what the groups depend on beside code, settings, machine and its libraries.
    """
    machine = provenance.machine()
    key = meaning(experiment, environment, scale, gpu=machine["gpu"] is not None)
    key |= {"conditions": conditions, "machine": machine, "libraries": provenance.libraries()}
    return json.loads(json.dumps(key))  # so that it compares equal to one that was read from a file


def libraries_of(described: Mapping) -> dict[str, str]:
    """The versions of libraries that a result's rows depend on.

    Of one that was written before they were in the key: those among its packages, and of others the present ones.
    """
    return described.get("libraries", provenance.libraries() | provenance.libraries(described.get("packages", {})))


def meaning(experiment: str, environment: str | None, scale: str, root: Path = ROOT, *, gpu: bool) -> dict:
    """The code and conditions that every row of an experiment depends on, on any machine with or without a GPU."""
    return {
        "experiment": experiment,
        "environment": environment,
        "scale": scale,
        "fingerprint": fingerprint.of(experiment, environment, root, gpu),
        "settings": fingerprint.settings_of(experiment, environment, scale),
    }


def is_of_the_present_code(described: Mapping, root: Path = ROOT) -> bool:
    """Tells of a result that code and settings that determine it are what they were.

    Of one that was written before there were fingerprints: that its sources are, byte for byte.
    """
    if "fingerprint" not in described:
        return not provenance.changed(described["sources"], root)
    try:
        of = (described[name] for name in ("experiment", "environment", "scale"))
        now = meaning(*of, root, gpu=(described["machine"] or {}).get("gpu") is not None)
    except (UserError, ValueError, KeyError):  # it is gone, or asks for what is refused
        return False
    return {name: described[name] for name in now} == json.loads(json.dumps(now))


def complete_groups(content: bytes, header: Sequence[str]) -> dict[str, list[list[str]]]:
    """The groups of a partial file that have all their rows, up to the first line that is broken."""
    lines = content.split(b"\n")[:-1]  # what follows the last line's end is a line that was cut
    rows = []
    for line in lines:
        try:
            row = next(csv.reader([line.decode()], strict=True), [])
        except (UnicodeDecodeError, csv.Error):
            break
        if len(row) != len(header):
            break
        rows.append(row)
    groups: dict[str, list[list[str]]] = {}
    if rows and rows[0] == list(header):
        for row in rows[1:]:
            groups.setdefault(row[0], []).append(row)
    return {name: group for name, group in groups.items() if group[0][1] == str(len(group))}


def clocks() -> tuple[float, float]:
    """Wall and CPU seconds so far."""
    return time.perf_counter(), cpu_seconds()


def cell(value: object) -> str:
    """A value as it stands in a CSV: shortest text that reads back equal, empty for None."""
    if value is None:
        return ""
    return repr(float(value)) if isinstance(value, float) else str(value)


def csv_text(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    with files.replacing(path, newline="") as file:
        file.write(text)


def read_json(path: Path) -> dict | None:
    """The JSON object in a file; None where it is missing or broken."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def read(path: Path) -> tuple[pd.DataFrame, dict]:
    """The rows of X.csv and their provenance, X.json. UserError where either is missing or broken."""
    path = Path(path)
    described = read_json(path.with_suffix(".json"))
    if described is None:
        raise UserError(f"{path} has no readable provenance beside it ({path.stem}.json)")
    missing = [key for key in ("sources", "machine") if key not in described]
    if missing:
        raise UserError(f"{path.with_suffix('.json')} lacks {', '.join(missing)}; measure again")
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != described.get("rows_sha256", hashlib.sha256(content).hexdigest()):
            raise UserError(f"{path} is not the file that {path.stem}.json describes; measure again")
        return table_of(content), described
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def missing_groups(described: Mapping) -> list[Mapping]:
    """The fields of every group that a provenance says is missing or that was measured on a busy machine.

    None of them where it does not tell them.
    """
    missing = described.get("missing_groups", [{} for _ in described.get("missing", ())])
    return [*missing, *(group["fields"] for group in described.get("busy", ()))]


def undisturbed(frame: pd.DataFrame, described: Mapping) -> pd.DataFrame:
    """The rows without those that were measured on a busy machine."""
    busy = [range(group["first"], group["first"] + group["rows"]) for group in described.get("busy", ())]
    return frame.drop(index=itertools.chain(*busy)).reset_index(drop=True) if busy else frame


def table_of(content: bytes) -> pd.DataFrame:
    """The rows of a CSV, read whole: the type of a column follows from all of its rows."""
    return pd.read_csv(io.BytesIO(content), low_memory=False)


@dataclass(frozen=True)
class Dataset:
    """One machine's rows of one experiment.

    machine: the folder's name of a recorded machine, the label of this one. origin: "here" or "recorded".
    status: one of HERE, CHANGED_HERE, RECORDED, CHANGED.
    """

    frame: pd.DataFrame
    provenance: dict
    machine: str
    origin: str
    status: str
    path: Path


def datasets(environment: str | None, experiment: str, root: Path = ROOT) -> list[Dataset]:
    """Datasets of an experiment: measured here first, then every recorded machine by name.

    environment: None for ceilings, which belong to a machine alone. Recorded folders are checked against
    their SHA256SUMS before use (ChecksumError). An empty list means "not measured". Rows that were measured on a busy
    machine are left out, and datasets that have no others; the provenance says which.
    """
    inside = Path(*([environment] if environment else []), f"{experiment}.csv")
    found = []
    here = root / "results" / inside
    if here.exists():
        frame, described = read(here)
        label = described["machine"]["label"]
        status = HERE if is_of_the_present_code(described, root) else CHANGED_HERE
        found.append(Dataset(undisturbed(frame, described), described, label, "here", status, here))
    for folder in sorted((root / "results" / "recorded").glob("*/")):
        path = folder / inside
        if path.exists():
            verify(folder)
            frame, described = read(path)
            status = RECORDED if is_of_the_present_code(described, root) else CHANGED
            found.append(Dataset(undisturbed(frame, described), described, folder.name, "recorded", status, path))
    return [one for one in found if len(one.frame)]
